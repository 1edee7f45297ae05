"""Connections over TLS to one address, which stay open. Words on the standard input: `open N`, `ask`."""

import json
import socket
import ssl
import sys

address, port, host, roots = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
context = ssl.create_default_context(cafile=roots)
connections = []
said = []
closing = set()


def ask(connection):
    """Whether a request on the connection is answered by 200. The server may say that it closes the connection."""
    try:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            got = connection.recv(65536)
            if not got:
                return False
            head += got
        head, body = head.split(b"\r\n\r\n", 1)
        lines = head.decode().lower().split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
        while len(body) < length:
            got = connection.recv(65536)
            if not got:
                return False
            body += got
        said.append(lines[0])
        if "connection: close" in lines:
            closing.add(connection)
        return " 200 " in lines[0] + " "
    except OSError as error:
        said.append(repr(error))
        return False


def connect():
    """A connection whose first request was answered; `None` if that fails."""
    try:
        plain = socket.create_connection((address, port), timeout=20)
        connection = context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        said.append(repr(error))
        return None
    return connection if ask(connection) else None


print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "open":
        made = [connect() for _ in range(int(rest))]
        connections += [connection for connection in made if connection]
        print(json.dumps({"opened": sum(1 for connection in made if connection), "last": said[-1:]}), flush=True)
    elif word == "ask":
        answered = [connection for connection in connections if ask(connection)]
        print(json.dumps({"answered": len(answered), "of": len(connections), "last": said[-1:]}), flush=True)
        connections = [connection for connection in answered if connection not in closing]
