"""Acknowledgments and errors of ebXML: made for what came in, and judged when they come back.

`reliability.ebxml` decides what is said about a message; here it becomes a message (0.98b, 8.12,
10.3.1.3, 10.4 and 11). An answer is believed as far as the P-Mode trusts its signer.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.answers import MOST_ERRORS, NO_AGREEMENT, Answer
from postroad.msh.ebxml_faults import client_fault
from postroad.msh.ebxml_inbound import HEADER, SIGNATURE
from postroad.msh.ebxml_services import answering, said_by, write_message
from postroad.msh.ebxml_terms import is_to_party, party_name
from postroad.msh.lens import Inspection
from postroad.msh.securing import signs
from postroad.reliability.ebxml import SERVICE_000, AckType, Signal
from postroad.reliability.ebxml_terms import DeliverySemantics, ErrorCode
from postroad.reliability.ebxml_terms import Error as SaidError
from postroad.reliability.ebxml_terms import Severity as SaidSeverity
from postroad.security.sign import Signing
from postroad.security.verify import references_of
from postroad.wire import xml
from postroad.wire.ebms3 import Party, PartyId, Reference, Service
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    ERROR,
    MESSAGE_ERROR,
    ONCE_AND_ONLY_ONCE,
    SIGNED,
    UNSPECIFIED,
    Acknowledgment,
    AckRequested,
    Dialect,
    EbxmlMessage,
    ErrorList,
    MessageHeader,
    TraceHeader,
    kind_of,
)
from postroad.wire.ebxml_errors import to_wire
from postroad.wire.ebxml_reader import dialect_of, read_ebxml
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.soap import read_envelope
from postroad.wire.soap_faults import Fault

_PLACES: Final = {
    ErrorCode.TIME_TO_LIVE_EXPIRED: f"{HEADER}/eb:MessageData/eb:TimeToLive",
    ErrorCode.INCONSISTENT: HEADER,
    ErrorCode.NOT_SUPPORTED: HEADER,
    ErrorCode.VALUE_NOT_RECOGNIZED: HEADER,
}
"""Where the machine finds what it reports; a delivery failure is at no element."""
_UNANSWERED: Final = ("error", "acknowledgment")


class SentEbxml(Struct, frozen=True):
    """What was sent, as far as an answer is held against it."""

    message: EbxmlMessage
    references: tuple[Reference, ...]
    """Of the signature; empty when it was not signed."""


def sent_ebxml(envelope: bytes, limits: Limits = DEFAULT) -> SentEbxml:
    """What was sent, from the envelope that was kept; ValueError when it is no ebXML message."""
    parsed = read_envelope(xml.parse(envelope, limits))
    dialect = dialect_of(parsed)
    reading = read_ebxml(parsed, dialect) if dialect else None
    if reading is None or reading.message is None:
        raise ValueError("the envelope that was kept holds no ebXML message")
    return SentEbxml(reading.message, references_of(parsed.header, limits))


def write_signal(
    signal: Signal,
    dialect: Dialect,
    *,
    message_id: str,
    now: datetime,
    to: EbxmlMessage,
    cpa_id: str | None = None,
    signing: Signing | None = None,
    references: Sequence[Reference] = (),
    over_link: bool = False,
) -> Answer | None:
    """An acknowledgment, an error or a delivery failure notice as a message of its own.

    `to` is the message that it is about, `references` those of its signature, `over_link` that it
    came over a link of draft 001, whose Receiver tells its Sender of errors. None: 2.0 does not
    acknowledge what asks for no acknowledgment. ValueError for a warning that is to ride on another
    message, and when a signature is asked for without `signing`.
    [MS098-10.3.1.3-02] [MS098-10.3.1.3-06] [MS098-10.3.1.3-09] [MS098-11.5-02]
    """
    is_error = signal.error is not None
    if signal.service is None and not _is_notice(signal):
        raise ValueError("a warning rides on a message of the application: see `ride`")
    if not is_error and dialect.acknowledgment_refers and not to.ack_requested:
        return None
    acknowledgment, errors = _said(signal, dialect, to, now, signing, references)
    header = answering(
        to, MESSAGE_ERROR if is_error else ACKNOWLEDGMENT, message_id=message_id, now=now
    )
    if signal.service == SERVICE_000 and dialect.has_trace:
        # The first draft asks for BestEffort in words. [RM000-1.3.2.1-07]
        semantics = signal.delivery_semantics.value
        header = replace(header, service=Service(SERVICE_000), delivery_semantics=semantics)
    reliable = signal.delivery_semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    header = _reliably(
        replace(
            header,
            from_party=_party(signal.from_party, to),
            to_party=_party(signal.to_party, to),
            cpa_id=cpa_id or header.cpa_id,
            ref_to_message_id=signal.ref_to_message_id,
        ),
        dialect,
        reliable,
    )
    if over_link and is_error and to.trace:
        header = link_header(header, to.trace[-1])
    message = EbxmlMessage(
        dialect=dialect,
        header=header,
        ack_requested=(AckRequested(False),) if reliable and not dialect.has_trace else (),
        acknowledgment=acknowledgment,
        error_list=errors,
    )
    return write_message(message, "error" if is_error else "acknowledgment", signing)


def ride(
    signal: Signal,
    dialect: Dialect,
    *,
    to: EbxmlMessage,
    now: datetime,
    signing: Signing | None = None,
    references: Sequence[Reference] = (),
) -> tuple[Acknowledgment | None, ErrorList | None]:
    """A signal as what rides on a message of the application (`package_ebxml`).

    [MS098-10.3.1.3-04] [MS098-11.5-01]
    """
    return _said(signal, dialect, to, now, signing, references)


def _said(
    signal: Signal,
    dialect: Dialect,
    to: EbxmlMessage,
    now: datetime,
    signing: Signing | None,
    references: Sequence[Reference],
) -> tuple[Acknowledgment | None, ErrorList | None]:
    if signal.error is not None:
        return None, to_wire([_problem(signal.error, signal.ref_to_message_id)], dialect)
    said = signal.acknowledgment
    if said is None and not dialect.acknowledgment_refers:
        return None, None
    if said is not None and said.signed and signing is None:
        raise ValueError(
            "a signed acknowledgment is asked for, and the P-Mode signs nothing: set Security.X509"
        )
    final = said is None or said.type is AckType.DELIVERY_RECEIPT
    proof = dialect.acknowledgment_references and said is not None and said.signed
    return Acknowledgment(
        timestamp=said.timestamp if said else now,
        type=DELIVERY_RECEIPT if final else ACKNOWLEDGMENT,
        signed=signing is not None,
        ref_to_message_id=signal.ref_to_message_id if dialect.acknowledgment_refers else None,
        references=tuple(references) if proof else (),
    ), None


def _is_notice(signal: Signal) -> bool:
    """A delivery failure notice goes alone even as a warning: there is nothing to ride on."""
    return signal.error is not None and signal.error.code is ErrorCode.DELIVERY_FAILURE


def _problem(error: SaidError, ref: str) -> EbmsError:
    warns = error.severity is SaidSeverity.WARNING
    severity = Severity.WARNING if warns else Severity.FAILURE
    place = _PLACES.get(error.code)
    return EbmsError(error.code.value, error.detail, location=place, ref=ref, severity=severity)


def _party(name: str, to: EbxmlMessage) -> Party:
    """A Party by the name that the machine knows it by; a URI is that of an MSH on the way."""
    for party in (to.header.from_party, to.header.to_party):
        if party_name(party) == name:
            return party
    kind, _, value = name.rpartition("::")
    return Party((PartyId(value, kind or None),), "")


def _reliably(header: MessageHeader, dialect: Dialect, reliable: bool) -> MessageHeader:
    """A notice goes as reliably as the message that was lost. [RM000-1.4-05]"""
    if not reliable:
        return header
    if dialect.has_quality_of_service:
        return replace(header, delivery_semantics=ONCE_AND_ONLY_ONCE)
    return replace(header, duplicate_elimination=True)


def error_answer(
    problems: Sequence[EbmsError],
    dialect: Dialect,
    *,
    about: EbxmlMessage | None,
    message_id: str,
    now: datetime,
    party: Party | None = None,
    signing: Signing | None = None,
    over_link: bool = False,
) -> Answer | None:
    """The message that tells the From Party what is wrong.

    None about an error or an acknowledgment, about a message whose header cannot be read, and where
    there are only warnings. `party` is who says it; the To Party when absent. `over_link`: the
    message came over a link of draft 001, whose Receiver tells its Sender.
    [MS098-11.3-01] [MS098-11.3-04] [MS098-11.5-02]
    """
    failures = [one for one in problems if one.severity is Severity.FAILURE]
    if about is None or not failures or not _is_answered(about):
        return None
    header = said_by(answering(about, MESSAGE_ERROR, message_id=message_id, now=now), party)
    if over_link and about.trace:
        header = link_header(header, about.trace[-1])
    message = EbxmlMessage(
        dialect=dialect,
        header=header,
        error_list=to_wire(map(_told, failures[:MOST_ERRORS]), dialect),
    )
    try:
        return write_message(message, "error", signing)
    except ValueError:
        # A Party that cannot be written: what it calls itself may be the very error.
        return None


def link_header(header: MessageHeader, link: TraceHeader) -> MessageHeader:
    """The header of an error as draft 001 has it: from the Receiver to the Sender of the link.

    [RM001-2.6.2-01] [RM001-2.6.2-02] [RM001-2.6.2-04] [RM001-2.6.2-06]
    """
    return replace(
        header,
        from_party=Party((PartyId(link.receiver_uri),), ""),
        to_party=Party((PartyId(link.sender_uri),), ""),
        service=Service(""),
        action="",
        delivery_semantics=UNSPECIFIED,
        message_type=ERROR,
    )


def refusal(
    found: Inspection,
    *,
    message_id: str,
    now: datetime,
    party: Party | None = None,
    signing: Signing | None = None,
    over_link: bool = False,
) -> Answer | Fault | None:
    """What is answered to a message that is refused: ebXML's errors, or SOAP's Fault where these
    cannot be; nothing about an error or an acknowledgment.

    [MS098-7.6-01] [MS098-11.3.1-01]
    """
    failures = [one for one in found.problems if one.severity is Severity.FAILURE]
    message = found.ebxml
    if message is not None and _ends_the_talk(message):
        return None
    if found.soap_fault is not None:
        return found.soap_fault
    if message is None:
        return client_fault(failures)
    answer = error_answer(
        failures,
        message.dialect,
        about=message,
        message_id=message_id,
        now=now,
        party=party,
        signing=signing,
        over_link=over_link,
    )
    return answer or client_fault([_told(one) for one in failures])


def _is_answered(message: EbxmlMessage) -> bool:
    """Whether errors about it can be told, and may be."""
    header = message.header
    named = header.message_id and header.from_party.party_ids and header.to_party.party_ids
    return bool(named) and not _ends_the_talk(message)


def _ends_the_talk(message: EbxmlMessage) -> bool:
    """Nothing is said about errors and acknowledgments, so that errors never loop."""
    errors = message.error_list
    return kind_of(message) in _UNANSWERED or bool(errors and errors.highest_severity == ERROR)


def _told(problem: EbmsError) -> EbmsError:
    """Which P-Mode nearly fitted is nobody's business but ours."""
    if not problem.detail.startswith("no P-Mode matches"):
        return problem
    return EbmsError(
        problem.code, NO_AGREEMENT, location=problem.location, severity=problem.severity
    )


