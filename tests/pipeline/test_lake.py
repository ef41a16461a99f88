"""The lake: commits that hold wholly or not, wherever they are broken off."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from postroad.pipeline import lake as lakes
from postroad.pipeline import lake_formats
from postroad.pipeline.keys import KeySet, keys
from postroad.pipeline.lake import Change, Lake, LakeError
from postroad.pipeline.picking import ByKey
from postroad.pipeline.schema import FINDINGS

MONDAY, TUESDAY = "2026-03-02", "2026-03-03"


class BrokenOff(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, str(tmp_path / "lake"))


def rows(spark: SparkSession, *said: tuple[str, str]) -> DataFrame:
    """Findings: day and subject."""
    return spark.createDataFrame(
        [(None, "gap", subject, None, day) for day, subject in said],
        "at timestamp, kind string, subject string, detail string, date string",
    ).coalesce(1)


def content(lake: Lake, table: str = "findings", dates: list[str] | None = None) -> list[str]:
    return sorted(row.subject for row in lake.read(table, dates).collect())


def begun(lake: Lake, batch: int) -> Change:
    change = lake.begin(batch)
    assert change is not None
    return change


def test_a_table_that_was_never_written_is_empty_and_has_its_columns(lake: Lake) -> None:
    found = lake.read("messages")
    assert found.columns[0] == "message_id"
    assert found.columns[-1] == "date"
    assert found.collect() == []


def test_added_rows_show_after_the_commit_and_not_before(lake: Lake) -> None:
    change = begun(lake, 0)
    change.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b")))
    assert content(lake) == []
    assert sorted(row.subject for row in change.added("findings").collect()) == ["a", "b"]
    change.commit()
    assert content(lake) == ["a", "b"]
    assert content(lake, dates=[TUESDAY]) == ["b"]
    assert lake.days("findings") == [MONDAY, TUESDAY]


def test_what_a_task_wrote_that_failed_is_not_among_the_rows(lake: Lake) -> None:
    """It lies beside the files of the attempt that succeeded."""
    change = begun(lake, 0)
    change.add("findings", rows(lake.spark, (MONDAY, "a")))
    (file,) = map(Path, change.added_files("findings"))
    shutil.copy(file, file.with_name("part-of-another-attempt.parquet"))
    assert [row.subject for row in change.added("findings").collect()] == ["a"]
    change.commit()
    assert content(lake) == ["a"]


def test_a_replaced_day_holds_the_new_rows_only_and_the_other_days_stay(lake: Lake) -> None:
    first = begun(lake, 0)
    first.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b")))
    first.commit()
    second = begun(lake, 1)
    second.replace("findings", rows(lake.spark, (MONDAY, "c")), [MONDAY])
    read = second.read("findings", [MONDAY, TUESDAY])
    assert sorted(row.subject for row in read.collect()) == ["b", "c"]
    second.commit()
    assert content(lake) == ["b", "c"]


def test_a_replaced_day_without_rows_becomes_empty(lake: Lake) -> None:
    first = begun(lake, 0)
    first.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b")))
    first.commit()
    second = begun(lake, 1)
    second.replace("findings", rows(lake.spark), [MONDAY])
    second.commit()
    assert content(lake) == ["b"]
    assert lake.days("findings") == [TUESDAY]


def test_rows_of_a_day_that_is_not_to_be_replaced_are_refused(lake: Lake) -> None:
    change = begun(lake, 0)
    with pytest.raises(ValueError, match=TUESDAY):
        change.replace("findings", rows(lake.spark, (TUESDAY, "b")), [MONDAY])


def test_state_is_kept_with_the_commit_and_by_later_ones(lake: Lake) -> None:
    change = begun(lake, 0)
    change.set("reach", {"a1": [1, 7]})
    assert lake.state("reach") is None
    change.commit()
    begun(lake, 1).commit()
    assert Lake(lake.spark, lake.url).state("reach") == {"a1": [1, 7]}


def test_a_batch_is_committed_once(lake: Lake) -> None:
    begun(lake, 3).commit()
    assert lake.begin(3) is None
    assert Lake(lake.spark, lake.url).begin(2) is None
    assert lake.begin(4) is not None


def test_another_query_counts_its_batches_anew(lake: Lake) -> None:
    begun(lake, 3).commit()
    assert lake.begin(0, query="another") is not None


def three_files(lake: Lake) -> None:
    """On Monday, one of each commit."""
    for number, said in enumerate((["a", "b"], ["c"], ["d"])):
        change = begun(lake, number)
        change.add("findings", rows(lake.spark, *((MONDAY, subject) for subject in said)))
        change.commit()


def files(lake: Lake) -> set[str]:
    return set(lake.format.files("findings", lake.days("findings")))


def of(*subjects: str) -> KeySet:
    return KeySet.of(pa.chunked_array([keys(pa.array(subjects))]))


def test_rows_are_taken_out_of_their_files_and_other_files_stay(lake: Lake) -> None:
    three_files(lake)
    before = files(lake)
    change = begun(lake, 3)
    change.add("findings", rows(lake.spark, (MONDAY, "a")))
    change.remove("findings", [MONDAY, TUESDAY], ByKey("subject", of("a", "c", "x")))
    assert change.days("findings") == [MONDAY]
    assert sorted(row.subject for row in change.kept("findings", [MONDAY]).collect()) == ["b", "d"]
    found = change.find("findings", ByKey("subject", of("a", "b", "c", "d")), FINDINGS.schema)
    assert sorted(row.subject for row in found.collect()) == ["b", "d"]
    assert sorted(row.subject for row in change.read("findings", [MONDAY]).collect()) == [
        *("a", "b", "d")
    ]
    assert content(lake) == ["a", "b", "c", "d"]
    change.commit()
    assert content(lake) == ["a", "b", "d"]
    assert len(before & files(lake)) == 1
    assert len(files(lake)) == 3


def test_a_day_of_which_every_row_is_taken_is_empty(lake: Lake) -> None:
    three_files(lake)
    change = begun(lake, 3)
    change.remove("findings", [MONDAY], ByKey("subject", of("a", "b", "c", "d")))
    change.commit()
    assert content(lake) == []
    assert lake.days("findings") == []


def test_days_of_many_small_files_are_put_together(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_files(lake)
    monkeypatch.setattr(lake_formats, "CROWD", 3)
    change = begun(lake, 3)
    change.remove("findings", [MONDAY], ByKey("subject", of("a")))
    assert change.days("findings") == [MONDAY]
    assert all(not one.replaced for one in change._of("findings")), "none of them is small"
    monkeypatch.setattr(lake_formats, "FEW", 1)
    again = begun(lake, 3)
    again.remove("findings", [MONDAY], ByKey("subject", of("a")))
    assert [one.replaced for one in again._of("findings")] == [(MONDAY,)]
    again.commit()
    assert content(lake) == ["b", "c", "d"]


def test_found_are_the_rows_of_a_day_with_the_ids_that_are_asked_for_there(lake: Lake) -> None:
    change = begun(lake, 0)
    change.add("findings", rows(lake.spark, (MONDAY, "a"), (MONDAY, "b"), (TUESDAY, "a")))
    change.commit()
    asked = {MONDAY: of("b"), TUESDAY: of("a", "b")}
    choice = ByKey("subject", asked)
    change = begun(lake, 1)
    found = change.find("findings", choice, FINDINGS.schema, "subject", dates=asked)
    assert found.columns == ["subject", "date"]
    assert sorted(map(tuple, found.collect())) == [("a", TUESDAY), ("b", MONDAY)]


POINTS = (
    *("staged findings", "staged", "intended", "landed findings", "done", "intent removed"),
    "cleaned",
)


def breaking_at(point: str) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == point:
            raise BrokenOff(point)

    return reached


@pytest.mark.parametrize("whole", [True, False], ids=["replaced", "removed"])
@pytest.mark.parametrize("point", POINTS)
def test_broken_off_anywhere_and_begun_again_the_table_is_the_same(
    lake: Lake, point: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(lake, 0)
    first.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b"), (TUESDAY, "a")))
    first.commit()

    def second(change: Change) -> None:
        if whole:
            change.replace("findings", rows(lake.spark, (MONDAY, "c")), [MONDAY])
            change.replace("findings", rows(lake.spark, (TUESDAY, "b")), [TUESDAY])
        else:
            change.add("findings", rows(lake.spark, (MONDAY, "c")))
            change.remove("findings", [MONDAY, TUESDAY], ByKey("subject", of("a")))
        change.set("reach", 2)
        change.commit()

    with monkeypatch.context() as patch:
        patch.setattr(lakes, "reached", breaking_at(point))
        with pytest.raises(BrokenOff):
            second(begun(lake, 1))
    again = Lake(lake.spark, lake.url)
    change = again.begin(1)
    assert (change is None) == (point not in ("staged findings", "staged"))
    if change is not None:
        second(change)
    assert content(again) == ["b", "c"]
    assert again.state("reach") == 2
    left = {path.name for path in Path(lake.url).iterdir()}
    assert left == {"findings", "_commit.json"}


def test_a_commit_broken_off_between_two_files_is_completed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = begun(lake, 0)
    change.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b")))
    moved = []

    def move_once(source: str, target: str) -> None:
        if moved:
            raise BrokenOff
        moved.append(target)
        Path(lake.place.path(target)).parent.mkdir(parents=True)
        Path(lake.place.path(source)).rename(lake.place.path(target))

    monkeypatch.setattr(lake.format, "_move", move_once)
    with pytest.raises(BrokenOff):
        change.commit()
    again = Lake(lake.spark, lake.url)
    assert again.begin(0) is None
    assert content(again) == ["a", "b"]


def test_a_full_disk_is_told_in_a_sentence_and_the_next_run_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(point: str) -> None:
        if point == "intended":
            raise OSError(28, "No space left on device")

    change = begun(lake, 0)
    change.add("findings", rows(lake.spark, (MONDAY, "a")))
    with monkeypatch.context() as patch:
        patch.setattr(lakes, "reached", full)
        with pytest.raises(LakeError, match="free disk space"):
            change.commit()
    assert lake.begin(0) is None
    assert content(lake) == ["a"]


def test_a_lake_of_another_format_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(LakeError, match="parquet, delta, iceberg"):
        Lake(lake.spark, lake.url, "csv")
