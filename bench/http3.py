"""HTTP/3 of clients, and HTTP/2 by the same load, `http3-load`."""

import json
import resource
import subprocess
import time

import load
from contenders.base import PAGES, SINK, SINK_PORT
from harness import WARM_UP_S, Failed, cpu_seconds, memory_kib

#: How many idle connections there are for each one of the other sets' rows.
IDLE_TIMES = 2
#: How many times as long as usual memory settles at first, when a server gives back what its start has taken.
FIRST_SETTLE_TIMES = 4


def requests(connections, streams, contender, seconds):
    """Requests for 100 bytes on kept connections, with so many streams under way on each."""
    return _warmed(_argv(contender, "requests", PAGES, "100b", connections, streams), contender, seconds)


def connections(at_a_time, contender, seconds):
    """New connections with a whole handshake, and a request on each."""
    return _warmed(_argv(contender, "new", PAGES, "100b", at_a_time), contender, seconds)


def bulk(way, connections, contender, seconds):
    """One body that does not end on each connection. Uploads are what arrives at the origin."""
    if way == "down":
        said, spent = _spent(contender, lambda: _said(_argv(contender, "down", PAGES, "endless", connections), seconds))
        got, took = said["bytes"], said["seconds"]
    else:
        argv = [*_argv(contender, "up", SINK, "", connections), str(seconds + 2)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sender:
            time.sleep(1)
            begin, first = time.monotonic(), load.sink_bytes(SINK_PORT)
            _, spent = _spent(contender, lambda: time.sleep(seconds))
            took, got = time.monotonic() - begin, load.sink_bytes(SINK_PORT) - first
            printed, _ = sender.communicate(timeout=60)
        if sender.returncode != 0:
            raise Failed(f"an upload: {printed.strip()[-300:]}")
        # The load has not ended by then, so that its time is not known.
        del spent["load_cpu"]
    if got <= 0:
        raise Failed("nothing arrived")
    return {"gbit_s": got * 8 / took / 1e9} | {f"{name}_s_per_gb": value / (got / 1e9) for name, value in spent.items()}


def idle_connection(contender, _seconds):
    """Connections that made one request each and are kept: what those after the first fifth take."""
    most, points = contender.bench.idle_connections * IDLE_TIMES, []
    time.sleep(FIRST_SETTLE_TIMES * contender.bench.settle_seconds)
    counts = (most // 5, most)
    argv = _argv(contender, "hold", PAGES, "100b", *counts)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holder:
        try:
            for count in counts:
                if holder.stdout.readline().strip() != str(count):
                    raise Failed(f"there are no {count} connections: {holder.stderr.read()[-300:].strip()}")
                time.sleep(contender.bench.settle_seconds)
                points.append([memory_kib(contender.pids(role)) for role in ("server", "client")])
                holder.stdin.write("\n")
                holder.stdin.flush()
            open_still = holder.stdout.readline().strip()
        finally:
            holder.kill()
    if open_still != str(most):
        raise Failed(f"of {most} connections {open_still or 'none'} were left")
    more = counts[1] - counts[0]
    return {f"{role}_kib": max(0.0, (last - first) / more) for role, first, last in zip(("server", "client"), *points)}


def answers(contender, name):
    """Asks this origin by the contender's version of HTTP, and fails where it does not answer."""
    _requests_said(_argv(contender, "requests", name, "100b", 1, 1), 1)


def _argv(contender, what, name, path, *numbers):
    target = contender.target(name)
    return [contender.bench.tool("http3-load"), what, contender.version, f"127.0.0.1:{target.port}", target.host, f"/{path}", *map(str, numbers)]


def _warmed(argv, contender, seconds):
    """Requests or connections, after a short load that counts for nothing."""
    _requests_said(argv, WARM_UP_S)
    said, spent = _spent(contender, lambda: _requests_said(argv, seconds))
    figures = {"per_s": said["count"] / said["seconds"], "p50_ms": said["p50_ms"], "p99_ms": said["p99_ms"]}
    if said["failed"]:
        figures["errors"] = f"{said['failed']}: {said['first_failure']}"
    return figures | {f"{name}_us": value / said["count"] * 1e6 for name, value in spent.items()}


def _requests_said(argv, seconds):
    said = _said(argv, seconds)
    if said["count"] == 0:
        raise Failed(f"no answers: {said['first_failure']}")
    return said


def _said(argv, seconds):
    done = subprocess.run([*argv, str(seconds)], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise Failed(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def _spent(contender, ask):
    """What `ask` gives, and the CPU seconds meanwhile of both sides, of the server alone, and of the load."""
    pids, server = contender.pids(), contender.pids("server")
    before = cpu_seconds(pids), cpu_seconds(server), _children_seconds()
    said = ask()
    after = cpu_seconds(pids), cpu_seconds(server), _children_seconds()
    return said, {name: last - first for name, first, last in zip(("cpu", "server_cpu", "load_cpu"), before, after)}


def _children_seconds():
    """CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
