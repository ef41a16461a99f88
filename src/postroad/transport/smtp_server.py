"""The SMTP server: aiosmtpd's protocol inside a loop that is there already, with limits.

    door = MailDoor(take, recipients=["msh@buyer.example"], host="127.0.0.1", port=2525)
    await door.start()
    …
    await door.stop(timeout=30)

A mail is handed on while it comes, as the body of an HTTP request is: `take` reads its body piece
by piece, and nothing is read from the network before it is asked for. So a mail of any size costs
as much memory as a piece. What `take` returns, once the last dot is there, is the answer.
"""

import asyncio
import hmac
import logging
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, AnyStr, Final, Literal, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session, TLSSetupException
from msgspec import Struct

from postroad.transport import tls
from postroad.transport.admission import DEFAULT_RULES, AddressRules, Admission, Scope, Slot
from postroad.transport.http_body import TooLarge, Truncated
from postroad.transport.http_connection import in_one_line
from postroad.transport.http_server import listening_socket
from postroad.transport.incidents import Incident, Incidents
from postroad.transport.smtp_data import DataReader
from postroad.wire.errors import EbmsError
from postroad.wire.limits import KIB, MIB
from postroad.wire.mail import MailHead, MailKind, MailReader, kind_of_mail

_log = logging.getLogger("postroad.mail")

_ALL: Final = 1 << 30
_AT_LEAST: Final = 64 * KIB
_BACKLOG: Final = 128
_PATIENCE: Final = 600
"""Seconds that a client waits for the answer to its last dot (RFC 5321, 4.5.3.2.6)."""
_CALLS: Final = {"*": 1000, "EHLO": 10, "HELO": 10, "AUTH": 5, "STARTTLS": 3, "VRFY": 10}
"""How often a connection may give a command."""
_REASON: Final = 200
_FLUSH_SECONDS: Final = 10.0
_STOPPING: Final = b"421 4.3.2 the node is shutting down, come again\r\n"
_CROWDED: Final = b"421 4.3.2 too many connections, come again\r\n"


class MailLimits(Struct, frozen=True):
    """What a client may cost."""

    message_bytes: int = 64 * MIB
    connections: int = 100
    """In all. A newcomer beyond it takes the place of who has waited longest without a mail."""
    connections_per_address: int = 20
    """From one address; the same rule."""
    address_rules: AddressRules = DEFAULT_RULES
    recipients: int = 100
    line_bytes: int = 64 * KIB
    """Of the content; more than the 1000 that RFC 5321 asks for at least."""
    seconds: float = 300
    """For the next command, and for each 64 KiB of a mail."""


DEFAULT_LIMITS: Final = MailLimits()


class IncomingMail(Struct, frozen=True):
    """A mail whose header has come; its body is read while it comes."""

    sender: str
    """Of the envelope; empty for a bounce."""
    recipients: tuple[str, ...]
    head: MailHead
    kind: MailKind
    body: AsyncIterator[bytes]
    """Its transfer encoding is undone. `TooLarge` beyond the limit, `Truncated` when the client
    goes away before the last dot, EbmsError for what cannot be decoded."""
    peer: str | None = None
    user: str | None = None
    """Who logged in."""
    client_certificate: bytes | None = None
    """What the other end showed in the TLS handshake, in DER."""

    @property
    def content_type(self) -> str | None:
        return self.head.content_type


class Taken(Struct, frozen=True):
    """What became of a mail: 250 stored, 451 come again, 552 too large, 554 refused for good."""

    code: Literal[250, 451, 552, 554]
    reason: str

    @property
    def line(self) -> str:
        status = {250: "2.0.0", 451: "4.3.0", 552: "5.3.4", 554: "5.6.0"}[self.code]
        said = " ".join(self.reason.split())[:_REASON]
        return f"{self.code} {status} {said.encode('ascii', 'replace').decode()}"


STORED: Final = Taken(250, "stored")
COME_AGAIN: Final = Taken(451, "the mail could not be stored, come again")

Take = Callable[[IncomingMail], Awaitable[Taken]]


