"""AsyncSSH as `ssh -R`: asyncssh_forward.py PORT USER KEY KNOWN_HOSTS REMOTE_PORT LOCAL_PORT"""

import asyncio
import sys

import asyncssh

port, user, key, known_hosts, remote_port, local_port = sys.argv[1:]


async def main():
    async with asyncssh.connect(
        "127.0.0.1", int(port), username=user, client_keys=[key], known_hosts=known_hosts, config=None,
        agent_path=None, rekey_bytes="1M", keepalive_interval=1,
    ) as connection:
        await connection.forward_remote_port("", int(remote_port), "127.0.0.1", int(local_port))
        await connection.wait_closed()


asyncio.run(main())
