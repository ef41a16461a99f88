"""The store's twin in memory, for tests: the same behaviour, and nothing survives it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace as changed

from postroad.reliability.breaker import is_of, is_served
from postroad.store import refused_rows
from postroad.store.failures import lost
from postroad.store.fragments import StoredFragment, StoredGroup, compressed_form, with_fragments
from postroad.store.interface import Place, Reader, StoreError, Transaction
from postroad.store.memory_reading import MemoryReader, Tables
from postroad.store.qualified import is_qualified
from postroad.store.records import (
    INBOX,
    WAITS,
    Event,
    Load,
    Message,
    Notice,
    Offer,
    Partner,
    Recorded,
    Shipped,
    Side,
    Signal,
    State,
    Stored,
    Work,
)
from postroad.store.transfers import StoredTransfer
from postroad.wire.content import BytesContent, BytesSink, Content, Sink

T = TypeVar("T")

_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _MemoryTransaction(MemoryReader):
    """A step; `take_back` undoes what it did, the last first."""

    def __init__(self, tables: Tables, node: str) -> None:
        super().__init__(tables)
        self._node = node
        self._undo: list[Callable[[], object]] = []

    def take_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _put(self, table: dict[Any, Any], key: object, value: object) -> None:
        if key in table:
            self._undo.append(lambda old=table[key]: table.__setitem__(key, old))  # type: ignore[misc]
        else:
            self._undo.append(lambda: table.pop(key))
        table[key] = value

    def _pop(self, table: dict[Any, Any], key: object) -> None:
        if key in table:
            value = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, value))

    def add_message(self, message: Message) -> bool:
        key = (message.side, message.message_id)
        if key in self._tables.messages:
            return False
        self._put(self._tables.messages, key, changed(message, key=next(self._tables.numbers)))
        if is_qualified(message.message_id):
            wire = (message.side, message.wire_id)
            others = self._tables.qualified.get(wire, ())
            self._put(self._tables.qualified, wire, (*others, message.message_id))
        self._count(message, 1)
        return True

    def add_refused(self, message: Message, beginning: bytes) -> bool:
        if not self.add_message(message):
            return False
        size = refused_rows.size_of(message, beginning)
        self.drop_beginning(message.message_id)
        entry = (message.created_at, size, beginning)
        self._put(self._tables.refused, message.message_id, entry)
        return True

    def drop_beginning(self, message_id: str) -> None:
        self._pop(self._tables.refused, message_id)

    def purge_refused(self, before: datetime, room: int, limit: int) -> int:
        refused = self._tables.refused
        taken = sum(size for _, size, _ in refused.values())
        removed = 0
        for message_id, (at, size, _) in list(refused.items())[:limit]:
            if at >= before and taken <= room:
                break
            taken -= size
            removed += 1
            message = self.message(Side.RECEIVING, message_id)
            if message is not None and message.state is State.REJECTED:
                self._remove(message)
            self.drop_beginning(message_id)
        return removed

    def _count(self, message: Message, more: int) -> None:
        for account in message.accounts if message.state in WAITS else ():
            before = self.load(account)
            size = before.bytes + more * message.wire_bytes
            after = Load(before.messages + more, size)
            if after.messages:
                self._put(self._tables.loads, account, after)
            else:
                self._pop(self._tables.loads, account)

    def add_messages(self, messages: Sequence[Message]) -> None:
        for one in messages:
            if not self.add_message(one):
                raise ValueError("one of the messages is there already")

    def replace_messages(self, pairs: Sequence[tuple[Message, Message]]) -> bool:
        for before, _ in pairs:
            there = self.message(before.side, before.message_id)
            if there is None or changed(there, key=0) != changed(before, key=0):
                return False
        for before, after in pairs:
            name = (before.side, before.message_id)
            known = self._tables.messages[name]
            self._put(self._tables.messages, name, changed(after, key=known.key))
            self._count(before, -1)
            self._count(after, 1)
        return True

    def change_message(
        self,
        side: Side,
        message_id: str,
        expected: Collection[State],
        /,
        *,
        attempts_were: int | None = None,
        **changes: Any,
    ) -> bool:
        if not {"side", "message_id", "key"}.isdisjoint(changes):
            raise ValueError("side, message_id and key of a message never change")
        message = self._tables.messages.get((side, message_id))
        if message is None or message.state not in expected:
            return False
        if attempts_were not in (None, message.attempts):
            return False
        after = changed(message, **changes)
        if after.state is State.DELIVERED and message.state is not State.DELIVERED:
            after = changed(after, key=next(self._tables.numbers))
        self._put(self._tables.messages, (side, message_id), after)
        self._count(message, -1)
        self._count(after, 1)
        return True

    def add_signal(self, signal: Signal) -> None:
        key = (signal.side, signal.message_id)
        self._put(self._tables.signals, key, [*self._tables.signals.get(key, ()), signal])

    def change_signal(self, before: Signal, after: Signal) -> None:
        key = (before.side, before.message_id)
        kept = self.signals(*key)
        kept[kept.index(before)] = after
        self._put(self._tables.signals, key, kept)

    def add_work(self, work: Work) -> int:
        id = next(self._tables.numbers)
        later = work.lane is not None and self._first_in(work.lane) is not None
        if later:
            self._put(self._tables.asleep, id, True)
            work = changed(work, owner=None, lease_until=None)
        self._put(self._tables.work, id, changed(work, id=id))
        return id

    def add_works(self, works: Sequence[Work]) -> list[int]:
        return [self.add_work(work) for work in works]

    def _first_in(self, lane: str) -> int | None:
        return min(
            (id for id, work in self._tables.work.items() if work.lane == lane), default=None
        )

    def claim_work(
        self,
        kinds: Collection[str],
        now: datetime,
        owner: str,
        lease_until: datetime,
        limit: int,
        *,
        without: Collection[str] = (),
        partner: str | None = None,
    ) -> list[Work]:
        asleep = self._tables.asleep
        due, ended = [], []
        for id, work in self._tables.work.items():
            if work.kind not in kinds:
                continue
            if (
                work.due_at <= now
                and (work.lease_until is None or work.lease_until <= now)
                and is_served(work.partner, without)
                and (partner is None or is_of(work.partner, partner))
                and id not in asleep
            ):
                due.append(work)
            elif (
                partner is None
                and work.owner is None
                and work.expires_at is not None
                and work.expires_at <= now
            ):
                ended.append(work)
        due.sort(key=lambda work: (work.due_at, work.id))
        due += ended
        for work in due[:limit]:
            mine = changed(work, owner=owner, lease_until=lease_until)
            self._put(self._tables.work, work.id, mine)
        return [
            changed(work, owner=owner, lease_until=lease_until, left_by=work.owner)
            for work in due[:limit]
        ]

    def finish_work(self, id: int, owner: str | None = None) -> None:
        work = self._tables.work.get(id)
        if work is None or owner not in (None, work.owner):
            return
        self._pop(self._tables.work, id)
        self._pop(self._tables.asleep, id)
        if work.lane is not None:
            first = self._first_in(work.lane)
            if first is not None and first > id:
                self._pop(self._tables.asleep, first)

    def finish_works(self, ids: Collection[int], owner: str | None = None) -> None:
        for id in ids:
            self.finish_work(id, owner)

    def postpone_work(
        self,
        id: int,
        due_at: datetime | None,
        data: bytes | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        work = self._tables.work.get(id)
        if work is None or owner not in (None, work.owner):
            return
        later = changed(
            work,
            due_at=_START if due_at is None else due_at,
            data=work.data if data is None else data,
            attempt=work.attempt + 1,
            owner=None,
            lease_until=None,
        )
        self._put(self._tables.work, id, later)
        if due_at is None:
            self._put(self._tables.asleep, id, True)
        else:
            self._wake(later)

    def _wake(self, work: Work) -> None:
        """Unless its turn in its lane is still to come."""
        if work.lane is None or self._first_in(work.lane) == work.id:
            self._pop(self._tables.asleep, work.id)

    def expire_work(self, id: int, expires_at: datetime | None) -> None:
        work = self._tables.work.get(id)
        if work is not None:
            self._put(self._tables.work, id, changed(work, expires_at=expires_at))

    def wake_work(self, id: int, due_at: datetime) -> bool:
        work = self._tables.work.get(id)
        if work is None or work.owner is not None:
            return False
        self._put(self._tables.work, id, changed(work, due_at=due_at))
        self._wake(work)
        return True

    def turn_work(self, id: int, kind: str, due_at: datetime, partner: str = "") -> None:
        work = self._tables.work.get(id)
        if work is None:
            return
        turned = changed(
            work,
            kind=kind,
            partner=partner,
            due_at=due_at,
            data=b"",
            attempt=0,
            owner=None,
            lease_until=None,
        )
        self._put(self._tables.work, id, turned)
        self._wake(work)

    def shift_work(self, back: timedelta) -> None:
        for id, work in list(self._tables.work.items()):
            until = None if work.lease_until is None else work.lease_until - back
            due_at = max(work.due_at - back, _START)
            shifted = changed(work, due_at=due_at, lease_until=until)
            self._put(self._tables.work, id, shifted)
        for message_id, offer in list(self._tables.offers.items()):
            if offer.due_at is not None:
                self.postpone_offer(message_id, max(offer.due_at - back, _START))

    def set_partner(self, partner: Partner) -> None:
        if partner.is_well:
            self._pop(self._tables.partners, partner.name)
        else:
            self._put(self._tables.partners, partner.name, partner)

    def add_notice(self, notice: Notice) -> None:
        id = next(self._tables.numbers)
        self._put(self._tables.notices, id, changed(notice, id=id))

    def remove_notice(self, id: int) -> bool:
        there = id in self._tables.notices
        self._pop(self._tables.notices, id)
        return there

    def set_state(self, name: str, value: bytes | None, now: datetime) -> None:
        if value is None:
            self._pop(self._tables.states, name)
        else:
            self._put(self._tables.states, name, (now, value))

    def forget_states(self, before: datetime, limit: int) -> int:
        states = self._tables.states.items()
        old = [name for name, (at, _) in states if name.startswith("~") and at < before][:limit]
        for name in old:
            self._pop(self._tables.states, name)
        return len(old)

    def renew_work(self, owner: str, ids: Collection[int], lease_until: datetime) -> None:
        for id in ids:
            work = self._tables.work.get(id)
            if work is not None and work.owner == owner:
                self._put(self._tables.work, id, changed(work, lease_until=lease_until))

    def release_work(self, owner_prefix: str) -> list[Work]:
        held = [
            work
            for work in self._tables.work.values()
            if work.owner is not None and work.owner.startswith(owner_prefix)
        ]
        for work in held:
            self._put(self._tables.work, work.id, changed(work, owner=None, lease_until=None))
        held.sort(key=lambda work: (work.due_at, work.id))
        return [changed(work, owner=None, lease_until=None) for work in held]

    def add_offer(self, offer: Offer) -> bool:
        if offer.message_id in self._tables.offers:
            return False
        self._put(self._tables.offers, offer.message_id, offer)
        return True

    def first_offer(
        self, places: Collection[Place], now: datetime, items: Sequence[str] = ()
    ) -> Offer | None:
        return next(iter(self.first_offers(places, now, items, 1)), None)

    def first_offers(
        self, places: Collection[Place], now: datetime, items: Sequence[str], most: int
    ) -> list[Offer]:
        wanted = set(items)
        found: list[Offer] = []
        for one in self._tables.offers.values():
            free = one.due_at is None or one.due_at <= now
            if free and (one.channel, one.pmode) in places and wanted <= set(one.items):
                found.append(changed(one, items=(), due_at=None))
                if len(found) == most:
                    break
        return found

    def postpone_offer(self, message_id: str, due_at: datetime) -> None:
        offer = self._tables.offers.get(message_id)
        if offer is not None:
            self._put(self._tables.offers, message_id, changed(offer, due_at=due_at))

    def remove_offer(self, message_id: str) -> None:
        offers = self._tables.offers
        # Taken back it must stand where it stood.
        before = dict(offers)
        if offers.pop(message_id, None) is not None:
            self._undo.append(lambda: offers.update(before))
            self._undo.append(offers.clear)

    def first_time(self, name: str, now: datetime, until: datetime) -> bool:
        once = self._tables.once
        for old in [known for known, end in once.items() if end < now]:
            self._pop(once, old)
        if name in once:
            return False
        self._put(once, name, until)
        return True

    def record(self, events: Iterable[Event]) -> None:
        journal = self._tables.journal
        before = len(journal)
        first = self._tables.journal_begin + before + 1
        rows = [Recorded(self._node, 1, seq, event) for seq, event in enumerate(events, first)]
        journal += rows
        self._undo.append(lambda: journal.__delitem__(slice(before, None)))

    def set_shipped(self, shipped: Shipped) -> None:
        self._put(self._tables.shipped, shipped.target, shipped)

    def forget_shipped(self, target: str) -> bool:
        there = target in self._tables.shipped
        self._pop(self._tables.shipped, target)
        return there

    def purge_events(self, target: str, before: datetime, limit: int) -> int:
        tables = self._tables
        shipped = min(one.seq for one in [self.shipped(target), *self.shipped_positions()])
        old = [
            one
            for one in takewhile(lambda one: one.event.at < before, tables.journal[:limit])
            if one.seq <= shipped
        ]

        def put_back() -> None:
            tables.journal[:0] = old
            tables.journal_begin -= len(old)

        del tables.journal[: len(old)]
        tables.journal_begin += len(old)
        self._undo.append(put_back)
        return len(old)

    def keep(self, content: bytes | Content) -> Stored:
        data = content if isinstance(content, bytes) else b"".join(content.chunks())
        place = f"m{next(self._tables.numbers)}"
        self._put(self._tables.contents, place, data)
        return Stored(place, 0, len(data))

    def share(self, stored: Stored, more: int = 1) -> Stored:
        sharers = self._tables.sharers
        self._put(sharers, stored.place, sharers.get(stored.place, 0) + more)
        return stored

    def drop(self, stored: Stored) -> None:
        others = self._tables.sharers.get(stored.place, 0)
        if others:
            self._put(self._tables.sharers, stored.place, others - 1)
        else:
            self._pop(self._tables.contents, stored.place)

    def set_fragment_group(self, group: StoredGroup) -> None:
        key = (group.sender, group.group_id)
        self._put(self._tables.groups, key, changed(group, to_come=0) if group.ended else group)

    def add_fragment(self, sender: str, group_id: str, fragment: StoredFragment) -> bool:
        key = (sender, group_id, fragment.number)
        if key in self._tables.fragments or (sender, group_id) not in self._tables.groups:
            return False
        self._put(self._tables.fragments, key, fragment)
        return True

    def remove_fragments(self, sender: str, group_id: str) -> None:
        for fragment in self.fragments(sender, group_id):
            self._pop(self._tables.fragments, (sender, group_id, fragment.number))
            self.drop(fragment.stored)

    def join_fragments(self, sender: str, group_id: str) -> Stored:
        pieces = [one.stored for one in self.fragments(sender, group_id)]
        if not pieces:
            raise ValueError("there are no fragments to join")
        joined = b"".join(self._tables.contents[piece.place] for piece in pieces)
        self.remove_fragments(sender, group_id)
        return self.keep(joined)

    def forget_fragment_groups(self, before: datetime, limit: int) -> int:
        groups = self._tables.groups.items()
        old = [key for key, one in groups if one.ended and one.changed_at < before][:limit]
        for key in old:
            self._pop(self._tables.groups, key)
        return len(old)

    def set_transfer(self, transfer: StoredTransfer) -> None:
        key = (transfer.sender, transfer.path, transfer.name)
        before = self._tables.transfers.get(key)
        self._put(self._tables.transfers, key, transfer)
        for piece in before.pieces if before is not None else ():
            if piece not in transfer.pieces:
                self.drop(piece)

    def remove_transfer(self, sender: str, path: str, name: str) -> None:
        key = (sender, path, name)
        known = self._tables.transfers.get(key)
        self._pop(self._tables.transfers, key)
        for piece in known.pieces if known is not None else ():
            self.drop(piece)

    def release_transfers(self, owner_prefix: str) -> None:
        for key, one in list(self._tables.transfers.items()):
            if one.owner is not None and one.owner.startswith(owner_prefix):
                self._put(self._tables.transfers, key, changed(one, owner=None, open_until=None))

    def forget_transfers(self, now: datetime, limit: int) -> int:
        known = self._tables.transfers.items()
        old = [key for key, one in known if one.expires_at <= now][:limit]
        for key in old:
            self.remove_transfer(*key)
        return len(old)

    def forget_done_transfers(self, most: int) -> None:
        done = [(one.touched_at, key) for key, one in self._tables.transfers.items() if one.done]
        for _, key in sorted(done, reverse=True)[most:]:
            self.remove_transfer(*key)

    def purge(self, before: datetime, states: Collection[State], limit: int) -> list[Message]:
        old = [
            message
            for state in dict.fromkeys(states)
            for message in sorted(self._tables.messages.values(), key=lambda one: one.updated_at)
            if message.state is state and message.updated_at < before
            if message.part_of is None or message.side is not Side.SENDING
        ][:limit]
        removed: list[Message] = []
        for message in old:
            removed += with_fragments(self, message, limit - len(removed))
        for message in removed:
            self._remove(message)
        return removed

    def remove_fragment_messages(self, side: Side, part_of: str, limit: int) -> list[Message]:
        removed = self.fragment_messages(side, part_of, 0, limit)
        for message in removed:
            self._remove(message)
        return removed

    def remove_received(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._remove(message)

    def _remove(self, message: Message) -> None:
        key = (message.side, message.message_id)
        contents = [part.stored for part in message.parts]
        for signal in self.signals(*key):
            contents.append(signal.envelope)
            if not signal.incoming:
                self.remove_offer(signal.signal_id)
        contents += [message.envelope] if message.envelope else []
        contents += compressed_form(message)
        for stored in dict.fromkeys(contents):
            self.drop(stored)
        if message.unproven:
            self.drop_beginning(message.message_id)
        self._pop(self._tables.signals, key)
        self._pop(self._tables.messages, key)
        if is_qualified(message.message_id):
            wire = (message.side, message.wire_id)
            left = [one for one in self._tables.qualified[wire] if one != message.message_id]
            self._put(self._tables.qualified, wire, tuple(left))
        self._count(message, -1)
        if message.state in INBOX:
            self._put(self._tables.purged, None, max(message.key, self._purged()))
        for id, notice in list(self._tables.notices.items()):
            if message.side is Side.SENDING and notice.message_id == message.message_id:
                self._pop(self._tables.notices, id)


class MemoryStore:
    """The store behind `open_memory`."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.epoch = 1
        self._tables = Tables()
        self._closed = False

    async def run(self, step: Callable[[Transaction], T]) -> T:
        await asyncio.sleep(0)
        self._must_be_open()
        transaction = _MemoryTransaction(self._tables, self.node)
        try:
            return step(transaction)
        except BaseException:
            transaction.take_back()
            raise

    async def run_with_reserve(self, step: Callable[[Transaction], T]) -> T:
        return await self.run(step)

    async def look(self, ask: Callable[[Reader], T]) -> T:
        self._must_be_open()
        return ask(MemoryReader(self._tables))

    def new_sink(self) -> Sink:
        return BytesSink()

    async def persist(self, content: Content) -> Content:
        return content

    def content(self, stored: Stored) -> Content:
        data = self._tables.contents.get(stored.place)
        if data is None:
            raise lost(stored.place, "is not there")
        return BytesContent(data[stored.offset : stored.offset + stored.size])

    def free(self) -> int | None:
        return None

    def reserved(self) -> int:
        return 0

    async def check(self) -> None:
        self._must_be_open()

    async def mark(self) -> None:
        self._must_be_open()

    async def close(self) -> None:
        self._closed = True

    def _must_be_open(self) -> None:
        if self._closed:
            raise StoreError("The store was closed: open it again.")


async def open_memory(folder: Path | None = None, node: str = "memory") -> MemoryStore:
    """A new, empty store; the folder is not used."""
    return MemoryStore(node)
