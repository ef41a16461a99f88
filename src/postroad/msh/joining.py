"""Fragments become one message again: what each of them does to its group (Part 2, 4.3.2, 4.6).

Each fragment that comes, verified, is held against the rules in their order; the first that is
broken rejects the fragment, and with it the whole group: its data is removed, and its id is
remembered, so that whatever comes of it later is rejected too. Once a group was joined its message
lives on its own, and a bad fragment harms it no more.

A fragment that comes again under its own MessageId is a retry, and is answered as before. The same
number under another MessageId is an attack, or a mistake, and is rejected.

Two of the errors are warnings in the table of the specification. BadProperties is one: the fragment
is taken. FragmentSizeExceeded is not: the rules reject it, so that beside the warning there is a
failure that says so.
"""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from postroad.msh.fragment_group import (
    PLACE,
    TABLE,
    Arrival,
    Group,
    Input,
    Standing,
    Terms,
    expected,
    header_of,
    sender_of,
)
from postroad.msh.joining_rules import RULES, Case
from postroad.reliability.tables import follow
from postroad.wire.errors import EbmsError, Severity

T = TypeVar("T")


class Decision(StrEnum):
    STORE = "store its data"
    AGAIN = "answer it as the first time"
    REFUSE = "refuse it"


class Verdict(Struct, frozen=True):
    """What becomes of a fragment and its group."""

    decision: Decision
    group: Group
    """As it is from now on."""
    errors: tuple[EbmsError, ...] = ()
    offset: int | None = None
    """Where the data goes: with an agreed size each number has its place, else one follows the
    other as they come."""

    @property
    def erases(self) -> bool:
        """Whether all data of the group is to be removed."""
        return self.decision is Decision.REFUSE and self.group.standing is Standing.REJECTED


def receive(
    group: Group | None,
    arrival: Arrival,
    earlier: str | None,
    *,
    now: datetime,
    terms: Terms,
    room: int | None = None,
) -> Verdict:
    """What becomes of a fragment.

    `earlier` is the MessageId under which this number of the group came before. `room` is how many
    bytes the group may have in all, those that it has already among them. [P2-4.3.2-01]
    """
    if group is None:
        group = Group(sender_of(arrival.message), arrival.fragment.group_id)
    if earlier == arrival.message_id and group.standing is not Standing.REJECTED:
        return Verdict(Decision.AGAIN, group)
    after = _with(group, arrival, now, terms)
    case = Case(group, after, arrival, earlier, now, terms, room)
    for rule in RULES:
        said = rule(case)
        if said is not None:
            given = Input.FULL if said[0] == "EBMS:0054" else Input.WRONG
            error = EbmsError(*said, location=PLACE, ref=arrival.message_id)
            return reject(group, error, given)
    standing = follow(TABLE, group.standing, Input.LAST if after.complete else Input.TAKEN)
    return Verdict(
        Decision.STORE,
        replace(after, standing=standing),
        tuple(_warnings(arrival, terms)),
        _offset(group, arrival, terms),
    )


def reject(group: Group, error: EbmsError, given: Input = Input.WRONG) -> Verdict:
    """The group is rejected for this error, unless its message was joined before.

    [P2-4.3.2-16, P2-4.3.2-17]
    """
    standing = follow(TABLE, group.standing, given)
    errors = [error]
    if error.severity is Severity.WARNING:
        consequence = "therefore the fragment and its group are rejected"
        errors.append(EbmsError("EBMS:0040", consequence, location=PLACE, ref=error.ref))
    known = (group.sender, group.group_id, standing, group.first_message_id)
    left = Group(*known, space=group.space)
    return Verdict(Decision.REFUSE, left if standing is Standing.REJECTED else group, tuple(errors))


def overdue(group: Group, now: datetime) -> Verdict | None:
    """The group is rejected when its time is over and not all is there. [P2-4.6-13]"""
    if group.standing is not Standing.GATHERING or group.until is None or now <= group.until:
        return None
    of = f"of {group.count} " if group.count else ""
    said = f"{group.received} {of}fragments came within the join interval"
    error = EbmsError("EBMS:0051", said, location=PLACE, ref=group.first_message_id)
    return reject(group, error, Input.LATE)


def out_of_space(group: Group, ref: str | None = None) -> Verdict:
    """The disk is full in the middle of it. [P2-4.6-16]"""
    said = "there is no room left to store the fragments of this group"
    error = EbmsError("EBMS:0054", said, location=PLACE, ref=ref or group.first_message_id)
    return reject(group, error, Input.FULL)


def opened(group: Group) -> Group:
    """The joined message was processed as if it had come whole."""
    return replace(group, standing=follow(TABLE, group.standing, Input.OPENED), reserved=0)


def unopened(group: Group, error: EbmsError) -> Verdict:
    """The joined message cannot be decompressed, or contradicts its fragments."""
    return reject(group, error, Input.UNOPENED)


def _with(group: Group, arrival: Arrival, now: datetime, terms: Terms) -> Group:
    """The group if the fragment were taken: what is said once is recorded, counters go on.

    [P2-4.3.2-05, P2-4.3.2-06, P2-4.3.2-08]
    """
    said = arrival.fragment
    after = replace(
        group,
        first_message_id=group.first_message_id or arrival.message_id,
        until=group.until or now + terms.join_interval,
        header=group.header or header_of(arrival.message),
        soap=group.soap or arrival.soap,
        received=group.received + 1,
        size=group.size + arrival.size,
        highest=max(group.highest, said.fragment_num),
        count=_first(group.count, said.fragment_count),
        message_size=_first(group.message_size, said.message_size),
        compressed_size=_first(group.compressed_size, said.compressed_message_size),
        algorithm=_first(group.algorithm, said.compression_algorithm),
        message_header=_first(group.message_header, said.message_header),
        action=_first(group.action, said.action),
    )
    return replace(after, reserved=expected(after, terms))


def _first(known: T | None, said: T | None) -> T | None:
    return said if known is None else known


def _offset(group: Group, arrival: Arrival, terms: Terms) -> int:
    if terms.fragment_size is None:
        return group.size
    return (arrival.fragment.fragment_num - 1) * terms.fragment_size


def _warnings(arrival: Arrival, terms: Terms) -> Iterator[EbmsError]:
    """Properties that nobody agreed to are told of, and do no harm. [P2-4.6-14]"""
    names = (one.name for one in arrival.message.properties)
    others = sorted({name for name in names if name not in terms.routing_properties})
    if others:
        said = f"not agreed in RoutingProperties: {', '.join(name[:80] for name in others[:10])}"
        place = "eb:UserMessage/eb:MessageProperties"
        yield EbmsError("EBMS:0052", said, location=place, ref=arrival.message_id)
