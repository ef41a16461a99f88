"""What attacks have in common: requests by hand, figures of a node, addresses to come from."""

import contextlib
import io
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import quote

from tests.attack.campaign.model import Breach
from tests.attack.campaign.target import HOST, PATIENCE, Answer, Target
from tests.fuzz.stateful_nodes import Sent

_PAUSE: Final = threading.Event()
_NUMBERS: Final = itertools.count(1)
_ID: Final = re.compile(rb"(?<=MessageId>)[^<]+(?=<)")
_RUN: Final = f"{time.time_ns():x}"


def expect(holds: object, what: str) -> None:
    """Raise Breach unless something holds."""
    if not holds:
        raise Breach(what)


def new_id(mark: str = "attack") -> str:
    """Return a message id that nobody used."""
    return f"{mark}-{next(_NUMBERS)}-{_RUN}@stranger.example"


def new_address() -> str:
    """Return an address of the loopback network from which nobody came yet."""
    number = next(_NUMBERS)
    return f"127.{1 + number // 62500 % 200}.{number // 250 % 250}.{2 + number % 250}"


def renamed(request: Sent, message_id: str, *changes: tuple[bytes, bytes]) -> Sent:
    """Return a captured request under another message id, with further replacements."""
    [*_, old] = _ID.findall(request.body)[:1] or [b"\0"]
    body = request.body.replace(old, message_id.encode())
    for before, after in changes:
        if before not in body:
            raise AssertionError(f"{before!r} is not in the captured request")
        body = body.replace(before, after)
    return Sent(request.to, request.headers, body)


def head(method: str, path: str, *lines: str, host: str | None = "node.example") -> bytes:
    """Return the head of a request, exactly with these lines."""
    first = [f"{method} {path} HTTP/1.1"] + ([f"Host: {host}"] if host else [])
    return "\r\n".join([*first, *lines, "", ""]).encode("latin-1")


# Reading


class _Kept(io.BytesIO):
    """Bytes that several answers are read from, one after the other."""

    def close(self) -> None:
        pass

    def makefile(self, *_: object) -> "_Kept":
        return self


def until_closed(connection: socket.socket, patience: float = PATIENCE) -> bytes:
    """Read until the other end closes the connection, which it must do in time."""
    end = time.monotonic() + patience
    pieces: list[bytes] = []
    try:
        while True:
            connection.settimeout(max(0.01, end - time.monotonic()))
            piece = connection.recv(65536)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    except TimeoutError:
        raise Breach(
            f"not closed within {patience:g} s; it said {b''.join(pieces)[:300]!r}"
        ) from None
    except OSError:
        return b"".join(pieces)


def read_answers(data: bytes, first: str = "POST") -> list[Answer]:
    """Return the answers that were written one after the other; `first` is a request's method."""
    stream = _Kept(data)
    found: list[Answer] = []
    while stream.tell() < len(data):
        method = first if not found else "POST"
        response = HTTPResponse(stream, method=method)  # type: ignore[arg-type]
        try:
            response.begin()
            body = response.read()
        except (HTTPException, OSError) as error:
            rest = data[max(0, stream.tell() - 100) :][:300]
            raise Breach(f"the answers cannot be read: {error!r} at {rest!r}") from None
        found.append(Answer(response.status, tuple(response.getheaders()), body))
    return found


def header(answer: Answer, name: str) -> str:
    """Return the value of a header field, or the empty text."""
    return next((value for key, value in answer.headers if key.lower() == name.lower()), "")


# What the operator of a node sees


def token(target: Target, name: str = "seller") -> str:
    return (target.node(name).folder / "keys" / "api.token").read_text().strip()


def call(
    target: Target,
    method: str,
    path: str,
    name: str = "seller",
    *,
    body: bytes = b"",
    lines: tuple[str, ...] = (),
) -> Answer:
    """Call the REST interface with the token, as the operator does."""
    own = (f"Authorization: Bearer {token(target, name)}", "Connection: close")
    data = head(method, path, *own, *lines, f"Content-Length: {len(body)}") + body
    with socket.create_connection((HOST, target.port(name)), PATIENCE) as connection:
        connection.sendall(data)
        [answer] = read_answers(until_closed(connection))
    return answer


def ask(target: Target, path: str, name: str = "seller") -> Any:
    """Return what the REST interface answers to GET, which must be JSON."""
    answer = call(target, "GET", path, name)
    expect(answer.status == 200, f"GET {path}: {answer.status} {answer.body[:200]!r}")
    return json.loads(answer.body)


def message(target: Target, message_id: str, name: str = "seller") -> dict[str, Any] | None:
    """Return what a node knows of a message, or None."""
    path = f"/api/v1/messages/{quote(message_id, safe='')}"
    answer = call(target, "GET", path, name)
    if answer.status == 404:
        return None
    found: dict[str, Any] = json.loads(answer.body)
    expect(answer.status == 200, f"GET {path}: {answer.status} {found}")
    return found


def metrics(target: Target, name: str = "seller") -> dict[str, float]:
    """Return the figures of a node by their name with labels."""
    text = call(target, "GET", "/metrics", name).body.decode()
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {key: float(value) for key, _, value in rows}


def total(figures: dict[str, float], name: str, label: str = "") -> float:
    """Return the sum of a figure over its labels, of those that contain a text."""
    return sum(
        value for key, value in figures.items() if key.partition("{")[0] == name and label in key
    )


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until something holds."""
    end = time.monotonic() + patience
    while not condition():
        expect(time.monotonic() < end, f"{what}: not within {patience:g} s")
        _PAUSE.wait(0.05)


@contextlib.contextmanager
def opened(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    """Close connections in the end, whatever happens."""
    try:
        yield connections
    finally:
        for one in connections:
            one.close()
