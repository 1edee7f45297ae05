"""How each row is measured: functions that take a contender and a number of seconds, and give figures."""

import concurrent.futures
import contextlib
import os
import socket
import time
from functools import partial

import load
from contenders import ECHO, ECHO_PORT, PAGES, SINK, SINK_PORT
from harness import LOAD, WARM_UP_S, Failed, Unavailable, memory_kib, on_processor, ran_seconds, running_times, stop

#: Bodies of the rows that look for stalls, in bytes: around a segment, a record of TLS and a frame, and far from all.
STALL_SIZES = (1, 100, 1_400, 1_449, 4_096, 16_383, 16_384, 65_536, 65_537, 262_144, 1_048_576)
#: Up to this, they are also asked for by 8 connections at once; larger ones then wait for each other, stalls or not.
MAX_CROWDED_BYTES = 65_536
#: How many tunnels are registered with one client.
MANY_TUNNELS = 1_000
#: How many connections say nothing, to each port; and how often fresh ones are measured without them and with them, so many each time.
SILENT, SILENT_TURNS, SILENT_COUNT = 3, 3, 10


def bulk(way, streams, contender, seconds):
    pids = contender.pids()
    if way == "down":
        return load.download(contender.target(PAGES).url("endless"), streams, seconds, pids)
    return load.upload(contender.target(SINK).url(), contender.bench.endless, SINK_PORT, streams, seconds, pids)


def warmed(ask, contender, seconds):
    """What `ask` gives, which takes seconds and the processes whose CPU counts, after a short one that counts for nothing."""
    ask(WARM_UP_S, [])
    return ask(seconds, contender.pids())


def requests(path, connections, contender, seconds, close=False):
    url = contender.target(PAGES).url(path)
    return warmed(lambda *how_long: load.requests(url, connections, *how_long, close), contender, seconds)


def one_at_a_time(contender, seconds):
    return requests("100b", 1, contender, min(seconds, 3))


def http2(streams, contender, seconds):
    return warmed(partial(load.http2, contender.target(PAGES).url("100b"), streams), contender, seconds)


def tls_connections(how, connections, contender, seconds):
    return warmed(partial(load.tls_connections, contender.target(PAGES), "/100b", how, connections), contender, seconds)


