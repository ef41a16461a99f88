"""One step in the SQLite database."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

from msgspec.structs import astuple
from msgspec.structs import replace as changed

from postroad.reliability.breaker import is_of, is_served
from postroad.store import fragment_rows, offer_rows, refused_rows, transfer_rows
from postroad.store.fragments import StoredFragment, StoredGroup, compressed_form, with_fragments
from postroad.store.group import Group
from postroad.store.interface import Place
from postroad.store.qualified import columns
from postroad.store.queries import query
from postroad.store.reading import (
    BYTES_COUNT,
    LOAD_BYTES,
    LOAD_COUNT,
    MESSAGE_COUNT,
    OFFER_COUNT,
    OFFERED_COUNT,
    PURGED_MARK,
    REFUSED_BYTES,
    TO_COME_COUNT,
    WORK_COUNT,
    SqliteReader,
)
from postroad.store.records import (
    INBOX,
    WAITS,
    Event,
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
from postroad.store.rows import (
    LATER,
    PARTNER,
    SEQ_BITS,
    Row,
    advanced,
    event_row,
    message_changes,
    message_details,
    message_of,
    message_row,
    microseconds,
    notice_row,
    offer_of,
    offer_row,
    partner_row,
    signal_row,
    work_of,
    work_row,
)
from postroad.store.transfers import StoredTransfer
from postroad.wire.content import Content

_ADD_MESSAGE: Final = query("add_message")
_MESSAGE: Final = query("message")
_CHANGE_MESSAGE: Final = query("change_message")
_MESSAGES_AS_KEPT: Final = query("messages_by_id")
_ADVANCE_MESSAGE: Final = query("advance_message")
_FINISH_WORKS: Final = query("finish_works")
_TO_PURGE: Final = query("messages_to_purge")
_REMOVE_MESSAGE: Final = query("remove_message")
_RAISE_MARK: Final = query("raise_mark")
_CHANGE_SIGNAL: Final = query("change_signal")
_REMOVE_SIGNALS: Final = query("remove_signals")
_ADD_WORK: Final = query("add_work")
_LAST_NUMBER: Final = query("last_number")
_CLAIM_WORK: Final = query("claim_work")
_FREE_WORK: Final = query("free_work")
_FREE_WORK_OF_PARTNER: Final = query("free_work_of_partner")
_EXPIRED_WORK: Final = query("expired_work")
_ENDED_WORK: Final = query("ended_work")
_EXPIRE_WORK: Final = query("expire_work")
_LANE_IS_TAKEN: Final = query("lane_is_taken")
_STANDS_BEHIND: Final = query("stands_behind")
_WAKE_LANE: Final = query("wake_lane")
_WAKE_WORK: Final = query("wake_work")
_TURN_WORK: Final = query("turn_work")
_SHIFT_WORK: Final = query("shift_work")
_SET_PARTNER: Final = query("set_partner")
_REMOVE_PARTNER: Final = query("remove_partner")
_ADD_NOTICE: Final = query("add_notice")
_REMOVE_NOTICE: Final = query("remove_notice")
_REMOVE_NOTICES: Final = query("remove_notices")
_SET_STATE: Final = query("set_state")
_REMOVE_STATE: Final = query("remove_state")
_FORGET_STATES: Final = query("forget_states")
_ADD_OFFER: Final = query("add_offer")
_POSTPONE_OFFER: Final = query("postpone_offer")
_REMOVE_OFFER: Final = query("remove_offer")
_REMOVE_OFFER_ITEMS: Final = query("remove_offer_items")
_SHIFT_OFFERS: Final = query("shift_offers")
_ADD_ONCE: Final = query("add_once")
_FORGET_ONCE: Final = query("forget_once")
_FINISH_WORK: Final = query("finish_work")
_POSTPONE_WORK: Final = query("postpone_work")
_RELEASE_WORK: Final = query("release_work")
_RENEW_WORK: Final = query("renew_work")
_SET_SHIPPED: Final = query("set_shipped")
_REMOVE_SHIPPED: Final = query("remove_shipped")
_REMOVE_EVENTS: Final = query("remove_events")
_ADD_FILE: Final = query("add_file")
_REMOVE_FILE: Final = query("remove_file")
_SHARE_FILE: Final = query("share_file")
_LEAVE_FILE: Final = query("leave_file")
_TOUCH_NODE: Final = query("touch_node")

_FIXED: Final = {"side", "message_id", "key"}


class SqliteTransaction(SqliteReader):
    """The steps of one commit, one after the other."""

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        node: str,
        bytes_on_disk: Callable[[], int],
        group: Group,
    ) -> None:
        super().__init__(cursor, node, bytes_on_disk)
        self._group = group

    def add_message(self, message: Message) -> bool:
        if not self._cursor.execute(_ADD_MESSAGE, message_row(message)).rowcount:
            return False
        self._group.changed = True
        self._count_messages((message,), 1)
        return True

    def add_refused(self, message: Message, beginning: bytes) -> bool:
        if not self.add_message(message):
            return False
        # The rest of a message that was removed in another way is of no use.
        self.drop_beginning(message.message_id)
        self._group.counts[REFUSED_BYTES] += refused_rows.add(self._cursor, message, beginning)
        return True

    def drop_beginning(self, message_id: str) -> None:
        size = refused_rows.remove(self._cursor, message_id)
        if size:
            self._group.changed = True
            self._group.counts[REFUSED_BYTES] -= size

    def purge_refused(self, before: datetime, room: int, limit: int) -> int:
        end = microseconds(before)
        taken = self._count_of(REFUSED_BYTES)
        removed = 0
        for message_id, at, size in refused_rows.oldest(self._cursor, limit):
            if at >= end and taken <= room:
                break
            taken -= size
            removed += 1
            message = self.message(Side.RECEIVING, message_id)
            if message is not None and message.state is State.REJECTED:
                self._remove(message)
            self.drop_beginning(message_id)
        return removed

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
        if not _FIXED.isdisjoint(changes):
            raise ValueError("side, message_id and key of a message never change")
        rows = self._rows(_MESSAGE, (side._value_, *columns(message_id)))
        if not rows:
            return False
        message = message_of(rows[0])
        if message.state not in expected or attempts_were not in (None, message.attempts):
            return False
        after = changed(message, **changes)
        self._group.changed = True
        if after.state is State.DELIVERED and message.state is not State.DELIVERED:
            # Who reads the inbox goes by the key: it must not come behind what was read before.
            self._cursor.execute(_REMOVE_MESSAGE, (message.key,))
            self._cursor.execute(_ADD_MESSAGE, message_row(after))
        else:
            self._cursor.execute(_CHANGE_MESSAGE, (*message_changes(after), message.key))
        self._count_messages((message,), -1)
        self._count_messages((after,), 1)
        return True

    def add_messages(self, messages: Sequence[Message]) -> None:
        rows = [message_row(one) for one in messages]
        self._group.changed = True
        if self._cursor.executemany(_ADD_MESSAGE, rows).rowcount < len(rows):
            raise ValueError("one of the messages is there already")
        self._count_messages(messages, 1)

    def replace_messages(self, pairs: Sequence[tuple[Message, Message]]) -> bool:
        keys: dict[bytes, int] = {}
        for side in {before.side for before, _ in pairs}:
            ids = [before.wire_id for before, _ in pairs if before.side is side]
            rows = self._rows(_MESSAGES_AS_KEPT, (side._value_, json.dumps(ids)))
            keys |= {details: key for key, details in rows}
        values = []
        for before, after in pairs:
            key = keys.get(message_details(before))
            if key is None:
                return False
            values.append(advanced(after, key))
        self._group.changed = True
        self._cursor.executemany(_ADVANCE_MESSAGE, values)
        self._count_messages([before for before, _ in pairs], -1)
        self._count_messages([after for _, after in pairs], 1)
        return True

    def _count_messages(self, messages: Iterable[Message], more: int) -> None:
        counts = self._group.counts
        for one in messages:
            counts[f"{MESSAGE_COUNT}{one.side._value_}.{one.state._value_}.{one.agreed_by}"] += more
            if one.accounts and one.state in WAITS:
                for account in one.accounts:
                    counts[LOAD_COUNT + account] += more
                    counts[LOAD_BYTES + account] += more * one.wire_bytes

    def add_signal(self, signal: Signal) -> None:
        self._group.changed = True
        self._group.signals.append(signal_row(signal))

    def change_signal(self, before: Signal, after: Signal) -> None:
        self._group.changed = True
        index = self.signals(before.side, before.message_id).index(before)
        message_id, side, details, *_ = signal_row(after)
        about = (message_id, side)
        self._cursor.execute(_CHANGE_SIGNAL, (details, *about, *about, index))

    def add_work(self, work: Work) -> int:
        self._group.changed = True
        self._group.counts[WORK_COUNT + work.kind] += 1
        later = work.lane is not None and bool(self._rows(_LANE_IS_TAKEN, (work.lane,)))
        id = self._cursor.execute(_ADD_WORK, work_row(work, later)).lastrowid
        assert id is not None
        return id

    def add_works(self, works: Sequence[Work]) -> list[int]:
        if not works or any(work.lane is not None for work in works):
            return [self.add_work(work) for work in works]
        group = self._group
        group.changed = True
        for work in works:
            group.counts[WORK_COUNT + work.kind] += 1
        self._cursor.executemany(_ADD_WORK, [work_row(work) for work in works])
        # Numbers follow each other, as nobody else writes meanwhile.
        last = self._rows(_LAST_NUMBER)[0][0]
        return list(range(last - len(works) + 1, last + 1))

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
        at = microseconds(now)
        rows: list[Row] = []
        for kind in dict.fromkeys(kinds):
            if partner is None and not without:
                rows += self._rows(_FREE_WORK, (kind, at, limit))
                rows += self._rows(_EXPIRED_WORK, (kind, at, at, limit))
            else:
                rows += self._for_some(kind, at, limit, without, partner)
            if partner is None:
                rows += self._rows(_ENDED_WORK, (kind, at, limit))
        rows = list({row[0]: row for row in rows}.values())
        rows = sorted(rows, key=_due_and_id)[:limit]
        if rows:
            self._group.changed = True
            until = microseconds(lease_until)
            self._cursor.executemany(_CLAIM_WORK, [(owner, until, row[0]) for row in rows])
        return [work_of(row, owner, lease_until) for row in rows]

    def _for_some(
        self, kind: str, at: int, limit: int, without: Collection[str], partner: str | None
    ) -> list[Row]:
        """What is due for one partner, or for all but those that are not served."""
        served = [
            name
            for name, due in self._served(kind, without)
            if due <= at and (partner is None or is_of(name, partner))
        ]
        rows: list[Row] = []
        for name in served:
            rows += self._rows(_FREE_WORK_OF_PARTNER, (kind, name, at, limit))
        # All of them: those who are not served must not take the places of others.
        for row in self._rows(_EXPIRED_WORK, (kind, at, at, -1)):
            name = row[PARTNER]
            if is_served(name, without) and (partner is None or is_of(name, partner)):
                rows.append(row)
        return rows

    def finish_work(self, id: int, owner: str | None = None) -> None:
        for kind, lane in self._rows(_FINISH_WORK, {"id": id, "owner": owner}):
            self._group.changed = True
            self._group.counts[WORK_COUNT + kind] -= 1
            if lane is not None:
                values = {"lane": lane, "finished": id, "later": LATER}
                self._cursor.execute(_WAKE_LANE, values)

    def finish_works(self, ids: Collection[int], owner: str | None = None) -> None:
        values = {"ids": json.dumps(list(ids)), "owner": owner}
        for id, kind, lane in self._rows(_FINISH_WORKS, values):
            self._group.changed = True
            self._group.counts[WORK_COUNT + kind] -= 1
            if lane is not None:
                self._cursor.execute(_WAKE_LANE, {"lane": lane, "finished": id, "later": LATER})

    def postpone_work(
        self,
        id: int,
        due_at: datetime | None,
        data: bytes | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        self._group.changed = True
        due = LATER if due_at is None else self._due(id, due_at)
        values = {"due_at": due, "data": data, "id": id, "owner": owner}
        self._cursor.execute(_POSTPONE_WORK, values)

    def _due(self, id: int, due_at: datetime) -> int:
        """Then, or later when its turn in its lane is still to come."""
        return microseconds(due_at) + (LATER if self._rows(_STANDS_BEHIND, (id,)) else 0)

    def expire_work(self, id: int, expires_at: datetime | None) -> None:
        self._group.changed = True
        at = None if expires_at is None else microseconds(expires_at)
        self._cursor.execute(_EXPIRE_WORK, (at, id))

    def wake_work(self, id: int, due_at: datetime) -> bool:
        woken = self._cursor.execute(_WAKE_WORK, (self._due(id, due_at), id)).rowcount > 0
        self._group.changed |= woken
        return woken

    def turn_work(self, id: int, kind: str, due_at: datetime, partner: str = "") -> None:
        before = self.work(id)
        if before is None:
            return
        self._group.changed = True
        self._cursor.execute(_TURN_WORK, (kind, self._due(id, due_at), partner, id))
        self._group.counts[WORK_COUNT + before.kind] -= 1
        self._group.counts[WORK_COUNT + kind] += 1

    def shift_work(self, back: timedelta) -> None:
        self._group.changed = True
        values = {"back": back // timedelta(microseconds=1), "later": LATER}
        self._cursor.execute(_SHIFT_WORK, values)
        self._cursor.execute(_SHIFT_OFFERS, (values["back"],))

    def set_partner(self, partner: Partner) -> None:
        self._group.changed = True
        if partner.is_well:
            self._cursor.execute(_REMOVE_PARTNER, (partner.name,))
        else:
            self._cursor.execute(_SET_PARTNER, partner_row(partner))

    def add_notice(self, notice: Notice) -> None:
        self._group.changed = True
        self._cursor.execute(_ADD_NOTICE, notice_row(notice))

    def remove_notice(self, id: int) -> bool:
        removed = self._cursor.execute(_REMOVE_NOTICE, (id,)).rowcount > 0
        self._group.changed |= removed
        return removed

    def set_state(self, name: str, value: bytes | None, now: datetime) -> None:
        self._group.changed = True
        if value is None:
            self._cursor.execute(_REMOVE_STATE, (name,))
        else:
            self._cursor.execute(_SET_STATE, (name, microseconds(now), value))

    def forget_states(self, before: datetime, limit: int) -> int:
        gone = self._cursor.execute(_FORGET_STATES, (microseconds(before), limit)).rowcount
        self._group.changed |= gone > 0
        return gone

    def add_offer(self, offer: Offer) -> bool:
        added = self._cursor.execute(_ADD_OFFER, offer_row(offer))
        if not added.rowcount:
            return False
        self._group.changed = True
        self._group.counts[OFFER_COUNT + offer.channel] += 1
        self._group.counts[OFFERED_COUNT + offer.pmode] += 1
        assert added.lastrowid is not None
        place = (offer.channel, offer.pmode)
        offer_rows.add_items(self._cursor, place, added.lastrowid, offer.items)
        return True

    def first_offer(
        self, places: Collection[Place], now: datetime, items: Sequence[str] = ()
    ) -> Offer | None:
        return next(iter(self.first_offers(places, now, items, 1)), None)

    def first_offers(
        self, places: Collection[Place], now: datetime, items: Sequence[str], most: int
    ) -> list[Offer]:
        rows: list[Row] = []
        before = self._cursor.connection.total_changes
        for place in places:
            offer_rows.free(self._cursor, place, now)
            rows += offer_rows.first(self._cursor, place, items, most)
        self._group.changed |= self._cursor.connection.total_changes > before
        return [offer_of(row) for row in sorted(rows)[:most]]

    def postpone_offer(self, message_id: str, due_at: datetime) -> None:
        self._group.changed = True
        self._cursor.execute(_POSTPONE_OFFER, (microseconds(due_at), message_id))

    def remove_offer(self, message_id: str) -> None:
        for id, channel, pmode in self._rows(_REMOVE_OFFER, (message_id,)):
            self._group.changed = True
            self._group.counts[OFFER_COUNT + channel] -= 1
            self._group.counts[OFFERED_COUNT + pmode] -= 1
            self._cursor.execute(_REMOVE_OFFER_ITEMS, (id,))

    def _count_of(self, name: str) -> int:
        """What this commit counted is in the table only when it ends."""
        return super()._count_of(name) + self._group.counts.get(name, 0)

    def first_time(self, name: str, now: datetime, until: datetime) -> bool:
        self._group.changed = True
        self._cursor.execute(_FORGET_ONCE, (microseconds(now),))
        return self._cursor.execute(_ADD_ONCE, (name, microseconds(until))).rowcount > 0

    def renew_work(self, owner: str, ids: Collection[int], lease_until: datetime) -> None:
        until = microseconds(lease_until)
        renewed = self._cursor.executemany(_RENEW_WORK, [(until, id, owner) for id in ids])
        self._group.changed |= renewed.rowcount > 0

    def release_work(self, owner_prefix: str) -> list[Work]:
        rows = sorted(self._rows(_RELEASE_WORK, {"prefix": owner_prefix}), key=_due_and_id)
        self._group.changed |= bool(rows)
        return [work_of(row, None, None) for row in rows]

    def record(self, events: Iterable[Event]) -> None:
        group = self._group
        first = (group.epoch << SEQ_BITS) + group.seq + 1
        rows = [event_row(event, id) for id, event in enumerate(events, first)]
        if rows:
            group.changed = True
            group.seq += len(rows)
            group.events += rows

    def signals(self, side: Side, message_id: str) -> list[Signal]:
        self._group.flush(self._cursor)
        return super().signals(side, message_id)

    def events(self, message_id: str) -> list[Recorded]:
        self._group.flush(self._cursor)
        return super().events(message_id)

    def journal(self, after: int, limit: int, epoch: int | None = None) -> list[Recorded]:
        self._group.flush(self._cursor)
        return super().journal(after, limit, epoch)

    def set_shipped(self, shipped: Shipped) -> None:
        self._group.changed = True
        self._cursor.execute(_SET_SHIPPED, astuple(shipped))

    def forget_shipped(self, target: str) -> bool:
        gone = self._cursor.execute(_REMOVE_SHIPPED, (target,)).rowcount > 0
        self._group.changed |= gone
        return gone

    def purge_events(self, target: str, before: datetime, limit: int) -> int:
        places = [self.shipped(target), *self.shipped_positions()]
        shipped = min((one.epoch, one.seq) for one in places)
        old = [
            one
            for one in takewhile(lambda one: one.event.at < before, self.journal(0, limit, 0))
            if (one.epoch, one.seq) <= shipped
        ]
        if old:
            self._group.changed = True
            last = (old[-1].epoch << SEQ_BITS) + old[-1].seq
            self._cursor.execute(_REMOVE_EVENTS, (last,))
        return len(old)

    def keep(self, content: bytes | Content) -> Stored:
        group = self._group
        group.changed = True
        stored = group.contents.keep(content)
        if stored.size == 0:
            return stored
        group.counts[BYTES_COUNT] += stored.size
        if stored.place.startswith("s"):
            group.kept += 1
        else:
            self._cursor.execute(_ADD_FILE, (stored.place, stored.size))
        return stored

    def share(self, stored: Stored, more: int = 1) -> Stored:
        group = self._group
        group.changed = True
        if stored.place.startswith("s"):
            group.taken[stored.place] = group.taken.get(stored.place, 0) - more
        elif stored.size:
            self._cursor.execute(_SHARE_FILE, (more, stored.place))
        return stored

    def drop(self, stored: Stored) -> None:
        group = self._group
        if stored.size == 0:
            return
        group.changed = True
        if stored.place.startswith("s"):
            group.taken[stored.place] = group.taken.get(stored.place, 0) + 1
            return
        if self._rows(_LEAVE_FILE, (stored.place,)):
            return
        for (size,) in self._rows(_REMOVE_FILE, (stored.place,)):
            group.trash.append(stored.place)
            group.counts[BYTES_COUNT] -= size
            for piece in group.contents.pieces(stored.place):
                self.drop(piece)

    def set_fragment_group(self, group: StoredGroup) -> None:
        self._group.changed = True
        self._group.counts[TO_COME_COUNT] += fragment_rows.set_group(self._cursor, group)

    def add_fragment(self, sender: str, group_id: str, fragment: StoredFragment) -> bool:
        added = fragment_rows.add_fragment(self._cursor, sender, group_id, fragment)
        self._group.changed |= added
        return added

    def remove_fragments(self, sender: str, group_id: str) -> None:
        for fragment in fragment_rows.take_fragments(self._cursor, sender, group_id):
            self.drop(fragment.stored)

    def join_fragments(self, sender: str, group_id: str) -> Stored:
        taken = fragment_rows.take_fragments(self._cursor, sender, group_id)
        if not taken:
            raise ValueError("there are no fragments to join")
        self._group.changed = True
        stored, size = self._group.contents.join([fragment.stored for fragment in taken])
        self._group.counts[BYTES_COUNT] += size
        self._cursor.execute(_ADD_FILE, (stored.place, size))
        return stored

    def remove_fragment_messages(self, side: Side, part_of: str, limit: int) -> list[Message]:
        removed = self.fragment_messages(side, part_of, 0, limit)
        for message in removed:
            self._remove(message)
        return removed

    def forget_fragment_groups(self, before: datetime, limit: int) -> int:
        gone = fragment_rows.forget_groups(self._cursor, before, limit)
        self._group.changed |= gone > 0
        return gone

    def set_transfer(self, transfer: StoredTransfer) -> None:
        self._group.changed = True
        for piece in transfer_rows.set_transfer(self._cursor, transfer):
            self.drop(piece)

    def remove_transfer(self, sender: str, path: str, name: str) -> None:
        pieces = transfer_rows.remove_transfer(self._cursor, sender, path, name)
        self._forget_pieces([pieces] if pieces is not None else [])

    def release_transfers(self, owner_prefix: str) -> None:
        self._group.changed |= transfer_rows.release(self._cursor, owner_prefix) > 0

    def forget_transfers(self, now: datetime, limit: int) -> int:
        gone = transfer_rows.forget(self._cursor, now, limit)
        self._forget_pieces(gone)
        return len(gone)

    def forget_done_transfers(self, most: int) -> None:
        self._forget_pieces(transfer_rows.forget_done(self._cursor, most))

    def _forget_pieces(self, gone: Sequence[Sequence[Stored]]) -> None:
        self._group.changed |= bool(gone)
        for pieces in gone:
            for piece in pieces:
                self.drop(piece)

    def purge(self, before: datetime, states: Collection[State], limit: int) -> list[Message]:
        old: list[Message] = []
        for state in dict.fromkeys(states):
            values = (state._value_, microseconds(before), limit - len(old))
            old += [message_of(row) for row in self._rows(_TO_PURGE, values)]
        removed: list[Message] = []
        for message in old:
            going = with_fragments(self, message, limit - len(removed))
            for one in going:
                self._remove(one)
            removed += going
        return removed

    def remove_received(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._remove(message)

    def _remove(self, message: Message) -> None:
        about = (message.message_id, message.side._value_)
        contents = [part.stored for part in message.parts]
        for signal in self.signals(message.side, message.message_id):
            contents.append(signal.envelope)
            if not signal.incoming:
                self.remove_offer(signal.signal_id)
        if message.envelope is not None:
            contents.append(message.envelope)
        contents += compressed_form(message)
        self._group.changed = True
        self._group.flush(self._cursor)
        self._cursor.execute(_REMOVE_SIGNALS, about)
        if message.unproven:
            self.drop_beginning(message.message_id)
        if message.side is Side.SENDING:
            self._cursor.execute(_REMOVE_NOTICES, (message.message_id,))
        self._cursor.execute(_REMOVE_MESSAGE, (message.key,))
        if message.state in INBOX:
            self._cursor.execute(_RAISE_MARK, (PURGED_MARK, message.key))
        self._count_messages((message,), -1)
        for stored in dict.fromkeys(contents):
            self.drop(stored)

    def touch(self, at: int) -> None:
        """Change something that means nothing, to see whether changes can be made."""
        self._group.changed = True
        self._cursor.execute(_TOUCH_NODE, (at,))


def _due_and_id(row: Row) -> tuple[int, int]:
    id, _, _, due_at, *_ = row
    return due_at, id
