"""The published mysocketctl with its addresses changed: original_client.py API_URL SSH_PORT ARGUMENT..."""

import importlib
import socket
import sys

import paramiko

API, SSH_PORT = sys.argv.pop(1), int(sys.argv.pop(1))

# Not every system knows the names below localhost.
ask_system = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    return ask_system("127.0.0.1" if str(host).endswith(".localhost") else host, *args, **kwargs)


def connect(self, host, port=22, *args, **kwargs):
    """For its own engine, Paramiko, which reads no ~/.ssh/config."""
    if host == "ssh.mysocket.io":
        host, port = "127.0.0.1", SSH_PORT
    return connect_ssh(self, host, port, *args, **kwargs)


socket.getaddrinfo = getaddrinfo
connect_ssh, paramiko.SSHClient.connect = paramiko.SSHClient.connect, connect

# Every module has its own copy of the address.
for name in ("utils", "account", "login", "connect", "socket", "tunnel"):
    importlib.import_module("mysocketctl." + name).api_url = API

importlib.import_module("mysocketctl.mysocketcli").cli()
