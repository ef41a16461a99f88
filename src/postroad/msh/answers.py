"""Receipts and errors: made for what came in, and judged when they come back (AS4 3.2, Core 6).

An answer about a message is a signal in an envelope of its own. Who sent the message believes a
receipt only when it is signed by the partner and names every digest of what was sent.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.agreement.pmode import Leg
from postroad.agreement.reply_patterns import error_pattern, receipt_pattern
from postroad.msh.lens import Inspection
from postroad.msh.outbound import MESSAGING_ID, secured_at
from postroad.msh.routing_headers import Routing
from postroad.msh.securing import signs
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.security.verify import references_of, security_headers
from postroad.wire import xml
from postroad.wire.ebms3 import (
    Description,
    Error,
    MessageInfo,
    Messaging,
    Reference,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebms3_writer import can_be_message_id, write_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.receipts import (
    awareness_receipt,
    check_receipt,
    nonrepudiation_receipt,
    unit_references,
)
from postroad.wire.soap import SoapVersion, read_envelope

MOST_ERRORS: Final = 10
NO_AGREEMENT: Final = (
    "no P-Mode fits this message: check From, To, Service, Action and AgreementRef"
)


class Answer(Struct, frozen=True):
    """A signal as it is sent."""

    signal_id: str
    kind: str
    """receipt or error; of ebXML also acknowledgment, ping, pong, status_request, status"""
    version: SoapVersion
    envelope: bytes

    @property
    def content_type(self) -> str:
        return f"{self.version.media_type}; charset=UTF-8"


def wants_receipt(leg: Leg) -> bool:
    asked = leg.security.send_receipt if leg.security else None
    return bool(asked and asked.enabled)


def _wants_proof(leg: Leg) -> bool:
    """Whether the receipt of a signed message repeats its digests: yes, where nobody says no."""
    asked = leg.security.send_receipt if leg.security else None
    return asked is None or asked.non_repudiation is not False


def receipt_is_response(leg: Leg) -> bool:
    return receipt_pattern(leg) == "response"


def errors_are_response(leg: Leg | None) -> bool:
    """Errors come back on the response unless the P-Mode says otherwise (Core D.3.4)."""
    return leg is None or error_pattern(leg) == "response"


def receipt(
    found: Inspection,
    message: UserMessage,
    match: Match,
    *,
    signal_id: str,
    now: datetime,
    references: Sequence[Reference] = (),
) -> SignalMessage:
    """The receipt that a message's P-Mode asks for.

    A signed message is answered by the digests of its signature (AS4 5.1.8), unless the P-Mode
    says otherwise, a joined one by those of its parts; an unsigned one by a copy of its
    eb:UserMessage. `references` are those of the unit in a bundle
    (`wire.receipts.unit_references`). [P2-4.4.2-20]
    """
    info = MessageInfo(now, signal_id, message.message_info.message_id)
    digested = found.verification is not None or found.digests
    if digested and _wants_proof(match.leg):
        return nonrepudiation_receipt(references or found.proof, message_info=info)
    return _awareness_receipt(message, match.leg, info)


def _awareness_receipt(message: UserMessage, leg: Leg, info: MessageInfo) -> SignalMessage:
    asked = leg.security.send_receipt if leg.security else None
    core_element = asked is not None and asked.copy_element == "core"
    return awareness_receipt(message, message_info=info, core_element=core_element)


def error(
    problems: Sequence[EbmsError], *, signal_id: str, ref: str | None, now: datetime
) -> SignalMessage:
    """The signal that tells what is wrong with a message, failures first.

    None of it helps an attacker. An id that no signal can hold is left out: it is among the
    problems.
    """
    ref = ref if ref is not None and can_be_message_id(ref) else None
    told = sorted(problems, key=lambda one: one.severity is not Severity.FAILURE)
    return SignalMessage(
        MessageInfo(now, signal_id, ref),
        errors=tuple(_wire_error(one, ref) for one in told[:MOST_ERRORS]),
    )


def _wire_error(problem: EbmsError, ref: str | None) -> Error:
    """One eb:Error. Which P-Mode nearly fitted is nobody's business but ours."""
    kind = problem.kind
    detail = NO_AGREEMENT if problem.detail.startswith("no P-Mode") else problem.detail
    place = f" ({problem.location})" if problem.location else ""
    return Error(
        error_code=kind.code,
        severity=problem.severity.value,
        category=kind.category.value,
        origin=kind.origin,
        short_description=kind.short_description,
        ref_to_message_in_error=ref,
        description=Description(kind.meaning, "en"),
        error_detail=f"{detail}{place}"[:2000],
    )


