"""The group that a message was joined of, while that message is taken over or refused.

All of it is one step: the message is kept, the fragments become its parts or go, the group has
ended, and who joins it has nothing more to do.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from postroad.msh.fragment_group import Standing
from postroad.msh.joining import opened
from postroad.node.steps.fragment_groups import KeptGroup, group_there, keep_group
from postroad.store.interface import Transaction
from postroad.store.records import Stored, Work
from postroad.wire.content import Content, Slice

T = TypeVar("T")


class Ended(Exception):
    """The group came to its end meanwhile."""


class JoinedGroup:
    """A whole group with the work that opens it, and its data as it is stored."""

    def __init__(self, kept: KeptGroup, data: Content, work: Work, now: datetime) -> None:
        self.kept = kept
        self._data = data
        self._work = work
        self._now = now
        self._stored: Stored | None = None

    def holds(self, content: Content) -> bool:
        """Whether content lies in the fragments, and need not be written anew."""
        return isinstance(content, Slice) and content.content is self._data

    def keep(self, tx: Transaction, content: Content) -> Stored:
        """Keep a part of the message; one that lies in the fragments stays where it is."""
        if not isinstance(content, Slice) or not self.holds(content):
            return tx.keep(content)
        if self._stored is None:
            self._stored = tx.join_fragments(*self.kept.group.key)
        else:
            tx.share(self._stored)
        return Stored(self._stored.place, content.begin, content.size)

    def around(
        self, step: Callable[[Transaction], T], done: Callable[[T], bool]
    ) -> Callable[[Transaction], T]:
        """The step, and with it the end of the group; not where it did nothing yet."""

        def whole(tx: Transaction) -> T:
            self._stored = None
            there = group_there(tx, self.kept.group.key)
            if there is None or there.group.standing is not Standing.WHOLE:
                raise Ended
            result = step(tx)
            if done(result):
                self._end(tx, there)
            return result

        return whole

    def _end(self, tx: Transaction, there: KeptGroup) -> None:
        if self._stored is None:
            tx.remove_fragments(*there.group.key)
        keep_group(tx, replace(there, group=opened(there.group)), self._now)
        tx.finish_work(self._work.id, self._work.owner)
