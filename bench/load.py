"""The clients: wrk for requests, curl for bulk, h2load for HTTP/2, `connection-load` for many connections that are made, ones of
our own for single ones, `datagrams.rs` for UDP."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass

from harness import Failed, Unavailable, cpu_seconds


@dataclass(frozen=True)
class Target:
    """Where a service is reached: by HTTPS, or by a port without TLS."""

    host: str
    port: int
    tls: bool

    def url(self, path=""):
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/{path}"


_TO_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


def _wrk(url, connections, seconds):
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s", url]


def _wrk_count(said, complained):
    """How many requests there were, and what went wrong beside them."""
    count = re.search(r"(\d+) requests in", said)
    if not count or int(count[1]) == 0:
        raise Failed(f"no requests from wrk: {(said + complained)[-300:]}")
    return int(count[1]), re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", said)


def requests(url, connections, seconds, pids, close=False):
    """wrk: requests per second, latency, and CPU time of `pids` for each request."""
    argv = _wrk(url, connections, seconds)
    if close:
        argv += ["-H", "Connection: close"]
    before = cpu_seconds(pids)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60)
    spent = cpu_seconds(pids) - before
    said = done.stdout
    count, errors = _wrk_count(said, done.stderr)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    # A connection that the server closes after its answer counts as a read error in wrk.
    if close:
        errors = [error for error in errors if not re.fullmatch(r"Socket errors: connect 0, read \d+, write 0, timeout 0", error)]
    result = {"per_s": float(rate[1]), "cpu_us": spent / count * 1e6}
    for percent in (50, 99):
        found = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s|m)\b", said)
        if found:
            result[f"p{percent}_ms"] = float(found[1]) * _TO_MS[found[2]]
    if errors:
        result["errors"] = "; ".join(errors)
    return result


def requests_in_turns(urls, connections, seconds, turn_seconds):
    """A wrk for each of these, which have short turns until each has had so many seconds: how many requests each answered, and
    in how many seconds. One that has no turn is stopped, keeps its connections, and asks nothing."""
    children, lasted = [], [0.0] * len(urls)
    try:
        for _ in range(round(seconds / turn_seconds)):
            for number, url in enumerate(urls):
                begin = time.monotonic()
                if number == len(children):
                    argv = _wrk(url, connections, seconds * len(urls))
                    children.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
                else:
                    children[number].send_signal(signal.SIGCONT)
                time.sleep(turn_seconds)
                children[number].send_signal(signal.SIGSTOP)
                lasted[number] += time.monotonic() - begin
        counts = []
        for number, child in enumerate(children):  # each has its end by the clock now, or nearly
            begin = time.monotonic()
            child.send_signal(signal.SIGCONT)
            count, errors = _wrk_count(*child.communicate(timeout=60))
            if errors:
                raise Failed("; ".join(errors))
            counts.append(count)
            lasted[number] += time.monotonic() - begin
    finally:
        for child in children:
            child.kill()
            child.wait()
    return list(zip(counts, lasted))


def _curl(arguments, streams, url, seconds):
    """One curl with so many parallel transfers, ended after so many seconds."""
    argv = ["curl", "--parallel", "--parallel-immediate", "--parallel-max", str(streams), "--silent", "--insecure",
            "--http1.1", "--max-time", str(seconds), "--write-out", "%{json}\n"]
    for stream in range(streams):
        argv += [*arguments, f"{url}?{stream}"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def download(url, streams, seconds, pids):
    """Gbit/s from the origin to the client, and CPU seconds of `pids` for each GB."""
    before = cpu_seconds(pids)
    said, _ = _curl(["--output", "/dev/null"], streams, url, seconds).communicate(timeout=seconds + 30)
    spent = cpu_seconds(pids) - before
    answers = [json.loads(line) for line in said.splitlines()]
    got = sum(answer["size_download"] for answer in answers)
    longest = max((answer["time_total"] for answer in answers), default=0)
    if len(answers) != streams or any(answer["response_code"] != 200 for answer in answers) or got == 0:
        raise Failed(f"download from {url}: {[answer['response_code'] for answer in answers]}, {got} bytes")
    return {"gbit_s": got * 8 / longest / 1e9, "cpu_s_per_gb": spent / (got / 1e9)}


def sink_bytes(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return int(answer.read())


def upload(url, source, sink_port, streams, seconds, pids):
    """Gbit/s that arrive at the origin, and CPU seconds of `pids` for each GB. `source` is a file that does not end."""
    curl = _curl(["--upload-file", source, "--header", "Expect:", "--output", "/dev/null"], streams, url, seconds + 2)
    try:
        time.sleep(1)
        begin, first, before = time.monotonic(), sink_bytes(sink_port), cpu_seconds(pids)
        time.sleep(seconds)
        took, got, spent = time.monotonic() - begin, sink_bytes(sink_port) - first, cpu_seconds(pids) - before
    finally:
        curl.communicate(timeout=seconds + 30)
    if got <= 0:
        raise Failed(f"nothing of the upload to {url} arrived")
    return {"gbit_s": got * 8 / took / 1e9, "cpu_s_per_gb": spent / (got / 1e9)}


_CONTEXT = ssl.create_default_context()
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE


def connect(target, seconds=30, source=None, receive_bytes=None):
    """A connection of its own, with TLS where the target has it; from this address, and with so large a buffer in the kernel, if wished."""
    if receive_bytes is None:
        stream = socket.create_connection((target.host, target.port), seconds, source_address=source and (source, 0))
    else:
        # Before it is connected: the window that is told then is never taken back.
        stream = socket.socket()
        stream.settimeout(seconds)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        stream.connect((target.host, target.port))
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _CONTEXT.wrap_socket(stream, server_hostname=target.host) if target.tls else stream
    except OSError:
        stream.close()
        raise


def one_request(target, path, keep=False, seconds=30):
    """A connection of its own: the milliseconds until the answer began, and the connection if it is to be kept."""
    begin = time.perf_counter()
    stream = connect(target, seconds)
    try:
        end = "" if keep else "Connection: close\r\n"
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n{end}\r\n".encode())
        answer = stream.recv(65536)
        took = (time.perf_counter() - begin) * 1e3
        if not answer.startswith(b"HTTP/1.1 200"):
            raise Failed(f"{target.url(path[1:])} answered {answer[:60]!r}")
    except (OSError, Failed):
        stream.close()
        raise
    if keep:
        return took, stream
    stream.close()
    return took, None


def fresh(target, path, count=15):
    """Connections one after the other: how long until the answer begins."""
    return middle(fresh_times(target, path, count))


@contextlib.contextmanager
def prompt():
    """Has a processor as soon as it wants one: single requests stand for a client that shares none with the contender, and what
    they wait for is to be the contender's."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:  # as containers refuse it to their root
        print("bench: single requests wait for their turn of a processor: SCHED_FIFO is refused", file=sys.stderr)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)


