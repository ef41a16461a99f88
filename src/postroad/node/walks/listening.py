"""Receipts and errors that come by themselves, with a PullRequest or with user messages.

An envelope may hold several, about messages of several P-Modes: each is judged by the terms of the
message that it is about, and all that is heard is written down in one step.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.agreement.places import is_pulled, is_response
from postroad.msh.answers import SentMessage, sent_messages, way_problems
from postroad.msh.capture import Capture
from postroad.msh.expectation import Terms
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.node.base.context import Context
from postroad.node.bundles.outcome import refused_whole
from postroad.node.service import Refused
from postroad.node.steps.bundle_rows import close_rows, rows_of
from postroad.node.steps.hearing import Hearing, by_reference, judged, told_by
from postroad.node.steps.noting import note
from postroad.node.steps.outcome import answered
from postroad.node.steps.partners import show_life
from postroad.node.steps.sharing import Shared
from postroad.node.steps.split_units import source_id
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, Stored
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.receipts import unit_references

_AT_ONCE: Final = 16 * 1024
"""Bytes of attachments up to which an envelope is judged on the loop."""
Refs = tuple[str | None, ...]
Ids = tuple[str, ...]
Sources = Mapping[str, Message]
"""By their ids: the messages whose fragments others may go in, and the primaries of bundles."""


async def listen(
    context: Context,
    look: Look | None,
    capture: Capture,
    refs: Iterable[str | None],
    peer: str | None,
    now: datetime,
    *,
    judged_already: bool = False,
    pulled: bool = False,
) -> str | None:
    """Hear what is said about messages of ours, and tell who waits for that; the first of them.

    `pulled`: it was the response to a PullRequest of ours.
    """
    known, unknown = await hear_all(
        context, look, capture, refs, peer, now, judged_already=judged_already, pulled=pulled
    )
    signals = by_reference(look.found) if look is not None else {}
    for name in unknown[:5]:
        said = _named(signals.get(name, ()))
        detail = f"{said} about {name or 'no message'}, which was not sent from here"
        await note(context, "EBMS:0003", detail, now, peer)
    for message in known:
        context.settled.tell(message.part_of or message.message_id)
    if known:
        context.told()
    if any(one.channel is None for one in known):
        # What follows them in their order may be due.
        context.work_came.set()
    return known[0].message_id if known else None


def _named(signals: Sequence[SignalMessage]) -> str:
    """What signals about one message are, with what the errors among them say."""
    for one in signals:
        if one.receipt is not None:
            return f"the receipt {one.message_info.message_id}"
        if one.errors:
            told = "; ".join(f"{error.error_code} {told_by(error)}" for error in one.errors)
            return f"the error {one.message_info.message_id} ({told[:1000]})"
    return "a signal"


async def hear_all(
    context: Context,
    look: Look | None,
    capture: Capture,
    refs: Iterable[str | None],
    peer: str | None,
    now: datetime,
    *,
    judged_already: bool = False,
    pulled: bool = False,
) -> tuple[list[Message], Refs]:
    """What an envelope says about messages of ours: those, and the references to no message.

    `look` has read it already, or judged it too; else it is looked at here.
    """
    wanted = tuple(dict.fromkeys(refs))
    known, sources, unknown = await _known(context, wanted)
    legs: dict[tuple[str | None, int], list[Message]] = {}
    for message in known:
        legs.setdefault((message.pmode, message.leg), []).append(message)
    hearings: list[tuple[Message, Hearing]] = []
    bundles: dict[str, tuple[str, ...]] = {}
    for number, messages in enumerate(legs.values()):
        match = context.in_force.match(messages[0].pmode, messages[0].leg)
        if judged_already and look is not None:
            found = look.found
        else:
            found = await _judged(context, capture, messages[0], now, None if number else look)
        signals = by_reference(found)
        sent_of = zip(messages, _sent(context, messages, sources), strict=True)
        for message, (sent, ids) in sent_of:
            if message.bundle is not None:
                bundles[message.bundle] = ids
            about = signals.get(message.message_id, ())
            hearing = judged(
                found,
                capture,
                match,
                sent,
                on_response=False,
                signals=about,
                wrong_way=partial(
                    _wrong_way,
                    match=_leading(context, message, sources) or match,
                    pulled=pulled,
                ),
            )
            hearings.append((message, hearing))
    if hearings:
        await context.store.run(_written(context, hearings, bundles, now, peer))
        told = [one for one, hearing in hearings if hearing.said is not None]
        for partner, address in {(one.partner, _sent_to(context, one)) for one in told}:
            await show_life(context, partner, address)
    return known, unknown


def _sent_to(context: Context, message: Message) -> str | None:
    """Return the address that a message was sent to, where its P-Mode tells."""
    if message.side is not Side.SENDING:
        return None
    try:
        sending = context.in_force.sending_of(message)
    except Refused:
        return None
    return sending.address_of(message) if sending.addresses else None


def _leading(context: Context, message: Message, sources: Sources) -> Match | None:
    """The P-Mode of the primary unit, which says how answers about a whole bundle come."""
    primary = sources.get(message.bundle) if message.bundle is not None else None
    return context.in_force.match(primary.pmode, primary.leg) if primary is not None else None


def _wrong_way(signal: SignalMessage, match: Match | None, pulled: bool) -> list[EbmsError]:
    if match is None:
        return []
    index = match.number - 1
    pushed = not is_pulled(match.pmode, index) and not is_response(match.pmode, index)
    return way_problems(signal, match, pushed=pushed, in_request=not pulled)


async def _known(context: Context, wanted: Refs) -> tuple[list[Message], Sources, Refs]:
    """The messages that are named, those that they went with, and what is left."""

    def look(reader: Reader) -> tuple[list[Message], Sources]:
        found = [reader.message(Side.SENDING, ref) if ref else None for ref in wanted]
        known = [one for one in found if one is not None and _was_given_away(one)]
        names = {source_id(one) for one in known if one.split is not None}
        names |= {one.bundle for one in known if one.bundle is not None}
        return known, reader.messages_by_id(Side.SENDING, names)

    known, sources = await context.store.look(look)
    ours = {one.message_id for one in known}
    return known, sources, tuple(ref for ref in wanted if ref not in ours)


def _was_given_away(message: Message) -> bool:
    """Whether anybody can say anything about it: not while it waits for who pulls it first.

    Signals of ebMS 3.0 say nothing about messages of ebXML.
    """
    waits = message.channel is not None and message.first_sent_at is None
    return message.envelope is not None and not waits and not message.is_ebxml


async def _judged(
    context: Context, capture: Capture, about: Message, now: datetime, look: Look | None
) -> Inspection:
    """The envelope by the terms for answers about a message; `look` has read it already."""
    terms = context.in_force.answer_terms(context.in_force.match(about.pmode, about.leg))
    if look is not None:
        look.judge(terms)
        return look.found
    anew = Look(capture, context.in_force.lens(now, context.store.new_sink))
    if sum(one.content.size for one in capture.attachments) > _AT_ONCE:
        await asyncio.to_thread(_looked, anew, terms)
    elif await context.read(anew):
        await context.judge((anew, terms))
    return anew.found


def _looked(look: Look, terms: Terms) -> None:
    """Read and judge in one go: a tree is best used in the thread that read it."""
    if look.read():
        look.judge(terms)


def _sent(
    context: Context, messages: list[Message], sources: Sources
) -> Iterator[tuple[SentMessage, Ids]]:
    """What was sent of each, with whom; the envelope of a bundle is read once for all its units."""
    read: dict[Stored, dict[str, SentMessage]] = {}
    for message in messages:
        stored = message.envelope
        assert stored is not None
        if stored not in read:
            kept = read_all(context.store.content(stored), stored.size)
            read[stored] = sent_messages(kept, context.limits)
        sent = read[stored][message.message_id]
        yield _as_sent(message, sent, sources.get(source_id(message))), tuple(read[stored])


def _as_sent(message: Message, sent: SentMessage, source: Message | None) -> SentMessage:
    """Of a message that went in fragments nothing was signed: its receipt names its parts.

    That for a unit of a bundle may name those of its neighbours too. [P2-3.2.2-06]
    """
    if message.split is None:
        return sent
    every = source.split.references if source is not None and source.split is not None else ()
    own = message.split.references
    if message.bundle is not None:
        [own] = unit_references(own, [sent.user_message], None)
    return changed(sent, references=own, neighbours=every)


def _written(
    context: Context,
    hearings: list[tuple[Message, Hearing]],
    bundles: Mapping[str, Ids],
    now: datetime,
    peer: str | None,
) -> Callable[[Transaction], None]:
    """The step that writes down what was heard; `bundles` are the units of some, by the primary."""

    def step(tx: Transaction) -> None:
        keep = Shared(tx).keep
        rows = {name: rows_of(tx, ids) for name, ids in bundles.items()}
        for message, hearing in hearings:
            answered(context, tx, message, hearing, now, peer, keep)
            if message.message_id in bundles:
                refused_whole(context, tx, bundles[message.message_id][1:], hearing.said, now, peer)
        for name, ids in bundles.items():
            close_rows(tx, ids, rows[name])

    return step
