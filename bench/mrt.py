"""A full table: the prefixes of a MRT file, through BIRD into the table that forwards, with BIRD killed and restarted meanwhile.

The file is a dump of RIPE RIS or RouteViews (`--mrt FILE`, TABLE_DUMP_V2 of RFC 6396). Without one, a file is made whose prefixes
have the lengths that those of the internet have. The router gives prefixes of an even length another next hop than others, so
each sampled address tells whether its longest match counts.
"""

import bz2
import gzip
import ipaddress
import os
import random
import re
import signal
import struct
import time
import zlib

import full_table
import packet
from full_table import HOP, OTHER_HOP, PATIENCE_S
from harness import Failed, Unavailable

#: Types of records (RFC 6396).
TABLE_DUMP_V2, PEER_INDEX_TABLE, RIB_IPV4_UNICAST = 13, 1, 2
#: Bounds of what is read.
MAX_RECORD, MAX_PREFIXES = 1 << 22, 2_000_000
#: How many of 100,000 prefixes of the internet have each length.
LENGTHS = {8: 2, 9: 2, 10: 4, 11: 11, 12: 31, 13: 60, 14: 125, 15: 215, 16: 1_410, 17: 870, 18: 1_440, 19: 2_560, 20: 4_660, 21: 5_500,
           22: 11_500, 23: 10_300, 24: 61_310}
