"""A client's connection to a server: one request after the other, each with its answer.

Written directly on the loop's transport and httptools' parser, since a message a millisecond
leaves no time for more. The connection is good for another request only after a whole answer to a
wholly sent request; in every other case it is closed.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final

import httptools

from postroad.transport.http_outgoing import (
    DEFAULT_TIMEOUTS,
    Kind,
    Outgoing,
    Pieces,
    Reply,
    TransportFailure,
)
from postroad.wire.limits import KIB, MIB

_HEADER_BYTES: Final = 64 * KIB
_JOINED: Final = 256 * KIB
"""Up to this size head and body are one write."""
_IN_THE_LOOP: Final = 8 * MIB
"""Bodies above this are read by a thread, since the disk may take its time."""
_BUFFERED: Final = 256 * KIB
_INTERIM: Final = 16
"""So many 1xx may come before an answer."""
_TICKS: Final = 4
"""A stall is noticed within a quarter of its time."""


class Exchange(asyncio.Protocol):
    """One connection. `peer` is how it is named to people: host and port."""

    def __init__(self, peer: str, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = peer
        self.loop = loop
        self.transport: asyncio.Transport
        self.closed = False
        self.on_lost: Callable[[], None] | None = None
        self.idle_since = 0.0
        self.keep_seconds: float | None = None
        """How long the server keeps an idle connection, where it says so."""
        self._parser = httptools.HttpResponseParser(self)
        self._reply: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._spoiled = False
        self._answered = False
        """Whether this connection has ever brought an answer."""
        self._request_sent = False
        self.transmitted = False
        self._timeouts = DEFAULT_TIMEOUTS
        self._limit = 0
        self._reader: Callable[[str], Callable[[bytes], None]] | None = None
        self._moved_at = 0.0
        self._unsent = 0
        self._interim = 0
        self._forget_answer()

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return not (self.closed or self._spoiled or self.transport.is_closing())

    async def send(self, head: bytes, request: Outgoing) -> Reply:
        """Send a request and wait for its answer; `TransportFailure` when none comes."""
        body = request.body
        self._begin(request)
        assert self._reply is not None
        if not self.reusable:
            self._fail("closed", f"{self.peer} closed the connection before anything was sent")
        try:
            if self._reply.done():
                return await self._reply
            if isinstance(body, bytes):
                self._send_bytes(head, body)
                if request.progress is not None:
                    request.progress(len(body))
            else:
                await self._send_pieces(head, body, request)
            self._request_sent = True
            self._moved_at = self.loop.time()
            return await self._reply
        except BaseException:
            self._spoiled = True
            self.transport.abort()
            raise
        finally:
            self._end()

    # The request

    def _begin(self, request: Outgoing) -> None:
        loop = self.loop
        self._reply = loop.create_future()
        self._request_sent = self.transmitted = False
        self._limit = request.reply_bytes
        self._reader = request.reader
        self._timeouts = timeouts = request.timeouts
        self._moved_at = loop.time()
        self._unsent = 0
        self._interim = 0
        self._forget_answer()
        first = min(timeouts.answer, timeouts.stall / _TICKS)
        self._timer = loop.call_later(first, self._tick)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reply is not None and not self._reply.done():
            self._reply.cancel()
        self._reply = None
        if self._paused or self.transport.get_write_buffer_size():
            self._spoiled = True

    def _send_bytes(self, head: bytes, body: bytes) -> None:
        self.transmitted = True
        if len(body) <= _JOINED:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def _send_pieces(self, head: bytes, body: Pieces, request: Outgoing) -> None:
        assert self._reply is not None
        given = 0
        pieces: Iterator[bytes] | None = None
        while not self._over():
            try:
                if pieces is None:
                    pieces = body.read()
                piece = await self._next(pieces, body.length)
            except Exception as error:
                raise self._failure("body", f"the content cannot be read: {error}") from error
            if piece is None or self._over():
                break
            given += len(piece)
            if given > body.length:
                raise self._failure("body", f"the content is longer than {body.length} bytes")
            self.transmitted = True
            self.transport.write(head + piece if head else piece)
            head = b""
            self._moved_at = self.loop.time()
            if request.progress is not None:
                request.progress(given)
            await self._room()
        if self._over():
            self._spoiled = True
        elif given < body.length:
            raise self._failure("body", f"the content ended after {given} of {body.length} bytes")
        elif head:
            self.transmitted = True
            self.transport.write(head)

    def _over(self) -> bool:
        """Whether there is no use in sending more: an early answer, or a connection that broke."""
        return self._reply is None or self._reply.done() or self.transport.is_closing()

    async def _next(self, pieces: Iterator[bytes], length: int) -> bytes | None:
        if length <= _IN_THE_LOOP:
            return next(pieces, None)
        reading = self.loop.run_in_executor(None, next, pieces, None)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread must have left the iterator before anybody closes it.
            await asyncio.wait([reading])
            raise

    async def _room(self) -> None:
        """Wait until the network has taken enough of what it was given."""
        while self._paused and not self.closed:
            if self._over():
                return
            self._writable = self.loop.create_future()
            await self._writable

    def _wake(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # Time

    def _tick(self) -> None:
        """Fail when nothing moved for too long, else look again later."""
        now = self.loop.time()
        timeouts = self._timeouts
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self._moved_at = now
        if self._answer_bytes:
            allowed, missing = timeouts.stall, f"the answer of {self.peer} broke off"
        elif unsent or not self._request_sent:
            allowed, missing = timeouts.stall, f"{self.peer} took no more of the message"
        else:
            allowed, missing = timeouts.answer, f"no answer from {self.peer}"
        due = self._moved_at + allowed
        if now >= due:
            self._fail("timeout", f"{missing} within {allowed:g} s")
            return
        if unsent:
            due = min(due, now + allowed / _TICKS)
        self._timer = self.loop.call_at(due, self._tick)

    # What the network says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.set_write_buffer_limits(high=_BUFFERED)

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():
            # Nobody asked: what stands between two answers belongs to neither.
            self._spoiled = True
            self.transport.abort()
            return
        self._answer_bytes += len(data)
        self._loose_bytes += len(data)
        self._moved_at = self.loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("protocol", f"{self.peer} wants to speak another protocol than HTTP/1.1")
        except httptools.HttpParserError as error:
            self._fail("protocol", f"the answer of {self.peer} is not valid HTTP: {error}")
        if self._loose_bytes > _HEADER_BYTES:
            self._fail("protocol", f"the head of the answer of {self.peer} is too large")

    def eof_received(self) -> None:
        self._spoiled = True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._read_rest()
        self.closed = True
        if self._until_close:
            self._complete()
        if isinstance(exc, ssl.SSLError):
            self._fail("tls", f"{self.peer} ended the TLS connection: {exc.reason or exc}")
        elif self._answer_bytes:
            self._fail("closed", f"{self.peer} closed the connection in the midst of its answer")
        else:
            closed = f"{self.peer} closed the connection before an answer came"
            self._fail("closed", closed + self._suspicion())
        self._wake()
        if self.on_lost is not None:
            self.on_lost()

    def _suspicion(self) -> str:
        """With TLS 1.3 a server looks at our certificate after we take the handshake for done."""
        connection = self.transport.get_extra_info("ssl_object")
        if self._answered or connection is None or connection.version() != "TLSv1.3":
            return ""
        return "; it may want another client certificate"

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._moved_at = self.loop.time()
        self._wake()

    def _read_rest(self) -> None:
        """Read what the server said before it closed while we were sending: its reason, mostly."""
        sock = self.transport.get_extra_info("socket")
        if self._reply is None or self._reply.done() or sock is None:
            return
        if self.transport.get_extra_info("ssl_object") is not None:
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(sock.fileno())) as rest:
            rest.setblocking(False)
            while not self._reply.done() and (data := rest.recv(_BUFFERED)):
                self.data_received(data)

    # What the parser says

    def _forget_answer(self) -> None:
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._content_type = ""
        self._parts: list[bytes] = []
        self._take: Callable[[bytes], None] = self._parts.append
        self._answer_bytes = 0
        self._body_bytes = 0
        self._loose_bytes = 0
        self._head_done = False
        self._delimited = False
        self._until_close = False

    def on_message_begin(self) -> None:
        if self._reply is None or self._reply.done():
            self._spoiled = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        self._headers.append((key, text))
        if key == "content-type":
            self._content_type = self._content_type or text
        elif key == "content-length":
            self._delimited = True
            if text.isdecimal() and int(text) > self._limit:
                self._too_large()
        elif key == "transfer-encoding":
            self._delimited = self._delimited or "chunked" in text.lower()
        elif key == "keep-alive":
            self.keep_seconds = _kept(text)

    def on_headers_complete(self) -> None:
        self._status = status = self._parser.get_status_code()
        self._head_done = True
        self._loose_bytes = 0
        self._until_close = not self._delimited and status >= 200 and status not in (204, 304)
        if self._reader is not None and status >= 200:
            self._take = self._reader(self._content_type)

    def on_body(self, data: bytes) -> None:
        self._loose_bytes = 0
        self._body_bytes += len(data)
        if self._body_bytes > self._limit:
            self._too_large()
        else:
            self._take(data)

    def on_message_complete(self) -> None:
        if self._status < 200:
            # 100 Continue and its like come before the answer itself.
            self._forget_answer()
            self._interim += 1
            if self._interim > _INTERIM:
                self._fail("protocol", f"{self.peer} says 1xx again and again, and no answer comes")
            return
        if not self._parser.should_keep_alive():
            self._spoiled = True
        self._complete()

    def _complete(self) -> None:
        if self._reply is None or self._reply.done():
            return
        self._answered = True
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._reply.set_result(Reply(self._status, self._content_type, tuple(self._headers), body))
        if not self._request_sent:
            self._wake()

    def _too_large(self) -> None:
        self._fail("too_large", f"the answer of {self.peer} is larger than {self._limit} bytes")

    def _fail(self, kind: Kind, reason: str) -> None:
        if self._reply is None or self._reply.done():
            return
        self._spoiled = True
        self._reply.set_exception(self._failure(kind, reason))
        self.transport.abort()
        self._wake()

    def _failure(self, kind: Kind, reason: str) -> TransportFailure:
        return TransportFailure(kind, reason, transmitted=self.transmitted)


def _kept(value: str) -> float | None:
    """The seconds of `Keep-Alive: timeout=5, max=100`."""
    for word in value.split(","):
        name, _, number = word.strip().partition("=")
        if name.lower() == "timeout" and number.isdecimal():
            return float(number)
    return None
