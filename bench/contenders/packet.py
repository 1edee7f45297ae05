"""Who forwards packets: the router in XDP, and the kernel with what it can be asked to do besides."""

import json
import os
import re
import shutil
import subprocess
import time

from harness import Failed, Unavailable

from .base import Contender, first_line
from .sallyport import Sallyport

#: The network behind the router, the sources before it, and the address that a NAT gives them.
BEHIND, DEST, SOURCE, TRANSLATED = "198.19.0.0/16", "198.19.0.1", "198.18.0.1", "10.0.1.1"
#: A rule set of nftables that only asks for connection tracking.
TRACKED = "add table ip bench; add chain ip bench f { type filter hook forward priority 0; }; add rule ip bench f ct state invalid drop"
#: One that gives every source the address of the router.
SNAT = ("add table ip bench; add chain ip bench p { type nat hook postrouting priority 100; }; "
        f"add rule ip bench p oifname d1 snat to {TRANSLATED}")


class Forwarder(Contender):
    """What a machine with the devices d0 and d1 does between the two."""

    rows = ("packet_forward", "packet_full_table", "packet_fill", "packet_move", "packet_lookup", "packet_mrt", "packet_balance_gue",
            "packet_balance_ipip", "packet_slice")
    needs = ("ethtool",)
    #: It is no tunnel.
    is_peer = False
    #: Whether flows are known only once the other side has answered.
    needs_answers = False

    #: The program of lookup.bpf.c that looks up as it does.
    looks_up = "look_up_kernel"

    #: The one that fills its table; none: the table has the kernel's routes.
    filled_by = None

    def tables(self, bed):
        """The pinned tables that this program reads, by their names."""
        return {}

    def check(self, bed, frames):
        """Fails unless so many frames went the way that is measured."""

    def set_up(self, bed):
        """Makes the machine `bed.router` forward; the kernel does by itself."""

    def routes(self, bed):
        """How many prefixes the table has that forwards: here the kernel's."""
        statistics = bed.inside(bed.router, "cat", f"/proc/{bed.router.pid}/net/fib_triestat")
        return sum(int(count) for count in re.findall(r"Prefixes: *(\d+)", statistics))

    def wait_routes(self, bed, count, patience_s):
        """Waits until the table has so many."""
        deadline = time.monotonic() + patience_s
        while self.routes(bed) < count:
            if time.monotonic() > deadline:
                raise Failed(f"after {patience_s} s the table has {self.routes(bed)} routes of {count}")
            time.sleep(0.1)

    def hop(self, bed, dest):
        """The next hop of a destination."""
        return json.loads(bed.inside(bed.router, "ip", "-j", "route", "get", dest))[0]["gateway"]

    @classmethod
    def versions(cls, bench):
        return {"iproute2": first_line("ip", "-V")}

    def commands(self):
        return ["sysctl net.ipv4.ip_forward=1"]


class Kernel(Forwarder):
    name = "kernel"
    about = "the kernel's own forwarding, without rules"


class Ipvs(Forwarder):
    name = "ipvs"
    about = "IPVS, the kernel's own balancer, with Maglev over eight servers and their tunnels"
    rows = ("packet_balance_gue", "packet_balance_ipip")
    way = "gue"

    def set_up(self, bed):
        path = f"{os.environ['PATH']}:/usr/sbin"
        modprobe = shutil.which("modprobe", path=f"{path}:/sbin")
        if modprobe:
            subprocess.run([modprobe, "-q", "-a", "ip_vs", "ip_vs_mh"], capture_output=True, check=False)
        if not os.path.exists(f"/proc/{bed.router.pid}/net/ip_vs"):
            raise Unavailable("this kernel has no IPVS (CONFIG_IP_VS)")
        if not shutil.which("ipvsadm", path=path):
            raise Unavailable("ipvsadm is not there; `scripts/need ipvsadm` installs it")
        bed.inside(bed.router, "ip", "addr", "add", f"{DEST}/32", "dev", "lo")
        for words in self.words():
            bed.inside(bed.router, "env", f"PATH={path}", "ipvsadm", *words)

    def words(self):
        service = ("-u", f"{DEST}:9")
        tunnel = ("-i", "--tun-type", "gue", "--tun-port", "6080") if self.way == "gue" else ("-i",)
        return [("-A", *service, "-s", "mh"),
                *(("-a", *service, "-r", f"10.0.1.{10 + number}:9", *tunnel) for number in range(1, 9))]

    def commands(self):
        return ["ipvsadm " + " ".join(words) for words in self.words()]


