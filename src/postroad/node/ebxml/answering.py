"""Where answers to ebXML messages go: the response, or an address of the partner's."""

import base64
import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.ebxml import is_mail
from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import sent_ebxml
from postroad.msh.ebxml_outbound import hop
from postroad.msh.securing import signs
from postroad.node.base.context import Context
from postroad.node.base.journaling import about as event_about
from postroad.node.base.own_address import own_address, own_addresses
from postroad.node.steps.calling import Call
from postroad.security.egress import host_of, same_address
from postroad.store.interface import Reader, StoreError, Transaction
from postroad.store.records import Message, Side, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebxml import EbxmlMessage

_log = logging.getLogger("postroad.receive")


class Route(Struct, frozen=True):
    """How an answer travels: as the response, or as a message of its own to an address."""

    url: str | None
    """None: it is the response, or there is no way at all where nobody waits for a response."""
    named_by_message: bool = False
    """Only the message names the address: the egress policy judges it as a callback."""
    refused: str | None = None
    """Why the address in the message is not used, where that is worth a line in the journal."""
    is_response: bool = False


RESPONSE = Route(None, is_response=True)
NOWHERE = Route(None)


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
    first: EbxmlMessage | None = None,
) -> Route:
    """Decide where an answer goes.

    What the agreement names goes first, then the SenderURI of the last TraceHeader. No signature
    covers a TraceHeader, as it changes on the way: its address is used only if P-Modes name it, or
    its host, for the sender of the message, or the configuration allows the host. Of a message that
    came before, an address that P-Modes name is answered (a relay may bring the second copy, and
    waits for its own acknowledgment), otherwise the address of the first copy.
    [MS098-8.5.3.1-01] [MS098-11.4-01] [MS098-11.4-02]
    """
    if wants_response(message, synchronous):
        return RESPONSE
    url = _agreed(match, kind) if match is not None else None
    route = None if url is None else Route(url)
    if route is None and match is not None and proven:
        route = _called_back(context, message, first, match)
    fallback = RESPONSE if synchronous else NOWHERE
    if route is None:
        return fallback
    if route.url is None or not _has_way(context, route.url):
        return replace(fallback, refused=route.refused)
    return route


def _has_way(context: Context, url: str) -> bool:
    mails = context.config.mail is not None and context.config.mail.relay is not None
    ways = ("http://", "https://", "mailto:") if mails else ("http://", "https://")
    return url.lower().startswith(ways)


def _called_back(
    context: Context, message: EbxmlMessage, first: EbxmlMessage | None, match: Match
) -> Route | None:
    """Decide about the address that a message names; another that is agreed on may replace it."""
    contacts = context.in_force.contacts.of(message.header.from_party.party_ids)
    own = own_addresses(context, None)
    agreed = [one for one in contacts if one not in own and _has_way(context, one)]
    for copy in (message, first or message):
        url = copy.trace[-1].sender_uri if copy.trace else ""
        for one in agreed:
            if same_address(url, one):
                return Route(one)
    if not _has_way(context, url):
        return None
    instead = agreed[0] if agreed else None
    if url not in own and context.egress.may_call_back(url, agreed):
        # An unsigned message proves nothing: what is agreed on is better than what it says.
        if instead is not None and not signs(match.leg):
            return Route(instead)
        return Route(url, named_by_message=True)
    host = host_of(url) or url
    why = (
        f"callback refused: the message names {url} as the address of its sender, but no P-Mode "
        f"names the host {host} for this party. Set SendReceipt.ReplyTo, or add the host to "
        "security.egress.callback_hosts."
    )
    context.count("callbacks_refused", by="host")
    _log.warning(
        "callback refused",
        extra={"message_id": message.message_id, "peer": url, "detail": why},
    )
    return Route(instead, refused=why)


async def first_copy(
    context: Context, message: EbxmlMessage, find: Callable[[Reader], Message | None]
) -> EbxmlMessage | None:
    """Read the first copy of a message, as `find` finds it: answers go where that was answered."""
    return kept_copy(context, await context.store.look(find)) if message.trace else None


def kept_copy(context: Context, found: Message | None) -> EbxmlMessage | None:
    """Read a message as it was kept; None: it was refused, or nothing is left of it."""
    if found is None or found.envelope is None or found.state is State.REJECTED:
        return None
    kept = read_all(context.store.content(found.envelope), found.envelope.size)
    return sent_ebxml(kept, context.limits).message


async def tell_refused(context: Context, route: Route, message_id: str) -> None:
    """Record in the journal that the address in a message was not used.

    The message is stored already: if this cannot be, its sender gets the same answer.
    """
    refused = route.refused
    if refused is None:
        return
    now = context.clock()

    def step(tx: Transaction) -> None:
        rows = (tx.message(side, message_id) for side in (Side.RECEIVING, Side.FORWARDING))
        found = next((one for one in rows if one is not None), None)
        if found is not None:
            event = event_about(
                found,
                "error_raised",
                now,
                error_code="SecurityFailure",
                severity="warning",
                detail=refused,
            )
            tx.record((event,))

    try:
        await context.store.run(step)
    except StoreError as error:
        extra = {"message_id": message_id, "detail": f"{refused} ({error})"}
        _log.warning("a refused callback was not recorded", extra=extra)


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
    route: Route,
    answer: Answer,
    message: EbxmlMessage,
    match: Match | None,
    about: str,
    *,
    reliably: bool = False,
) -> Work:
    """The work of sending an answer to an address; `reliably`: until it is acknowledged."""
    now, url = context.clock(), route.url
    assert url is not None
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
        named_by_message=route.named_by_message,
    )
    return Work("signal", about, now, msgspec.json.encode(data))
