"""Sallyport, with sockets of every kind, its own connector and a stock ssh client."""

import http.client
import json
import os
import shlex
import ssl
import subprocess
import time

import floods
import load
from harness import Failed, Unavailable, stop

from .base import (
    ECHO, ECHO_PORT, ORIGIN_PORT, ORIGINS, PAGES, PUBLIC_PORT, PUBLISHED, Contender, TcpPort, UdpPort, first_line,
)
from .ssh import client_version, make_key, start_client

#: The ports of many sockets.
MANY_PORTS = range(21000, 22000)
#: Exit codes of a program that does not know what it is asked for, and of a server that will not do it.
REFUSALS = (2, 5)


class Sallyport(Contender):
    name = "sallyport"
    leg_ports = (PUBLIC_PORT,)
    #: Where clients of the API find it.
    api = "127.0.0.1"
    #: Beside the usual ones.
    up_options = ()
    connect_options = ()

    @classmethod
    def versions(cls, bench):
        return {"sallyport": first_line(bench.sallyport, "--version"), **bench.build()}

    def beside(self):
        other = super().beside()
        other.api = other.address
        return other

    def _environment(self):
        state = os.path.join(self.data, "state")
        return {"SALLYPORT_STATE_DIR": state, "XDG_CONFIG_HOME": state, "XDG_STATE_HOME": state, "XDG_DATA_HOME": state,
                "SALLYPORT_PASSWORD": "measure twice, cut once"}

    def _call(self, *arguments):
        argv = [self.bench.sallyport, *arguments, "--output", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **self._environment()}, timeout=30)
        if done.returncode != 0:
            kind = Unavailable if done.returncode in REFUSALS else Failed
            raise kind(f"sallyport {' '.join(arguments)}: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def _up(self):
        self.data = os.path.join(self.bench.folder, f"sallyport-{time.monotonic_ns()}")
        self._serve()
        self._log_in()

    def _serve(self):
        process = self.spawn("server", [
            self.bench.sallyport, "up", "--data", self.data, "--domain", self.domain,
            "--listen", f"{self.bind}:{PUBLIC_PORT}", "--listen-http", "none", *self.up_options,
        ], self._environment())
        self.bench.hosts({f"api.{self.domain}": self.api, f"tunnel.{self.domain}": self.leg})
        self._until_ready(process)
        return process

    def _until_ready(self, process, port=PUBLIC_PORT):
        deadline = time.monotonic() + 20
        while True:
            try:
                load.one_request(load.Target(f"api.{self.domain}", port, tls=True), "/readyz", seconds=5)
                return
            except (OSError, Failed):
                process.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def _log_in(self):
        self._call("account", "create", "--name", "Bench", "--email", "bench@example.com")
        self._call("login", "--email", "bench@example.com")

    def _socket(self, name, kind, *more):
        return self._call("socket", "create", "--name", name, "--type", kind, *more)

    def _connect(self, socket, port):
        """A connector of its own for the socket."""
        return self.spawn("client", [self.bench.sallyport, "tunnel", "connect", socket["dns_name"].split(".")[0],
                                     "--port", str(port), *self.connect_options], self._environment())

    def _token(self, name):
        return self._call("token", "create", "--name", name, "--scope", "sockets:write,tunnels:connect")["token"]

    def _run(self, name, tables):
        """A client with these services."""
        services = self.file(f"{time.monotonic_ns()}-{name}", "".join(tables))
        os.chmod(services, 0o600)
        return self.spawn("client", [self.bench.sallyport, "run", services, "--output", "json"], self._environment())

    def programs(self):
        return [self.bench.sallyport]

    def serve_again(self):
        self._serve()

    def start_serving(self):
        """With an empty folder, in which keys and a database are made first; and once more with what is there then."""
        figures = {}
        self.data = os.path.join(self.bench.folder, f"sallyport-{time.monotonic_ns()}")
        for figure in ("first_start_ms", "start_ms"):
            begin = time.perf_counter()
            process = self._serve()
            figures[figure] = (time.perf_counter() - begin) * 1e3
            stop([process])
        return figures

    def _until_up(self, socket, process, wanted=1):
        deadline = time.monotonic() + 20
        while self._call("socket", "show", socket["id"])["tunnels_up"] < wanted:
            process.check()
            if time.monotonic() > deadline:
                raise Failed(f"the tunnel of {socket['dns_name']} did not come up")
            time.sleep(0.1)


class SallyportHttps(Sallyport):
    about = "sallyport up, sallyport tunnel connect"
    has_tunnels = True

    def start(self):
        self._up()
        for host, port in ORIGINS.items():
            socket = self._socket(host.split(".")[0], "http")
            self._until_up(socket, self._connect(socket, port))
            self.hosts[host] = socket["dns_name"]
        self.bench.hosts({host: "127.0.0.1" for host in self.hosts.values()})

    def start_origins(self, count, programs):
        self._up()
        socket, self.added, self.certificates = self._socket("app", "http"), 0, 0
        if programs == count:
            processes = [self._connect(socket, ORIGIN_PORT) for _ in range(count)]
        else:
            processes = [self._run_services(socket, count)]
        self._until_up(socket, processes[-1], count)
        self.hosts[PAGES] = socket["dns_name"]
        self.bench.hosts({socket["dns_name"]: self.address})

    @property
    def guess_password(self):
        def guess(number):
            body = json.dumps({"email": f"somebody-{number}@example.com", "password": "a guess, and a wrong one"})
            return floods.guess_from(load.Target(f"api.{self.domain}", PUBLIC_PORT, tls=True), number, body)
        return guess

    def _run_services(self, socket, count):
        """So many tunnels of the socket, held by one client."""
        api = Api(self, self._token("bench"))
        made = [api.create(f"/v1/sockets/{socket['id']}/tunnels", {}) for _ in range(count)]
        return self._run("services.toml", [service_of(socket["id"], tunnel, "http", f"s{number}") for number, tunnel in enumerate(made)])

    def add_sockets(self, count):
        """All of them are held by one client more."""
        if not count:
            return
        api, sockets, tables = Api(self, self._token(f"more{self.added}")), [], []
        for _ in range(count):
            self.added += 1
            socket = api.create("/v1/sockets", {"name": f"more{self.added}", "type": "http"})["id"]
            made = api.create(f"/v1/sockets/{socket}/tunnels", {})
            tables.append(service_of(socket, made, "http", f"more{self.added}"))
            sockets.append(socket)
        process, deadline = self._run(f"more{self.added}.toml", tables), time.monotonic() + 60
        for socket in sockets:
            while not api.get(f"/v1/sockets/{socket}")["tunnels_up"]:
                process.check()
                if time.monotonic() > deadline:
                    raise Failed(f"not all of {count} more tunnels came up")
                time.sleep(0.1)

    def add_certificates(self, count):
        """Imported by the owner of the installation, and signed by nobody else."""
        key, chain = (os.path.join(self.bench.folder, f"certificate.{what}") for what in ("key", "pem"))
        for _ in range(count):
            self.certificates += 1
            name = f"certificate{self.certificates}.{self.domain}"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9",
                            "-subj", "/CN=bench", "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", chain],
                           capture_output=True, check=True)
            self._call("cert", "import", "--chain", chain, "--key", key)

    def start_tunnels(self, counts):
        self._up()
        for tunnel in range(counts[-1]):
            socket = self._socket(f"t{tunnel}", "http")
            process = self._connect(socket, ORIGIN_PORT)
            if tunnel + 1 in counts:
                self._until_up(socket, process)
                yield tunnel + 1


