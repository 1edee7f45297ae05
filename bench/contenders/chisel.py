"""chisel, whose client asks for ports of its server."""

import os
import time

from harness import wait_port

from .base import ORIGIN_PORT, ORIGINS, PUBLISHED, Contender, TcpPort


class Chisel(TcpPort, Contender):
    name = "chisel"
    about = "chisel, reverse ports, streams multiplexed over SSH in a WebSocket (default)"
    leg_ports = (7001,)
    tools = ("chisel",)
    is_optional = True

    @classmethod
    def versions(cls, bench):
        # The release's name is in the path that it was built into.
        return {"chisel": os.path.basename(os.path.dirname(bench.tool("chisel"))).removeprefix("chisel-")}

    def server(self):
        process = self.spawn("server", [self.bench.tool("chisel"), "server", "--host", self.bind, "--port", "7001", "--reverse"])
        wait_port(7001, process)

    def client(self, ports):
        forwards = [f"R:127.0.0.1:{remote}:127.0.0.1:{local}" for remote, local in ports.items()]
        self.spawn("client", [self.bench.tool("chisel"), "client", f"http://{self.leg}:7001", *forwards])

    def start(self):
        self.server()
        self.client({PUBLISHED[name]: port for name, port in ORIGINS.items()})

    def start_serving(self):
        begin = time.perf_counter()
        self.server()
        return {"start_ms": (time.perf_counter() - begin) * 1e3}

    def serve_again(self):
        self.server()

    def start_many(self, count):
        self.server()
        self.client({21000 + tunnel: ORIGIN_PORT for tunnel in range(count)})
        return range(21000, 21000 + count)
