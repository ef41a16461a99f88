"""How it stands with partners: paused after failures, suspended, and well again.

What is kept of a partner is kept by the store; `Context.unwell` repeats it in memory, so that a
message to a partner with whom all is well costs nothing here.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from postroad.agreement.ebxml import addresses
from postroad.agreement.matching import header
from postroad.node.base.context import Context
from postroad.reliability.breaker import (
    Breaker,
    Gate,
    Partner,
    address_name,
    address_of,
    asked,
    failed,
    halted,
    heard_from,
    is_of,
    party_of,
    probed,
    receiver_name,
    resumed,
)
from postroad.reliability.breaker import reached as well_again
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Event, Message, Side, State, Wanted

_AT_ONCE: Final = 1000
"""Messages that are read of a list at once."""
_MOST_UNSENT: Final = 1000
"""Messages of one partner that are remembered to have probed in vain; others go last."""
_log = logging.getLogger("postroad.partners")


def breaker_of(context: Context) -> Breaker:
    given = context.config.send.breaker
    return Breaker(given.failures, given.pause, given.longest_pause)


def not_reached(
    context: Context, tx: Transaction, name: str, now: datetime, why: str, peer: str | None
) -> None:
    """An attempt did not reach an address: after several in a row it is paused."""
    for before in _concerned(tx, name):
        if before.name != name and before.gate is Gate.FLOWING:
            # An older version counted failures for the party as a whole.
            continue
        after = failed(before, breaker_of(context), now, why)
        _changed(context, tx, before, after, now, peer)


def reached(context: Context, tx: Transaction, name: str, now: datetime) -> None:
    """An attempt reached an address: whatever waits for it can go."""
    for before in _concerned(tx, name):
        after = well_again(before)
        _changed(context, tx, before, after, now, None)
        if after.gate is Gate.FLOWING:
            _wake_unsent(tx, before.name, now, wake=before.gate is not Gate.FLOWING)


def _concerned(tx: Transaction, name: str) -> list[Partner]:
    """The breaker of an address, and those of its party and Receiver while they are not well."""
    names = {party_of(name), receiver_name(address_of(name) or "")} - {name}
    others = [tx.partner(one) for one in sorted(names)]
    return [tx.partner(name)] + [one for one in others if not one.is_well]


def note_unsent(tx: Transaction, name: str, work: int, now: datetime) -> None:
    """A message probed in vain: when its partner is back, it goes in its old place.

    Others wait as long as their P-Mode says until they are sent again.
    """
    known = _unsent(tx, name)
    if work not in known and len(known) < _MOST_UNSENT:
        tx.set_state(_unsent_name(name), msgspec.json.encode([*known, work]), now)


def _wake_unsent(tx: Transaction, name: str, now: datetime, *, wake: bool) -> None:
    """Messages that probed in vain are due as of their submission, before what came later."""
    known = _unsent(tx, name)
    if not known:
        return
    tx.set_state(_unsent_name(name), None, now)
    for number in known if wake else ():
        work = tx.work(number)
        side = Side.FORWARDING if work is not None and work.kind == "forward" else Side.SENDING
        message = tx.message(side, work.message_id) if work is not None else None
        if message is not None:
            tx.wake_work(number, message.created_at)


def _unsent(tx: Transaction, name: str) -> list[int]:
    found = tx.state(_unsent_name(name))
    return [] if found is None else msgspec.json.decode(found, type=list[int])


def _unsent_name(name: str) -> str:
    return f"~unsent:{name}"


async def show_life(context: Context, partner: str, address: str | None = None) -> None:
    """A partner showed a sign of life: if it is paused, a message probes now.

    Without an address nobody knows which of them lives, and each that is paused is tried. What
    showed it is stored already: if this cannot be stored, its answer stays the same, and the pause
    ends later.
    """
    wanted = partner if address is None else address_name(partner, address)
    names = [
        one.name
        for one in context.unwell.values()
        if is_of(one.name, wanted) and one.gate is Gate.PAUSED and not one.heard
    ]
    if not names:
        return
    now = context.clock()

    def step(tx: Transaction) -> None:
        for name in names:
            before = tx.partner(name)
            after = heard_from(before, breaker_of(context), now)
            if after != before:
                tx.set_partner(after)

    try:
        await context.store.run(step)
        await context.look_at_partners()
    except StoreError as error:
        extra = {"partner": partner, "detail": str(error)}
        _log.warning("a sign of life was not stored", extra=extra)
    context.work_came.set()


def left_alone(
    context: Context, tx: Transaction, name: str, now: datetime, wait: timedelta, why: str
) -> None:
    """The partner said that it wants nothing for a time: a Transient Error of draft 001."""
    before = tx.partner(name)
    _changed(context, tx, before, asked(before, now, wait, why), now, None)


def halt(context: Context, tx: Transaction, name: str, now: datetime, why: str) -> None:
    """Nothing is sent to the partner until somebody resumes. [RM001-2.6.8-01] [RM001-2.6.8-02]"""
    before = tx.partner(name)
    _changed(context, tx, before, halted(before, now, why), now, None)


def suspension_over(context: Context, tx: Transaction, name: str, now: datetime) -> bool:
    """A message went over a link whose Receiver was suspended for a time, which is over.

    Whatever became of it is the message's to recover from. [RM001-2.6.6-03]
    """
    lifted = False
    for before in _concerned(tx, name):
        if before.gate is Gate.PROBING or (before.until is not None and before.until <= now):
            lifted = True
            _changed(context, tx, before, well_again(before), now, None)
    return lifted


def stopped_with(context: Context, message: Message) -> tuple[str, ...]:
    """Return the names of all that is suspended together with the partner of a message.

    Over a link of draft 001 that is the Receiver, whoever else is reached there.
    [RM001-2.6.6-01] [RM001-2.6.8-01]
    """
    match = context.in_force.match(message.pmode, message.leg)
    agreed = match.leg.ebxml if match is not None else None
    if agreed is None or agreed.profile != "rm001" or not message.peer:
        return (message.partner,)
    return (message.partner, receiver_name(message.peer))


def links_to(context: Context, partner: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what P-Modes say of a partner, which may be an address, for links of draft 001.

    The names of the Receivers through which the party is reached, and the parties that are reached
    at the address. A relay for any party names none: its messages tell whom it reaches.
    """
    receivers: set[str] = set()
    parties: set[str] = set()
    for to, there in _links(context):
        if to == partner:
            receivers.update(map(receiver_name, there))
        if to and partner in there:
            parties.add(to)
    return frozenset(receivers), frozenset(parties)


