"""Groups of fragments in the store: what is known of each, and what came of it.

The data of a fragment is content like any other, kept in the step that takes the fragment: so what
a commit did not reach is not there, and the sender comes again with it. When all is there the
contents are joined, without a copy, into one that parts of the message can lie in.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from postroad.store.records import Message, Side, State, Stored


class StoredGroup(Struct, frozen=True):
    """A group of fragments of one sender."""

    sender: str
    group_id: str
    changed_at: datetime
    ended: bool
    """It was joined or rejected, and is only remembered."""
    to_come: int
    """For how many more bytes there must be room."""
    details: bytes
    """What is known of it, as its owner writes it."""


class StoredFragment(Struct, frozen=True):
    number: int
    message_id: str
    stored: Stored


class FragmentReader(Protocol):
    """What can be asked about groups."""

    def fragment_group(self, sender: str, group_id: str) -> StoredGroup | None: ...

    def fragment(self, sender: str, group_id: str, number: int) -> StoredFragment | None: ...

    def fragments(self, sender: str, group_id: str) -> list[StoredFragment]:
        """By number."""
        ...

    def fragment_messages(self, side: Side, part_of: str, after: int, limit: int) -> list[Message]:
        """The messages that are fragments of one, with a key greater than `after`, by their keys.

        Those that are sent are added by number, so this is their order too.
        """
        ...

    def fragment_states(self, side: Side, part_of: str) -> dict[State, int]:
        """How many of these are in which state."""
        ...

    def any_fragment(self, side: Side, part_of: str, states: Collection[State]) -> bool:
        """Whether one of these is in one of some states."""
        ...

    def fragment_groups(self, sender: str | None, limit: int) -> list[StoredGroup]:
        """Those that did not end yet, of one sender or of all, by sender; the oldest first."""
        ...

    def bytes_to_come(self) -> int:
        """For how many bytes all groups together still need room."""
        ...


class FragmentSteps(Protocol):
    """What a step can do with groups."""

    def set_fragment_group(self, group: StoredGroup) -> None:
        """What is known of the group from now on; an ended one needs no room."""
        ...

    def add_fragment(self, sender: str, group_id: str, fragment: StoredFragment) -> bool:
        """False when one of this number is there, or there is no such group."""
        ...

    def remove_fragments(self, sender: str, group_id: str) -> None:
        """Their data is removed; what is known of the group stays."""
        ...

    def join_fragments(self, sender: str, group_id: str) -> Stored:
        """Their data, in the order of their numbers, becomes one content; the fragments go.

        Parts of a message may lie in it: `Stored` with the same place. Whichever is dropped first
        takes it all along. ValueError when there are no fragments.
        """
        ...

    def remove_fragment_messages(self, side: Side, part_of: str, limit: int) -> list[Message]:
        """Remove messages that are fragments of one, so many at a time; those removed."""
        ...

    def forget_fragment_groups(self, before: datetime, limit: int) -> int:
        """Forget groups that ended before a time; how many there were."""
        ...


def compressed_form(message: Message) -> tuple[Stored, ...]:
    """Where the compressed form of a message lies that goes in fragments."""
    cut = message.split
    if cut is None:
        return ()
    return cut.pieces if cut.stored is None else (cut.stored,)


def with_fragments(reader: FragmentReader, message: Message, limit: int) -> list[Message]:
    """What of a message goes next: so many of its fragments, and itself when no other is left."""
    if message.split is None:
        return [message][:limit]
    fragments = reader.fragment_messages(message.side, message.message_id, 0, limit)
    return [*fragments, message] if len(fragments) < limit else fragments
