"""Journals that another writer made: one run over all styles of the independent generator."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.intake import Totals
from postroad.pipeline.lake import Lake
from postroad.pipeline.runner import Plan, run
from tests.pipeline.foreign_history import Verdict
from tests.pipeline.foreign_journals import Truth, write


@dataclass(frozen=True)
class Outcome:
    """What the generator wrote, and what a run of the pipeline made of it."""

    truth: Truth
    totals: Totals
    lake: Lake

    def findings(self, kind: str) -> list[tuple[str, str]]:
        rows = self.lake.read("findings").where(f"kind = '{kind}'").collect()
        return [(row["subject"], row["detail"]) for row in rows]


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("foreign")
    truth = write(folder / "journal")
    plan = Plan((str(folder / "journal"),), str(folder / "lake"))
    return Outcome(truth, run(spark, plan), Lake(spark, plan.lake))


def test_every_message_has_the_class_that_the_contract_gives_it(outcome: Outcome) -> None:
    rows = outcome.lake.read("reconciliation").select("message_id", "class", "settled_by").collect()
    found = {row["message_id"]: Verdict(row["class"], row["settled_by"]) for row in rows}
    wrong = {
        message_id: (found.get(message_id), outcome.truth.verdicts.get(message_id))
        for message_id in found.keys() | outcome.truth.verdicts.keys()
        if found.get(message_id) != outcome.truth.verdicts.get(message_id)
    }
    assert wrong == {}


def test_every_row_is_kept_repeated_or_quarantined_as_the_contract_says(outcome: Outcome) -> None:
    totals, truth = outcome.totals, outcome.truth
    assert (totals.kept, totals.repeats, totals.quarantined) == (
        truth.kept,
        truth.repeats,
        truth.quarantined,
    )
    assert outcome.lake.read("events").count() == truth.kept


def test_only_files_without_a_version_are_foreign(outcome: Outcome) -> None:
    found = {Path(subject).name for subject, _ in outcome.findings("foreign_file")}
    assert found == outcome.truth.foreign


def test_a_missing_link_is_a_finding_that_names_both_files(outcome: Outcome) -> None:
    found = {Path(subject).name: detail for subject, detail in outcome.findings("chain")}
    for name, before in outcome.truth.broken.items():
        assert before in found[name]


def test_clashing_identities_are_findings(outcome: Outcome) -> None:
    found = {subject for subject, _ in outcome.findings("identity")}
    assert found == {f"{node} {epoch} {seq}-{seq}" for node, epoch, seq in outcome.truth.clashes}
