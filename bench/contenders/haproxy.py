"""HAProxy twice, with TLS between: no tunnel, so a reference and no peer."""

from harness import Unavailable

from .base import ORIGIN_PORT, ORIGINS, PAGES, PUBLIC_PORT, PUBLISHED, Contender, TcpPort, first_line

DEFAULTS = """global
 maxconn 6000
defaults
 timeout connect 5s
 timeout client 10m
 timeout server 10m
 maxconn 6000
"""


class Haproxy(Contender):
    name = "haproxy-x2"
    about = "HAProxy ends TLS, HAProxy at the origin, TLS and kept connections between (the origin must be reachable)"
    leg_ports = (9443,)
    is_peer = False
    needs = ("haproxy",)
    max_connections = 6000
    #: What the two speak with each other.
    alpn = ""

    @classmethod
    def versions(cls, bench):
        return {"haproxy": first_line("haproxy", "-v")}

    def _run(self, role, name, text):
        self.spawn(role, ["haproxy", "-db", "-f", self.file(f"{name}.cfg", DEFAULTS + text)])

    @property
    def _bind_tls(self):
        return f"backlog 65535 ssl crt {self.bench.both}"

    @property
    def _verify(self):
        return f"ssl verify required ca-file {self.bench.certificate} sni str({PAGES}) verifyhost {PAGES}"

    def _start(self, role, name, frontend, backends):
        rules = "".join(f" use_backend {host} if {{ hdr(host),field(1,:) {host} }}\n" for host in backends)
        servers = "".join(f"backend {host}\n http-reuse always\n server s {server}\n" for host, server in backends.items())
        self._run(role, name, f" mode http\nfrontend f\n bind {frontend}\n{rules}{servers}")

    def start(self):
        self._start("client", "origin", f"127.0.0.1:9443 {self._bind_tls}{self.alpn}", {h: f"127.0.0.1:{p}" for h, p in ORIGINS.items()})
        self._start("server", "edge", f"127.0.0.1:{PUBLIC_PORT} {self._bind_tls} alpn h2,http/1.1",
                    {h: f"{self.leg}:9443 {self._verify}{self.alpn}" for h in ORIGINS})

    def start_origins(self, count, programs):
        """Those of one program are not measured: to the server they would be one origin at many ports."""
        if programs != count:
            raise Unavailable("HAProxy's far side is one program for each origin")
        for number in range(count):
            self._run("client", f"origin-{number}", f" mode http\nlisten l\n bind {self.address}:{9443 + number} {self._bind_tls}{self.alpn}\n"
                      f" http-reuse always\n server s 127.0.0.1:{ORIGIN_PORT}\n")
        servers = "".join(f" server s{number} {self.leg}:{9443 + number} {self._verify}{self.alpn}\n" for number in range(count))
        self._run("server", "edge", f" mode http\nlisten f\n bind {self.address}:{PUBLIC_PORT} {self._bind_tls} alpn h2,http/1.1\n"
                  f" balance leastconn\n http-reuse always\n{servers}")


class HaproxyH2(Haproxy):
    name = "haproxy-x2-h2"
    about = "the same with HTTP/2 between"
    alpn = " alpn h2"


class HaproxyTcp(TcpPort, Haproxy):
    about = "HAProxy in TCP mode on both sides, a TLS connection between for each stream (the origin must be reachable)"
    leg_ports = tuple(9000 + port for port in ORIGINS.values())

    def start(self):
        self._run("client", "origin", " mode tcp\n" + "".join(
            f"listen l{port}\n bind 127.0.0.1:{9000 + port} {self._bind_tls}\n server s 127.0.0.1:{port}\n"
            for port in ORIGINS.values()))
        self._run("server", "edge", " mode tcp\n" + "".join(
            f"listen l{port}\n bind 127.0.0.1:{PUBLISHED[name]} backlog 65535\n server s {self.leg}:{9000 + port} {self._verify}\n"
            for name, port in ORIGINS.items()))
