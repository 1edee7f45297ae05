"""rathole, with noise or without any encryption."""

import re
import subprocess
import time

from harness import Failed, wait_port

from .base import ECHO, ECHO_PORT, ORIGIN_PORT, ORIGINS, PUBLISHED, Contender, TcpPort, UdpPort
from .nginx import nginx_edge


class Rathole(Contender):
    leg_ports = (2333,)
    has_tunnels = True
    tools = ("rathole",)
    is_encrypted = True

    def __init__(self, bench):
        super().__init__(bench)
        words = subprocess.run([bench.tool("rathole"), "--genkey"], check=True, capture_output=True, text=True).stdout.split()
        keys = [word for word in words if word.endswith("=")]
        if len(keys) != 2:
            raise Failed(f"rathole --genkey said {words}")
        self.private, self.public = keys

    @classmethod
    def versions(cls, bench):
        # The release's name is in the path that it was built into.
        return {"rathole": re.search(r"rathole-([\d.]+)", bench.tool("rathole"))[1]}

    def _transport(self, side, key):
        if not self.is_encrypted:
            return f'[{side}.transport]\ntype = "tcp"'
        return f'[{side}.transport]\ntype = "noise"\n[{side}.transport.noise]\n{key}'

    def server(self, services, kind="tcp"):
        listed = "".join(f'[server.services.{name}]\ntype = "{kind}"\nbind_addr = "127.0.0.1:{port}"\n'
                         for name, port in services.items())
        conf = self.file("server.toml", f"""[server]
bind_addr = "{self.bind}:2333"
default_token = "t"
{self._transport("server", f'local_private_key = "{self.private}"')}
{listed}""")
        process = self.spawn("server", [self.bench.tool("rathole"), "--server", conf], {"RUST_LOG": "error"})
        wait_port(2333, process)

    def client(self, file, services, kind="tcp"):
        listed = "".join(f'[client.services.{name}]\ntype = "{kind}"\nlocal_addr = "127.0.0.1:{port}"\n'
                         for name, port in services.items())
        conf = self.file(file, f"""[client]
remote_addr = "{self.leg}:2333"
default_token = "t"
{self._transport("client", f'remote_public_key = "{self.public}"')}
{listed}""")
        return self.spawn("client", [self.bench.tool("rathole"), "--client", conf], {"RUST_LOG": "error"})

    def start_serving(self):
        begin = time.perf_counter()
        self.server({"s0": 21000})
        return {"start_ms": (time.perf_counter() - begin) * 1e3}

    def serve_again(self):
        self.server(self.services)

    def start_many(self, count):
        self.services = {f"s{tunnel}": 21000 + tunnel for tunnel in range(count)}
        self.server(self.services)
        self.client("client.toml", {f"s{tunnel}": ORIGIN_PORT for tunnel in range(count)})
        return range(21000, 21000 + count)

    def start_tunnels(self, counts):
        self.server({f"s{tunnel}": 21000 + tunnel for tunnel in range(counts[-1])})
        for tunnel in range(counts[-1]):
            process = self.client(f"client{tunnel}.toml", {f"s{tunnel}": ORIGIN_PORT})
            if tunnel + 1 in counts:
                wait_port(21000 + tunnel, process)
                yield tunnel + 1


class NginxRathole(Rathole):
    name = "nginx+rathole"
    about = "nginx ends TLS, rathole with noise behind it"

    def start(self):
        self.server({f"s{port}": port + 20000 for port in ORIGINS.values()})
        self.client("client.toml", {f"s{port}": port for port in ORIGINS.values()})
        nginx_edge(self, {host: port + 20000 for host, port in ORIGINS.items()})


class NginxRatholePlain(NginxRathole):
    name = "nginx+rathole-plain"
    about = "nginx ends TLS, rathole without encryption behind it: no peer, but what encryption is measured against"
    is_encrypted = False
    is_peer = False


class RatholeTcp(TcpPort, Rathole):
    name = "rathole"
    about = "rathole tcp with noise"

    def start(self):
        self.services = {f"s{port}": PUBLISHED[name] for name, port in ORIGINS.items()}
        self.server(self.services)
        self.client("client.toml", {f"s{port}": port for port in ORIGINS.values()})


class RatholePlain(RatholeTcp):
    name = "rathole-plain"
    about = "rathole tcp, not encrypted: no peer, but what encryption is measured against"
    is_encrypted = False
    is_peer = False


class RatholeUdp(UdpPort, Rathole):
    name = "rathole"
    about = "rathole udp with noise"

    def start(self):
        self.server({"echo": PUBLISHED[ECHO]}, "udp")
        self.client("client.toml", {"echo": ECHO_PORT}, "udp")
