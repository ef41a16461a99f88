"""Databases that older versions have made: what is in them is found again."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from postroad.store.interface import Store
from postroad.store.opening import DATABASE, connect, migrate, transaction
from postroad.store.qualified import qualified_id
from postroad.store.queries import migrations
from postroad.store.records import Message, Stored, Wanted
from postroad.store.rows import message_changes, microseconds
from postroad.store.sqlite import open_sqlite
from tests.changing import replace
from tests.store.samples import START, after, full_message, message
from tests.store.stories import due, finish, found, kept_work, listed, taken

PLACE = "s0123456789ab-1"
FULL_DETAILS = """\
{"leg":2,"kind":"fragment","protocol":"ebms3","party":"urn:x::us",\
"ref_to_message_id":"before@there","from_role":"buyer","to_role":"seller","mpc":"urn:mpc",\
"agreement":"a-1","properties":[["one","1",null],["two","2","string"]],"attempts":3,\
"bytes":1234567890123,"wire_bytes":17,"payload_digests":["sha256:00","sha256:ff"],\
"envelope":{"place":"s0123456789ab-1","offset":0,"size":8},"soap":"1.1","boundary":"edge",\
"seal":{"algorithm":"urn:aes","key":"AP8ga2V5","ivs":["AQ==","/g=="]},\
"parts":[{"content_id":"p1@here","media_type":"text/xml","size":10,\
"sha256":"abababababababababababababababababababababababababababababababab",\
"stored":{"place":"s0123456789ab-1","offset":8,"size":4},"wire_type":"application/gzip",\
"compressed":true,"properties":[["MimeType","text/xml",null]],"file_name":"ü.xml"},\
{"content_id":null,"media_type":"application/xml","size":1,\
"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",\
"stored":{"place":"s0123456789ab-1","offset":8,"size":4},"wire_type":"application/xml",\
"compressed":false,"properties":[],"file_name":null}],"fingerprint":"ffffffff",\
"peer":"10.0.0.1","error_code":"EBMS:0004","detail":"what was \u2028 wrong"}"""
"""Of `full_message`, as the first schema had it: without what has a column of its own."""


def old_messages() -> list[Message]:
    full = full_message(Stored(PLACE, 0, 8), Stored(PLACE, 8, 4))
    new = (
        *("tries", "unanswered", "first_sent_at", "last_sent_at"),
        *("due_at", "decided_by", "timer", "anew", "anew_at", "channel"),
        *("transport", "sequence_number", "best_effort", "signal"),
        *("reply_message_id", "late"),
        *("route", "hop", "stations", "copies", "accounts", "bundle", "expires_at"),
        *("part_of", "fragment", "fragments", "split"),
        *("unproven", "beginning", "envelope_bytes"),
    )
    names = {"from_party": 'the "us" \\ /', "to_party": "tab\t\u2028ü😀", "conversation_id": ""}
    times = [
        START.replace(microsecond=0),
        START.replace(microsecond=1),
        START.replace(microsecond=999_999),
        START.replace(year=1970, month=1, day=1, hour=0, microsecond=7),
        START.replace(year=2024, month=2, day=29, hour=23, minute=59, second=59, microsecond=10),
    ]
    return [
        message("full@here", to_party="other"),
        replace(full, **{name: getattr(message(), name) for name in new}),
        message('odd "name"@here', **names),
        *[message(f"t{n}", created_at=at, updated_at=at) for n, at in enumerate(times)],
    ]


def message_row(one: Message) -> tuple[Any, ...]:
    return (
        one.side.value,
        one.message_id,
        one.state.value,
        microseconds(one.created_at),
        microseconds(one.updated_at),
        one.pmode,
        one.from_party,
        one.to_party,
        one.service,
        one.action,
        one.conversation_id,
        (FULL_DETAILS if one.seal else '{"soap":"1.2"}').encode(),
    )


def work_row(kind: str, message_id: str, due: float = 0, **claim: Any) -> tuple[Any, ...]:
    owner, until = claim.get("owner"), claim.get("lease_until")
    at = microseconds(after(due))
    return kind, message_id, at, b"data", 2, owner, None if until is None else microseconds(until)


def old_database(
    folder: Path,
    messages: Iterable[Message] = (),
    work: Iterable[tuple[Any, ...]] = (),
) -> sqlite3.Connection:
    """A database of the first schema, with rows as they were written then."""
    folder.mkdir(exist_ok=True)
    database = connect(folder / DATABASE)
    migrate(database, folder / DATABASE, migrations()[:1])
    with transaction(database):
        database.executemany(
            "INSERT INTO messages (side, message_id, state, created_at, updated_at, pmode,"
            " from_party, to_party, service, action, conversation_id, details)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            map(message_row, messages),
        )
        database.executemany(
            "INSERT INTO work (kind, message_id, due_at, data, attempt, owner, lease_until)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            work,
        )
    return database


def tell(folder: Path, story: Callable[[Store], Awaitable[None]]) -> None:
    async def told() -> None:
        store = await open_sqlite(folder, "station")
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(told())


def test_messages_of_the_first_schema_read_back_exactly(tmp_path: Path) -> None:
    given = old_messages()
    old_database(tmp_path, given).close()

    async def story(store: Store) -> None:
        kept = await store.look(lambda reader: reader.messages(Wanted()))
        assert [one.key for one in kept] == list(range(1, len(given) + 1))
        assert [replace(one, key=0) for one in kept] == given
        for one in kept:
            assert await found(store, one.message_id, one.side) == one

    tell(tmp_path, story)


def test_messages_of_the_first_schema_can_be_changed(tmp_path: Path) -> None:
    [_, given, *_] = old_messages()
    old_database(tmp_path, [given]).close()

    async def story(store: Store) -> None:
        changes = {"to_party": None, "tries": 2, "first_sent_at": after(7)}
        assert await store.run(
            lambda tx: tx.change_message(given.side, given.message_id, [given.state], **changes)
        )
        [kept] = await store.look(lambda reader: reader.messages(Wanted()))
        assert replace(kept, key=0) == replace(given, **changes)
        assert await listed(store, to_party=given.to_party) == []

    tell(tmp_path, story)


def test_work_of_the_first_schema_knows_its_partner(tmp_path: Path) -> None:
    rows = [
        work_row("send", "full@here"),
        work_row("package", "full@here", owner="gone", lease_until=after(60)),
        work_row("signal", "full@here"),
        work_row("send", "unknown@here"),
        work_row("send", "t0"),
    ]
    old_database(tmp_path, old_messages(), rows).close()

    async def story(store: Store) -> None:
        kept = [await kept_work(store, id) for id in range(1, len(rows) + 1)]
        assert [one.partner for one in kept] == ["urn:x::them", "urn:x::them", "", "", ""]
        assert all((one.lane, one.data, one.attempt) == (None, b"data", 2) for one in kept)
        assert all(one.due_at == START for one in kept)
        assert (kept[1].owner, kept[1].lease_until) == ("gone", after(60))
        served = await taken(store, without=["urn:x::them"])
        assert [one.id for one in served] == [3, 4, 5]

    tell(tmp_path, story)


def test_notifications_of_the_first_schema_stay_in_order(tmp_path: Path) -> None:
    rows = [
        work_row("notify", "a", 5, owner="gone", lease_until=after(60)),
        work_row("notify", "a", 1),
        work_row("notify", "b", 9),
        work_row("notify", "a", 0),
    ]
    old_database(tmp_path, (), rows).close()

    async def story(store: Store) -> None:
        kept = [await kept_work(store, id) for id in (1, 2, 3, 4)]
        assert [one.due_at for one in kept] == [after(5), after(1), after(9), after(0)]
        assert [one.lane for one in kept] == ["notify:a", "notify:a", "notify:b", "notify:a"]
        assert await due(store) == after(9)
        assert [one.id for one in await taken(store, now=59)] == [3]
        for id in (1, 2, 4):
            assert [one.id for one in await taken(store, now=60, lease=999)] == [id]
            await finish(store, id)

    tell(tmp_path, story)


def test_messages_of_the_schema_before_senders_are_the_first_of_their_ids(tmp_path: Path) -> None:
    before = [one for one in migrations() if one.number < 14]
    database = connect(tmp_path / DATABASE)
    migrate(database, tmp_path / DATABASE, before)
    known = message("m1@here", from_party="urn:x::them", part_of=None)
    *changes, _error_code, details = message_changes(known)
    changes.append(details)
    with transaction(database):
        database.execute(
            "INSERT INTO messages (side, message_id, part_of, state, created_at, updated_at, pmode,"
            " from_party, to_party, service, action, conversation_id, details)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (known.side.value, known.message_id, None, *changes),
        )
    database.close()

    async def story(store: Store) -> None:
        assert not await store.run(lambda tx: tx.add_message(message("m1@here")))
        second = message(qualified_id("m1@here", "urn:x::others"))
        assert await store.run(lambda tx: tx.add_message(second))
        kept = await store.look(lambda reader: reader.messages_of_id(known.side, "m1@here"))
        assert [replace(one, key=0) for one in kept] == [known, second]
        assert await found(store, "m1@here") == kept[0]

    tell(tmp_path, story)


def test_messages_of_the_schema_before_are_found_by_error_and_partner_and_counted(
    tmp_path: Path,
) -> None:
    full = old_messages()[1]
    old_database(tmp_path, old_messages()).close()

    async def story(store: Store) -> None:
        assert await listed(store, error_code="EBMS:0004") == [full.message_id]
        assert await listed(store, partner=full.to_party) == [full.message_id]
        figures = await store.look(lambda reader: reader.figures())
        place = (full.side.value, full.state.value, full.agreed_by)
        assert figures.agreements[place] == 1
        assert sum(figures.messages.values()) == len(old_messages())

    tell(tmp_path, story)


def test_groups_of_fragments_that_were_under_way_are_found_by_their_pmode(tmp_path: Path) -> None:
    database = connect(tmp_path / DATABASE)
    migrate(database, tmp_path / DATABASE, migrations()[:12])
    details = b'{"group":{"sender":"us","group_id":"g 1"},"pmode":"orders","leg":1,"work":7}'
    with transaction(database):
        database.execute(
            "INSERT INTO fragment_groups (sender, group_id, changed_at, to_come, details)"
            " VALUES ('us', 'g 1', 0, 5, ?)",
            (details,),
        )
        for data in (b'{"sender":"us","group_id":"g 1"}', b'{"sender":"us","group_id":"gone"}'):
            database.execute(
                "INSERT INTO work (kind, message_id, due_at, data, attempt) VALUES (?, ?, ?, ?, ?)",
                ("join", "m", microseconds(START), data, 0),
            )
    database.close()

    async def story(store: Store) -> None:
        group = await store.look(lambda reader: reader.fragment_group("us", "orders/1\ng 1"))
        assert group is not None
        assert json.loads(group.details)["group"]["space"] == "orders/1"
        works = [json.loads((await kept_work(store, id)).data) for id in (1, 2)]
        assert [one["group_id"] for one in works] == ["orders/1\ng 1", "gone"]

    tell(tmp_path, story)


def test_the_migration_takes_no_longer_for_each_row_of_many(tmp_path: Path) -> None:
    def instructions(rows: int) -> int:
        """In hundreds."""
        folder = tmp_path / str(rows)
        messages = [message(f"m{n}", to_party="them") for n in range(rows)]
        work = [work_row(kind, one.message_id) for one in messages for kind in ("send", "notify")]
        with contextlib.closing(old_database(folder, messages, work)) as database:
            spent = 0

            def count() -> int:
                nonlocal spent
                spent += 1
                return 0

            database.set_progress_handler(count, 100)
            migrate(database, folder / DATABASE, migrations())
            return spent

    assert instructions(2000) <= 12 * instructions(200)
