"""One connection of a client to the server: uvicorn's protocol, with limits that it lacks.

A connection is waiting for the head of a request, receiving a body, being answered, idle, or
lingering after an answer that came before the end of the body. `check` looks at it about once a
second and ends it when the client takes too long; there is no timer per connection or request.
While no request is in progress, a connection can be closed to make room for another (`admission`).
"""

import asyncio
import functools
import logging
import re
import ssl
import traceback
from array import array
from collections.abc import Callable, Collection
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from postroad.transport.admission import Admission, Scope, Slot
from postroad.transport.http_large import LARGE, LargeBody
from postroad.transport.http_limits import ServerLimits
from postroad.transport.incidents import Incident, Incidents
from postroad.transport.tls import refusal

logger = logging.getLogger("postroad.http")

_AHEAD: Final = 256 * 1024
"""More of a body than this waits in the network until the application has taken it; what the loop
reads at once is less."""
CLOSE: Final = (b"connection", b"close")
_TOO_LARGE: Final = (431, "The head of the request is too large.")
_NOT_HTTP: Final = (400, "This is not a valid HTTP request.")
_FULL: Final = (503, "There are too many connections. Try again later.")
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?")
"""RFC 9110, 7.2: a host as in a URL, and a port."""
_CROWD: Final = (429, "Too many requests were sent before the first was answered.")
_QUEUED: Final = 1000
"""Requests of one connection that wait for the answer to one before them."""
RETRY_AFTER: Final = 2
"""Seconds after which it is worth to try again where all places are taken."""


_OVER: Final = "over"
"""The connection ends in the usual course of things: it was idle, or its answer was given."""


class State(ServerState):
    """What all connections of one server share."""

    def __init__(
        self,
        limits: ServerLimits,
        clock: Callable[[], float],
        incidents: Incidents | None = None,
        health_paths: frozenset[bytes] = frozenset(),
    ) -> None:
        super().__init__()
        self.limits = limits
        self.clock = clock
        self.incidents = incidents or Incidents(logger, clock=clock)
        self.health_paths = health_paths
        """What is served to a connection in the reserve."""
        self.admission = Admission(
            limits.connections,
            limits.connections_per_address,
            reserve=limits.health_connections if health_paths else 0,
            rules=limits.address_rules,
        )
        self.open: set[Connection] = set()
        self.draining = False
        self.greeting: dict[asyncio.Task[None], tuple[float, str]] = {}
        """TLS handshakes in progress: since when, and with whom."""
        self.empty = asyncio.Event()
        self.closing_headers: list[tuple[bytes, bytes]] = [CLOSE]

    def admit(self, host: str | None, close: Callable[[Scope], None]) -> Slot | None:
        """Give a newcomer a place; None if there is none, not even in the reserve."""
        return self.admission.admit(host, close, functools.partial(self._note_refusal, host))

    def note_eviction(self, host: str | None, scope: Scope) -> None:
        """Note that a connection was closed to make room."""
        address = scope == "address"
        self.incidents.note(Incident.EVICTED_ADDRESS if address else Incident.EVICTED_TOTAL, host)

    def _note_refusal(self, host: str | None, scope: Scope) -> None:
        address = scope == "address"
        self.incidents.note(Incident.REFUSED_ADDRESS if address else Incident.REFUSED_TOTAL, host)

    def date(self, value: bytes) -> None:
        """What goes with every answer, and with one that ends its connection."""
        self.default_headers = [(b"date", value)]
        self.closing_headers = [(b"date", value), CLOSE]


class Log:
    """uvicorn's messages, each on one line; the traceback only for who debugs."""

    level: Final = logging.INFO

    def log(self, level: int, message: str, *values: object) -> None:
        logger.log(level, message, *values)

    def warning(self, message: str, *values: object) -> None:
        logger.warning(message, *values)

    def error(self, message: str, *values: object, exc_info: BaseException | None = None) -> None:
        if exc_info is None:
            logger.error(message, *values)
        elif not isinstance(exc_info, asyncio.CancelledError):
            debugging = exc_info if logger.isEnabledFor(logging.DEBUG) else None
            logger.error("a request failed: %s", in_one_line(exc_info), exc_info=debugging)