def asked_by_partner(found: Inspection) -> bool:
    """Whether a ping or a status request is a partner's: of a P-Mode, and signed where that signs.

    [MS098-9.1.3-02] [MS098-9.2.3-02]
    """
    match = found.match
    return match is not None and found.holds and (bool(found.trusted) or not signs(match.leg))


def answer_problems(
    found: Inspection, sent: SentEbxml, match: Match, *, on_response: bool
) -> list[EbmsError]:
    """Why an acknowledgment or an error is not believed; empty when it is.

    What was asked to be signed must be signed by the partner, and in 2.0 repeat the digests of the
    message. An error on the response is taken unsigned: a partner that cannot read a message often
    cannot sign about it either. From a stranger's request it is not, where the P-Mode signs. An
    error may be of another version, since who says it may not know ours. Where no signature is
    asked for, and answers are agreed to be the response, none is taken from a request.
    """
    answer = found.ebxml
    if answer is None:
        return list(found.problems) or [EbmsError("OtherXml", "it is no ebXML message")]
    is_error = kind_of(answer) == "error"
    problems = [one for one in found.problems if one.severity is Severity.FAILURE]
    about = answer.acknowledged or answer.header.ref_to_message_id
    if about != sent.message.message_id:
        said = f"it refers to {about!r}, not to the message that was sent"
        problems.append(EbmsError("Inconsistent", said, location=_REF))
    if not _is_for_us(answer.header.to_party, sent.message):
        said = f"it is for {answer.header.to_party}, not for who sent the message"
        problems.append(EbmsError("Inconsistent", said, location=f"{HEADER}/eb:To"))
    if is_error:
        wanted = signs(match.leg) and not on_response
    else:
        wanted = _wants_signature(answer, sent.message, match)
        problems += _unproven_digests(answer, sent, wanted)
        if answer.dialect is not sent.message.dialect:
            said = f"it is of version {answer.dialect.name}, and what was sent of another"
            problems.append(EbmsError("Inconsistent", said, location=f"{HEADER}/@eb:version"))
    if wanted:
        return problems + _unsigned(found)
    if not on_response and _answers_respond(match):
        said = "it is unsigned and agreed to come in the response, not in a request"
        problems.append(EbmsError("SecurityFailure", said, location="PMode"))
    return problems


