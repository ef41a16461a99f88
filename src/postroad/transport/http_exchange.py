"""A client's connection to a server: one request after the other, each with its answer.

Written directly on the loop's transport and httptools' parser, since a message a millisecond
leaves no time for more. The connection is good for another request only after a whole answer to a
wholly sent request; in every other case it is closed. Requests that say so may be pipelined: sent
while earlier ones wait for their answers, which come in the same order (RFC 9112, 9.3.2).
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from typing import Final

import httptools

from postroad.transport.http_outgoing import (
    DEFAULT_TIMEOUTS,
    Flow,
    Kind,
    Outgoing,
    Pieces,
    Reading,
    Reply,
    TransportFailure,
)
from postroad.wire.limits import KIB, MIB

_HEADER_BYTES: Final = 64 * KIB
_JOINED: Final = 256 * KIB
"""Up to this size head and body are one write."""
_IN_THE_LOOP: Final = 8 * MIB
"""Bodies above this are read by a thread, since the disk may take its time."""
_AT_ONCE: Final = 4
"""So many pieces a thread reads before it hands them over."""
_BUFFERED: Final = 256 * KIB
_INTERIM: Final = 16
"""So many 1xx may come before an answer."""
_TICKS: Final = 4
"""A stall is noticed within a quarter of its time."""
_INVITED_WITHIN: Final = 1.0
"""Seconds after which a body is sent to a server that was to ask for it and did not."""
_PIPELINED: Final = 8
"""So many requests may wait for their answers on one connection."""


class _Asked:
    """A request, and who waits for its answer."""

    __slots__ = ("reply", "request", "sent", "transmitted")

    def __init__(self, request: Outgoing, reply: asyncio.Future[Reply]) -> None:
        self.request = request
        self.reply = reply
        self.sent = False
        """Wholly."""
        self.transmitted = False


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
        self._line: deque[_Asked] = deque()
        """Those who wait for answers, in the order of their requests."""
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._spoiled = False
        self._answered = False
        """Whether this connection has ever brought an answer."""
        self.transmitted = False
        """Whether a byte of what waits for an answer may have left."""
        self._timeouts = DEFAULT_TIMEOUTS
        self._limit = 0
        self._reader: Callable[[str], Callable[[bytes], None]] | None = None
        self._tap: Callable[[Reply, Reading], Callable[[bytes], None]] | None = None
        self._invited: asyncio.Future[None] | None = None
        """Done when the server asks for the body."""
        self._hungry = False
        """Whether what is to be sent has not come yet: the server is not to blame."""
        self._moved_at = 0.0
        self._unsent = 0
        self._interim = 0
        self._forget_answer()

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return not (self.closed or self._spoiled or self.transport.is_closing())

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._line

    @property
    def has_room(self) -> bool:
        """Whether one more request may be pipelined.

        Not before the server has shown that it keeps the connection, not while the network is
        busy with another one, and never behind one whose answer is not to be passed by others.
        """
        line = self._line
        return (
            self._answered
            and self.reusable
            and not self._paused
            and len(line) < _PIPELINED
            and all(asked.sent and asked.request.pipelined for asked in line)
        )

    async def send(self, head: bytes, request: Outgoing) -> Reply:
        """Send a request and wait for its answer; `TransportFailure` when none comes."""
        body = request.body
        asked = self._begin(request)
        if not self.reusable:
            self._fail("closed", f"{self.peer} closed the connection before anything was sent")
        try:
            if asked.reply.done():
                return await asked.reply
            if request.expects:
                head = await self._invitation(asked, head)
            if isinstance(body, bytes):
                self._send_bytes(asked, head, body)
                if request.progress is not None:
                    request.progress(len(body))
            elif isinstance(body, Flow):
                await self._send_flow(asked, head, body)
            else:
                await self._send_pieces(asked, head, body)
            asked.sent = True
            self._moved_at = self.loop.time()
            return await asked.reply
        except BaseException:
            self._spoiled = True
            self.transport.abort()
            raise
        finally:
            self._end(asked)

    # The request

    def _begin(self, request: Outgoing) -> _Asked:
        asked = _Asked(request, self.loop.create_future())
        self._line.append(asked)
        if len(self._line) == 1:
            self.transmitted = False
            self._listen()
        return asked

    def _listen(self) -> None:
        """Wait for the answer to the request that is first in line."""
        loop, request = self.loop, self._line[0].request
        self._limit = request.reply_bytes
        self._reader = request.reader
        self._tap = request.tap
        self._timeouts = timeouts = request.timeouts
        self._moved_at = loop.time()
        self._unsent = 0
        self._interim = 0
        self._forget_answer()
        if self._timer is not None:
            self._timer.cancel()
        first = min(timeouts.answer, timeouts.stall / _TICKS)
        self._timer = loop.call_later(first, self._tick)

    def _end(self, asked: _Asked) -> None:
        if not asked.reply.done():
            asked.reply.cancel()
        if asked in self._line:
            self._line.remove(asked)
        if self._line:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._paused or self.transport.get_write_buffer_size():
            self._spoiled = True

    async def _invitation(self, asked: _Asked, head: bytes) -> bytes:
        """Send the head, and wait until the server asks for the body or answers without it.

        Nothing of the head is left to send.
        """
        self.transport.write(head)
        self._invited = self.loop.create_future()
        await asyncio.wait(
            (self._invited, asked.reply),
            timeout=_INVITED_WITHIN,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return b""

    def _send_bytes(self, asked: _Asked, head: bytes, body: bytes) -> None:
        self.transmitted = asked.transmitted = True
        if len(body) <= _JOINED:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def _send_pieces(self, asked: _Asked, head: bytes, body: Pieces) -> None:
        given = 0
        pieces: Iterator[bytes] | None = None
        progress = asked.request.progress
        while not self._over(asked):
            try:
                if pieces is None:
                    pieces = body.read()
                some = await self._next(pieces, body)
            except Exception as error:
                raise _failure(asked, "body", f"the content cannot be read: {error}") from error
            if not some or self._over(asked):
                break
            given += sum(map(len, some))
            if given > body.length:
                raise _failure(asked, "body", f"the content is longer than {body.length} bytes")
            self.transmitted = asked.transmitted = True
            self.transport.writelines([head, *some] if head else some)
            head = b""
            self._moved_at = self.loop.time()
            if progress is not None:
                progress(given)
            await self._room(asked)
        if self._over(asked):
            # What was asked for whole can be answered before anybody looks for more of it.
            self._spoiled = self._spoiled or bool(head) or given != body.length
        elif given < body.length:
            said = f"the content ended after {given} of {body.length} bytes"
            raise _failure(asked, "body", said)
        elif head:
            self.transmitted = asked.transmitted = True
            self.transport.write(head)

    async def _send_flow(self, asked: _Asked, head: bytes, body: Flow) -> None:
        """Send what comes when it comes; the network says how fast."""
        given = 0
        pieces = body.read()
        try:
            while not self._over(asked):
                piece = await self._coming(asked, pieces)
                if piece is None or self._over(asked):
                    break
                given += len(piece)
                if body.length is None:
                    piece = b"%x\r\n%b\r\n" % (len(piece), piece)
                elif given > body.length:
                    raise _failure(asked, "body", f"the content is longer than {body.length} bytes")
                self._write(asked, head + piece if head else piece)
                head = b""
                await self._room(asked)
        finally:
            await pieces.aclose()
        if self._over(asked):
            # What was asked for whole can be answered before anybody looks for more of it.
            self._spoiled = self._spoiled or bool(head) or given != body.length
        elif body.length is None:
            self._write(asked, head + b"0\r\n\r\n")
        elif given < body.length:
            said = f"the content ended after {given} of {body.length} bytes"
            raise _failure(asked, "body", said)
        elif head:
            self._write(asked, head)

    def _write(self, asked: _Asked, data: bytes) -> None:
        self.transmitted = asked.transmitted = True
        self.transport.write(data)
        self._moved_at = self.loop.time()

    async def _coming(self, asked: _Asked, pieces: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next piece; None when there is none, or when the answer came before it."""
        coming = self.loop.create_task(_next_of(pieces))
        self._hungry = True
        try:
            await asyncio.wait((coming, asked.reply), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
        except Exception as error:
            raise _failure(asked, "body", f"the content cannot be read: {error}") from error
        finally:
            self._hungry = False
            self._moved_at = self.loop.time()
            if not coming.done():
                coming.cancel()
                await asyncio.wait((coming,))
        return None

    def _over(self, asked: _Asked) -> bool:
        """Whether there is no use in sending more: an early answer, or a connection that broke."""
        return asked.reply.done() or self.transport.is_closing()

    async def _next(self, pieces: Iterator[bytes], body: Pieces) -> list[bytes]:
        """The next piece, or some of them from a thread, which is not asked for each alone."""
        if body.at_hand or body.length <= _IN_THE_LOOP:
            return list(islice(pieces, 1))
        reading = self.loop.run_in_executor(None, _some, pieces)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread must have left the iterator before anybody closes it.
            await asyncio.wait([reading])
            raise

    async def _room(self, asked: _Asked) -> None:
        """Wait until the network has taken enough of what it was given."""
        while self._paused and not self.closed:
            if self._over(asked):
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
        if (self._hungry and not unsent) or not self.transport.is_reading():
            self._moved_at = now
        if self._answer_bytes:
            allowed, missing = timeouts.stall, f"the answer of {self.peer} broke off"
        elif unsent or not (self._line and self._line[0].sent):
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
        if not self._line:
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
        if not self._line or sock is None:
            return
        if self.transport.get_extra_info("ssl_object") is not None:
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(sock.fileno())) as rest:
            rest.setblocking(False)
            while self._line and (data := rest.recv(_BUFFERED)):
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
        if not self._line:
            self._spoiled = True
        self._answer_bytes = self._answer_bytes or 1

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
            if text.isdecimal() and int(text) > self._limit and not self._asks_only:
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
        if self._asks_only and status >= 200:
            # What the head says is all that comes; the parser waits for a body.
            self._spoiled = True
            self._complete()
            return
        if self._reader is not None and status >= 200:
            self._take = self._reader(self._content_type)
        if self._tap is not None and status >= 200:
            head = Reply(status, self._content_type, tuple(self._headers), b"")
            self._take = self._tap(head, self.transport)

    @property
    def _asks_only(self) -> bool:
        return bool(self._line) and self._line[0].request.method == "HEAD"

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
            if self._invited is not None and not self._invited.done():
                self._invited.set_result(None)
            self._forget_answer()
            self._interim += 1
            if self._interim > _INTERIM:
                self._fail("protocol", f"{self.peer} says 1xx again and again, and no answer comes")
            return
        last = not self._parser.should_keep_alive()
        self._spoiled = self._spoiled or last
        self._complete()
        if last:
            self._fail("closed", f"{self.peer} closed the connection before an answer came")

    def _complete(self) -> None:
        """The answer is whole: it is for the first in line."""
        if not self._line:
            return
        self._answered = True
        asked = self._line.popleft()
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        reply = Reply(self._status, self._content_type, tuple(self._headers), body)
        if not asked.reply.done():
            asked.reply.set_result(reply)
        if not asked.sent:
            self._wake()
        if self._line:
            self._listen()

    def _too_large(self) -> None:
        self._fail("too_large", f"the answer of {self.peer} is larger than {self._limit} bytes")

    def _fail(self, kind: Kind, reason: str) -> None:
        """No answer for the first in line, and so for nobody behind it."""
        if not self._line:
            return
        self._spoiled = True
        for asked in self._line:
            if not asked.reply.done():
                asked.reply.set_exception(_failure(asked, kind, reason))
            kind = "closed"
        self._line.clear()
        self.transport.abort()
        self._wake()


def _some(pieces: Iterator[bytes]) -> list[bytes]:
    return list(islice(pieces, _AT_ONCE))


async def _next_of(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


def _failure(asked: _Asked, kind: Kind, reason: str) -> TransportFailure:
    return TransportFailure(kind, reason, transmitted=asked.transmitted)


def _kept(value: str) -> float | None:
    """The seconds of `Keep-Alive: timeout=5, max=100`."""
    for word in value.split(","):
        name, _, number = word.strip().partition("=")
        if name.lower() == "timeout" and number.isdecimal():
            return float(number)
    return None
