"""What a lookup in a table of routes costs by itself, in CPU time: with ten prefixes, and with a million.

A program of lookup.bpf.c looks up addresses all over the table. Runs of it alternate with runs of one that only makes the same
addresses, which is subtracted. The kernel runs both by BPF_PROG_TEST_RUN, on one processor and in one process, whose CPU time counts.
"""

import json
import os
import shutil
import statistics
import struct
import subprocess
import time

import full_table
import packet
from harness import Failed, Unavailable

#: Addresses of a run (lookup.bpf.c), and runs of a call.
LOOKUPS, RUNS = 65_536, 30
#: Figures, and the prefixes of /24 for each.
SIZES = {"few_ns": 10, "million_ns": full_table.ROUTES}


class Programs:
    """The programs of lookup.bpf.c in the kernel, which share the router's tables where it has some."""

    def __init__(self, bed, tables):
        self.bed, self.folder = bed, os.path.join(bed.pins, "lookup")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lookup.bpf.c")
        compiled = os.path.join(bed.folder, "lookup.bpf.o")
        clang = os.environ.get("CLANG", "clang")
        packet.run([clang, "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", source, "-o", compiled])
        shared = [word for name, path in tables.items() for word in ("map", "name", name, "pinned", path)]
        if not shutil.which("bpftool", path=f"{os.environ['PATH']}:/usr/sbin"):
            raise Unavailable("bpftool is not there; `scripts/need bpftool` installs it")
        bed.inside(bed.router, *self.argv("prog", "loadall", compiled, self.folder, *shared))
        bed.after.callback(self.remove)
        self.ifindex = json.loads(bed.inside(bed.router, "ip", "-j", "link", "show", "d0"))[0]["ifindex"]

    def argv(self, *argv):
        return "taskset", "-c", str(self.bed.processor), "env", f"PATH={os.environ['PATH']}:/usr/sbin", "bpftool", "-j", *argv

    def remove(self):
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        os.rmdir(self.folder)

    def run(self, name, prefixes, runs=RUNS):
        """CPU seconds of a call, and what the last run returned."""
        work = os.path.join(self.bed.folder, "work")
        with open(work, "wb") as file:
            file.write(struct.pack("=IIII", full_table.FIRST_NETWORK << 8, prefixes << 8, self.ifindex, 0).ljust(64, b"\0"))
        argv = self.argv("prog", "run", "pinned", os.path.join(self.folder, name), "data_in", work, "repeat", str(runs))
        with subprocess.Popen(self.bed.words(self.bed.router, *argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            said = child.stdout.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise Failed(f"bpftool ended with {child.returncode}: {said[-300:]}")
        return used.ru_utime + used.ru_stime, json.loads(said)["retval"]


def cost(programs, name, prefixes, seconds):
    """Nanoseconds of a lookup, net of making the address."""
    costs, deadline = ([], []), time.monotonic() + seconds
    while len(costs[0]) < packet.LEAST_RUNS or time.monotonic() < deadline:
        costs[0].append(programs.run("look_up_none", prefixes)[0])
        used, found = programs.run(name, prefixes)
        if found != LOOKUPS:
            raise Failed(f"only {found} of {LOOKUPS} addresses have a route")
        costs[1].append(used)
    return max(0.0, statistics.median(costs[1]) - statistics.median(costs[0])) / (LOOKUPS * RUNS) * 1e9


def look_up(contender, seconds):
    """A lookup with ten prefixes, and with a million: addresses all over the table."""
    figures = {}
    for figure, prefixes in SIZES.items():
        def prepare(bed, prefixes=prefixes):
            if not contender.filled_by:
                full_table.add_routes(bed, f"via {full_table.HOP}", prefixes)

        with packet.bed_of(contender, prepare=prepare) as bed:
            if not contender.filled_by:
                contender.wait_routes(bed, prefixes, full_table.PATIENCE_S)
            programs = Programs(bed, contender.tables(bed))
            if contender.filled_by and programs.run(contender.filled_by, prefixes, 1)[1] != prefixes:
                raise Failed(f"the table does not take {prefixes} prefixes")
            figures[figure] = cost(programs, contender.looks_up, prefixes, seconds)
    return figures