def in_one_line(error: BaseException) -> str:
    """What went wrong and where, without a line break."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said} ({frames[-1].filename}:{frames[-1].lineno})" if frames else said


class _Flow(FlowControl):
    """Reads no further while requests wait for their turn, and not from a closed connection."""

    def __init__(self, transport: asyncio.Transport, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            super().pause_reading()

    def resume_reading(self) -> None:
        if not self._pipeline and not self._transport.is_closing():
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with deadlines, least rates, a bound on heads and a lingering close."""

    transport: asyncio.Transport

    def __init__(
        self,
        config: Config,
        server_state: State,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        slot: Slot | None = None,
    ) -> None:
        """`slot` is the place of a connection whose TLS handshake was counted already."""
        super().__init__(config, server_state, app_state, _loop)
        self.slot = slot
        self.logger = Log()  # type: ignore[assignment]
        self.access_log = False
        self.state = server_state
        self.limits = server_state.limits
        self.clock = server_state.clock
        self.extensions: dict[str, dict[str, object]] = {}
        self.requests = 0
        self.since = self.clock()
        """When waiting began: for the head, for the body, for the next request."""
        self.heard_at = self.since
        self.reading_head = True
        self.loose_bytes = 0
        """Bytes that came since the last that were of use: of heads, trailers, chunk lines."""
        self.refused: tuple[int, str] | None = None
        """Status and sentence for a head that is not taken; else it is no HTTP at all."""
        self.body_bytes = 0
        self.body_seconds = 0.0
        """For which the client was free to send."""
        self.rated_bytes = 0
        self.rated_at = 0.0
        """What had come of the body, and when, where its rate is measured from."""
        self.large: LargeBody | None = None
        """The body that is coming, where it is large."""
        self.checked_at = self.since
        self.deaf = False
        """Whether what still comes is thrown away."""
        self.lingering = False
        self.declining = False
        self.given = 0
        self.taken = 0
        """What was given to the network, and what of that the kernel took."""
        self.rated_read: int | None = None
        self.rated_read_at = self.since
        """What had been read, and when, where the rate of reading is measured from."""

    # What the network says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        state = self.state
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        state.open.add(self)
        if self.slot is None:
            self.slot = state.admit(self.client[0] if self.client else None, self._evict)
        else:
            self.slot.close = self._evict
        if self.slot is None:
            self._say(*_FULL)
            return
        self.extensions["connection"] = {
            "is_closing": transport.is_closing,
            "address": self.slot.address,
        }
        connection = transport.get_extra_info("ssl_object")
        if connection is not None:
            # The handshake had its own time.
            self.since = self.clock()
            self.extensions["tls"] = tls_facts(connection)
            if problem := refusal(connection):
                peer = self.client[0] if self.client else None
                state.incidents.note(Incident.HANDSHAKE, peer, problem)
                self.deaf = True
                transport.abort()

    def _evict(self, scope: Scope) -> None:
        """Close a connection that waits for its client, to make room for another."""
        self.state.note_eviction(self.client[0] if self.client else None, scope)
        self.deaf = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.state.open.discard(self)
        if self.slot is not None:
            self.slot.leave()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        if not self.state.open:
            self.state.empty.set()

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.heard_at = self.clock()
        if not self.loose_bytes and not self.answering:
            self.since = self.heard_at
        self.loose_bytes += len(data)
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._decline()
            except httptools.HttpParserError:
                self._misunderstood()
                return
            else:
                break
        if self.loose_bytes > self.limits.header_bytes:
            self.refused = _TOO_LARGE
            self._misunderstood()
        elif self.large is not None and not self.pipeline and not self.deaf:
            self._read_straight(self.large)

    def _read_straight(self, large: LargeBody) -> None:
        """The rest of a large body goes past the parser."""
        self.large = None
        if self.cycle.more_body:
            large.begin(large.length - self.body_bytes)
            self.transport.set_protocol(large)

    def _came_straight(self, count: int) -> None:
        self.since = self.heard_at = self.clock()
        self.body_bytes += count

    def _straight_ended(self) -> None:
        """A new parser reads the next request; this one waits for the rest of a body."""
        self.transport.set_protocol(self)
        self.parser = httptools.HttpRequestParser(self)
        if not self.deaf:
            self.on_message_complete()

    # What the parser says

    def on_headers_complete(self) -> None:
        if self.declining:
            return
        if self.loose_bytes > self.limits.header_bytes:
            self._measure_head()
        self.refused = _head_problem(self.parser.get_http_version(), self.headers)
        slot = self.slot
        assert slot is not None
        if self.refused is None and slot.restricted and not self._asks_for_health():
            self.refused = _FULL
        if len(self.pipeline) > _QUEUED:
            self.refused = _CROWD
        if self.refused is not None:
            raise ValueError(self.refused[1])
        slot.work()
        self.scope["extensions"] = self.extensions.copy()  # type: ignore[typeddict-item]
        self.requests += 1
        self.reading_head = False
        self.loose_bytes = 0
        self.body_bytes = self.rated_bytes = 0
        self.body_seconds = self.rated_at = 0.0
        self.since = self.checked_at = self.heard_at
        super().on_headers_complete()
        # Until the whole request is there, an answer is its connection's last.
        self.cycle.default_headers = self.state.closing_headers
        # Trailers, which come here as well, are no headers of the request.
        self.headers = []
        self.large = self._large_body(self.cycle)

    def _asks_for_health(self) -> bool:
        return self.url.partition(b"?")[0] in self.state.health_paths

    def _large_body(self, cycle: RequestResponseCycle) -> LargeBody | None:
        given = dict(cycle.scope["headers"]).get(b"content-length", b"")
        length = int(given) if given.isdigit() else 0
        if length < LARGE:
            return None
        return LargeBody(self, cycle, length, self._came_straight, self._straight_ended)

    def on_body(self, body: bytes) -> None:
        self.loose_bytes = 0
        self.body_bytes += len(body)
        self.since = self.heard_at
        cycle = self.cycle
        if cycle.response_complete:
            return
        # Bytes are handed over as they are; an array would be copied twice.
        cycle.body = cycle.body + body if cycle.body else body  # type: ignore[assignment]
        if len(cycle.body) > _AHEAD:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        self.loose_bytes = 0
        self.reading_head = True
        super().on_message_complete()
        most = self.limits.requests_per_connection
        last = most is not None and self.requests >= most
        restricted = self.slot is not None and self.slot.restricted
        if not (last or restricted or self.state.draining):
            self.cycle.default_headers = self.state.default_headers

    # What uvicorn's answer does with the connection

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.transport = self  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with the next request; the idle time is bounded by `check`."""
        self.state.total_requests += 1
        self.since = self.clock()
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._wait()
        self.flow.resume_reading()

    def _wait(self) -> None:
        """Let the connection make room for another, once its client has read all.

        Also one that is being closed: over TLS that takes an answer of the client.
        """
        if self.slot is not None and not self.transport.get_write_buffer_size():
            self.slot.wait()

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.given += len(data)
            self.transport.write(data)

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def close(self) -> None:
        """End the connection; not before the client could read an answer that it didn't expect.

        Closing while bytes still come would make the kernel send a reset, which can overtake the
        answer.
        """
        self.pipeline.clear()
        if self.cycle is not None and self.cycle.more_body and not self.transport.is_closing():
            self.deaf = self.lingering = True
            self.since = self.clock()
            self.flow.resume_reading()
        else:
            self.transport.close()
        self._wait()

    def shutdown(self, patience: float = 0) -> None:
        """Finish what is under way, then close; who came within `patience` seconds may begin."""
        if self.requests == 0 and self.clock() - self.since < patience:
            return
        if self.answering:
            self.cycle.default_headers = self.state.closing_headers
            self.cycle.keep_alive = False
        elif not self.lingering and not (self.reading_head and self.loose_bytes):
            self.transport.close()

    # What takes too long

    def check(self, now: float) -> None:
        """End the connection if its client takes longer than it may."""
        found = self._overdue(now)
        self.checked_at = now
        if found is None:
            if not self.answering:
                self._wait()
            return
        if isinstance(found, Incident):
            self.state.incidents.note(found, self.client[0] if self.client else None)
        transport = self.transport
        if transport.is_closing() or self.answering or transport.get_write_buffer_size():
            transport.abort()
        elif self.reading_head and self.loose_bytes:
            self._say(408, "The request took too long.")
        else:
            self.transport.close()

    def _overdue(self, now: float) -> Incident | str | None:
        """What the client took too long for; `_OVER` where nobody is to blame."""
        limits = self.limits
        if self._is_unread(now):
            return Incident.SLOW_READER
        if self.taken < self.given and not self.answering:
            # The client still reads the last answer: it is not idle.
            self.since = now
        waited = now - self.since
        if self.lingering:
            return _OVER if waited > limits.linger_seconds else None
        if not self.answering:
            if self.requests == 0 or (self.reading_head and self.loose_bytes):
                return Incident.HEAD_TIMEOUT if waited > limits.header_seconds else None
            return _OVER if waited > limits.idle_seconds else None
        if self.cycle.more_body and self._is_slow_body(now):
            return Incident.SLOW_BODY
        return None

    def _is_slow_body(self, now: float) -> bool:
        """Whether a body has stopped, or brought less in `body_seconds` than `min_rate` gives.

        Time counts only while the client is free to send. The rate is measured anew each time that
        enough has come: what came quickly before is no excuse for standing still later.
        """
        passed = now - self.checked_at
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self.since += passed
            return False
        limits = self.limits
        self.body_seconds += passed
        if now - self.since > limits.body_seconds:
            return True
        if self.body_bytes - self.rated_bytes >= limits.min_rate * limits.body_seconds:
            self.rated_bytes, self.rated_at = self.body_bytes, self.body_seconds
        return self.body_seconds - self.rated_at > limits.body_seconds

    def _is_unread(self, now: float) -> bool:
        """Whether less of a response was read in `write_seconds` than `min_rate` gives."""
        limits = self.limits
        waiting = self.transport.get_write_buffer_size()
        self.taken = self.given - waiting
        if not waiting:
            self.rated_read = None
            return False
        # The kernel takes megabytes ahead, and then nothing until much of that was read: what
        # counts is what the client's end acknowledged.
        read = self.taken - _unacknowledged(self.transport)
        enough = max(1, limits.min_rate * limits.write_seconds)
        if self.rated_read is None or read - self.rated_read >= enough:
            self.rated_read, self.rated_read_at = read, now
            return False
        return now - self.rated_read_at > limits.write_seconds

    # What cannot be understood or is not wanted

    def _decline(self) -> None:
        """Go on with HTTP/1.1 after an offer to change to another protocol.

        The parser takes the offer for accepted and the body for what is said in that protocol. A
        new parser is told how long the body is, and nothing else of the head.
        """
        framing = [
            b"%s: %s\r\n" % (name, value)
            for name, value in self.scope["headers"]
            if name in (b"content-length", b"transfer-encoding")
        ]
        if not framing:
            return
        self.cycle.more_body = True
        self.cycle.message_event.clear()
        self.cycle.default_headers = self.state.closing_headers
        self.parser = httptools.HttpRequestParser(self)
        self.declining = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
        self.declining = False

    @property
    def answering(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def _measure_head(self) -> None:
        """Refuse a head that came in one piece and is too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes:
            self.refused = _TOO_LARGE
            raise ValueError(_TOO_LARGE[1])

    def _misunderstood(self) -> None:
        """Refuse what is no HTTP; an answer that is under way is finished first."""
        self.deaf = True
        if self.answering and (self.pipeline or not self.cycle.more_body):
            self.shutdown()
            return
        if self.answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._say(*(self.refused or _NOT_HTTP))

    def _say(self, status: int, text: str) -> None:
        """Answer without the application, and close."""
        self.deaf = True
        body = text.encode() + b"\n"
        self.write(
            STATUS_LINE[status]
            + b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
            + (b"retry-after: %d\r\n" % RETRY_AFTER if status == 503 else b"")
            + b"connection: close\r\n\r\n"
            + body
        )
        self.transport.close()
        self._wait()


