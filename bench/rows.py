"""What is measured: each row is a named set of figures for one contender that runs."""

import time

import load
from contenders import PAGES, PUBLIC_PORT, SINK, SINK_PORT
from harness import memory_kib

# Each way; the round trip of the leg is twice this.
DELAY_ONE_WAY_MS = 50

#: figure -> (what it is, whether more is better)
FIGURES = {
    "gbit_s": ("Gbit/s", True),
    "cpu_s_per_gb": ("CPU s per GB", False),
    "per_s": ("per second", True),
    "p50_ms": ("p50 ms", False),
    "p99_ms": ("p99 ms", False),
    "max_ms": ("longest ms", False),
    "cpu_us": ("CPU us each", False),
    "server_kib": ("server KiB each", False),
    "client_kib": ("client KiB each", False),
}

#: row -> (title, the figures that are compared)
TITLES = {
    "down_1": ("1 stream down", ("gbit_s", "cpu_s_per_gb")),
    "up_1": ("1 stream up", ("gbit_s", "cpu_s_per_gb")),
    "down_8": ("8 streams down", ("gbit_s", "cpu_s_per_gb")),
    "up_8": ("8 streams up", ("gbit_s", "cpu_s_per_gb")),
    "keepalive": ("keep-alive requests, 32 connections", ("per_s", "p99_ms", "cpu_us")),
    "keepalive_1": ("keep-alive requests, 1 connection", ("p50_ms",)),
    "connections": ("new TLS connections, 32 at a time", ("per_s", "cpu_us")),
    "bodies_64k": ("64 KiB bodies, 32 connections", ("per_s", "p99_ms", "cpu_us")),
    "idle_connection": ("memory of an idle connection", ("server_kib", "client_kib")),
    "idle_tunnel": ("memory of an idle tunnel", ("server_kib", "client_kib")),
    "delay_down_1": ("1 stream down", ("gbit_s",)),
    "delay_up_1": ("1 stream up", ("gbit_s",)),
    "delay_down_8": ("8 streams down", ("gbit_s",)),
    "delay_up_8": ("8 streams up", ("gbit_s",)),
    "delay_fresh": ("a fresh connection's answer", ("p50_ms",)),
    "delay_burst": ("64 connections at one moment", ("p50_ms", "max_ms")),
    "delay_keepalive": ("keep-alive requests, 32 connections", ("per_s", "p99_ms", "cpu_us")),
}


def url(contender, name, path=""):
    return f"https://{contender.hosts[name]}:{PUBLIC_PORT}/{path}"


def bulk(row, contender, seconds):
    pids, streams = contender.pids(), int(row[-1])
    if "down" in row:
        return load.download(url(contender, PAGES, "endless"), streams, seconds, pids)
    return load.upload(url(contender, SINK), contender.bench.endless, SINK_PORT, streams, seconds, pids)


def keepalive(contender, seconds):
    return load.requests(url(contender, PAGES, "100b"), 32, seconds, contender.pids())


def keepalive_1(contender, seconds):
    return load.requests(url(contender, PAGES, "100b"), 1, min(seconds, 3), contender.pids())


def connections(contender, seconds):
    return load.requests(url(contender, PAGES, "100b"), 32, seconds, contender.pids(), close=True)


def bodies_64k(contender, seconds):
    return load.requests(url(contender, PAGES, "64k"), 32, seconds, contender.pids())


def idle_connection(contender, _seconds):
    """Connections that made one request each and are kept: what those after the first fifth take, when everything that
    is made once has been made."""
    count, host, kept, points = contender.bench.idle_connections, contender.hosts[PAGES], [], []
    for until in (count // 5, count):
        while len(kept) < until:
            kept.append(load.one_request(host, PUBLIC_PORT, "/100b", keep=True)[1])
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
    return load.fresh(contender.hosts[PAGES], PUBLIC_PORT, "/100b")


def burst(contender, _seconds):
    time.sleep(1)
    return load.burst(contender.hosts[PAGES], PUBLIC_PORT, "/100b")


#: Rows that leave the contender changed, and that other processes do not disturb: never measured again.
ONCE = {"idle_connection", "idle_tunnel"}
#: The rows of a contender that is started once for all of them, in order.
PLAIN = {
    "idle_connection": idle_connection,  # first, while nothing has made room yet
    "keepalive": keepalive,
    "keepalive_1": keepalive_1,
    "connections": connections,
    "bodies_64k": bodies_64k,
    "down_1": lambda contender, seconds: bulk("down_1", contender, seconds),
    "up_1": lambda contender, seconds: bulk("up_1", contender, seconds),
    "down_8": lambda contender, seconds: bulk("down_8", contender, seconds),
    "up_8": lambda contender, seconds: bulk("up_8", contender, seconds),
}
#: The rows with the delay relay on the leg.
DELAYED = {
    "delay_fresh": fresh,
    "delay_burst": burst,
    "delay_keepalive": keepalive,
    "delay_down_1": lambda contender, seconds: bulk("down_1", contender, seconds),
    "delay_up_1": lambda contender, seconds: bulk("up_1", contender, seconds),
    "delay_down_8": lambda contender, seconds: bulk("down_8", contender, seconds),
    "delay_up_8": lambda contender, seconds: bulk("up_8", contender, seconds),
}
