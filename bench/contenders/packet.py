"""Who forwards packets: the router in XDP, and the kernel with what it can be asked to do besides."""

import os
import subprocess

from harness import Failed, Unavailable

from .base import Contender, first_line
from .sallyport import Sallyport

#: The network behind the router, the sources before it, and the address that a NAT gives them.
BEHIND, SOURCE, TRANSLATED = "198.19.0.0/16", "198.18.0.1", "10.0.1.1"
#: A rule set of nftables that only asks for connection tracking.
TRACKED = "add table ip bench; add chain ip bench f { type filter hook forward priority 0; }; add rule ip bench f ct state invalid drop"
#: One that gives every source the address of the router.
SNAT = ("add table ip bench; add chain ip bench p { type nat hook postrouting priority 100; }; "
        f"add rule ip bench p oifname d1 snat to {TRANSLATED}")


class Forwarder(Contender):
    """What a machine with the devices d0 and d1 does between the two."""

    rows = ("packet_forward",)
    needs = ("ethtool",)

    def set_up(self, bed):
        """Makes the machine `bed.router` forward; the kernel does by itself."""

    @classmethod
    def versions(cls, bench):
        return {"iproute2": first_line("ip", "-V")}

    def commands(self):
        return []


class Kernel(Forwarder):
    name = "kernel"
    about = "the kernel's own forwarding, without rules"


class KernelTracked(Forwarder):
    name = "kernel-conntrack"
    about = "the kernel's forwarding with connection tracking"
    needs = ("ethtool", "nft")
    rules = TRACKED

    @classmethod
    def versions(cls, bench):
        return {"nft": first_line("nft", "--version")}

    def set_up(self, bed):
        bed.inside(bed.router, "nft", self.rules)


class NftSnat(KernelTracked):
    name = "nft-snat"
    about = "the kernel's forwarding with source NAT by nftables"
    rules = SNAT
    rows = ("packet_forward", "packet_nat")


class SallyportRouter(Forwarder, Sallyport):
    name = "sallyport"
    about = "`sallyport packet router up`: XDP, with the kernel's routes"
    rows = ("packet_forward", "packet_generator")
    #: What is run in the router's namespace, and what ends it; FOLDER is a bpffs.
    up = ("router", "up", "--dev", "d0,d1")

    @classmethod
    def versions(cls, bench):
        return Sallyport.versions(bench) | {"iproute2": first_line("ip", "-V")}

    def start(self):
        """Nothing: its rows start it."""

    def set_up(self, bed):
        self.packet(bed, *self.up)

    def packet(self, bed, *argv):
        """Runs a command of the packet path in the router's namespace."""
        pins = os.path.join(bed.pins, self.name)
        return bed.inside(bed.router, bed.packet, "--pins", pins, *argv)


def run(argv, **more):
    """Runs it, and gives what it printed; what it says is in the failure."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        said = done.stderr.strip()[-300:]
        if "built without clang" in said:
            raise Unavailable("sallyport-packet was built without clang; `scripts/need clang` installs it")
        raise Failed(f"{' '.join(argv)[:200]} ended with {done.returncode}: {said}")
    return done.stdout
