"""What contenders have in common, the names and ports of the stage, and how one says that it is ready."""

import os
import subprocess

import load
from harness import Failed, Process, Unavailable, accepts

#: Where HTTPS is served, for both names.
PUBLIC_PORT = 20443
#: Where the origins listen.
ORIGIN_PORT = 8080
SINK_PORT = 8081
ECHO_PORT = 8053
DOMAIN = "bench.test"
#: The address and the domain of a second instance that runs at the same time.
BESIDE, BESIDE_DOMAIN = "127.0.0.3", "beside.test"
PAGES = f"app.{DOMAIN}"
SINK = f"sink.{DOMAIN}"
ECHO = f"echo.{DOMAIN}"
#: The origins of what is carried as a stream, and the ports that they are published at without TLS.
ORIGINS = {PAGES: ORIGIN_PORT, SINK: SINK_PORT}
PUBLISHED = {PAGES: 20080, SINK: 20081, ECHO: 20053}


class Contender:
    """One way to bring a private service to the public."""

    name = ""
    about = ""
    #: Ports of the server that clients dial, which the delay relay stands in front of.
    leg_ports = ()
    #: Whether one tunnel is one client process of its own.
    has_tunnels = False
    #: Programs that `scripts/tools` builds, and whether the others go on without this contender when it cannot.
    tools = ()
    is_optional = False
    #: Programs that a run with it cannot do without, beside those that every run needs.
    needs = ()
    #: Whether it is what Sallyport is: an encrypted tunnel to an origin that cannot be reached. Others are references.
    is_peer = True
    #: The rows that it is measured in; none: all of its sets.
    rows = None
    #: How many connections it can be told to hold where a process may have 20,000 descriptors; none: as many as there may be.
    max_connections = None
    #: The cipher that a stock ssh client is told to use; by itself it takes the first that both sides know.
    cipher = None

    def __init__(self, bench):
        self.bench = bench
        #: Where it listens, and what its names end with.
        self.address, self.domain = "127.0.0.1", DOMAIN
        self.leg = "127.0.0.1"
        #: Where the server listens for its clients, and what the commands of clients begin with; on a link that loses
        #: packets, both sides have a namespace of their own.
        self.bind = "127.0.0.1"
        self.client_prefix = []
        self.processes = []
        #: The names that clients use; a contender that makes up its own puts them here.
        self.hosts = {PAGES: PAGES, SINK: SINK}

    def beside(self):
        """Another one of the same, with an address, names and files of its own, so that both can run at the same time."""
        other = type(self)(self.bench)
        other.name, other.domain = f"{self.name}-beside", BESIDE_DOMAIN
        other.address = other.leg = other.bind = BESIDE
        other.hosts = {name: name.replace(DOMAIN, BESIDE_DOMAIN) for name in other.hosts}
        self.bench.hosts({name: BESIDE for name in other.hosts.values()})
        return other

    def spawn(self, role, argv, env=None):
        prefix = self.client_prefix if role == "client" else []
        process = Process(self.bench.folder, f"{self.name}-{role}", [*prefix, *argv], env)
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
        """What was started, for others to read: without where things lie on this machine."""
        def word(text):
            is_program = os.path.isabs(text) and os.path.isfile(text) and os.access(text, os.X_OK)
            return os.path.basename(text) if is_program else text.replace(self.bench.folder, "FOLDER")
        return [" ".join(map(word, process.argv)) for process in self.processes]

    @classmethod
    def versions(cls, bench):
        """{program: version} of what this contender runs."""
        raise NotImplementedError

    def start(self):
        raise NotImplementedError

    def start_tunnels(self, counts):
        """The server, then idle tunnels, each with a client of its own. A generator: yields each of the counts, which
        rise, once so many tunnels are up."""
        raise NotImplementedError

    def start_serving(self):
        """The server alone; gives its milliseconds from nothing to serving, by figure."""
        raise Unavailable(f"it is not measured how fast {self.name} starts")

    def serve_again(self):
        """The server as it was, after it has ended."""
        raise Unavailable(f"it is not measured how {self.name} comes back")

    def register_many(self, count):
        """What a server has to know of so many tunnels before it starts, where that does not stand in a file of its."""

    def start_many(self, count):
        """The server, and so many tunnels held by one client; gives the ports of all."""
        raise Unavailable(f"{self.name} has no client that holds many tunnels")

    def start_origins(self, count, programs):
        """The server, and so many origins of one service: held by one program on the far side, or by as many as there are
        origins."""
        raise Unavailable(f"{self.name} is not measured with many origins")

    @property
    def guess_password(self):
        """A function that logs in with a wrong password from a number's own address, and gives the status."""
        raise Unavailable(f"{self.name} judges no passwords of people")

    def add_sockets(self, count):
        """So many services more, without origins."""
        raise Unavailable(f"{self.name} has no services that come and go")

    def add_certificates(self, count):
        """So many certificates more, for names of the server."""
        raise Unavailable(f"{self.name} has no certificates that come and go")

    def serves(self, tunnel, port):
        """Whether this one of many tunnels is up: by itself, whether its port takes connections."""
        return accepts(port)

    def programs(self):
        """The files that people install."""
        return [self.bench.tool(tool) for tool in self.tools]

    def target(self, name):
        """Where clients reach an origin: HTTPS at one port."""
        return load.Target(self.hosts[name], PUBLIC_PORT, tls=True)

    def try_once(self, names=ORIGINS):
        """Reaches these origins once, and fails while that is not possible."""
        for name in names:
            load.one_request(self.target(name), "/100b", seconds=5)


class TcpPort:
    """For a contender that publishes each origin at a TCP port of its own."""

    def target(self, name):
        return load.Target("127.0.0.1", PUBLISHED[name], tls=False)


class UdpPort:
    """For a contender that publishes the origin of datagrams at a UDP port."""

    def target(self, name):
        return load.Target("127.0.0.1", PUBLISHED[name], tls=False)

    def try_once(self):
        load.one_datagram(self.target(ECHO))


def first_line(*argv):
    """What a program says first, on either output; most say their version so."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        return (done.stdout + done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{argv[0]} does not say its version: {error}") from error
