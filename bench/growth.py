"""How cost and memory grow with the number of sockets, of open connections, of origins, and of programs that hold them."""

import statistics
import threading
import time

import load
from contenders import PAGES
from harness import Failed, Unavailable, cpu_seconds, memory_kib, stop

SOCKETS = (1, 10, 100, 1_000)
CONNECTIONS = (1, 10, 100, 1_000, 10_000)
ORIGINS = (1, 4, 16, 64)
#: How many threads open connections.
OPENERS = 4
#: How often requests are measured at each point; the medians count.
TIMES = 3
#: How long those wait that follow a change.
SETTLE_S = 2


def point(contender, count, seconds):
    """What requests cost the server, and both sides, now; and what the server held before them."""
    server, url = contender.pids("server"), contender.target(PAGES).url("100b")
    memory = memory_kib(server)
    load.requests(url, 32, 1, server)  # pools are filled, and new tunnels have their first streams
    found = []
    for _ in range(TIMES):
        before = cpu_seconds(contender.pids("client"))
        said = load.requests(url, 32, seconds, server)
        requests = said["per_s"] * seconds
        found.append((said["cpu_us"], said["cpu_us"] + (cpu_seconds(contender.pids("client")) - before) / requests * 1e6, said["per_s"]))
    server_us, both_us, per_s = map(statistics.median, zip(*found))
    return {"n": count, "cpu_us": server_us, "both_cpu_us": both_us, "per_s": per_s, "server_kib": memory}


def summary(points):
    first, last = points[0], points[-1]
    return {"cost_growth": last["cpu_us"] / first["cpu_us"], "both_cost_growth": last["both_cpu_us"] / first["both_cpu_us"],
            "each_kib": max(0.0, (last["server_kib"] - first["server_kib"]) / (last["n"] - first["n"])), "points": points}


def until_served(contender, seconds=20):
    deadline = time.monotonic() + seconds
    while True:
        try:
            load.one_request(contender.target(PAGES), "/100b", seconds=5)
            return
        except (OSError, Failed):
            for process in contender.processes:
                process.check()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def sockets(contender, seconds):
    contender.start_origins(1, 1)
    points = []
    for count in SOCKETS:
        contender.add_sockets(count - (points[-1]["n"] if points else 1))
        time.sleep(SETTLE_S)
        points.append(point(contender, count, seconds))
    return summary(points)


def origins(are_apart, contender, seconds):
    """Of one socket: held by one program on the far side, or each by a program of its own."""
    points = []
    for count in ORIGINS:
        contender.start_origins(count, count if are_apart else 1)
        until_served(contender)
        time.sleep(SETTLE_S)
        points.append(point(contender, count, seconds))
        stop(contender.processes)
        contender.processes = []
    return summary(points)


def connections(contender, seconds):
    if contender.max_connections and contender.max_connections <= CONNECTIONS[-1]:
        raise Unavailable(f"{contender.name} holds two descriptors ready for each of {CONNECTIONS[-1]:,} connections")
    contender.start_origins(1, 1)
    until_served(contender)
    target, kept, failures, points = contender.target(PAGES), [], [], []

    def open_some(count):
        try:
            for _ in range(count):
                kept.append(load.one_request(target, "/100b", keep=True)[1])
        except (OSError, Failed) as error:
            failures.append(error)

    try:
        for count in CONNECTIONS:
            missing = count - len(kept)
            share = [missing // OPENERS + (number < missing % OPENERS) for number in range(OPENERS)]
            openers = [threading.Thread(target=open_some, args=(part,)) for part in share]
            for opener in openers:
                opener.start()
            for opener in openers:
                opener.join()
            if failures:
                raise Failed(f"after {len(kept)} connections: {failures[0]}")
            time.sleep(SETTLE_S)
            points.append(point(contender, count, seconds))
    finally:
        for stream in kept:
            stream.close()
    return summary(points)