class MailDoor:
    """Takes mail for some recipients, with STARTTLS and logins where they are asked for."""

    def __init__(
        self,
        take: Take,
        *,
        recipients: Collection[str],
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "localhost",
        tls: ssl.SSLContext | None = None,
        require_tls: bool = False,
        users: Mapping[str, str] | None = None,
        limits: MailLimits = DEFAULT_LIMITS,
        sock: socket.socket | None = None,
        incidents: Incidents | None = None,
    ) -> None:
        if users is not None and tls is None:
            raise ValueError("a login needs TLS, or its password could be read on the way")
        self.host = host
        self.port = port
        self.take = take
        self.name = name
        self.tls = tls
        self.require_tls = require_tls
        self.users = users
        """Passwords by name; None: nobody has to log in."""
        self.limits = limits
        self.incidents = incidents or Incidents(_log)
        self.admission = Admission(
            limits.connections, limits.connections_per_address, rules=limits.address_rules
        )
        self.recipients = frozenset(one.lower() for one in recipients)
        self.open: set[_Connection] = set()
        self.taking: set[asyncio.Task[Taken]] = set()
        self.stopping = False
        self._sock = sock
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._flushing: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open)

    async def start(self) -> None:
        """Listen; OSError when the address is taken."""
        # aiosmtpd tells of every login as if something were wrong.
        logging.getLogger("mail.log").setLevel(logging.ERROR)
        sock = self._sock or listening_socket(self.host, self.port)
        name = sock.getsockname()
        self.host, self.port = name[0], name[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=sock, backlog=_BACKLOG)
        self._flush()

    async def stop(self, timeout: float = 0) -> None:
        """Accept nothing more, finish the mails that are coming, and close; then the rest."""
        if self._server is None:
            return
        self._server.close()
        self.stopping = True
        if self._flushing is not None:
            self._flushing.cancel()
        for connection in tuple(self.open):
            connection.finish()
        try:
            async with asyncio.timeout(timeout):
                while self.open:
                    self._empty.clear()
                    await self._empty.wait()
                while self.taking:
                    await asyncio.wait(self.taking)
        except TimeoutError:
            if self.taking:
                _log.warning("gave up %d mails that were coming in", len(self.taking))
        for connection in tuple(self.open):
            connection.abort()
        await asyncio.sleep(0)
        taking = tuple(self.taking)
        for task in taking:
            task.cancel()
        await asyncio.gather(*taking, return_exceptions=True)
        self._server = None

    def left(self, connection: "_Connection") -> None:
        """A connection is gone."""
        self.open.discard(connection)
        if not self.open:
            self._empty.set()

    def admit(self, host: str | None, close: Callable[[Scope], None]) -> Slot | None:
        """Give a newcomer a place; None if all are taken by mails that are coming in."""

        def refused(scope: Scope) -> None:
            address = scope == "address"
            incident = Incident.REFUSED_ADDRESS if address else Incident.REFUSED_TOTAL
            self.incidents.note(incident, host)

        return None if self.stopping else self.admission.admit(host, close, refused)

    def _connection(self) -> asyncio.Protocol:
        return _Connection(self)

    def _flush(self) -> None:
        self.incidents.flush()
        self._flushing = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)


