"""Mail that goes out: messages on their way to a `mailto:` address."""

from typing import Final, Protocol

from postroad.msh.outbound import WireForm
from postroad.node.base.context import Context
from postroad.node.settings.config_groups import Mail, MailRelay
from postroad.transport.http_outgoing import Pieces, Timeouts, TransportFailure
from postroad.transport.smtp_client import MailClient, OutgoingMail, Relay
from postroad.transport.tls import TlsProfile
from postroad.wire.mail import Mail as Letter
from postroad.wire.mail import mail_address

_SUBJECT: Final = "ebXML message"


class Mailing(Protocol):
    """Whoever carries mail."""

    async def send(self, form: WireForm, address: str, message_id: str) -> None:
        """Hand a message over; `TransportFailure` when it cannot be."""
        ...

    async def close(self) -> None: ...


class Mails:
    """Carries mail through the relay of the configuration."""

    def __init__(self, context: Context) -> None:
        self._context = context
        mail = context.config.mail
        given = mail.relay if mail is not None else None
        if mail is None or given is None:
            self._client, self._timeouts = MailClient(), Timeouts()
            return
        self._client = MailClient(_relay(mail, given), parallel=given.parallel)
        self._timeouts = Timeouts(
            connect=given.connect_timeout.total_seconds(),
            answer=given.answer_timeout.total_seconds(),
            stall=given.answer_timeout.total_seconds(),
        )

    async def send(self, form: WireForm, address: str, message_id: str) -> None:
        own = self._context.config.mail
        if own is None:
            said = f"mail to {address} cannot be sent: add mail to postroad.yaml"
            raise TransportFailure("address", said, transmitted=False)
        try:
            recipient = mail_address(address)
        except ValueError as wrong:
            raise TransportFailure("address", str(wrong), transmitted=False) from None
        now = self._context.clock()
        mail = Letter(form, own.address, recipient, _SUBJECT, now, message_id)
        try:
            length = mail.length
        except ValueError as wrong:
            said = f"it cannot travel by mail: {wrong}"
            raise TransportFailure("body", said, transmitted=False) from None
        await self._client.send(
            OutgoingMail(own.address, recipient, Pieces(length, mail.pieces), self._timeouts)
        )

    async def close(self) -> None:
        """Each mail has a connection of its own: there is nothing to close."""


def _relay(mail: Mail, given: MailRelay) -> Relay:
    password = ""
    if given.password_file is not None:
        password = given.password_file.read_text().partition("\n")[0].rstrip("\r")
    return Relay(
        given.host,
        given.port,
        given.starttls,
        given.username,
        password,
        TlsProfile(authorities=given.authorities),
        mail.hello,
    )
