"""The demo's last scene: both journals go through Spark, which tells what became of each order."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

_COMPANIES: Final = ("buyer", "seller")


class NotReconciled(Exception):
    """The pipeline cannot run here; the sentence says why."""


def reconcile(
    work: Path, console: Console, stories: Mapping[str, tuple[str, str]]
) -> tuple[dict[str, int], list[str]]:
    """Ship both journals, make the tables, print the reconciliation, verify, write the report.

    `stories` has for each message what it was and of which class it should be. What comes
    back is how many messages of each class there are, and what was not as it should be.
    """
    for company in _COMPANIES:
        _ship(work / company)
    try:
        from postroad.pipeline.evidence import Believing
        from postroad.pipeline.evidence_run import verify
        from postroad.pipeline.lake import Lake
        from postroad.pipeline.reconciling import CLASSES, counts, rows
        from postroad.pipeline.report import of_lake
        from postroad.pipeline.report_page import page
        from postroad.pipeline.runner import Plan, run
        from postroad.pipeline.session import BRIEF, NoSpark, session
    except ImportError:
        raise NotReconciled("install it with: pip install 'postroad[spark]'") from None

    now = datetime.now(UTC)
    with console.status("Spark is starting"):
        try:
            spark = session(settings=BRIEF)
        except NoSpark as missing:
            raise NotReconciled(str(missing)) from None
    journals = tuple(str(work / company / "journal") for company in _COMPANIES)
    with console.status("making the tables"):
        totals = run(spark, Plan(journals, str(work / "lake")))
        lake = Lake(spark, str(work / "lake"))
        found = rows(lake, CLASSES, 100)
        classes = counts(lake)
    console.print(f"  {totals.kept} events of both journals, in nine tables in {work / 'lake'}")
    _show(console, [(stories[one.message_id][0], one.class_, one.detail or "") for one in found])
    with console.status("verifying the receipts"):
        trusted = (work / "buyer/keys/authority.pem").read_bytes()
        folders = {company: str(work / company / "data") for company in _COMPANIES}
        proven = verify(lake, folders, Believing(trusted), now).run
    console.print(f"  {proven.valid} receipts hold, {proven.invalid + proven.gone} do not")
    with console.status("writing the report"):
        (work / "report.html").write_text(page(of_lake(lake), now), encoding="utf-8")
    console.print(f"  the report is {work / 'report.html'}")
    spark.stop()
    wrong = [
        f"{stories[one.message_id][0]} is {one.class_}"
        for one in found
        if one.class_ != stories[one.message_id][1]
    ]
    if proven.invalid or proven.gone or not proven.valid:
        wrong.append(f"of the receipts {proven.invalid + proven.gone} do not hold")
    return {name: count for name, count in classes.items() if count}, wrong


def _ship(folder: Path) -> None:
    """What the node has not shipped by itself yet; it goes on running."""
    file = str(folder / "postroad.yaml")
    command = [sys.executable, "-m", "postroad", "journal", "ship", "-c", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReconciled(done.stderr.strip() or "the journal was not shipped")


def _show(console: Console, found: list[tuple[str, str, str]]) -> None:
    table = Table("order", "class", "why")
    for story, name, why in found:
        colour = "green" if name == "confirmed" else "yellow"
        table.add_row(story, f"[{colour}]{name}[/]", why)
    console.print(table)
