"""One segment: how it is named, what it says of itself, that it is there whole or not at all."""

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.store.journal_columns import COLUMNS
from postroad.store.places import Place, Written
from postroad.store.segments import (
    ROW_GROUP,
    NotASegment,
    SegmentExists,
    read_footer,
    segment_name,
    write_segment,
)
from tests.store import segments_read as read

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(first: int, count: int, **columns: Any) -> pa.Table:
    """Heartbeats, as few columns as they have."""
    given = {
        "node": ["station"] * count,
        "epoch": pa.array([1] * count, pa.int32()),
        "seq": list(range(first, first + count)),
        "at": [NOON + timedelta(seconds=n) for n in range(count)],
        "party": ["us"] * count,
        "event": ["heartbeat"] * count,
        **columns,
    }
    return pa.table(given)


def write(folder: Path, first: int = 1, count: int = 3, previous: str = "", **columns: Any) -> Path:
    table = rows(first, count, **columns)
    return Path(write_segment(folder, table, node="station", epoch=1, previous=previous).path)


def test_a_segment_has_all_columns_in_order_and_absent_ones_are_null(tmp_path: Path) -> None:
    table = pq.ParquetFile(write(tmp_path)).read()
    assert table.schema.equals(COLUMNS)
    assert table["message_id"].null_count == 3
    assert table["seq"].to_pylist() == [1, 2, 3]


def test_a_segment_says_whose_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, previous="ab" * 32)
    said = read.said(path)
    assert {name: value for name, value in said.items() if name.startswith("postroad.")} == {
        "postroad.schema": "1",
        "postroad.node": "station",
        "postroad.epoch": "1",
        "postroad.previous": "ab" * 32,
    }
    found = read_footer(Place.of(tmp_path), str(path.relative_to(tmp_path)))
    assert (found.node, found.epoch, found.previous, found.rows) == ("station", 1, "ab" * 32, 3)


def test_what_is_said_of_a_written_segment_is_true(tmp_path: Path) -> None:
    table = rows(41, 7)
    written = write_segment(tmp_path, table, node="station", epoch=1, previous="")
    path = Path(written.path)
    assert path == tmp_path / written.name
    assert written.digest == read.digest(path)
    assert (written.first_seq, written.last_seq, written.rows) == (41, 47, 7)
    assert written.bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("node", "at", "name"),
    [
        ("a", NOON, "date=2026-03-01/a-2-00000000000000000042.parquet"),
        ("_a", NOON, "date=2026-03-01/%5Fa-2-00000000000000000042.parquet"),
        ("a/b", NOON, "date=2026-03-01/a%2Fb-2-00000000000000000042.parquet"),
        (
            "a",
            datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            "date=2026-02-28/a-2-00000000000000000042.parquet",
        ),
    ],
    ids=["plain", "not hidden", "no path", "the day of UTC"],
)
def test_a_segment_is_named_by_its_first_event(node: str, at: datetime, name: str) -> None:
    assert segment_name(node, 2, 42, at) == name


def test_a_segment_is_never_replaced(tmp_path: Path) -> None:
    path = write(tmp_path)
    before = path.read_bytes()
    with pytest.raises(SegmentExists, match="never change"):
        write(tmp_path, count=4)
    assert path.read_bytes() == before


def test_batches_of_any_size_make_row_groups_of_one_size(tmp_path: Path) -> None:
    table = rows(1, ROW_GROUP + 5000)
    batches = [*table[:10].to_batches(), *table[10:].to_batches(max_chunksize=999)]
    written = write_segment(tmp_path, iter(batches), node="station", epoch=1, previous="")
    found = pq.read_metadata(written.path)
    assert found.num_row_groups == 2
    assert found.row_group(0).num_rows == ROW_GROUP
    assert pq.ParquetFile(written.path).read()["seq"].to_pylist() == table["seq"].to_pylist()
    assert found.row_group(0).column(0).compression == "ZSTD"


def test_there_is_no_empty_segment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one event"):
        write(tmp_path, count=0)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_fails_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(1, ROW_GROUP).to_batches()
        raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="gone"):
        write_segment(tmp_path, batches(), node="station", epoch=1, previous="")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("full_after", [0, 100, 4000])
def test_a_full_disk_is_told_as_such_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_after: int
) -> None:
    original = Written.write

    def filling(self: Written, chunk: Any) -> int:
        if self.size + memoryview(chunk).nbytes > full_after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(Written, "write", filling)
        with pytest.raises(OSError, match="No space left") as told:
            write(tmp_path, count=3000)
        assert told.value.errno == errno.ENOSPC
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    write(tmp_path, count=3000)


def test_a_segment_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    rename, fsync = Path.rename, os.fsync

    def flushed(fd: int) -> None:
        done.append(f"fsync {Path(f'/proc/self/fd/{fd}').readlink().name}")
        fsync(fd)

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"rename {path.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    path = write(tmp_path / "journal")
    assert done == [
        f"fsync .{path.name}",
        f"rename .{path.name}",
        "fsync date=2026-03-01",
        "fsync journal",
        f"fsync {tmp_path.name}",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no whole Parquet file"),
        (b"PAR1 and more that is not PAR1", "no whole Parquet file"),
        ("truncated", "no whole Parquet file"),
        ("stranger", "no segment of a journal"),
        ("version", "its schema is '2'"),
        ("column", "its column seq is string"),
        ("missing", "it has no column party"),
    ],
)
def test_what_is_no_segment_is_told_why(tmp_path: Path, content: bytes | str, why: str) -> None:
    path = tmp_path / "x.parquet"
    meta = {"postroad.schema": "1", "postroad.node": "a", "postroad.epoch": "1"}
    meta["postroad.previous"] = ""
    table = rows(1, 3)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "truncated":
        path.write_bytes(write(tmp_path).read_bytes()[:-9])
    elif content == "stranger":
        pq.write_table(table, path)
    elif content == "version":
        pq.write_table(table.replace_schema_metadata(meta | {"postroad.schema": "2"}), path)
    elif content == "column":
        seq = pa.array(["1", "2", "3"])
        table = table.set_column(2, "seq", seq)
        pq.write_table(table.replace_schema_metadata(meta), path)
    else:
        pq.write_table(table.drop(["party"]).replace_schema_metadata(meta), path)
    with pytest.raises(NotASegment, match=why):
        read_footer(Place.of(tmp_path), "x.parquet")
