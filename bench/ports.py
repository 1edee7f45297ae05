"""How many connections fit on a hundred local ports, by the example of io/connectx."""

import json
import subprocess

from harness import Failed

#: The local ports of the network namespace in which the example runs.
PORTS = "40000 40099"
#: Four processes of a thousand sockets, and a service that keeps the other ends of all rounds.
DESCRIPTORS = 20_000


def connections(protocol, contender, _seconds):
    """What four processes that race for the ports open towards 40 destinations."""
    script = f"ip link set lo up && ulimit -n {DESCRIPTORS} && echo {PORTS} >/proc/sys/net/ipv4/ip_local_port_range && exec \"$@\""
    argv = ["unshare", "--net", "sh", "-c", script, "sh", contender.bench.tool("connections"), "-o", "json", contender.techniques[protocol]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failed(f"the example ended with {done.returncode}: {done.stderr[-300:]}")
    said = json.loads(done.stdout)
    return {"distinct": said["distinct"], "socket_us": said["each_us"], "sockets": said["sockets"]}
