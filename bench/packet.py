"""What a forwarded packet costs, in CPU time, so that neither the clock nor other programs matter.

The generator is pinned to a processor. Devices of the kind veth poll on the processor that sends, so the generator, the router
and the sink all run in one process. Its CPU time is read, and that of the kernel's thread for what is left over (ksoftirqd).
The same frames to a device that drops them are the baseline, and are subtracted. Both alternate, and medians count.
"""

import contextlib
import json
import os
import re
import statistics
import subprocess
import time

import harness
from contenders.packet import BEHIND, DEST, SOURCE, TRANSLATED, run
from harness import Failed, Process, Unavailable

#: Frames of a run. At 100 ns each this takes 0.05 s, at 1 us half a second.
FRAMES = 500_000
#: Flows, and the bytes of a frame with the check sequence.
FLOWS, BYTES = 10_000, 64
FIRST_PORT = 1_024
#: How long a flow of UDP has to last until connection tracking takes it for a stream: 2 s.
STREAM_S = 2.2
#: Runs of each of the two at least, however short the cell.
LEAST_RUNS = 5
#: Less than this share of frames at the sink is no measurement; and how many such runs a cell bears.
LEAST_ARRIVED_PERCENT = 99.9
MOST_PASSED_OVER = 10


class Bed:
    """Two machines beside the one that we are on: a router between g0 and s0, and one behind b0 that drops everything."""

    def __init__(self, bench, after):
        self.folder, self.after = bench.folder, after
        self.packet = os.environ["BENCH_PACKET"]
        self.flows = ("--src", SOURCE, "--dst", DEST, "--sport", f"{FIRST_PORT}-{FIRST_PORT + FLOWS - 1}")
        self.processor = sorted(os.sched_getaffinity(0))[-1]
        self.pins = os.path.join(self.folder, "bpf")
        os.makedirs(self.pins, exist_ok=True)
        run(["mount", "-t", "bpf", "bpf", self.pins])
        after.callback(run, ["umount", self.pins])
        self.drop = os.path.join(self.folder, "drop.bpf.o")
        self.router, self.dropper = self._namespace(), self._namespace()
        self.softirqd = self._softirqd()
        for outer, inner, machine in (("b0", "bd", self.dropper), ("g0", "d0", self.router), ("s0", "d1", self.router)):
            self._wire(outer, inner, machine)
        self._address()

    def words(self, machine, *argv):
        return ["nsenter", "--target", str(machine.pid), "--net", *argv]

    def inside(self, machine, *argv, **more):
        return run(self.words(machine, *argv), **more)

    def start(self, machine, *argv):
        """A program in a machine, which ends with the bed."""
        process = Process(self.folder, "fixture", ["nsenter", "--target", str(machine.pid), "--net", *argv])
        self.after.callback(harness.stop, [process])
        return process

    def _hold(self, *argv):
        process = Process(self.folder, "fixture", ["unshare", *argv])
        self.after.callback(harness.stop, [process])
        return process

    def _namespace(self):
        process, ours = self._hold("--net", "sleep", "infinity"), os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != ours, "a network namespace")
        return process

    def _softirqd(self):
        """The file that says how long ksoftirqd of our processor ran. We see only processes of our own namespace: below the proc
        that was mounted for us lies the machine's own."""
        process = self._hold("--mount", "sh", "-c", "umount /proc && exec sleep infinity")
        root = f"/proc/{process.pid}/root/proc"

        def found():
            for entry in os.listdir(root) if os.path.isdir(root) else ():
                with contextlib.suppress(OSError):
                    if entry.isdigit() and read(f"{root}/{entry}/comm").strip() == f"ksoftirqd/{self.processor}":
                        return f"{root}/{entry}/schedstat"
            return None
        return until(found, f"ksoftirqd/{self.processor}")

    def _wire(self, outer, inner, machine):
        run(["ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", str(machine.pid)])
        self.after.callback(run, ["ip", "link", "del", outer])
        run(["ethtool", "-K", outer, "tx", "off", "gro", "on"])
        run(["ip", "link", "set", outer, "up"])
        self.inside(machine, "ethtool", "-K", inner, "tx", "off")
        self.inside(machine, "ip", "link", "set", inner, "up")
        # A device sends frames of XDP once its peer polls: that is told when it is up.
        self.inside(machine, "ethtool", "-K", inner, "gro", "off")
        self.inside(machine, "ethtool", "-K", inner, "gro", "on")

    def _address(self):
        self.inside(self.dropper, "ip", "link", "set", "dev", "bd", "xdpdrv", "obj", self.drop, "sec", "xdp")
        run(["ip", "link", "set", "dev", "s0", "xdpdrv", "obj", self.drop, "sec", "xdp"])
        for words in (("addr", "add", "10.0.0.1/24", "dev", "d0"), ("addr", "add", "10.0.1.1/24", "dev", "d1"),
                      ("route", "add", f"{SOURCE}/32", "via", "10.0.0.2"), ("route", "add", BEHIND, "via", "10.0.1.2"),
                      ("neigh", "add", "10.0.0.2", "lladdr", mac("g0"), "dev", "d0", "nud", "permanent"),
                      ("neigh", "add", "10.0.1.2", "lladdr", mac("s0"), "dev", "d1", "nud", "permanent")):
            self.inside(self.router, "ip", *words)
        self.inside(self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")

    def send(self, device, to, frames, flows=None):
        """CPU seconds of a run of so many frames by this device."""
        argv = [self.packet, "generate", "--dev", device, "--to", to, *(flows or self.flows), "--size", str(BYTES), "--count", str(frames),
                "--cpu", str(self.processor), "-o", "json"]
        before = ran(self.softirqd)
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            printed, said = child.stdout.read(), child.stderr.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise Failed(f"the generator ended with {child.returncode}: {said[-300:]}")
        if json.loads(printed)["sent"] != frames:
            raise Failed(f"the generator did not send {frames} frames: {printed[-300:]}")
        return used.ru_utime + used.ru_stime + (ran(self.softirqd) - before) / 1e9

    def answer(self):
        """One frame back for each flow, from behind the router to the addresses that a NAT gives, with the ports kept."""
        ports = f"{FIRST_PORT}-{FIRST_PORT + FLOWS - 1}"
        self.send("s0", self.peer(self.router, "d1"), FLOWS, ("--src", DEST, "--dst", TRANSLATED, "--sport", "9", "--dport", ports))

    def peer(self, machine, device):
        """The MAC of a device of the other machines."""
        return json.loads(self.inside(machine, "ip", "-j", "link", "show", device))[0]["address"]


def until(condition, what):
    """Waits for it, and gives what it gave."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            found = condition()
            if found:
                return found
        time.sleep(0.01)
    raise Unavailable(f"there is no {what}")


def read(path):
    with open(path) as file:
        return file.read()


def ran(schedstat):
    """How long the thread of this file ran, in nanoseconds."""
    return int(read(schedstat).split()[0])


def mac(device):
    return json.loads(run(["ip", "-j", "link", "show", device]))[0]["address"]


def dropped():
    """The frames that the program at the sink has dropped."""
    return sum(int(count) for count in re.findall(r"rx_queue_\d+_xdp_drops: (\d+)", run(["ethtool", "-S", "s0"])))


def settled():
    """The same, once no more come."""
    before = dropped()
    while True:
        time.sleep(0.02)
        now = dropped()
        if now == before:
            return now
        before = now


@contextlib.contextmanager
def bed_of(contender, prepare=None):
    with contextlib.ExitStack() as after:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drop.bpf.c")
        clang = os.environ.get("CLANG", "clang")
        try:
            run([clang, "-target", "bpf", "-O2", "-c", source, "-o", os.path.join(contender.bench.folder, "drop.bpf.o")])
        except FileNotFoundError as error:
            raise Unavailable("clang is not there; `scripts/need clang` installs it") from error
        bed = Bed(contender.bench, after)
        if prepare:
            prepare(bed)
        contender.set_up(bed)
        yield bed


def alternate(bed, seconds):
    """CPU seconds of runs to the one that drops, and of runs through the router, in turn; and how many frames of the latter came
    through. Runs that lost some do not count, since a lost frame costs less: another program had the processor for long."""
    through, drop = bed.peer(bed.router, "d0"), bed.peer(bed.dropper, "bd")
    costs, shares, passed = ([], []), [], 0
    deadline = time.monotonic() + seconds
    while len(costs[0]) < LEAST_RUNS or time.monotonic() < deadline:
        baseline, before = bed.send("b0", drop, FRAMES), dropped()
        cost = bed.send("g0", through, FRAMES)
        # Other frames are there, too: those that machines tell their neighbours about themselves by.
        share = min(100.0, (settled() - before) * 100 / FRAMES)
        if share >= LEAST_ARRIVED_PERCENT:
            costs[0].append(baseline)
            costs[1].append(cost)
            shares.append(share)
            continue
        passed += 1
        if passed > MOST_PASSED_OVER:
            raise Failed(f"only {share:.2f} % of the frames came through, time and again")
    return *costs, min(shares)


def warm_up(bed, contender):
    """Neighbours, sessions and caches are there from here on."""
    through = bed.peer(bed.router, "d0")
    bed.send("g0", through, FLOWS)
    if contender.needs_answers:
        for pause in (STREAM_S, 0):
            bed.answer()
            time.sleep(pause)
            bed.send("g0", through, FLOWS)


def measured(bed, contender, seconds):
    """The runs of a cell, once everything is warm and goes the way that is measured."""
    warm_up(bed, contender)
    costs = alternate(bed, seconds)
    contender.check(bed, len(costs[0]) * FRAMES)
    return costs


def figures_of(baseline, through, arrived):
    """The figures of a cell: nanoseconds a frame, net of the baseline."""
    net = (statistics.median(through) - statistics.median(baseline)) / FRAMES * 1e9
    return {"net_ns": net, "baseline_ns": statistics.median(baseline) / FRAMES * 1e9, "runs": len(baseline), "came_percent": arrived}


def forward(contender, seconds):
    """What a packet costs between two devices."""
    with bed_of(contender) as bed:
        return figures_of(*measured(bed, contender, seconds))


def generator(contender, seconds):
    """Frames for a second of CPU: to a device that drops them, and through the router to a sink, without loss."""
    with bed_of(contender) as bed:
        start = statistics.median(bed.send("b0", bed.peer(bed.dropper, "bd"), 1) for _ in range(LEAST_RUNS))
        baseline, through, arrived = measured(bed, contender, seconds)
        per_s = [FRAMES / (statistics.median(costs) - start) for costs in (baseline, through)]
        return {"per_cpu_s": per_s[0], "through_per_cpu_s": per_s[1], "start_cpu_ms": start * 1e3, "came_percent": arrived}
