"""The protocol endpoint as an ASGI application: the door that partners knock at.

No framework here, since every message passes: a request becomes a `Request` whose body is read as
it comes, and the node's `Response` is written out.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from postroad.msh.answers import error, write_answer
from postroad.node.base.identifiers import host_name, new_message_id
from postroad.node.base.requests import STATIONS, Flowing, Request, Response, Upload
from postroad.node.settings.config import Config
from postroad.node.walks.receiving import not_stored
from postroad.store.interface import StoreError
from postroad.transport.http_body import ASGIApp, Receive, Scope, Send, TooLarge, body_chunks
from postroad.transport.http_body import Truncated as ClientIsGone
from postroad.transport.incidents import Incident, Incidents
from postroad.wire.errors import EbmsError
from postroad.wire.restart import read_content_range, read_transfer_id
from postroad.wire.soap import SoapVersion

AT_ONCE: Final = 500
PER_ADDRESS: Final = 200
"""Requests in progress, in all and from one address; more are told to come again."""
SOON: Final = b"2"
LATER: Final = b"60"
"""Seconds after which it is worth to come again: when the node is busy, or its disk is full."""
_ENCODINGS: Final = (b"", b"identity")
_log = logging.getLogger("postroad.receive")

Headers = Iterable[tuple[bytes, bytes]]


class Receiving(Protocol):
    """What the endpoint needs of a node."""

    config: Config

    async def receive(self, request: Request) -> Response: ...

    async def note(self, code: str, detail: str, peer: str | None) -> None:
        """For the journal: what was refused before it could be a message."""
        ...


class _InProgress:
    """Messages that are being processed, in all and by the address of their sender.

    One whose body is still to come takes no place: slow senders cannot keep others out.
    """

    def __init__(self, at_once: int, per_address: int) -> None:
        self._at_once = at_once
        self._per_address = per_address
        self._all: dict[int, str | None] = {}
        self._by_address: Counter[str] = Counter()

    def refusal(self, address: str | None) -> Incident | None:
        """Return why no further request of an address is taken now, or None."""
        if address is not None and self._by_address[address] >= self._per_address:
            return Incident.BUSY_ADDRESS
        return Incident.BUSY_TOTAL if len(self._all) >= self._at_once else None

    def begin(self, name: int, address: str | None) -> None:
        self._all[name] = address
        if address is not None:
            self._by_address[address] += 1

    def end(self, name: int) -> None:
        address = self._all.pop(name, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


def msh_app(
    node: Receiving,
    *,
    at_once: int = AT_ONCE,
    per_address: int = PER_ADDRESS,
    incidents: Incidents | None = None,
) -> ASGIApp:
    """The endpoint of a node; with `at_once` messages in progress the next is told to wait."""
    limit = node.config.limits.message_bytes
    in_progress = _InProgress(at_once, per_address)
    noted = incidents or Incidents(_log)

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        head = dict(scope["headers"])
        if scope["method"] == "HEAD" and (upload := _upload(scope, head)) is not None:
            response = await _probed(node, _probe(scope, upload))
            if response.status != 405:
                await _write(send, response)
                return
        if scope["method"] != "POST":
            said = "Messages are sent here with POST."
            await node.note("EBMS:0004", f"a {scope['method'][:20]} request: {said}", _peer(scope))
            await say(send, 405, said, [(b"allow", b"POST")])
        elif head.get(b"content-encoding", b"").strip().lower() not in _ENCODINGS:
            said = "The body has a Content-Encoding; send it plain and compress payloads instead."
            await node.note("EBMS:0007", said, _peer(scope))
            await say(send, 415, said, [(b"accept-encoding", b"identity")])
        elif b"content-range" in head and _upload(scope, head) is None:
            said = "The Content-Range makes no sense, or no ETag says of what it is."
            await node.note("EBMS:0007", said, _peer(scope))
            await say(send, 400, said)
        elif (busy := in_progress.refusal(address := _counted_address(scope))) is not None:
            noted.note(busy, _peer(scope))
            said = "The node is busy; send the message again in a moment."
            await say(send, 503, said, [(b"retry-after", SOON)])
        else:
            name = id(scope)
            begin = partial(in_progress.begin, name, address)
            request = _request(scope, head, receive, limit, begin)
            try:
                await _answer(node, request, scope, send)
            except ClientIsGone as gone:
                noted.note(Incident.CLIENT_GONE, _peer(scope), str(gone))
            finally:
                in_progress.end(name)

    return endpoint


async def say(send: Send, status: int, sentence: str, headers: Headers = ()) -> None:
    """Answer with one sentence."""
    response = Response(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())
    await _write(send, response, headers)


def _request(
    scope: Scope,
    head: dict[bytes, bytes],
    receive: Receive,
    limit: int,
    arrived: Callable[[], None],
) -> Request:
    """A request whose body is read as it comes; `arrived` is told when all of it did."""
    length = head.get(b"content-length", b"")
    announced = int(length) if length.isdigit() else None
    too_large = announced is not None and announced > limit
    body = _too_large(limit) if too_large else body_chunks(receive, limit=limit, arrived=arrived)
    return Request(
        _text(head.get(b"content-type")),
        _peer(scope),
        body,
        scope.get("extensions", {}).get("tls", {}).get("client_certificate"),
        _text(head.get(b"soapaction")),
        stations=_text(head.get(STATIONS.lower().encode())),
        length=announced,
        upload=_upload(scope, head) if b"etag" in head else None,
        is_gone=scope.get("extensions", {}).get("connection", {}).get("is_closing"),
    )


def _upload(scope: Scope, head: dict[bytes, bytes]) -> Upload | None:
    """The upload that a request names by its ETag; None also where its range makes no sense."""
    name = read_transfer_id(_text(head.get(b"etag")) or "")
    if name is None:
        return None
    said = _text(head.get(b"content-range"))
    given = read_content_range(said) if said is not None else None
    if said is not None and given is None:
        return None
    return Upload(scope["path"], name, given, probe=scope["method"] == "HEAD")


def _probe(scope: Scope, upload: Upload) -> Request:
    tls = scope.get("extensions", {}).get("tls", {})
    return Request(None, _peer(scope), _nothing(), tls.get("client_certificate"), upload=upload)


async def _probed(node: Receiving, request: Request) -> Response:
    try:
        return await node.receive(request)
    except StoreError as trouble:
        _log.error("not looked up", extra={"peer": request.peer, "detail": str(trouble)})
        return Response(503)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def _text(value: bytes | None) -> str | None:
    return value.decode("latin-1") if value is not None else None


async def _too_large(limit: int) -> AsyncIterator[bytes]:
    """A body that is known to be too large before it comes; none of it is read."""
    raise TooLarge(limit)
    yield b""


async def _answer(node: Receiving, request: Request, scope: Scope, send: Send) -> None:
    try:
        response = await node.receive(request)
    except ClientIsGone:
        raise
    except StoreError as full:
        _log.error("not stored", extra={"peer": request.peer, "detail": str(full)})
        response = _failure(node.config.node, *not_stored(full))
    except Exception as unexpected:
        _log.error("a message could not be received", exc_info=unexpected)
        said = "the receiver could not process the message; send it again later"
        response = _failure(node.config.node, 500, EbmsError("EBMS:0004", said))
    if response.flow is not None:
        await _pass_back(send, response, response.flow)
        return
    headers = [(b"retry-after", LATER)] if response.status == 503 else ()
    if response.handed is None:
        await _write(send, response, headers)
        return
    gone = _is_gone(scope)
    try:
        if not gone:
            await _write(send, response, headers)
    finally:
        # What was given to the transport may have arrived, whatever happens then.
        await response.handed(not gone)


def _counted_address(scope: Scope) -> str | None:
    """What the client is counted by; None if its network is exempt."""
    address: str | None = scope.get("extensions", {}).get("connection", {}).get("address")
    return address


def _is_gone(scope: Scope) -> bool:
    """Whether who made the request has closed the connection."""
    is_closing = scope.get("extensions", {}).get("connection", {}).get("is_closing")
    return is_closing is not None and is_closing()


def _failure(node: str, status: int, problem: EbmsError) -> Response:
    """What went wrong is in the log; the sender is told to try again."""
    now = datetime.now(UTC)
    signal = error(
        [problem],
        signal_id=new_message_id(now, os.urandom, host_name(node)),
        ref=None,
        now=now,
    )
    answer = write_answer(signal, SoapVersion.SOAP_12, None, now)
    return Response(status, answer.content_type, answer.envelope)


async def _pass_back(send: Send, response: Response, flow: Flowing) -> None:
    """Write what another MSH answers while it comes; broken off where that breaks off."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in flow.headers]
    if flow.length is not None:
        headers.append((b"content-length", b"%d" % flow.length))
    if response.content_type:
        headers.append((b"content-type", response.content_type.encode("latin-1")))
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async for piece in flow.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await flow.end()


async def _write(send: Send, response: Response, headers: Headers = ()) -> None:
    pieces = response.pieces
    length = len(response.body) if pieces is None else pieces.length
    if response.length is not None:
        length = response.length
    sent = [(b"content-length", b"%d" % length), *headers]
    sent += [(name.encode(), value.encode("latin-1")) for name, value in response.headers]
    if response.content_type is not None:
        sent.append((b"content-type", response.content_type.encode("latin-1")))
    await send({"type": "http.response.start", "status": response.status, "headers": sent})
    if pieces is not None:
        reading = pieces.read()
        while (piece := await asyncio.to_thread(next, reading, None)) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": response.body})


def _peer(scope: Scope) -> str | None:
    client = scope.get("client")
    return str(client[0]) if client else None
