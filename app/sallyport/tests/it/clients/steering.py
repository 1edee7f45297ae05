"""Requests at a steady rate to several edges, whatever the answers take, over connections that stay open.

    steering.py CA HOST PHASES

PHASES is JSON: [{"seconds": 5, "rps": {"127.0.0.1:8443": 60}}, ...]. Prints a line of JSON when a phase begins, and
one when it has ended: the answers by status, and the slowest answer in milliseconds.
"""

import asyncio
import collections
import json
import ssl
import sys
import time

CA, HOST, PHASES = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


class Edge:
    def __init__(self, address):
        self.ip, port = address.rsplit(":", 1)
        self.port = int(port)
        self.idle = []
        self.context = ssl.create_default_context(cafile=CA)

    async def request(self):
        """The status of one request; 0 if the connection broke."""
        try:
            if self.idle:
                reader, writer = self.idle.pop()
            else:
                opened = asyncio.open_connection(self.ip, self.port, ssl=self.context, server_hostname=HOST)
                reader, writer = await opened
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


async def timed(edge, statuses, slowest):
    began = time.monotonic()
    statuses[await edge.request()] += 1
    slowest[0] = max(slowest[0], time.monotonic() - began)


async def main():
    edges = {}
    for number, phase in enumerate(PHASES):
        print(json.dumps({"begins": number}), flush=True)
        statuses, slowest, tasks = collections.Counter(), [0.0], []
        began, sent = time.monotonic(), collections.Counter()
        while (elapsed := time.monotonic() - began) < phase["seconds"]:
            for address, rps in phase["rps"].items():
                edge = edges.setdefault(address, Edge(address))
                while sent[address] < elapsed * rps:
                    sent[address] += 1
                    tasks.append(asyncio.create_task(timed(edge, statuses, slowest)))
            await asyncio.sleep(0.004)
        await asyncio.gather(*tasks)
        print(json.dumps({"ended": number, "statuses": statuses, "slowest_ms": slowest[0] * 1e3}), flush=True)


asyncio.run(main())
