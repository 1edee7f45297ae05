"""The clients: wrk for requests, curl for bulk, and TLS connections of our own for single ones."""

import json
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from harness import Failed, cpu_seconds

_TO_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


def requests(url, connections, seconds, pids, close=False):
    """wrk: requests per second, latency, and CPU time of `pids` for each request."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s", url]
    if close:
        argv += ["-H", "Connection: close"]
    before = cpu_seconds(pids)
    said = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60).stdout
    spent = cpu_seconds(pids) - before
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    count = re.search(r"(\d+) requests in", said)
    if not rate or not count or int(count[1]) == 0:
        raise Failed(f"no requests from wrk: {said[-300:]}")
    errors = re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", said)
    # A connection that the server closes after its answer counts as a read error in wrk.
    if close:
        errors = [error for error in errors if not re.fullmatch(r"Socket errors: connect 0, read \d+, write 0, timeout 0", error)]
    result = {"per_s": float(rate[1]), "cpu_us": spent / int(count[1]) * 1e6}
    for percent in (50, 99):
        found = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s|m)\b", said)
        if found:
            result[f"p{percent}_ms"] = float(found[1]) * _TO_MS[found[2]]
    if errors:
        result["errors"] = "; ".join(errors)
    return result


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


def one_request(host, port, path, keep=False, seconds=30):
    """A connection of its own: the milliseconds until the answer began, and the connection if it is to be kept."""
    begin = time.perf_counter()
    raw = socket.create_connection((host, port), seconds)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = _CONTEXT.wrap_socket(raw, server_hostname=host)
    end = "" if keep else "Connection: close\r\n"
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{end}\r\n".encode())
    answer = stream.recv(65536)
    took = (time.perf_counter() - begin) * 1e3
    if not answer.startswith(b"HTTP/1.1 200"):
        stream.close()
        raise Failed(f"{host}{path} answered {answer[:60]!r}")
    if keep:
        return took, stream
    stream.close()
    return took, None


def fresh(host, port, path, count=15):
    """Connections one after the other: how long until the answer begins."""
    times = []
    for _ in range(count):
        time.sleep(0.1)
        times.append(one_request(host, port, path)[0])
    times.sort()
    return {"p50_ms": times[len(times) // 2], "max_ms": times[-1]}


def burst(host, port, path, count=64):
    """So many connections at the same moment."""
    times, failures, gate = [], [], threading.Barrier(count)

    def go():
        gate.wait()
        try:
            times.append(one_request(host, port, path)[0])
        except (OSError, Failed) as error:
            failures.append(str(error))

    threads = [threading.Thread(target=go) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"{len(failures)} of {count} failed: {failures[0]}")
    times.sort()
    return {"p50_ms": times[len(times) // 2], "max_ms": times[-1]}
