#!/usr/bin/env python3
"""Memory of connections that rest, at the edge and at the connectors.

    python3 bench/idle.py                                  # TCP connections, each on a leg of its own
    python3 bench/idle.py --kind h2                        # https, h2: a request over TLS, then rest; websocket: open, and quiet
    python3 bench/idle.py --kind https --of nginx          # the same of nginx or HAProxy, which are no tunnels
    python3 bench/idle.py --counts 0 1000 --sallyport target/release/sallyport

Starts a server and two connectors on the loopback interface, opens that many connections one after the other, each with one
message there and back, and reads PSS and RSS of both sides from /proc once they rest. The slope is between the second count
and the last, when what is made once has been made. Where each connection has a leg of its own, half of them are at each
connector, since one has at most 4,096 legs.
"""

import argparse
import base64
import hashlib
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
from harness import Process, family, stop, wait_port  # noqa: E402

MESSAGE = b"a message of a hundred bytes, as small requests of people and of programs mostly are " + b"." * 15
CONNECTORS = 2
PASSWORD = "measure twice, cut once"
#: What a browser says of itself, in short.
FIELDS = {
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-language": "en-US,en;q=0.5",
}
WEBSOCKET_KEY = base64.b64encode(b"the sample nonce").decode()
#: What goes before the key when it is answered (RFC 6455 section 1.3).
WEBSOCKET_SALT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


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


def answer(said):
    """What a service says to this: bytes that are no request come back as they are."""
    if not said.startswith(b"GET "):
        return said
    if b"upgrade: websocket" in said.lower():
        accept = base64.b64encode(hashlib.sha1((WEBSOCKET_KEY + WEBSOCKET_SALT).encode()).digest())
        return (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(MESSAGE), MESSAGE)


def service():
    """Answers any number of connections, in a thread."""
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
                    key.fileobj.sendall(answer(said))
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


class Sallyport:
    """A server, and two connectors."""

    def __init__(self, asked, folder):
        self.binary, self.kind, self.folder = os.path.abspath(asked.sallyport), asked.kind, folder
        self.env = {"SALLYPORT_STATE_DIR": os.path.join(folder, "state"), "SALLYPORT_PASSWORD": PASSWORD, "HOME": folder}
        self.port, self.public, self.host, self.connectors = free_port(), free_port(), "localhost", []
        self.server = self.start("server", "up", "--data", os.path.join(folder, "data"), "--domain", "localhost",
                                 "--listen", f"127.0.0.1:{self.port}", "--listen-http", "none",
                                 "--port-range", f"{self.public}-{self.public}")

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
        try:
            with tls(self.port, "api.localhost") as stream:
                stream.sendall(b"GET /readyz HTTP/1.1\r\nHost: api.localhost\r\nConnection: close\r\n\r\n")
                return stream.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def publish(self, origin):
        self.until(self.is_ready)
        self.call("account", "create", "--name", "Bench", "--email", "bench@example.com")
        self.call("login", "--email", "bench@example.com")
        how = ("tcp", "--public-port", str(self.public)) if self.kind == "tcp" else ("http",)
        made = self.call("socket", "create", "--name", "idle", "--type", *how)
        for _ in range(CONNECTORS):
            self.connectors.append(self.start("client", "tunnel", "connect", made["dns_name"].split(".")[0],
                                              "--port", str(origin), "--max-legs", "4096"))
        self.until(lambda: self.call("socket", "show", made["id"])["tunnels_up"] == CONNECTORS)
        if self.kind != "tcp":
            self.public, self.host = self.port, made["dns_name"]

    def memory(self):
        server, client = memory_kib([self.server.pid]), memory_kib([one.pid for one in self.connectors])
        return {"server_pss": server[0], "server_rss": server[1], "client_pss": client[0], "client_rss": client[1]}

    def processes(self):
        return [self.server, *self.connectors]


class Peer:
    """One that ends TLS and dials the service itself."""

    def __init__(self, asked, folder):
        self.folder, self.public, self.host, self.server = folder, free_port(), "localhost", None
        key, self.certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", self.certificate],
                       check=True, capture_output=True)
        with open(key) as file, open(self.certificate, "a") as both:
            both.write(file.read())

    def publish(self, origin):
        path = os.path.join(self.folder, "peer.conf")
        with open(path, "w") as file:
            file.write(self.config(origin))
        self.server = Process(self.folder, "server", [*self.command, path])
        wait_port(self.public, self.server)

    def memory(self):
        pss, rss = memory_kib([self.server.pid])
        return {"server_pss": pss, "server_rss": rss}

    def processes(self):
        return [self.server] if self.server else []


class Nginx(Peer):
    command = ("nginx", "-c")

    def config(self, origin):
        return f"""worker_processes 2; daemon off; user root; pid {self.folder}/nginx.pid; error_log {self.folder}/nginx.err;
events {{ worker_connections 20000; }}
http {{
  access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;
  map $http_upgrade $connection_upgrade {{ default upgrade; "" ""; }}
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{self.public} ssl http2; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:10m;
    ssl_certificate {self.certificate}; ssl_certificate_key {self.certificate};
    location / {{
      proxy_pass http://origin; proxy_http_version 1.1; proxy_read_timeout 600s;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    }}
  }}
}}
"""


