"""An installation of tests: a network with sites, control, the bus, and real machines (scripts/machine).

The process gets a network namespace and a mount namespace of its own, with its own /etc/hosts. So names such as
api.tunnels.example.com lead to the addresses of the test, for every program that the test starts.
"""

import ctypes
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOMAIN = "tunnels.example.com"
PASSWORD = "correct horse battery staple"
EMAIL = "owner@example.com"
# The address of control, of the bus and of the downloads: the gateway of the site "hub".
HUB = "10.81.0.1"
SITES = {"hub": 0, "eu": 1, "us": 2, "ap": 3, "sa": 4}
# No condition takes longer on a machine that works, however busy it is.
WAIT_SECONDS = int(os.environ.get("MACHINES_WAIT_SECONDS", "120"))
COMMAND_SECONDS = 300
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000


class Absent(unittest.SkipTest):
    """What this computer lacks, in one sentence. The tests print it and are skipped."""


def wait_until(what, condition):
    """The first true value of the condition; the test fails when there is none for long."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            for here in Installation.running:
                here.report()
            raise AssertionError(f"waited {WAIT_SECONDS} s for this: {what}")
        time.sleep(0.05)


def machine(*words, **more):
    """Runs scripts/machine, and returns what it prints."""
    done = subprocess.run([ROOT / "scripts/machine", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=more.pop("timeout", COMMAND_SECONDS), **more)
    if done.returncode == 3:
        raise Absent(done.stderr.strip())
    if done.returncode:
        raise AssertionError(f"machine {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout.strip()


def tool(name):
    """The path of a tool; Absent when it cannot be had."""
    done = subprocess.run([ROOT / "scripts/tools", name], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Absent(f"{name} cannot be built here (scripts/tools {name} prints the reason)")
    return done.stdout.strip()


def program():
    """The program under test: SALLYPORT_PROGRAM, or the debug build."""
    path = pathlib.Path(os.environ.get("SALLYPORT_PROGRAM", ROOT / "target/debug/sallyport"))
    if not path.exists():
        raise Absent(f"{path} is missing: cargo build, or SALLYPORT_PROGRAM=FILE")
    return path


def libc(name, *arguments):
    """A system call, by the C library."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def own_mounts():
    """Gives this process mounts of its own, which end with it."""
    libc("unshare", CLONE_NEWNS)
    libc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)


def enter_network(path):
    """Moves this thread, and what it starts, into a network namespace."""
    handle = os.open(path, os.O_RDONLY)
    try:
        libc("setns", handle, CLONE_NEWNET)
    finally:
        os.close(handle)


class Downloads(http.server.SimpleHTTPRequestHandler):
    """Serves the program, as a place for downloads does."""

    def log_message(self, *_):
        """Says nothing."""


