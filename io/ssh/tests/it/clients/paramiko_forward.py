"""Paramiko as `ssh -R`: paramiko_forward.py PORT USER KEY KNOWN_HOSTS REMOTE_PORT LOCAL_PORT"""

import socket
import sys
import threading

import paramiko

port, user, key, known_hosts, remote_port, local_port = sys.argv[1:]


def pump(receive, send, finish):
    while data := receive(65536):
        send(data)
    finish()


def serve(channel):
    origin = socket.create_connection(("127.0.0.1", int(local_port)))
    to_origin = (channel.recv, origin.sendall, lambda: origin.shutdown(socket.SHUT_WR))
    threading.Thread(target=pump, args=to_origin, daemon=True).start()
    pump(origin.recv, channel.sendall, channel.shutdown_write)


client = paramiko.SSHClient()
client.load_host_keys(known_hosts)
client.connect("127.0.0.1", int(port), user, key_filename=key, allow_agent=False, look_for_keys=False)
transport = client.get_transport()
transport.request_port_forward("", int(remote_port))
transport.renegotiate_keys()
while True:
    if (channel := transport.accept(1)) is not None:
        threading.Thread(target=serve, args=(channel,), daemon=True).start()
