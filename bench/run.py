#!/usr/bin/env python3
"""Compares Sallyport with other tunnels, side by side on this machine: HTTPS, TCP and UDP ports, stock ssh clients.

Every contender runs in turn, in a network namespace made for the run, and the order is turned around each round.
Absolute figures depend on the machine; the ratios in one run are what counts. See bench/README.md.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contenders  # noqa: E402
import harness  # noqa: E402
import load  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
from contenders.base import first_line  # noqa: E402
from contenders.sallyport import Sallyport  # noqa: E402
from harness import Failed, Process, Unavailable  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class Bench:
    """The stage: folder, names, certificate, origins, tools."""

    def __init__(self, folder, options):
        self.folder = folder
        self.sallyport = options.sallyport
        self.idle_connections = 500 if options.quick else 1000
        self.idle_tunnels = 48 if options.quick else 96
        self.certificate, self.key, self.both = (f"{folder}/{name}" for name in ("cert.pem", "key.pem", "both.pem"))
        self.endless = f"{folder}/www/endless"
        self._hosts = {name: "127.0.0.1" for name in ("localhost", contenders.PAGES, contenders.SINK)}
        self.hosts({})

    def tool(self, name):
        path = os.environ.get(f"BENCH_{name.upper()}")
        if not path:
            raise Unavailable(f"{name} was not built")
        return path

    @staticmethod
    def commit():
        argv = ["git", "-c", "safe.directory=*", "describe", "--always", "--dirty"]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    def hosts(self, more):
        """Makes names resolve; /etc/hosts is bound to this file in our namespace."""
        self._hosts.update(more)
        with open(os.environ["BENCH_HOSTS"], "w") as file:
            file.writelines(f"{address} {name}\n" for name, address in self._hosts.items())

    def build_stage(self):
        os.makedirs(f"{self.folder}/www")
        for name, size in (("100b", 100), ("64k", 65536)):
            with open(f"{self.folder}/www/{name}", "wb") as file:
                file.write(b"x" * size)
        with open(self.endless, "wb") as file:
            file.truncate(1 << 38)  # sparse: takes no room, and never ends within a cell
        warm_up(self.endless)
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

    def start_origins(self):
        conf = f"{self.folder}/origin.conf"
        with open(conf, "w") as file:
            file.write(f"""worker_processes 1; daemon off; user root; pid {self.folder}/origin.pid; error_log {self.folder}/origin.err;
events {{ worker_connections 8000; }}
http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;
  open_file_cache max=100 inactive=600s; open_file_cache_valid 600s;
  server {{ listen 127.0.0.1:{contenders.ORIGIN_PORT} backlog=65535; root {self.folder}/www; }} }}
