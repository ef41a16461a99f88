"""The demo's last scene: the journals go through Spark, which tells what became of each order."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from postroad.cli.journal import all_shipped
from postroad.node.settings.can_ship import can_ship
from postroad.node.settings.config import load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postroad.pipeline.lake import Lake


_NO_SPARK: Final = (
    "the packages for it are missing. Install them with: pip install 'postroad[spark]'"
)


class NotReconciled(Exception):
    """The pipeline cannot run here; the sentence says why."""


def begin_spark() -> "Future[SparkSession]":
    """Start Spark aside; it is there when something else has happened."""
    with_one = ThreadPoolExecutor(1)
    started = with_one.submit(_session)
    with_one.shutdown(wait=False)
    return started


def _session() -> "SparkSession":
    try:
        from postroad.pipeline.session import TINY, NoSpark, session

        return session(settings=TINY)
    except ImportError:
        raise NotReconciled(_NO_SPARK) from None
    except NoSpark as missing:
        raise NotReconciled(str(missing)) from None


def reconcile(
    work: Path,
    console: Console,
    stories: Mapping[str, tuple[str, str]],
    started: "Future[SparkSession]",
) -> tuple[dict[str, int], list[str]]:
    """Ship the journals, make the tables, print the reconciliation, verify, write the report.

    `stories` has for each message what it was and of which class it should be. What comes
    back is how many messages of each class there are, and what was not as it should be.
    """
    companies = sorted(file.parent.name for file in work.glob("*/postroad.yaml"))
    hubs = sorted(file.parent for file in work.glob("hubs/*/postroad.yaml"))
    folders = [*(work / company for company in companies), *hubs]
    for folder in folders:
        _ship(folder)
    with console.status("Spark is starting"):
        spark = started.result()
    from postroad.pipeline.evidence import Believing
    from postroad.pipeline.evidence_run import verify
    from postroad.pipeline.lake import Lake
    from postroad.pipeline.reconciling import CLASSES, counts, rows
    from postroad.pipeline.report import of_lake
    from postroad.pipeline.report_page import page
    from postroad.pipeline.runner import Plan, run

    now = datetime.now(UTC)
    journals = tuple(str(folder / "journal") for folder in folders)
    with console.status("making the tables"):
        totals = run(spark, Plan(journals, str(work / "lake")))
        lake = Lake(spark, str(work / "lake"))
        found = rows(lake, CLASSES, len(stories))
        classes = counts(lake)
        roads = _roads(lake)
    console.print(f"  {totals.kept} events of all journals, in nine tables in {work / 'lake'}")
    _show(console, [(stories[one.message_id][0], one.class_, one.detail or "") for one in found])
    for message_id, road in roads.items():
        console.print(f"  {stories[message_id][0]} went over {road}")
    with console.status("verifying the receipts"):
        trusted = (work / "buyer/keys/authority.pem").read_bytes()
        kept = {company: str(work / company / "data") for company in companies}
        proven = verify(lake, kept, Believing(trusted), now).run
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
    config = load_config(folder / "postroad.yaml")
    if not can_ship() or config.journal.ship_to is None:
        raise NotReconciled(_NO_SPARK)
    all_shipped(config, config.journal.ship_to)


def _roads(lake: "Lake") -> dict[str, str]:
    """The hubs that each message passed, and how long it was there."""
    roads: dict[str, list[str]] = {}
    rows = lake.read("hops").orderBy("arrived_at").collect()
    for one in rows:
        stay = "" if one["dwell_ms"] is None else f" ({one['dwell_ms']:.0f} ms)"
        roads.setdefault(one["message_id"], []).append(f"{one['node']}{stay}")
    return {message_id: ", ".join(passed) for message_id, passed in roads.items()}


def _show(console: Console, found: list[tuple[str, str, str]]) -> None:
    table = Table("order", "class", "why")
    for (story, name, why), times in Counter(found).items():
        colour = "green" if name == "confirmed" else "yellow"
        table.add_row(
            story if times == 1 else f"{story}, {times} times", f"[{colour}]{name}[/]", why
        )
    console.print(table)
