"""What passes between two real nodes: a tap that records bodies, and ends that misbehave."""

import hashlib
import http.client
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "host"))
_NAMED: Final = re.compile(rb"<eb:MessageInfo>.*?<eb:MessageId>([^<]+)</eb:MessageId>", re.DOTALL)
_USER: Final = b"<eb:UserMessage"
_PATIENCE: Final = 60.0


class Tap:
    """Passes requests on to a node, and its answers back; digests of all messages are kept."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.seen: dict[str, set[tuple[str, str]]] = {}
        """By message id: digest of the body and Content-Type of each copy of a user message."""
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                tap._post(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/msh"

    def start(self) -> "Tap":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Nobody listens there any more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(_PATIENCE)
            self._server.server_close()

    def _post(self, request: BaseHTTPRequestHandler) -> None:
        body = read_body(request)
        self._note(body, request.headers.get("Content-Type", ""))
        self.note_request(tuple(request.headers.items()), body)
        own = self.answer(body)
        if own is not None:
            _respond(request, *own)
            return
        host, port = self._target.hostname, self._target.port
        connection = http.client.HTTPConnection(host or "", port, timeout=_PATIENCE)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        try:
            connection.request("POST", self._target.path, body, headers)
            answer = connection.getresponse()
            said = answer.read()
        except OSError:
            request.close_connection = True
            return
        finally:
            connection.close()
        self._note(said, answer.headers.get("Content-Type", ""))
        self.note_answer(body, said)
        _respond(request, answer.status, tuple(answer.headers.items()), said)

    def note_request(self, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        """Take note of a request before it is passed on."""

    def note_answer(self, request: bytes, answer: bytes) -> None:
        """Take note of what the node answered to a request."""

    def answer(self, body: bytes) -> tuple[int, tuple[tuple[str, str], ...], bytes] | None:
        """Return what is answered instead of passing a request on: status, headers, body."""
        return None

    def _note(self, body: bytes, content_type: str) -> None:
        found = _NAMED.search(body) if _USER in body else None
        if found is not None:
            kept = hashlib.sha256(body).hexdigest(), content_type
            self.seen.setdefault(found.group(1).decode(), set()).add(kept)


def _respond(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: tuple[tuple[str, str], ...],
    body: bytes,
) -> None:
    request.send_response(status)
    for name, value in headers:
        if name.lower() not in (*_HOP, "date", "server"):
            request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(body)


def read_body(request: BaseHTTPRequestHandler) -> bytes:
    length = request.headers.get("Content-Length")
    if length is not None:
        return request.rfile.read(int(length))
    pieces = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        pieces.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(pieces)


NONSENSE: Final = b"this is\r\nno HTTP\r\n\r\n"


@contextmanager
def misbehaving(how: str) -> Iterator[str]:
    """Somebody who answers `nonsense`, `hangs` or `closes`; the URL."""
    held: list[socket.socket] = []
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.05)

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = door.accept()
                except TimeoutError:
                    continue
                held.append(connection)
                if how != "hangs":
                    connection.settimeout(_PATIENCE)
                    connection.recv(100)
                if how == "nonsense":
                    connection.sendall(NONSENSE)
                if how != "hangs":
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}/msh"
        finally:
            ended.set()
            thread.join(_PATIENCE)
            for one in held:
                one.close()
