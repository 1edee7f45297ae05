#!/usr/bin/env python3
"""Compares Sallyport with other tunnels, side by side on this machine: HTTPS, TCP and UDP ports, stock ssh clients.

Every contender runs in turn, in a network namespace made for the run, and the order is turned around each round.
Absolute figures depend on the machine; the ratios in one run are what counts. See bench/README.md.
"""

import argparse
import contextlib
import datetime
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contenders  # noqa: E402
import flame  # noqa: E402
import harness  # noqa: E402
import kept  # noqa: E402
import load  # noqa: E402
import measures  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
from contenders.base import first_line  # noqa: E402
from contenders.sallyport import Sallyport  # noqa: E402
from harness import Failed, Process, Unavailable  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
#: Where the results are kept.
RESULTS = f"{HERE}/results"
#: The two ends of a link that loses packets.
NEAR, FAR = "10.99.0.1", "10.99.0.2"
#: What bulk consists of. It has to lie in a tmpfs, and one is mounted there for us: whoever reads a hole of such a file gets
#: the kernel's one page of zeros, however far, and it takes no memory. On a disk each part of a hole would need pages of its
#: own, which the first who reads it waits for.
ENDLESS = "/run/endless"
#: The programs that no run can do without, by what `scripts/need` calls them.
PROGRAMS = {"curl": "curl", "iproute": "ip", "nginx": "nginx", "openssl": "openssl", "wrk": "wrk"}
#: How long the short benchmark may spend on measuring disturbed cells again: it is to end in five minutes.
QUICK_AGAIN_S = 20


