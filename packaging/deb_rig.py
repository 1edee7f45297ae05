"""What the tests of packages have in common: the packages, an apt repository over HTTP, machines, and a load of requests."""

import atexit
import collections
import ctypes
import functools
import http.server
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MACHINE = ROOT / "scripts" / "machine"
PROGRAMS = ("sallyport", "sallyport-lab", "sallyport-kube", "sallyport-packet")
# Where the built programs are; the tests strip copies of them.
BUILT = pathlib.Path(os.environ.get("SALLYPORT_BUILT", ROOT / "target" / "debug"))
# What a condition may take on a busy machine.
PATIENCE_S = 120
# What a request may take: longer than a service drains.
MAX_REQUEST_S = 60
VERSIONS = ("1.0.0", "1.0.1", "1.0.2")
# When the versions were made, and the keys before them: a web server tells a newer repository by its time.
TIMES = {version: 1_750_000_000 + 86_400 * count for count, version in enumerate(VERSIONS)}
KEY_TIME = 1_740_000_000
CLONE_NEWNET = 0x40000000


def run(*words, check=True, **more):
    """The output of a command, both streams in one."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **more)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout if check else done


def until(what, condition):
    """The first true value of the condition."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


@functools.cache
def folder():
    """The folder of all tests, which other users may read. It goes with this program, and the machines go before it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="sallyport-debs-"))
    path.chmod(0o755)
    os.environ["SALLYPORT_MACHINES"] = str(path / "machines")
    atexit.register(clean)
    return path


@functools.cache
def programs():
    """Stripped copies of the built programs."""
    path = folder() / "bin"
    path.mkdir()
    for name in PROGRAMS:
        if not (BUILT / name).exists():
            raise AssertionError(f"{BUILT / name} is not built: cargo build --package {name}")
        run("strip", "-o", path / name, BUILT / name)
    return path


@functools.cache
def packages(version=VERSIONS[0]):
    """A folder with the packages of this version: all of the first one, and of later ones sallyport alone."""
    source = programs()
    if version != VERSIONS[0]:
        source = folder() / "bin-of-one"
        source.mkdir(exist_ok=True)
        if not (source / "sallyport").exists():
            os.link(programs() / "sallyport", source / "sallyport")
    path = folder() / f"debs-{version}"
    run(HERE / "debs", "--compression", "none", "--version", version, source, path, env=at(version))
    return path


def at(version):
    """The environment in which this version is made."""
    return {**os.environ, "SOURCE_DATE_EPOCH": str(TIMES[version])}


def deb(name="sallyport", version=VERSIONS[0]):
    return packages(version) / f"{name}_{version}_amd64.deb"


def key(name):
    """A file with a new secret key."""
    path = folder() / f"{name}.key"
    home = folder() / f"gpg-{name}"
    home.mkdir(mode=0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    gpg = ("gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", "--faked-system-time", f"{KEY_TIME}!")
    run(*gpg, "--quick-generate-key", f"{name} <{name}@example.com>", "ed25519", "sign", "never", env=environment)
    run(*gpg, "--armor", "--output", path, "--export-secret-keys", env=environment)
    run("gpgconf", "--kill", "all", env=environment)
    return path


@functools.cache
def signing_key():
    return key("signer")


def repository(name, *versions):
    """A signed repository with the packages of these versions."""
    pool = folder() / f"pool-{name}"
    pool.mkdir(exist_ok=True)
    for version in versions:
        for package in packages(version).glob("*.deb"):
            if not (pool / package.name).exists():
                os.link(package, pool / package.name)
    path = folder() / f"repository-{name}"
    run(HERE / "apt-repository", pool, path, signing_key(), env=at(versions[-1]))
    return path


def enter_network(name):
    """Moves this thread into a network namespace."""
    with open(f"/run/netns/{name}", encoding="ascii") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns into {name}")


class Network:
    """A network namespace of its own."""

    made = set()

    def __init__(self):
        folder()
        self.name = f"debs-{os.getpid()}-{id(self) & 0xffff:x}"
        self.made.add(self.name)
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def serve(self, handler):
        """The port of an HTTP server in the network, and its end."""
        made = []

        def make():
            enter_network(self.name)
            made.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        threading.Thread(target=made[0].serve_forever, daemon=True).start()

        def end():
            made[0].shutdown()
            made[0].server_close()
        return made[0].server_address[1], end

    def remove(self):
        run("ip", "netns", "delete", self.name)
        self.made.discard(self.name)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_):
        pass


class Origin(Quiet):
    """The service behind a socket. What it says to /slow takes its time: longer than an edge holds requests (5 s)."""

    SLOW_PARTS = 40
    # Whether a slow answer has begun, since somebody has set this to False.
    slow_begun = False

    def do_GET(self):
        parts = self.SLOW_PARTS if self.path == "/slow" else 1
        if parts > 1:
            type(self).slow_begun = True
        self.send_response(200)
        self.send_header("Content-Length", str(2 * parts))
        self.end_headers()
        for _ in range(parts):
            self.wfile.write(b"ok")
            self.wfile.flush()
            if parts > 1:
                time.sleep(0.2)


class Machine:
    """A Debian machine with the real systemd, in a network."""

    def __init__(self, name, network, hosts="", bind=None):
        self.name = name
        lines = folder() / f"hosts-{name}"
        lines.write_text(hosts)
        run(MACHINE, "start", name, "--netns", network.name, "--hosts", lines, *(("--bind", bind) if bind else ()))

    def run(self, *words, check=True, **more):
        return run(MACHINE, "run", self.name, *words, check=check, **more)

    def shell(self, script, check=True, **more):
        return self.run("sh", "-ec", script, check=check, **more)

    def write(self, path, text, mode="644"):
        self.run("sh", "-ec", 'install -D -m "$1" /dev/stdin "$2"', "sh", mode, path, input=text)

    def is_active(self, unit):
        return self.run("systemctl", "is-active", unit, check=False).stdout.strip() == "active"

    def main_process(self, unit):
        return int(self.run("systemctl", "show", "--property", "MainPID", "--value", unit))

    def runs_installed(self, unit):
        """Whether the main process is that of the program as it is installed now."""
        process = self.main_process(unit)
        # Of a program that was replaced, the link says that it was deleted.
        return process and self.run("readlink", f"/proc/{process}/exe").strip() == "/usr/bin/sallyport"

    def log(self):
        return run(MACHINE, "log", self.name, check=False).stdout

    def stop(self):
        run(MACHINE, "stop", self.name, "--now")


class Load:
    """Requests without an end, each on a connection of its own, from several clients at once."""

    CLIENTS = 4

    def __init__(self, network, host, port, authority, path="/", body=b"ok"):
        self.network, self.host, self.port, self.path, self.body = network, host, port, path, body
        self.trust = ssl.create_default_context(cadata=authority)
        self.answers, self.failures = collections.Counter(), []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._client) for _ in range(self.CLIENTS)]
        for thread in self.threads:
            thread.start()
        self.more()

    def _client(self):
        enter_network(self.network.name)
        while not self.ended.is_set():
            try:
                status, body = self.ask(self.path)
            except OSError as error:
                self.failures.append(repr(error))
                continue
            self.answers[status] += 1
            if status != 200 or self.body not in body:
                self.failures.append(f"{status} {body[:200]}")

    def ask(self, path):
        """The status and the body of one answer, which must be whole."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=MAX_REQUEST_S) as plain, \
                self.trust.wrap_socket(plain, server_hostname=self.host) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while part := client.recv(65536):
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            raise ConnectionError(f"no answer, but {answer[:100]}")
        return int(head.split()[1]), body

    def slow(self):
        """A request that takes some seconds: a list that gets its answer, and the thread."""
        answer = []

        def ask():
            enter_network(self.network.name)
            try:
                answer.append(self.ask("/slow"))
            except OSError as error:
                answer.append(error)
        thread = threading.Thread(target=ask)
        thread.start()
        return answer, thread

    def more(self, count=20):
        """Waits for so many further answers."""
        wanted = self.answers[200] + count
        until(f"{count} more answers; failed: {self.failures[:3]}", lambda: self.answers[200] >= wanted or self.failures)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Bus:
    """NATS in a network."""

    PORT = 4222

    def __init__(self, network):
        found = subprocess.run([ROOT / "scripts" / "tools", "nats-server"], stdout=subprocess.PIPE, text=True)
        if found.returncode:
            raise LookupError("nats-server cannot be built (scripts/tools nats-server says why)")
        words = ["ip", "netns", "exec", network.name, found.stdout.strip(), "-js", "-a", "127.0.0.1", "-p", str(self.PORT),
                 "-sd", str(folder() / f"bus-{network.name}")]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def clean():
    """Removes the machines, the files, and the networks of tests that were interrupted with what runs in them."""
    for network in Network.made:
        for pid in run("ip", "netns", "pids", network, check=False).stdout.split():
            run("kill", pid, check=False)
    run(MACHINE, "clean", *Network.made, check=False)
    shutil.rmtree(folder(), ignore_errors=True)
