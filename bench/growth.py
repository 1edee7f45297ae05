"""How cost and memory grow with the number of sockets, of open connections and of origins."""

import threading
import time

import load
from contenders import PAGES
from harness import Failed, memory_kib

SOCKETS = (1, 10, 100, 1_000)
CONNECTIONS = (1, 10, 100, 1_000, 10_000)
ORIGINS = (1, 4, 16, 64)
#: How many threads open connections.
OPENERS = 4


def point(contender, count, seconds):
    """What requests cost the server now, and what it holds before them."""
    server, url = contender.pids("server"), contender.target(PAGES).url("100b")
    memory = memory_kib(server)
    load.requests(url, 32, 1, server)  # pools are filled, and new tunnels have their first streams
    said = load.requests(url, 32, seconds, server)
    return {"n": count, "cpu_us": said["cpu_us"], "per_s": said["per_s"], "server_kib": memory}


def summary(points):
    first, last = points[0], points[-1]
    return {"cost_growth": last["cpu_us"] / first["cpu_us"],
            "each_kib": max(0.0, (last["server_kib"] - first["server_kib"]) / (last["n"] - first["n"])), "points": points}


def grow(contender, counts, add, seconds):
    """A point for each count; `add` makes so many more."""
    contender.start_one()
    points = []
    for count in counts:
        add(count - (points[-1]["n"] if points else 1))
        time.sleep(2)
        points.append(point(contender, count, seconds))
    return summary(points)


def sockets(contender, seconds):
    return grow(contender, SOCKETS, contender.add_sockets, seconds)


def origins(contender, seconds):
    return grow(contender, ORIGINS, contender.add_origins, seconds)


def connections(contender, seconds):
    contender.start_one()
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
            time.sleep(2)
            points.append(point(contender, count, seconds))
    finally:
        for stream in kept:
            stream.close()
    return summary(points)


#: what grows -> how it is measured
MEASURES = {"sockets": sockets, "connections": connections, "origins": origins}
