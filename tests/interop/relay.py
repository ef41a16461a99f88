"""A relay between a node and a peer: it keeps what passes, and can change or lose it."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal
from urllib.parse import urlsplit

from tests.e2e.taps import read_body

_PATIENCE: Final = 60.0
_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "host"))
_KEPT: Final = ("content-type", "soapaction")
"""The headers that a recorded message has."""

Change = Callable[[bytes], bytes]
Loss = Literal["request", "response"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, before any change; status 0 if there was no response."""

    headers: dict[str, str]
    request: bytes
    status: int = 0
    response_headers: dict[str, str] = field(default_factory=dict)
    response: bytes = b""
    at: str = field(default_factory=_now)
    """When it passed, in ISO 8601."""

    def as_request(self) -> bytes:
        """Return the request as an HTTP message."""
        return _message("POST / HTTP/1.1", self.headers, self.request)

    def as_response(self) -> bytes:
        """Return the response as an HTTP message."""
        return _message(f"HTTP/1.1 {self.status} OK", self.response_headers, self.response)


def _message(first: str, headers: dict[str, str], body: bytes) -> bytes:
    kept = [f"{name}: {value}" for name, value in headers.items() if name.lower() in _KEPT]
    return "\r\n".join([first, *kept, f"Content-Length: {len(body)}", "", ""]).encode() + body


@dataclass
class _LossRule:
    what: Loss
    where: Callable[[bytes], bool]
    left: int


@dataclass
class Relay:
    """Passes requests on to `target`. A lost request or response ends its connection."""

    target: str
    change_request: Change | None = None
    change_response: Change | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""
    _rules: list[_LossRule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(
        self, what: Loss, where: Callable[[bytes], bool] = lambda _: True, times: int = 1
    ) -> None:
        """Lose the next requests whose body `where` selects, or the responses to them."""
        with self._lock:
            self._rules.append(_LossRule(what, where, times))

    def reset(self) -> None:
        """Change and lose nothing from now on."""
        with self._lock:
            self.change_request = self.change_response = None
            self._rules.clear()

    def _loss(self, body: bytes) -> Loss | None:
        with self._lock:
            for rule in self._rules:
                if rule.left and rule.where(body):
                    rule.left -= 1
                    return rule.what
        return None

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        body = read_body(handler)
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in _HOP}
        lost = self._loss(body)
        if lost == "request":
            self.exchanges.append(Exchange(headers, body))
            return
        where = urlsplit(self.target)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=_PATIENCE)
        try:
            sent = self.change_request(body) if self.change_request else body
            connection.request("POST", where.path, sent, headers)
            answer = connection.getresponse()
            said = answer.read()
        except OSError:
            self.exchanges.append(Exchange(headers, body))
            return
        finally:
            connection.close()
        back = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
        self.exchanges.append(Exchange(headers, body, answer.status, back, said))
        if lost == "response":
            return
        if self.change_response:
            said = self.change_response(said)
        handler.send_response(answer.status)
        for name, value in back.items():
            if name.lower() not in ("date", "server"):
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
        made.url = f"http://127.0.0.1:{server.server_address[1]}{urlsplit(target).path}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(_PATIENCE)
