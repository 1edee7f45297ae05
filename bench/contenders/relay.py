"""A relay through a second edge: clients come to the one, and what they want is behind the other."""

import os
import subprocess
import time

from harness import Failed, wait_port

from .base import DOMAIN, ORIGINS, PUBLIC_PORT
from .haproxy import Haproxy
from .sallyport import SallyportHttps

BUS_PORT = 4222
#: Where control is, for the API and for edges.
CONTROL_PORT, NODES_PORT = 20440, 20441
#: The second hop.
SECOND_PORT = 20444


class SallyportRelay(SallyportHttps):
    about = "clients at one edge, the tunnels at another; control and NATS beside them"
    tools = ("nats-server",)
    leg_ports = ()
    has_tunnels = False

    def start(self):
        self.data = os.path.join(self.bench.folder, f"sallyport-{time.monotonic_ns()}")
        store = os.path.join(self.data, "nats")
        os.makedirs(store)
        config = self.file("nats.conf", f'listen: 127.0.0.1:{BUS_PORT}\njetstream {{ store_dir: "{store}" }}\n')
        wait_port(BUS_PORT, self.spawn("server", [self.bench.tool("nats-server"), "-c", config]))
        control = self.spawn("server", [
            self.bench.sallyport, "control", "--data", self.data, "--domain", DOMAIN, "--sign-up", "open",
            "--bus", f"nats://127.0.0.1:{BUS_PORT}", "--listen", f"127.0.0.1:{CONTROL_PORT}",
            "--listen-edges", f"127.0.0.1:{NODES_PORT}", "--public-port", str(PUBLIC_PORT),
        ], self._environment())
        self.bench.hosts({f"api.{DOMAIN}": "127.0.0.1", f"tunnel.{DOMAIN}": "127.0.0.1"})
        self._until_ready(control, CONTROL_PORT)
        self._log_in()
        for name, region, port in (("first", "near", PUBLIC_PORT), ("second", "far", SECOND_PORT)):
            token = self._call("edge", "token", "create", "--name", name)["token"]
            edge = self.spawn("server", [
                self.bench.sallyport, "edge", "--join", token, "--region", region, "--data", os.path.join(self.data, name),
                "--listen", f"127.0.0.1:{port}",
            ], self._environment())
            wait_port(port, edge)
        token = self._call("token", "create", "--name", "bench", "--scope", "tunnels:connect")["token"]
        # At the second edge alone: by default the first would hold every tunnel too, and relay nothing.
        self.connect_options = ("--api", f"https://api.{DOMAIN}:{SECOND_PORT}", "--ca", os.path.join(self.data, "ca.pem"),
                                "--token", token, "--redundancy", "1")
        for host, port in ORIGINS.items():
            socket = self._socket(host.split(".")[0], "http")
            self._until_up(socket, self._connect_in_time(socket, port))
            holders = {tunnel["edge"] for tunnel in self._call("tunnel", "ls", socket["id"])}
            if holders != {"second"}:
                raise Failed(f"{socket['dns_name']} is held by {holders}, and would not be relayed")
            self.hosts[host] = socket["dns_name"]
        self.bench.hosts({host: "127.0.0.1" for host in self.hosts.values()})

    def _connect_in_time(self, socket, port):
        """The second edge learns of a socket a moment after it was made."""
        for _ in range(20):
            process = self._connect(socket, port)
            try:
                process.child.wait(1)
            except subprocess.TimeoutExpired:
                return process
            self.processes.remove(process)
        raise Failed(f"no connector of {socket['dns_name']} stays up")

    def _connect(self, socket, port):
        return self.spawn("client", [self.bench.sallyport, "tunnel", "connect", "--socket-id", socket["id"],
                                     "--port", str(port), *self.connect_options], self._environment())


class HaproxyThree(Haproxy):
    """As many hops of TLS as a relay has."""

    name = "haproxy-x3"
    about = "HAProxy three times: ends TLS, passes on by TLS, and once more at the origin, with kept connections (no tunnel)"
    leg_ports = ()

    def start(self):
        self._start("client", "origin", f"127.0.0.1:9443 {self._bind_tls}{self.alpn}", {h: f"127.0.0.1:{p}" for h, p in ORIGINS.items()})
        for name, port, to, alpn in (("second", 9444, 9443, self.alpn), ("first", PUBLIC_PORT, 9444, " alpn h2,http/1.1")):
            self._start("server", name, f"127.0.0.1:{port} {self._bind_tls}{alpn}",
                        {h: f"127.0.0.1:{to} {self._verify}{self.alpn}" for h in ORIGINS})


class HaproxyThreeH2(HaproxyThree):
    name = "haproxy-x3-h2"
    about = "the same with HTTP/2 between"
    alpn = " alpn h2"
