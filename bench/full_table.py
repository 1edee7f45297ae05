"""A router with a full table: what a packet costs, how long BIRD takes to fill the table, and how fast all of it moves.

The table has a million prefixes of /24. BIRD behind the router announces them by BGP, and BIRD at the router writes them into the
kernel's table. The times are by the clock: they belong to one machine, and to a quiet one.
"""

import os
import time

import harness
import packet
from contenders.packet import SOURCE
from harness import Failed, Unavailable

#: So many prefixes of /24, from 20.0.0.0 on, and their addresses.
ROUTES, FIRST_NETWORK = 1_000_000, 20 << 16
DESTS = "20.0.0.0-35.66.63.255"
#: Flows over the whole of the table, one behind the other far apart.
FLOWS = ("--src", SOURCE, "--dst", DESTS, "--flows", str(packet.FLOWS), "--order", "scattered")
#: How long a table may take.
PATIENCE_S = 180
#: The next hops: that of all routes, and the one that they move to.
HOP, OTHER_HOP = "10.0.1.2", "10.0.1.3"


def prefixes(count=ROUTES):
    """The first prefixes of the table."""
    for number in range(FIRST_NETWORK, FIRST_NETWORK + count):
        yield f"{number >> 16}.{number >> 8 & 255}.{number & 255}.0/24"


def add_routes(bed, way, count=ROUTES):
    """Writes the first routes of the table into the kernel's, each with this way."""
    lines = "".join(f"route add {prefix} {way}\n" for prefix in prefixes(count))
    bed.inside(bed.router, "ip", "-batch", "-", input=lines)


def forward(contender, seconds):
    """What a packet costs between two devices, with a full table, of which each flow takes another route."""
    with packet.bed_of(contender, prepare=lambda bed: add_routes(bed, f"via {HOP}")) as bed:
        contender.wait_routes(bed, ROUTES, PATIENCE_S)
        bed.flows = FLOWS
        return packet.figures_of(*packet.measured(bed, contender, seconds))


def bird(bed, name, machine, config, *flags):
    """BIRD with this configuration; `machine` is None for our own namespace."""
    if not any(os.access(os.path.join(folder, "bird"), os.X_OK) for folder in ("/usr/sbin", "/usr/bin")):
        raise Unavailable("bird is not there; `scripts/need bird` installs it")
    path = os.path.join(bed.folder, f"{name}.conf")
    with open(path, "w") as file:
        file.write(config)
    argv = ["bird", "-f", "-c", path, "-s", os.path.join(bed.folder, f"{name}.ctl"), *flags]
    environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
    if machine:
        return bed.start(machine, "env", f"PATH={environment['PATH']}", *argv)
    process = harness.Process(bed.folder, "fixture", ["env", f"PATH={environment['PATH']}", *argv])
    bed.after.callback(harness.stop, [process])
    return process


def far_bird(bed, routes, more=""):
    """BIRD behind the router, which announces these prefixes."""
    packet.run(["ip", "addr", "add", f"{HOP}/24", "dev", "s0"])
    # BGP comes by s0, where a program drops everything: for such rows it does not.
    packet.run(["ip", "link", "set", "dev", "s0", "xdpdrv", "off"])
    statics = "".join(f"route {prefix} unreachable;\n" for prefix in routes)
    bird(bed, "far", None, f"""router id {HOP}; protocol device {{}}
protocol static {{ ipv4; {statics} }}
protocol bgp {{ local {HOP} as 65002; neighbor 10.0.1.1 as 65001; passive yes; {more} ipv4 {{ import none; export all; }}; }}""")
    packet.until(lambda: os.path.exists(os.path.join(bed.folder, "far.ctl")), "socket of BIRD")


def fill(contender, seconds):
    """From the start of the router's BIRD until all routes of its neighbour are in the table that forwards."""
    with packet.bed_of(contender) as bed:
        far_bird(bed, prefixes())
        began = time.monotonic()
        bird(bed, "near", bed.router, f"""router id 10.0.1.1; protocol device {{}}
protocol kernel {{ ipv4 {{ import none; export all; }}; }}
protocol bgp {{ local 10.0.1.1 as 65001; neighbor {HOP} as 65002; connect delay time 1; error wait time 1, 2;
  ipv4 {{ import all; export none; }}; }}""")
        contender.wait_routes(bed, ROUTES, PATIENCE_S)
        return {"filled_s": time.monotonic() - began}


def move(contender, seconds):
    """From the replacement of the next hop of all routes until a packet goes the new way."""
    def prepare(bed):
        bed.inside(bed.router, "sysctl", "-qw", "net.ipv4.nexthop_compat_mode=0")
        bed.inside(bed.router, "ip", "neigh", "add", OTHER_HOP, "lladdr", packet.mac("s0"), "dev", "d1", "nud", "permanent")
        bed.inside(bed.router, "ip", "nexthop", "add", "id", "1", "via", HOP, "dev", "d1")
        add_routes(bed, "nhid 1")

    with packet.bed_of(contender, prepare=prepare) as bed:
        contender.wait_routes(bed, ROUTES, PATIENCE_S)
        dest = DESTS.partition("-")[0]
        if contender.hop(bed, dest) != HOP:
            raise Failed(f"{dest} does not go by {HOP}")
        began = time.monotonic()
        bed.inside(bed.router, "ip", "nexthop", "replace", "id", "1", "via", OTHER_HOP, "dev", "d1")
        replaced = time.monotonic()
        while contender.hop(bed, dest) != OTHER_HOP:
            if time.monotonic() - began > PATIENCE_S:
                raise Failed(f"{dest} still goes by {HOP}")
        return {"moved_s": time.monotonic() - began, "replaced_s": replaced - began}
