"""Mail that comes in: each one a message, or nothing that anybody reads here."""

import logging
from typing import Final

from postroad.node.base.requests import Request
from postroad.node.walks.receiving import Receiver
from postroad.transport.http_body import TooLarge
from postroad.transport.smtp_server import COME_AGAIN, STORED, IncomingMail, Taken

_REFUSED: Final = {
    "not_mime": "there is no MIME-Version: 1.0; this address takes ebXML messages only",
    "other": "this is no ebXML message, and nobody reads mail here",
}
_DROPPED: Final = ("bounce", "auto_reply")
_log = logging.getLogger("postroad.mail")


class MailIn:
    """Takes mails in, as messages."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def take(self, mail: IncomingMail) -> Taken:
        """What is answered to a mail once it is durable, or why it is not taken."""
        peer = f"mailto:{mail.sender}" if mail.sender else mail.peer
        if mail.kind in _DROPPED:
            await self._drop(mail, peer)
            return STORED
        if mail.kind != "message":
            await self._receiver.note("EBMS:0007", f"a mail: {_REFUSED[mail.kind]}", peer)
            return Taken(554, _REFUSED[mail.kind])
        request = Request(
            mail.content_type,
            peer,
            mail.body,
            mail.client_certificate,
            mail.head.get("soapaction"),
            synchronous=False,
        )
        try:
            response = await self._receiver.receive(request)
        except TooLarge as large:
            return Taken(552, str(large))
        if response.come_again:
            return COME_AGAIN
        if response.status == 413:
            return Taken(552, "the message is too large")
        if response.status >= 400:
            return Taken(554, "this is no message that can be taken; the node's journal says why")
        return STORED

    async def _drop(self, mail: IncomingMail, peer: str | None) -> None:
        """A bounce or an automatic reply is never answered; whoever looks finds it told."""
        size = 0
        async for piece in mail.body:
            size += len(piece)
        what = "a bounce" if mail.kind == "bounce" else "an automatic reply"
        said = f"a mail that is {what}: {mail.head.text('subject') or 'without a subject'}"
        await self._receiver.note("EBMS:0005", said, peer)
        _log.warning("not a message", extra={"peer": peer, "detail": said, "bytes": size})
