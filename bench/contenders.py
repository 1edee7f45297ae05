"""Who is compared, and how each is set up: two HTTPS names at PUBLIC_PORT, carried to two origins by an encrypted tunnel.

Every server listens on 127.0.0.1. Clients reach their server at `leg`: 127.0.0.1 itself, or 127.0.0.2 where the delay
relay listens. Each contender uses the ciphers and defaults that it comes with.
"""

import json
import os
import subprocess
import time

import load
from harness import Failed, Process, wait_port

PUBLIC_PORT = 20443
ORIGIN_PORT = 8080
SINK_PORT = 8081
DOMAIN = "bench.test"
PAGES = f"app.{DOMAIN}"
SINK = f"sink.{DOMAIN}"
ORIGINS = {PAGES: ORIGIN_PORT, SINK: SINK_PORT}


class Contender:
    """One way to bring a private service to a public HTTPS name."""

    name = ""
    about = ""
    #: Ports of the server that clients dial, which the delay relay stands in front of.
    leg_ports = ()
    #: Whether one tunnel is one client process of its own.
    has_tunnels = False

    def __init__(self, bench):
        self.bench = bench
        self.leg = "127.0.0.1"
        self.processes = []
        #: The names that clients use; a contender that makes up its own puts them here.
        self.hosts = {PAGES: PAGES, SINK: SINK}

    def spawn(self, role, argv, env=None):
        process = Process(self.bench.folder, f"{self.name}-{role}", argv, env)
        process.role = role
        self.processes.append(process)
        return process

    def file(self, name, text):
        path = os.path.join(self.bench.folder, f"{self.name}-{name}")
        with open(path, "w") as file:
            file.write(text)
        return path

    def pids(self, role=None):
        return [process.pid for process in self.processes if role in (None, process.role)]

    def commands(self):
        return [" ".join(process.argv) for process in self.processes]

    def start(self):
        raise NotImplementedError

    def start_tunnels(self, counts):
        """The server, then idle tunnels, each with a client of its own. A generator: yields each of the counts, which
        rise, once so many tunnels are up."""
        raise NotImplementedError


def nginx_edge(contender, upstreams):
    """nginx ends TLS and passes on to a local port for each name."""
    bench = contender.bench
    blocks = "".join(f"""
  upstream u{port} {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{PUBLIC_PORT} ssl{" backlog=65535" if number == 0 else ""};
    server_name {host};
    ssl_certificate {bench.certificate}; ssl_certificate_key {bench.key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:10m;
    location / {{
      proxy_pass http://u{port}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffers 16 16k; proxy_max_temp_file_size 0; proxy_request_buffering off; client_max_body_size 0;
    }}
  }}""" for number, (host, port) in enumerate(upstreams.items()))
    conf = contender.file("nginx.conf", f"""worker_processes 2; daemon off; user root;
pid {bench.folder}/{contender.name}-nginx.pid; error_log {bench.folder}/{contender.name}-nginx.err;
events {{ worker_connections 8000; }}
http {{ access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;{blocks}
}}
""")
    contender.spawn("server", ["nginx", "-p", bench.folder, "-c", conf])


class NginxAlone(Contender):
    name = "nginx"
    about = "nginx ends TLS, no tunnel: what the machine can do"

    def start(self):
        nginx_edge(self, ORIGINS)


class Haproxy(Contender):
    name = "haproxy-x2"
    about = "HAProxy ends TLS, HAProxy at the origin, TLS and kept connections between (the origin must be reachable)"
    leg_ports = (9443,)

    def _start(self, role, name, frontend, backends):
        rules = "".join(f" use_backend {host} if {{ hdr(host),field(1,:) {host} }}\n" for host in backends)
        servers = "".join(f"backend {host}\n http-reuse always\n server s {server}\n" for host, server in backends.items())
        conf = self.file(f"{name}.cfg", f"""global
 maxconn 6000
defaults
 mode http
 timeout connect 5s
 timeout client 10m
 timeout server 10m
 maxconn 6000
frontend f
 bind {frontend}
{rules}{servers}""")
        self.spawn(role, ["haproxy", "-db", "-f", conf])

    def start(self):
        tls = f"backlog 65535 ssl crt {self.bench.both}"
        verify = f"ssl verify required ca-file {self.bench.certificate} sni str({PAGES}) verifyhost {PAGES}"
        self._start("client", "origin", f"127.0.0.1:9443 {tls}", {h: f"127.0.0.1:{p}" for h, p in ORIGINS.items()})
        self._start("server", "edge", f"127.0.0.1:{PUBLIC_PORT} {tls} alpn h2,http/1.1",
                    {h: f"{self.leg}:9443 {verify}" for h in ORIGINS})