class KernelTracked(Forwarder):
    rows = ("packet_forward",)
    name = "kernel-conntrack"
    about = "the kernel's forwarding with connection tracking"
    needs = ("ethtool", "nft")
    rules = TRACKED

    @classmethod
    def versions(cls, bench):
        return {"nft": first_line("nft", "--version")}

    def set_up(self, bed):
        bed.inside(bed.router, "nft", self.rules)

    def commands(self):
        return [*super().commands(), f"nft '{self.rules}'"]


class NftSnat(KernelTracked):
    name = "nft-snat"
    about = "the kernel's forwarding with source NAT by nftables"
    rules = SNAT
    needs_answers = True
    rows = ("packet_forward", "packet_nat")


class SallyportRouter(Forwarder, Sallyport):
    name = "sallyport"
    about = "`sallyport packet router up`: XDP, with the kernel's routes; in packet_nat with source NAT in XDP"
    rows = ("packet_forward", "packet_full_table", "packet_generator")
    is_peer = True
    #: What is run in the router's namespace.
    up = ("router", "up", "--dev", "d0,d1")

    @classmethod
    def versions(cls, bench):
        return Sallyport.versions(bench) | {"iproute2": first_line("ip", "-V")}

    def start(self):
        """Nothing: its rows start it."""

    def set_up(self, bed):
        self.packet(bed, *self.up)

    def commands(self):
        return ["sallyport packet " + " ".join(self.up)]

    def check(self, bed, frames):
        counts = json.loads(self.packet(bed, "router", "show", "drops", "--all", "-o", "json"))
        forwarded = sum(count["packets"] for count in counts if count["port"] == "d0" and count["action"] == "forward")
        if forwarded < frames * 0.999:
            raise Failed(f"only {forwarded} of {frames} frames went by XDP")

    def packet(self, bed, *argv):
        """Runs a command of the packet path in the router's namespace."""
        return bed.inside(bed.router, bed.packet, "--pins", self.pins(bed), *argv)

    def pins(self, bed):
        return os.path.join(bed.pins, "router")


class SallyportBalance(SallyportRouter):
    about = "`sallyport packet balance up`: XDP, to eight edges, or to five machines by slices"
    rows = ("packet_balance_gue", "packet_balance_ipip", "packet_slice")
    up = ("balance", "up", "--config", "balance.toml")
    #: `gue` or `ipip`, or `slice`.
    way = "gue"

    def set_up(self, bed):
        edges = [f'[[edge]]\nname = "e{number}"\naddress = "10.0.1.{10 + number}"\n' for number in range(1, 9)]
        slices = ", ".join(f'{{ number = {number}, machine = "e{number}" }}' for number in range(1, 6))
        service = (f'[[egress]]\naddress = "{DEST}"\nslice = [{slices}]\n' if self.way == "slice" else
                   f'[[service]]\naddress = "{DEST}"\nprotocol = "udp"\nports = 9\n')
        head = 'dev = ["d0", "d1"]\nsource = ["10.0.1.1"]\n' + ('encapsulation = "ipip"\n' if self.way == "ipip" else "")
        config = self.file("balance.toml", head + "".join(edges) + service)
        self.packet(bed, "balance", "up", "--config", config)

    def check(self, bed, frames):
        counts = json.loads(self.packet(bed, "balance", "show", "drops", "--all", "-o", "json"))
        reason = "slice" if self.way == "slice" else "balanced"
        sent = sum(count["packets"] for count in counts if count["port"] == "d0" and count["reason"] == reason)
        if sent < frames * 0.999:
            raise Failed(f"only {sent} of {frames} frames were {reason}: {counts}")


