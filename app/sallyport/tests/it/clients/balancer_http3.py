"""HTTP/3 by the aioquic package: each connection asks, moves to another port of its own, and asks again."""

import asyncio
import json
import socket
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

ANSWER_SECONDS = 30


class Http3(QuicConnectionProtocol):
    """Waits for the status of each response."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.waiting = {}

    def quic_event_received(self, event):
        for found in self.http.handle_event(event):
            if isinstance(found, HeadersReceived) and found.stream_id in self.waiting:
                self.waiting.pop(found.stream_id).set_result(dict(found.headers)[b":status"])

    async def ask(self, host, port):
        stream = self._quic.get_next_available_stream_id()
        answer = self.waiting[stream] = asyncio.get_running_loop().create_future()
        headers = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", f"{host}:{port}".encode()),
            (b":path", b"/"),
        ]
        self.http.send_headers(stream, headers, end_stream=True)
        self.transmit()
        return await asyncio.wait_for(answer, ANSWER_SECONDS) == b"200"

    async def move(self):
        """Sends from another port from now on, without a word to the server."""
        taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(("::", 0))
        protocol = self

        class Receiver(asyncio.DatagramProtocol):
            def datagram_received(self, data, address):
                protocol.datagram_received(data, address)

        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(Receiver, sock=taken)


async def main():
    address, port, host, roots, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
    answered, moved, servers = 0, 0, set()
    for _ in range(count):
        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=host)
        configuration.load_verify_locations(roots)
        async with connect(address, port, configuration=configuration, create_protocol=Http3) as connection:
            answered += await connection.ask(host, port)
            identity = connection._quic._peer_cid.cid
            servers.add(int.from_bytes(identity[1:3], "big") if identity[0] == len(identity) - 1 else -1)
            await connection.move()
            moved += await connection.ask(host, port)
    print(json.dumps({"answered": answered, "moved": moved, "servers": sorted(servers)}))


asyncio.run(main())
