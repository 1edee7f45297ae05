"""frp, in the ways that it can carry HTTPS, TCP and UDP."""

import time

from harness import wait_port

from .base import (
    ECHO, ECHO_PORT, ORIGIN_PORT, ORIGINS, PUBLIC_PORT, PUBLISHED, Contender, TcpPort, UdpPort, first_line,
)
from .nginx import nginx_edge


class Frp(Contender):
    """frp; in its default, the leg is TLS with all streams multiplexed on one connection."""

    leg_ports = (7000,)
    has_tunnels = True
    tools = ("frps", "frpc")
    #: Lines for the configuration of both sides.
    server_lines = ""
    client_lines = ""

    @classmethod
    def versions(cls, bench):
        return {"frp": first_line(bench.tool("frps"), "--version")}

    def server(self, more=""):
        conf = self.file("frps.toml", f"""bindAddr = "{self.bind}"
bindPort = 7000
proxyBindAddr = "127.0.0.1"
auth.token = "t"
log.level = "error"
transport.tls.force = true
{self.server_lines}
{more}
""")
        process = self.spawn("server", [self.bench.tool("frps"), "-c", conf])
        wait_port(7000, process)

    def client(self, name, proxies):
        conf = self.file(f"{name}.toml", f"""serverAddr = "{self.leg}"
serverPort = 7000
auth.token = "t"
log.level = "error"
{self.client_lines}
{proxies}
""")
        return self.spawn("client", [self.bench.tool("frpc"), "-c", conf])

    @staticmethod
    def port(name, local, remote, kind="tcp"):
        return f'[[proxies]]\nname = "{name}"\ntype = "{kind}"\nlocalIP = "127.0.0.1"\nlocalPort = {local}\nremotePort = {remote}\n'

    def start_serving(self):
        begin = time.perf_counter()
        self.server()
        return {"start_ms": (time.perf_counter() - begin) * 1e3}

    def serve_again(self):
        self.server()

    def start_many(self, count):
        self.server()
        self.client("many", "".join(self.port(f"t{tunnel}", ORIGIN_PORT, 21000 + tunnel) for tunnel in range(count)))
        return range(21000, 21000 + count)

    def start_tunnels(self, counts):
        self.server()
        for tunnel in range(counts[-1]):
            process = self.client(f"frpc{tunnel}", self.port(f"t{tunnel}", ORIGIN_PORT, 21000 + tunnel))
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


class NginxFrp(Frp):
    name = "nginx+frp"
    about = "nginx ends TLS, frp tcp behind it, streams multiplexed over TLS (default)"
    has_tunnels = False

    def start(self):
        self.server()
        self.client("frpc", "".join(self.port(f"t{port}", port, port + 20000) for port in ORIGINS.values()))
        nginx_edge(self, {host: port + 20000 for host, port in ORIGINS.items()})


class FrpTcp(TcpPort, Frp):
    name = "frp"
    about = "frp tcp, streams multiplexed over TLS (default)"

    def start(self):
        self.server()
        self.client("frpc", "".join(self.port(f"t{port}", port, PUBLISHED[name]) for name, port in ORIGINS.items()))


class FrpTcpPool(FrpTcp):
    name = "frp-pool"
    about = "frp tcp, a TLS connection for each stream, 32 kept ready"
    server_lines = "transport.tcpMux = false\ntransport.maxPoolCount = 64"
    client_lines = "transport.tcpMux = false\ntransport.poolCount = 32"


class FrpUdp(UdpPort, Frp):
    name = "frp"
    about = "frp udp, over TLS (default)"

    def start(self):
        self.server()
        self.client("frpc", self.port("echo", ECHO_PORT, PUBLISHED[ECHO], "udp"))
