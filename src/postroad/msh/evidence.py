"""What a message and its receipts prove: signatures, and receipts for exactly that message.

The same check is made by the node that puts an evidence together, of what it keeps, by
`postroad inspect`, offline, of what is in the zip, and in bulk by `postroad pipeline verify`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from postroad.msh.capture import Capture
from postroad.msh.expectation import Terms
from postroad.msh.inspection import Look
from postroad.msh.joined import is_fragment
from postroad.msh.joined_receipts import received_references
from postroad.msh.lens import Inspection, Lens
from postroad.msh.reliability_evidence import (
    acknowledgment_problems,
    is_fault_about,
    worth_of_acknowledgment,
)
from postroad.msh.report import problem_facts, report
from postroad.wire.ebms3 import Reference, SignalMessage, UserMessage
from postroad.wire.ebms3_user_messages import content_id
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.mime import Part
from postroad.wire.mime_headers import Headers, parse_content_type
from postroad.wire.receipts import check_receipt, references_about

ENVELOPE: Final = "message/envelope.xml"
"""What the message's envelope is called where problems are told."""
ACKNOWLEDGMENT: Final = "acknowledgment"
RECEIPTS: Final = ("receipt", ACKNOWLEDGMENT)
"""Kinds of ebMS 3.0 signals by which the receiver says that it has the message."""
_EARLIEST: Final = datetime(1990, 1, 1, tzinfo=UTC)
_NOTHING_SIGNED: Final = (
    "the message is not signed, so this proves nothing: it only shows what fits together"
)
_RECEIPT_SIGNED: Final = (
    "the message itself is not signed, as one that went in fragments is not: its signed receipt "
    "proves that the receiver has it, nothing here proves who sent it"
)

ChooseTerms = Callable[[Look], Terms | None]


@dataclass(frozen=True, slots=True)
class GivenSignal:
    """A receipt or an error as it was kept."""

    file: str
    kind: str
    envelope: bytes
    believed: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """What an evidence is made of: the message with its parts as they were signed, its signals."""

    envelope: bytes
    parts: tuple[Part, ...]
    """In a bundle, those of the unit."""
    signals: tuple[GivenSignal, ...]
    message_id: str | None = None
    """Which unit of a bundle it is about."""


@dataclass(frozen=True, slots=True)
class SignalFinding:
    """What was found about one signal."""

    given: GivenSignal
    found: Inspection
    problems: tuple[EbmsError, ...]
    digests: tuple[tuple[Reference, Reference | None], ...] = ()
    """Each reference of the message's signature, and what the receipt has for it."""

    @property
    def holds(self) -> bool:
        return not any(one.severity is Severity.FAILURE for one in self.problems)

    @property
    def proves_receipt(self) -> bool:
        """Whether it is signed, and has the digest of everything that was sent."""
        signed = self.given.believed and self.holds and self.found.verification is not None
        return signed and bool(self.digests) and all(_is_equal(*pair) for pair in self.digests)


@dataclass(slots=True)
class Findings:
    """What message and signals are worth."""

    message: Inspection
    signals: list[SignalFinding] = field(default_factory=list)
    problems: list[EbmsError] = field(default_factory=list)
    """Of the whole; those of the message and of each signal are with these."""

    @property
    def holds(self) -> bool:
        return not any(one.severity is Severity.FAILURE for one in self.all_problems())

    @property
    def trusted(self) -> bool | None:
        """Whether all who signed are trusted; None when nobody signed or said whom to trust."""
        looked_at = [self.message, *(one.found for one in self.signals if one.given.believed)]
        said = [one.trusted for one in looked_at if one.verification is not None]
        if False in said:
            return False
        return True if said and None not in said else None

    def all_problems(self) -> list[EbmsError]:
        """Everything that is wrong, each with its file; what was never believed is no failure."""
        found = [*self.problems, *(_in_file(ENVELOPE, one) for one in self.message.problems)]
        for signal in self.signals:
            for problem in signal.problems:
                told = _in_file(signal.given.file, problem)
                if not signal.given.believed:
                    told.severity = Severity.WARNING
                found.append(told)
        return found


def _in_file(file: str, problem: EbmsError) -> EbmsError:
    place = f"{file}: {problem.location}" if problem.location else file
    return EbmsError(problem.code, problem.detail, location=place, severity=problem.severity)


