"""A WebSocket echo service and a client of it, by the websockets package.

serve                      prints its port, then serves
call CA HOST PORT          talks through the edge and checks what comes back
"""

import asyncio
import ssl
import sys

import websockets


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def serve():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


async def call(ca, host, port):
    context = ssl.create_default_context(cafile=ca)
    async with websockets.connect(
        f"wss://{host}:{port}/chat", ssl=context, host="127.0.0.1", port=int(port), max_size=None
    ) as connection:
        for message in ("hello", "ü" * 1000, b"\x00\xff" * 500_000, ""):
            await connection.send(message)
            assert await asyncio.wait_for(connection.recv(), 30) == message
        pong = await connection.ping()
        await asyncio.wait_for(pong, 30)
        many = [connection.send(str(number)) for number in range(500)]
        await asyncio.gather(*many)
        for number in range(500):
            assert await asyncio.wait_for(connection.recv(), 30) == str(number)
    assert connection.close_code == 1000, connection.close_code
    print("all messages came back")


if __name__ == "__main__":
    asyncio.run({"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:]))
