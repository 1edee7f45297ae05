"""Where the time of a contender's processes goes while a row runs: their stacks, by perf, drawn by inferno."""

import os
import signal
import subprocess
import time

from harness import Failed, family

#: Not a divisor of what programs' own timers have.
SAMPLES_PER_S = 499
#: Narrower frames are left out of the drawing, in percent of its width.
LEAST_PERCENT = 0.1


def recorded(contender, measure, path):
    """What `measure` gives, with a drawing for each role that has processes: `path`, a dash, the role, `.svg`."""
    recorders = [_record(contender, role, f"{contender.bench.folder}/{role}.perf") for role in ("server", "client") if contender.pids(role)]
    time.sleep(0.5)
    try:
        figures = measure()
    finally:
        for _, _, perf in recorders:
            perf.send_signal(signal.SIGINT)
            perf.wait(30)
    return figures, [_draw(contender, role, data, f"{path}-{role}.svg") for role, data, _ in recorders]


def _record(contender, role, data):
    pids = ",".join(str(pid) for pid in family(contender.pids(role)))
    argv = ["perf", "record", "-q", "-F", str(SAMPLES_PER_S), "--call-graph", "fp", "-o", data, "-p", pids]
    return role, data, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _draw(contender, role, data, path):
    flamegraph = contender.bench.tool("inferno")
    collapse = os.path.join(os.path.dirname(flamegraph), "inferno-collapse-perf")
    script = subprocess.run(["perf", "script", "--no-inline", "-i", data], capture_output=True, check=True).stdout
    folded = subprocess.run([collapse], input=script, capture_output=True, check=True).stdout
    if not folded:
        raise Failed(f"perf has no samples of the {role}")
    build = ", ".join(f"{name} {value}" for name, value in contender.bench.build().items())
    title = f"{os.path.basename(path).removesuffix('.svg')}: {build}"
    argv = [flamegraph, "--title", title, "--minwidth", str(LEAST_PERCENT), "--colors", "rust", "--hash"]
    with open(path, "wb") as drawing:
        subprocess.run(argv, input=folded, stdout=drawing, check=True)
    return path
