"""What the store in memory holds, and how it is read; the twin of `store.reading`."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from itertools import count

from msgspec.structs import replace as changed

from postroad.reliability.breaker import is_served
from postroad.store.fragments import StoredFragment, StoredGroup
from postroad.store.records import (
    INBOX,
    Extent,
    Figures,
    Load,
    Message,
    Notice,
    Offer,
    Partner,
    Queue,
    Recorded,
    Shipped,
    Side,
    Signal,
    State,
    Total,
    Wanted,
    Work,
)
from postroad.store.transfers import Held, StoredTransfer


class Tables:
    """What there is. A step changes a copy of the tables it touches no more than it must."""

    def __init__(self) -> None:
        self.messages: dict[tuple[Side, str], Message] = {}
        self.qualified: dict[tuple[Side, str], tuple[str, ...]] = {}
        """The qualified ids of a MessageId."""
        self.signals: dict[tuple[Side, str], list[Signal]] = {}
        self.work: dict[int, Work] = {}
        self.asleep: dict[int, bool] = {}
        """Work that waits to be woken."""
        self.partners: dict[str, Partner] = {}
        self.notices: dict[int, Notice] = {}
        self.states: dict[str, tuple[datetime, bytes]] = {}
        self.offers: dict[str, Offer] = {}
        """By message id, in the order in which they came."""
        self.loads: dict[str, Load] = {}
        self.once: dict[str, datetime] = {}
        self.groups: dict[tuple[str, str], StoredGroup] = {}
        self.fragments: dict[tuple[str, str, int], StoredFragment] = {}
        self.transfers: dict[tuple[str, str, str], StoredTransfer] = {}
        self.contents: dict[str, bytes] = {}
        self.sharers: dict[str, int] = {}
        """How many own a content beside the first."""
        self.refused: dict[str, tuple[datetime, int, bytes]] = {}
        """When a message was refused whose sender proved nothing, what it takes, its beginning."""
        self.journal: list[Recorded] = []
        self.journal_begin = 0
        """How many events were removed from the beginning of the journal."""
        self.shipped: dict[str, Shipped] = {}
        self.numbers = count(1)
        self.purged: dict[None, int] = {}


class MemoryReader:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def message(self, side: Side, message_id: str) -> Message | None:
        return self._tables.messages.get((side, message_id))

    def messages_of_id(self, side: Side, message_id: str) -> list[Message]:
        names = (message_id, *sorted(self._tables.qualified.get((side, message_id), ())))
        return [one for name in names if (one := self.message(side, name)) is not None]

    def messages_by_id(self, side: Side, ids: Collection[str]) -> dict[str, Message]:
        found = [one for name in set(ids) for one in self.messages_of_id(side, name)]
        return {one.message_id: one for one in found}

    def messages(self, wanted: Wanted) -> list[Message]:
        fitting = [message for message in self._tables.messages.values() if fits(message, wanted)]
        fitting.sort(key=lambda message: message.key, reverse=wanted.newest_first)
        return fitting[: wanted.limit]

    def total(self, wanted: Wanted, most: int) -> Total:
        whole = replace(wanted, after=0, before=None, limit=most + 1)
        count = len(self.messages(whole))
        return Total(min(count, most), count > most)

    def inbox(self) -> Extent:
        newest = self.messages(Wanted(Side.RECEIVING, INBOX, limit=1, newest_first=True))
        last = max([self._purged(), *(message.key for message in newest)])
        return Extent(1, last, self._purged())

    def _purged(self) -> int:
        return self._tables.purged.get(None, 0)

    def signals(self, side: Side, message_id: str) -> list[Signal]:
        return list(self._tables.signals.get((side, message_id), ()))

    def events(self, message_id: str) -> list[Recorded]:
        return [one for one in self._tables.journal if one.event.message_id == message_id]

    def journal(self, after: int, limit: int, epoch: int | None = None) -> list[Recorded]:
        # There is only the first epoch.
        after = 0 if epoch == 0 else max(after - self._tables.journal_begin, 0)
        return self._tables.journal[after:][:limit] if epoch in (None, 0, 1) else []

    def shipped(self, target: str) -> Shipped:
        return self._tables.shipped.get(target) or Shipped(target)

    def shipped_positions(self) -> list[Shipped]:
        return [one for _, one in sorted(self._tables.shipped.items())]

    def beginning(self, message_id: str) -> bytes | None:
        found = self._tables.refused.get(message_id)
        return None if found is None else found[2]

    def due_by_kind(
        self, kinds: Collection[str], without: Collection[str] = ()
    ) -> dict[str, datetime]:
        asleep = self._tables.asleep
        found: dict[str, datetime] = {}
        for id, work in self._tables.work.items():
            if work.owner is not None or work.kind not in kinds:
                continue
            awake = id not in asleep and is_served(work.partner, without)
            for at in (work.due_at if awake else None, work.expires_at):
                if at is not None:
                    found[work.kind] = min(at, found.get(work.kind, at))
        return found

    def _awake(self, kinds: Collection[str]) -> list[Work]:
        tables = self._tables
        return [
            work
            for id, work in tables.work.items()
            if work.kind in kinds and id not in tables.asleep
        ]

    def work(self, id: int) -> Work | None:
        return self._tables.work.get(id)

    def others_work(
        self, kind: str, owner: str, most: int, *, after: int = 0, before: int = 0
    ) -> list[Work]:
        found = [
            one
            for id, one in sorted(self._tables.work.items())
            if one.kind == kind and id > after and (one.owner != owner or id < before)
        ]
        return found[:most]

    def partners(self) -> list[Partner]:
        return [partner for _, partner in sorted(self._tables.partners.items())]

    def partner(self, name: str) -> Partner:
        return self._tables.partners.get(name) or Partner(name)

    def notices(self, after: int, limit: int) -> list[Notice]:
        return [one for id, one in sorted(self._tables.notices.items()) if id > after][:limit]

    def state(self, name: str) -> bytes | None:
        return self._tables.states.get(name, (None, None))[1]

    def offer(self, message_id: str) -> Offer | None:
        found = self._tables.offers.get(message_id)
        return None if found is None else changed(found, items=())

    def queue(self, channel: str) -> Queue:
        waiting = [one for one in self._tables.offers.values() if one.channel == channel]
        return Queue(len(waiting), waiting[0].added_at if waiting else None)

    def fragment_group(self, sender: str, group_id: str) -> StoredGroup | None:
        return self._tables.groups.get((sender, group_id))

    def transfer(self, sender: str, path: str, name: str) -> StoredTransfer | None:
        return self._tables.transfers.get((sender, path, name))

    def held(self, partner: str | None = None) -> Held:
        sizes = [
            one.size
            for one in self._tables.transfers.values()
            if not one.done and partner in (None, one.partner)
        ]
        return Held(len(sizes), sum(sizes))

    def fragment(self, sender: str, group_id: str, number: int) -> StoredFragment | None:
        return self._tables.fragments.get((sender, group_id, number))

    def fragments(self, sender: str, group_id: str) -> list[StoredFragment]:
        found = sorted(self._tables.fragments.items())
        return [fragment for key, fragment in found if key[:2] == (sender, group_id)]

    def fragment_messages(self, side: Side, part_of: str, after: int, limit: int) -> list[Message]:
        found = [one for one in self._fragments_of(side, part_of) if one.key > after]
        return sorted(found, key=lambda one: one.key)[:limit]

    def fragment_states(self, side: Side, part_of: str) -> dict[State, int]:
        return Counter(one.state for one in self._fragments_of(side, part_of))

    def _fragments_of(self, side: Side, part_of: str) -> list[Message]:
        messages = self._tables.messages.values()
        return [one for one in messages if one.side is side and one.part_of == part_of]

    def any_fragment(self, side: Side, part_of: str, states: Collection[State]) -> bool:
        return any(one.state in states for one in self._fragments_of(side, part_of))

    def fragment_groups(self, sender: str | None, limit: int) -> list[StoredGroup]:
        found = [one for one in self._tables.groups.values() if not one.ended]
        found.sort(key=lambda one: one.sender)
        return [one for one in found if sender in (None, one.sender)][:limit]

    def bytes_to_come(self) -> int:
        return sum(group.to_come for group in self._tables.groups.values())

    def load(self, account: str) -> Load:
        return self._tables.loads.get(account, Load())

    def figures(self) -> Figures:
        tables = self._tables
        kept = tables.messages.values()
        work: dict[str, int] = {}
        for one in tables.work.values():
            work[one.kind] = work.get(one.kind, 0) + 1
        return Figures(
            messages=Counter(f"{one.side.value}.{one.state.value}" for one in kept),
            agreements=Counter((one.side.value, one.state.value, one.agreed_by) for one in kept),
            work=work,
            offers=Counter(one.pmode for one in tables.offers.values()),
            oldest_work=min((one.due_at for one in self._awake(work)), default=None),
            last_seq=tables.journal_begin + len(tables.journal),
            bytes=sum(map(len, tables.contents.values())),
        )


def fits(message: Message, wanted: Wanted) -> bool:
    """Whether a list shows a message."""
    exact = (
        *("side", "pmode", "from_party", "to_party", "service", "action", "conversation_id"),
        "error_code",
    )
    partners = (
        message.to_party if message.side is not Side.RECEIVING else None,
        message.from_party if message.side is not Side.SENDING else None,
    )
    return (
        all(getattr(wanted, name) in (None, getattr(message, name)) for name in exact)
        and (wanted.partner is None or wanted.partner in partners)
        and message.part_of is None
        and (not wanted.states or message.state in wanted.states)
        and (wanted.since is None or message.created_at >= wanted.since)
        and (wanted.until is None or message.created_at < wanted.until)
        and message.key > wanted.after
        and (wanted.before is None or message.key < wanted.before)
    )
