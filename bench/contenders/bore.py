"""bore, which encrypts nothing."""

import time

from harness import Unavailable, wait_port

from .base import ORIGINS, PUBLISHED, Contender, TcpPort, first_line

#: It says a line for each connection otherwise.
QUIET = {"RUST_LOG": "error"}


class Bore(TcpPort, Contender):
    """A client of bore has one port, so each origin has a client of its own."""

    name = "bore"
    about = "bore, not encrypted, a connection for each stream: no peer, but what encryption is measured against"
    leg_ports = (7835,)
    tools = ("bore",)
    is_optional = True
    is_peer = False

    @classmethod
    def versions(cls, bench):
        return {"bore": first_line(bench.tool("bore"), "--version")}

    def server(self):
        process = self.spawn("server", [self.bench.tool("bore"), "server", "--bind-addr", self.bind], QUIET)
        wait_port(7835, process)

    def start(self):
        self.server()
        for name, port in ORIGINS.items():
            self.spawn("client", [self.bench.tool("bore"), "local", str(port), "--local-host", "127.0.0.1",
                                  "--to", self.leg, "--port", str(PUBLISHED[name])], QUIET)

    def start_serving(self):
        begin = time.perf_counter()
        self.server()
        return {"start_ms": (time.perf_counter() - begin) * 1e3}

    def serve_again(self):
        raise Unavailable("bore's client ends when its server does")
