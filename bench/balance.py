"""What a balancer's packet costs, by CPU time, with the method of packet.py: to edges in GUE or IPIP, and to owners of slices."""

import packet

#: Edges behind the balancer; all of them are the sink.
EDGES = 8
#: Where packets are balanced to, and the ports of the first five slices that are given.
PORT, SLICE_PORTS = "9", f"2048-{2_048 + packet.FLOWS - 1}"


def edge(number):
    """The address of an edge, from 1 on."""
    return f"10.0.1.{10 + number}"


def add_edges(bed):
    """The machine before the edges knows who they are."""
    for number in range(1, EDGES + 1):
        bed.inside(bed.router, "ip", "neigh", "add", edge(number), "lladdr", packet.mac("s0"), "dev", "d1", "nud", "permanent")


def steer(way, contender, seconds):
    """What a packet costs that goes to an edge by `gue` or `ipip`, or to the owner of its `slice`."""
    contender.way = way
    with packet.bed_of(contender, prepare=add_edges) as bed:
        if way == "slice":
            bed.flows = ("--src", packet.SOURCE, "--dst", packet.DEST, "--sport", PORT, "--dport", SLICE_PORTS)
        return packet.figures_of(*packet.measured(bed, contender, seconds))