class Frp(Contender):
    """frp; in its default, the leg is TLS with all streams multiplexed on one connection."""

    leg_ports = (7000,)
    has_tunnels = True

    def server(self, more=""):
        conf = self.file("frps.toml", f"""bindAddr = "127.0.0.1"
bindPort = 7000
proxyBindAddr = "127.0.0.1"
auth.token = "t"
log.level = "error"
transport.tls.force = true
{more}
""")
        process = self.spawn("server", [self.bench.tool("frps"), "-c", conf])
        wait_port(7000, process)

    def client(self, name, proxies):
        conf = self.file(f"{name}.toml", f"""serverAddr = "{self.leg}"
serverPort = 7000
auth.token = "t"
log.level = "error"
{proxies}
""")
        return self.spawn("client", [self.bench.tool("frpc"), "-c", conf])

    @staticmethod
    def tcp(name, local, remote):
        return f'[[proxies]]\nname = "{name}"\ntype = "tcp"\nlocalIP = "127.0.0.1"\nlocalPort = {local}\nremotePort = {remote}\n'

    def start_tunnels(self, counts):
        self.server()
        for tunnel in range(counts[-1]):
            process = self.client(f"frpc{tunnel}", self.tcp(f"t{tunnel}", ORIGIN_PORT, 21000 + tunnel))
            if tunnel + 1 in counts:
                wait_port(21000 + tunnel, process)
                yield tunnel + 1


class FrpHttps(Frp):
    name = "frp-https"
    about = "frp https2http: frpc ends TLS, streams multiplexed over TLS (default)"

    def start(self):
        self.server(f"vhostHTTPSPort = {PUBLIC_PORT}")
        self.client("frpc", "".join(f"""[[proxies]]
name = "{host}"
type = "https"
customDomains = ["{host}"]
[proxies.plugin]
type = "https2http"
localAddr = "127.0.0.1:{port}"
crtPath = "{self.bench.certificate}"
keyPath = "{self.bench.key}"
""" for host, port in ORIGINS.items()))


class FrpTcp(Frp):
    name = "nginx+frp"
    about = "nginx ends TLS, frp tcp behind it, streams multiplexed over TLS (default)"
    has_tunnels = False

    def start(self):
        self.server()
        self.client("frpc", "".join(self.tcp(f"t{port}", port, port + 20000) for port in ORIGINS.values()))
        nginx_edge(self, {host: port + 20000 for host, port in ORIGINS.items()})


