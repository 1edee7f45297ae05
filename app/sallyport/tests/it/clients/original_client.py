"""The published mysocketctl with its address changed: original_client.py API_URL ARGUMENT..."""

import importlib
import socket
import sys

API = sys.argv.pop(1)

# Not every system knows the names below localhost.
ask_system = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    return ask_system("127.0.0.1" if str(host).endswith(".localhost") else host, *args, **kwargs)


socket.getaddrinfo = getaddrinfo

# Every module has its own copy of the address.
for name in ("utils", "account", "login", "connect", "socket", "tunnel"):
    importlib.import_module("mysocketctl." + name).api_url = API

importlib.import_module("mysocketctl.mysocketcli").cli()