def write_answer(
    signal: SignalMessage,
    version: SoapVersion,
    how: Signing | None,
    now: datetime,
    routing: Routing | None = None,
    before: SignalMessage | None = None,
    headers: Sequence[Block] = (),
) -> Answer:
    """The signal in its envelope, signed where the P-Mode signs.

    `routing` and `headers` are signed with it; `before` is another signal that stands before it.
    """
    signals = (signal,) if before is None else (before, signal)
    return write_answers(signals, version, how, now, routing, headers)[-1]


def write_answers(
    signals: Sequence[SignalMessage],
    version: SoapVersion,
    how: Signing | None,
    now: datetime,
    routing: Routing | None = None,
    headers: Sequence[Block] = (),
) -> tuple[Answer, ...]:
    """The receipts and errors of a bundle in one envelope, under one signature.

    Each answer has the same envelope. [P2-3.8-04] [P2-3.5-01]
    """
    messaging = Messaging(tuple(signals), id=MESSAGING_ID)
    blocks = [Block(MESSAGING_ID, write_messaging(messaging, version))]
    if routing is not None:
        blocks = routing.blocks(version) + blocks
    blocks = [*headers, *blocks]
    secured = secure(
        version,
        blocks,
        [],
        signing=how,
        lifetime=secured_at(now) if how else None,
    )
    return tuple(
        [
            Answer(
                signal.message_info.message_id,
                "receipt" if signal.receipt is not None else "error",
                version,
                secured.envelope,
            )
            for signal in signals
        ]
    )


class SentMessage(Struct, frozen=True):
    """What was sent, as far as an answer is held against it."""

    user_message: UserMessage
    references: tuple[Reference, ...]
    """Of the signature, as far as they are about this unit; empty when it was not signed."""
    neighbours: tuple[Reference, ...] = ()
    """All of the signature, in a bundle."""
    written: str | None = None
    """The user message as it was written, while that is in memory."""


def sent_message(envelope: bytes, limits: Limits = DEFAULT) -> SentMessage:
    """What was sent, from the envelope that was kept; of a bundle the primary unit."""
    return next(iter(sent_messages(envelope, limits).values()))


def sent_messages(envelope: bytes, limits: Limits = DEFAULT) -> dict[str, SentMessage]:
    """The units that were sent in an envelope that was kept, by their ids."""
    parsed = read_envelope(xml.parse(envelope, limits))
    element = find_messaging(parsed)
    reading = read_messaging(element, parsed.version, limits) if element is not None else None
    messaging = reading.messaging if reading is not None else None
    if messaging is None or not messaging.user_messages:
        raise ValueError("the envelope that was kept holds no user message")
    signed = references_of(security_headers(parsed.header).get(None), limits)
    return sent_units(messaging.user_messages, signed, messaging.id)


def sent_units(
    messages: Sequence[UserMessage],
    references: tuple[Reference, ...],
    header: str | None = MESSAGING_ID,
) -> dict[str, SentMessage]:
    """The units of a message that was sent, with what of its signature is about each.

    `header` is the id of eb:Messaging.
    """
    if len(messages) == 1:
        return {messages[0].message_info.message_id: SentMessage(messages[0], references)}
    return {
        one.message_info.message_id: SentMessage(one, own, references)
        for one, own in zip(messages, unit_references(references, messages, header), strict=True)
    }


def kept_signal(envelope: bytes, limits: Limits = DEFAULT) -> SignalMessage:
    """The signal in an envelope that was kept; of several the first."""
    return next(iter(kept_signals(envelope, limits).values()))