def judge(
    given: Given,
    lens: Lens,
    *,
    of_message: ChooseTerms = Look.terms,
    of_signals: ChooseTerms = Look.terms,
) -> Findings:
    """Look at everything. Certificates are judged as of when message and signals say they were
    made, unless somebody gave a time.
    """
    lens = replace(lens, opened=True)
    # Of a bundle's unit only its own parts are here, and the others prove nothing about it.
    whole = given.message_id is None
    several = whole and bool(given.parts)
    capture = Capture(None, None, None, given.envelope, given.parts, several, (), whole)
    found = _looked(capture, lens, of_message)
    if is_fragment(found) and not given.parts:
        found = _looked(replace(capture, whole=False), lens, of_message)
    findings = Findings(found)
    message = _meant(found, given.message_id)
    if message is None:
        if found.readable:
            count = len(found.messaging.user_messages) if found.messaging else 0
            which = (
                f", none of them {given.message_id}" if given.message_id else ", one is expected"
            )
            said = f"the envelope holds {count} user messages{which}"
            findings.problems.append(EbmsError("EBMS:0009", said, location=ENVELOPE))
        return findings
    for signal in given.signals:
        findings.signals.append(_judge_signal(signal, found, message, lens, of_signals))
    received = any(one.proves_receipt for one in findings.signals)
    found.problems += _message_problems(found, message, received)
    return findings


def _meant(found: Inspection, message_id: str | None) -> UserMessage | None:
    """The message that an evidence is about: the only one, or the unit of that id."""
    messages = found.messaging.user_messages if found.messaging else ()
    if message_id is None:
        return messages[0] if len(messages) == 1 else None
    return next((one for one in messages if one.message_info.message_id == message_id), None)


def _signed_of(message: Inspection, user_message: UserMessage) -> Sequence[Reference]:
    """What of the message's signature is about one of its user messages."""
    if message.verification is None or message.messaging is None:
        return ()
    signed = message.verification.signed_references
    return references_about(signed, user_message, message.messaging)


def _looked(capture: Capture, lens: Lens, choose: ChooseTerms) -> Inspection:
    """The walk in, as of the time that a message says of itself; in the future is none.

    What was signed again later says its first time and has a later certificate: it is judged as of
    the beginning of that, before which it cannot have been signed.
    """
    first = Look(capture, lens)
    if not first.read():
        return first.found
    said = _stated_time(first, choose)
    if said is None or lens.at_given:
        return _judged(capture, lens, choose)
    found = _judged(capture, replace(lens, at=min(max(said, _EARLIEST), lens.at)), choose)
    signer = found.verification.certificate if found.verification is not None else None
    if signer is not None and said < signer.not_valid_before_utc <= lens.at:
        found = _judged(capture, replace(lens, at=signer.not_valid_before_utc), choose)
    return found


def _judged(capture: Capture, lens: Lens, choose: ChooseTerms) -> Inspection:
    look = Look(capture, lens)
    look.read()
    look.judge(choose(look))
    return look.found


def _stated_time(look: Look, choose: ChooseTerms) -> datetime | None:
    """When a message was made: without eb:Messaging only its wsu:Timestamp says so."""
    units = look.found.messaging.units if look.found.messaging else ()
    if units:
        return units[0].message_info.timestamp
    look.judge(choose(look))
    return look.found.timestamp.created if look.found.timestamp is not None else None


def _message_problems(
    found: Inspection, user_message: UserMessage, received: bool
) -> list[EbmsError]:
    """What is wrong with the message; `received`: a signed receipt has its digests."""
    verification = found.verification
    if verification is None:
        said = _RECEIPT_SIGNED if received else _NOTHING_SIGNED
        return [EbmsError("EBMS:0103", said, severity=Severity.WARNING)]
    if is_fragment(found):
        # Its data is kept as a part of its message: that this was not seen is a warning already.
        return []
    own = {reference.uri for reference in _signed_of(found, user_message)}
    # A token that stays encrypted is no part of the message itself: a warning is told of it.
    parts = [one for one in verification.references if one.content_id or one.element is not None]
    return [
        EbmsError("EBMS:0101", f"the signed part {uri} is not here, or not open", location=uri)
        for uri in (one.reference.uri for one in parts if one.valid is None)
        if uri in own
    ]


def _judge_signal(
    given: GivenSignal,
    message: Inspection,
    user_message: UserMessage,
    lens: Lens,
    choose: ChooseTerms,
) -> SignalFinding:
    capture = Capture(None, None, None, given.envelope, (), False, (), True)
    lens = replace(lens, unsigned_routing=True)
    found = _looked(capture, lens, choose)
    if rides(found):
        found = _looked(replace(capture, whole=False), lens, choose)
    problems = list(found.problems)
    if given.kind == ACKNOWLEDGMENT:
        if found.readable:
            problems += acknowledgment_problems(found, message)
        problems += signer_problems(found, message, user_message, "acknowledgment")
        return SignalFinding(given, found, tuple(problems))
    signal = about(found, user_message.message_info.message_id, given.kind)
    if signal is None:
        fault = given.kind == "error" and is_fault_about(found, message)
        if found.readable and not fault:
            said = f"it holds no {given.kind} about {user_message.message_info.message_id}"
            problems.append(EbmsError("EBMS:0302", said, location="eb:RefToMessageId"))
        return SignalFinding(given, found, tuple(problems))
    if signal.receipt is None:
        return SignalFinding(given, found, tuple(problems))
    known = received_references(message, signal)
    sent = references_about(known, user_message, message.messaging)
    problems += signer_problems(found, message, user_message)
    try:
        check_receipt(
            signal,
            sent_message_id=user_message.message_info.message_id,
            sent_references=sent or None,
            sent_user_message=user_message,
            also_sent=known,
        )
    except EbmsError as invalid:
        problems.append(invalid)
    return SignalFinding(given, found, tuple(problems), _compared(sent, signal))


