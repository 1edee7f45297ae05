"""libssh2 as `ssh -R`: libssh2_forward.py PORT USER KEY KNOWN_HOSTS REMOTE_PORT LOCAL_PORT

The key of the server is not compared; that is for the caller of libssh2, and the other clients do it.
"""

import select
import socket
import sys

from ssh2.error_codes import LIBSSH2_ERROR_EAGAIN
from ssh2.session import Session

port, user, key, known_hosts, remote_port, local_port = sys.argv[1:]

server = socket.create_connection(("127.0.0.1", int(port)))
session = Session()
session.handshake(server)
session.userauth_publickey_fromfile(user, key, "", key + ".pub")
listener, _ = session.forward_listen_ex(16, "", int(remote_port))


def pump(channel, origin):
    """Both ways, without threads: a session is for one at a time."""
    waiting = b""
    while True:
        select.select([server, origin], [], [], 0.01)
        size, data = channel.read(65536)
        while size > 0:
            origin.setblocking(True)
            origin.sendall(data)
            origin.setblocking(False)
            size, data = channel.read(65536)
        if channel.eof():
            break
        try:
            if len(waiting) < 65536:
                more = origin.recv(65536)
                waiting += more
                if not more:
                    break
        except BlockingIOError:
            pass
        if waiting:
            code, count = channel.write(waiting)
            waiting = waiting[count:]
            if code < 0 and code != LIBSSH2_ERROR_EAGAIN:
                raise OSError(code)
    session.set_blocking(True)
    channel.close()
    origin.close()


while True:
    session.set_blocking(True)
    channel = listener.forward_accept()
    origin = socket.create_connection(("127.0.0.1", int(local_port)))
    origin.setblocking(False)
    session.set_blocking(False)
    pump(channel, origin)
