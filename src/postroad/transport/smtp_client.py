"""The SMTP client: mail through a relay, one connection a mail.

    client = MailClient(Relay("mail.buyer.example", 587, username="msh", password="…"))
    await client.send(OutgoingMail(sender, recipient, Pieces(mail.length, mail.pieces)))

aiosmtplib opens the connection, protects it and logs in. The content is written here, piece by
piece as the relay takes it, so that a mail of any size costs as much memory as a piece.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable
from typing import Final, Literal, TypeVar, cast

from aiosmtplib import (
    SMTP,
    SMTPConnectError,
    SMTPException,
    SMTPResponseException,
    SMTPServerDisconnected,
    SMTPTimeoutError,
)
from aiosmtplib.response import SMTPResponse
from msgspec import Struct

from postroad.transport import tls
from postroad.transport.http_outgoing import (
    DEFAULT_TIMEOUTS,
    Kind,
    Pieces,
    Timeouts,
    TransportFailure,
)
from postroad.transport.smtp_data import LAST, stuffed
from postroad.transport.tls import TlsError, TlsProfile
from postroad.wire.mail import is_address

StartTls = Literal["required", "opportunistic", "never", "implicit"]

_T = TypeVar("_T")
_GOODBYE_SECONDS: Final = 5
_SENTENCE: Final = 300


class MailRefused(TransportFailure):
    """The relay said no: nothing was transmitted, and whether it is worth another attempt."""

    def __init__(self, reason: str, *, code: int) -> None:
        super().__init__("protocol", reason, transmitted=False)
        self.code = code


class Relay(Struct, frozen=True):
    """The mail server that takes our mail: a relay of one's own, or that of the recipient."""

    host: str
    port: int = 587
    starttls: StartTls = "required"
    """Opportunistic: where it is offered. Implicit: TLS from the first byte."""
    username: str | None = None
    password: str = ""
    tls: TlsProfile = TlsProfile()
    name: str = "localhost"
    """What we call ourselves."""

    def __repr__(self) -> str:
        return f"Relay({self.peer})"

    @property
    def peer(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class OutgoingMail(Struct, frozen=True):
    """A mail on its way to one recipient."""

    sender: str
    """Of the envelope: where a bounce goes to."""
    recipient: str
    content: Pieces
    timeouts: Timeouts = DEFAULT_TIMEOUTS


class MailClient:
    """Sends mails, some at a time."""

    def __init__(self, relay: Relay | None = None, *, parallel: int = 4) -> None:
        self._relay = relay
        self._turns = asyncio.Semaphore(parallel)

    async def send(self, mail: OutgoingMail, relay: Relay | None = None) -> str:
        """Hand a mail over, to `relay` instead of the usual one; what the server said to that.

        `TransportFailure` otherwise. Its `transmitted` is true if the mail may have been taken:
        its last dot has left, and neither yes nor no came back. `MailRefused` is a clear no.
        """
        through = relay or self._relay
        for address in (mail.sender, mail.recipient):
            if not is_address(address):
                raise TransportFailure(
                    "address", f"{address[:200]!r} is no mail address", transmitted=False
                )
        if through is None:
            raise TransportFailure(
                "address",
                f"mail for {mail.recipient} cannot be sent: no relay is configured "
                "(add mail.relay to postroad.yaml)",
                transmitted=False,
            )
        async with self._turns:
            delivery = _Delivery(through, mail)
            try:
                async with asyncio.timeout(mail.timeouts.total):
                    said = await delivery.run()
                await delivery.goodbye()
                return said
            except TimeoutError:
                raise delivery.failure("timeout", "was too slow") from None
            finally:
                delivery.end()


class _Delivery:
    """One mail over one connection."""

    def __init__(self, relay: Relay, mail: OutgoingMail) -> None:
        self._relay = relay
        self._mail = mail
        self._step = "connecting"
        self._last_dot = False
        self._stream: asyncio.StreamWriter | None = None
        self._smtp = SMTP(
            hostname=relay.host,
            port=relay.port,
            local_hostname=relay.name,
            timeout=mail.timeouts.answer,
            use_tls=relay.starttls == "implicit",
            start_tls=False,
        )

    def failure(self, kind: Kind, what: str) -> TransportFailure:
        at = f"{self._relay.peer} {what} ({self._step})"
        return TransportFailure(kind, at, transmitted=self._last_dot)

    def end(self) -> None:
        """Close the connection, whatever state it is in."""
        if self._smtp.transport is not None and not self._smtp.transport.is_closing():
            # A mail that was not written to its end is not to be flushed now.
            cast(asyncio.WriteTransport, self._smtp.transport).abort()
        self._smtp.close()

    async def run(self) -> str:
        await self._during("connecting", self._connect())
        await self._during("EHLO", self._greet())
        if self._relay.username is not None:
            await self._during("login", self._login(self._relay.username))
        await self._during("MAIL", self._smtp.mail(self._mail.sender, options=self._size()))
        await self._during("RCPT", self._smtp.rcpt(self._mail.recipient))
        return await self._during("DATA", self._data())

    async def goodbye(self) -> None:
        """The mail is over there; nothing that happens now changes that."""
        with contextlib.suppress(SMTPException, OSError):
            await self._smtp.quit(timeout=_GOODBYE_SECONDS)

    async def _during(self, step: str, action: Awaitable[_T]) -> _T:
        """Carry out a step; what goes wrong becomes a failure that names it."""
        self._step = step
        try:
            return await action
        except TransportFailure:
            raise
        except SMTPTimeoutError:
            raise self.failure("timeout", "did not answer in time") from None
        except SMTPResponseException as error:
            raise self._refused(error.code, error.message) from None
        except SMTPConnectError as error:
            raise self._not_connected(error.__cause__ or error) from None
        except SMTPServerDisconnected:
            raise self.failure("closed", "closed the connection") from None
        except OSError as error:
            raise self._not_connected(error) from None
        except (SMTPException, ValueError) as error:
            raise self.failure("protocol", f"cannot be used: {_one_line(error)}") from None

    def _refused(self, code: int, message: str) -> TransportFailure:
        if not 400 <= code <= 599:
            return self.failure("protocol", f"answered {code} {_one_line(message)}")
        said = f"refused the mail ({self._step}): {code} {_one_line(message)}"
        return MailRefused(f"{self._relay.peer} {said}", code=code)

    def _not_connected(self, error: BaseException) -> TransportFailure:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self.failure("tls", f"has no certificate to trust: {error.verify_message}")
        if isinstance(error, ssl.SSLError):
            return self.failure("tls", f"failed in the TLS handshake: {error.reason or error}")
        if isinstance(error, ConnectionRefusedError):
            return self.failure("refused", "refused the connection")
        if isinstance(error, socket.gaierror):
            return self.failure("dns", f"is not known: {error.strerror}")
        if isinstance(error, ConnectionError):
            return self.failure("closed", "closed the connection")
        return self.failure("unreachable", f"cannot be reached: {_one_line(error)}")

    async def _connect(self) -> None:
        try:
            self._smtp.tls_context = tls.client_context(self._relay.tls)
        except TlsError as error:
            raise TransportFailure("tls", str(error), transmitted=False) from None
        await self._smtp.connect(timeout=self._mail.timeouts.connect)
        self._check_tls()

    async def _greet(self) -> None:
        """Say hello, protect the connection, say hello again."""
        wanted = self._relay.starttls
        await self._smtp.ehlo()
        if wanted in ("never", "implicit"):
            return
        if not self._smtp.supports_extension("starttls"):
            if wanted == "required":
                raise self.failure("tls", "offers no STARTTLS, which is required")
            return
        self._step = "STARTTLS"
        await self._smtp.starttls(timeout=self._mail.timeouts.connect)
        self._check_tls()
        await self._smtp.ehlo()

    def _check_tls(self) -> None:
        connection = self._smtp.get_transport_info("ssl_object")
        if connection is not None and (problem := tls.refusal(connection)):
            raise self.failure("tls", problem)

    async def _login(self, username: str) -> None:
        plain = self._smtp.get_transport_info("ssl_object") is None
        if plain and self._relay.starttls != "never":
            raise self.failure("tls", "offers no TLS, and a password is not sent without")
        await self._smtp.login(username, self._relay.password)

    def _size(self) -> list[str]:
        """The size, which a server may refuse before it has read the mail (RFC 1870)."""
        if not self._smtp.supports_extension("size"):
            return []
        size = self._mail.content.length
        most = self._smtp.esmtp_extensions.get("size", "").strip()
        if most.isdecimal() and 0 < int(most) < size:
            raise MailRefused(
                f"{self._relay.peer} takes mails up to {most} bytes, and this one has {size}",
                code=552,
            )
        return [f"SIZE={size}"]

    async def _data(self) -> str:
        begun = await self._smtp.execute_command(b"DATA")
        if begun.code != 354:
            raise self._refused(begun.code, begun.message)
        protocol, transport = self._smtp.protocol, self._smtp.transport
        if protocol is None or transport is None:
            raise SMTPServerDisconnected("Connection lost")
        loop = asyncio.get_running_loop()
        # Kept until the connection is closed: a stream that is let go before complains.
        self._stream = asyncio.StreamWriter(
            cast(asyncio.WriteTransport, transport), protocol, None, loop
        )
        # An answer may come at any time: a relay that has enough of a mail says so at once.
        answer = loop.create_task(protocol.read_response())
        try:
            await self._write(self._stream, answer)
            async with asyncio.timeout(self._mail.timeouts.answer):
                said = await answer
        except TimeoutError:
            raise self.failure("timeout", "did not answer in time") from None
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
        if not self._last_dot or not 200 <= said.code <= 299:
            raise self._refused(said.code, said.message)
        return _one_line(said.message)

    async def _write(
        self, writer: asyncio.StreamWriter, answer: asyncio.Task[SMTPResponse]
    ) -> None:
        """The content and its last dot, as fast as the relay takes it."""
        self._step = "the content"
        pieces = stuffed(self._mail.content.read())
        while not answer.done():
            try:
                piece = next(pieces, None)
            except (OSError, ValueError) as error:
                raise TransportFailure(
                    "body", f"the mail cannot be read: {_one_line(error)}", transmitted=False
                ) from None
            if piece is None:
                self._step = "the answer to the mail"
                self._last_dot = True
                writer.write(LAST)
                return
            writer.write(piece)
            taken = asyncio.ensure_future(writer.drain())
            try:
                await asyncio.wait(
                    (taken, answer),
                    timeout=self._mail.timeouts.stall,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not taken.done() and not answer.done():
                    raise self.failure("timeout", "took no more of the mail")
            finally:
                taken.cancel()
                # If the connection is lost, the answer tells it too.
                await asyncio.gather(taken, return_exceptions=True)


def _one_line(said: object) -> str:
    return " ".join(str(said).encode("utf-8", "replace").decode().split())[:_SENTENCE]
