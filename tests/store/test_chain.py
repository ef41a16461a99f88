"""`verify`: what was removed, altered, cut off or put in between is found, and named."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from postroad.store.chain import Finding, Verified, verify
from postroad.store.records import Shipped
from postroad.store.segments import WrittenSegment, write_segment
from tests.store.test_segments import rows


def chain(
    folder: Path, *counts: int, node: str = "station", epoch: int = 1
) -> list[WrittenSegment]:
    """Segments with so many events, one after the other."""
    made: list[WrittenSegment] = []
    for count in counts:
        first = made[-1].last_seq + 1 if made else 1
        table = rows(first, count)
        names = {"node": [node] * count, "epoch": pa.array([epoch] * count, pa.int32())}
        for name, values in names.items():
            table = table.set_column(table.schema.names.index(name), name, pa.array(values))
        previous = made[-1].digest if made else ""
        made.append(write_segment(folder, table, node=node, epoch=epoch, previous=previous))
    return made


def found(folder: Path, **given: Any) -> list[Finding]:
    return list(verify(folder, **given).findings)


def kinds(folder: Path, **given: Any) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in found(folder, **given)]


def test_a_whole_chain_has_no_findings(tmp_path: Path) -> None:
    chain(tmp_path, 3, 2, 4)
    chain(tmp_path, 5, epoch=2)
    chain(tmp_path, 1, node="station-1")
    assert verify(tmp_path) == Verified(segments=5, copies=0, events=15, nodes=2, findings=())


def test_a_folder_without_segments_has_no_findings(tmp_path: Path) -> None:
    assert verify(tmp_path / "nowhere").segments == 0
    (tmp_path / "README").write_text("hello")
    assert verify(tmp_path) == Verified(0, 0, 0, 0, ())


def test_a_copy_of_a_segment_is_counted_and_no_finding(tmp_path: Path) -> None:
    first, *_ = chain(tmp_path, 3, 2)
    copy = tmp_path / "elsewhere" / "again.parquet"
    copy.parent.mkdir()
    copy.write_bytes(Path(first.path).read_bytes())
    assert verify(tmp_path) == Verified(segments=2, copies=1, events=5, nodes=1, findings=())


def test_a_removed_segment_is_found_with_both_neighbours(tmp_path: Path) -> None:
    first, second, third = chain(tmp_path, 3, 2, 4)
    Path(second.path).unlink()
    broken, gap = found(tmp_path)
    assert (broken.kind, broken.subject) == ("chain", third.name)
    assert first.name in broken.detail
    assert (gap.kind, gap.subject) == ("gap", "station epoch 1 seq 4 to 5")
    assert first.name in gap.detail
    assert third.name in gap.detail


def test_a_removed_first_segment_is_found(tmp_path: Path) -> None:
    first, second = chain(tmp_path, 1, 2)
    Path(first.path).unlink()
    assert kinds(tmp_path) == [("chain", second.name), ("gap", "station epoch 1 seq 1")]


def test_an_altered_segment_is_found_by_the_one_after_it(tmp_path: Path) -> None:
    first, second, third = chain(tmp_path, 3, 2, 4)
    Path(second.path).unlink()
    other = rows(4, 2).set_column(4, "party", pa.array(["us", "somebody else"]))
    write_segment(tmp_path, other, node="station", epoch=1, previous=first.digest)
    [finding] = found(tmp_path)
    assert (finding.kind, finding.subject) == ("chain", third.name)
    assert f"{second.name}, which comes before it, was altered" in finding.detail


def test_a_changed_byte_is_found_also_in_the_last_segment(tmp_path: Path) -> None:
    *_, last = chain(tmp_path, 3, 5000)
    whole = Path(last.path).read_bytes()
    for place in range(500, 8000, 1500):
        altered = bytearray(whole)
        altered[place] ^= 0xFF
        Path(last.path).write_bytes(altered)
        assert ("foreign_file", last.name) in kinds(tmp_path), place


def test_a_truncated_segment_is_found(tmp_path: Path) -> None:
    _, second, third = chain(tmp_path, 3, 2, 4)
    path = Path(second.path)
    path.write_bytes(path.read_bytes()[:-50])
    assert kinds(tmp_path) == [
        ("foreign_file", second.name),
        ("chain", third.name),
        ("gap", "station epoch 1 seq 4 to 5"),
    ]


def test_a_foreign_file_is_found_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    chain(tmp_path, 3, 2)
    (tmp_path / "date=2026-03-01" / "notes.parquet").write_text("hello")
    result = verify(tmp_path)
    assert [(one.kind, one.subject) for one in result.findings] == [
        ("foreign_file", "date=2026-03-01/notes.parquet")
    ]
    assert result.segments == 2


def test_what_is_hidden_is_not_data(tmp_path: Path) -> None:
    chain(tmp_path, 3)
    for name in (".half.parquet", "_temporary.parquet"):
        (tmp_path / "date=2026-03-01" / name).write_text("PAR1")
    assert found(tmp_path) == []


def test_a_link_to_another_segment_is_found_with_all_three(tmp_path: Path) -> None:
    first, second = chain(tmp_path, 3, 2)
    third = write_segment(tmp_path, rows(6, 1), node="station", epoch=1, previous=first.digest)
    [finding] = found(tmp_path)
    assert (finding.kind, finding.subject) == ("chain", third.name)
    assert first.name in finding.detail
    assert second.name in finding.detail


def test_a_segment_that_names_none_before_it_is_found(tmp_path: Path) -> None:
    [first] = chain(tmp_path, 3)
    second = write_segment(tmp_path, rows(4, 1), node="station", epoch=1, previous="")
    [finding] = found(tmp_path)
    assert (finding.kind, finding.subject) == ("chain", second.name)
    assert first.name in finding.detail


def test_holes_inside_a_segment_are_found(tmp_path: Path) -> None:
    seqs = pa.array([1, 2, 4, 7, 8], pa.int64())
    table = rows(1, 5).set_column(2, "seq", seqs)
    write_segment(tmp_path, table, node="station", epoch=1, previous="")
    assert kinds(tmp_path) == [
        ("gap", "station epoch 1 seq 3"),
        ("gap", "station epoch 1 seq 5 to 6"),
    ]


def test_events_that_are_told_twice_are_found(tmp_path: Path) -> None:
    [first] = chain(tmp_path, 3)
    again = write_segment(tmp_path, rows(2, 4), node="station", epoch=1, previous=first.digest)
    [finding] = found(tmp_path)
    assert (finding.kind, finding.subject) == ("identity", again.name)
    assert first.name in finding.detail


def test_rows_of_another_node_are_found(tmp_path: Path) -> None:
    written = write_segment(tmp_path, rows(1, 3), node="other", epoch=1, previous="")
    assert kinds(tmp_path) == [("identity", written.name)]


def test_with_what_the_node_has_noted_the_last_segment_cannot_be_removed(tmp_path: Path) -> None:
    *_, last = chain(tmp_path, 3, 2)
    noted = Shipped(str(tmp_path), 1, 5, last.digest, last.name)
    assert found(tmp_path, shipped=noted) == []
    Path(last.path).unlink()
    assert found(tmp_path) == []
    assert kinds(tmp_path, shipped=noted) == [("chain", last.name)]


def test_with_what_the_node_has_noted_the_last_segment_cannot_be_replaced(tmp_path: Path) -> None:
    first, last = chain(tmp_path, 3, 2)
    noted = Shipped(str(tmp_path), 1, 5, last.digest, last.name)
    Path(last.path).unlink()
    write_segment(tmp_path, rows(4, 1), node="station", epoch=1, previous=first.digest)
    [finding] = found(tmp_path, shipped=noted)
    assert (finding.kind, finding.subject) == ("chain", last.name)
    assert "altered or replaced" in finding.detail


@pytest.mark.parametrize("noted", [None, Shipped("elsewhere")])
def test_who_has_shipped_nothing_knows_nothing(tmp_path: Path, noted: Shipped | None) -> None:
    chain(tmp_path, 3, 2)
    assert found(tmp_path, shipped=noted) == []


def test_progress_is_told(tmp_path: Path) -> None:
    chain(tmp_path, 3, 2)
    told: list[tuple[int, int]] = []
    verify(tmp_path, told=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]