class Bench:
    """The stage: folder, names, certificate, origins, tools."""

    def __init__(self, folder, options):
        self.folder = folder
        self.sallyport, self.is_built_here = options.sallyport, options.is_built_here
        self.idle_connections = 250 if options.quick else 1000
        #: How long memory gets to settle before it is read.
        self.settle_seconds = 2 if options.quick else 5
        self.idle_tunnels = 48 if options.quick else 96
        self.certificate, self.key, self.both = (f"{folder}/{name}" for name in ("cert.pem", "key.pem", "both.pem"))
        self.endless = ENDLESS
        #: What runs on the far side of a link begins with this; and what the kernel's bounds of TCP's buffers are.
        self.far, self.buffers = [], None
        self._hosts = {name: "127.0.0.1" for name in ("localhost", contenders.PAGES, contenders.SINK)}
        self.hosts({})

    def tool(self, name):
        path = os.environ.get(f"BENCH_{name.upper()}")
        if not path:
            raise Unavailable(f"{name} was not built")
        return path

    def build(self):
        """Which build is measured: its digest, and the commit that it is of. Of one that was given the commit is not known, and that of
        the tree is called so."""
        with open(self.sallyport, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        argv = ["git", "-c", "safe.directory=*", "describe", "--always", "--dirty"]
        commit = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        return {"sha256": digest[:12], "commit" if self.is_built_here else "commit of the tree": commit}

    def hosts(self, more):
        """Makes names resolve; /etc/hosts is bound to this file in our namespace."""
        self._hosts.update(more)
        with open(os.environ["BENCH_HOSTS"], "w") as file:
            file.writelines(f"{address} {name}\n" for name, address in self._hosts.items())

    def build_stage(self):
        os.makedirs(f"{self.folder}/www")
        for name, size in (("100b", 100), ("64k", 65536), *((f"b{size}", size) for size in measures.STALL_SIZES)):
            with open(f"{self.folder}/www/{name}", "wb") as file:
                file.write(b"x" * size)
        with open(self.endless, "wb") as file:
            file.truncate(1 << 38)  # never ends within a cell
        os.symlink(self.endless, f"{self.folder}/www/endless")
        os.chmod(self.folder, 0o755)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-keyout", self.key, "-out", self.certificate, "-subj", f"/CN={contenders.DOMAIN}",
             "-addext", f"subjectAltName=DNS:{contenders.PAGES},DNS:{contenders.SINK}"],
            check=True, capture_output=True)
        with open(self.both, "w") as both:
            for part in (self.certificate, self.key):
                with open(part) as file:
                    both.write(file.read())

    def set_buffers(self, most_mib):
        """The most that TCP may grow its buffers to, on both sides of the link; none: what the kernel says."""
        for prefix in ([], self.far) if most_mib else ([],):
            for name, usual in (("tcp_rmem", self.buffers[0]), ("tcp_wmem", self.buffers[1])):
                low, middle, most = usual
                value = f"{low} {middle} {most if most_mib is None else most_mib << 20}"
                subprocess.run([*prefix, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}"], check=True)

    def start_link(self):
        """A second namespace behind a link that loses packets; what runs there begins with `far`."""
        os.umask(0o022)
        holder = Process(self.folder, "fixture", ["unshare", "--net", "sleep", "infinity"])
        time.sleep(0.3)
        self.far = ["nsenter", "--target", str(holder.pid), "--net"]
        self.buffers = self.buffers or [[int(word) for word in open(f"/proc/sys/net/ipv4/{name}").read().split()] for name in ("tcp_rmem", "tcp_wmem")]
        link = Process(self.folder, "fixture", [os.environ["BENCH_LINK"], rows.LOSS_ONE_WAY_MS, rows.LOSS_PERCENT, rows.LOSS_MBIT_S,
                                                f"/proc/{holder.pid}/ns/net"])
        time.sleep(0.3)
        link.check()
        for prefix, address in (([], NEAR), (self.far, FAR)):
            for words in (["lo", "up"], ["link0", "up", "txqueuelen", "10000"]):
                subprocess.run([*prefix, "ip", "link", "set", *words], check=True)
            subprocess.run([*prefix, "ip", "address", "add", f"{address}/30", "dev", "link0"], check=True)
            subprocess.run([*prefix, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control"], check=True)
        return [holder, link]

    def start_origins(self, prefix=()):
        conf = f"{self.folder}/origin.conf"
        with open(conf, "w") as file:
            file.write(f"""worker_processes 1; daemon off; user root; pid {self.folder}/origin.pid; error_log {self.folder}/origin.err;
events {{ worker_connections 8000; }}
http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;
  open_file_cache max=100 inactive=600s; open_file_cache_valid 600s;
  server {{ listen 127.0.0.1:{contenders.ORIGIN_PORT} backlog=65535; root {self.folder}/www; }} }}
""")
        if prefix:  # on the far side of a link, which the near side cannot look at
            return [Process(self.folder, "fixture", [*prefix, "nginx", "-p", self.folder, "-c", conf])]
        nginx = Process(self.folder, "fixture", ["nginx", "-p", self.folder, "-c", conf])
        sink = Process(self.folder, "fixture", [os.environ["BENCH_SINK"], f"127.0.0.1:{contenders.SINK_PORT}"])
        echo = Process(self.folder, "fixture", [os.environ["BENCH_DATAGRAMS"], "origin", f"127.0.0.1:{contenders.ECHO_PORT}"])
        for port, process in ((contenders.ORIGIN_PORT, nginx), (contenders.SINK_PORT, sink), (contenders.ECHO_PORT, echo)):
            harness.wait_port(port, process)
        return [nginx, sink, echo]


class Run:
    """Rounds over contenders and rows, and what came out."""

    def __init__(self, bench, options):
        self.bench, self.options = bench, options
        self.samples, self.commands, self.drawings = [], {}, []
        self.began = time.monotonic()
        #: How many cells were measured again, and what that took.
        self.again, self.again_s = 0, 0.0

    def tries(self, row):
        is_late = self.options.quick and self.again_s > QUICK_AGAIN_S
        return 1 if row.is_once or is_late or self.options.once else harness.MAX_TRIES

    def took(self):
        again = f", {self.again_s:.0f} s of it for {self.again} cells that others disturbed" if self.again else ""
        return f"bench: measuring took {time.monotonic() - self.began:.0f} s{again}"

    def record(self, number, contender, row):
        sample = {"round": number, "contender": contender.name, "row": row.name}
        try:
            figures, foreign, again_s = harness.measure(lambda: self.measured(contender, row), self.tries(row))
            self.again, self.again_s = self.again + (again_s > 0), self.again_s + again_s
            points = figures.pop("points", None)
            if points:
                sample["points"] = points
            sample |= {"figures": figures, "foreign_percent": round(foreign, 1)}
            shown = "  ".join(f"{key} {value if isinstance(value, str) else report.number(value)}" for key, value in figures.items())
        except Unavailable as error:
            sample["unavailable"] = str(error)
            shown = f"not available: {error}"
        except (Failed, OSError, subprocess.SubprocessError) as error:
            sample["failed"] = str(error)
            shown = f"FAILED: {error}"
        self.samples.append(sample)
        print(f"round {number}  {contender.name:18} {row.name:20} {shown}", flush=True)

    def measured(self, contender, row):
        """What the row gives; with `--flame`, drawings of where its time went too."""
        measure = partial(row.measure, contender, self.options.seconds)
        if not self.options.flame:
            return measure()
        figures, drawings = flame.recorded(contender, measure, f"{RESULTS}/flame-{contender.name}-{row.name}")
        self.drawings += drawings
        return figures

    def round(self, number):
        for group, kinds in self.options.kinds.items():
            if group == "growth" and number > 1:
                continue  # minutes long, and compared with itself
            for kind in kinds if number % 2 else kinds[::-1]:
                self.contend(number, group, kind)

    def contend(self, number, group, kind):
        """All rows of one contender in one round; a contender that does not work costs its rows and nothing else."""
        for stage in rows.STAGES:
            chosen = [row for row in self.options.rows[group] if row.stage == stage and row.name in (kind.rows or (row.name,))]
            if not chosen or (stage in ("delay", "slow", "loss") and not kind.leg_ports):
                continue
            # What starts the contender itself gets a new one each time.
            batches = [[row] for row in chosen if row.name != "idle_tunnel" or kind.has_tunnels] if stage == "own" else [chosen]
            for batch in batches:
                if not self.contend_in(number, group, kind, stage, batch):
                    return

    def contend_in(self, number, group, kind, stage, chosen):
        """The same for one start of the contender; gives whether it can be had at all."""
        with contextlib.ExitStack() as after:
            if stage == "mtu1500":
                set_mtu(1500)
                after.callback(set_mtu, self.options.mtu)
            elif stage == "loss":
                after.callback(lambda: self.bench.set_buffers(None))
            sample = {"round": number, "contender": kind.name, "row": f"{group} {stage}"}
            fixtures, contender = self.bench.start_link() if stage == "loss" else [], None
            place = harness.on_processor if stage == "apart" else contextlib.nullcontext
            try:
                if stage not in ("packet", "ports"):
                    with place(harness.LOAD):
                        fixtures += self.bench.start_origins(self.bench.far if stage == "loss" else ())
                contender = kind(self.bench)
                with place(harness.CONTENDER):
                    self.start(group, contender, stage, fixtures)
                for row in chosen:
                    self.record(number, contender, row)
            except Unavailable as error:
                self.samples.append(sample | {"unavailable": str(error)})
                print(f"round {number}  {kind.name:18} {group}: not available: {error}", flush=True)
                return False
            except (Failed, OSError, subprocess.SubprocessError) as error:
                self.samples.append(sample | {"failed": str(error)})
                print(f"round {number}  {kind.name:18} {group}: did not start: {error}", flush=True)
            finally:
                harness.stop(fixtures + (contender.processes if contender else []))
        return True

    def start(self, group, contender, stage, fixtures):
        if stage == "loss":
            contender.leg, contender.bind, contender.client_prefix = NEAR, "0.0.0.0", self.bench.far
        elif stage in ("delay", "slow"):
            path = f"{rows.SLOW_ONE_WAY_MS}:{rows.SLOW_MBIT_S}" if stage == "slow" else str(rows.DELAY_ONE_WAY_MS)
            contender.leg = "127.0.0.2"
            pairs = [f"127.0.0.2:{port}=127.0.0.1:{port}" for port in contender.leg_ports]
            fixtures.append(Process(self.bench.folder, "fixture", [os.environ["BENCH_DELAY"], path, *pairs]))
            harness.wait_port(contender.leg_ports[0], fixtures[-1], host="127.0.0.2")
        elif stage == "gcm":
            contender.cipher = rows.GCM
        elif stage in ("packet", "ports"):
            self.commands.setdefault(group, {}).setdefault(contender.name, {}).setdefault(stage, contender.commands())
            return
        elif stage == "own":
            return
        contender.start()
        until_ready(contender, origins=[contenders.PAGES] if stage == "loss" else None)
        self.commands.setdefault(group, {}).setdefault(contender.name, {}).setdefault(stage, contender.commands())


def set_mtu(mtu):
    subprocess.run(["ip", "link", "set", "lo", "mtu", str(mtu)], check=True)


def until_ready(contender, origins=None):
    deadline = time.monotonic() + 20
    while True:
        try:
            contender.try_once(*([origins] if origins else []))
            break
        except (OSError, Failed) as error:
            for process in contender.processes:
                process.check()
            if time.monotonic() > deadline:
                raise Failed(f"its origins do not answer: {error}") from error
            time.sleep(0.1)
    time.sleep(1)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, two seconds a cell, and only the main rows unless --rows says which")
    parser.add_argument("--rounds", type=int, help="how often each contender has its turn (default 3)")
    parser.add_argument("--seconds", type=int, help="how long a cell is loaded (default 5)")
    names = list(dict.fromkeys(kind.name for kinds in contenders.KINDS.values() for kind in kinds))
    parser.add_argument("--once", action="store_true", help="measure no cell again, however disturbed it was")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="these contenders: " + ", ".join(names))
    parser.add_argument("--rows", nargs="+", metavar="PATTERN",
                        help="sets of rows, or rows whose name matches: " + ", ".join(rows.SETS) + ", and what --list says")
    parser.add_argument("--list", action="store_true", help="measure nothing; list the rows, set by set")
    parser.add_argument("--mtu", type=int, default=65536, help="of the loopback interface; 1500 is more like a wire")
    parser.add_argument("--mrt", metavar="FILE", help="the table of packet_mrt: a dump of RIPE RIS or RouteViews (TABLE_DUMP_V2), plain, .gz or .bz2; "
                        "otherwise one is made with the lengths of prefixes that the internet has")
    parser.add_argument("--sallyport", help="a binary that is there already; otherwise the release build is made")
    parser.add_argument("--standing", action="store_true",
                        help="measure nothing; say how far each target is reached, by the newest results")
    parser.add_argument("--kept", action="store_true",
                        help="measure nothing; show the results that are kept of the chosen rows, with what their runs stated of themselves")
    parser.add_argument("--flame", action="store_true",
                        help="draw where the time of the rows goes (perf, inferno) from a build with symbols, and keep no figures")
    chosen = parser.parse_args()
    if chosen.sallyport and not (os.path.isfile(chosen.sallyport) and os.access(chosen.sallyport, os.X_OK)):
        parser.error(f"{chosen.sallyport} cannot be run")
    for name, least in (("rounds", 1), ("seconds", 1), ("mtu", 1280)):
        if getattr(chosen, name) is not None and getattr(chosen, name) < least:
            parser.error(f"--{name} is at least {least}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.seconds = chosen.seconds or (2 if chosen.quick else 5)
    is_short = chosen.quick and not chosen.rows
    patterns = chosen.rows or list(rows.SETS)
    known = [*rows.SETS, *(row.name for table in rows.SETS.values() for row in table)]
    for each in patterns:
        try:
            if not any(re.fullmatch(each, name) for name in known):
                parser.exit(2, f"bench: no set and no row is named {each}; `python3 bench/run.py --list` lists them all\n")
        except re.error as error:
            parser.exit(2, f"bench: {each} is no pattern: {error}\n")
    chosen.rows = {group: [row for row in table if row.is_main or not is_short
                           if group in patterns or any(re.fullmatch(each, row.name) for each in patterns)]
                   for group, table in rows.SETS.items()}
    every = contenders.MAIN_KINDS if is_short and not chosen.only else contenders.KINDS
    chosen.kinds = {group: [kind for kind in kinds if not chosen.only or kind.name in chosen.only]
                    for group, kinds in every.items() if chosen.rows[group]}
    if not any(chosen.kinds.values()):
        parser.error("no such row, or none of these contenders is in it")
    return chosen


def listed():
    """Lines of text: the rows of each set."""
    width = max(len(row.name) for table in rows.SETS.values() for row in table)
    for group, table in rows.SETS.items():
        yield f"{group}: {rows.TITLES[group]}"
        for row in table:
            yield f"  {'*' if row.is_main and group in contenders.MAIN_KINDS else ' '} {row.name:{width}}  {row.title}{rows.STAGES[row.stage]}"
    yield "* in the short benchmark, too"


def every_kind(chosen):
    return list(dict.fromkeys(kind for kinds in chosen.kinds.values() for kind in kinds))


def profile(chosen):
    """Which build is measured."""
    return "profiling" if chosen.flame else "release"


def need_programs(chosen):
    """Ends with a sentence when a program is not there, before anything is built or begun."""
    needed = PROGRAMS | {name: name for kind in every_kind(chosen) for name in kind.needs} | ({"perf": "perf"} if chosen.flame else {})
    # Where services are may not be in the path of who asks, and is in root's.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    missing = sorted(name for name, program in needed.items() if not shutil.which(program, path=path))
    if missing:
        print(f"bench: there is no {' and no '.join(missing)}; `scripts/need {' '.join(missing)}` installs what is missing", file=sys.stderr)
        raise SystemExit(2)


def terminated(*_):
    """Ends us by SIGTERM, once what we have started and made is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


def build(argv, **more):
    """Runs something that builds, in a group of its own, which ends when we do: gives its status and what it wrote, where that is
    asked for."""
    child = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, process_group=0, text=True, **more)
    try:
        said, _ = child.communicate()
    except BaseException:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise
    return child.returncode, said


def build_or_end(argv, **more):
    status, _ = build(argv, **more)
    if status != 0:
        raise SystemExit(f"bench: {' '.join(argv)} failed; see above")


def prepare(chosen, folder):
    """Builds what is missing, outside the namespace, which has no network; gives the environment for the inside."""
    environment = {"BENCH_FOLDER": folder}
    kinds = every_kind(chosen)
    if any(issubclass(kind, Sallyport) for kind in kinds) and not chosen.sallyport:
        print("bench: building the release binary", flush=True)
        # Stacks are walked by frame pointers.
        flags = {**os.environ, "RUSTFLAGS": "-C force-frame-pointers=yes"} if chosen.flame else None
        build_or_end(["cargo", "build", "--profile", profile(chosen), "--package", "sallyport", "--locked"], env=flags)
    drawers = {"inferno"} if chosen.flame else set()
    for tool in sorted({tool for kind in kinds for tool in kind.tools} | drawers):
        status, said = build([f"{ROOT}/scripts/tools", tool], stdout=subprocess.PIPE)
        if status == 0:
            environment[f"BENCH_{tool.upper()}"] = said.strip()
        elif tool in drawers or not all(kind.is_optional for kind in kinds if tool in kind.tools):
            raise SystemExit(f"bench: {tool} could not be built; see above, or leave it out with --only")
    for program in ("datagrams", "delay", "least", "link", "sink"):
        path = f"{folder}/{program}"
        build_or_end(["rustc", "-O", "--edition", "2024", "-o", path, f"{HERE}/{program}.rs"])
        environment[f"BENCH_{program.upper()}"] = path
    environment["BENCH_HOSTS"] = f"{folder}/hosts"
    environment["BENCH_MRT"] = os.path.abspath(chosen.mrt) if chosen.mrt else ""
    target = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"))
    if any(row.is_connection_load for table in chosen.rows.values() for row in table):
        build_or_end(["cargo", "build", "--release", "--package", "sallyport-connection-load", "--locked"])
        environment["BENCH_CONNECTION_LOAD"] = f"{target}/release/sallyport-connection-load"
    if chosen.rows.get("packet"):
        beside = os.path.join(os.path.dirname(os.path.abspath(chosen.sallyport)), "sallyport-packet") if chosen.sallyport else None
        if not beside:
            build_or_end(["cargo", "build", "--release", "--package", "sallyport-packet", "--locked"])
        environment["BENCH_PACKET"] = beside or f"{target}/release/sallyport-packet"
    if chosen.rows.get("ports"):
        beside = os.path.join(os.path.dirname(os.path.abspath(chosen.sallyport)), "examples", "connections") if chosen.sallyport else None
        if not beside:
            build_or_end(["cargo", "build", "--release", "--package", "sallyport-connectx", "--example", "connections", "--locked"])
        environment["BENCH_CONNECTIONS"] = beside or f"{target}/release/examples/connections"
    environment["BENCH_SALLYPORT"] = os.path.abspath(chosen.sallyport or f"{target}/{profile(chosen)}/sallyport")
    return environment


def enter_namespace(chosen):
    """Starts this program again in a network and mount namespace of its own, which needs root, and gives its status."""
    become_root = [] if os.geteuid() == 0 else ["sudo", "--"]
    if become_root and not shutil.which("sudo"):
        raise SystemExit("bench: needs root for a network namespace of its own, and there is no sudo")
    signal.signal(signal.SIGTERM, terminated)
    with tempfile.TemporaryDirectory(prefix="sallyport-bench.", ignore_cleanup_errors=True) as folder:
        environment = prepare(chosen, folder)
        inside = ["env", *(f"{name}={value}" for name, value in environment.items()),
                  # With its processes in a namespace of theirs, none outlives the run, however that ends.
                  "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
                  sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
        # Ctrl-C is for the one inside, which ends what it started and says what came out.
        signal.signal(signal.SIGINT, lambda *_: None)
        child = subprocess.Popen([*become_root, *inside], stdin=subprocess.PIPE)
        try:
            return child.wait()
        finally:
            child.stdin.close()  # which ends the one inside, if it is still there
            child.wait()


def end_with_outside():
    """Ends us as by SIGTERM when the one outside has ended, which holds the other end of our input. It cannot send us the signal
    itself: unshare, between the two, ignores it, and we may be another user's."""
    outside = os.dup(sys.stdin.fileno())
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def watch():
        while os.read(outside, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=watch, daemon=True).start()


def set_up_namespace(mtu):
    hosts = os.environ["BENCH_HOSTS"]
    open(hosts, "a").close()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    # sshd wants a folder there, which is not ours to make on the machine; and see ENDLESS.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.mkdir("/run/sshd", 0o755)
    subprocess.run(["ip", "link", "set", "lo", "up", "mtu", str(mtu)], check=True)
    # Reno: BBR paces, which halves what loopback can do, and hosts differ in what they default to.
    for name, value in (("core/somaxconn", "65535"), ("ipv4/ip_local_port_range", "33000 65000"), ("ipv4/tcp_tw_reuse", "1"),
                        ("ipv4/tcp_max_syn_backlog", "65535"), ("ipv4/tcp_congestion_control", "reno")):
        try:
            with open(f"/proc/sys/net/{name}", "w") as file:
                file.write(value)
        except OSError as error:
            print(f"bench: net/{name} stays as it is: {error}", flush=True)


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {"cpu": model[1] if model else platform.machine(), "cores": harness.CORES, "kernel": platform.release(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)}


def versions(bench, chosen):
    found = {"nginx": first_line("nginx", "-v"), "curl": first_line("curl", "--version"), "wrk": first_line("wrk", "-v")}
    for kind in every_kind(chosen):
        try:
            found |= kind.versions(bench)
        except Unavailable:
            pass  # its rows say so
    return found


def own(paths):
    """Gives what was written to who called sudo."""
    if "SUDO_UID" in os.environ:
        for path in paths:
            os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    return paths


def main():
    chosen = options()
    if chosen.list:
        print("\n".join(listed()))
        return
    if chosen.standing:
        print("\n".join(report.standing(kept.here(RESULTS))))
        return
    if chosen.kept:
        chosen_rows = {row.name for table in chosen.rows.values() for row in table}
        print("\n".join(report.kept(kept.here(RESULTS), chosen_rows)))
        return
    if "BENCH_FOLDER" not in os.environ:
        need_programs(chosen)
        raise SystemExit(enter_namespace(chosen))
    signal.signal(signal.SIGTERM, terminated)
    try:
        end_with_outside()
        contest(chosen)
    finally:
        shutil.rmtree(os.environ["BENCH_FOLDER"], ignore_errors=True)


def contest(chosen):
    """All of the run, within the namespace."""
    set_up_namespace(chosen.mtu)
    harness.raise_limits()
    chosen.is_built_here, chosen.sallyport = not chosen.sallyport, os.environ["BENCH_SALLYPORT"]
    bench = Bench(os.environ["BENCH_FOLDER"], chosen)
    bench.build_stage()
    about, started = machine(), datetime.datetime.now(datetime.UTC)
    found = versions(bench, chosen)
    print(f"bench: {report.conditions(about, chosen.rounds, chosen.seconds, chosen.mtu)}")
    print(f"bench: {report.versions(found)}")
    for group, kinds in chosen.kinds.items():
        print(rows.TITLES[group])
        for kind in kinds:
            print(f"  {kind.name:18} {kind.about}", flush=True)
    run = Run(bench, chosen)
    try:
        for number in range(1, chosen.rounds + 1):
            run.round(number)
    except KeyboardInterrupt:
        print("\nbench: interrupted; what was measured so far follows")
    print(f"\n{run.took()}")
    if chosen.flame:
        print("bench: drew " + ", ".join(os.path.relpath(path, ROOT) for path in own(run.drawings)))
        raise SystemExit(any("failed" in sample for sample in run.samples))
    result = report.medians(run.samples)
    names = {group: list(dict.fromkeys(kind.name for kind in kinds)) for group, kinds in chosen.kinds.items()}
    print("\n".join(report.table(result, names)))
    if not result:
        raise SystemExit("bench: nothing was measured, and nothing is written; see above")
    written = {"started": started.isoformat(), "machine": about, "versions": found, "rounds": chosen.rounds,
               "seconds": chosen.seconds, "mtu": chosen.mtu, "warm_up_s": measures.WARM_UP_S, "delay_round_trip_ms": 2 * rows.DELAY_ONE_WAY_MS,
               "rows": report.rows(result), "contenders": {group: {kind.name: kind.about for kind in kinds} for group, kinds in chosen.kinds.items()},
               "commands": run.commands, "medians": result, "samples": run.samples}
    for line in (*report.targets(result), *report.moved(written, kept.committed(RESULTS))):
        print(line)
    if any(report.US in by for by in result.values()):
        made = own(kept.keep(RESULTS, written))
        print(f"\nbench: run {kept.name(written)} is in " + ", ".join(os.path.relpath(path, ROOT) for path in made if os.path.isfile(path)))
    else:
        print("\nbench: nothing is written: no row has a figure of sallyport, which others are compared with")
    absent = sorted({f"{sample['contender']}, {sample['row']}: {sample['unavailable']}" for sample in run.samples if "unavailable" in sample})
    if absent:
        print("bench: not available: " + "; ".join(absent))
    failed = sum("failed" in sample for sample in run.samples)
    if failed:
        print(f"bench: {failed} cells failed; see above")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
