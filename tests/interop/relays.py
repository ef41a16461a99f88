"""A relay between a node and a peer that records every exchange and loses chosen ones."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal
from urllib.parse import urlsplit

_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "host"))
_PATIENCE: Final = 60.0

Loss = Literal["request", "response"]


@dataclass(frozen=True)
class Exchange:
    """One request with its response; status 0 if the client got none."""

    path: str
    headers: dict[str, str]
    request: bytes
    status: int = 0
    response_headers: dict[str, str] = field(default_factory=dict)
    response: bytes = b""
    lost: Loss | None = None


@dataclass
class _Rule:
    what: Loss
    where: Callable[[bytes], bool]
    left: int


class Relay:
    """Forwards requests to a URL. A lost request or response ends its connection unanswered."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.exchanges: list[Exchange] = []
        self.change: Callable[[bytes], bytes] = lambda body: body
        """What happens to the body of every request on its way."""
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                relay._forward(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        path = urlsplit(target).path
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def lose(self, what: Loss, where: Callable[[bytes], bool], times: int = 1) -> None:
        """Lose the next requests whose body `where` selects, or the responses to them."""
        with self._lock:
            self._rules.append(_Rule(what, where, times))

    def bodies(self) -> list[bytes]:
        """All requests, lost or not, as they came."""
        return [one.request for one in self.exchanges]

    def _loss(self, body: bytes) -> Loss | None:
        with self._lock:
            for rule in self._rules:
                if rule.left and rule.where(body):
                    rule.left -= 1
                    return rule.what
        return None

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        body = _body(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        lost = self._loss(body)
        if lost == "request":
            self.exchanges.append(Exchange(request.path, headers, body, lost=lost))
            request.close_connection = True
            return
        body = self.change(body)
        target = urlsplit(self.target)
        connection = http.client.HTTPConnection(
            target.hostname or "", target.port, timeout=_PATIENCE
        )
        try:
            connection.request("POST", target.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self.exchanges.append(Exchange(request.path, headers, body))
            request.close_connection = True
            return
        finally:
            connection.close()
        back = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
        self.exchanges.append(
            Exchange(request.path, headers, body, answer.status, back, content, lost)
        )
        if lost == "response":
            request.close_connection = True
            return
        request.send_response(answer.status)
        for name, value in back.items():
            if name.lower() not in ("date", "server"):
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


@contextmanager
def relay(target: str) -> Iterator[Relay]:
    """A relay to a URL that runs as long as the block."""
    made = Relay(target)
    thread = threading.Thread(target=made._server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        made._server.shutdown()
        thread.join(_PATIENCE)
        made._server.server_close()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    length = request.headers.get("Content-Length")
    if length is not None:
        return request.rfile.read(int(length))
    pieces = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        pieces.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(pieces)