class SallyportFib(SallyportRouter):
    name = "sallyport-fib"
    about = "`sallyport packet router run --lookup fib`: XDP, with tables of its own"
    rows = ("packet_forward", "packet_full_table", "packet_fill", "packet_move")
    is_peer = False
    up = ("router", "run", "--dev", "d0,d1", "--lookup", "fib")

    def routes(self, bed):
        try:
            with open(self.metrics(bed)) as file:
                return int(re.search(r"^sallyport_packet_fib_prefixes (\d+)$", file.read(), re.MULTILINE)[1])
        except FileNotFoundError:
            return 0

    def hop(self, bed, dest):
        return json.loads(self.packet(bed, "explain", SOURCE, dest, "udp", "1024", "9", "--from", "d0", "-o", "json"))["next_hop"]

    #: The tables of routes of IPv4.
    looks_up = "look_up_fib"

    def tables(self, bed):
        return {name: os.path.join(self.pins(bed), name) for name in ("fib4_first", "fib4_second")}

    def metrics(self, bed):
        return os.path.join(bed.folder, "router.prom")

    def set_up(self, bed):
        process = bed.start(bed.router, bed.packet, "--pins", self.pins(bed), *self.up, "--metrics", self.metrics(bed))
        deadline = time.monotonic() + 30
        while True:
            try:
                said = self.packet(bed, "explain", SOURCE, DEST, "udp", "1024", "9", "--from", "d0", "-o", "json")
                if json.loads(said)["action"] == "forward":
                    return
            except Failed:
                process.check()
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise Failed(f"the router does not forward: {said}")
            time.sleep(0.1)


class SallyportLookup(SallyportFib):
    """The same by the name that targets have, in rows without the other lookup."""

    name = "sallyport"
    rows = ("packet_lookup", "packet_mrt")
    is_peer = True


class Trie(Forwarder):
    name = "lpm-trie"
    about = "a table of the kernel for the longest prefix (BPF_MAP_TYPE_LPM_TRIE), read by a program"
    rows = ("packet_lookup",)
    looks_up, filled_by = "look_up_trie", "fill_trie"

    def commands(self):
        return []


class XdpForward(Forwarder):
    name = "xdp-forward"
    about = "xdp-forward of xdp-tools: XDP, with the kernel's routes"
    rows = ("packet_forward", "packet_full_table")

    def set_up(self, bed):
        path = f"{os.environ['PATH']}:/usr/sbin"
        if not shutil.which("xdp-forward", path=path):
            has_others = shutil.which("xdp-loader", path=path)
            raise Unavailable("the xdp-tools that are there are too old to have xdp-forward" if has_others else "xdp-forward is not there")
        try:
            bed.inside(bed.router, "env", f"PATH={path}", "xdp-forward", "load", "-m", "native", "d0", "d1")
        except Failed as error:
            raise Unavailable(f"xdp-forward does not start here: {error}") from error

    def commands(self):
        return ["xdp-forward load -m native d0 d1"]


class Vpp(Forwarder):
    name = "vpp"
    about = "VPP, a router in user space"
    rows = ("packet_forward",)

    def set_up(self, bed):
        raise Unavailable("no package of Debian has VPP, and CPU time of its polling threads is no cost of a packet")

    def commands(self):
        return []


class SallyportNat(SallyportRouter):
    rows = ("packet_nat",)
    engine = "xdp"
    needs_answers = True
    up = ("router", "up", "--config", "router.toml")

    def set_up(self, bed):
        config = self.file("router.toml", f"""[[port]]
dev = "d0"
[[port]]
dev = "d1"
[nat]
engine = "{self.engine}"
inside = ["{SOURCE}/32"]
pool = ["{TRANSLATED}"]
max-sessions-per-user = 65536
""")
        try:
            self.packet(bed, "router", "up", "--config", config)
        except Failed as error:
            if "unknown field" in str(error):
                raise Unavailable("this sallyport-packet has no NAT") from error
            raise


class SallyportNatConntrack(SallyportNat):
    name = "sallyport-conntrack"
    about = "`sallyport packet router up` with source NAT by connection tracking: known flows go by XDP"
    needs = ("ethtool", "nft")
    engine = "conntrack"
    is_peer = False


def run(argv, **more):
    """Runs it, and gives what it printed; what it says is in the failure."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        said = done.stderr.strip()[-300:]
        if "built without clang" in said:
            raise Unavailable("sallyport-packet was built without clang; `scripts/need clang` installs it")
        raise Failed(f"{' '.join(argv)[:200]} ended with {done.returncode}: {said}")
    return done.stdout
