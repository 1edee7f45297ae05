"""What name servers answer a second, and how late, by dnsperf."""

import contextlib
import os
import re
import subprocess

from contenders.names import DNS_PORT, LEAF, NAMES
from harness import Failed, Unavailable, cpu_seconds

#: How much of its most a server answers while it is measured how late answers are.
LOAD_SHARE = 0.7
#: How many answers a second are looked at one by one, beside the load.
LOOKED_AT_PER_S = 500
#: How many questions are under way at once.
UNDER_WAY = 128
#: How many new names a second there are at most.
MOST_PER_S = 200_000


def questions(contender, name, lines):
    path = os.path.join(contender.bench.folder, name)
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.writelines(lines)
    return path


def argv(path, seconds, *more):
    return ["dnsperf", "-s", "127.0.0.1", "-p", str(DNS_PORT), "-d", path, "-l", str(seconds), "-c", "8", "-t", "1", *more]


def answered(printed, code):
    """How many answers there were, and how many a second; all must have this code."""
    def number(what):
        found = re.search(rf"{what}:\s+([\d.]+)", printed)
        if not found:
            raise Failed(f"dnsperf does not say {what}: {printed[-300:]}")
        return float(found.group(1))
    codes = re.search(r"Response codes:\s+(.*)", printed)
    if not codes or not re.fullmatch(rf"{code} \d+ \(100\.00%\)", codes.group(1).strip()):
        raise Failed(f"answers with other codes than {code}: {codes.group(1) if codes else printed[-300:]}")
    return number("Queries completed"), number("Queries per second")


def ask(path, seconds, code, *more):
    try:
        done = subprocess.run(argv(path, seconds, *more), capture_output=True, text=True, timeout=seconds + 30)
    except FileNotFoundError as error:
        raise Unavailable("dnsperf is not there (Debian's package dnsperf)") from error
    if done.returncode != 0:
        raise Failed(f"dnsperf ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout, *answered(done.stdout, code)


@contextlib.contextmanager
def load_of(path, seconds, per_second, *more):
    """So many questions a second, and nobody looks at the answers."""
    process = subprocess.Popen(argv(path, seconds, "-q", str(UNDER_WAY), "-Q", str(int(per_second)), *more),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def latencies(path, seconds, per_second, code):
    """The times of some answers beside so many others, in milliseconds."""
    with load_of(path, seconds + 2, per_second):
        printed, _, _ = ask(path, seconds, code, "-q", "8", "-Q", str(LOOKED_AT_PER_S), "-v")
    return [float(time) * 1e3 for time in re.findall(rf"^> {code} \S+ \S+ ([\d.]+)$", printed, re.MULTILINE)]


def addresses(contender, seconds):
    """Addresses that are there, without signatures."""
    path = questions(contender, "names", (f"{name} A\n" for name in NAMES))
    ask(path, 1, "NOERROR", "-q", str(UNDER_WAY))
    before = cpu_seconds(contender.pids())
    _, count, per_s = ask(path, seconds, "NOERROR", "-q", str(UNDER_WAY))
    cpu_us = (cpu_seconds(contender.pids()) - before) / count * 1e6
    times = latencies(path, seconds, per_s * LOAD_SHARE, "NOERROR")
    return {"per_s": per_s, "p99_ms": percentile(times, 99), "cpu_us": cpu_us}


def missing(contender, seconds):
    """Names that are not there, each of them new, with signatures; and how late other answers are meanwhile.

    Who signs when it is asked says of such a name that it has no records (RFC 9824).
    """
    if not contender.signs:
        raise Unavailable(f"{contender.name} does not sign when it is asked")
    known = questions(contender, "names", (f"{name} A\n" for name in NAMES))
    path = questions(contender, "missing", (f"n{number}.{LEAF} A\n" for number in range(MOST_PER_S * (seconds + 1))))
    before = cpu_seconds(contender.pids())
    _, count, per_s = ask(path, seconds, "NOERROR", "-q", str(UNDER_WAY), "-D", "-n", "1")
    cpu_us = (cpu_seconds(contender.pids()) - before) / count * 1e6
    quiet = percentile(latencies(known, 2, 1, "NOERROR"), 99)
    with load_of(path, seconds + 4, per_s * LOAD_SHARE, "-D"):
        printed, _, _ = ask(known, seconds, "NOERROR", "-q", "8", "-Q", str(LOOKED_AT_PER_S), "-v")
    times = [float(time) * 1e3 for time in re.findall(r"^> NOERROR \S+ \S+ ([\d.]+)$", printed, re.MULTILINE)]
    return {"per_s": per_s, "cpu_us": cpu_us, "p99_ms": percentile(times, 99), "against_quiet": percentile(times, 99) / quiet}
