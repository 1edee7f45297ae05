"""Processes, what they cost, and cells that are measured again while others use the machine."""

import contextlib
import glob
import os
import resource
import signal
import socket
import subprocess
import time

CLOCK_HZ = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
# A cell is measured again, at most so often, while other processes took more than so much of the machine.
MAX_TRIES = 3
QUIET_PERCENT = 8.0
#: How long a load of requests runs before it is measured, so that no row pays for what the first requests open.
WARM_UP_S = 1
#: Which processor is the contender's, and which its load's and the origin's, where these are apart.
CONTENDER, LOAD = 0, 1


class Failed(Exception):
    """A contender or a measurement did not work; the text says which and how."""


class Unavailable(Failed):
    """A contender cannot do this at all, or is not here; nothing is wrong with the measurement."""


class Process:
    """A child in a session of its own, with its output in a log."""

    def __init__(self, folder, role, argv, env=None):
        self.role = role  # "server", "client" or "fixture"
        self.argv = [str(argument) for argument in argv]
        name = os.path.basename(self.argv[0])
        self.log_path = os.path.join(folder, f"{role}-{name}.log")
        with open(self.log_path, "ab") as log:
            self.log_from = log.tell()  # others of this name may have written before
            self.child = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **(env or {})}, start_new_session=True,
            )

    @property
    def pid(self):
        return self.child.pid

    def check(self):
        if self.child.poll() is not None:
            with open(self.log_path, errors="replace") as log:
                log.seek(self.log_from)
                said = "".join(log.readlines()[-8:])
            raise Failed(f"{' '.join(self.argv)} ended with {self.child.returncode}:\n{said}")


@contextlib.contextmanager
def on_processor(number):
    """What is started within this runs on that processor alone, of those that we may use, and is told of no other; where there
    are not so many, on any."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[number:number + 1] or usable)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def _stat(path):
    with open(path) as file:
        return file.read().rsplit(")", 1)[1].split()


def family(pids):
    """The processes and all their descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(_stat(f"/proc/{entry}/stat")[1]), []).append(int(entry))
            except (OSError, IndexError):
                pass
    found, pending = [], list(pids)
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending += children.get(pid, [])
    return found


def cpu_seconds(pids):
    """User and system time of the processes and their descendants."""
    ticks = 0
    for pid in family(pids):
        try:
            fields = _stat(f"/proc/{pid}/stat")
            ticks += int(fields[11]) + int(fields[12])
        except (OSError, IndexError):
            pass
    return ticks / CLOCK_HZ


def running_times(pids):
    """For how long each thread of these processes was on a processor, in nanoseconds, where `cpu_seconds` counts ticks: for
    processes that do next to nothing."""
    if not os.path.exists("/proc/self/schedstat"):
        raise Unavailable("this kernel does not say for how long a thread ran (CONFIG_SCHED_INFO)")
    times = {}
    for path in (path for pid in family(pids) for path in glob.glob(f"/proc/{pid}/task/*/schedstat")):
        try:
            with open(path) as file:
                times[path] = int(file.read().split()[0])
        except OSError:
            pass
    return times


def ran_seconds(before, after):
    """The time between two of `running_times`; what a thread did that has ended since is not in it."""
    return sum(time - before.get(path, 0) for path, time in after.items()) / 1e9


def memory_kib(pids):
    """Proportional set size: memory that several processes share is counted once."""
    total = 0
    for pid in family(pids):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return total


def stop(processes):
    """Ends them, the youngest first, and waits until they are gone."""
    for process in reversed(processes):
        for pid in reversed(family([process.pid])):
            _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and any(process.child.poll() is None for process in processes):
        time.sleep(0.05)
    for process in reversed(processes):
        if process.child.poll() is None:
            for pid in reversed(family([process.pid])):
                _signal(pid, signal.SIGKILL)
        process.child.wait(10)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def wait_port(port, process=None, host="127.0.0.1", seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process:
            process.check()
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    raise Failed(f"nothing listens on {host}:{port}")


def accepts(port, host="127.0.0.1"):
    """Whether something takes connections there."""
    try:
        socket.create_connection((host, port), 1).close()
        return True
    except OSError:
        return False


def raise_limits():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _busy_seconds():
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / CLOCK_HZ


def _own_seconds():
    times = os.times()  # children that have ended are in the times of their parent
    return cpu_seconds([os.getpid()]) + times.children_user + times.children_system


def foreign_percent(since):
    """How much of the machine others took since `marks()`, in percent."""
    wall, busy, own = since
    took = (_busy_seconds() - busy) - (_own_seconds() - own)
    return max(0.0, took / (time.monotonic() - wall) / CORES * 100)


def marks():
    return time.monotonic(), _busy_seconds(), _own_seconds()


def measure(cell, max_tries=MAX_TRIES):
    """Runs the cell, again if it was disturbed; gives the least disturbed result, how much others took, and the seconds that went
    to running it again."""
    best, first_end = None, None
    for attempt in range(1, max_tries + 1):
        begin = marks()
        result = cell()
        foreign = foreign_percent(begin)
        first_end = first_end or time.monotonic()
        if best is None or foreign < best[1]:
            best = (result, foreign)
        if foreign < QUIET_PERCENT or attempt == max_tries:
            break
        time.sleep(1)
    return *best, time.monotonic() - first_end if attempt > 1 else 0.0