class Installation:
    """Control and the bus in a network of sites. A site's addresses are 10.81.SITE.2 and up."""

    # Those that run: what fails prints their logs.
    running = []

    def __init__(self, sites=("hub", "eu", "us"), edges=True, more=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sallyport-machines-"))
        self.processes = []
        self.net = f"sp-{os.getpid()}"
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.env = {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "SALLYPORT_TOOLS": os.environ.get("SALLYPORT_TOOLS") or os.path.join(
                os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sallyport-tools"),
            "SALLYPORT_MACHINES": str(self.folder / "machines"),
            "SALLYPORT_STATE_DIR": str(self.folder / "state"),
            "SALLYPORT_PASSWORD": PASSWORD,
            "MACHINE": str(ROOT / "scripts/machine"),
        }
        self.running.append(self)
        try:
            self.start(sites, edges, more)
        except BaseException:
            self.report()
            self.close()
            raise

    def start(self, sites, edges, more):
        """The network, the program, and what control needs."""
        # An absent root is made now, with the network of this computer.
        machine("root", timeout=3600)
        nats = tool("nats-server") if edges else None
        machine("network", self.net, *[f"{site}=10.81.{SITES[site]}.1/24" for site in sites], env=self.env)
        enter_network(f"/run/netns/{self.net}")
        self.publish_program()
        self.hosts({})
        self.ca = self.folder / "data/ca.pem"
        if edges:
            self.start_bus(nats)
            self.api = f"https://api.{DOMAIN}:8443"
            self.spawn("control", "control", "--domain", DOMAIN, "--bus", f"nats://{HUB}:4222", "--data",
                       self.folder / "data", "--listen", f"{HUB}:8443", "--listen-edges", f"{HUB}:8444", *more)
        else:
            self.api = f"https://api.{DOMAIN}"
            self.spawn("up", "up", "--domain", DOMAIN, "--data", self.folder / "data", "--listen", f"{HUB}:443",
                       "--listen-http", "none", *more)
        self.env |= {"SALLYPORT_API": self.api, "SALLYPORT_CA": str(self.ca)}
        token = wait_until("the setup token", lambda: (self.folder / "data/setup-token").exists()
                           and (self.folder / "data/setup-token").read_text().strip())
        wait_until("control", self.answers)
        self.run("account", "create", "--name", "Owner", "--email", EMAIL, "--setup-token", token)
        self.run("login", "--email", EMAIL)

    def answers(self):
        """Whether the API answers."""
        try:
            return self.get(f"api.{DOMAIN}", "/v1/info", port=8443 if ":8443" in self.api else 443)[0] == 200
        except OSError:
            return False

    def start_bus(self, nats):
        """NATS with JetStream, at the hub."""
        config = self.folder / "nats.conf"
        config.write_text(f'listen: "{HUB}:4222"\njetstream {{ store_dir: "{self.folder}/nats", max_mem: 64M, '
                          f'max_file: 256M }}\n')
        self.spawn_program("nats", nats, "-c", config)

    def publish_program(self):
        """The program without its symbols, at http://HUB:8080/sallyport."""
        public = self.folder / "downloads"
        public.mkdir()
        copy = public / "sallyport"
        shutil.copy(program(), copy)
        if shutil.which("strip"):
            subprocess.run(["strip", copy], check=True)
        self.program = copy
        self.url = f"http://{HUB}:8080/sallyport"
        self.sha256 = hashlib.sha256(copy.read_bytes()).hexdigest()
        handler = lambda *arguments: Downloads(*arguments, directory=str(public))  # noqa: E731
        self.downloads = http.server.ThreadingHTTPServer((HUB, 8080), handler)
        threading.Thread(target=self.downloads.serve_forever, daemon=True).start()

    def hosts(self, names):
        """Writes the /etc/hosts of this test, and of its machines: the API's name, and these."""
        self.hosts_file = self.folder / "hosts"
        new = not self.hosts_file.exists()
        lines = [f"{HUB} api.{DOMAIN} login.{DOMAIN} tunnel.{DOMAIN}"]
        lines += [f"{address} {name}" for name, address in names.items()]
        with open(self.hosts_file, "w") as file:
            file.write("\n".join(["127.0.0.1 localhost", *lines, ""]))
        if new:
            libc("mount", str(self.hosts_file).encode(), b"/etc/hosts", None, MS_BIND, None)

    def spawn(self, name, *arguments):
        """Starts the program under test."""
        return self.spawn_program(name, self.program, *arguments)

    def spawn_program(self, name, *command):
        """Starts a program that ends with the test; its output is in NAME.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=self.env, cwd=self.folder)
        self.processes.append(process)
        return process

    def try_run(self, *arguments, env=None, **more):
        """Runs a command of the program under test."""
        return subprocess.run([self.program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=env or self.env, timeout=COMMAND_SECONDS, **more)

    def run(self, *arguments, **more):
        """The same; what it prints."""
        done = self.try_run(*arguments, **more)
        if done.returncode:
            raise AssertionError(f"sallyport {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *arguments):
        """The same, as data."""
        return json.loads(self.run(*arguments, "-o", "json"))

    def machine(self, *words, **more):
        """scripts/machine with the machines of this installation."""
        return machine(*words, env=self.env, **more)

    def boot(self, name, site, number, user_data, until="done"):
        """A machine at 10.81.SITE.NUMBER, from this user data."""
        return self.machine("start", name, "--bridge", site, "--address", f"10.81.{SITES[site]}.{number}/24",
                            "--hosts", self.hosts_file, "--user-data", "-", "--wait", until, input=user_data)

    def get(self, host, path="/", edge=HUB, port=443):
        """One request over a connection of its own: the status and the body."""
        trust = ssl.create_default_context(cafile=self.ca)
        connection = http.client.HTTPSConnection(host, port, timeout=WAIT_SECONDS, context=trust)
        connection._create_connection = lambda address, *more, **named: \
            __import__("socket").create_connection((edge, address[1]), *more, **named)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def edges(self):
        """The edges, by name."""
        return {edge["name"]: edge for edge in self.json("edge", "ls")}

    def report(self):
        """Prints the ends of all logs."""
        for log in self.folder.glob("*.log"):
            print(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}")
        for name in self.machine("list").split():
            done = subprocess.run([ROOT / "scripts/machine", "log", name], env=self.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace")
            print(f"{name}:\n{done.stdout[-3000:]}")

    def close(self):
        """Ends and removes everything."""
        if self in self.running:
            self.running.remove(self)
        try:
            subprocess.run([ROOT / "scripts/machine", "clean"], env=self.env, stderr=subprocess.DEVNULL)
            for process in reversed(self.processes):
                process.send_signal(signal.SIGKILL)
                process.wait()
            if hasattr(self, "downloads"):
                self.downloads.shutdown()
                self.downloads.server_close()
            libc("setns", self.home, CLONE_NEWNET)
            os.close(self.home)
            subprocess.run([ROOT / "scripts/machine", "clean", self.net], env=self.env)
        finally:
            subprocess.run(["umount", "--lazy", "/etc/hosts"], stderr=subprocess.DEVNULL)
            shutil.rmtree(self.folder, ignore_errors=True)
