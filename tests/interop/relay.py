"""A relay between two products: it keeps what passes, and can change, repeat or lose it."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from tests.e2e.taps import read_body

PATIENCE: Final = 60.0
_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "host"))

Change = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Passed:
    """One request and its response, as they came to the relay."""

    request_headers: dict[str, str]
    request: bytes
    status: int
    response_headers: dict[str, str]
    response: bytes
    at: str
    """When it passed, in ISO 8601."""

    def as_request(self) -> bytes:
        """Return the request as an HTTP message."""
        return _message("POST / HTTP/1.1", self.request_headers, self.request)

    def as_response(self) -> bytes:
        """Return the response as an HTTP message."""
        return _message(f"HTTP/1.1 {self.status} OK", self.response_headers, self.response)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _message(first: str, headers: dict[str, str], body: bytes) -> bytes:
    kept = {name: value for name, value in headers.items() if name.lower() == "content-type"}
    lines = [first, *(f"{name}: {value}" for name, value in kept.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@dataclass
class Relay:
    """Passes requests on to `target`. The changes hold for the requests that follow."""

    target: str
    change_request: Change | None = None
    change_response: Change | None = None
    lose_responses: int = 0
    """So many responses are lost: the connection is closed instead."""
    passed: list[Passed] = field(default_factory=list)
    url: str = ""

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = read_body(handler)
        where = urlsplit(self.target)
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in _HOP}
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
        sent = self.change_request(body) if self.change_request else body
        connection.request("POST", where.path, sent, headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        self.passed.append(Passed(headers, body, answer.status, dict(answer.headers), said, _now()))
        handler.close_connection = True
        if self.lose_responses:
            self.lose_responses -= 1
            return
        if self.change_response:
            said = self.change_response(said)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in (*_HOP, "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(said)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(said)


@contextmanager
def relay(target: str) -> Iterator[Relay]:
    """Run a relay on loopback."""
    made = Relay(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            made.handle(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        made.url = f"http://127.0.0.1:{server.server_address[1]}/relay"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(PATIENCE)
