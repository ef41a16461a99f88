"""What a store leaves behind."""

import contextlib
import sqlite3
from pathlib import Path


def assert_nothing_is_left_over(folder: Path) -> None:
    """Every file of a closed store is named by a row, and is as long as the row says."""
    with contextlib.closing(sqlite3.connect(folder / "postroad.db")) as database:
        named = dict(
            database.execute(
                "SELECT place, bytes FROM segments UNION ALL SELECT place, size FROM files"
            )
        )
        assert database.execute("SELECT count(*) FROM trash").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM segments WHERE open").fetchone() == (0,)
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    there = {
        path.name: path.stat().st_size
        for kind in ("segments", "payloads")
        for path in (folder / kind).rglob("*")
        if path.is_file()
    }
    assert there == named
    assert list((folder / "incoming").iterdir()) == []