class SallyportTcp(TcpPort, Sallyport):
    about = "sallyport up, tcp sockets, sallyport tunnel connect"

    def start(self):
        self._up()
        for host, port in ORIGINS.items():
            socket = self._socket(host.split(".")[0], "tcp", "--public-port", str(PUBLISHED[host]))
            self._until_up(socket, self._connect(socket, port))


    def register_many(self, count):
        """So many sockets with a tunnel each, in the server's database, and what the client is told of them."""
        self.up_options = ("--port-range", f"{MANY_PORTS[0]}-{MANY_PORTS[-1]}", "--ports-per-account", str(len(MANY_PORTS)))
        self._up()
        api, tables = Api(self, self._token("bench")), []
        for tunnel in range(count):
            socket = api.create("/v1/sockets", {"name": f"s{tunnel}", "type": "tcp", "port": MANY_PORTS[tunnel]})
            made = api.create(f"/v1/sockets/{socket['id']}/tunnels", {})
            tables.append(service_of(socket["id"], made, "tcp", f"s{tunnel}"))
        self.services = self.file("services.toml", "".join(tables))
        os.chmod(self.services, 0o600)
        stop(self.processes)
        self.processes = []

    def start_many(self, count):
        self._serve()
        self.many = self.spawn("client", [self.bench.sallyport, "run", self.services, "--output", "json"], self._environment())
        self.wanted = 1
        return MANY_PORTS[:count]

    def serve_again(self):
        if hasattr(self, "many"):
            self.wanted += 1
        super().serve_again()

    def serves(self, tunnel, port):
        """The port is open as soon as the server runs: the tunnel is up when the client has said so since then."""
        self.many.check()
        if not hasattr(self, "said"):
            self.said, self.rest, self.times = open(self.many.log_path, errors="replace"), "", {}
            self.said.seek(self.many.log_from)
        *lines, self.rest = (self.rest + self.said.read()).split("\n")
        for line in lines:
            if line.startswith('{"event":"attached"'):
                service = json.loads(line)["service"]
                self.times[service] = self.times.get(service, 0) + 1
        return len(self.times) > tunnel and min(self.times.values()) >= self.wanted