#: The prefixes of a made file.
COUNT = 950_000
#: Networks that a table does not announce here: those of the benchmark, and those that are none.
LEFT_OUT = [ipaddress.ip_network(network) for network in ("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "198.18.0.0/15", "224.0.0.0/3")]
#: Addresses that are looked up.
SAMPLES = 60


def opened(path):
    """The file, whatever packs it."""
    with open(path, "rb") as file:
        magic = file.read(3)
    return (gzip.open if magic[:2] == b"\x1f\x8b" else bz2.open if magic == b"BZh" else open)(path, "rb")


def read(path):
    """The prefixes of IPv4 in the file, each once, as pairs of first address and length."""
    found = set()
    with opened(path) as file:
        while header := file.read(12):
            if len(header) < 12:
                raise ValueError(f"{path} ends within a record")
            _, kind, subtype, length = struct.unpack("!IHHI", header)
            if length > MAX_RECORD:
                raise ValueError(f"{path} has a record of {length} bytes: it is no MRT file")
            body = file.read(length)
            if len(body) < length:
                raise ValueError(f"{path} ends within a record")
            if (kind, subtype) != (TABLE_DUMP_V2, RIB_IPV4_UNICAST) or length < 5:
                continue
            bits = body[4]
            octets = body[5:5 + (bits + 7) // 8]
            if bits > 32 or len(octets) < (bits + 7) // 8:
                raise ValueError(f"{path} has a prefix of {bits} bits")
            address = int.from_bytes(octets.ljust(4, b"\0"), "big") >> (32 - bits) << (32 - bits)
            found.add((address, bits))
            if len(found) > MAX_PREFIXES:
                raise ValueError(f"{path} has more than {MAX_PREFIXES} prefixes")
    if not found:
        raise ValueError(f"{path} has no RIB of IPv4 (TABLE_DUMP_V2)")
    return sorted(found)


def write(path, prefixes):
    """A MRT file of these prefixes, each with a route of one peer."""
    def record(subtype, body):
        return struct.pack("!IHHI", 1_700_000_000, TABLE_DUMP_V2, subtype, len(body)) + body

    peer = struct.pack("!BIII", 2, 1, 1, 65_002)  # its flags (AS of 4 bytes), BGP id, address and AS
    # Origin IGP, and a path of one AS.
    attributes = bytes([0x40, 1, 1, 0]) + bytes([0x40, 2, 6, 2, 1]) + struct.pack("!I", 65_002)
    entry = struct.pack("!HHIH", 1, 0, 1_700_000_000, len(attributes)) + attributes
    with open(path, "wb") as file:
        file.write(record(PEER_INDEX_TABLE, struct.pack("!IHH", 1, 0, 1) + peer))
        for number, (address, bits) in enumerate(prefixes):
            octets = address.to_bytes(4, "big")[:(bits + 7) // 8]
            file.write(record(RIB_IPV4_UNICAST, struct.pack("!IB", number, bits) + octets + entry))


def is_left_out(address, bits):
    return bits == 0 or any((address ^ int(net.network_address)) >> (32 - min(bits, net.prefixlen)) == 0 for net in LEFT_OUT)


def made(count=COUNT, seed=1):
    """Prefixes with the lengths of those of the internet, longer ones within shorter ones as chance has it."""
    chance, found = random.Random(seed), set()
    total = sum(LENGTHS.values())
    for bits, share in LENGTHS.items():
        most, tries = max(1, count * share // total), 0
        before = len(found)
        # Of short prefixes there are few: not each of them may be free.
        while len(found) - before < most and tries < 4 * most + 100:
            tries += 1
            address = chance.getrandbits(bits) << (32 - bits)
            if not is_left_out(address, bits):
                found.add((address, bits))
    return sorted(found)


def text(prefix):
    return f"{ipaddress.ip_address(prefix[0])}/{prefix[1]}"


def longest(table, address):
    """The length of the longest prefix of a set that has the address; none without."""
    return next((bits for bits in range(32, -1, -1) if (address >> (32 - bits) << (32 - bits), bits) in table), None)


def check(contender, bed, table):
    """Fails unless sampled addresses go by the next hop of their longest match."""
    chance, members = random.Random(2), set(table)
    for address, bits in chance.sample(table, min(SAMPLES, len(table))):
        address += chance.getrandbits(32 - bits)
        wanted = OTHER_HOP if longest(members, address) % 2 == 0 else HOP
        found = contender.hop(bed, str(ipaddress.ip_address(address)))
        if found != wanted:
            raise Failed(f"{ipaddress.ip_address(address)} goes by {found}, and not by {wanted}")


def near(bed, *flags):
    even = ", ".join(map(str, range(0, 33, 2)))
    config = f"""router id 10.0.1.1; protocol device {{}} graceful restart wait 120;
protocol kernel {{ graceful restart; ipv4 {{ import none; export all; }}; }}
protocol bgp far {{ local 10.0.1.1 as 65001; neighbor {HOP} as 65002; graceful restart on; connect delay time 1; error wait time 1, 2;
  ipv4 {{ import filter {{ if net.len ~ [ {even} ] then gw = {OTHER_HOP}; accept; }}; export none; }}; }}"""
    return full_table.bird(bed, "near", bed.router, config, *flags)


def has_all(bed, count):
    """Whether the router's BIRD has so many routes of its neighbour, and waits for no more."""
    try:
        said = packet.run(["birdc", "-s", os.path.join(bed.folder, "near.ctl"), "show", "route", "count"],
                          env={"PATH": f"{os.environ['PATH']}:/usr/sbin"})
    except Failed:
        return False
    routes = re.search(r"^(\d+) of \d+ routes", said, re.MULTILINE)
    return bool(routes) and int(routes[1]) >= count


def table_of(bed):
    path = os.environ.get("BENCH_MRT")
    if not path:
        path = os.path.join(bed.folder, "made.mrt")
        write(path, made())
    try:
        return [prefix for prefix in read(path) if not is_left_out(*prefix)]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Unavailable(str(error)) from error


def restart(contender, seconds):
    """From the start of BIRD until the table of the file forwards; then BIRD is killed, and started again."""
    def prepare(bed):
        bed.inside(bed.router, "ip", "neigh", "add", OTHER_HOP, "lladdr", packet.mac("s0"), "dev", "d1", "nud", "permanent")

    with packet.bed_of(contender, prepare=prepare) as bed:
        table = table_of(bed)
        own = contender.routes(bed)
        full_table.far_bird(bed, map(text, table), "graceful restart on;")
        began = time.monotonic()
        process = near(bed)
        packet.until(lambda: process.check() or os.path.exists(os.path.join(bed.folder, "near.ctl")), "socket of BIRD")
        contender.wait_routes(bed, own + len(table), PATIENCE_S)
        took = time.monotonic() - began
        check(contender, bed, table)
        os.kill(process.pid, signal.SIGKILL)
        process.child.wait()
        os.unlink(os.path.join(bed.folder, "near.ctl"))
        check(contender, bed, table)
        began, least = time.monotonic(), contender.routes(bed)
        again = near(bed, "-R")
        while not has_all(bed, len(table)):
            again.check()
            least = min(least, contender.routes(bed))
            if time.monotonic() - began > PATIENCE_S:
                raise Failed(f"BIRD does not have {len(table)} routes again")
            time.sleep(0.1)
        back = time.monotonic() - began
        check(contender, bed, table)
        return {"table_s": took, "restart_s": back, "kept_percent": (least - own) * 100 / len(table), "prefixes": len(table)}