def fresh_times(target, path, count):
    times = []
    with prompt():
        for _ in range(count):
            time.sleep(0.1)
            times.append(one_request(target, path)[0])
    return times


def middle(times):
    times.sort()
    return {"p50_ms": times[len(times) // 2], "max_ms": times[-1]}


def burst(target, path, count=64):
    """So many connections at the same moment: how long until each has the beginning of its answer."""
    said, load_cpu_us = _connections(target, path, count, 0, "--full" if target.tls else "--plain")
    if said["failed"]:
        raise Failed(f"{said['failed']} of {count} failed: {said['first_failure']}")
    return {"p50_ms": said["answer_p50_ms"], "max_ms": said["answer_max_ms"], "load_cpu_us": load_cpu_us}


def one_datagram(target, seconds=1):
    """Sends a datagram and waits until it comes back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(seconds)
        client.connect((target.host, target.port))
        client.send(b"E" * 64)
        if client.recv(65536) != b"E" * 64:
            raise Failed(f"port {target.port} sent something else back")


def counted_datagrams(port):
    """How many datagrams came to the origin to be counted."""
    with socket.create_connection(("127.0.0.1", port), 10) as asking:
        return int(asking.recv(64))


def settled_count(port, seconds=10):
    """The same, once none comes any more of an earlier load."""
    deadline, last = time.monotonic() + seconds, counted_datagrams(port)
    while time.monotonic() < deadline:
        time.sleep(0.3)
        last, before = counted_datagrams(port), last
        if last == before:
            break
    return last


def datagrams(target, flows, size, seconds, mode, rate, pids, origin_port):
    """A load of `datagrams.rs`: what arrived of what was sent, round trips, CPU time of `pids` for each that arrived. A
    `flood` goes one way, and arrives at the origin; everything else arrives when it is back."""
    is_flood = mode == "flood"
    first, before = settled_count(origin_port) if is_flood else 0, cpu_seconds(pids)
    argv = [os.environ["BENCH_DATAGRAMS"], "load", f"{target.host}:{target.port}", flows, size, seconds, mode, rate]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    said, spent = json.loads(done.stdout), cpu_seconds(pids) - before
    arrived = counted_datagrams(origin_port) - first if is_flood else said["received"]
    if arrived <= 0:
        raise Failed(f"none of {said['sent']} datagrams arrived")
    result = {"per_s": (arrived if is_flood else said["in_time"]) / said["seconds"], "cpu_us": spent / arrived * 1e6,
              "arrived_percent": arrived / said["sent"] * 100, "sent_per_s": said["sent"] / said["seconds"]}
    if not is_flood:
        result |= {"p50_ms": said["p50_us"] / 1e3, "p99_ms": said["p99_us"] / 1e3}
    return result


def http2(url, streams, seconds, pids):
    """h2load: one connection with so many streams under way."""
    if not shutil.which("h2load"):
        raise Unavailable("there is no h2load; `scripts/need h2load` installs it")
    before = cpu_seconds(pids)
    argv = ["h2load", "-c1", f"-m{streams}", "-t1", f"-D{seconds}", url]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60).stdout
    spent = cpu_seconds(pids) - before
    if "Application protocol: h2" not in said:
        raise Unavailable("it does not speak HTTP/2 with clients")
    rate = re.search(r"finished in [\d.]+m?s, ([\d.]+) req/s", said)
    count = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", said)
    if not rate or not count or int(count[1]) == 0:
        raise Failed(f"no requests from h2load: {said[-300:]}")
    result = {"per_s": float(rate[1]), "cpu_us": spent / int(count[1]) * 1e6}
    if int(count[2]) + int(count[3]):
        result["errors"] = count[0]
    return result


def tls_connections(target, path, how, connections, seconds, pids, address="127.0.0.1"):
    """TLS connections, a request on each: with a handshake each (`--full`), or with the session of the one before
    (`--resume`). Beside what they cost `pids` stands what they cost the load."""
    before = cpu_seconds(pids)
    said, load_cpu_us = _connections(target, path, connections, seconds, how, address)
    spent = cpu_seconds(pids) - before
    result = {"per_s": said["count"] / said["seconds"], "cpu_us": spent / said["count"] * 1e6, "p50_ms": said["p50_ms"],
              "p99_ms": said["p99_ms"], "resumed_percent": said["resumed"] / said["count"] * 100, "load_cpu_us": load_cpu_us}
    if said["failed"]:
        result["errors"] = f"{said['failed']}: {said['first_failure']}"
    return result


def _connections(target, path, connections, seconds, how, address="127.0.0.1"):
    """What `connection-load` says of so many connections at a time (with 0 seconds: once), and the CPU time it took for each."""
    argv = [os.environ["BENCH_CONNECTION_LOAD"], f"{address}:{target.port}", target.host, path, str(connections), str(seconds), how]
    before = _children_seconds()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60)
    spent = _children_seconds() - before
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    said = json.loads(done.stdout)
    if said["count"] == 0:
        raise Failed(f"no connections: {said['first_failure']}")
    return said, spent / said["count"] * 1e6


def _children_seconds():
    """CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class KeptRequests:
    """Requests of our own, one after the other on one connection. `hasty`: with TCP_NODELAY, and each in one piece."""

    def __init__(self, target, hasty=True):
        self._target, self._hasty = target, hasty
        self._stream = connect(target)
        self._stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(hasty))

    def ask(self, path, body=b""):
        """The milliseconds until the whole answer is there."""
        method, length = ("POST", f"Content-Length: {len(body)}\r\n") if body else ("GET", "")
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._target.host}:{self._target.port}\r\n{length}\r\n".encode()
        begin = time.perf_counter()
        for part in (head + body,) if self._hasty else (head, body):
            self._stream.sendall(part)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._more()
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Failed(f"{self._target.url(path[1:])} answered {head[:60]!r}")
        left = int(re.search(rb"content-length: (\d+)", head.lower())[1]) - len(body)
        while left > 0:
            left -= len(self._more())
        return (time.perf_counter() - begin) * 1e3

    def _more(self):
        data = self._stream.recv(262_144)
        if not data:
            raise Failed("the connection ended in an answer")
        return data

    def close(self):
        self._stream.close()


def fill(url):
    """A download that does not end until its process is ended."""
    return _curl(["--output", "/dev/null"], 1, url, 600)
