"""A large message is read while its fragments still come, so that it is joined soon after the last.

Reading takes the digests of its parts, and opens what is compressed. It wins nothing but time: who
joins a message reads it from its beginning where this was not done, or not with the same fragments.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

from msgspec.structs import replace

from postroad.msh.capture import Capture
from postroad.msh.fragment_group import Group, Terms, presumed_coding
from postroad.msh.joined import capture_joined
from postroad.node.base.beside import beside
from postroad.store.fragments import StoredFragment
from postroad.store.interface import Store, StoreError
from postroad.store.records import Stored
from postroad.wire.content import Content
from postroad.wire.limits import MIB, Limits

_LARGE: Final = MIB
"""A message of smaller fragments is read when all are there."""
_MOST: Final = 2
"""Messages that are read ahead at the same time; each has a thread."""
_EARLY: Final = 8
"""When more fragments than this are there nobody begins any more: on a slow line it is no use."""
_PATIENCE: Final = 60.0
"""Seconds that the next fragment is waited for."""


class _GivenUp(Exception):
    """The rest does not come, or nobody wants it."""


class Coming:
    """The data of fragments that have not all come: who reads it waits for the next."""

    def __init__(self, open: Callable[[Stored], Content]) -> None:
        self._open = open
        self._there: dict[int, Stored] = {}
        self._count: int | None = None
        self._given_up = False
        self._news = threading.Condition()
        self.size = 0
        """As far as it was read."""

    def came(self, fragments: Sequence[StoredFragment], count: int | None) -> None:
        with self._news:
            self._there |= {one.number: one.stored for one in fragments}
            self._count = self._count or count
            self._news.notify_all()

    def give_up(self) -> None:
        with self._news:
            self._given_up = True
            self._news.notify_all()

    def chunks(self) -> Iterator[bytes]:
        number, read = 1, 0
        while (stored := self._awaited(number)) is not None:
            read += stored.size
            self.size = max(self.size, read)
            yield from self._open(stored).chunks()
            number += 1

    def is_of(self, fragments: Sequence[StoredFragment]) -> bool:
        """Whether this is what was read."""
        return self._there == {one.number: one.stored for one in fragments}

    def _awaited(self, number: int) -> Stored | None:
        with self._news:
            while not self._given_up:
                if number in self._there:
                    return self._there[number]
                if self._count is not None and number > self._count:
                    return None
                if not self._news.wait(_PATIENCE):
                    break
        raise _GivenUp


class _Ahead:
    """One message that is read in a thread of its own."""

    def __init__(self, store: Store, limits: Limits, group: Group) -> None:
        self.data = Coming(store.content)
        self._facts = _facts(group)
        self._capture: Future[Capture | None] = Future()
        self._thread = threading.Thread(
            target=self._read, args=(store, limits, group), name="postroad-ahead", daemon=True
        )
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing came of it."""
        return self._capture.done() and self._capture.result() is None

    def _read(self, store: Store, limits: Limits, group: Group) -> None:
        capture = None
        try:
            capture = capture_joined(
                group, self.data, new_sink=store.new_sink, limits=limits, aside=beside
            )
        except Exception:
            # What is wrong is found, and told, by who joins the message.
            pass
        finally:
            self.data.give_up()
            self._capture.set_result(capture)

    async def captured(self, group: Group, there: Sequence[StoredFragment]) -> Capture | None:
        """The message, when all fragments are there; None: it has to be read anew."""
        self.data.came(there, group.count)
        capture = await asyncio.wrap_future(self._capture)
        same = self._facts == _facts(group) and self.data.is_of(there)
        return capture if same else None

    def end(self) -> None:
        self.data.give_up()
        self._thread.join()


class ReadingAhead:
    """The messages that a process reads ahead."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._under_way: dict[tuple[str, str], _Ahead] = {}

    async def came(self, group: Group, fragment: StoredFragment, terms: Terms) -> None:
        """A fragment is stored; the message is read on, or begun."""
        ahead = self._under_way.get(group.key)
        if ahead is None and self._may_begin(group, fragment):
            presumed = replace(group, algorithm=presumed_coding(group, terms))
            ahead = self._under_way[group.key] = _Ahead(self._store, self._limits, presumed)
            try:
                there = await self._store.look(lambda reader: reader.fragments(*group.key))
            except StoreError:
                # The fragment is taken all the same; the message is read once it is whole.
                self.forget(group.key)
                return
            ahead.data.came(there, group.count)
        if ahead is not None:
            ahead.data.came([fragment], group.count)

    def _may_begin(self, group: Group, fragment: StoredFragment) -> bool:
        if fragment.stored.size < _LARGE or group.received > _EARLY:
            return False
        for key in [key for key, one in self._under_way.items() if one.is_over]:
            del self._under_way[key]
        return group.message_header is not None and len(self._under_way) < _MOST

    async def captured(self, group: Group, there: Sequence[StoredFragment]) -> Capture | None:
        """What was read of a message that is whole; None: nothing, or not the same."""
        ahead = self._under_way.pop(group.key, None)
        return None if ahead is None else await ahead.captured(group, there)

    def forget(self, key: tuple[str, str]) -> None:
        """The group came to its end."""
        ahead = self._under_way.pop(key, None)
        if ahead is not None:
            ahead.data.give_up()

    def close(self) -> None:
        for ahead in self._under_way.values():
            ahead.end()
        self._under_way.clear()


def _facts(group: Group) -> tuple[Any, ...]:
    """What the reading of a group's message depends on, beside its data."""
    said = group.message_header, group.action, group.soap
    return *said, group.algorithm, group.message_size
