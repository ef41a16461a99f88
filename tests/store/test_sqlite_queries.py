"""The named queries: each has a sentence, is used, and finds its rows by an index."""

import asyncio
import contextlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.store.lists import list_query, total_query
from postroad.store.queries import migrations, queries
from postroad.store.sqlite import open_sqlite
from tests.conftest import PROJECT

STORE = PROJECT / "src" / "postroad" / "store"
SMALL_TABLES = {"node", "counts", "trash", "migrations", "partners", "shipped"}
ALLOWED = {
    "release_work": {"SCAN work USING COVERING INDEX work_leased"},
    "expired_work": {"USE TEMP B-TREE FOR ORDER BY"},
    "others_work": {"USE TEMP B-TREE FOR ORDER BY"},
    "shift_work": {"SCAN work"},
    "shift_offers": {"SCAN offers USING INDEX offer_handed_out"},
    "partners_served": {"SCAN served"},
    "first_selected_offers": {"SCAN other VIRTUAL TABLE INDEX 1:", "SCAN first"},
    "combine_offers": {"SCAN other VIRTUAL TABLE INDEX 1:"},
    "held_transfers": {"SCAN transfers USING INDEX transfer_by_partner"},
    "release_transfers": {"SCAN transfers"},
    "transfers_done": {"SCAN transfers USING INDEX transfer_done"},
    "messages_by_id": {"SCAN json_each VIRTUAL TABLE INDEX 1:"},
    "finish_works": {"SCAN json_each VIRTUAL TABLE INDEX 1:"},
    "total": {"SCAN messages", "SCAN (subquery-1)"},
}
"""Scans of what is claimed at the moment, sorting of what others claimed or left behind, what
the clock does to everything, so many messages at most, one row for each partner, the items of a
selection, given ids, and uploads, of which a node keeps only so many."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    folder = tmp_path_factory.mktemp("store")

    async def make() -> None:
        await (await open_sqlite(folder, "station")).close()

    asyncio.run(make())
    with contextlib.closing(sqlite3.connect(folder / "postroad.db")) as database:
        yield database


WHOLE = sorted(name for name in queries() if not name.startswith("range_"))


@pytest.mark.parametrize("name", WHOLE)
def test_a_query_scans_no_large_table(database: sqlite3.Connection, name: str) -> None:
    sql = queries()[name]
    if sql.startswith("CREATE"):
        return
    plan = _plan(database, sql)
    slow = {
        line
        for line in plan - ALLOWED.get(name, set())
        if "TEMP B-TREE" in line
        or (line.startswith("SCAN") and line.split()[1] not in {*SMALL_TABLES, "CONSTANT"})
    }
    assert slow == set()


def _plan(database: sqlite3.Connection, sql: str) -> set[str]:
    values: object = (None,) * sql.count("?")
    if "?" not in sql:
        values = defaultdict(lambda: None)
    return {row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("range_of_state", "message_by_state (side=? AND state=?"),
        ("range_of_error", "message_by_error (error_code=? AND side=? AND state=?"),
        ("range_of_receiver", "message_by_receiver (to_party=? AND side=? AND state=?"),
        ("range_of_sender", "message_by_sender (from_party=? AND side=? AND state=?"),
    ],
)
def test_a_range_of_a_list_is_that_of_an_index_in_its_order(
    database: sqlite3.Connection, name: str, index: str
) -> None:
    within = queries()[name]
    forms = [list_query(within, newest_first=newest) for newest in (False, True)]
    for sql in (*forms, total_query(within)):
        plan = _plan(database, sql)
        assert any(f"USING INDEX {index}" in line for line in plan), plan
        assert not any("TEMP B-TREE" in line for line in plan)


def test_every_query_has_a_sentence_and_is_used() -> None:
    assert ALLOWED.keys() <= queries().keys()
    text = (STORE / "sql" / "queries.sql").read_text()
    code = "".join(path.read_text() for path in STORE.glob("*.py"))
    for name in queries():
        assert re.search(rf"^-- name: {name}\n-- [A-Z].*\.$", text, re.MULTILINE), name
        assert f'query("{name}")' in code, name


def test_there_is_no_sql_in_code() -> None:
    """Beside pragmas and the words that begin and end transactions."""
    sql = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\b [\w*(]")
    guilty = [path.name for path in STORE.glob("*.py") if sql.search(path.read_text())]
    assert guilty == []


def test_migrations_are_numbered_without_holes_and_recorded(database: sqlite3.Connection) -> None:
    assert [one.number for one in migrations()] == list(range(1, len(migrations()) + 1))
    recorded = database.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()
    assert recorded == [(one.number, one.name) for one in migrations()]


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    from postroad.store.opening import connect, migrate
    from postroad.store.queries import Migration

    path = tmp_path / "postroad.db"
    last = len(migrations())
    wrong = Migration(last + 1, "wrong.sql", "CREATE TABLE more (x);\nCREATE TABLE node (y);\n")
    with contextlib.closing(connect(path)) as database:
        migrate(database, path, migrations())
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            migrate(database, path, (*migrations(), wrong))
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert "more" not in names
        assert database.execute("SELECT max(number) FROM migrations").fetchall() == [(last,)]
        right = Migration(last + 1, "right.sql", "CREATE TABLE more (x);\n")
        migrate(database, path, (*migrations(), right))
        migrate(database, path, (*migrations(), right))
        assert database.execute("SELECT max(number) FROM migrations").fetchall() == [(last + 1,)]


def test_the_database_is_durable_at_every_commit(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        database = store._writer._database
        assert database.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        assert database.execute("PRAGMA synchronous").fetchall() == [(2,)]
        await store.close()

    asyncio.run(story())