class Haproxy(Peer):
    command = ("haproxy", "-db", "-f")

    def config(self, origin):
        return f"""global
 maxconn 8000
defaults
 mode http
 timeout connect 5s
 timeout client 10m
 timeout server 10m
 maxconn 8000
listen l
 bind 127.0.0.1:{self.public} backlog 4096 ssl crt {self.certificate} alpn h2,http/1.1
 http-reuse always
 server s 127.0.0.1:{origin}
"""


OF = {"sallyport": Sallyport, "nginx": Nginx, "haproxy": Haproxy}


def take(stream, count):
    """So many bytes."""
    got = b""
    while len(got) < count:
        said = stream.recv(count - len(got))
        if not said:
            raise SystemExit("a connection ended early")
        got += said
    return got


def plain(at):
    stream = socket.create_connection(("127.0.0.1", at.public), 20)
    stream.sendall(MESSAGE)
    take(stream, len(MESSAGE))
    return stream


def trust(*alpn):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


TRUST, TRUST_H2 = trust(), trust("h2")


def tls(port, host, context=TRUST):
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 20), server_hostname=host)


def request(stream, at, fields):
    """Makes a request of HTTP/1.1; the answer's head."""
    lines = [f"{name}: {value}\r\n" for name, value in {"host": f"{at.host}:{at.public}", **FIELDS, **fields}.items()]
    stream.sendall(f"GET / HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += take(stream, 1)
    return head


def https(at):
    stream = tls(at.public, at.host)
    if not request(stream, at, {}).startswith(b"HTTP/1.1 200") or take(stream, len(MESSAGE)) != MESSAGE:
        raise SystemExit("it was not answered")
    return stream


def websocket(at):
    stream = tls(at.public, at.host)
    head = request(stream, at, {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                                "sec-websocket-key": WEBSOCKET_KEY})
    if not head.startswith(b"HTTP/1.1 101"):
        raise SystemExit(f"it is no WebSocket: {head[:80]!r}")
    # A message of a client, masked with zeros (RFC 6455 section 5.2).
    frame = bytes([0x82, 0x80 | len(MESSAGE), 0, 0, 0, 0]) + MESSAGE
    stream.sendall(frame)
    take(stream, len(frame))
    return stream


def h2_frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def h2(at):
    """A request over HTTP/2 (RFC 9113): frames of these types, and fields that are remembered (RFC 7541 section 6.2.1)."""
    data, headers, settings, acknowledged, end_stream, end_headers = 0, 1, 4, 1, 1, 4
    stream = tls(at.public, at.host, TRUST_H2)
    if stream.selected_alpn_protocol() != "h2":
        raise SystemExit("it does not speak HTTP/2")
    literal = lambda text: bytes([len(text)]) + text.encode()  # noqa: E731
    # :method GET, :scheme https, :path /, and :authority.
    block = b"\x82\x87\x84\x41" + literal(f"{at.host}:{at.public}")
    block += b"".join(b"\x40" + literal(name) + literal(value) for name, value in FIELDS.items())
    stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(settings, 0, 0)
                   + h2_frame(headers, end_stream | end_headers, 1, block))
    has_settings = has_answer = False
    while not (has_settings and has_answer):
        head = take(stream, 9)
        kind, flags, of = head[3], head[4], int.from_bytes(head[5:], "big")
        take(stream, int.from_bytes(head[:3], "big"))
        if kind == settings and not flags & acknowledged:
            stream.sendall(h2_frame(settings, acknowledged, 0))
            has_settings = True
        has_answer |= of == 1 and kind in (data, headers) and bool(flags & end_stream)
    return stream


KINDS = {"tcp": plain, "https": https, "h2": h2, "websocket": websocket}


def options():
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--sallyport", default="target/release/sallyport")
    said.add_argument("--kind", choices=KINDS, default="tcp")
    said.add_argument("--of", choices=OF, default="sallyport")
    said.add_argument("--counts", type=int, nargs="+", default=[0, 500, 2000, 6000])
    said.add_argument("--settle", type=float, default=3.0, help="seconds of rest before memory is read")
    said.add_argument("--json", action="store_true")
    asked = said.parse_args()
    if asked.kind == "tcp" and asked.of != "sallyport":
        said.error("TCP ports are measured of Sallyport alone here")
    return asked


def main():
    asked = options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        at = OF[asked.of](asked, folder)
        kept, points = [], []
        try:
            at.publish(service())
            for count in asked.counts:
                while len(kept) < count:
                    kept.append(KINDS[asked.kind](at))
                time.sleep(asked.settle)
                points.append({"connections": count, **at.memory()})
                if not asked.json:
                    print(points[-1], flush=True)
        finally:
            for stream in kept:
                stream.close()
            stop(at.processes())
    first, last = points[min(1, len(points) - 2)], points[-1]
    more = last["connections"] - first["connections"]
    slopes = {f"{key}_kib": round((last[key] - first[key]) / more, 2) for key in last if key != "connections"}
    if asked.json:
        print(json.dumps({"points": points, "each": slopes}))
    else:
        print("each connection, KiB:", slopes)


if __name__ == "__main__":
    main()
