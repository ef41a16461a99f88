"""What the acknowledgments of an ebXML message prove: they stand in the place of receipts."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.agreement.pmode import Leg, PMode
from postroad.msh.capture import Capture
from postroad.msh.ebxml_answers import SentEbxml, answer_problems
from postroad.msh.ebxml_inbound import SIGNATURE
from postroad.msh.ebxml_terms import is_to_party
from postroad.msh.evidence import ChooseTerms, Findings, Given, GivenSignal, SignalFinding, judge
from postroad.msh.expectation import Terms
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection, Lens
from postroad.wire.ebms3 import Reference
from postroad.wire.ebxml import EbxmlMessage, kind_of
from postroad.wire.errors import EbmsError, Severity

ACKNOWLEDGING: Final = ("acknowledgment", "hop", "response")
"""Kinds of ebXML signals by which somebody says that the message came."""
_EARLIEST: Final = datetime(1990, 1, 1, tzinfo=UTC)
_ASKING_NOTHING: Final = Match(PMode(id="evidence", legs=(Leg(),)), Leg(), 1)
"""Agreements change, and a stranger has none: what signatures prove is asked here, of all alike."""

_UNSIGNED: Final = (
    "the message is signed and its acknowledgment is not, so the acknowledgment proves nothing to "
    "a third party"
)
_UNTIED: Final = (
    "the acknowledgment is signed and the message is not: nothing shows that this is the message "
    "that it names"
)

ChooseSignalTerms = Callable[[GivenSignal, Look], Terms | None]


class Worth(Enum):
    """What an acknowledgment of ebXML proves to who trusts its signer, for people to read."""

    MESSAGE = "that the receiver has exactly this message: it repeats the digests"
    MESSAGE_ID = (
        "that the receiver has the message named by RefToMessageId: it does not repeat the digests"
    )
    STATION = "only that a station on the way took the message over, nothing of the receiver"
    NOTHING = "nothing to a third party: it is not signed"
    DISBELIEVED = "nothing: the node did not believe it when it came"
    BROKEN = "nothing, see what is wrong"


def speaks_ebxml(envelope: bytes, lens: Lens) -> bool:
    look = Look(Capture(None, None, None, envelope, (), False, ()), lens)
    return look.read() and look.found.kind.startswith("ebxml")


def judge_ebxml(
    given: Given,
    lens: Lens,
    *,
    of_message: ChooseTerms = Look.terms,
    of_signal: ChooseSignalTerms = lambda given, look: look.terms(),
) -> Findings:
    """What `judge` finds, of an ebXML message: it has acknowledgments in the place of receipts."""
    findings = judge(Given(given.envelope, given.parts, ()), lens, of_message=of_message)
    message = findings.message
    if message.ebxml is not None:
        check = message.verification
        sent = SentEbxml(message.ebxml, check.signed_references if check else ())
        for signal in given.signals:
            found = _looked(signal, lens, of_signal)
            findings.signals.append(judge_acknowledgment(signal, found, sent, message))
    return findings


def _looked(given: GivenSignal, lens: Lens, choose: ChooseSignalTerms) -> Inspection:
    """The walk in, as of the time that the signal says of itself; in the future is none.

    Of an answer with payloads, on which an acknowledgment may ride, only the envelope is kept.
    """
    capture = Capture(None, None, None, given.envelope, (), False, ())
    look = Look(capture, lens)
    if not look.read():
        return look.found
    said = look.found.ebxml
    if said is not None and not lens.at_given:
        lens = replace(lens, at=min(max(said.header.timestamp, _EARLIEST), lens.at))
        look = Look(capture, lens)
        look.read()
    look.judge(choose(given, look))
    return look.found


def judge_acknowledgment(
    given: GivenSignal, found: Inspection, sent: SentEbxml, message: Inspection
) -> SignalFinding:
    answer = found.ebxml
    problems = [one for one in found.problems if one.severity is not Severity.FAILURE]
    problems += answer_problems(found, sent, _ASKING_NOTHING, on_response=True)
    if answer is None:
        return SignalFinding(given, found, tuple(problems))
    if given.kind not in ACKNOWLEDGING:
        if answer.error_list is None:
            problems.append(_not_there("no error", sent.message))
        return SignalFinding(given, found, tuple(problems))
    if kind_of(answer) not in ("acknowledgment", "message"):
        problems.append(_not_there("no acknowledgment", sent.message))
    problems += _signer_problems(found, answer, message, sent.message)
    digests = _compared(sent.references, answer)
    # Of 2.0 they were compared already.
    if digests and not answer.dialect.acknowledgment_refers and not _are_equal(digests):
        said = "the digests in the acknowledgment are not those of the message"
        problems.append(EbmsError("SecurityFailure", said))
    return SignalFinding(given, found, tuple(problems), digests)


def _not_there(what: str, sent: EbxmlMessage) -> EbmsError:
    return EbmsError("Inconsistent", f"it holds {what} about {sent.message_id}")


def _signer_problems(
    found: Inspection, answer: EbxmlMessage, message: Inspection, sent: EbxmlMessage
) -> list[EbmsError]:
    """An acknowledgment is the receiver's word: signed, and not by who signed the message.

    A station on the way signs as it has agreed with others, and proves nothing of the receiver.
    """
    if message.verification is None or found.verification is None:
        if message.verification is found.verification or not is_to_party(answer, sent):
            return []
        said = _UNTIED if message.verification is None else _UNSIGNED
        return [EbmsError("SecurityFailure", said, location=SIGNATURE)]
    theirs, ours = found.verification.certificate, message.verification.certificate
    if theirs is None or ours is None or theirs.public_key() != ours.public_key():
        return []
    to_itself = sent.header.from_party.party_ids == sent.header.to_party.party_ids
    return [
        EbmsError(
            "SecurityFailure",
            "the acknowledgment is signed with the key of who sent the message: it says nothing "
            "of the receiver",
            location="certificate",
            severity=Severity.WARNING if to_itself else Severity.FAILURE,
        )
    ]


def _compared(
    sent: Iterable[Reference], answer: EbxmlMessage
) -> tuple[tuple[Reference, Reference | None], ...]:
    """Each reference of the message's signature with that of the acknowledgment, if it has any."""
    said = answer.acknowledgment.references if answer.acknowledgment else ()
    received = {one.uri: one for one in said}
    return tuple((one, received.get(one.uri)) for one in sent) if said else ()


def _are_equal(digests: Iterable[tuple[Reference, Reference | None]]) -> bool:
    return all(
        theirs is not None
        and (ours.digest_method, ours.digest_value) == (theirs.digest_method, theirs.digest_value)
        for ours, theirs in digests
    )


def is_by_receiver(one: SignalFinding, message: Inspection) -> bool:
    """Whether it is the word of the To Party; a station on the way goes by its address.

    Over a link of draft 001 the To Party goes by its address, too, in an acknowledgment without an
    Acknowledgment element. There it counts what the node noted: a station's is a hop.
    """
    answer, sent = one.found.ebxml, message.ebxml
    if answer is None or sent is None:
        return one.given.kind != "hop"
    over_link = answer.acknowledgment is None and one.given.kind == "acknowledgment"
    return over_link or is_to_party(answer, sent)


def worth_of(one: SignalFinding, message: Inspection) -> Worth:
    if one.found.verification is None:
        return Worth.NOTHING
    if not one.holds or one.found.verification.valid is not True:
        return Worth.BROKEN
    if not one.given.believed:
        return Worth.DISBELIEVED
    if not is_by_receiver(one, message):
        return Worth.STATION
    return Worth.MESSAGE if one.digests else Worth.MESSAGE_ID
