"""A group of fragments: what is known of it, how it stands, and how that changes (Part 2, 4.3.2).

A group is known by its sender, its P-Mode and its GroupId, so that nobody meddles with the groups
of others, or by a P-Mode that asks for less proof.

Two rules for who edits this file: all changes of a group's standing are in the table; what is not
in it does not happen.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.wire.ebms3 import UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import MessageFragment, MessageHeader
from postroad.wire.limits import DEFAULT

IDENTITY: Final = "identity"
PLACE: Final = "mf:MessageFragment"
_MOST_FRAGMENTS: Final = 100_000


class Standing(StrEnum):
    """How it stands with a group."""

    NEW = "new"
    GATHERING = "gathering"
    WHOLE = "whole"
    JOINED = "joined"
    REJECTED = "rejected"


class Input(StrEnum):
    TAKEN = "a fragment is taken"
    LAST = "the last fragment is taken"
    WRONG = "a fragment is rejected"
    LATE = "the join interval is over"
    FULL = "there is no room left"
    OPENED = "the joined message was opened"
    UNOPENED = "the joined message cannot be opened"


_S, _I = Standing, Input

TABLE: Final[Mapping[Standing, Mapping[Input, Standing]]] = {
    _S.NEW: {
        _I.TAKEN: _S.GATHERING,
        _I.LAST: _S.WHOLE,
        _I.WRONG: _S.REJECTED,
        _I.FULL: _S.REJECTED,
    },
    _S.GATHERING: {
        _I.TAKEN: _S.GATHERING,
        _I.LAST: _S.WHOLE,
        _I.WRONG: _S.REJECTED,
        _I.LATE: _S.REJECTED,
        _I.FULL: _S.REJECTED,
    },
    _S.WHOLE: {
        _I.WRONG: _S.REJECTED,
        _I.FULL: _S.REJECTED,
        _I.OPENED: _S.JOINED,
        _I.UNOPENED: _S.REJECTED,
    },
    _S.JOINED: {
        _I.WRONG: _S.JOINED,
    },
    _S.REJECTED: {
        _I.WRONG: _S.REJECTED,
        _I.FULL: _S.REJECTED,
    },
}


class Group(Struct, frozen=True):
    """What is known of the fragments of one message. What each number holds is the store's."""

    sender: str
    group_id: str
    standing: Standing = Standing.NEW
    first_message_id: str | None = None
    """Of the fragment that came first: errors about the group as a whole refer to it."""
    until: datetime | None = None
    """When the join interval is over."""
    header: UserMessage | None = None
    """What every fragment says, without MessageId and payloads."""
    soap: str | None = None
    received: int = 0
    size: int = 0
    """Of all data so far."""
    highest: int = 0
    reserved: int = 0
    """How much room the whole is expected to need."""
    count: int | None = None
    message_size: int | None = None
    compressed_size: int | None = None
    algorithm: str | None = None
    message_header: MessageHeader | None = None
    action: str | None = None
    space: str = ""
    """The P-Mode in whose name its fragments came."""

    @property
    def key(self) -> tuple[str, str]:
        """Sender, and GroupId among those of the P-Mode. [P2-4.7-04] [P2-4.3.2-18]"""
        return self.sender, f"{self.space}\n{self.group_id}" if self.space else self.group_id

    @property
    def compressed(self) -> bool:
        return self.algorithm not in (None, IDENTITY)

    @property
    def complete(self) -> bool:
        """Whether all fragments are there."""
        return self.received == self.count


class Terms(Struct, frozen=True):
    """What was agreed about the fragments, and what this node bears."""

    join_interval: timedelta
    fragment_size: int | None = None
    routing_properties: frozenset[str] = frozenset()
    algorithm: str | None = None
    most_fragments: int = _MOST_FRAGMENTS
    most_bytes: int = DEFAULT.message_bytes


class Arrival(Struct, frozen=True):
    """A fragment that came and was verified."""

    message: UserMessage
    fragment: MessageFragment
    soap: str
    """The version of its envelope."""
    size: int
    """Of its data."""
    problems: tuple[EbmsError, ...] = ()
    """What is wrong with its structure (`structure`)."""

    @property
    def message_id(self) -> str:
        return self.message.message_info.message_id


def sender_of(message: UserMessage) -> str:
    """The sender's name among the groups: all its PartyIds. [P2-4.7-04, P2-4.3.2-18]"""
    ids = sorted([one.type or "", one.value] for one in message.from_party.party_ids)
    return json.dumps(ids, ensure_ascii=False)


def header_of(message: UserMessage) -> UserMessage:
    """What all fragments of a group have to say alike."""
    info = replace(message.message_info, message_id="")
    return replace(message, message_info=info, part_infos=())


def presumed_coding(group: Group, terms: Terms) -> str | None:
    """The coding of its data. Where the count comes late so does that, and it is as was agreed."""
    return group.algorithm or (terms.algorithm if group.count is None else None)


def expected(group: Group, terms: Terms) -> int:
    """How much room the group will need, as far as that is known. [P2-4.3.2-09]

    What is compressed is there twice when it is opened.
    """
    compressed = presumed_coding(group, terms) not in (None, IDENTITY)
    if group.compressed_size is not None:
        stored = group.compressed_size
    elif compressed:
        stored = group.size
    elif group.message_size is not None:
        stored = group.message_size
    elif group.count is not None and terms.fragment_size is not None:
        stored = group.count * terms.fragment_size
    else:
        stored = group.size
    opened = (group.message_size or 0) if compressed else 0
    return max(stored, group.size) + opened
