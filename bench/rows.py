"""What is measured: each row is a named set of figures for one contender that runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import balance
import floods
import full_table
import growth
import http3
import lookup
import measures
import mrt
import names
import packet
import ports
from measures import MANY_TUNNELS

# Each way; the round trip of the leg is twice this.
DELAY_ONE_WAY_MS = 25
# A slow leg: each way, and the rate that all its connections share.
SLOW_ONE_WAY_MS, SLOW_MBIT_S = 15, 100
# A leg that loses packets: each way, how many of a hundred, and what it could carry.
LOSS_ONE_WAY_MS, LOSS_PERCENT, LOSS_MBIT_S = 70, 1.5, 1000
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
    "against_quiet": ("p99 against that of a quiet server", False),
    "against_none": ("p50 against that without silent ones", False),
    "worst_ms": ("ms, the worst size", False),
    "cpu_us": ("CPU us each", False),
    "server_cpu_us": ("server's CPU us each", False),
    "server_cpu_s_per_gb": ("server's CPU s per GB", False),
    "server_kib": ("server KiB each", False),
    "client_kib": ("client KiB each", False),
    "server_mib": ("server MiB", False),
    "client_mib": ("client MiB", False),
    "back_s": ("s until it is back", False),
    "ready_s": ("s until all serve", False),
    "idle_cpu_percent": ("idle CPU %", False),
    "first_start_ms": ("first start ms", False),
    "start_ms": ("start ms", False),
    "binary_mib": ("MiB", False),
    "cost_growth": ("server's cost, largest against smallest", False),
    "both_cost_growth": ("both sides' cost, largest against smallest", False),
    "each_kib": ("KiB each", False),
    "before_mib": ("server MiB before", False),
    "held_mib": ("server MiB while it lasts", False),
    "left_mib": ("server MiB a minute after", False),
    "left_times": ("a minute after, times what it was before", False),
    "net_ns": ("CPU ns a packet, net of the generator", False),
    "per_cpu_s": ("packets a second of CPU", True),
    "through_per_cpu_s": ("packets a second of CPU through the router", True),
    "distinct": ("connections with a four-tuple of their own", True),
    "socket_us": ("us a socket", False),
    "filled_s": ("s until a million routes are there", False),
    "few_ns": ("CPU ns a lookup, ten prefixes", False),
    "million_ns": ("CPU ns a lookup, a million prefixes", False),
    "table_s": ("s until the table of the file is there", False),
    "restart_s": ("s from the start of BIRD until it has the table again", False),
    "kept_percent": ("% of the routes that stay meanwhile, at the least", True),
    "moved_s": ("s until a million routes have moved", False),
    "replaced_s": ("s of the command that replaces the next hop", False),
    "load_cpu_us": ("the load's CPU us each", False),
    "load_cpu_s_per_gb": ("the load's CPU s per GB", False),
}

#: stage -> what its rows have in common; a contender is started once for each, but for "own", whose rows start it
#: themselves
STAGES = {
    "plain": "",
    "gcm": f", told to use {GCM}",
    "mtu1500": ", MTU 1500",
    "delay": f", with {2 * DELAY_ONE_WAY_MS} ms of added round trip on the leg",
    "slow": f", with {2 * SLOW_ONE_WAY_MS} ms and {SLOW_MBIT_S} Mbit/s on the leg",
    "loss": f", with {2 * LOSS_ONE_WAY_MS} ms and {LOSS_PERCENT} % loss on the leg",
    "own": ", from the start",
    "packet": ", by CPU time",
    "ports": ", on 100 local ports",
    "apart": ", all of the contender on one processor, the load and the origin on another",
}


@dataclass(frozen=True)
class Row:
    """A cell of each contender: `measure` gives figures, of which those named are compared."""

    name: str
    title: str
    figures: tuple[str, ...]
    measure: Callable
    stage: str = "plain"
    #: It leaves the contender changed, or others do not disturb it: never measured again.
    is_once: bool = False
    #: Whether the short benchmark has it.
    is_main: bool = False
    #: Whether `connection-load` is its load.
    is_connection_load: bool = False
    #: Whether its load has a warm-up.
    is_warmed: bool = False


BULK = ("gbit_s", "cpu_s_per_gb")
RATE = ("per_s", "p99_ms", "cpu_us")
MADE = ("per_s", "cpu_us", "p50_ms", "p99_ms")
EACH = ("server_kib", "client_kib")
MOMENTS = ("p50_ms", "max_ms")
BESIDE_SILENT = (*MOMENTS, "against_none")


def bulk_rows(prefix, stage, figures=BULK, counts=(1, 8), main=()):
    return [Row(f"{prefix}{way}_{streams}", f"{streams} stream{'s' if streams > 1 else ''} {way}", figures,
                partial(measures.bulk, way, streams), stage, is_main=f"{way}_{streams}" in main)
            for streams in counts for way in ("down", "up")]


def requests(name, title, path, connections, stage="plain", figures=RATE, main=False, close=False):
    return Row(name, title, figures, partial(measures.requests, path, connections, close=close), stage, is_main=main, is_warmed=True)


def keepalive(prefix, stage, main=False):
    return requests(f"{prefix}keepalive", "keep-alive requests, 32 connections", "100b", 32, stage, main=main)


def keepalive_1(prefix, main=False):
    return Row(f"{prefix}keepalive_1", "keep-alive requests, 1 connection", ("p50_ms",), measures.one_at_a_time, is_main=main, is_warmed=True)


def tls_row(name, kind, how, main=False, apart=False):
    measure = partial(measures.tls_connections, how, 32)
    return Row(name, f"{kind} TLS connections, 32 at a time", MADE, partial(measures.apart, measure) if apart else measure,
               "apart" if apart else "plain", is_main=main, is_connection_load=True, is_warmed=True)


def fresh_rows(prefix, main=False):
    return [Row(f"{prefix}fresh", "a fresh connection's answer", ("p50_ms",), measures.fresh, "delay", is_main=main),
            Row(f"{prefix}burst", "64 connections at one moment", MOMENTS, measures.burst, "delay", is_main=main,
                is_connection_load=True)]


def beside_bulk(prefix, stage, kinds):
    titles = {"kept": "a keep-alive request beside a bulk stream", "fresh": "a fresh connection beside a bulk stream"}
    return [Row(f"{prefix}{kind}_beside_bulk", titles[kind], MOMENTS, partial(measures.beside_bulk, kind), stage) for kind in kinds]


def requests_beside_bulk(prefix):
    return Row(f"{prefix}keepalive_1_beside_bulk", "keep-alive requests, 1 connection, beside a bulk stream", ("per_s", "p50_ms", "p99_ms"),
               partial(measures.requests_beside_bulk, 1))


def stall_rows(prefix, stage, hasty=True):
    title = "bodies from 1 B to 1 MiB, {}" if hasty else "bodies from 1 B to 1 MiB, {}, without TCP_NODELAY, heads and bodies apart"
    return [Row(f"{prefix}stall_{way}", title.format(way), ("worst_ms",), partial(measures.stalls, way, hasty=hasty), stage)
            for way in ("down", "up")]


def idle_row(prefix, main=False):
    return Row(f"{prefix}idle_connection", "memory of an idle connection", EACH, measures.idle_connection, is_once=True, is_main=main)


#: set of rows -> its rows, in the order that they are measured; the memory of connections comes first, while nothing
#: has made room yet
SETS = {
    "https": [
        idle_row(""),
        keepalive("", "plain", main=True),
        keepalive_1(""),
        tls_row("connections", "new", "--full", main=True),
        tls_row("resumed", "resumed", "--resume", main=True),
        requests("bodies_64k", "64 KiB bodies, 32 connections", "64k", 32, main=True),
        requests("bodies_1m", "1 MiB bodies, 8 connections", "b1048576", 8),
        Row("h2_100_streams", "HTTP/2, 100 streams on a connection", ("per_s", "cpu_us"), partial(measures.http2, 100), is_main=True, is_warmed=True),
        *bulk_rows("", "plain"),
        requests_beside_bulk(""),
        *stall_rows("", "plain", hasty=False),
        Row("silent", "a fresh connection beside silent ones", BESIDE_SILENT, measures.silent),
        *fresh_rows("delay_"),
        *beside_bulk("delay_", "delay", ("fresh",)),
        keepalive("delay_", "delay"),
        *bulk_rows("delay_", "delay", ("gbit_s",)),
        Row("idle_tunnel", "memory of an idle tunnel", EACH, measures.idle_tunnel, "own", is_once=True),
        tls_row("connections_apart", "new", "--full", apart=True),
        tls_row("resumed_apart", "resumed", "--resume", apart=True),
    ],
    "tcp": [
        idle_row("tcp_", main=True),
        keepalive("tcp_", "plain", main=True),
        keepalive_1("tcp_", main=True),
        requests("tcp_connections", "new connections, 32 at a time", "100b", 32, figures=("per_s", "cpu_us"), main=True, close=True),
        requests("tcp_bodies_64k", "64 KiB bodies, 8 connections", "64k", 8, main=True),
        *bulk_rows("tcp_", "plain", main=("down_1", "up_1", "down_8")),
        requests_beside_bulk("tcp_"),
        *fresh_rows("tcp_delay_", main=True),
        *beside_bulk("tcp_delay_", "delay", ("fresh",)),
        keepalive("tcp_delay_", "delay"),
        requests("tcp_delay_connections", "new connections, 32 at a time", "100b", 32, "delay", ("per_s", "cpu_us"), close=True),
        *bulk_rows("tcp_delay_", "delay", ("gbit_s",), main=("down_1",)),
    ],
    "hard": [
        *stall_rows("tcp_", "plain"),
        Row("tcp_silent", "a fresh connection beside silent ones", BESIDE_SILENT, measures.silent),
        Row("tcp_restart", "the server starts again", ("back_s",), measures.restart, is_once=True),
        *stall_rows("tcp_mtu1500_", "mtu1500"),
        *beside_bulk("tcp_slow_", "slow", ("kept", "fresh")),
        Row("tcp_start", "from nothing to serving", ("first_start_ms", "start_ms"), measures.start_serving, "own", is_once=True),
        Row("tcp_binary", "programs to install", ("binary_mib",), measures.binary, "own", is_once=True),
        Row("tcp_many_tunnels", f"{MANY_TUNNELS} tunnels of one client", ("ready_s", "server_mib", "client_mib", "idle_cpu_percent", "back_s"),
            measures.many_tunnels, "own", is_once=True),
    ],
    "udp": [
        Row("udp_60hz", "100 clients that send 128 bytes 60 times a second", ("p50_ms", "p99_ms", "arrived_percent", "cpu_us"),
            partial(measures.datagrams, 100, 128, "paced", 60)),
        Row("udp_echo", "16 clients with 16 of 128 bytes under way", ("per_s", "p50_ms", "p99_ms", "arrived_percent", "cpu_us"),
            partial(measures.datagrams, 16, 128, "window", 16), is_main=True),
        Row("udp_flood", "200,000 a second of 1,200 bytes, one way", ("per_s", "arrived_percent", "cpu_us"),
            partial(measures.datagrams, 16, 1200, "flood", 200_000)),
    ],
    "http3": [
        Row("h3_idle_connection", "memory of an idle connection", EACH, http3.idle_connection, is_once=True),
        Row("h3_keepalive", "keep-alive requests, 32 connections", (*RATE, "server_cpu_us"), partial(http3.requests, 32, 1), is_warmed=True),
        Row("h3_100_streams", "100 streams on a connection", (*RATE, "server_cpu_us"), partial(http3.requests, 1, 100), is_warmed=True),
        Row("h3_connections", "new connections, 32 at a time", (*MADE, "server_cpu_us"), partial(http3.connections, 32), is_warmed=True),
        *(Row(f"h3_{way}_{count}", f"{count} connection{'s' if count > 1 else ''} {way}", (*BULK, "server_cpu_s_per_gb"),
              partial(http3.bulk, way, count)) for count in (1, 8) for way in ("down", "up")),
    ],
    "relay": [
        keepalive("relay_", "plain"),
        keepalive_1("relay_"),
        tls_row("relay_connections", "new", "--full"),
        requests("relay_bodies_64k", "64 KiB bodies, 32 connections", "64k", 32),
        *bulk_rows("relay_", "plain"),
    ],
    "ssh": [
        *bulk_rows("ssh_", "plain", counts=(1,)),
        keepalive("ssh_", "plain"),
        *bulk_rows("ssh_gcm_", "gcm", counts=(1,)),
        *bulk_rows("ssh_delay_", "delay", ("gbit_s",), counts=(1,)),
    ],
    "loss": [
        Row("loss_down_1", "1 stream down, the kernel's buffers", ("gbit_s",), partial(measures.loss, None), "loss"),
        Row("loss_down_1_32m", "1 stream down, buffers up to 32 MiB", ("gbit_s",), partial(measures.loss, 32), "loss"),
    ],
    "floods": [
        Row(f"flood_{name}", title, ("before_mib", "held_mib", "left_mib", "left_times"), measure, "own", is_once=True)
        for name, title, measure in (
            ("slow_500", "500 clients that read nothing of a long answer", partial(floods.slow_readers, 500)),
            ("slow_2000", "2,000 clients that read nothing of a long answer", partial(floods.slow_readers, 2_000)),
            ("passwords", f"{floods.GUESSES} wrong passwords at once", floods.passwords),
        )
    ],
    "names": [
        Row("names_addresses", "addresses by DNS over UDP, one processor", ("per_s", "p99_ms", "cpu_us"),
            partial(measures.apart, names.addresses), "apart"),
        Row("names_missing", "signed answers for names that are not there, each new", ("per_s", "p99_ms", "against_quiet", "cpu_us"),
            partial(measures.apart, names.missing), "apart"),
    ],
    "packet": [
        Row("packet_forward", "64-byte packets of 10,000 flows, forwarded", ("net_ns",), packet.forward, "packet"),
        Row("packet_nat", "64-byte packets of 10,000 flows, their source translated", ("net_ns",), packet.forward, "packet"),
        Row("packet_full_table", "64-byte packets of 10,000 flows, forwarded by a million routes", ("net_ns",), full_table.forward, "packet"),
        Row("packet_lookup", "a lookup of routes, addresses all over the table", ("few_ns", "million_ns"), lookup.look_up, "packet"),
        Row("packet_mrt", "a full table of a MRT file by BGP; BIRD killed and restarted", ("table_s", "restart_s", "kept_percent"),
            mrt.restart, "packet", is_once=True),
        Row("packet_fill", "a million routes by BGP", ("filled_s",), full_table.fill, "packet", is_once=True),
        Row("packet_move", "a million routes, and another next hop", ("moved_s", "replaced_s"), full_table.move, "packet", is_once=True),
        *(Row(f"packet_balance_{way}", f"64-byte packets of 10,000 flows, balanced over eight edges in {way.upper()}", ("net_ns",),
              partial(balance.steer, way), "packet") for way in ("gue", "ipip")),
        Row("packet_slice", "64-byte packets of 10,000 flows to an egress address, to the owners of their slices", ("net_ns",),
            partial(balance.steer, "slice"), "packet"),
        Row("packet_generator", "64-byte packets of 10,000 flows, generated", ("per_cpu_s", "through_per_cpu_s"), packet.generator, "packet"),
    ],
    "ports": [
        Row(f"ports_{protocol}", f"{protocol.upper()} sockets of four processes towards 40 destinations", ("distinct", "socket_us"),
            partial(ports.connections, protocol), "ports")
        for protocol in ("tcp", "udp")
    ],
    "growth": [
        Row(f"growth_{name}", f"HTTPS requests with more and more {what}", ("cost_growth", "both_cost_growth", "each_kib"), measure, "own", is_once=True)
        for name, what, measure in (
            ("sockets", "sockets", growth.sockets),
            ("connections", "open connections", growth.connections),
            ("origins", "origins of one program", partial(growth.origins, False)),
            ("programs", "programs with an origin each", partial(growth.origins, True)),
        )
    ] + [
        Row("growth_certificates", "TLS connections with more and more public certificates", ("cost_growth", "each_kib", "back_s"), partial(growth.certificates, measures.restart), "own",
            is_once=True, is_connection_load=True),
    ],
}
#: set of rows -> what it is about
TITLES = {
    "https": "HTTPS at the edge",
    "tcp": "A TCP port",
    "hard": "A TCP port, when it is hard",
    "udp": "A UDP port",
    "http3": "HTTP/3 to clients",
    "relay": "HTTPS, relayed through a second edge",
    "ssh": "A TCP port, by a stock ssh client",
    "loss": "A TCP port",
    "floods": "Memory after floods",
    "names": "A name server",
    "packet": "The packet path",
    "ports": "Local ports",
    "growth": "Growth",
}


US = "sallyport"


@dataclass(frozen=True)
class Target:
    """How far a figure is to be ahead of a contender, or of the best encrypted peer."""

    row: str
    figure: str
    against: str
    at_least: float
    #: Whose figure it is.
    ours: str = US


@dataclass(frozen=True)
class Limit:
    """The most that a figure may be, where no contender is needed."""

    row: str
    figure: str
    most: float
    ours: str = US


BEST = "the best peer"
#: What Sallyport is to reach.
TARGETS = [
    *(Target(f"tcp_{way}_1", "gbit_s", against, at_least) for way in ("up", "down")
      for against, at_least in (("haproxy-x2", 1.1), (BEST, 1.0))),
    *(Target(f"tcp_{way}_1", "cpu_s_per_gb", "haproxy-x2", 1 / 0.85) for way in ("up", "down")),
    *(Target(f"tcp_{way}_8", "gbit_s", "haproxy-x2", 1.2) for way in ("up", "down")),
    *(Target(f"tcp_{way}_8", "cpu_s_per_gb", "haproxy-x2", 1 / 0.75) for way in ("up", "down")),
    Target("tcp_keepalive", "per_s", "haproxy-x2", 1.0),
    Target("tcp_keepalive", "cpu_us", "haproxy-x2", 1 / 0.9),
    Target("tcp_keepalive_1", "p50_ms", "rathole", 1.0),
    Target("tcp_keepalive_1", "p50_ms", "haproxy-x2", 1.0),
    Target("tcp_connections", "per_s", "rathole-plain", 1.1),
    Target("tcp_connections", "per_s", BEST, 2.0),
    Target("tcp_bodies_64k", "per_s", "haproxy-x2", 1.15),
    Target("keepalive", "per_s", "haproxy-x2-h2", 1.0),
    Target("keepalive", "per_s", "frp-https", 4.0),
    Target("keepalive", "per_s", "nginx+rathole-plain", 1.0),
    Target("connections", "per_s", "haproxy-x2", 1.0),
    Target("resumed", "per_s", "haproxy-x2", 2.0),
    Target("connections_apart", "per_s", "haproxy-x2", 1.0),
    Target("resumed_apart", "per_s", "haproxy-x2", 2.0),
    Target("bodies_64k", "per_s", "haproxy-x2", 1.0),
    Target("bodies_1m", "per_s", "haproxy-x2", 1.0),
    Target("h2_100_streams", "per_s", "haproxy-x2", 1.0),
    Target("h2_100_streams", "per_s", "haproxy-x2-h2", 1.0),
    Target("h2_100_streams", "per_s", "nginx", 1.0),
    *(Target(f"tcp_delay_down_{streams}", "gbit_s", "frp-pool", 1.05) for streams in (1, 8)),
    Target("tcp_delay_fresh", "p50_ms", BEST, 1.0),
    Target("tcp_delay_burst", "max_ms", BEST, 1.0),
    Target("tcp_delay_fresh_beside_bulk", "p50_ms", BEST, 1.0),
    *(Target(f"tcp_slow_{kind}_beside_bulk", "p50_ms", against, 1 / 1.05)
      for kind, against in (("kept", "haproxy-x2"), ("fresh", "frp-pool"))),
    *(Target(row, "gbit_s", "sallyport-cubic", 100.0) for row in ("loss_down_1", "loss_down_1_32m")),
    # So many programs at once share the processors and their caches with the server, whoever it is.
    Target("growth_programs", "cost_growth", "haproxy-x2", 1.0),
    # Beside HTTP/2 the server alone counts, since the tunnel and its client are the same.
    Target("h3_keepalive", "server_cpu_us", "sallyport-h2", 1 / 1.2),
    *(Target(row, "cpu_us", "caddy", 2.0) for row in ("h3_keepalive", "h3_100_streams", "h3_connections")),
    *(Target(f"h3_{way}_{count}", "gbit_s", against, 1.0)
      for against in ("caddy", "nginx-quic") for count in (1, 8) for way in ("down", "up")),
    Target("relay_keepalive", "per_s", "haproxy-x3", 1.0),
    Target("udp_echo", "per_s", "frp", 2.0),
    Target("udp_echo", "p99_ms", "frp", 2.0),
    *(Target("names_addresses", "per_s", against, 1.0) for against in ("knot", "nsd", "gdnsd")),
    *(Target("names_addresses", "p99_ms", against, 1 / 1.2) for against in ("knot", "nsd", "gdnsd")),
    Target("names_missing", "per_s", "knot-onlinesign", 1.0),
    Target("packet_forward", "net_ns", "kernel", 4.0),
    Target("packet_forward", "net_ns", "kernel", 4.0, "sallyport-fib"),
    Target("packet_nat", "net_ns", "nft-snat", 5.0),
    Target("packet_nat", "net_ns", "nft-snat", 3.0, "sallyport-conntrack"),
    *(Target(f"packet_balance_{way}", "net_ns", "ipvs", 3.0) for way in ("gue", "ipip")),
    *(Target(row, "distinct", "bind", 40.0) for row in ("ports_tcp", "ports_udp")),
]
#: The same for what no contender is needed for.
LIMITS = [
    # A round trip of 50 ms, and what the relay and the load take.
    *(Limit(f"tcp_delay_{what}", "p50_ms", 53.0) for what in ("fresh", "burst", "fresh_beside_bulk")),
    Limit("tcp_idle_connection", "server_kib", 9.0),
    Limit("tcp_idle_connection", "client_kib", 11.0),
    *(Limit(f"tcp_{mtu}stall_{way}", "worst_ms", 35.0) for mtu in ("", "mtu1500_") for way in ("down", "up")),
    *(Limit(f"stall_{way}", "worst_ms", 35.0) for way in ("down", "up")),
    Limit("idle_connection", "server_kib", 9.0),
    # Silent peers have no effect on anyone's first byte: what differs is noise, and nobody waits for a timer.
    *(Limit(row, figure, most) for row in ("silent", "tcp_silent") for figure, most in (("max_ms", 35.0), ("against_none", 1.1))),
    Limit("names_missing", "against_quiet", 2.0),
    Limit("packet_lookup", "million_ns", 25.0),
    *(Limit("packet_fill", "filled_s", 15.0, ours) for ours in (US, "sallyport-fib")),
    Limit("packet_move", "moved_s", 0.7),
    Limit("packet_move", "moved_s", 0.1, "sallyport-fib"),
    *(Limit(f"packet_balance_{way}", "net_ns", 130.0) for way in ("gue", "ipip")),
    Limit("tcp_restart", "back_s", 2.0),
    Limit("growth_certificates", "back_s", 2.0),
    Limit("tcp_many_tunnels", "ready_s", 0.5),
    Limit("tcp_many_tunnels", "back_s", 2.0),
    Limit("tcp_many_tunnels", "server_mib", 12.0),
    Limit("tcp_many_tunnels", "client_mib", 10.0),
    Limit("tcp_many_tunnels", "idle_cpu_percent", 0.0),
    Limit("tcp_start", "start_ms", 100.0),
    *(Limit(f"flood_{name}", "left_times", 1.5) for name in ("slow_500", "slow_2000", "passwords")),
    *(Limit(f"growth_{name}", "cost_growth", 1.1) for name in ("sockets", "connections", "origins", "certificates")),
]
