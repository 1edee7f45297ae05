"""What is measured: each row is a named set of figures for one contender that runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import load
from contenders import ECHO, ECHO_PORT, PAGES, SINK, SINK_PORT
from harness import memory_kib

# Each way; the round trip of the leg is twice this.
DELAY_ONE_WAY_MS = 50
# What ssh clients are told to use in the rows of the stage "gcm".
GCM = "aes128-gcm@openssh.com"

#: figure -> (what it is, whether more is better)
FIGURES = {
    "gbit_s": ("Gbit/s", True),
    "cpu_s_per_gb": ("CPU s per GB", False),
    "per_s": ("per second", True),
    "arrived_percent": ("arrived %", True),
    "p50_ms": ("p50 ms", False),
    "p99_ms": ("p99 ms", False),
    "max_ms": ("longest ms", False),
    "cpu_us": ("CPU us each", False),
    "server_kib": ("server KiB each", False),
    "client_kib": ("client KiB each", False),
}

#: stage -> what its rows have in common; a contender is started once for each
STAGES = {
    "plain": "",
    "gcm": f", told to use {GCM}",
    "delay": f", with {2 * DELAY_ONE_WAY_MS} ms of added round trip on the leg",
    "tunnels": ", with many tunnels",
}


@dataclass(frozen=True)
class Row:
    """A cell of each contender: `measure` gives figures, of which those named are compared."""

    name: str
    title: str
    figures: tuple[str, ...]
    measure: Callable
    stage: str = "plain"
    #: It leaves the contender changed, and other processes do not disturb it: never measured again.
    is_once: bool = False


def bulk(way, streams, contender, seconds):
    pids = contender.pids()
    if way == "down":
        return load.download(contender.target(PAGES).url("endless"), streams, seconds, pids)
    return load.upload(contender.target(SINK).url(), contender.bench.endless, SINK_PORT, streams, seconds, pids)


def requests(path, connections, contender, seconds, close=False):
    return load.requests(contender.target(PAGES).url(path), connections, seconds, contender.pids(), close)


def idle_connection(contender, _seconds):
    """Connections that made one request each and are kept: what those after the first fifth take, when everything that
    is made once has been made."""
    count, target, kept, points = contender.bench.idle_connections, contender.target(PAGES), [], []
    for until in (count // 5, count):
        while len(kept) < until:
            kept.append(load.one_request(target, "/100b", keep=True)[1])
        time.sleep(5)
        points.append((len(kept), *(memory_kib(contender.pids(role)) for role in ("server", "client"))))
    for stream in kept:
        stream.close()
    return {"server_kib": slope(points, 1), "client_kib": slope(points, 2)}


def idle_tunnel(contender, _seconds):
    """Tunnels that carry nothing, each with a client process of its own; starts the contender itself. The server's
    memory is that of those after the first quarter."""
    count, points = contender.bench.idle_tunnels, []
    for up in contender.start_tunnels((count // 4, count)):
        time.sleep(5)
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


def datagrams(flows, size, mode, rate, contender, seconds):
    return load.datagrams(contender.target(ECHO), flows, size, seconds, mode, rate, contender.pids(), ECHO_PORT)


BULK = ("gbit_s", "cpu_s_per_gb")
RATE = ("per_s", "p99_ms", "cpu_us")
EACH = ("server_kib", "client_kib")


def bulk_rows(prefix, stage, figures=BULK, counts=(1, 8)):
    return [Row(f"{prefix}{way}_{streams}", f"{streams} stream{'s' if streams > 1 else ''} {way}", figures,
                partial(bulk, way, streams), stage)
            for streams in counts for way in ("down", "up")]


def keepalive(prefix, stage):
    return Row(f"{prefix}keepalive", "keep-alive requests, 32 connections", RATE, partial(requests, "100b", 32), stage)


def fresh_rows(prefix):
    return [Row(f"{prefix}fresh", "a fresh connection's answer", ("p50_ms",), fresh, "delay"),
            Row(f"{prefix}burst", "64 connections at one moment", ("p50_ms", "max_ms"), burst, "delay")]


def idle_row(prefix):
    return Row(f"{prefix}idle_connection", "memory of an idle connection", EACH, idle_connection, is_once=True)


def one_at_a_time(contender, seconds):
    return requests("100b", 1, contender, min(seconds, 3))


#: set of rows -> its rows, in the order that they are measured; the memory of connections comes first, while nothing
#: has made room yet
SETS = {
    "https": [
        idle_row(""),
        keepalive("", "plain"),
        Row("keepalive_1", "keep-alive requests, 1 connection", ("p50_ms",), one_at_a_time),
        Row("connections", "new TLS connections, 32 at a time", ("per_s", "cpu_us"), partial(requests, "100b", 32, close=True)),
        Row("bodies_64k", "64 KiB bodies, 32 connections", RATE, partial(requests, "64k", 32)),
        *bulk_rows("", "plain"),
        *fresh_rows("delay_"),
        keepalive("delay_", "delay"),
        *bulk_rows("delay_", "delay", ("gbit_s",)),
        Row("idle_tunnel", "memory of an idle tunnel", EACH, idle_tunnel, "tunnels", is_once=True),
    ],
    "tcp": [
        idle_row("tcp_"),
        keepalive("tcp_", "plain"),
        Row("tcp_connections", "new connections, 32 at a time", ("per_s", "cpu_us"), partial(requests, "100b", 32, close=True)),
        *bulk_rows("tcp_", "plain"),
        *fresh_rows("tcp_delay_"),
        keepalive("tcp_delay_", "delay"),
        Row("tcp_delay_connections", "new connections, 32 at a time", ("per_s", "cpu_us"),
            partial(requests, "100b", 32, close=True), "delay"),
        *bulk_rows("tcp_delay_", "delay", ("gbit_s",)),
    ],
    "udp": [
        Row("udp_60hz", "100 clients that send 128 bytes 60 times a second", ("p50_ms", "p99_ms", "arrived_percent", "cpu_us"),
            partial(datagrams, 100, 128, "paced", 60)),
        Row("udp_echo", "16 clients with 16 of 128 bytes under way", ("per_s", "p50_ms", "p99_ms", "arrived_percent", "cpu_us"),
            partial(datagrams, 16, 128, "window", 16)),
        Row("udp_flood", "200,000 a second of 1,200 bytes, one way", ("per_s", "arrived_percent", "cpu_us"),
            partial(datagrams, 16, 1200, "flood", 200_000)),
    ],
    "ssh": [
        *bulk_rows("ssh_", "plain", counts=(1,)),
        keepalive("ssh_", "plain"),
        *bulk_rows("ssh_gcm_", "gcm", counts=(1,)),
        *bulk_rows("ssh_delay_", "delay", ("gbit_s",), counts=(1,)),
    ],
}
#: set of rows -> what it is about
TITLES = {
    "https": "HTTPS at the edge",
    "tcp": "A TCP port",
    "udp": "A UDP port",
    "ssh": "A TCP port, by a stock ssh client",
}
