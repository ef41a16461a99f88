"""What waits in a channel, bundled when somebody pulls (Part 2, 3.4 and 3.7).

Messages that may be bundled wait in their channel packaged one by one. A PullRequest plans those
that came first, and packages a bundle of them anew; the step that hands it out sees whether all are
still there. What was handed out in a bundle is handed out again in that bundle.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.bundling import BundlingTerms
from postroad.msh.answers import sent_message
from postroad.msh.bundling import Waiting, plan
from postroad.msh.outbound import Package, PackedUnit
from postroad.msh.securing import Unsecurable
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.bundles.units import packaged_or_cut, restored, waiting_unit
from postroad.node.large.splitting import Cut
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.sharing import Shared
from postroad.store.interface import Place, StoreError, Transaction
from postroad.store.records import Message, Side, State, Stored, Work
from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError

_WAITING: Final = (State.READY, State.WAITING)
Keep = Callable[[bytes], Stored]
_ON_THE_LOOP: Final = 20
"""More messages than that are read beside the loop."""


class Unplanned(Exception):
    """What is to be handed out may be bundled, and that has to be planned before the step."""


class Drained(Struct, frozen=True):
    """What a PullRequest gets of that which may be bundled."""

    known: frozenset[str] = frozenset()
    """What was looked at."""
    units: tuple[Message, ...] = ()
    """The bundle, its primary first; nobody where each goes alone."""
    made: Package | Cut | None = None
    boundary: str | None = None
    lonely: frozenset[str] = frozenset()
    """Those that must be bundled, and with whom nobody went in time."""
    staying: frozenset[str] = frozenset()
    """Those that must be bundled, and still have time to find company."""


class _Unit(Struct, frozen=True):
    message: Message
    sending: Sending
    packed: PackedUnit

    @property
    def terms(self) -> BundlingTerms:
        assert self.sending.bundling is not None
        return self.sending.bundling

    @property
    def needs_company(self) -> bool:
        return self.terms.policy == "always"

    @property
    def waiting(self) -> Waiting:
        """As the planner sees it; what it needs beside its units is never underrated."""
        assert self.message.envelope is not None
        return waiting_unit(self.message, self.packed, self.sending, self.message.envelope.size)

    def goes_with(self, first: Message) -> bool:
        """Whether it is for the same receiver, in the same channel."""
        here = self.message
        return (here.partner, here.channel) == (first.partner, first.channel)


def may_be_bundled(message: Message, sending: Sending) -> bool:
    """Whether a message in a channel is one that nobody has pulled yet, and has terms for it."""
    fresh = message.state in _WAITING and message.attempts == 0 and message.bundle is None
    fresh = fresh and message.part_of is None
    return fresh and sending.bundling is not None and message.envelope is not None


async def drain(
    context: Context,
    places: Callable[[Transaction], Collection[Place]],
    now: datetime,
    items: Sequence[str] = (),
    whose: Message | None = None,
) -> Drained:
    """Plan what came first in some places: the bundle that a PullRequest gets.

    It is what goes with that which came first of all, or with `whose`.
    [P2-3.4-04] [P2-3.7-01] [P2-3.7-03]
    """
    most = context.limits.units

    def step(tx: Transaction) -> list[Message | None]:
        offers = tx.first_offers(places(tx), now, items, most)
        return [tx.message(Side.SENDING, one.message_id) for one in offers if one.about is None]

    found = [one for one in await context.store.run(step) if one is not None]
    if len(found) <= _ON_THE_LOOP:
        units = _units(context, found)
    else:
        units = await asyncio.to_thread(_units, context, found)
    lead = whose or next((one.message for one in units.values()), None)
    together = {name: one for name, one in units.items() if lead and one.goes_with(lead)}
    planned = plan(
        [one.waiting for one in together.values()],
        {one.terms.pmode: one.terms for one in together.values()},
        now,
        limits=context.limits,
        drain=True,
    )
    apart = [name for name, one in units.items() if name not in together and one.needs_company]
    drained = Drained(
        frozenset(one.message_id for one in found),
        lonely=frozenset(one.id for one in planned.lonely),
        staying=frozenset([*(one.id for one in planned.waiting), *apart]),
    )
    places_of = {name: number for number, name in enumerate(together)}
    first = min(
        planned.bundles, key=lambda one: min(places_of[unit.id] for unit in one), default=()
    )
    return await _packaged(context, drained, [together[one.id] for one in first])


async def _packaged(context: Context, drained: Drained, units: Sequence[_Unit]) -> Drained:
    """With the bundle made; each of its units goes alone where it cannot be."""
    if len(units) < 2:
        return drained
    packed, first = [one.packed for one in units], units[0]
    made_here = first.message.fingerprint is None
    try:
        made = await packaged_or_cut(context, packed, first.sending, made_here=made_here)
    except (Unsecurable, EbmsError, ValueError):
        return drained
    boundary = made.boundary if isinstance(made, Cut) else None
    if isinstance(made, Package) and made.parts:
        boundary = context.new_boundary()
    return changed(
        drained, units=tuple([one.message for one in units]), made=made, boundary=boundary
    )


def bundled(tx: Transaction, drained: Drained, now: datetime) -> tuple[list[Message], Package]:
    """The units as they are handed out, all in one envelope; `Unplanned` when one is gone."""
    made = drained.made
    assert isinstance(made, Package)
    keep = Shared(tx).keep
    units = [_put_into(tx, drained, made, unit, keep) for unit in drained.units]
    tx.record([about(one, "bundled", now) for one in units])
    return units, made


def cut_bundle(context: Context, tx: Transaction, drained: Drained, now: datetime) -> Work:
    """The units as they go in fragments, which are offered in their place: the work that does it.

    `Unplanned` when one is gone.
    """
    cut = drained.made
    assert isinstance(cut, Cut)
    primary = drained.units[0].message_id
    work = Work("split", primary, now, owner=context.owner, lease_until=now + context.lease)
    row = tx.add_work(work)
    keep, units = Shared(tx).keep, []
    for unit, split in zip(drained.units, (cut.kept(tx), *cut.of_secondaries()), strict=True):
        one = _put_into(tx, drained, cut.made, unit, keep, split=split, timer=row)
        tx.remove_offer(unit.message_id)
        if unit.timer is not None:
            tx.finish_work(unit.timer)
        units.append(one)
    tx.record([about(one, "bundled", now) for one in units])
    tx.record([about(one, "split", now, fragments=cut.count) for one in units])
    return changed(work, id=row)


def _put_into(
    tx: Transaction, drained: Drained, made: Package, unit: Message, keep: Keep, **more: Any
) -> Message:
    """A unit in the envelope of its bundle; `Unplanned` when it is not as it was planned."""
    name, offer, primary = unit.message_id, tx.offer(unit.message_id), drained.units[0]
    if tx.message(Side.SENDING, name) != unit or offer is None or offer.due_at is not None:
        raise Unplanned
    first = unit is primary
    fields: dict[str, Any] = {
        "envelope": keep(made.envelope),
        "boundary": drained.boundary if first else None,
        "seal": made.seal if first else None,
        "bundle": primary.message_id,
        **more,
    }
    tx.change_message(Side.SENDING, name, (unit.state,), **fields)
    assert unit.envelope is not None
    tx.drop(unit.envelope)
    return changed(unit, **fields)


def _units(context: Context, messages: Sequence[Message]) -> dict[str, _Unit]:
    """Those that may be bundled; what cannot be read is seen to when it is handed out."""
    units = {}
    for message in messages:
        try:
            sending = context.in_force.sending_of(message)
            if not may_be_bundled(message, sending):
                continue
            assert message.envelope is not None
            kept = read_all(context.store.content(message.envelope), message.envelope.size)
            header = sent_message(kept, context.limits).user_message
            packed = restored(context, message, header)
            units[message.message_id] = _Unit(message, sending, packed)
        except (Refused, StoreError):
            continue
    return units