def _answers_respond(match: Match) -> bool:
    """Whether it is agreed that what an MSH says about a message is the response."""
    agreed = match.leg.ebxml
    return agreed is not None and agreed.sync_reply not in ("none", "responseOnly")


def _is_for_us(party: Party, sent: EbxmlMessage) -> bool:
    """Whether it is for the From Party, or for an MSH by its address. [MS098-10.3.1.3-08]"""
    same = set(party.party_ids) & set(sent.header.from_party.party_ids)
    return bool(same) or any(one.value.startswith(_ADDRESSES) for one in party.party_ids)


_ADDRESSES: Final = ("http:", "https:", "mailto:")
_REF: Final = f"{HEADER}/eb:MessageData/eb:RefToMessageId"


def _wants_signature(answer: EbxmlMessage, sent: EbxmlMessage, match: Match) -> bool:
    """Whether who acknowledges was asked to sign; delivery receipts are the To Party's."""
    own = match.leg.ebxml
    asked = [own.ack_requested, own.delivery_receipt] if own else []
    return SIGNED in (asked if is_to_party(answer, sent) else asked[:1])


def _unsigned(found: Inspection) -> list[EbmsError]:
    if found.verification is None:
        said = "it is not signed, and a signature was asked for"
        return [EbmsError("SecurityFailure", said, location=SIGNATURE)]
    if not found.trusted and not any(one.severity is Severity.FAILURE for one in found.problems):
        said = "nobody vouches for who signed: the P-Mode names no certificate of the partner"
        return [EbmsError("SecurityFailure", said, location="certificate")]
    return []


def _unproven_digests(answer: EbxmlMessage, sent: SentEbxml, wanted: bool) -> list[EbmsError]:
    """A signed acknowledgment of 2.0 holds the references of the message, all and the same."""
    said = answer.acknowledgment
    if said is None or not answer.dialect.acknowledgment_refers:
        return []
    if not (wanted or said.references) or _digests(said.references) == _digests(sent.references):
        return []
    wrong = "the digests in the acknowledgment are not those of the message that was sent"
    place = "/SOAP-ENV:Envelope/SOAP-ENV:Header/eb:Acknowledgment"
    return [EbmsError("SecurityFailure", wrong, location=place)]


def _digests(references: Sequence[Reference]) -> set[tuple[str, str, bytes]]:
    return {(one.uri, one.digest_method, one.digest_value) for one in references}
