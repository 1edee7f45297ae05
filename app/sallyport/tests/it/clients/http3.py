"""An HTTP/3 service and a client of it, by the aioquic package.

serve FOLDER               writes its certificate into the folder, prints its port, then serves
call CERTIFICATE PORT      downloads and uploads through the port and checks what comes back
door CA HOST PORT          as a client of HTTP/3 of an edge whose origin answers with what it got
"""

import asyncio
import hashlib
import os
import ssl
import subprocess
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

DOWNLOAD = b"0123456789abcdef" * 200_000
UPLOAD = b"fedcba9876543210" * 50_000


class Http3(QuicConnectionProtocol):
    """Collects what comes on each stream; `over` is called when one is at its end."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.streams = {}

    def quic_event_received(self, event):
        for found in self.http.handle_event(event):
            if not isinstance(found, (HeadersReceived, DataReceived)):
                continue
            headers, body = self.streams.setdefault(found.stream_id, ({}, bytearray()))
            if isinstance(found, HeadersReceived):
                headers.update(found.headers)
            else:
                body.extend(found.data)
            if found.stream_ended:
                del self.streams[found.stream_id]
                self.over(found.stream_id, headers, bytes(body))

    def send(self, stream, headers, body):
        self.http.send_headers(stream, headers, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()


class Service(Http3):
    def over(self, stream, headers, body):
        answer = DOWNLOAD if headers[b":method"] == b"GET" else hashlib.sha256(body).hexdigest().encode()
        self.send(stream, [(b":status", b"200"), (b"content-length", str(len(answer)).encode())], answer)


class Client(Http3):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.waiting = {}
        self.host = b"localhost"

    def over(self, stream, headers, body):
        self.waiting.pop(stream).set_result((headers[b":status"], body))

    async def ask(self, method, body=b"", path=b"/", more=()):
        stream = self._quic.get_next_available_stream_id()
        self.waiting[stream] = asyncio.get_running_loop().create_future()
        answer = self.waiting[stream]
        headers = [(b":method", method), (b":scheme", b"https"), (b":authority", self.host), (b":path", path)]
        self.send(stream, headers + list(more), body)
        return await asyncio.wait_for(answer, 60)


async def run_service(folder):
    certificate, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", certificate, "-keyout", key],
        check=True,
        capture_output=True,
    )
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(certificate, key)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Service)
    print("port", server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Future()


async def call(certificate, port):
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name="localhost", verify_mode=ssl.CERT_REQUIRED)
    configuration.load_verify_locations(certificate)
    async with connect("127.0.0.1", int(port), configuration=configuration, create_protocol=Client) as client:
        assert await client.ask(b"GET") == (b"200", DOWNLOAD)
        status, answer = await client.ask(b"POST", UPLOAD)
        assert (status, answer.decode()) == (b"200", hashlib.sha256(UPLOAD).hexdigest())
        both = await asyncio.gather(client.ask(b"POST", b"a"), client.ask(b"POST", b"b"))
        assert [answer.decode() for _, answer in both] == [hashlib.sha256(word).hexdigest() for word in (b"a", b"b")]
    print("all answers came")


async def door(ca, host, port):
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name=host, verify_mode=ssl.CERT_REQUIRED)
    configuration.load_verify_locations(ca)
    async with connect("127.0.0.1", int(port), configuration=configuration, create_protocol=Client) as client:
        client.host = f"{host}:{port}".encode()
        status, answer = await client.ask(b"GET", path=b"/bytes/3000000")
        assert (status, len(answer)) == (b"200", 3_000_000)
        status, answer = await client.ask(b"POST", UPLOAD, more=[(b"content-length", str(len(UPLOAD)).encode())])
        assert status == b"200" and answer.endswith(UPLOAD)
        answers = await asyncio.gather(*(client.ask(b"GET", path=b"/%d" % number) for number in range(150)))
        assert all(answer.startswith(b"origin GET /%d\n" % number) for number, (_, answer) in enumerate(answers))
        # The client changes its connection ID, and asks for new keys, in the middle.
        client.change_connection_id()
        client.request_key_update()
        status, answer = await client.ask(b"GET", path=b"/again")
        assert answer.startswith(b"origin GET /again\n")
    print("all answers came")


if __name__ == "__main__":
    asyncio.run({"serve": run_service, "call": call, "door": door}[sys.argv[1]](*sys.argv[2:]))
