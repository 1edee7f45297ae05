"""Generates a client from the description of the API, and does with it what a program does that shares an account.

generated.py DESCRIPTION FOLDER API CA TOKEN
"""

import os
import socket
import ssl
import subprocess
import sys

description, folder, api, ca, token = sys.argv[1:]
generator = os.path.join(os.path.dirname(sys.executable), "openapi-python-client")
package = os.path.join(folder, "generated_client")
command = [generator, "generate", "--path", description, "--output-path", package, "--meta", "none"]
done = subprocess.run(command, capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stdout + done.stderr)
sys.path.insert(0, folder)

from generated_client import AuthenticatedClient  # noqa: E402
from generated_client.api.policies import list_policies  # noqa: E402
from generated_client.api.sockets import (  # noqa: E402
    create_socket,
    delete_socket,
    get_socket,
    list_sockets,
    update_socket,
)
from generated_client.api.tunnels import create_tunnel, list_tunnels  # noqa: E402
from generated_client.models import CreateSocket, CreateTunnel, UpdateSocket  # noqa: E402

# Names below localhost are this machine (RFC 6761), which not every resolver knows.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more
)
client = AuthenticatedClient(base_url=api, token=token, verify_ssl=ssl.create_default_context(cafile=ca))


def wants(response, status):
    if response.status_code != status:
        sys.exit(f"{status} wanted, {response.status_code} came: {response.content!r}")
    return response.parsed


asked = CreateSocket.from_dict({"name": "shop", "labels": {"env": "prod", "made-by": "a program"}})
made = wants(create_socket.sync_detailed(client=client, body=asked, idempotency_key="shop-1"), 201)
again = wants(create_socket.sync_detailed(client=client, body=asked, idempotency_key="shop-1"), 201)
assert made.id == again.id and made.labels.to_dict() == asked.labels.to_dict(), (made, again)
other = wants(create_socket.sync_detailed(client=client, body=CreateSocket.from_dict({"name": "other"})), 201)

listed = wants(list_sockets.sync_detailed(client=client, label=["env=prod", "made-by"]), 200)
assert [one.id for one in listed.items] == [made.id], listed
assert wants(list_sockets.sync_detailed(client=client, label=["env=test"]), 200).items == []
first = wants(list_sockets.sync_detailed(client=client, limit=1), 200)
second = wants(list_sockets.sync_detailed(client=client, limit=1, after=first.next_), 200)
assert {first.items[0].id, second.items[0].id} == {made.id, other.id}

tunnel = wants(create_tunnel.sync_detailed(str(made.id), client=client, body=CreateTunnel.from_dict({})), 201)
assert [one.id for one in wants(list_tunnels.sync_detailed(str(made.id), client=client), 200).items] == [tunnel.id]
assert wants(list_policies.sync_detailed(client=client), 200).items == []

seen = get_socket.sync_detailed(str(made.id), client=client)
tag = seen.headers["etag"]
change = UpdateSocket.from_dict({"labels": {"env": "test"}})
changed = wants(update_socket.sync_detailed(str(made.id), client=client, body=change, if_match=tag), 200)
assert changed.labels.to_dict() == {"env": "test"} and changed.name == "shop", changed
refused = wants(update_socket.sync_detailed(str(made.id), client=client, body=change, if_match=tag), 412)
assert refused.code == "precondition-failed", refused
wants(delete_socket.sync_detailed(str(made.id), client=client, if_match=tag), 412)
tag = get_socket.sync_detailed(str(made.id), client=client).headers["etag"]
wants(delete_socket.sync_detailed(str(made.id), client=client, if_match=tag), 204)
wants(get_socket.sync_detailed(str(made.id), client=client), 404)
print("all done")
