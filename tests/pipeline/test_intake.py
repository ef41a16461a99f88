"""The intake: what becomes of every kind of file and row."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.intake import Totals, take, unreadable, visible
from postroad.pipeline.intake_files import look
from postroad.pipeline.intake_findings import Finding, findings
from postroad.pipeline.intake_registry import Registry, day
from postroad.pipeline.intake_rules import reasons
from postroad.pipeline.lake import Lake
from postroad.store.journal_columns import COLUMNS, META_SCHEMA
from tests.pipeline.intakes import Event, Intake, altered, segment
from tests.pipeline.journals import Journal


@pytest.fixture
def intake(spark: SparkSession, tmp_path: Path) -> Intake:
    return Intake(spark, tmp_path / "lake")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def story(first: int = 1, last: int = 4) -> list[Event]:
    """Events of node a1 with these numbers, a message for each."""
    journal = Journal()
    node = journal.node("a1", "A", seq=first)
    for seq in range(first, last + 1):
        node.write(seq, "submitted", f"m{seq}")
    return journal.events


# --- rows ---


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({}, None),
        ({"event": "telepathy", "side": None, "message_id": None}, None),
        ({"event": "heartbeat", "side": None, "message_id": None}, None),
        ({"event": "suspended", "message_id": None}, None),
        # How many requests of strangers were refused, of one P-Mode.
        ({"event": "error_raised", "side": None, "message_id": None, "pmode": "p"}, None),
        ({"party": None}, "null"),
        ({"node": None, "epoch": 0}, "null"),
        ({"epoch": 0}, "number"),
        ({"seq": -3}, "number"),
        ({"at": -1}, "time"),
        ({"at": 253_402_300_800_000_000}, "time"),
        ({"side": "sideways"}, "side"),
        ({"event": "telepathy", "side": "sideways"}, "side"),
        ({"side": "receiving"}, "wrong_side"),
        ({"side": None}, "wrong_side"),
        ({"message_id": None}, "no_message"),
        ({"bytes": -1}, "negative"),
        ({"attempt": -1, "side": "receiving"}, "wrong_side"),
    ],
)
def test_a_row_breaks_the_first_rule_that_it_does_not_keep(columns: Event, reason: str) -> None:
    row = story(1, 1)[0] | {"at": 1_772_359_200_000_000} | columns
    plain = pa.schema([field.with_nullable(True) for field in COLUMNS])
    batch = pa.RecordBatch.from_pylist([row], schema=plain)
    assert reasons(batch).to_pylist() == [reason]


# --- files ---


def test_each_foreign_file_is_a_finding_that_says_why(journal: Path) -> None:
    good, _ = segment(journal, story(1, 2))
    whole = Path(good).read_bytes()
    table = pa.Table.from_pylist(story(3, 3), schema=COLUMNS)
    said = pq.read_schema(good).metadata
    epoch = COLUMNS.get_field_index("epoch")
    real = table.set_column(epoch, "epoch", table["epoch"].cast(pa.float64()))
    large = table.set_column(epoch, "epoch", pa.array([1 << 40]))
    for name, content in {
        "truncated": whole[:-60],
        "empty": b"",
        "text": b"once upon a time",
    }.items():
        (journal / f"{name}.parquet").write_bytes(content)
    for name, other in {
        "foreign": pa.table({"x": [1]}),
        "newer": table.replace_schema_metadata({**said, META_SCHEMA: b"2"}),
        "real": real.replace_schema_metadata(said),
        "large": large.replace_schema_metadata(said),
        "lacking": table.drop_columns(["seq"]).replace_schema_metadata(said),
    }.items():
        pq.write_table(other, journal / f"{name}.parquet")
    found = found_in(*(str(path) for path in journal.rglob("*.parquet")))
    sentences = {Path(one.subject).stem: one.detail for one in found}
    assert {one.kind for one in found} == {"foreign_file"}
    assert len(sentences) == 8
    assert "is empty" in sentences["empty"]
    assert "no whole Parquet" in sentences["truncated"]
    assert "no whole Parquet" in sentences["text"]
    assert "no segment" in sentences["foreign"]
    assert "'2'" in sentences["newer"]
    assert "epoch is double" in sentences["real"]
    assert "1099511627776 not in range" in sentences["large"]
    assert "no column seq" in sentences["lacking"]


def test_absent_columns_are_null_and_unknown_ones_ignored(intake: Intake, journal: Path) -> None:
    path, _ = segment(journal, story(1, 1))
    table = pq.read_table(path, partitioning=None).drop_columns(["detail", "bytes"])
    pq.write_table(table.append_column("mood", pa.array(["good"])), journal / "other.parquet")
    intake.take(str(journal / "other.parquet"))
    row = intake.lake.read("events").collect()[0]
    assert (row["seq"], row["bytes"], row["service"]) == (1, None, "orders")
    assert "mood" not in row


def test_a_file_altered_where_only_spark_reads_is_found(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    good, _ = segment(journal, story(1, 2))
    bad, _ = segment(journal, story(3, 4))
    column = COLUMNS.get_field_index("service")
    altered(bad, [pq.read_metadata(bad).row_group(0).column(column).dictionary_page_offset + 40])
    looked = look(bad)
    assert looked is not None
    assert looked.problem is None
    damaged = unreadable(spark, [good, bad])
    assert list(damaged) == [bad]
    batch = take(spark, Lake(spark, str(tmp_path / "lake")), [good, bad], damaged)
    assert batch.totals == Totals(files=2, foreign=1, read=2, kept=2)


def test_a_file_that_is_gone_again_is_no_finding(journal: Path) -> None:
    assert look(str(journal / "gone.parquet")) is None


def test_names_that_begin_with_a_dot_or_a_low_line_are_not_data() -> None:
    assert visible("/j/date=2026-03-01/a-1-1.parquet", ["/j"])
    assert not visible("/j/_old/a-1-1.parquet", ["/j"])
    assert not visible("/j/date=2026-03-01/.a-1-1.parquet", ["/j"])
    assert visible("/home/_x/j/a.parquet", ["/home/_x/j"])


# --- chain and gaps ---


def found_in(*paths: str) -> list[Finding]:
    """What the files alone tell."""
    looked = tuple(segment for path in paths if (segment := look(path)) is not None)
    return sorted(findings(Registry(looked, ())), key=lambda one: one.kind)


def test_a_missing_segment_breaks_the_chain_and_leaves_a_gap_until_it_comes(journal: Path) -> None:
    first, one = segment(journal, story(1, 2))
    second, two = segment(journal, story(3, 5), one)
    third, _ = segment(journal, story(6, 7), two)
    chain, gap = found_in(first, third)
    assert (chain.kind, chain.subject) == ("chain", third)
    assert first in chain.detail
    assert two in chain.detail
    assert (gap.kind, gap.subject, gap.detail[:12]) == ("gap", "a1 1 3-5", "3 events are")
    assert found_in(third, second, first) == []


def test_an_altered_segment_shows_by_the_one_after_it(journal: Path) -> None:
    first, _ = segment(journal, story(1, 2))
    second, _ = segment(journal, story(3, 4), "00" * 32)
    (found,) = found_in(first, second)
    assert (found.kind, found.subject) == ("chain", second)
    assert first in found.detail


def test_a_segment_that_names_none_before_it_must_be_the_first(journal: Path) -> None:
    only, _ = segment(journal, story(3, 4))
    chain, gap = found_in(only)
    assert "begins with seq 3" in chain.detail
    assert gap.subject == "a1 1 1-2"


def test_a_copy_of_a_file_is_no_finding_and_names_nothing_twice(
    journal: Path, tmp_path: Path
) -> None:
    path, _ = segment(journal, story(2, 2))
    copy, _ = segment(tmp_path / "zz", story(2, 2))
    assert found_in(copy, path) == found_in(path)


def test_an_unknown_event_has_one_finding_for_its_name(journal: Path) -> None:
    rows = story(1, 4)
    rows[1] |= {"event": "telepathy"}
    rows[3] |= {"event": "telepathy"}
    path, _ = segment(journal, rows)
    (found,) = found_in(path)
    assert (found.kind, found.subject) == ("unknown_event", "telepathy")
    assert day(found.at) == "2026-03-01"


# --- identity ---


def test_a_copy_of_a_segment_is_repeats_only(intake: Intake, journal: Path, tmp_path: Path) -> None:
    path, _ = segment(journal, story(1, 4))
    copy, _ = segment(tmp_path / "again", story(1, 4))
    assert intake.take(path).totals == Totals(files=1, read=4, kept=4)
    assert intake.take(copy).totals == Totals(files=1, read=4, repeats=4)
    assert intake.take(path).totals == Totals(files=1, read=4, repeats=4)
    assert intake.seqs() == [1, 2, 3, 4]
    assert len(intake.batches[-1].known.segments) == 2


def test_segments_that_overlap_bring_what_is_new_and_nothing_twice(
    intake: Intake, journal: Path, tmp_path: Path
) -> None:
    first, digest = segment(journal, story(1, 4))
    second, _ = segment(journal, story(5, 6), digest)
    cut, _ = segment(tmp_path / "export", story(3, 8)[::-1] + story(8, 8))
    intake.take(first)
    batch = intake.take(second, cut)
    assert batch.totals == Totals(files=2, read=9, kept=4, repeats=5)
    assert intake.seqs() == [1, 2, 3, 4, 5, 6, 7, 8]


def conflicting(seq: int, **columns: object) -> list[Event]:
    return [story(seq, seq)[0] | columns]


def test_a_conflict_with_a_stored_event_retracts_it_and_no_copy_comes_back(
    intake: Intake, journal: Path, tmp_path: Path
) -> None:
    path, _ = segment(journal, story(1, 4))
    other, _ = segment(tmp_path / "other", conflicting(2, detail="changed"))
    again, _ = segment(tmp_path / "again", story(2, 3))
    intake.take(path)
    batch = intake.take(other)
    assert batch.totals == Totals(files=1, read=1, quarantined=1, retracted=1)
    assert batch.retracted == [("a1", 1, 2, "2026-03-01")]
    assert intake.take(again).totals == Totals(files=1, read=2, repeats=1, quarantined=1)
    assert intake.take(path).totals == Totals(files=1, read=4, repeats=3, quarantined=1)
    assert intake.seqs() == [1, 3, 4]
    assert intake.lake.read("_quarantine", schema=batch.quarantined.schema).count() == 2


def test_copies_of_rows_that_clash_are_quarantined_like_these(
    intake: Intake, journal: Path, tmp_path: Path
) -> None:
    rows = [*story(1, 3), *story(2, 2), *conflicting(2, detail="changed")]
    path, _ = segment(journal, rows)
    copy, _ = segment(tmp_path / "copy", rows)
    assert intake.take(path).totals == Totals(files=1, read=5, kept=2, quarantined=3)
    assert intake.take(copy).totals == Totals(files=1, read=5, repeats=2, quarantined=3)
    assert intake.seqs() == [1, 3]


# --- quarantine ---


def test_a_bad_row_goes_to_quarantine_with_its_reason_and_a_good_one_heals_the_gap(
    intake: Intake, journal: Path, tmp_path: Path
) -> None:
    rows = story(1, 3)
    rows[1] |= {"bytes": -7}
    path, _ = segment(journal, rows)
    healed, _ = segment(tmp_path / "healed", story(2, 2))
    again, _ = segment(tmp_path / "again", [rows[1]])
    first = intake.take(path)
    assert first.totals == Totals(files=1, read=3, kept=2, quarantined=1)
    assert {one.kind: one.subject for one in intake.findings} == {
        "gap": "a1 1 2-2",
        "quarantine": path,
    }
    kept = intake.lake.read("_quarantine", schema=first.quarantined.schema).collect()
    assert [(row["seq"], row["reason"]) for row in kept] == [(2, "negative")]
    assert intake.take(healed, again).totals == Totals(files=2, read=2, kept=1, repeats=1)
    assert "gap" not in intake.kinds()
    assert intake.seqs() == [1, 2, 3]


def test_rows_that_vanish_between_reading_and_keeping_stop_the_run() -> None:
    with pytest.raises(AssertionError, match="lost"):
        Totals(read=3, kept=2)


def test_taken_one_by_one_in_any_order_the_lake_is_that_of_one_run(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    rows = story(5, 8)
    rows[0] |= {"side": "sideways"}
    rows[2] |= {"event": "telepathy"}
    first, one = segment(journal, story(1, 4))
    second, two = segment(journal, rows, one)
    third, _ = segment(journal, story(9, 10), two)
    export, _ = segment(tmp_path / "x", story(3, 4) + conflicting(8, detail="changed"))
    whole = Intake(spark, tmp_path / "whole")
    totals = whole.take(first, second, third, export).totals
    assert totals == Totals(files=4, read=13, kept=8, repeats=2, quarantined=3)
    pieces = Intake(spark, tmp_path / "pieces")
    for path in (third, export, second, first):
        pieces.take(path)
    assert pieces.rows() == whole.rows()
    assert pieces.findings == whole.findings
    assert pieces.batches[-1].known.runs == whole.batches[-1].known.runs
    assert set(pieces.kinds()) == {"gap", "identity", "quarantine", "unknown_event", "chain"}
