"""Acknowledgements and faults of WS-ReliableMessaging, whatever way they came.

One acknowledgement may cover many messages: what it says for the first time is written down for
each of them in one step. It is believed by the terms of the P-Mode in which its sequence was made.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match, header
from postroad.msh.answers import SentMessage
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.securing import signs
from postroad.msh.wsrm import rm_problems, signer_of, way_problems
from postroad.node.base.context import Context
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.bundle_rows import close_rows, rows_of, units_of
from postroad.node.steps.hearing import Heard, Hearing, Reported, by_reference, judged
from postroad.node.steps.noting import note
from postroad.node.steps.outcome import Keep, answered, is_refused_unit
from postroad.node.steps.sharing import Shared
from postroad.reliability import wsrm
from postroad.reliability.awareness import ANSWERS, Answer
from postroad.reliability.delivery import Input
from postroad.reliability.ranges import holds
from postroad.reliability.wsrm import FAULTS
from postroad.store.interface import Transaction
from postroad.wire.errors import EbmsError
from postroad.wire.wsrm import Sequence as RmSequence
from postroad.wire.wsrm import SequenceAcknowledgement
from postroad.wire.wsrm_faults import ESCALATED, Code, RmFault

_KIND = "acknowledgment"


def signal_id(found: Inspection) -> str:
    """By what an acknowledgement is known: its wsa:MessageID, where it has one."""
    said = found.addressing.message_id if found.addressing else None
    return (said or "acknowledgement").removeprefix("mid:")[:1000]


def hearing_of(found: Inspection) -> Hearing:
    """What an acknowledgement says about each message that it covers."""
    capture = found.capture
    assert capture is not None
    kind = str(capture.content_type) if capture.content_type else "application/soap+xml"
    heard = Heard(signal_id(found), _KIND, (), ANSWERS[Answer.RECEIPT])
    return Hearing(capture.envelope, kind, (heard,), ())


def covers(found: Inspection, identifier: str, number: int) -> bool:
    """Whether an envelope acknowledges a message."""
    acks = found.rm.acknowledgements if found.rm is not None else ()
    return any(one.identifier == identifier and holds(one.ranges, number) for one in acks)


async def took(
    context: Context,
    found: Inspection,
    match: Match,
    peer: str | None,
    *,
    speaker: str | None = None,
    apart_from: str | None = None,
    in_request: bool = False,
) -> tuple[str, ...] | None:
    """Take in what an envelope acknowledges: the messages; None where it is not believed.

    `speaker` is who says so, else the receiver of the P-Mode's messages; `apart_from` the message
    whose response it is: who sends that writes its outcome down. `in_request`: it is neither a
    response nor was it pulled.
    """
    acks = found.rm.acknowledgements if found.rm is not None else ()
    if not acks or rm_problems(found, match):
        return None
    now = context.clock()
    who = speaker or str(header(match.pmode, match.number).to_party)
    wrong, told = await context.store.run(
        acknowledged(context, found, acks, who, peer, now, apart_from, in_request=in_request)
    )
    for detail in wrong:
        await note(context, "EBMS:0201", detail, now, peer)
    for message_id in told:
        context.settled.tell(message_id)
    if told:
        context.work_came.set()
        context.told()
    return tuple(told)


def acknowledged(
    context: Context,
    found: Inspection,
    acks: tuple[SequenceAcknowledgement, ...],
    speaker: str,
    peer: str | None,
    now: datetime,
    apart_from: str | None,
    *,
    in_request: bool,
) -> Callable[[Transaction], tuple[list[str], list[str]]]:
    """The step: what is wrong with the acknowledgements, and the messages that are at rest now."""
    hearing = hearing_of(found)

    def step(tx: Transaction) -> tuple[list[str], list[str]]:
        wrong, told = [], []
        keep = Shared(tx).keep
        for ack in acks:
            key = states.key_of(tx, ack.identifier)
            record = states.source_of(tx, key) if key is not None else None
            if key is None or record is None or record.source.identifier != ack.identifier:
                wrong.append(f"an acknowledgement of {ack.identifier}, which is no sequence here")
                continue
            if not _speaks(context, record, speaker, found, in_request=in_request):
                wrong.append(f"an acknowledgement of {ack.identifier} by somebody else")
                continue
            said = wsrm.acknowledged(record.source, ack.ranges, ack.nacks, final=ack.final)
            if said.invalid:
                wrong.append(
                    f"InvalidAcknowledgement: {ack.identifier} has no such numbers as it covers"
                )
                continue
            if said.source != record.source:
                states.keep_source(tx, key, changed(record, source=said.source), now)
                states.wake_ended(tx, changed(record, source=said.source), now)
            fresh = states.acknowledged(tx, ack.identifier, said.fresh, now, apart_from)
            for names in fresh:
                told += _ended(context, tx, names, hearing, now, peer, keep)
            _hurry(tx, ack.identifier, said.again, now)
        return wrong, told

    return step


def _ended(
    context: Context,
    tx: Transaction,
    names: tuple[str, ...],
    hearing: Hearing,
    now: datetime,
    peer: str | None,
    keep: Keep,
) -> list[str]:
    """A number is acknowledged: so is its message, or each unit of its bundle. [P2-3.2.2-08]

    A unit that was refused by itself stays so: the acknowledgement is about the envelope.
    """
    units = units_of(tx, names)
    rows = rows_of(tx, names) if len(names) > 1 else ()
    for one in units:
        if not is_refused_unit(tx, one):
            answered(context, tx, one, hearing, now, peer, keep)
    close_rows(tx, names, rows)
    return [one.part_of or one.message_id for one in units]


def _speaks(
    context: Context,
    record: states.SourceRecord,
    speaker: str,
    found: Inspection,
    *,
    in_request: bool,
) -> bool:
    """Whether it is the destination of a sequence that speaks, proven where that is agreed."""
    match = context.in_force.match(record.pmode, record.leg)
    if match is None or str(header(match.pmode, match.number).to_party) != speaker:
        return False
    if way_problems(match, in_request=in_request):
        return False
    return not signs(match.leg) or bool(signer_of(found))


def _hurry(
    tx: Transaction, identifier: str, again: tuple[tuple[int, int], ...], now: datetime
) -> None:
    """The destination misses these: they are sent again now."""
    for message_id in states.sent_as(tx, identifier, again):
        place = states.place_of(tx, message_id)
        names = (message_id, *(place.units if place is not None else ()))
        for message in units_of(tx, names):
            if message.timer is not None:
                tx.wake_work(message.timer, now)


def faulted(tx: Transaction, fault: RmFault, identifier: str, now: datetime) -> None:
    """What a fault about a sequence of ours does to it."""
    key = states.key_of(tx, identifier)
    record = states.source_of(tx, key) if key is not None else None
    given = FAULTS.get(fault.code)
    if key is None or record is None or given is None:
        return
    if record.source.identifier == identifier:
        source = wsrm.told(record.source, given)
        states.keep_source(tx, key, changed(record, source=source), now)


_AGAIN = (Code.UNKNOWN_SEQUENCE, Code.SEQUENCE_TERMINATED, Code.SEQUENCE_CLOSED)
"""The sequence is not there, the message not taken: it comes again in another one."""


async def hear_response(
    context: Context,
    capture: Capture,
    match: Match,
    sent: Sequence[tuple[SentMessage, Match | None]],
    sequence: RmSequence | None,
    peer: str,
) -> list[Hearing]:
    """Judge the response to a message in a sequence, and take in what it says of others.

    `sent` is that message, or all units of a bundle, the primary first; `match` the primary's
    P-Mode. What is said about the number is said about each of them. [P2-3.2.2-01]
    """
    look = Look(capture, context.in_force.lens(context.clock(), context.store.new_sink))
    if await context.read(look):
        await context.judge((look, context.in_force.answer_terms(match)))
    found = look.found
    primary = sent[0][0].user_message.message_info.message_id
    believed = await took(context, found, match, peer, apart_from=primary) is not None
    signals = by_reference(found)
    hearings = []
    for one, own in sent:
        name = one.user_message.message_info.message_id
        about = [*signals.get(name, ()), *signals.get(None, ())]
        hearings.append(judged(found, capture, own, one, on_response=True, signals=about))
    if sequence is None:
        return hearings
    fault = found.rm_fault
    if fault is not None and rm_problems(found, match, faulty=True):
        fault = None
    if fault is not None:
        of, now, given = fault.identifier or sequence.identifier, context.clock(), fault
        await context.store.run(lambda tx: faulted(tx, given, of, now))
    args = (found, match, sequence, believed, fault)
    return [_of_the_number(one, *args) for one in hearings]


def _of_the_number(
    hearing: Hearing,
    found: Inspection,
    match: Match,
    sequence: RmSequence,
    believed: bool,
    fault: RmFault | None,
) -> Hearing:
    """What a response says about a message, with what it says about its number.

    An error about the message itself says more than that its envelope came.
    """
    heard, fallen = list(hearing.heard), hearing.fault
    acks = found.rm.acknowledgements if found.rm is not None else ()
    refused = hearing.said is not None and hearing.said.by_error
    if covers(found, sequence.identifier, sequence.message_number) and not refused:
        wrong = () if believed else tuple(rm_problems(found, match))
        meaning = ANSWERS[Answer.RECEIPT] if believed else None
        heard.append(Heard(signal_id(found), _KIND, wrong, meaning))
    if fault is not None:
        meaning = Input.TURNED_AWAY if fault.code in _AGAIN else Input.REFUSED
        code, said = ESCALATED[fault.code], f"{fault.code.value}: {fault.reason}"
        error = Reported(code, "failure", said)
        heard.append(Heard(signal_id(found), "error", (), meaning, (error,), about_number=True))
        fallen = None
    problems = hearing.problems
    if not heard and acks and not found.messaging:
        missing = f"the acknowledgement does not cover number {sequence.message_number}"
        problems = problems or (EbmsError("EBMS:0202", missing),)
    return changed(hearing, heard=tuple(heard), problems=problems, fault=fallen)