def _head_problem(version: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    """Why a request is refused for its head: where two readers could see different requests.

    RFC 9112: one valid Host (3.2), no transfer coding but chunked, and not in HTTP/1.0 (6.1, 7).
    """
    if version not in ("1.0", "1.1"):
        return 505, "Only HTTP 1.1 and 1.0 are served here."
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        return 400, f"A request has one Host header, this one has {len(hosts)}."
    if hosts and not _HOST.fullmatch(hosts[0]):
        return 400, "The Host header is not a host name or address with an optional port."
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and version == "1.0":
        return 400, "HTTP/1.0 has no Transfer-Encoding. Send a Content-Length."
    if codings and codings != [b"chunked"]:
        return 501, "The only transfer coding that is taken is chunked."
    return None


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes that the kernel took and the other end has not acknowledged; 0 where nobody knows."""
    unsent = array("i", [0])
    try:
        ioctl(transport.get_extra_info("socket").fileno(), TIOCOUTQ, unsent)
    except (OSError, AttributeError):
        return 0
    return unsent[0]


def tls_facts(connection: ssl.SSLObject) -> dict[str, object]:
    """What an application may know of the TLS connection that a request came over."""
    suite, _, bits = connection.cipher() or ("", "", 0)
    return {
        "version": connection.version(),
        "cipher": suite,
        "bits": bits,
        "client_certificate": connection.getpeercert(binary_form=True),
    }
