"""Runs the images of a release by umoci and runc, for tests.py: read-only, not root, without capabilities."""

import json
import pathlib
import signal
import subprocess
import time
import uuid

USER = 65532
PATIENCE_S = 120


def waited(what, condition, *processes):
    """The first true result of a condition; the end of a process that it needs is an error."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := condition():
            return found
        for process in processes:
            if process.poll() is not None:
                raise AssertionError(f"{what}: a program ended with {process.returncode}")
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


class Bundle:
    """An unpacked image."""

    def __init__(self, archive, folder):
        self.folder = pathlib.Path(folder)
        layout = self.folder / "layout"
        layout.mkdir()
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", layout], check=True)
        # umoci takes a reference only without slashes.
        index = json.loads((layout / "index.json").read_text())
        index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = "image"
        (layout / "index.json").write_text(json.dumps(index))
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:image", self.folder / "bundle"], check=True, stderr=subprocess.PIPE)
        self.spec = json.loads((self.folder / "bundle/config.json").read_text())

    def container(self, arguments, data=None, network=None, environment=(), command=None):
        """Starts a container; `network` is the process id of another one, whose network it shares."""
        name = f"sallyport-release-{uuid.uuid4().hex[:12]}"
        spec = json.loads(json.dumps(self.spec))
        process = spec["process"]
        process.update(terminal=False, noNewPrivileges=True, capabilities={})
        process["args"] = [*(command or process["args"]), *arguments]
        process["env"] += environment
        process["rlimits"] = [{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 4096}]
        spec["root"]["readonly"] = True
        spec["mounts"] = [one for one in spec["mounts"] if one["destination"] != "/sys/fs/cgroup"]
        if data:
            spec["mounts"] = [one for one in spec["mounts"] if one["destination"] != "/var/lib/sallyport"]
            spec["mounts"].append({"destination": "/var/lib/sallyport", "type": "bind", "source": str(data), "options": ["rbind", "rw", "nosuid", "nodev", "noexec"]})
        for space in spec["linux"]["namespaces"]:
            if space["type"] == "network" and network:
                space["path"] = f"/proc/{network}/ns/net"
        bundle = self.folder / name
        bundle.mkdir()
        spec["root"]["path"] = str(self.folder / "bundle/rootfs")
        (bundle / "config.json").write_text(json.dumps(spec))
        return Container(name, bundle)

    def run(self, arguments, **more):
        """Runs a container to its end: its exit code, and what it printed."""
        container = self.container(arguments, **more)
        try:
            container.process.wait(timeout=PATIENCE_S)
            return container.process.returncode, container.said()
        finally:
            container.end()


class Container:
    """A running container."""

    def __init__(self, name, bundle):
        self.name, self.bundle, self.root = name, bundle, bundle / "runc"
        self.log = open(bundle / "log", "wb")
        self.process = subprocess.Popen(["runc", "--root", self.root, "run", "--bundle", bundle, "--pid-file", bundle / "pid", name],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def said(self):
        """What it printed until now."""
        return (self.bundle / "log").read_text(errors="replace")

    def pid(self):
        """The process id of its first process, as this machine sees it."""
        file = self.bundle / "pid"
        return int(waited("runc", lambda: file.exists() and file.read_text(), self.process))

    def end(self):
        """Ends it, and removes what runc keeps of it."""
        if self.process.poll() is None:
            subprocess.run(["runc", "--root", self.root, "kill", self.name, "TERM"], stderr=subprocess.DEVNULL)
            try:
                self.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        subprocess.run(["runc", "--root", self.root, "delete", "--force", self.name], stderr=subprocess.DEVNULL)
        self.log.close()


def status_of(pid):
    """The lines of a process's status, by their names."""
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
