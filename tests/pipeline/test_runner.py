"""The runner: the stream of files, one commit for each batch, the findings."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from postroad.cli import pipeline_run
from postroad.pipeline import lake as lakes
from postroad.pipeline import runner
from postroad.pipeline.intake import Totals
from postroad.pipeline.lake import Lake, LakeError
from postroad.pipeline.lake_lock import held
from postroad.pipeline.runner import Plan, RunError, run
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.intakes import altered, events_only, segment
from tests.pipeline.test_intake import story
from tests.pipeline.test_lake import BrokenOff, breaking_at


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "ours").mkdir()
    return Plan((str(tmp_path / "ours"),), str(tmp_path / "lake"))


def seqs(spark: SparkSession, plan: Plan) -> list[int]:
    return sorted(row.seq for row in Lake(spark, plan.lake).read("events").collect())


def test_each_run_takes_what_is_new_from_all_journals(
    spark: SparkSession, plan: Plan, tmp_path: Path
) -> None:
    ours, theirs = Path(plan.journals[0]), tmp_path / "theirs"
    segment(ours, story(1, 2))
    (ours / "date=2026-03-01" / "_draft.parquet").write_bytes(b"")
    (ours / "notes.txt").write_text("not data")
    assert run(spark, plan, update=events_only) == Totals(files=1, read=2, kept=2)
    assert run(spark, plan, update=events_only) == Totals()
    segment(theirs, story(3, 3))
    (theirs / "empty.parquet").write_bytes(b"")
    both = Plan((*plan.journals, str(theirs)), plan.lake)
    assert run(spark, both, update=events_only) == Totals(files=2, foreign=1, read=1, kept=1)
    assert seqs(spark, plan) == [1, 2, 3]
    found = Lake(spark, plan.lake).read("findings").collect()
    assert sorted(row["kind"] for row in found) == ["chain", "foreign_file", "totals", "totals"]
    assert [row["subject"] for row in found if row["kind"] == "foreign_file"] == [
        str(theirs / "empty.parquet")
    ]


@pytest.mark.parametrize("point", ["staged events", "intended", "cleaned"])
def test_broken_off_and_run_again_everything_is_there_once(
    spark: SparkSession, plan: Plan, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(Path(plan.journals[0]), story(1, 3))
    with monkeypatch.context() as patch:
        patch.setattr(lakes, "reached", breaking_at(point))
        with pytest.raises(BrokenOff):
            run(spark, plan, update=events_only)
    run(spark, plan, update=events_only)
    assert seqs(spark, plan) == [1, 2, 3]
    found = Lake(spark, plan.lake).read("findings").collect()
    assert [row["kind"] for row in found] == ["totals"]


def test_a_file_that_only_spark_cannot_read_costs_its_own_rows(
    spark: SparkSession, plan: Plan
) -> None:
    segment(Path(plan.journals[0]), story(1, 2))
    bad, _ = segment(Path(plan.journals[0]), story(3, 4))
    column = COLUMNS.get_field_index("service")
    altered(bad, [pq.read_metadata(bad).row_group(0).column(column).dictionary_page_offset + 40])
    totals = run(spark, plan, update=events_only)
    assert totals == Totals(files=2, foreign=1, read=2, kept=2)
    assert seqs(spark, plan) == [1, 2]


def test_without_a_checkpoint_all_files_come_again_and_nothing_changes(
    spark: SparkSession, plan: Plan
) -> None:
    segment(Path(plan.journals[0]), story(1, 2))
    run(spark, plan, update=events_only)
    (Path(plan.lake) / "_checkpoint").rename(Path(plan.lake) / "_lost")
    assert run(spark, plan, update=events_only) == Totals(files=1, read=2, repeats=2)
    assert seqs(spark, plan) == [1, 2]


def test_a_second_run_on_a_lake_is_told_who_holds_it(spark: SparkSession, plan: Plan) -> None:
    with held(plan.lake), pytest.raises(LakeError, match=r"another run .*process \d+"):
        run(spark, plan)


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(pipeline_run.run)
    return app


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--once", "--every", "30s"], "either --once or --every"),
        (["--every", "often"], "--every often is no time"),
        (["--every", "0s"], "longer than nothing"),
        (["--grace", "1y"], "--grace 1y is no time"),
        (["--set", "spark"], "NAME=VALUE"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(
    command: typer.Typer, options: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(command, ["--journal", "j", "--lake", "l", *options])
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("12h", 43200), ("1d", 86400), ("PT90S", 90)]
)
def test_times_are_read_as_people_and_as_iso_8601_write_them(text: str, seconds: float) -> None:
    assert pipeline_run._time(text, "--every").total_seconds() == seconds


def test_the_command_runs_the_pipeline_and_tells_the_totals(
    spark: SparkSession, command: typer.Typer, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_update", lambda: events_only)
    segment(Path(plan.journals[0]), story(1, 2))
    options = ["--journal", plan.journals[0], "--lake", plan.lake]
    first = CliRunner().invoke(command, [*options, "--json"])
    assert json.loads(first.stdout)["kept"] == 2
    assert "nothing new" in CliRunner().invoke(command, options).stdout
    lost = CliRunner().invoke(command, ["--journal", "nowhere", "--lake", plan.lake])
    assert (lost.exit_code, lost.stderr) == (
        1,
        "postroad: there is no journal nowhere: check the folder\n",
    )


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan((), "lake"), "--journal"),
        (Plan(("nowhere",), "lake"), "no journal nowhere"),
        (Plan((".",), "lake"), "keep them apart"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan: Plan, sentence: str) -> None:
    with pytest.raises(RunError, match=sentence):
        run(None, plan, every=timedelta(seconds=1))  # type: ignore[arg-type]