def kept_signals(envelope: bytes, limits: Limits = DEFAULT) -> dict[str | None, SignalMessage]:
    """The signals in an envelope that was kept, by what they are about."""
    parsed = read_envelope(xml.parse(envelope, limits))
    element = find_messaging(parsed)
    reading = read_messaging(element, parsed.version) if element is not None else None
    if reading is None or reading.messaging is None or not reading.messaging.signals:
        raise ValueError("the envelope that was kept holds no signal")
    found: dict[str | None, SignalMessage] = {}
    for one in reading.messaging.signals:
        found.setdefault(one.message_info.ref_to_message_id, one)
    return found


def receipt_problems(
    found: Inspection, signal: SignalMessage, sent: SentMessage, match: Match
) -> list[EbmsError]:
    """Why a receipt proves nothing; empty when it does. The signal is one of the inspected message.

    EBMS:0302 for what does not fit, the security codes for what is not signed as agreed.
    """
    problems = [one for one in found.problems if _counts(found, one)]
    if signs(match.leg):
        problems += _unproven(found)
    try:
        check_receipt(
            signal,
            sent_message_id=sent.user_message.message_info.message_id,
            sent_references=_proof_of(sent, match) or None,
            sent_user_message=sent.user_message,
            also_sent=sent.neighbours,
        )
    except EbmsError as invalid:
        problems.append(invalid)
    return problems


def foreseen_receipt(sent: SentMessage, match: Match, info: MessageInfo) -> SignalMessage:
    """The receipt that is to be expected for a message, in the form in which `receipt` makes it."""
    references = _proof_of(sent, match)
    if references:
        return nonrepudiation_receipt(references, message_info=info)
    return _awareness_receipt(sent.user_message, match.leg, info)


def _proof_of(sent: SentMessage, match: Match) -> tuple[Reference, ...]:
    """The digests that a receipt has to repeat."""
    return sent.references if _wants_proof(match.leg) else ()


def _counts(found: Inspection, problem: EbmsError) -> bool:
    """Whether a problem is one of a signal; beside user messages it may be one of theirs."""
    rides = found.messaging is not None and bool(found.messaging.user_messages)
    about_it = not rides or problem.code.startswith("EBMS:01")
    return about_it and problem.severity is Severity.FAILURE


def error_problems(found: Inspection, match: Match, *, on_response: bool) -> list[EbmsError]:
    """Why an error signal is not believed.

    On the response an unsigned error is taken: a partner that cannot read a message often cannot
    sign about it either. From a stranger's request it is not, where the P-Mode signs.
    """
    if found.verification is None and on_response:
        return [
            one
            for one in found.problems
            if _counts(found, one) and not one.code.startswith("EBMS:01")
        ]
    problems = [one for one in found.problems if _counts(found, one)]
    if signs(match.leg):
        problems += _unproven(found)
    return problems


def way_problems(
    signal: SignalMessage, match: Match, *, pushed: bool, in_request: bool
) -> list[EbmsError]:
    """Why a signal that is no response is not believed for the way it came.

    What is unsigned is believed only for the connection that brought it: where the P-Mode says
    that it comes in the response, or is pulled, anybody could have written a request that says
    the same. A signature that the P-Mode asks for proves it on any way. `pushed` tells how the
    message went: what is said about one that was pulled cannot be its response. `in_request` is
    False for a signal that we pulled.
    """
    if signs(match.leg):
        return []
    is_receipt = signal.receipt is not None
    pattern = receipt_pattern(match.leg) if is_receipt else error_pattern(match.leg)
    kind = "receipts" if is_receipt else "errors"
    if pattern == "response" and pushed:
        said = f"{kind} are unsigned and agreed to come in the response, not in a request"
    elif pattern == "pull" and in_request:
        said = f"{kind} are unsigned and agreed to be pulled, not to come in a request"
    else:
        return []
    return [EbmsError("EBMS:0010", said, location="PMode")]


def _unproven(found: Inspection) -> list[EbmsError]:
    verification = found.verification
    if verification is None:
        said = "the signal is not signed, and the P-Mode signs"
        return [EbmsError("EBMS:0103", said, location="wsse:Security")]
    if not found.trusted:
        said = "nobody vouches for who signed: the P-Mode names no certificate of the partner"
        known = any(one.severity is Severity.FAILURE for one in found.problems)
        return [] if known else [EbmsError("EBMS:0101", said, location="certificate")]
    return []
