"""Where answers to ebXML messages go: the response, or an address of the partner's."""

import base64
import logging
from fnmatch import fnmatch
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from postroad.agreement.ebxml import is_mail
from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.ebxml_outbound import hop
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_address, own_addresses
from postroad.node.steps.calling import Call
from postroad.store.records import Work
from postroad.wire.ebxml import EbxmlMessage

_log = logging.getLogger("postroad.receive")


class Route(Struct, frozen=True):
    """How an answer travels: as the response, or as a message of its own to an address."""

    url: str | None
    """None: it is the response."""


RESPONSE = Route(None)


def wants_response(message: EbxmlMessage, synchronous: bool) -> bool:
    """Whether answers are to come in the response; over mail there is none. [MS098-8.6.4-01]"""
    asked = message.sync_reply or (message.via is not None and bool(message.via.sync_reply))
    return synchronous and asked


def answer_route(
    context: Context,
    message: EbxmlMessage,
    match: Match | None,
    kind: str,
    *,
    synchronous: bool,
    proven: bool,
) -> Route | None:
    """Where an answer goes; None: nobody knows.

    What the agreement names goes first, then the SenderURI of the last TraceHeader; but where a
    stranger wants us to call is no address. [MS098-8.5.3.1-01] [MS098-11.4-01] [MS098-11.4-02]
    """
    if wants_response(message, synchronous):
        return RESPONSE
    url = _agreed(match, kind) if match is not None else None
    if url is None and match is not None and proven and message.trace:
        url = _called_back(context, message.trace[-1].sender_uri)
    mails = context.config.mail is not None and context.config.mail.relay is not None
    ways = ("http://", "https://", "mailto:") if mails else ("http://", "https://")
    if url is not None and url.lower().startswith(ways):
        return Route(url)
    return RESPONSE if synchronous else None


def _called_back(context: Context, url: str) -> str | None:
    """An address that only the message tells, if it may be called.

    It stands outside of the signature, as it changes on the way: whoever passes a message on can
    name another. So it can be bounded, and it is never our own.
    """
    allowed = context.config.http.call_back
    try:
        host = urlsplit(url).hostname or url.rpartition("@")[2]
    except ValueError:
        return None
    if allowed is not None and not any(fnmatch(host.lower(), one.lower()) for one in allowed):
        return None
    return None if url in own_addresses(context, None) else url


def _agreed(match: Match, kind: str) -> str | None:
    security, handling = match.leg.security, match.leg.error_handling
    receipts = security.send_receipt.reply_to if security and security.send_receipt else None
    if kind != "error":
        return receipts
    report = handling.report if handling else None
    named = report.receiver_errors_to.value if report and report.receiver_errors_to else ()
    return named[0] if named else receipts


def call(
    context: Context,
    url: str,
    answer: Answer,
    message: EbxmlMessage,
    match: Match | None,
    about: str,
    *,
    reliably: bool = False,
) -> Work:
    """The work of sending an answer to an address; `reliably`: until it is acknowledged."""
    now = context.clock()
    envelope = hop(
        answer.envelope,
        message.dialect,
        sender_uri=own_address(context, None, is_mail(url)),
        receiver_uri=url,
        now=now,
    )
    data = Call(
        url,
        answer.kind,
        answer.signal_id,
        answer.content_type,
        base64.b64encode(envelope).decode(),
        match.pmode.id if match is not None else "",
        '"ebXML"',
        copies=0 if reliably else None,
    )
    return Work("signal", about, now, msgspec.json.encode(data))
