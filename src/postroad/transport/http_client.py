"""The HTTP client: POST over connections that are kept and shared.

    async with HttpClient() as client:
        reply = await client.post(Outgoing(url, "application/soap+xml", envelope))

Redirects are not followed, cookies not kept, proxies of the environment not used: a message goes
where the P-Mode says and nowhere else. With an egress policy each resolved address is checked
before a connection is opened, and exactly that address is connected to.
"""

import asyncio
import errno
import ssl
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, Protocol, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec

from postroad.security.egress import Purpose
from postroad.security.revocation import Revocation
from postroad.transport import tls
from postroad.transport.egress import Destination, Policy, resolve
from postroad.transport.http_exchange import Exchange
from postroad.transport.http_outgoing import Outgoing, Reply, TransportFailure
from postroad.transport.tls import TlsError, TlsProfile

_SAFE: Final = "/:?=&%;,+$!*'()@~[]"
_NO_TLS: Final = TlsProfile()


class Address(msgspec.Struct, frozen=True):
    """Where a request goes."""

    host: str
    port: int
    secure: bool
    head: str
    """The lines that open every request to it."""
    path: str = "/"
    """Without percent-encoding, as a server compares it."""

    @property
    def peer(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(maxsize=4096)
def parse_address(url: str) -> Address:
    """The parts of an http: or https: URL that a client needs."""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna" if not url.isascii() else "ascii").decode()
    except ValueError as error:
        raise _no_address(url, str(error)) from None
    if parts.scheme not in ("http", "https"):
        raise _no_address(url, "it is neither http: nor https:")
    if not host or parts.username is not None:
        raise _no_address(url, "a host is needed, without a user name before it")
    secure = parts.scheme == "https"
    usual = 443 if secure else 80
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE)
    named = f"[{host}]" if ":" in host else host
    if port not in (None, usual):
        named += f":{port}"
    head = f"POST {target} HTTP/1.1\r\nHost: {named}\r\nUser-Agent: postroad\r\n"
    return Address(host, port or usual, secure, head, unquote(parts.path) or "/")


def _no_address(url: str, why: str) -> TransportFailure:
    return TransportFailure("address", f"{url!r} cannot be sent to: {why}", transmitted=False)


class _Host:
    """The connections to one address with one TLS profile, for one purpose."""

    __slots__ = ("address", "idle", "last", "opened", "profile", "purpose")

    def __init__(self, address: Address, profile: TlsProfile, purpose: Purpose) -> None:
        self.address = address
        self.profile = profile
        self.purpose = purpose
        self.idle: list[Exchange] = []
        self.opened = 0
        self.last: Exchange | None = None
        """The connection that was taken last."""


class Client(Protocol):
    """Who sends requests."""

    async def post(self, request: Outgoing) -> Reply:
        """Send the request and give the answer, whatever its status; else `TransportFailure`."""

    async def close(self) -> None: ...