def rides(found: Inspection) -> bool:
    """Whether a signal stands in a message, such as a reply: only its envelope is kept with it."""
    return found.messaging is not None and bool(found.messaging.user_messages)


def about(found: Inspection, message_id: str, kind: str) -> SignalMessage | None:
    """The signal of an envelope that is about a message; an error may name none."""
    for signal in found.messaging.signals if found.messaging else ():
        ref = signal.message_info.ref_to_message_id
        if kind == "receipt" and signal.receipt is not None and ref == message_id:
            return signal
        if kind == "error" and signal.errors and ref in (message_id, None):
            return signal
    return None


def signer_problems(
    found: Inspection, message: Inspection, user_message: UserMessage, what: str = "receipt"
) -> list[EbmsError]:
    """A receipt is the receiver's word: signed, and not by who signed the message."""
    if message.verification is None:
        return []
    if found.verification is None:
        said = f"the message is signed and its {what} is not, so the {what} proves nothing"
        return [EbmsError("EBMS:0103", said, location="wsse:Security")]
    theirs, ours = found.verification.certificate, message.verification.certificate
    if theirs is None or ours is None or theirs.public_key() != ours.public_key():
        return []
    to_itself = user_message.from_party.party_ids == user_message.to_party.party_ids
    return [
        EbmsError(
            "EBMS:0101",
            f"the {what} is signed with the key of who sent the message: it says nothing of the "
            "receiver",
            location="certificate",
            severity=Severity.WARNING if to_itself else Severity.FAILURE,
        )
    ]


def _compared(
    sent: Sequence[Reference], signal: SignalMessage
) -> tuple[tuple[Reference, Reference | None], ...]:
    proof = signal.receipt.non_repudiation if signal.receipt else None
    received = {content_id(one.uri): one for one in (proof.references if proof else ())}
    return tuple((one, received.get(content_id(one.uri))) for one in sent)


def _is_equal(sent: Reference, received: Reference | None) -> bool:
    if received is None:
        return False
    return (received.digest_method, received.digest_value) == (
        sent.digest_method,
        sent.digest_value,
    )


def signed_part(index: int, name: str | None, media_type: str, content: Any, digest: bytes) -> Part:
    """A part as the look takes it: as if it had come in a MIME package, and not encrypted."""
    return Part(index, Headers(()), parse_content_type(media_type), name, "binary", content, digest)


def findings_facts(findings: Findings) -> dict[str, Any]:
    """Findings as plain data."""
    signals = findings.signals
    return {
        "holds": findings.holds,
        "signed": findings.message.verification is not None,
        "trusted": findings.trusted,
        "message": report(findings.message),
        "receipts": [
            _signal_facts(one) | _worth_facts(one, findings.message)
            for one in signals
            if one.given.kind in RECEIPTS
        ],
        "error_signals": [_signal_facts(one) for one in signals if one.given.kind not in RECEIPTS],
        "errors": [problem_facts(one) for one in findings.all_problems()],
    }


def _worth_facts(one: SignalFinding, message: Inspection) -> dict[str, Any]:
    """What an acknowledgment proves; a receipt proves what its digests are equal to."""
    if one.given.kind != ACKNOWLEDGMENT:
        return {}
    proves, worth = worth_of_acknowledgment(
        one.found, message, holds=one.holds, believed=one.given.believed
    )
    return {"proves": proves, "worth": worth}


def _signal_facts(one: SignalFinding) -> dict[str, Any]:
    facts = report(one.found)
    return {
        "file": one.given.file,
        **facts,
        "holds": one.holds,
        "believed": one.given.believed,
        "digests": [
            {
                "uri": sent.uri,
                "sent": sent.digest_value.hex(),
                "received": received.digest_value.hex() if received else None,
                "equal": _is_equal(sent, received),
            }
            for sent, received in one.digests
        ],
        "errors": [problem_facts(problem) for problem in one.problems],
    }
