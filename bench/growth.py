"""How cost and memory grow with the number of sockets, of open connections, of origins, of programs that hold them, and of
public certificates.

A machine is not as fast in one minute as in the next, nor in one second. So another instance of the contender, which has one
of everything, stands beside the one that grows. Both are asked in turns of a quarter of a second, and what a point costs is
told against what the other one cost in the same seconds.
"""

import contextlib
import socket
import statistics
import threading
import time

import load
from contenders import PAGES
from harness import Failed, Unavailable, cpu_seconds, memory_kib, stop

SOCKETS = (1, 10, 100, 1_000)
CONNECTIONS = (1, 10, 100, 1_000, 10_000)
ORIGINS = (1, 4, 16, 64)
CERTIFICATES = (1, 10, 100, 1_000)
#: How many threads open connections.
OPENERS = 4
#: How long a turn is, and how often requests are measured at each point, each time by new connections; the medians count.
TURN_S, TIMES = 0.25, 4
#: How long those wait that follow a change.
SETTLE_S = 2
#: What is measured of each of the two, in this order.
FIGURES = ("cpu_us", "both_cpu_us", "per_s")


def in_turns(contenders, seconds):
    """The figures of each: what a request costs the server, and both sides, in us of CPU, and how many there are a second."""
    roles = [contender.pids(role) for contender in contenders for role in ("server", "client")]
    before = [cpu_seconds(pids) for pids in roles]
    done = load.requests_in_turns([contender.target(PAGES).url("100b") for contender in contenders], 32, seconds, TURN_S)
    spent = [cpu_seconds(pids) - first for pids, first in zip(roles, before)]
    return [(server / count * 1e6, (server + client) / count * 1e6, count / took)
            for (count, took), server, client in zip(done, spent[::2], spent[1::2])]


def handshakes_in_turns(contenders, seconds):
    """The same for a connection with a full handshake, in turns of a second."""
    done = [[0.0, 0.0] for _ in contenders]
    for turn in range(max(1, int(seconds))):
        order = list(enumerate(contenders))
        for number, contender in order if turn % 2 == 0 else order[::-1]:
            target = contender.target(PAGES)
            result = load.tls_connections(target, "/100b", "--full", 8, 1, contender.pids("server"), socket.gethostbyname(target.host))
            count = result["per_s"]
            done[number][0] += result["cpu_us"] * count
            done[number][1] += count
    return [(spent / count, spent / count, count / max(1, int(seconds))) for spent, count in done]


def point(contender, one, count, seconds, in_turns=in_turns):
    """The figures with so many, and beside them those of `one`; and what the server holds when it has had requests."""
    in_turns((one, contender), 1)  # pools are filled, and new tunnels have their first streams
    time.sleep(SETTLE_S)
    memory = memory_kib(contender.pids("server"))
    pair, times = (("one", one), ("here", contender)), []
    for number in range(TIMES):
        names, both = zip(*(pair if number % 2 == 0 else pair[::-1]))  # who begins may be dearer by a per cent or two
        times.append(dict(zip(names, in_turns(both, seconds))))
    return {"n": count, "server_kib": memory, "times": times}


def summary(points):
    """Growth is the last point's cost against that of `one`. A point's own figures, for the picture, are those that `one`
    has in all of the row, times what the point took of them."""
    usual = {}
    for number, figure in enumerate(FIGURES):
        usual[figure] = statistics.median(each["one"][number] for at in points for each in at["times"])
        for at in points:
            at[figure] = usual[figure] * statistics.median(each["here"][number] / each["one"][number] for each in at["times"])
    first, last = points[0], points[-1]
    return {"cost_growth": last["cpu_us"] / usual["cpu_us"], "both_cost_growth": last["both_cpu_us"] / usual["both_cpu_us"],
            "each_kib": max(0.0, (last["server_kib"] - first["server_kib"]) / (last["n"] - first["n"])), "points": points}


@contextlib.contextmanager
def beside(contender):
    """Another one of the same, which has one of everything."""
    one = contender.beside()
    try:
        one.start_origins(1, 1)
        until_served(one)
        yield one
    finally:
        stop(one.processes)


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
    with beside(contender) as one:
        for count in SOCKETS:
            contender.add_sockets(count - (points[-1]["n"] if points else 1))
            points.append(point(contender, one, count, seconds))
    return summary(points)


def origins(are_apart, contender, seconds):
    """Of one socket: held by one program on the far side, or each by a program of its own."""
    points = []
    with beside(contender) as one:
        for count in ORIGINS:
            contender.start_origins(count, count if are_apart else 1)
            until_served(contender)
            points.append(point(contender, one, count, seconds))
            stop(contender.processes)
            contender.processes = []
    return summary(points)


def connections(contender, seconds):
    if contender.max_connections and contender.max_connections <= CONNECTIONS[-1]:
        raise Unavailable(f"{contender.name} holds two descriptors ready for each of {CONNECTIONS[-1]:,} connections")
    contender.start_origins(1, 1)
    until_served(contender)
    kept, points = [], []
    try:
        with beside(contender) as one:
            for count in CONNECTIONS:
                open_more(contender.target(PAGES), count, kept)
                points.append(point(contender, one, count, seconds))
    finally:
        for stream in kept:
            stream.close()
    return summary(points)


def certificates(restart, contender, seconds):
    """Of names of the server, imported. A handshake looks the name up among all of them; a start reads them all."""
    contender.start_origins(1, 1)
    points = []
    with beside(contender) as one:
        for each in (one, contender):
            until_served(each)
            each.add_certificates(1)
        for count in CERTIFICATES:
            contender.add_certificates(count - (points[-1]["n"] if points else 1))
            points.append(point(contender, one, count, seconds, handshakes_in_turns))
    return summary(points) | restart(contender, seconds)


def open_more(target, count, kept):
    """Opens connections until so many are kept."""
    missing, failures = count - len(kept), []

    def open_some(number):
        try:
            for _ in range(number):
                kept.append(load.one_request(target, "/100b", keep=True)[1])
        except (OSError, Failed) as error:
            failures.append(error)

    share = [missing // OPENERS + (number < missing % OPENERS) for number in range(OPENERS)]
    openers = [threading.Thread(target=open_some, args=(part,)) for part in share]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    if failures:
        raise Failed(f"after {len(kept)} connections: {failures[0]}")