class SallyportLossy(SallyportTcp):
    """On a link that loses packets, with the congestion control that is made for it."""

    about = "sallyport with BBR on the leg, at both ends"
    up_options = ("--tunnel-congestion", "bbr")
    connect_options = ("--congestion", "bbr")

    def start(self):
        self.api = self.leg
        super().start()


class SallyportCubic(SallyportLossy):
    name = "sallyport-cubic"
    about = "sallyport with cubic on the leg, which most kernels have by default"
    is_peer = False
    up_options = ("--tunnel-congestion", "cubic")
    connect_options = ("--congestion", "cubic")


class SallyportQuic(SallyportLossy):
    name = "sallyport-quic"
    about = "sallyport with its QUIC carrier, whose congestion control is cubic"
    is_peer = False
    up_options = ("--listen-quic",)
    connect_options = ("--transport", "quic")


class SallyportQuicBbr(SallyportLossy):
    name = "sallyport-quic-bbr"
    about = "sallyport with its QUIC carrier, with BBR of QUIC's own at both ends"
    is_peer = False
    up_options = (*SallyportQuic.up_options, *SallyportLossy.up_options)
    connect_options = (*SallyportQuic.connect_options, *SallyportLossy.connect_options)


class SallyportUdp(UdpPort, Sallyport):
    about = "sallyport up, a udp socket, sallyport tunnel connect"

    def start(self):
        self._up()
        socket = self._socket("echo", "udp", "--public-port", str(PUBLISHED[ECHO]))
        try:
            self._until_up(socket, self._connect(socket, ECHO_PORT))
        except Failed as error:
            if "no-datagrams" in str(error):
                raise Unavailable("its connector does not carry datagrams") from error
            raise


class SallyportSsh(TcpPort, Sallyport):
    about = "sallyport up, tcp sockets, one stock ssh -R for both"
    needs = ("ssh",)

    @classmethod
    def versions(cls, bench):
        return Sallyport.versions(bench) | {"ssh": client_version()}

    def start(self):
        self._up()
        key = make_key(self.bench.folder, "user")
        self._call("ssh-key", "add", f"{key}.pub", "--name", "bench")
        sockets = [(self._socket(host.split(".")[0], "tcp", "--public-port", str(PUBLISHED[host])), port)
                   for host, port in ORIGINS.items()]
        shown = [(self._call("socket", "show", socket["id"]), port) for socket, port in sockets]
        access = shown[0][0].get("ssh")
        if not access:
            raise Unavailable("this sallyport serves no ssh clients")
        # What its command says after -R, with the origin's port where PORT stands.
        forwards = [forward_of(socket["ssh"]["command"]).replace("localhost:PORT", f"127.0.0.1:{port}")
                    for socket, port in shown]
        known = self.file("known_hosts", "".join(line + "\n" for line in access["known_hosts"]))
        process = start_client(self, access["port"], f"{access['user']}@{access['host']}", forwards, key, known)
        for socket, _ in shown:
            self._until_up(socket, process)


class Api:
    """The server's API, by one connection."""

    def __init__(self, contender, token):
        trust = ssl.create_default_context(cafile=os.path.join(contender.data, "ca.pem"))
        self.connection = http.client.HTTPSConnection(f"api.{contender.domain}", PUBLIC_PORT, context=trust, timeout=30)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def create(self, path, what):
        return self._ask("POST", path, json.dumps(what))

    def get(self, path):
        return self._ask("GET", path)

    def _ask(self, method, path, body=None):
        while True:
            self.connection.request(method, path, body, self.headers)
            answer = self.connection.getresponse()
            said = answer.read()
            if answer.status < 300:
                return json.loads(said)
            if answer.status != 429:
                raise Failed(f"{method} {path}: {answer.status} {said[:200]!r}")
            time.sleep(1)


def service_of(socket, tunnel, kind, name):
    """A service of the file that `sallyport run` takes."""
    return f"""[[service]]
name = "{name}"
socket-id = "{socket}"
tunnel-id = "{tunnel['id']}"
tunnel-credential = "{tunnel['credential']}"
type = "{kind}"
host = "127.0.0.1"
port = {ORIGIN_PORT}
"""


def forward_of(command):
    words = shlex.split(command)
    return words[words.index("-R") + 1]
