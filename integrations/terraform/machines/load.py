"""Requests that go on while a fleet changes: every one is counted, with its time and who answered.

They are POSTs, which an edge never sends to a second origin once the first has received something.
"""

import http.server
import threading
import time


class Service(http.server.BaseHTTPRequestHandler):
    """A service that says one word."""

    def do_GET(self):
        """Answers."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    do_POST = do_GET

    def log_message(self, *_):
        """Says nothing."""


class Load:
    """Threads that ask one host, each request over a connection of its own."""

    def __init__(self, here, host, edge, threads=4, pause=0.02):
        # The edge is an address, or a function that chooses one for each request.
        self.here, self.host, self.pause = here, host, pause
        self.edge = edge if callable(edge) else lambda: edge
        self.answers, self.failures = [], []
        self.lock, self.over = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        """Asks until the end."""
        while not self.over.wait(self.pause):
            began, edge = time.monotonic(), None
            try:
                edge = self.edge()
                status, body = self.here.get(self.host, edge=edge, method="POST")
                problem = None if status == 200 else f"{status} {body[:200]}"
            except Exception as error:  # noqa: BLE001: whatever it is, a client has seen it
                problem, body = repr(error), ""
            with self.lock:
                if problem:
                    self.failures.append((began, edge, problem))
                else:
                    self.answers.append((time.monotonic(), body.strip(), edge))

    def since(self, moment):
        """Who answered since then, in order."""
        with self.lock:
            return [body for when, body, _ in self.answers if when >= moment]

    def edges_since(self, moment):
        """The addresses of the edges that answered since then."""
        with self.lock:
            return {edge for when, _, edge in self.answers if when >= moment}

    def stop(self):
        """Ends the threads; the number of answers, and what failed."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        return len(self.answers), self.failures