""")
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
        self.samples, self.commands = [], {}

    def record(self, number, contender, row):
        sample = {"round": number, "contender": contender.name, "row": row.name}
        try:
            figures, foreign = harness.measure(lambda: row.measure(contender, self.options.seconds),
                                               1 if row.is_once else harness.MAX_TRIES)
            sample |= {"figures": figures, "foreign_percent": round(foreign, 1)}
            shown = "  ".join(f"{key} {value if isinstance(value, str) else report.number(value)}" for key, value in figures.items())
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            sample["failed"] = str(error)
            shown = f"FAILED: {error}"
        self.samples.append(sample)
        print(f"round {number}  {contender.name:14} {row.name:20} {shown}", flush=True)

    def round(self, number):
        for group, kinds in self.options.kinds.items():
            for kind in kinds if number % 2 else kinds[::-1]:
                self.contend(number, group, kind)

    def contend(self, number, group, kind):
        """All rows of one contender in one round; a contender that does not work costs its rows and nothing else."""
        for stage in rows.STAGES:
            chosen = [row for row in self.options.rows[group] if row.stage == stage]
            if not chosen or (stage == "delay" and not kind.leg_ports) or (stage == "tunnels" and not kind.has_tunnels):
                continue
            sample = {"round": number, "contender": kind.name, "row": f"{group} {stage}"}
            fixtures, contender = self.bench.start_origins(), None
            try:
                contender = kind(self.bench)
                self.start(group, contender, stage, fixtures)
                for row in chosen:
                    self.record(number, contender, row)
            except Unavailable as error:
                self.samples.append(sample | {"unavailable": str(error)})
                print(f"round {number}  {kind.name:14} {group}: not available: {error}", flush=True)
                return
            except (Failed, OSError, subprocess.SubprocessError) as error:
                self.samples.append(sample | {"failed": str(error)})
                print(f"round {number}  {kind.name:14} {group}: did not start: {error}", flush=True)
            finally:
                harness.stop(fixtures + (contender.processes if contender else []))

    def start(self, group, contender, stage, fixtures):
        if stage == "delay":
            contender.leg = "127.0.0.2"
            pairs = [f"127.0.0.2:{port}=127.0.0.1:{port}" for port in contender.leg_ports]
            fixtures.append(Process(self.bench.folder, "fixture", [os.environ["BENCH_DELAY"], rows.DELAY_ONE_WAY_MS, *pairs]))
            harness.wait_port(contender.leg_ports[0], fixtures[-1], host="127.0.0.2")
        elif stage == "gcm":
            contender.cipher = rows.GCM
        elif stage == "tunnels":
            return
        contender.start()
        until_ready(contender)
        self.commands.setdefault(group, {}).setdefault(contender.name, {}).setdefault(stage, contender.commands())


def until_ready(contender):
    deadline = time.monotonic() + 20
    while True:
        try:
            contender.try_once()
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
    parser.add_argument("--quick", action="store_true", help="one round, two seconds a cell")
    parser.add_argument("--rounds", type=int, help="how often each contender has its turn (default 3)")
    parser.add_argument("--seconds", type=int, help="how long a cell is loaded (default 5)")
    names = list(dict.fromkeys(kind.name for kinds in contenders.KINDS.values() for kind in kinds))
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="these contenders: " + ", ".join(names))
    parser.add_argument("--rows", nargs="+", metavar="PATTERN",
                        help="sets of rows, or rows whose name matches; " + "; ".join(
                            f"{group} is {' '.join(row.name for row in table)}" for group, table in rows.SETS.items()))
    parser.add_argument("--mtu", type=int, default=65536, help="of the loopback interface; 1500 is more like a wire")
    parser.add_argument("--sallyport", help="a binary that is there already; otherwise the release build is made")
    chosen = parser.parse_args()
    if chosen.sallyport and not os.access(chosen.sallyport, os.X_OK):
        parser.error(f"{chosen.sallyport} cannot be run")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.seconds = chosen.seconds or (2 if chosen.quick else 5)
    patterns = chosen.rows or list(rows.SETS)
    chosen.rows = {group: [row for row in table if group in patterns or any(re.fullmatch(each, row.name) for each in patterns)]
                   for group, table in rows.SETS.items()}
    chosen.kinds = {group: [kind for kind in kinds if not chosen.only or kind.name in chosen.only]
                    for group, kinds in contenders.KINDS.items() if chosen.rows[group]}
    if not any(chosen.kinds.values()):
        parser.error("no such row, or none of these contenders is in it")
    return chosen


def every_kind(chosen):
    return list(dict.fromkeys(kind for kinds in chosen.kinds.values() for kind in kinds))


def prepare(chosen):
    """Builds what is missing, outside the namespace, which has no network; gives the environment for the inside."""
    environment = {"BENCH_FOLDER": tempfile.mkdtemp(prefix="sallyport-bench.")}
    kinds = every_kind(chosen)
    if any(issubclass(kind, Sallyport) for kind in kinds) and not chosen.sallyport:
        print("bench: building the release binary", flush=True)
        subprocess.run(["cargo", "build", "--release", "--package", "sallyport", "--locked"], cwd=ROOT, check=True)
    for tool in sorted({tool for kind in kinds for tool in kind.tools}):
        built = subprocess.run([f"{ROOT}/scripts/tools", tool], stdout=subprocess.PIPE, text=True)
        if built.returncode == 0:
            environment[f"BENCH_{tool.upper()}"] = built.stdout.strip()
        elif not all(kind.is_optional for kind in kinds if tool in kind.tools):
            raise SystemExit(f"bench: {tool} could not be built; see above, or leave it out with --only")
    for program in ("datagrams", "delay", "sink"):
        path = f"{environment['BENCH_FOLDER']}/{program}"
        subprocess.run(["rustc", "-O", "--edition", "2024", "-o", path, f"{HERE}/{program}.rs"], cwd=ROOT, check=True)
        environment[f"BENCH_{program.upper()}"] = path
    environment["BENCH_HOSTS"] = f"{environment['BENCH_FOLDER']}/hosts"
    target = os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target")
    environment["BENCH_SALLYPORT"] = os.path.abspath(chosen.sallyport or f"{target}/release/sallyport")
    return environment


def enter_namespace(chosen):
    """Starts this program again in a network and mount namespace of its own, which needs root, and gives its status."""
    become_root = [] if os.geteuid() == 0 else ["sudo", "--"]
    if become_root and not shutil.which("sudo"):
        raise SystemExit("bench: needs root for a network namespace of its own, and there is no sudo")
    environment = prepare(chosen)
    inside = ["env", *(f"{name}={value}" for name, value in environment.items()),
              "unshare", "--net", "--mount", sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
    # Ctrl-C is for the one inside, which ends what it started and says what came out.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([*become_root, *inside]).returncode
    finally:
        shutil.rmtree(environment["BENCH_FOLDER"], ignore_errors=True)


def set_up_namespace(mtu):
    hosts = os.environ["BENCH_HOSTS"]
    open(hosts, "a").close()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    # sshd wants a folder there, which is not ours to make on the machine.
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


def warm_up(path):
    """Has the kernel keep the first pages of a file. The first who reads a hole pays for its pages, those after do not."""
    with open("/proc/meminfo") as file:
        available = int(re.search(r"MemAvailable:\s+(\d+) kB", file.read())[1]) * 1024
    left = min(8 << 30, available // 2)
    with open(path, "rb", buffering=0) as file:
        while left > 0 and (read := len(file.read(1 << 20))):
            left -= read


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


def main():
    chosen = options()
    if "BENCH_FOLDER" not in os.environ:
        raise SystemExit(enter_namespace(chosen))
    set_up_namespace(chosen.mtu)
    harness.raise_limits()
    chosen.sallyport = os.environ["BENCH_SALLYPORT"]
    bench = Bench(os.environ["BENCH_FOLDER"], chosen)
    bench.build_stage()
    about, started = machine(), datetime.datetime.now(datetime.UTC)
    found = versions(bench, chosen)
    print(f"bench: {about['cpu']}, {about['cores']} cores, kernel {about['kernel']}; {chosen.rounds} rounds, {chosen.seconds} s a cell, MTU {chosen.mtu}")
    print("bench: " + "; ".join(f"{name} {version}" for name, version in found.items()))
    for group, kinds in chosen.kinds.items():
        print(rows.TITLES[group])
        for kind in kinds:
            print(f"  {kind.name:14} {kind.about}", flush=True)
    run = Run(bench, chosen)
    try:
        for number in range(1, chosen.rounds + 1):
            run.round(number)
    except KeyboardInterrupt:
        print("\nbench: interrupted; what was measured so far follows")
    result = report.medians(run.samples)
    names = {group: [kind.name for kind in kinds] for group, kinds in chosen.kinds.items()}
    print("\n".join(report.table(result, names)))
    os.makedirs(f"{HERE}/results", exist_ok=True)
    path = f"{HERE}/results/{started:%Y-%m-%dT%H%M%SZ}.json"
    with open(path, "w") as file:
        json.dump({"started": started.isoformat(), "machine": about, "versions": found, "rounds": chosen.rounds,
                   "seconds": chosen.seconds, "mtu": chosen.mtu, "delay_round_trip_ms": 2 * rows.DELAY_ONE_WAY_MS,
                   "contenders": {group: {kind.name: kind.about for kind in kinds} for group, kinds in chosen.kinds.items()},
                   "commands": run.commands, "medians": result, "samples": run.samples}, file, indent=1)
        file.write("\n")
    if "SUDO_UID" in os.environ:
        for made in (os.path.dirname(path), path):
            os.chown(made, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    shutil.rmtree(bench.folder, ignore_errors=True)
    print(f"\nbench: wrote {os.path.relpath(path, ROOT)}")
    absent = sorted({f"{sample['contender']}: {sample['unavailable']}" for sample in run.samples if "unavailable" in sample})
    if absent:
        print("bench: not available: " + "; ".join(absent))
    failed = sum("failed" in sample for sample in run.samples)
    if failed:
        print(f"bench: {failed} cells failed; see above")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
