"""What a response says about each unit of a bundle that was sent."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import SentMessage, wants_receipt
from postroad.msh.bundle_rules import BUNDLING_ERROR
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.attempts import Outcome
from postroad.node.steps.hearing import Hearing, by_reference, heard_as_foreseen, judged
from postroad.reliability.delivery import Input
from postroad.store.records import Message


async def hear_units(
    context: Context,
    capture: Capture,
    primary: Match,
    units: Sequence[Message],
    sent: Mapping[str, SentMessage],
) -> list[Hearing]:
    """The response is looked at once, and held against what was sent of each unit."""
    in_force = context.in_force
    lens, terms = (
        in_force.lens(context.clock(), context.store.new_sink),
        in_force.answer_terms(primary),
    )
    both = [(sent[unit.message_id], in_force.match(unit.pmode, unit.leg)) for unit in units]
    known = [(one, match) for one, match in both if match is not None]
    foreseen = heard_as_foreseen(capture, lens, terms, known) if len(known) == len(both) else None
    if foreseen is not None:
        return foreseen
    look = Look(capture, lens)
    if await context.read(look):
        await context.judge((look, terms))
    signals = by_reference(look.found)
    nameless = signals.get(None, [])
    hearings = []
    for unit, (one, match) in zip(units, both, strict=True):
        about = [*signals.get(unit.message_id, ()), *nameless]
        hearings.append(judged(look.found, capture, match, one, on_response=True, signals=about))
    return hearings


def of_the_whole(
    context: Context,
    units: Sequence[Message],
    hearings: Sequence[Hearing],
    outcomes: Sequence[Outcome],
    sending: Sending,
) -> list[Outcome]:
    """What is said about the primary unit alone, and means the whole bundle.

    EBMS:0030 always does. Any other error does where every unit would have got its receipt in
    this response, and none is there.
    """
    first = outcomes[0]
    # Where the bundle has a number, that is acknowledged whether or not receipts are agreed on.
    awaited = sending.reliable is not None
    said = hearings[0].said
    refused = said is not None and said.by_error
    alone = not any(one.heard for one in hearings[1:])
    whole = refused and (first.error_code == BUNDLING_ERROR or (alone and not sending.later))
    found = []
    for unit, hearing, outcome in zip(units, hearings, outcomes, strict=True):
        if hearing.heard:
            found.append(outcome)
        elif whole:
            found.append(changed(first, hearing=None))
        elif not (awaited or _awaits(context, unit) or hearing.problems or hearing.fault):
            found.append(Outcome(Input.LEFT))
        else:
            found.append(outcome)
    return found


def _awaits(context: Context, unit: Message) -> bool:
    match = context.in_force.match(unit.pmode, unit.leg)
    return match is None or wants_receipt(match.leg)