class _Connection(SMTP):
    """One client."""

    def __init__(self, door: MailDoor) -> None:
        # The class has one table for all connections, which each of them would empty.
        self.command_size_limits = defaultdict(lambda: SMTP.command_size_limit)
        self._door = door
        self._slot: Slot | None = None
        self._in_data = False
        hooks = _Hooks(door)
        super().__init__(
            hooks,
            hostname=door.name,
            ident="Postroad",
            data_size_limit=door.limits.message_bytes,
            tls_context=door.tls,
            require_starttls=door.require_tls,
            timeout=door.limits.seconds,
            auth_required=door.users is not None,
            authenticator=hooks.login,
            command_call_limit=_CALLS,
            loop=asyncio.get_running_loop(),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; after STARTTLS this is called once more."""
        if self._slot is None:
            peer = transport.get_extra_info("peername")
            self._peer = str(peer[0]) if peer else None
            self._slot = self._door.admit(self._peer, self._evict)
        if self._slot is None:
            cast(asyncio.WriteTransport, transport).write(_CROWDED)
            transport.close()
            return
        super().connection_made(transport)
        self._door.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._slot is None:
            return
        self._slot.leave()
        self._door.left(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._slot is not None:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        return super().eof_received() if self._slot is not None else None

    def _evict(self, scope: Scope) -> None:
        """Close a connection on which no mail is coming in, to make room for another."""
        address = scope == "address"
        incident = Incident.EVICTED_ADDRESS if address else Incident.EVICTED_TOTAL
        self._door.incidents.note(incident, self._peer)
        self.abort()

    def _timeout_cb(self) -> None:
        self._door.incidents.note(Incident.TIMEOUT, self._peer)
        super()._timeout_cb()  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """The node is shutting down: end now, or after the mail that is coming."""
        if not self._in_data and self.transport is not None and not self.transport.is_closing():
            self._writer.write(_STOPPING)
            self._writer.close()

    def abort(self) -> None:
        transport = self._original_transport or self.transport
        if transport is not None:
            cast(asyncio.WriteTransport, transport).abort()

    async def push(self, status: AnyStr) -> None:
        """Reply, or end where the connection is closed: aiosmtpd would go on with what it read."""
        if self.transport is None or self.transport.is_closing():
            raise asyncio.CancelledError
        await super().push(status)

    async def smtp_STARTTLS(self, arg: str) -> None:  # noqa: N802
        """Begin TLS; a connection that was closed within the handshake is at its end.

        Of that aiosmtpd is not told, and would wait for the next command.
        """
        await super().smtp_STARTTLS(arg)
        if self._original_transport is not None and self._original_transport.is_closing():
            raise TLSSetupException from ConnectionAbortedError("closed within the handshake")

    async def smtp_DATA(self, arg: str | None) -> None:  # noqa: N802
        """Take a mail while it comes; aiosmtpd itself would keep it in memory."""
        if await self.check_helo_needed() or await self.check_auth_needed("DATA"):
            return
        assert self.envelope is not None
        if not self.envelope.rcpt_tos:
            await self.push("503 5.5.1 there is no recipient, give RCPT first")
            return
        if arg:
            await self.push("501 5.5.4 Syntax: DATA")
            return
        self._in_data = True
        assert self._slot is not None
        self._slot.work()
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        # The client may go away after its last dot; what came is stored all the same.
        data = _Data(self._reader, self._door.limits, self._alive)
        task = self.loop.create_task(self._receive(data, self.envelope))
        self._door.taking.add(task)
        task.add_done_callback(self._door.taking.discard)
        taken = await asyncio.shield(task)
        self._in_data = False
        self._slot.wait()
        self.envelope = self._create_envelope()
        self._reset_timeout()
        await self.push(taken.line)
        if self._door.stopping:
            self.finish()

    def _alive(self, seconds: float) -> None:
        """The client has as much time again."""
        if self.transport is not None:
            self._reset_timeout(seconds)

    async def _receive(self, data: "_Data", envelope: Envelope) -> Taken:
        """Hand the mail on, and read what nobody asked for, up to the last dot."""
        try:
            taken = await self._judged(data, envelope)
            await data.drain()
        except Truncated as cut:
            self._door.incidents.note(Incident.CLIENT_GONE, self._peer, str(cut))
            return COME_AGAIN
        if data.too_large:
            return Taken(552, str(data.too_large))
        return taken

    async def _judged(self, data: "_Data", envelope: Envelope) -> Taken:
        try:
            return await self._door.take(await self._mail(data, envelope))
        except Truncated:
            raise
        except EbmsError as wrong:
            return Taken(554, wrong.detail)
        except TooLarge as large:
            return Taken(552, str(large))
        except Exception as error:
            _log.error("a mail could not be taken: %s", in_one_line(error))
            return COME_AGAIN

    async def _mail(self, data: "_Data", envelope: Envelope) -> IncomingMail:
        session = self.session
        assert session is not None
        head = await data.head()
        sender = "" if envelope.mail_from == "<>" else envelope.mail_from or ""
        shown: ssl.SSLObject | None = (session.ssl or {}).get("ssl_object")
        return IncomingMail(
            sender,
            tuple(envelope.rcpt_tos),
            head,
            kind_of_mail(head, sender),
            data.body(),
            session.peer[0] if session.peer else None,
            session.auth_data,
            shown.getpeercert(binary_form=True) if shown else None,
        )


class _Data:
    """The content of one mail, taken from the network as it is asked for."""

    def __init__(
        self, stream: asyncio.StreamReader, limits: MailLimits, alive: Callable[[float], None]
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._alive = alive
        self._data = DataReader(line_bytes=limits.line_bytes)
        self._mail = MailReader()
        self._begin = b""
        self._received = 0
        self._told = 0

    @property
    def too_large(self) -> TooLarge | None:
        most = self._limits.message_bytes
        return TooLarge(most) if self._received > most else None

    async def head(self) -> MailHead:
        """The header, as soon as it has come."""
        while self._mail.head is None:
            piece = await self._checked()
            self._begin = self._mail.feed(piece) if piece else self._mail.close()
        return self._mail.head

    async def body(self) -> AsyncIterator[bytes]:
        """What follows, decoded."""
        begin, self._begin = self._begin, b""
        if begin:
            yield begin
        while piece := await self._checked():
            if decoded := self._mail.feed(piece):
                yield decoded
        if last := self._mail.close():
            yield last

    async def drain(self) -> None:
        """Throw the rest away."""
        while await self._next():
            pass

    async def _checked(self) -> bytes:
        piece = await self._next()
        if self.too_large:
            raise self.too_large
        if self._data.long_line:
            most = self._limits.line_bytes
            raise EbmsError("EBMS:0007", f"a line of the mail is longer than {most} bytes")
        return piece

    async def _next(self) -> bytes:
        """The next piece of content, empty at the end; `Truncated` if that does not come."""
        while not self._data.ended:
            # All that is there: what came after the end can then be put back in its place.
            came = await self._stream.read(_ALL)
            if not came:
                raise Truncated(self._received)
            content = self._data.feed(came)
            self._received += len(content)
            if self._data.ended:
                self._stream.feed_data(self._data.rest)
                self._alive(_PATIENCE)
            elif self._received - self._told >= _AT_LEAST:
                self._told = self._received
                self._alive(self._limits.seconds)
            if content:
                return content
        return b""


class _Hooks:
    """What aiosmtpd asks about before it answers."""

    def __init__(self, door: MailDoor) -> None:
        self._door = door

    async def handle_EHLO(  # noqa: N802
        self, _server: SMTP, session: Session, _envelope: Envelope, name: str, said: list[str]
    ) -> list[str]:
        session.host_name = name
        if self._door.users is None:
            return [line for line in said if not line.startswith("250-AUTH")]
        return said

    async def handle_MAIL(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, sender: str, options: list[str]
    ) -> str:
        if not sender.isprintable():
            return "501 5.1.7 an address has no control characters"
        envelope.mail_from = sender
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, to: str, options: list[str]
    ) -> str:
        if to.lower() not in self._door.recipients:
            return "550 5.1.1 nobody has this address here"
        if len(envelope.rcpt_tos) >= self._door.limits.recipients:
            return "452 4.5.3 too many recipients"
        envelope.rcpt_tos.append(to)
        envelope.rcpt_options.extend(options)
        return "250 2.1.5 OK"

    def handle_STARTTLS(  # noqa: N802
        self, _server: SMTP, session: Session, _envelope: Envelope
    ) -> bool:
        problem = tls.refusal((session.ssl or {})["ssl_object"])
        if problem:
            self._door.incidents.note(Incident.HANDSHAKE, _host(session), problem)
        return problem is None

    async def handle_exception(self, error: Exception) -> str:
        if isinstance(error, TLSSetupException):
            detail = in_one_line(error.__cause__ or error)
            self._door.incidents.note(Incident.HANDSHAKE, detail=detail)
        else:
            _log.error("a mail connection failed: %s", in_one_line(error))
        return "451 4.3.0 something went wrong here, come again"

    def login(
        self, _server: SMTP, session: Session, _envelope: Envelope, _mechanism: str, shown: Any
    ) -> AuthResult:
        """Whether name and password are right; both are compared in constant time."""
        assert isinstance(shown, LoginPassword)
        users = self._door.users or {}
        right = False
        for name, password in users.items():
            same = hmac.compare_digest(name.encode(), shown.login)
            right |= hmac.compare_digest(password.encode(), shown.password) and same
        if not right:
            self._door.incidents.note(Incident.LOGIN, _host(session))
            return AuthResult(success=False, handled=False)
        return AuthResult(success=True, auth_data=shown.login.decode())


def _host(session: Session) -> str | None:
    return str(session.peer[0]) if session.peer else None


def read_users(text: str) -> dict[str, str]:
    """Who may log in: a line `name:password` each; blank lines and those with # are left out."""
    users: dict[str, str] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name.strip() and colon and password):
            raise ValueError(f"line {number} is not name:password")
        if users.setdefault(name.strip(), password) != password:
            raise ValueError(f"line {number} names {name.strip()!r} a second time")
    if not users:
        raise ValueError("it names nobody")
    return users
