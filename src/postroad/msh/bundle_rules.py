"""Whether a bundle is one that its P-Modes allow: for who receives it, and for who is given it.

EBMS:0030 tells what breaks them. A bundle has no identity, so it refers to the primary unit
(Part 2, 3.5).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final

from msgspec import Struct

from postroad.agreement.bundling import BundlingTerms, bundling_terms, incompatible
from postroad.agreement.matching import Match
from postroad.agreement.values import format_duration, format_size
from postroad.wire.ebms3 import Unit, UserMessage
from postroad.wire.errors import EbmsError

BUNDLING_ERROR: Final = "EBMS:0030"


class Member(Struct, frozen=True, gc=False):
    """A unit of a bundle, as far as bundling is concerned."""

    message_id: str
    at: datetime
    """Its eb:Timestamp."""
    terms: BundlingTerms


def bundle_problems(members: Sequence[Member], size: int) -> list[EbmsError]:
    """In what a bundle, primary first, breaks the bundling parameters of its units.

    `size` is that of envelope and attachments. A unit alone is no bundle, and breaks nothing.

    [P2-3.4-01] [P2-3.5-02] [P2-3.5-03] [P2-3.5-04] [P2-3.5-05]
    """
    if len(members) < 2:
        return []
    primary = members[0]
    found = [*_strangers(members), *_apart(members)]
    most = primary.terms.max_size
    if most is not None and size > most:
        found.append(f"the bundle has {size} bytes, {_of(primary)} allows {format_size(most)}")
    return [
        EbmsError(BUNDLING_ERROR, said, location="eb:Messaging", ref=primary.message_id)
        for said in found
    ]


def received_bundle_problems(
    units: Sequence[Unit], matches: Mapping[int, Match], size: int
) -> list[EbmsError]:
    """The same for a bundle that was received; `matches` are the units' P-Modes by their place.

    A unit without a P-Mode is refused anyway. [P2-3.3-09]
    """
    members = []
    known: dict[int, BundlingTerms] = {}
    for place, unit in enumerate(units):
        if isinstance(unit, UserMessage):
            match, info = matches.get(place), unit.message_info
            if match is not None:
                # Units of one P-Mode have the very same match.
                terms = known.get(id(match))
                if terms is None:
                    terms = known[id(match)] = bundling_terms(match.pmode, match.leg)
                members.append(Member(info.message_id, info.timestamp, terms))
            elif not members:
                return []
    return bundle_problems(members, size)


def _strangers(members: Sequence[Member]) -> Iterator[str]:
    """Secondaries that may not go with the primary; each pair of P-Modes is told of once."""
    primary, *others = members
    told: set[str] = set()
    fine: BundlingTerms | None = None
    for unit in others:
        if unit.terms is fine:
            continue
        why = incompatible(unit.terms, primary.terms)
        fine = unit.terms if why is None else fine
        if why is not None and unit.terms.pmode not in told:
            told.add(unit.terms.pmode)
            yield f"the unit {unit.message_id} may not be bundled here: {why}"


def _apart(members: Sequence[Member]) -> Iterator[str]:
    """Oldest and newest unit, where they are further apart than a unit's P-Mode allows."""
    oldest = min(members, key=attrgetter("at"))
    newest = max(members, key=attrgetter("at"))
    strictest = min(
        (one for one in members if one.terms.max_delay is not None),
        key=lambda one: one.terms.max_delay,  # type: ignore[arg-type, return-value]
        default=None,
    )
    if strictest is None or strictest.terms.max_delay is None:
        return
    apart = newest.at - oldest.at
    if apart > strictest.terms.max_delay:
        yield (
            f"the unit {oldest.message_id} is {format_duration(apart)} older than "
            f"{newest.message_id}, {_of(strictest)} allows "
            f"{format_duration(strictest.terms.max_delay)}"
        )


def _of(member: Member) -> str:
    return f"P-Mode {member.terms.pmode!r}"
