"""`ssh -R` of a stock client, to OpenSSH's server and to sish."""

import os
import shutil
import subprocess

from harness import Unavailable, wait_port

from .base import DOMAIN, ORIGINS, PUBLISHED, Contender, TcpPort, first_line

SSHD = "/usr/sbin/sshd"


def make_key(folder, name):
    """A key pair of the run; gives the path of the private one."""
    path = os.path.join(folder, f"ssh_{name}")
    if not os.path.exists(path):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path


def client_version():
    return first_line("ssh", "-V")


def start_client(contender, port, login, forwards, key, known_hosts=None):
    """One ssh for all forwards; without a file of known hosts, it believes whoever answers."""
    trust = ([f"UserKnownHostsFile={known_hosts}", "StrictHostKeyChecking=yes"] if known_hosts
             else ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no"])
    argv = ["ssh", "-N", "-F", "none", "-i", key, "-p", str(port)]
    for option in ("IdentitiesOnly=yes", "LogLevel=ERROR", "ExitOnForwardFailure=yes", *trust):
        argv += ["-o", option]
    if contender.cipher:
        argv += ["-c", contender.cipher]
    for forward in forwards:
        argv += ["-R", forward]
    return contender.spawn("client", [*argv, login])


class OpenSsh(TcpPort, Contender):
    name = "openssh"
    about = "OpenSSH's sshd, one stock ssh -R for both ports"
    needs = ("ssh",)
    leg_ports = (2022,)

    @classmethod
    def versions(cls, bench):
        return {"ssh": client_version()}

    def start(self):
        if not os.path.exists(SSHD):
            raise Unavailable(f"there is no {SSHD}; `scripts/need sshd` installs it")
        key, host_key = (make_key(self.bench.folder, name) for name in ("user", "host"))
        conf = self.file("sshd.conf", f"""ListenAddress 127.0.0.1:2022
HostKey {host_key}
AuthorizedKeysFile {key}.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
UseDNS no
LogLevel ERROR
""")
        server = self.spawn("server", [SSHD, "-D", "-e", "-f", conf])
        wait_port(2022, server)
        # Root may be locked where people have sudo; they themselves are not.
        user = os.environ.get("SUDO_USER", "root")
        forwards = [f"127.0.0.1:{PUBLISHED[name]}:127.0.0.1:{port}" for name, port in ORIGINS.items()]
        start_client(self, 2022, f"{user}@{self.leg}", forwards, key)


class Sish(TcpPort, Contender):
    name = "sish"
    needs = ("ssh",)
    about = "sish, one stock ssh -R for both ports"
    leg_ports = (2222,)
    tools = ("sish",)
    is_optional = True

    @classmethod
    def versions(cls, bench):
        # The release's name is in the path that it was built into.
        return {"sish": os.path.basename(os.path.dirname(bench.tool("sish"))).removeprefix("sish-"), "ssh": client_version()}

    def start(self):
        program, key, host_key = self.bench.tool("sish"), *(make_key(self.bench.folder, name) for name in ("user", "host"))
        keys, none = (os.path.join(self.bench.folder, f"sish-{name}") for name in ("keys", "none"))
        for folder in (keys, none):
            os.makedirs(folder, exist_ok=True)
        shutil.copy(host_key, os.path.join(keys, "ssh_key"))
        options = {
            "ssh-address": "127.0.0.1:2222", "http-address": "127.0.0.1:20082", "domain": DOMAIN,
            "private-keys-directory": keys, "private-key-passphrase": "", "authentication-keys-directory": none,
            "authentication": "false", "force-requested-ports": "true", "bind-random-ports": "false",
            "idle-connection": "false", "log-to-stdout": "false", "verify-dns": "false", "redirect-root": "false",
            "localhost-as-all": "false", "cleanup-unauthed": "false", "load-templates": "false",
        }
        server = self.spawn("server", [program, *(f"--{name}={value}" for name, value in options.items())])
        wait_port(2222, server)
        forwards = [f"localhost:{PUBLISHED[name]}:127.0.0.1:{port}" for name, port in ORIGINS.items()]
        start_client(self, 2222, f"bench@{self.leg}", forwards, key)
