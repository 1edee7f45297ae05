"""The least that can be done: a tunnel that does nothing but carry, and no tunnel at all. References."""

from harness import wait_port

from .base import ORIGINS, PUBLISHED, Contender, TcpPort

#: Where the clients of the tunnel of each origin are listened for.
TUNNELS = {name: 6000 + number for number, name in enumerate(ORIGINS)}


class Least(TcpPort, Contender):
    name = "least"
    about = "a tunnel without encryption or windows, a thread on either side: what no tunnel can be below (no peer)"
    leg_ports = tuple(TUNNELS.values())
    is_peer = False
    rows = ("tcp_delay_fresh", "tcp_delay_burst")

    @classmethod
    def versions(cls, bench):
        return {}

    def _spawn(self, role, *words):
        return self.spawn(role, [self.bench.tool("least"), *map(str, words)])

    def start(self):
        for name, port in ORIGINS.items():
            server = self._spawn("server", "server", PUBLISHED[name], f"127.0.0.1:{TUNNELS[name]}")
            wait_port(PUBLISHED[name], server)
            self._spawn("client", "client", f"{self.leg}:{TUNNELS[name]}", f"127.0.0.1:{port}")


class Wait(Least):
    name = "wait"
    about = "no tunnel and no service: each request is answered 50 ms after it was read; what the load takes by itself (no peer)"

    def start(self):
        for name in ORIGINS:
            wait_port(PUBLISHED[name], self._spawn("server", "wait", PUBLISHED[name], 50))