class Rathole(Contender):
    name = "nginx+rathole"
    about = "nginx ends TLS, rathole with noise behind it"
    leg_ports = (2333,)
    has_tunnels = True

    def __init__(self, bench):
        super().__init__(bench)
        words = subprocess.run([bench.tool("rathole"), "--genkey"], check=True, capture_output=True, text=True).stdout.split()
        keys = [word for word in words if word.endswith("=")]
        if len(keys) != 2:
            raise Failed(f"rathole --genkey said {words}")
        self.private, self.public = keys

    def server(self, services):
        listed = "".join(f'[server.services.{name}]\nbind_addr = "127.0.0.1:{port}"\n' for name, port in services.items())
        conf = self.file("server.toml", f"""[server]
bind_addr = "127.0.0.1:2333"
default_token = "t"
[server.transport]
type = "noise"
[server.transport.noise]
local_private_key = "{self.private}"
{listed}""")
        process = self.spawn("server", [self.bench.tool("rathole"), "--server", conf], {"RUST_LOG": "error"})
        wait_port(2333, process)

    def client(self, file, services):
        listed = "".join(f'[client.services.{name}]\nlocal_addr = "127.0.0.1:{port}"\n' for name, port in services.items())
        conf = self.file(file, f"""[client]
remote_addr = "{self.leg}:2333"
default_token = "t"
[client.transport]
type = "noise"
[client.transport.noise]
remote_public_key = "{self.public}"
{listed}""")
        return self.spawn("client", [self.bench.tool("rathole"), "--client", conf], {"RUST_LOG": "error"})

    def start(self):
        self.server({f"s{port}": port + 20000 for port in ORIGINS.values()})
        self.client("client.toml", {f"s{port}": port for port in ORIGINS.values()})
        nginx_edge(self, {host: port + 20000 for host, port in ORIGINS.items()})

    def start_tunnels(self, counts):
        self.server({f"s{tunnel}": 21000 + tunnel for tunnel in range(counts[-1])})
        for tunnel in range(counts[-1]):
            process = self.client(f"client{tunnel}.toml", {f"s{tunnel}": ORIGIN_PORT})
            if tunnel + 1 in counts:
                wait_port(21000 + tunnel, process)
                yield tunnel + 1


class Sallyport(Contender):
    name = "sallyport"
    about = "sallyport up, sallyport connect"
    leg_ports = (PUBLIC_PORT,)
    has_tunnels = True

    def _environment(self):
        state = os.path.join(self.data, "state")
        return {"SALLYPORT_STATE_DIR": state, "XDG_CONFIG_HOME": state, "XDG_STATE_HOME": state, "XDG_DATA_HOME": state,
                "SALLYPORT_PASSWORD": "measure twice, cut once"}

    def _call(self, *arguments):
        argv = [self.bench.sallyport, *arguments, "--output", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **self._environment()}, timeout=30)
        if done.returncode != 0:
            raise Failed(f"{' '.join(argv)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def _up(self):
        self.data = os.path.join(self.bench.folder, f"sallyport-{time.monotonic_ns()}")
        process = self.spawn("server", [
            self.bench.sallyport, "up", "--data", self.data, "--domain", DOMAIN,
            "--listen", f"127.0.0.1:{PUBLIC_PORT}", "--listen-http", "none",
        ], self._environment())
        self.bench.hosts({f"api.{DOMAIN}": "127.0.0.1", f"tunnel.{DOMAIN}": self.leg})
        deadline = time.monotonic() + 20
        while True:
            try:
                load.one_request(f"api.{DOMAIN}", PUBLIC_PORT, "/readyz", seconds=5)
                break
            except (OSError, Failed):
                process.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._call("account", "create", "--name", "Bench", "--email", "bench@example.com")
        self._call("login", "--email", "bench@example.com")

    def _connect(self, port, name):
        """A socket, and a connector of its own for it; gives the socket's host name once it is up."""
        socket = self._call("socket", "create", "--name", name, "--type", "http")
        process = self.spawn("client", [self.bench.sallyport, "tunnel", "connect", socket["dns_name"].split(".")[0],
                                        "--port", str(port)], self._environment())
        return socket, process

    def _until_up(self, socket, process):
        deadline = time.monotonic() + 20
        while self._call("socket", "show", socket["id"])["tunnels_up"] == 0:
            process.check()
            if time.monotonic() > deadline:
                raise Failed(f"the tunnel of {socket['dns_name']} did not come up")
            time.sleep(0.1)

    def start(self):
        self._up()
        for host, port in ORIGINS.items():
            socket, process = self._connect(port, host.split(".")[0])
            self._until_up(socket, process)
            self.hosts[host] = socket["dns_name"]
        self.bench.hosts({host: "127.0.0.1" for host in self.hosts.values()})

    def start_tunnels(self, counts):
        self._up()
        for tunnel in range(counts[-1]):
            socket, process = self._connect(ORIGIN_PORT, f"t{tunnel}")
            if tunnel + 1 in counts:
                self._until_up(socket, process)
                yield tunnel + 1


ALL = [Sallyport, FrpHttps, FrpTcp, Rathole, Haproxy, NginxAlone]