class HttpClient:
    """Sends requests; keeps connections for the next ones."""

    def __init__(
        self,
        *,
        per_host: int = 32,
        total: int = 256,
        keepalive_seconds: float = 15,
        egress: Policy | None = None,
        revocation: Callable[[], Revocation] | None = None,
    ) -> None:
        """`egress` says which addresses may be contacted; None: all.

        `revocation` is asked whether the certificate of a server was revoked.
        """
        self._egress = egress
        self._revocation = revocation
        self._per_host = per_host
        self._total = total
        self._keepalive_seconds = keepalive_seconds
        self._hosts: dict[tuple[str, int, TlsProfile | None, Purpose, str], _Host] = {}
        self._opened = 0
        self._busy: set[Exchange] = set()
        self._waiting: deque[tuple[_Host, bool, asyncio.Future[None]]] = deque()
        """Who waits for a connection, in this order, and whether he may share it."""
        self._sweeper: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def post(self, request: Outgoing) -> Reply:
        """Send the request and give the answer, whatever its status; else `TransportFailure`."""
        total = request.timeouts.total
        if total is None:
            return await self._post(request)
        sent: list[Exchange] = []
        try:
            async with asyncio.timeout(total):
                return await self._post(request, sent)
        except TimeoutError:
            raise TransportFailure(
                "timeout",
                f"no answer from {parse_address(request.url).peer} within {total:g} s",
                transmitted=any(exchange.transmitted for exchange in sent),
            ) from None

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for host in self._hosts.values():
            for exchange in host.idle:
                exchange.transport.close()
        for exchange in self._busy:
            exchange.transport.abort()
        for *_, turn in self._waiting:
            if not turn.done():
                turn.set_exception(
                    TransportFailure("closed", "the node is shutting down", transmitted=False)
                )
        await asyncio.sleep(0)

    async def _post(self, request: Outgoing, sent: list[Exchange] | None = None) -> Reply:
        address = parse_address(request.url)
        head = _head(address, request)
        host = self._host(address, request)
        exchange = self._free(host, request) or await self._lease(host, request)
        self._busy.add(exchange)
        host.last = exchange
        if sent is not None:
            sent.append(exchange)
        try:
            return await exchange.send(head, request)
        finally:
            if exchange.idle and exchange in self._busy:
                self._busy.discard(exchange)
                self._release(host, exchange)
            elif self._waiting:
                self._next_turn()

    def _host(self, address: Address, request: Outgoing) -> _Host:
        profile = request.tls
        if profile is not None and not address.secure:
            raise _no_address(request.url, "TLS is agreed on, which needs https:")
        # What was allowed for one purpose is no answer for another; on a port of the node itself
        # it depends on the path too.
        own = self._egress is not None and self._egress().has_port(address.port)
        key = (
            address.host,
            address.port,
            (profile or _NO_TLS) if address.secure else None,
            request.purpose,
            address.path if own else "",
        )
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = _Host(address, profile or _NO_TLS, request.purpose)
        return host

    # The pool

    def _free(self, host: _Host, request: Outgoing) -> Exchange | None:
        """A connection that takes the request now."""
        return (self._shared(host) if request.pipelined else None) or self._idle(host)

    def _shared(self, host: _Host) -> Exchange | None:
        """The connection that was taken last, if one more can be pipelined.

        Not when somebody waits for a connection of his own: he would wait without end.
        """
        last = host.last
        if last not in self._busy or not last.has_room:
            return None
        alone = any(other is host and not shares for other, shares, _ in self._waiting)
        return None if alone else last

    def _idle(self, host: _Host) -> Exchange | None:
        """The connection that was used last, if it can be used again."""
        while host.idle:
            exchange = host.idle.pop()
            if exchange.reusable and not self._expired(exchange, exchange.loop.time()):
                return exchange
            exchange.transport.close()
        return None

    async def _lease(self, host: _Host, request: Outgoing) -> Exchange:
        """A kept connection or a new one, as soon as the limits allow."""
        while True:
            if exchange := self._free(host, request):
                return exchange
            if self._may_open(host):
                return await self._open(host, request)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((host, request.pipelined, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next_turn()
                raise

    def _may_open(self, host: _Host) -> bool:
        return host.opened < self._per_host and (
            self._opened < self._total or any(other.idle for other in self._hosts.values())
        )

    def _release(self, host: _Host, exchange: Exchange) -> None:
        if exchange.reusable:
            exchange.idle_since = exchange.loop.time()
            host.idle.append(exchange)
            if self._sweeper is None:
                self._sweeper = exchange.loop.call_later(self._keepalive_seconds, self._sweep)
        elif exchange.transport.get_write_buffer_size():
            # It was answered before all was sent: a server that reads no more would hold it open.
            exchange.transport.abort()
        elif not exchange.closed:
            exchange.transport.close()
        if self._waiting:
            self._next_turn()

    def _next_turn(self) -> None:
        """Let the first one on that can go on."""
        for entry in tuple(self._waiting):
            host, shares, turn = entry
            if turn.done():
                self._waiting.remove(entry)
            elif host.idle or self._may_open(host) or (shares and self._shared(host)):
                self._waiting.remove(entry)
                turn.set_result(None)
                return

    def _expired(self, exchange: Exchange, now: float) -> bool:
        kept = self._keepalive_seconds
        if exchange.keep_seconds is not None:
            # A second less than the server, so that nothing is sent into a closing connection.
            kept = min(kept, exchange.keep_seconds - 1)
        return now - exchange.idle_since >= kept

    def _sweep(self) -> None:
        """Close what was idle for long; hosts without a connection are forgotten."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        left = False
        for key, host in tuple(self._hosts.items()):
            expired = [item for item in host.idle if self._expired(item, now)]
            for exchange in expired:
                host.idle.remove(exchange)
                exchange.transport.close()
            left = left or bool(host.idle)
            if not host.opened and not self._waiting:
                del self._hosts[key]
        self._sweeper = loop.call_later(self._keepalive_seconds / 4, self._sweep) if left else None

    # New connections

    async def _open(self, host: _Host, request: Outgoing) -> Exchange:
        if self._opened >= self._total:
            self._close_oldest()
        host.opened += 1
        self._opened += 1
        try:
            exchange = await connect(
                host.address,
                host.profile,
                request.timeouts.connect,
                host.purpose,
                self._egress,
                self._revocation() if self._revocation is not None else None,
            )
        except BaseException:
            self._lost(host)
            raise
        exchange.on_lost = partial(self._lost, host, exchange)
        if exchange.closed:
            self._lost(host)
        return exchange

    def _close_oldest(self) -> None:
        idle = [(host, item) for host in self._hosts.values() for item in host.idle]
        host, exchange = min(idle, key=lambda entry: entry[1].idle_since)
        host.idle.remove(exchange)
        exchange.transport.abort()

    def _lost(self, host: _Host, exchange: Exchange | None = None) -> None:
        host.opened -= 1
        self._opened -= 1
        if exchange is not None and exchange in host.idle:
            host.idle.remove(exchange)
        if self._waiting:
            self._next_turn()


def _head(address: Address, request: Outgoing) -> bytes:
    if request.method != "POST":
        lines = f"{request.method}{address.head.removeprefix('POST')}Connection: close\r\n"
        ends = 4
    else:
        body = request.body
        length = len(body) if isinstance(body, bytes) else body.length
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = f"{address.head}Content-Type: {request.content_type}\r\n{framing}\r\n"
        ends = 5
        if request.expects:
            lines += "Expect: 100-continue\r\n"
            ends += 1
    for name, value in request.headers:
        lines += f"{name}: {value}\r\n"
        ends += 1
    if lines.count("\n") != ends or lines.count("\r") != ends:
        raise ValueError("a header has a line break inside")
    return (lines + "\r\n").encode("latin-1")


async def connect(
    address: Address,
    profile: TlsProfile,
    seconds: float,
    purpose: Purpose = Purpose.PARTNER,
    egress: Policy | None = None,
    revocation: Revocation | None = None,
) -> Exchange:
    """Connect to one of the addresses of the host; `TransportFailure` when none lets us in."""
    loop = asyncio.get_running_loop()
    try:
        context = tls.client_context(profile) if address.secure else None
    except TlsError as error:
        raise TransportFailure("tls", str(error), transmitted=False) from None
    deadline = loop.time() + seconds
    first: TransportFailure | None = None
    try:
        async with asyncio.timeout_at(deadline):
            ips = await resolve(
                Destination(address.host, address.port, purpose, address.path), egress
            )
            for position, ip in enumerate(ips):
                # One address that swallows everything leaves time for the others.
                share = (deadline - loop.time()) / (len(ips) - position)
                try:
                    async with asyncio.timeout(share):
                        return await _connect(loop, ip, address, context, revocation)
                except TimeoutError:
                    first = first or _late(address, seconds)
                except OSError as error:
                    first = first or _classified(error, ip, address)
    except TimeoutError:
        raise first or _late(address, seconds) from None
    assert first is not None
    raise first


async def _connect(
    loop: asyncio.AbstractEventLoop,
    ip: str,
    address: Address,
    context: ssl.SSLContext | None,
    revocation: Revocation | None,
) -> Exchange:
    transport, exchange = await loop.create_connection(
        lambda: Exchange(address.peer, loop),
        ip,
        address.port,
        ssl=context,
        server_hostname=address.host if context is not None else None,
    )
    connection = transport.get_extra_info("ssl_object")
    if connection is not None and (problem := tls.refusal(connection, revocation)):
        transport.abort()
        raise TransportFailure("tls", f"{address.peer}: {problem}", transmitted=False)
    return exchange


def _late(address: Address, seconds: float) -> TransportFailure:
    return TransportFailure(
        "timeout", f"no connection to {address.peer} within {seconds:g} s", transmitted=False
    )


def _classified(error: OSError, ip: str, address: Address) -> TransportFailure:
    """What an error at connecting means; no byte of the body has left."""
    at = address.peer if ip == address.host else f"{address.peer} ({ip})"
    said = " ".join(str(error.strerror or error).split())
    if isinstance(error, ssl.SSLCertVerificationError):
        return TransportFailure(
            "tls",
            f"certificate of {at} is not trusted: {error.verify_message}",
            transmitted=False,
        )
    if isinstance(error, ssl.SSLError):
        return TransportFailure(
            "tls", f"TLS handshake with {at} failed: {error.reason or said}", transmitted=False
        )
    if isinstance(error, ConnectionRefusedError):
        return TransportFailure("refused", f"connection refused by {at}", transmitted=False)
    if address.secure and isinstance(error, ConnectionError):
        return TransportFailure(
            "tls", f"{at} closed the connection in the TLS handshake", transmitted=False
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        said = "too many open files in this process"
    return TransportFailure("unreachable", f"{at} cannot be reached: {said}", transmitted=False)
