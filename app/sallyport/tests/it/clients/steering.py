"""Requests at a steady rate to several edges, whatever the answers take, over connections that stay open.

    steering.py CA HOST PHASES

PHASES is JSON: [{"seconds": 5, "rps": {"127.0.0.1:8443": 60}}, ...]. A phase without seconds lasts until the next line
of the standard input. Prints a line of JSON when a phase begins, and one when it has ended: the answers by status, the
slowest answer in milliseconds, and until when requests had to wait or were refused, in seconds from the begin of the
phase. A request has waited if its answer took longer than the "prompt_ms" of the phase, 250 by default. With
"connections" in the first phase, each edge gets so many before that phase begins, and never more. A phase with
"at_once": true sends from the moment on at which the former phase sends no more, without a pause for its answers; the
lines come in the same order.
"""

import asyncio
import collections
import json
import os
import ssl
import sys
import time

CA, HOST, PHASES = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


class Edge:
    def __init__(self, address, most):
        self.places = asyncio.Semaphore(most or sys.maxsize)
        self.ip, port = address.rsplit(":", 1)
        self.port = int(port)
        self.idle = []
        self.context = ssl.create_default_context(cafile=CA)

    async def open(self):
        return await asyncio.open_connection(self.ip, self.port, ssl=self.context, server_hostname=HOST)

    async def request(self):
        """The status of one request; 0 if the connection broke."""
        async with self.places:
            try:
                reader, writer = self.idle.pop() if self.idle else await self.open()
                writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n\r\n".encode())
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                status = int(head.split(b" ", 2)[1])
                fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:] if b": " in line)
                await reader.readexactly(int(fields.get(b"content-length", b"0")))
                if fields.get(b"connection") == b"close":
                    writer.close()
                else:
                    self.idle.append((reader, writer))
                return status
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                return 0


class Phase:
    def __init__(self, phase):
        self.began, self.seconds, self.rps = time.monotonic(), phase.get("seconds"), phase["rps"]
        self.prompt = phase.get("prompt_ms", 250) / 1e3
        self.statuses, self.slowest, self.waited_until = collections.Counter(), 0.0, 0.0

    def lasts(self, elapsed, lines):
        return lines.count == 0 if self.seconds is None else elapsed < self.seconds

    async def request(self, edge):
        began = time.monotonic()
        status = await edge.request()
        took = time.monotonic() - began
        self.statuses[status] += 1
        self.slowest = max(self.slowest, took)
        if status != 200 or took > self.prompt:
            self.waited_until = max(self.waited_until, began - self.began)


class Lines:
    """The lines of the standard input, to be taken one by one."""

    def __init__(self):
        self.count = 0

    def read(self):
        text = os.read(0, 4096)
        self.count += text.count(b"\n")
        if not text:
            sys.exit("the standard input has ended before the last phase")


async def begin(number, former):
    """Says that a phase has begun, after the former one is reported."""
    await former
    print(json.dumps({"begins": number}), flush=True)


async def end(number, phase, tasks, begun):
    """Waits for the answers of a phase, and reports them."""
    await begun
    await asyncio.gather(*tasks)
    ended = {"ended": number, "statuses": phase.statuses, "slowest_ms": phase.slowest * 1e3}
    print(json.dumps(ended | {"waited_until": phase.waited_until}), flush=True)


async def main():
    edges, lines, most = {}, Lines(), PHASES[0].get("connections", 0)
    for address in PHASES[0]["rps"] if most else ():
        edges[address] = Edge(address, most)
        for _ in range(most):
            edges[address].idle.append(await edges[address].open())
    if any("seconds" not in phase for phase in PHASES):
        asyncio.get_running_loop().add_reader(0, lines.read)
    former = asyncio.create_task(asyncio.sleep(0))
    for number, phase in enumerate(PHASES):
        if not phase.get("at_once"):
            await former
        former = asyncio.create_task(begin(number, former))
        tasks, sent, phase = [], collections.Counter(), Phase(phase)
        while phase.lasts(elapsed := time.monotonic() - phase.began, lines):
            for address, rps in phase.rps.items():
                edge = edges.get(address) or edges.setdefault(address, Edge(address, most))
                while sent[address] < elapsed * rps:
                    sent[address] += 1
                    tasks.append(asyncio.create_task(phase.request(edge)))
            await asyncio.sleep(0.004)
        if phase.seconds is None:
            lines.count -= 1
        former = asyncio.create_task(end(number, phase, tasks, former))
    await former


asyncio.run(main())
