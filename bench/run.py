#!/usr/bin/env python3
"""Compares Sallyport with other tunnels, side by side on this machine: HTTPS at the edge, an encrypted tunnel behind it.

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
from harness import Failed, Process  # noqa: E402

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
            raise Failed(f"{name} was not built")
        return path

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
        harness.wait_port(contenders.ORIGIN_PORT, nginx)
        harness.wait_port(contenders.SINK_PORT, sink)
        return [nginx, sink]


class Run:
    """Rounds over contenders and rows, and what came out."""

    def __init__(self, bench, options):
        self.bench, self.options = bench, options
        self.samples, self.commands = [], {}

    def wanted(self, row):
        return not self.options.rows or any(re.fullmatch(pattern, row) for pattern in self.options.rows)

    def record(self, number, contender, row, cell):
        sample = {"round": number, "contender": contender.name, "row": row}
        try:
            figures, foreign = harness.measure(cell, 1 if row in rows.ONCE else harness.MAX_TRIES)
            sample |= {"figures": figures, "foreign_percent": round(foreign, 1)}
            shown = "  ".join(f"{key} {value if isinstance(value, str) else report.number(value)}" for key, value in figures.items())
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            sample["failed"] = str(error)
            shown = f"FAILED: {error}"
        self.samples.append(sample)
        print(f"round {number}  {contender.name:14} {row:18} {shown}", flush=True)

    def contend(self, number, kind):
        """All rows of one contender in one round; a contender that does not work costs its rows and nothing else."""
        stages = [("plain", rows.PLAIN), ("delay", rows.DELAYED), ("tunnels", {"idle_tunnel": rows.idle_tunnel})]
        for stage, table in stages:
            chosen = {row: cell for row, cell in table.items() if self.wanted(row)}
            if not chosen or (stage == "delay" and not kind.leg_ports) or (stage == "tunnels" and not kind.has_tunnels):
                continue
            fixtures, contender = self.bench.start_origins(), kind(self.bench)
            try:
                if stage == "delay":
                    contender.leg = "127.0.0.2"
                    pairs = [f"127.0.0.2:{port}=127.0.0.1:{port}" for port in kind.leg_ports]
                    fixtures.append(Process(self.bench.folder, "fixture", [os.environ["BENCH_DELAY"], rows.DELAY_ONE_WAY_MS, *pairs]))
                    harness.wait_port(kind.leg_ports[0], fixtures[-1], host="127.0.0.2")
                if stage != "tunnels":
                    contender.start()
                    self.until_ready(contender)
                    self.commands.setdefault(kind.name, contender.commands())
                for row, cell in chosen.items():
                    self.record(number, contender, row, lambda cell=cell: cell(contender, self.options.seconds))
            except (Failed, OSError, subprocess.SubprocessError) as error:
                self.samples.append({"round": number, "contender": kind.name, "row": stage, "failed": str(error)})
                print(f"round {number}  {kind.name:14} did not start: {error}", flush=True)
            finally:
                harness.stop(fixtures + contender.processes)

    def until_ready(self, contender):
        deadline = time.monotonic() + 20
        for name in (contenders.PAGES, contenders.SINK):
            while True:
                try:
                    load.one_request(contender.hosts[name], contenders.PUBLIC_PORT, "/100b", seconds=5)
                    break
                except (OSError, Failed) as error:
                    for process in contender.processes:
                        process.check()
                    if time.monotonic() > deadline:
                        raise Failed(f"{name} does not answer: {error}") from error
                    time.sleep(0.1)
        time.sleep(1)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, two seconds a cell")
    parser.add_argument("--rounds", type=int, help="how often each contender has its turn (default 3)")
    parser.add_argument("--seconds", type=int, help="how long a cell is loaded (default 5)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[kind.name for kind in contenders.ALL],
                        help="these contenders: " + ", ".join(kind.name for kind in contenders.ALL))
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help="rows whose name matches: " + ", ".join(rows.TITLES))
    parser.add_argument("--mtu", type=int, default=65536, help="of the loopback interface; 1500 is more like a wire")
    parser.add_argument("--sallyport", help="a binary that is there already; otherwise the release build is made")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.seconds = chosen.seconds or (2 if chosen.quick else 5)
    chosen.kinds = [kind for kind in contenders.ALL if not chosen.only or kind.name in chosen.only]
    return chosen


def prepare(chosen):
    """Builds what is missing, outside the namespace, which has no network; gives the environment for the inside."""
    environment = {"BENCH_FOLDER": tempfile.mkdtemp(prefix="sallyport-bench.")}
    if any(kind is contenders.Sallyport for kind in chosen.kinds) and not chosen.sallyport:
        print("bench: building the release binary", flush=True)
        subprocess.run(["cargo", "build", "--release", "--package", "sallyport", "--locked"], cwd=ROOT, check=True)
    tools = set()
    for kind in chosen.kinds:
        tools |= {"frps", "frpc"} if issubclass(kind, contenders.Frp) else set()
        tools |= {"rathole"} if kind is contenders.Rathole else set()
    for tool in sorted(tools):
        built = subprocess.run([f"{ROOT}/scripts/tools", tool], check=True, stdout=subprocess.PIPE, text=True)
        environment[f"BENCH_{tool.upper()}"] = built.stdout.strip()
    for program in ("delay", "sink"):
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
    try:
        inside = ["env", *(f"{name}={value}" for name, value in environment.items()),
                  "unshare", "--net", "--mount", sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
        return subprocess.run([*become_root, *inside]).returncode
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(environment["BENCH_FOLDER"], ignore_errors=True)


def set_up_namespace(mtu):
    hosts = os.environ["BENCH_HOSTS"]
    open(hosts, "a").close()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
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
    def first_line(*argv):
        done = subprocess.run(argv, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().splitlines()[0]

    found = {"nginx": first_line("nginx", "-v"), "haproxy": first_line("haproxy", "-v"), "curl": first_line("curl", "--version")}
    for kind in chosen.kinds:
        if kind is contenders.Sallyport:
            found["sallyport"] = first_line(bench.sallyport, "--version")
            commit = subprocess.run(["git", "-c", "safe.directory=*", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
            found["commit"] = commit.stdout.strip()
        elif issubclass(kind, contenders.Frp):
            found["frp"] = first_line(bench.tool("frps"), "--version")
        elif kind is contenders.Rathole:
            # The release's name is in the path that it was built into.
            found["rathole"] = re.search(r"rathole-([\d.]+)", bench.tool("rathole"))[1]
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
    for kind in chosen.kinds:
        print(f"  {kind.name:14} {kind.about}", flush=True)
    run = Run(bench, chosen)
    try:
        for number in range(1, chosen.rounds + 1):
            for kind in chosen.kinds if number % 2 else chosen.kinds[::-1]:
                run.contend(number, kind)
    except KeyboardInterrupt:
        print("\nbench: interrupted; what was measured so far follows")
    result = report.medians(run.samples)
    print("\n".join(report.table(result, [kind.name for kind in chosen.kinds])))
    os.makedirs(f"{HERE}/results", exist_ok=True)
    path = f"{HERE}/results/{started:%Y-%m-%dT%H%M%SZ}.json"
    with open(path, "w") as file:
        json.dump({"started": started.isoformat(), "machine": about, "versions": found, "rounds": chosen.rounds,
                   "seconds": chosen.seconds, "mtu": chosen.mtu, "delay_round_trip_ms": 2 * rows.DELAY_ONE_WAY_MS,
                   "commands": run.commands, "medians": result, "samples": run.samples}, file, indent=1)
        file.write("\n")
    if "SUDO_UID" in os.environ:
        for made in (os.path.dirname(path), path):
            os.chown(made, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    shutil.rmtree(bench.folder, ignore_errors=True)
    print(f"\nbench: wrote {os.path.relpath(path, ROOT)}")
    failed = sum("failed" in sample for sample in run.samples)
    if failed:
        print(f"bench: {failed} cells failed; see above")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
