"""A bundle that was received, taken apart: its units, each with its own parts and problems.

Units are related as the primary's P-Mode says (Part 2, 3.10): `processing_order` parts them into
groups that have nothing to do with each other, and orders each; `related_failures` tells whom the
failure of a unit stops.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from postroad.agreement.bundling import TIMESTAMP, UNDEFINED, BundlingTerms, bundling_terms
from postroad.agreement.matching import Match
from postroad.agreement.places import sides
from postroad.msh.bundle_rules import BUNDLING_ERROR
from postroad.msh.lens import Inspection
from postroad.msh.payloads import Payload
from postroad.wire.ebms3 import UserMessage
from postroad.wire.ebms3_reader import USER_MESSAGE, find_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.unit_paths import unit_values

_NOTHING: Final[Mapping[int, EbmsError]] = MappingProxyType({})
Partitions = tuple[tuple[int, ...], ...]
"""Units by their number, parted into groups; within each in the order of processing."""


class ReceivedUnit(Struct, frozen=True):
    """One user message of a message that was received."""

    message: UserMessage
    match: Match | None
    payloads: tuple[Payload, ...]
    failures: tuple[EbmsError, ...]
    """What is wrong with this unit, and not with its neighbours."""


class Unbundled(Struct, frozen=True):
    units: tuple[ReceivedUnit, ...]
    """In document order: the first is the primary. [P2-3.2.1-05]"""
    failures: tuple[EbmsError, ...]
    """What is wrong with the message as a whole: no unit of it is processed."""
    partitions: Partitions
    """In which order the units are processed."""


def unbundle(found: Inspection) -> Unbundled:
    """The units of a message that was looked at."""
    units = _units(found)
    whole = _of_the_whole(found, units)
    primary = units[0].match if units else None
    if whole or primary is None or len(units) == 1:
        return Unbundled(units, whole, tuple((number,) for number in range(len(units))))
    terms = bundling_terms(primary.pmode, primary.leg)
    times = [unit.message.message_info.timestamp for unit in units]
    scopes = [] if terms.ordering == UNDEFINED else _scopes(found, terms)
    return Unbundled(units, (), processing_order(terms, times, scopes))


def _units(found: Inspection) -> tuple[ReceivedUnit, ...]:
    messaging = found.messaging
    messages = messaging.user_messages if messaging else ()
    failures: dict[str, list[EbmsError]] = {one.message_info.message_id: [] for one in messages}
    for problem in found.problems:
        if problem.ref in failures and _fails(problem) and problem.code != BUNDLING_ERROR:
            failures[problem.ref].append(problem)
    units = []
    for place, unit in enumerate(messaging.units if messaging else ()):
        if isinstance(unit, UserMessage):
            match = found.matches.get(place)
            wrong = failures[unit.message_info.message_id] + _borrowed(unit, messages[0], match)
            payloads = found.payloads.get(place, ())
            units.append(ReceivedUnit(unit, match, payloads, tuple(wrong)))
    return tuple(units)


def _of_the_whole(found: Inspection, units: Sequence[ReceivedUnit]) -> tuple[EbmsError, ...]:
    """The failures that are not about one unit of several, or about a signal.

    EBMS:0030 names the primary unit and means the bundle. Without the primary's P-Mode nothing of
    a bundle can be judged. [P2-3.2.2-01]
    """
    apart: set[str | None] = set()
    if len(units) > 1 and units[0].match is not None:
        apart |= {unit.message.message_info.message_id for unit in units}
    if found.messaging is not None and units:
        apart |= {one.message_info.message_id for one in found.messaging.signals}
    return tuple(
        one
        for one in found.problems
        if _fails(one) and (one.ref not in apart or one.code == BUNDLING_ERROR)
    )


def _fails(problem: EbmsError) -> bool:
    return problem.severity is Severity.FAILURE


def _borrowed(unit: UserMessage, primary: UserMessage, match: Match | None) -> list[EbmsError]:
    """Who signs for the primary signs for its sender only, or for whom a P-Mode names.

    Else anybody could send in the name of others, in bundles of a P-Mode that takes all comers.
    """
    if match is None or unit.from_party.party_ids == primary.from_party.party_ids:
        return []
    sender = sides(match.pmode, match.number - 1)[0]
    if sender is not None and sender.party:
        return []
    said = (
        f"the unit is from {unit.from_party}, the bundle from {primary.from_party}, and its P-Mode "
        "does not say that one may sign for the other"
    )
    place, ref = "eb:UserMessage/eb:PartyInfo/eb:From", unit.message_info.message_id
    return [EbmsError("EBMS:0101", said, location=place, ref=ref)]


def _scopes(found: Inspection, primary: BundlingTerms) -> list[tuple[str, ...]]:
    """What the primary's ordering scope selects in each unit."""
    assert found.envelope is not None
    messaging = find_messaging(found.envelope)
    assert messaging is not None
    return unit_values(messaging.iterchildren(USER_MESSAGE), primary.scope)


def processing_order(
    primary: BundlingTerms, times: Sequence[datetime], scopes: Sequence[tuple[str, ...]]
) -> Partitions:
    """In which order units are processed and delivered; partitions may go side by side.

    `times` are the units' timestamps, `scopes` what the primary's ordering scope selects in each.

    [P2-3.10.1-02] [P2-3.10.2-01] [P2-3.10.2-02] [P2-3.10.2-03] [P2-3.10.2-04] [P2-3.10.2-05]
    [P2-3.10.2-06]
    """
    numbers = range(len(times))
    if primary.ordering == UNDEFINED:
        return tuple((number,) for number in numbers)
    groups: dict[tuple[str, ...], list[int]] = {}
    for number in numbers:
        groups.setdefault(scopes[number], []).append(number)
    if primary.ordering == TIMESTAMP:
        for group in groups.values():
            group.sort(key=times.__getitem__)
    return tuple(map(tuple, groups.values()))


def related_failures(partitions: Partitions, failed: Collection[int]) -> dict[int, int]:
    """The units that must not be processed, each with the failed one before it: EBMS:0031.

    [P2-3.10.3-01] [P2-3.10.3-02]
    """
    stopped: dict[int, int] = {}
    for partition in partitions:
        culprit: int | None = None
        for number in partition:
            if number in failed:
                culprit = number
            elif culprit is not None:
                stopped[number] = culprit
    return stopped


def unit_failures(
    taken: Unbundled, later: Mapping[int, EbmsError] = _NOTHING
) -> dict[int, tuple[EbmsError, ...]]:
    """What each unit that is not processed is answered with, by its number.

    `later` is what went wrong with units while they were processed. [P2-3.10.3-03] [P2-3.10.3-04]
    """
    failed = {number: unit.failures for number, unit in enumerate(taken.units) if unit.failures}
    failed |= {number: (*failed.get(number, ()), error) for number, error in later.items()}
    stopped = related_failures(taken.partitions, failed)
    return failed | {
        number: (related_failed(taken.units[number].message, taken.units[culprit].message),)
        for number, culprit in stopped.items()
    }


def related_failed(unit: UserMessage, culprit: UserMessage) -> EbmsError:
    """EBMS:0031 about a unit that was not processed. [P2-3.10.3-03]"""
    said = f"it was not processed, as the unit {culprit.message_info.message_id} before it failed"
    return EbmsError("EBMS:0031", said, location="eb:Messaging", ref=unit.message_info.message_id)