def _links(context: Context) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield whom links of draft 001 are for, empty where a relay takes all, and their addresses."""
    for one in context.in_force.expectation.pmodes.legs:
        if one.leg.ebxml is not None and one.leg.ebxml.profile == "rm001":
            yield str(header(one.pmode, one.index + 1).to_party), addresses(one.leg)


def suspended_for(context: Context, tx: Transaction, side: Side, partner: str) -> Iterator[Message]:
    """Yield the suspended messages for a party, then those over links of draft 001 to an address.

    The latter are found by where they go, as a relay takes them for any party. [RM001-2.6.8-03]
    """
    states = (State.SUSPENDED,)
    yield from _all(tx, Wanted(side, states, to_party=partner, limit=_AT_ONCE))
    if not any(partner in there for _to, there in _links(context)):
        return
    receiver = receiver_name(partner)
    for message in _all(tx, Wanted(side, states, limit=_AT_ONCE)):
        if message.to_party != partner and receiver in stopped_with(context, message):
            yield message


def _all(tx: Transaction, wanted: Wanted) -> Iterator[Message]:
    found = tx.messages(wanted)
    while found:
        yield from found
        found = tx.messages(replace(wanted, after=found[-1].key))


def resume(
    context: Context,
    tx: Transaction,
    name: str,
    now: datetime,
    others: Collection[str] = (),
) -> bool:
    """An administrator resumes a party with all its addresses, or one address.

    `others` are the names of what is resumed with it. False when nothing was paused or suspended.
    """
    lifted = False
    for before in tx.partners():
        own = is_of(before.name, name) or before.name in others
        after = resumed(before) if own else None
        if after is not None:
            lifted = True
            _changed(context, tx, before, after, now, None)
            _wake_unsent(tx, before.name, now, wake=True)
    return lifted


def probe(context: Context, tx: Transaction, partner: Partner, now: datetime) -> bool:
    """Whether one message may try now; if so it is noted that one does."""
    after = probed(partner, now, context.config.send.lease)
    if after is None:
        return False
    tx.set_partner(after)
    return True


def _changed(
    context: Context,
    tx: Transaction,
    before: Partner,
    after: Partner,
    now: datetime,
    peer: str | None,
) -> None:
    if after == before:
        return
    tx.set_partner(after)
    event = _event(before, after)
    if event is not None and party_of(after.name):
        # A Receiver is stopped together with a party, of which the journal tells.
        said = after.detail if event == "suspended" else "the partner is served again"
        if after.gate is Gate.PAUSED and after.until is not None:
            said = f"{said}; next attempt at {after.until:%Y-%m-%dT%H:%M:%SZ}"
        tx.record(
            (
                Event(
                    now,
                    context.party,
                    event,
                    to_party=party_of(after.name),
                    detail=said,
                    peer=address_of(after.name) or peer,
                ),
            )
        )


def _event(before: Partner, after: Partner) -> str | None:
    """suspended when it is left alone from now on, resumed when it is served again."""
    if after.gate is before.gate:
        return None
    if after.gate is Gate.FLOWING:
        return "resumed"
    return "suspended" if Gate.FLOWING is before.gate or after.gate is Gate.SUSPENDED else None
