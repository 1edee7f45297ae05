#!/usr/bin/env python3
"""What the inspector costs, and how soon it shows a request.

    python3 bench/inspector.py                                          # the release build, uploads of 2 GiB
    python3 bench/inspector.py --sallyport target/debug/sallyport --mebibytes 256 --rounds 3

Starts a server, a service that hashes uploads, and two connectors: one with the inspector and one without. They take turns.
Prints the throughput of uploads, the greatest memory of each connector, and the time from the end of a request to its row.
"""

import argparse
import hashlib
import json
import os
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Process, stop  # noqa: E402

PASSWORD = "measure twice, cut once"
#: What a shop's payment service sends, in short.
WEBHOOK = json.dumps({"id": "evt_1", "type": "invoice.paid", "data": {"amount": 1200, "currency": "eur"}})
WEBHOOKS = 50


class Service(BaseHTTPRequestHandler):
    """Answers each upload with the hash of its bytes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        digest, left = hashlib.blake2b(digest_size=16), int(self.headers.get("content-length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 20))
            if not piece:
                return
            digest.update(piece)
            left -= len(piece)
        text = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PUT = do_POST

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_):
        """A connector that ends resets its idle connections."""


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def wait_for_line(path, text, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with open(path) as file:
            for line in file:
                if text in line:
                    return line.strip()
        time.sleep(0.02)
    raise SystemExit(f"{path}: no line with {text!r} within {seconds} s")


def curl(authority, url, *more):
    done = subprocess.run(["curl", "-sS", "--fail", "--http1.1", "--cacert", authority, *more, url], capture_output=True,
                          text=True)
    if done.returncode:
        raise SystemExit(f"{url}: {done.stderr.strip()}")
    return done.stdout


def shown_ms(page, key, marker):
    """How long until the page has a row for this path."""
    began = time.monotonic()
    while time.monotonic() - began < 10:
        request = urllib.request.Request(f"{page}/api/exchanges?limit=1&filter=path:{marker}")
        request.add_header("authorization", f"Bearer {key}")
        with urllib.request.urlopen(request) as answer:
            items = json.load(answer)["items"]
        if items and items[0]["state"] == "complete":
            return (time.monotonic() - began) * 1000
    raise SystemExit(f"{marker} did not show")


def measure(asked, folder):
    binary = os.path.abspath(asked.sallyport)
    env = {"SALLYPORT_STATE_DIR": os.path.join(folder, "state"), "SALLYPORT_PASSWORD": PASSWORD, "HOME": folder}
    service = Server(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    origin = str(service.server_address[1])
    running = []

    def start(role, *arguments):
        running.append(Process(folder, role, [binary, *arguments], env))
        return running[-1], running[-1].log_path

    def call(*arguments):
        subprocess.run([binary, *arguments], check=True, capture_output=True, env={**os.environ, **env}, timeout=120)

    try:
        _, log = start("server", "up", "--data", os.path.join(folder, "data"), "--listen", "127.0.0.1:0", "--listen-http",
                       "none")
        wait_for_line(log, "ready")
        call("account", "create", "--name", "Bench", "--email", "bench@example.com")
        call("login", "--email", "bench@example.com")
        with open(os.path.join(folder, "state", "local.json")) as file:
            authority = json.load(file)["ca"]
        connect = ["connect", origin, "--host", "127.0.0.1", "-o", "json"]
        ways = {}
        for name, more in (("without", []), ("with", ["--inspect", "127.0.0.1:0"])):
            process, log = start(name, *connect, *more)
            url = json.loads(wait_for_line(log, '"attached"'))["url"]
            ways[name] = (process, url)
        page, key = json.loads(wait_for_line(ways["with"][0].log_path, '"inspector"'))["url"].split("/#key=")

        path = os.path.join(folder, "upload")
        block, digest = os.urandom(1 << 20), hashlib.blake2b(digest_size=16)
        with open(path, "wb") as file:
            for _ in range(asked.mebibytes):
                file.write(block)
                digest.update(block)
        rates = {name: [] for name in ways}
        for _ in range(asked.rounds):
            for name, (_, url) in ways.items():
                began = time.monotonic()
                answer = curl(authority, f"{url}/upload", "-T", path)
                rates[name].append(asked.mebibytes / (time.monotonic() - began))
                if answer != digest.hexdigest():
                    raise SystemExit(f"{name}: the service got other bytes")
        peaks = {name: peak_kib(process.pid) for name, (process, _) in ways.items()}
        times = []
        for number in range(WEBHOOKS):
            curl(authority, f"{ways['with'][1]}/hook-{number}-", "--json", WEBHOOK)
            times.append(shown_ms(page, key, f"/hook-{number}-"))
        for name in ways:
            print(f"{name:8} the inspector: {statistics.median(rates[name]):8.1f} MiB/s, peak {peaks[name] / 1024:.1f} MiB")
        print(f"a webhook shows after {statistics.median(times):.1f} ms (worst {max(times):.1f} ms) of its answer")
    finally:
        stop(running)
        service.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sallyport", default="target/release/sallyport", help="the program")
    parser.add_argument("--mebibytes", type=int, default=2048, help="the size of an upload")
    parser.add_argument("--rounds", type=int, default=3, help="uploads by each way")
    asked = parser.parse_args()
    if asked.mebibytes < 1 or asked.rounds < 1:
        parser.error("sizes and rounds are at least 1")
    with tempfile.TemporaryDirectory() as folder:
        measure(asked, folder)


if __name__ == "__main__":
    main()