def apart(measure, contender, seconds):
    """A load on another processor than the contender's."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Unavailable("there is one processor, and the load needs one of its own")
    with on_processor(LOAD):
        return measure(contender, seconds)


def idle_connection(contender, _seconds):
    """Connections that made one request each and are kept: what those after the first fifth take, when everything that
    is made once has been made."""
    count, target, kept, points = contender.bench.idle_connections, contender.target(PAGES), [], []
    for until in (count // 5, count):
        while len(kept) < until:
            kept.append(load.one_request(target, "/100b", keep=True)[1])
        time.sleep(contender.bench.settle_seconds)
        points.append((len(kept), *(memory_kib(contender.pids(role)) for role in ("server", "client"))))
    for stream in kept:
        stream.close()
    return {"server_kib": slope(points, 1), "client_kib": slope(points, 2)}


def idle_tunnel(contender, _seconds):
    """Tunnels that carry nothing, each with a client process of its own; starts the contender itself. The server's
    memory is that of those after the first quarter."""
    count, points = contender.bench.idle_tunnels, []
    for up in contender.start_tunnels((count // 4, count)):
        time.sleep(contender.bench.settle_seconds)
        points.append((up, memory_kib(contender.pids("server"))))
    return {"server_kib": slope(points, 1), "client_kib": memory_kib(contender.pids("client")) / count}


def slope(points, column):
    """How much a column grew for each one more, between the first point and the last."""
    first, last = points[0], points[-1]
    return max(0.0, (last[column] - first[column]) / (last[0] - first[0]))


def fresh(contender, _seconds):
    return load.fresh(contender.target(PAGES), "/100b")


def burst(contender, _seconds):
    time.sleep(1)
    return load.burst(contender.target(PAGES), "/100b")


def beside_bulk(kind, contender, _seconds):
    """Single requests while one download takes all there is: on a kept connection, or each on a fresh one."""
    target = contender.target(PAGES)
    download = load.fill(target.url("endless"))
    try:
        time.sleep(2.5)
        if kind == "fresh":
            return load.fresh(target, "/100b")
        kept, times = load.KeptRequests(target), []
        with load.prompt():
            for _ in range(15):
                time.sleep(0.1)
                times.append(kept.ask("/100b"))
        times = times[1:]  # the first one opened the connection's way
        kept.close()
        return load.middle(times)
    finally:
        download.kill()
        download.communicate(timeout=10)


def requests_beside_bulk(connections, contender, seconds):
    """Requests on kept connections while one download takes all there is, which begins a second before; and what that has."""
    pids, target, seconds = contender.pids(), contender.target(PAGES), min(seconds, 3)
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        download = beside.submit(load.download, target.url("endless"), 1, WARM_UP_S + seconds, pids)
        time.sleep(WARM_UP_S)
        figures = load.requests(target.url("100b"), connections, seconds, pids)
    return {**{figure: figures[figure] for figure in ("per_s", "p50_ms", "p99_ms")}, "beside_gbit_s": download.result()["gbit_s"]}


def stalls(way, contender, _seconds, hasty=True):
    """Bodies of every size, one request after the other, and (down) 8 connections at once: the worst of the medians.
    Where Nagle's algorithm waits for a delayed acknowledgement, that is some 40 ms. `hasty`: the client has TCP_NODELAY, and sends
    what it has in one go; else it has not, and sends a head and its body one after the other."""
    found = {}
    for size in STALL_SIZES:
        kept = load.KeptRequests(contender.target(PAGES if way == "down" else SINK), hasty)
        path, body = (f"/b{size}", b"") if way == "down" else ("/", b"u" * size)
        # The first ones open connections and windows.
        found[f"{size} B"] = load.middle([kept.ask(path, body) for _ in range(15)][3:])["p50_ms"]
        kept.close()
        if way == "down" and size <= MAX_CROWDED_BYTES:
            url = contender.target(PAGES).url(f"b{size}")
            found[f"{size} B c8"] = load.requests(url, 8, 1, contender.pids())["p50_ms"]
    worst = max(found, key=found.get)
    return {"worst_ms": found[worst], "worst": worst}


def silent(contender, _seconds):
    """Fresh connections while a few others to the tunnel's port and to the clients' port say nothing: also against those without,
    which have their turns between."""
    if not contender.leg_ports:
        raise Unavailable("it has no tunnel")
    target, alone, beside = contender.target(PAGES), [], []
    for _ in range(SILENT_TURNS):
        alone += load.fresh_times(target, "/100b", SILENT_COUNT)
        with contextlib.ExitStack() as mute:
            for port in (contender.leg_ports[0], target.port):
                for _ in range(SILENT):
                    mute.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(0.2)
            beside += load.fresh_times(target, "/100b", SILENT_COUNT)
    figures = load.middle(beside)
    return figures | {"against_none": figures["p50_ms"] / load.middle(alone)["p50_ms"]}


def start_serving(contender, _seconds):
    return contender.start_serving()


def restart(contender, _seconds):
    """The server ends and starts again: how long until a client of its gets an answer through the tunnel."""
    target, running = contender.target(PAGES), [process for process in contender.processes if process.role == "server"]
    stop(running)
    contender.processes = [process for process in contender.processes if process not in running]
    begin = time.monotonic()
    contender.serve_again()
    while True:
        try:
            load.one_request(target, "/100b", seconds=5)
            return {"back_s": time.monotonic() - begin}
        except (OSError, Failed):
            if time.monotonic() - begin > 60:
                raise
            time.sleep(0.02)


def binary(contender, _seconds):
    files = contender.programs()
    if not files:
        raise Unavailable("it comes with the system")
    return {"binary_mib": sum(os.path.getsize(path) for path in files) / 2**20}


def many_tunnels(contender, _seconds):
    """A thousand tunnels of one client: how long until all serve, from the start of both programs; memory above that of one
    tunnel, CPU at rest, and how long until all serve again after the server has ended and started."""
    empty = type(contender)(contender.bench)
    try:
        empty.register_many(1)
        until_all_serve(empty, empty.start_many(1))
        time.sleep(2)
        before = {role: memory_kib(empty.pids(role)) for role in ("server", "client")}
    finally:
        stop(empty.processes)
    contender.register_many(MANY_TUNNELS)
    begin = time.monotonic()
    ports = contender.start_many(MANY_TUNNELS)
    until_all_serve(contender, ports)
    figures = {"ready_s": time.monotonic() - begin}
    for port in (ports[0], ports[-1]):
        load.one_request(load.Target("127.0.0.1", port, tls=False), "/100b", seconds=5)
    time.sleep(5)
    for role, kib in before.items():
        figures[f"{role}_mib"] = (memory_kib(contender.pids(role)) - kib) / 1024
    rested = running_times(contender.pids())
    time.sleep(5)
    figures["idle_cpu_percent"] = round(ran_seconds(rested, running_times(contender.pids())) / 5 * 100, 1)
    running = [process for process in contender.processes if process.role == "server"]
    stop(running)
    contender.processes = [process for process in contender.processes if process not in running]
    begin = time.monotonic()
    contender.serve_again()
    until_all_serve(contender, ports)
    return figures | {"back_s": time.monotonic() - begin}


def until_all_serve(contender, ports, seconds=240):
    deadline = time.monotonic() + seconds
    for tunnel, port in enumerate(ports):
        while not contender.serves(tunnel, port):
            if time.monotonic() > deadline:
                raise Failed(f"not all tunnels serve after {seconds} s")
            time.sleep(0.01)


def loss(buffers, contender, seconds):
    """One download over the link that loses packets, after one that lets the sender find its rate."""
    contender.bench.set_buffers(buffers)
    url, pids = contender.target(PAGES).url("endless"), contender.pids()
    load.download(url, 1, 3, pids)
    return load.download(url, 1, max(10, seconds), pids)


def datagrams(flows, size, mode, rate, contender, seconds):
    return load.datagrams(contender.target(ECHO), flows, size, seconds, mode, rate, contender.pids(), ECHO_PORT)
