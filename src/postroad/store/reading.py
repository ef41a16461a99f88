"""Questions to the SQLite database."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final

from postroad.reliability.breaker import is_served
from postroad.store import fragment_rows, lists, refused_rows, transfer_rows
from postroad.store.fragments import StoredFragment, StoredGroup
from postroad.store.qualified import columns
from postroad.store.queries import query
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
from postroad.store.rows import (
    LATER,
    SEQ_BITS,
    Row,
    message_of,
    notice_of,
    offer_of,
    partner_of,
    recorded_of,
    signal_of,
    time_of,
    work_of,
)
from postroad.store.transfers import Held, StoredTransfer

MESSAGE_COUNT: Final = "message."
WORK_COUNT: Final = "work."
OFFER_COUNT: Final = "offer."
TO_COME_COUNT: Final = "fragments.to_come"
OFFERED_COUNT: Final = "offered."
LOAD_COUNT: Final = "load."
LOAD_BYTES: Final = "load_bytes."
REFUSED_BYTES: Final = "refused.bytes"
BYTES_COUNT: Final = "bytes"
"""Names in the table of counts: these and `side.state.pmode`, the kind of work, the channel."""
PURGED_MARK: Final = "inbox.purged"
"""In the same table: the greatest key that was removed from the inbox."""

_MESSAGE: Final = query("message")
_MESSAGES_OF_ID: Final = query("messages_of_id")
_MESSAGES_BY_ID: Final = query("messages_by_id")
_SIGNALS: Final = query("signals")
_EVENTS: Final = query("events")
_JOURNAL: Final = query("journal")
_POSITION: Final = query("position")
_SHIPPED: Final = query("shipped")
_SHIPPED_POSITIONS: Final = query("shipped_positions")
_COUNTS: Final = query("counts")
_NEXT_FREE: Final = query("next_free")
_NEXT_END: Final = query("next_end")
_PARTNERS_SERVED: Final = query("partners_served")
_WORK: Final = query("work")
_OTHERS_WORK: Final = query("others_work")
_PARTNERS: Final = query("partners")
_PARTNER: Final = query("partner")
_NOTICES: Final = query("notices")
_STATE: Final = query("state")
_OFFER: Final = query("offer")
_OLDEST_OFFER: Final = query("oldest_offer")
_COUNT_OF: Final = query("count_of")
_OLDEST_LEASED: Final = query("oldest_leased")
_FRAGMENT_MESSAGES: Final = query("fragment_messages")
_FRAGMENT_IN_STATE: Final = query("fragment_in_state")
_FRAGMENT_STATES: Final = query("fragment_states")


class SqliteReader:
    """The questions of `Reader`.

    Who gives the cursor closes it: as long as it is open, so is the file of the database.
    """

    def __init__(self, cursor: sqlite3.Cursor, node: str, bytes_on_disk: Callable[[], int]) -> None:
        self._cursor = cursor
        self._node = node
        self._bytes_on_disk = bytes_on_disk

    def _rows(self, sql: str, values: Any = ()) -> list[Row]:
        # All at once: a row that is not fetched would hold the snapshot open.
        return self._cursor.execute(sql, values).fetchall()

    def message(self, side: Side, message_id: str) -> Message | None:
        rows = self._rows(_MESSAGE, (side._value_, *columns(message_id)))
        return message_of(rows[0]) if rows else None

    def messages_of_id(self, side: Side, message_id: str) -> list[Message]:
        return [message_of(row) for row in self._rows(_MESSAGES_OF_ID, (side._value_, message_id))]

    def messages_by_id(self, side: Side, ids: Collection[str]) -> dict[str, Message]:
        rows = self._rows(_MESSAGES_BY_ID, (side._value_, json.dumps(list(ids))))
        return {one.message_id: one for one in map(message_of, rows)}

    def messages(self, wanted: Wanted) -> list[Message]:
        return [message_of(row) for row in lists.found(self._cursor, wanted)]

    def total(self, wanted: Wanted, most: int) -> Total:
        return lists.total(self._cursor, wanted, most)

    def inbox(self) -> Extent:
        newest = self.messages(Wanted(Side.RECEIVING, INBOX, limit=1, newest_first=True))
        purged = self._counts().get(PURGED_MARK, 0)
        last = max([purged, *(message.key for message in newest)])
        return Extent(self._position()[0], last, purged)

    def signals(self, side: Side, message_id: str) -> list[Signal]:
        return [signal_of(row) for row in self._rows(_SIGNALS, (message_id, side._value_))]

    def events(self, message_id: str) -> list[Recorded]:
        return [recorded_of(row, self._node) for row in self._rows(_EVENTS, (message_id,))]

    def journal(self, after: int, limit: int, epoch: int | None = None) -> list[Recorded]:
        if epoch is None:
            epoch = self._position()[0]
        rows = self._rows(_JOURNAL, ((epoch << SEQ_BITS) + after, limit))
        return [recorded_of(row, self._node) for row in rows]

    def shipped(self, target: str) -> Shipped:
        rows = self._rows(_SHIPPED, (target,))
        return Shipped(*rows[0]) if rows else Shipped(target)

    def shipped_positions(self) -> list[Shipped]:
        return [Shipped(*row) for row in self._rows(_SHIPPED_POSITIONS)]

    def beginning(self, message_id: str) -> bytes | None:
        return refused_rows.beginning_of(self._cursor, message_id)

    def fragment_group(self, sender: str, group_id: str) -> StoredGroup | None:
        return fragment_rows.group_of(self._cursor, sender, group_id)

    def transfer(self, sender: str, path: str, name: str) -> StoredTransfer | None:
        return transfer_rows.transfer_of(self._cursor, sender, path, name)

    def held(self, partner: str | None = None) -> Held:
        return transfer_rows.held(self._cursor, partner)

    def fragment(self, sender: str, group_id: str, number: int) -> StoredFragment | None:
        return fragment_rows.fragment_of(self._cursor, sender, group_id, number)

    def fragments(self, sender: str, group_id: str) -> list[StoredFragment]:
        return fragment_rows.fragments_of(self._cursor, sender, group_id)

    def fragment_messages(self, side: Side, part_of: str, after: int, limit: int) -> list[Message]:
        values = (side._value_, part_of, after, limit)
        return [message_of(row) for row in self._rows(_FRAGMENT_MESSAGES, values)]

    def fragment_states(self, side: Side, part_of: str) -> dict[State, int]:
        rows = self._rows(_FRAGMENT_STATES, (side._value_, part_of))
        return {State(state): count for state, count in rows}

    def any_fragment(self, side: Side, part_of: str, states: Collection[State]) -> bool:
        values = [(side._value_, part_of, state._value_) for state in states]
        return any(self._rows(_FRAGMENT_IN_STATE, one) for one in values)

    def fragment_groups(self, sender: str | None, limit: int) -> list[StoredGroup]:
        return fragment_rows.gathering(self._cursor, sender, limit)

    def bytes_to_come(self) -> int:
        return self._count_of(TO_COME_COUNT)

    def figures(self) -> Figures:
        counts = {name: count for name, count in self._counts().items() if count > 0}
        work = _below(WORK_COUNT, counts)
        agreements: dict[tuple[str, str, str], int] = {}
        messages: Counter[str] = Counter()
        for name, count in _below(MESSAGE_COUNT, counts).items():
            side, state, agreed_by = name.split(".", 2)
            agreements[side, state, agreed_by] = count
            messages[f"{side}.{state}"] += count
        return Figures(
            messages=dict(messages),
            agreements=agreements,
            work=work,
            offers=_below(OFFERED_COUNT, counts),
            oldest_work=self._oldest_work(work),
            last_seq=self._position()[1],
            bytes=counts.get(BYTES_COUNT, 0) + self._bytes_on_disk(),
        )

    def _counts(self) -> dict[str, int]:
        return dict(self._rows(_COUNTS))

    def _position(self) -> tuple[int, int]:
        epoch, seq = self._rows(_POSITION)[0]
        return epoch, seq

    def _oldest_work(self, kinds: Collection[str]) -> datetime | None:
        times = [
            row[0]
            for kind in kinds
            for sql in (_NEXT_FREE, _OLDEST_LEASED)
            for row in self._rows(sql, (kind,))
            if row[0] is not None and row[0] < LATER
        ]
        return time_of(min(times)) if times else None

    def due_by_kind(
        self, kinds: Collection[str], without: Collection[str] = ()
    ) -> dict[str, datetime]:
        found = {}
        for kind in kinds:
            times = [row[0] for row in self._rows(_NEXT_END, (kind,))]
            if without:
                times += [due for _, due in self._served(kind, without)]
            else:
                times += [row[0] for row in self._rows(_NEXT_FREE, (kind,))]
            due = min(times, default=LATER)
            if due < LATER:
                found[kind] = time_of(due)
        return found

    def _served(self, kind: str, without: Collection[str]) -> list[Row]:
        """The partners for whom there is work, and when it is due."""
        rows = self._rows(_PARTNERS_SERVED, {"kind": kind})
        return [row for row in rows if is_served(row[0], without)]

    def work(self, id: int) -> Work | None:
        return next(map(_work_of, self._rows(_WORK, (id,))), None)

    def others_work(
        self, kind: str, owner: str, most: int, *, after: int = 0, before: int = 0
    ) -> list[Work]:
        values = {"kind": kind, "owner": owner, "most": most, "after": after, "before": before}
        return [_work_of(row) for row in self._rows(_OTHERS_WORK, values)]

    def partners(self) -> list[Partner]:
        return [partner_of(row) for row in self._rows(_PARTNERS)]

    def partner(self, name: str) -> Partner:
        rows = self._rows(_PARTNER, (name,))
        return partner_of(rows[0]) if rows else Partner(name)

    def notices(self, after: int, limit: int) -> list[Notice]:
        return [notice_of(row) for row in self._rows(_NOTICES, (after, limit))]

    def state(self, name: str) -> bytes | None:
        rows = self._rows(_STATE, (name,))
        return rows[0][0] if rows else None

    def offer(self, message_id: str) -> Offer | None:
        rows = self._rows(_OFFER, (message_id,))
        return offer_of(rows[0]) if rows else None

    def queue(self, channel: str) -> Queue:
        oldest = self._rows(_OLDEST_OFFER, (channel,))
        count = self._count_of(OFFER_COUNT + channel)
        return Queue(count, time_of(oldest[0][0]) if oldest else None)

    def load(self, account: str) -> Load:
        return Load(self._count_of(LOAD_COUNT + account), self._count_of(LOAD_BYTES + account))

    def _count_of(self, name: str) -> int:
        rows = self._rows(_COUNT_OF, (name,))
        return rows[0][0] if rows else 0


def _below(prefix: str, counts: dict[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count
        for name, count in counts.items()
        if name.startswith(prefix)
    }


def _work_of(row: Row) -> Work:
    """As it stands, whoever has it."""
    *given, owner, lease_until = row
    until = None if lease_until is None else time_of(lease_until)
    return work_of((*given, None), owner, until)
