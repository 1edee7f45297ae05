"""What floods leave behind: the memory of the server before, while it lasts, and a minute after."""

import concurrent.futures
import contextlib
import socket
import time

import load
from contenders import PAGES
from harness import Failed, memory_kib

#: How long after a flood memory is read.
AFTER_S = 60
#: How long memory gets to come to rest before the flood, and while slow readers hold what they have.
SETTLE_S = 5
#: How large a slow reader's buffer in the kernel is, in bytes.
READER_BYTES = 4_096
#: Requests before the flood: what is made once has been made.
FIRST_REQUESTS = 50
#: How many passwords are guessed at once, each from an address of its own.
GUESSES = 48


def around(memory, flood, after_s=AFTER_S, settle_s=SETTLE_S):
    """What `memory` says before the flood, while it lasts and so many seconds after; `flood` is a context that lasts."""
    time.sleep(settle_s)
    before = memory()
    with flood:
        time.sleep(settle_s)
        held = memory()
    time.sleep(after_s)
    left = memory()
    return {"before_mib": before / 1024, "held_mib": held / 1024, "left_mib": left / 1024, "left_times": left / before}


def server_kib(contender):
    return memory_kib(contender.pids("server"))


def begin(contender):
    """Starts it, and has it serve as it will."""
    contender.start_origins(1, 1)
    deadline = time.monotonic() + 20
    while True:
        try:
            for _ in range(FIRST_REQUESTS):
                load.one_request(contender.target(PAGES), "/100b", seconds=5)
            return
        except (OSError, Failed):
            for process in contender.processes:
                process.check()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def reading_nothing(target, path, count):
    """So many clients that ask for much by HTTP/1.1, and read nothing but the first word of it."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(count):
            stream = load.connect(target, receive_bytes=READER_BYTES)
            open_ones.callback(stream.close)
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n\r\n".encode())
            answer = stream.recv(12)
            if answer != b"HTTP/1.1 200":
                raise Failed(f"{target.url(path[1:])} answered {answer!r}")
        yield


def slow_readers(count, contender, _seconds):
    """Clients that ask for a long answer and do not take it, and leave."""
    if contender.max_connections and contender.max_connections < 2 * count:
        count = contender.max_connections // 2
    begin(contender)
    return around(lambda: server_kib(contender), reading_nothing(contender.target(PAGES), "/endless", count))


@contextlib.contextmanager
def guessing(guess, count):
    """So many wrong passwords at once; `guess` gives the status of a number's."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        statuses = list(pool.map(guess, range(count)))
    # Some may be told that there are too many.
    wrong = [status for status in statuses if status not in (401, 429, 503)]
    if wrong or 401 not in statuses:
        raise Failed(f"guesses of passwords were answered with {sorted(set(statuses))}")
    yield


def guess_from(target, number, body):
    """A login with this body, from an address of its own; its status."""
    stream = load.connect(target, source=f"127.0.{1 + number // 200}.{1 + number % 200}", seconds=60)
    with contextlib.closing(stream):
        head = f"POST /v1/login HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nContent-Type: application/json\r\n"
        stream.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        return int(stream.recv(64).split()[1])


def passwords(contender, _seconds):
    """Logins with wrong passwords, from as many addresses."""
    guess = contender.guess_password
    begin(contender)
    return around(lambda: server_kib(contender), guessing(guess, GUESSES))
