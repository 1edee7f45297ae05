"""Authoritative name servers, each with one zone of the same names, on one processor."""

import os
import socket
import struct

from harness import Failed

from .base import DOMAIN, Contender, first_line
from .sallyport import Sallyport

#: Where they answer, over UDP and TCP.
DNS_PORT = 20054
#: The names with an address, and one that has no names below.
NAMES = tuple(f"{label}.{DOMAIN}" for label in ("api", "login", "tunnel", "ns1"))
LEAF = f"ns1.{DOMAIN}"
ZONE = f"""$ORIGIN {DOMAIN}.
$TTL 60
@ SOA ns1 hostmaster 1 3600 600 1209600 60
@ NS ns1
@ A 127.0.0.1
* A 127.0.0.1
""" + "".join(f"{name}. A 127.0.0.1\n" for name in NAMES)


def question(name, number=1):
    """A query for the address of a name, as bytes."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)


class NameServer(Contender):
    """A server of the zone at `DNS_PORT`."""

    #: Whether it signs what it answers when it is asked.
    signs = False

    def try_once(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(1)
            asker.connect(("127.0.0.1", DNS_PORT))
            asker.send(question(NAMES[0]))
            answer = asker.recv(4_096)
        if answer[3] & 15 != 0 or answer[6:8] != b"\0\1":
            raise Failed(f"{self.name} does not know {NAMES[0]}")

    def zone_file(self):
        return self.file("zone", ZONE)


class SallyportNames(NameServer, Sallyport):
    about = "`sallyport up --listen-dns`: the zone of the installation, signed when it is asked"
    up_options = ("--listen-dns", f"127.0.0.1:{DNS_PORT}", "--dns-rate-limit", "0")
    signs = True

    def start(self):
        self.data = os.path.join(self.bench.folder, "sallyport-names")
        self._serve()


class Knot(NameServer):
    name = "knot"
    about = "Knot DNS, one worker of each kind"
    module = ""

    @classmethod
    def versions(cls, bench):
        return {"knot": first_line("knotd", "--version")}

    def start(self):
        folder = os.path.join(self.bench.folder, self.name)
        os.makedirs(folder, exist_ok=True)
        conf = self.file("knot.conf", f"""server:
  listen: 127.0.0.1@{DNS_PORT}
  rundir: {folder}
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
log:
  - target: stderr
    any: warning
database:
  storage: {folder}
zone:
  - domain: {DOMAIN}
    file: {self.zone_file()}
{self.module}""")
        self.spawn("server", ["knotd", "-c", conf])


class KnotOnlineSign(Knot):
    name = "knot-onlinesign"
    about = "Knot DNS with mod-onlinesign, which signs when it is asked"
    module = "    module: mod-onlinesign\n"
    signs = True


class Nsd(NameServer):
    name = "nsd"
    about = "NSD, one server"

    @classmethod
    def versions(cls, bench):
        return {"nsd": first_line("nsd", "-v")}

    def start(self):
        folder = os.path.join(self.bench.folder, self.name)
        os.makedirs(folder, exist_ok=True)
        conf = self.file("nsd.conf", f"""server:
  ip-address: 127.0.0.1@{DNS_PORT}
  server-count: 1
  username: ""
  chroot: ""
  database: ""
  pidfile: "{folder}/nsd.pid"
  zonelistfile: "{folder}/zone.list"
  xfrdfile: "{folder}/xfrd.state"
  xfrdir: "{folder}"
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: {DOMAIN}
  zonefile: {self.zone_file()}
""")
        self.spawn("server", ["nsd", "-d", "-c", conf])


class Gdnsd(NameServer):
    name = "gdnsd"
    about = "gdnsd, one thread of each kind"

    @classmethod
    def versions(cls, bench):
        return {"gdnsd": first_line("gdnsd", "version")}

    def start(self):
        folder = os.path.join(self.bench.folder, self.name)
        os.makedirs(f"{folder}/zones", exist_ok=True)
        with open(f"{folder}/zones/{DOMAIN}", "w") as file:
            file.write(ZONE)
        with open(f"{folder}/config", "w") as file:
            file.write(f"options => {{ listen => [ 127.0.0.1:{DNS_PORT} ], udp_threads => 1, tcp_threads => 1, run_dir => {folder}, "
                       f"state_dir => {folder} }}\n")
        self.spawn("server", ["gdnsd", "-c", folder, "start"])
