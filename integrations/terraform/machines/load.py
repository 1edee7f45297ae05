"""Requests that go on while a fleet changes: every one is counted, with its time and who answered."""

import threading
import time


class Load:
    """Threads that ask one host, each request over a connection of its own."""

    def __init__(self, here, host, edge, threads=2, pause=0.02):
        self.here, self.host, self.edge, self.pause = here, host, edge, pause
        self.answers, self.failures = [], []
        self.lock, self.over = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        """Asks until the end."""
        while not self.over.wait(self.pause):
            began = time.monotonic()
            try:
                status, body = self.here.get(self.host, edge=self.edge)
                problem = None if status == 200 else f"{status} {body[:200]}"
            except Exception as error:  # noqa: BLE001: whatever it is, a client has seen it
                problem, body = repr(error), ""
            with self.lock:
                if problem:
                    self.failures.append((began, problem))
                else:
                    self.answers.append((time.monotonic(), body.strip()))

    def since(self, moment):
        """Who answered since then, in order."""
        with self.lock:
            return [body for when, body in self.answers if when >= moment]

    def stop(self):
        """Ends the threads; the number of answers, and what failed."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        return len(self.answers), self.failures
