"""What a partner says in ebXML about a message that we sent, or passed on: believed or not."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace as changed

from postroad.agreement.ebxml import cpa_terms
from postroad.agreement.matching import Match
from postroad.msh.capture import Capture
from postroad.msh.ebxml_answers import SentEbxml, answer_problems
from postroad.msh.ebxml_link import read_link_answer
from postroad.msh.ebxml_terms import header_terms, reliable
from postroad.msh.lens import Inspection
from postroad.node.steps.hearing import Heard, Hearing, Reported
from postroad.reliability.delivery import Input
from postroad.reliability.ebxml import Hop
from postroad.reliability.ebxml_sending import WORDS, Word, said
from postroad.reliability.ebxml_terms import EbxmlError, Terms, agree
from postroad.reliability.link import RECOVERIES, ErrorMessage
from postroad.store.records import Side
from postroad.wire.ebxml import BEST_EFFORT, ERROR, NOT_GUARANTEED, EbxmlMessage, ErrorList
from postroad.wire.errors import EbmsError, Severity

_FOREIGN = "somebody says it who has no part in the message"
_KINDS = {Word.ACKNOWLEDGED: "acknowledgment", Word.TAKEN_OVER: "hop"}


def heard_ebxml(
    found: Inspection,
    capture: Capture,
    match: Match | None,
    sent: SentEbxml,
    side: Side,
    addresses: Sequence[str],
    own: Collection[str],
    *,
    on_response: bool,
) -> Hearing:
    """What an envelope that was looked at says about a message.

    `addresses` are those that it may have been sent to, and `own` ours: an MSH on the way goes by
    its URI.
    """
    kind = str(capture.content_type) if capture.content_type else "text/xml"
    problems = tuple(one for one in found.problems if one.severity is Severity.FAILURE)
    answer = found.ebxml
    heard: tuple[Heard, ...] = ()
    if answer is not None and _refers(answer, sent, on_response):
        heard = (_judge(found, answer, match, sent, side, addresses, on_response),)
        if not _is_for_us(answer, sent, own):
            # [MS098-10.3.1.3-08]
            stray = EbmsError("Inconsistent", "it is addressed to somebody else", location="eb:To")
            heard = (changed(heard[0], problems=(*heard[0].problems, stray)),)
    return Hearing(capture.envelope, kind, heard, problems, found.fault)


def _refers(answer: EbxmlMessage, sent: SentEbxml, on_response: bool) -> bool:
    ref = answer.acknowledged or answer.header.ref_to_message_id
    unsaid = ref is None and on_response and answer.error_list is not None
    return ref == sent.message.message_id or unsaid


def _is_for_us(answer: EbxmlMessage, sent: SentEbxml, own: Collection[str]) -> bool:
    """Whether an answer goes to who sent the message, or to the address that it came from."""
    ours = {one.value for one in sent.message.header.from_party.party_ids} | set(own)
    return any(one.value in ours for one in answer.header.to_party.party_ids)


def _judge(
    found: Inspection,
    answer: EbxmlMessage,
    match: Match | None,
    sent: SentEbxml,
    side: Side,
    addresses: Sequence[str],
    on_response: bool,
) -> Heard:
    errors = reported(answer.error_list)
    if match is None:
        gone = EbmsError("EBMS:0010", "the P-Mode of the message is no longer in force")
        return Heard(answer.message_id, "error" if errors else "acknowledgment", (gone,))
    word = _over_link(answer, match) or _word(answer, match, sent, addresses)
    hops = match.leg.ebxml.hops if match.leg.ebxml is not None else 0
    if word is Word.NOT_NOW and not hops and not _speaks_for_itself(answer, sent, addresses):
        word = Word.FOREIGN
    problems = answer_problems(found, sent, match, on_response=on_response)
    if word is Word.ACKNOWLEDGED and not _speaks_for_itself(answer, sent, addresses):
        word = Word.FOREIGN
    if word is Word.FOREIGN:
        problems.append(EbmsError("SecurityFailure", _FOREIGN))
    meaning = WORDS.get(word)
    kind = _KINDS.get(word, "error" if errors else "acknowledgment")
    if side is Side.FORWARDING and kind in _KINDS.values():
        # Whoever has it now, it was passed on: more was not promised.
        kind, meaning = "hop", Input.ACKNOWLEDGED
    doubts = word is Word.DOUBTED
    return Heard(answer.message_id, kind, tuple(problems), meaning, errors, doubts)


def _speaks_for_itself(answer: EbxmlMessage, sent: SentEbxml, addresses: Sequence[str]) -> bool:
    """Whether who sends an answer is who may give it, whatever an element in it says."""
    parties = {one.value for one in sent.message.header.to_party.party_ids} | set(addresses)
    return any(one.value in parties for one in answer.header.from_party.party_ids)


def _over_link(answer: EbxmlMessage, match: Match) -> Word | None:
    """What an error says in the words of draft 001, where a P-Mode speaks them.

    An ebXML Messaging Error is an error like any other. [RM001-2.6.4-01]
    """
    said = read_link_answer(answer)
    linked = match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001"
    if not linked or not isinstance(said, ErrorMessage):
        return None
    return Word.NOT_NOW if RECOVERIES[said.error_class].resends else None


def _word(answer: EbxmlMessage, match: Match, sent: SentEbxml, addresses: Sequence[str]) -> Word:
    terms = terms_of(sent.message, match)
    by = reliable(answer, about=sent.message)
    next_one = by.from_party if by.from_party in addresses else addresses[0]
    message = reliable(sent.message, hop=Hop("", next_one))
    return said(message, terms, by)


def terms_of(message: EbxmlMessage, match: Match, *, final: bool = True) -> Terms:
    """The terms of a message by its P-Mode; where both contradict each other, those of the P-Mode.

    What was sent is sent: that an agreement changed since is no reason not to hear the answer.
    """
    timestamp = message.header.timestamp
    agreed, said = cpa_terms(match.leg), header_terms(message, final=final)
    if not final:
        # Who carries a message for others does as the message says, and where it says nothing
        # as the specification does.
        said.setdefault("deliverySemantics", BEST_EFFORT)
        said.setdefault("messageOrderSemantics", NOT_GUARANTEED)
        agreed = {name: value for name, value in agreed.items() if name not in said}
    try:
        return agree(agreed, said, timestamp=timestamp)
    except EbxmlError:
        return agree(cpa_terms(match.leg), {}, timestamp=timestamp)


def reported(errors: ErrorList | None) -> tuple[Reported, ...]:
    """The errors of a list, as the house knows them."""
    if errors is None:
        return ()
    return tuple(
        Reported(
            one.error_code,
            "failure" if one.severity == ERROR else "warning",
            ": ".join(filter(None, (one.error_code, one.text, one.location)))[:2000],
        )
        for one in errors.errors
    )
