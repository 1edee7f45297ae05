#!/usr/bin/env python3
"""Memory of connections that rest, at the edge and at the connectors.

    python3 bench/idle.py                                  # TCP connections, each on a leg of its own
    python3 bench/idle.py --counts 0 1000 --sallyport target/release/sallyport

Starts a server and two connectors on the loopback interface, opens that many connections through a `tcp` socket one after
the other, each with one message there and back, and reads PSS and RSS of both sides from /proc once they rest. The slope is
between the second count and the last, when what is made once has been made. Half of the connections are at each connector,
since one has at most 4,096 legs.
"""

import argparse
import json
import os
import random
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Process, family, stop  # noqa: E402

MESSAGE = b"a message of a hundred bytes, as small requests of people and of programs mostly are " + b"." * 15
CONNECTORS = 2
PASSWORD = "measure twice, cut once"


def free_port():
    """One that the system does not give out by itself."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def echo_server():
    """Sends back what comes, to any number of connections, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)

    def serve():
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    stream, _ = listener.accept()
                    selector.register(stream, selectors.EVENT_READ)
                    continue
                try:
                    said = key.fileobj.recv(65536)
                except OSError:
                    said = b""
                if said:
                    key.fileobj.sendall(said)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def memory_kib(pids):
    """Proportional and resident set size."""
    found = {"Pss:": 0, "Rss:": 0}
    for pid in family(pids):
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                words = line.split()
                if words[0] in found:
                    found[words[0]] += int(words[1])
    return found["Pss:"], found["Rss:"]


class Installation:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.port = binary, folder, free_port()
        self.env = {"SALLYPORT_STATE_DIR": os.path.join(folder, "state"), "SALLYPORT_PASSWORD": PASSWORD, "HOME": folder}
        self.public = free_port()
        ports = f"{self.public}-{self.public}"
        self.server = self.start("server", "up", "--data", os.path.join(folder, "data"), "--domain", "localhost",
                                 "--listen", f"127.0.0.1:{self.port}", "--listen-http", "none", "--port-range", ports)
        self.connectors = []

    def start(self, role, *arguments):
        return Process(self.folder, role, [self.binary, *arguments], self.env)

    def call(self, *arguments):
        done = subprocess.run([self.binary, *arguments, "--output", "json"], capture_output=True, text=True,
                              env={**os.environ, **self.env}, timeout=60)
        if done.returncode:
            raise SystemExit(f"sallyport {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def until(self, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not what():
            self.server.check()
            if time.monotonic() > deadline:
                raise SystemExit("it did not come up in time")
            time.sleep(0.05)

    def is_ready(self):
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
                with trust.wrap_socket(stream, server_hostname="api.localhost") as tls:
                    tls.sendall(b"GET /readyz HTTP/1.1\r\nHost: api.localhost\r\nConnection: close\r\n\r\n")
                    return tls.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def publish(self, origin):
        self.until(self.is_ready)
        self.call("account", "create", "--name", "Bench", "--email", "bench@example.com")
        self.call("login", "--email", "bench@example.com")
        made = self.call("socket", "create", "--name", "idle", "--type", "tcp", "--public-port", str(self.public))
        for _ in range(CONNECTORS):
            self.connectors.append(self.start("client", "tunnel", "connect", made["dns_name"].split(".")[0],
                                              "--port", str(origin), "--max-legs", "4096"))
        self.until(lambda: self.call("socket", "show", made["id"])["tunnels_up"] == CONNECTORS)

    def memory(self):
        server, client = memory_kib([self.server.pid]), memory_kib([one.pid for one in self.connectors])
        return {"server_pss": server[0], "server_rss": server[1], "client_pss": client[0], "client_rss": client[1]}


def connection(port):
    stream = socket.create_connection(("127.0.0.1", port), 20)
    stream.sendall(MESSAGE)
    left = len(MESSAGE)
    while left:
        said = stream.recv(left)
        if not said:
            raise SystemExit("a connection ended early")
        left -= len(said)
    return stream


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sallyport", default="target/release/sallyport")
    options.add_argument("--counts", type=int, nargs="+", default=[0, 500, 2000, 6000])
    options.add_argument("--settle", type=float, default=3.0, help="seconds of rest before memory is read")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        at = Installation(os.path.abspath(asked.sallyport), folder)
        kept, points = [], []
        try:
            at.publish(echo_server())
            for count in asked.counts:
                while len(kept) < count:
                    kept.append(connection(at.public))
                time.sleep(asked.settle)
                points.append({"connections": count, **at.memory()})
                if not asked.json:
                    print(points[-1], flush=True)
        finally:
            for stream in kept:
                stream.close()
            stop([at.server, *at.connectors])
    first, last = points[min(1, len(points) - 2)], points[-1]
    more = last["connections"] - first["connections"]
    slopes = {f"{key}_kib": round((last[key] - first[key]) / more, 2) for key in last if key != "connections"}
    if asked.json:
        print(json.dumps({"points": points, "each": slopes}))
    else:
        print("each connection, KiB:", slopes)


if __name__ == "__main__":
    main()
