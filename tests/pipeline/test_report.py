"""The report: numbers that agree with the tables, on a page that trusts nobody."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from postroad.cli.pipeline_report import report as command
from postroad.pipeline import report as reports
from postroad.pipeline.report import (
    AT_MOST,
    Finding,
    Listed,
    Partner,
    Point,
    Relay,
    Report,
    Road,
    Unproven,
    of_lake,
    report,
)
from postroad.pipeline.report_markup import duration, percent, shortened, tag
from postroad.pipeline.report_page import page
from postroad.pipeline.schema import TABLES

Row = dict[str, Any]
MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>\"'&\u202eevil\x07"


def _frames(spark: SparkSession, **tables: Iterable[Row]) -> dict[str, DataFrame]:
    """By Arrow: what comes so is a constant of the plan, and costs no task of its own."""
    return {
        name: spark.createDataFrame(
            pa.Table.from_pylist(
                list(tables.get(name, ())), to_arrow_schema(table.schema, timezone="UTC")
            )
        )
        for name, table in TABLES.items()
    }


def _sent(name: str, minutes: int, outcome: str, **more: Any) -> Row:
    return {
        "message_id": name, "side": "sending", "kind": "message", "from_party": "A",
        "to_party": "B", "first_sent_at": MONDAY + timedelta(minutes=minutes), "attempts": 1,
        "outcome": outcome, **more,
    }  # fmt: skip


MESSAGES = [
    *(_sent(f"m{n}", n, "acknowledged", latency_ms=100.0 * (n + 1)) for n in range(10)),
    _sent("tried", 70, "in_doubt", attempts=3),
    _sent("often", 75, "failed", attempts=9),
    _sent("f1", 5, "acknowledged", kind="fragment", latency_ms=9e9),
    {"message_id": "m0", "side": "receiving", "kind": "message", "from_party": "A",
     "received_at": MONDAY + timedelta(minutes=1), "latency_ms": 5e9},
]  # fmt: skip
PARTNERS = [
    {"partner": "B", "hour": MONDAY, "sent": 10, "acknowledged": 10, "failed": 0, "in_doubt": 0,
     "retries": 0, "duplicates": 1, "errors": 0},
    {"partner": "B", "hour": MONDAY + timedelta(hours=1), "sent": 2, "acknowledged": 0,
     "failed": 1, "in_doubt": 1, "retries": 10, "duplicates": 0, "errors": 2},
    {"partner": "fine", "hour": MONDAY, "sent": 0, "acknowledged": 0, "failed": 0, "in_doubt": 0,
     "retries": 0, "duplicates": 0, "errors": 0},
    {"partner": "healthy", "hour": MONDAY, "sent": 99, "acknowledged": 98, "failed": 1,
     "in_doubt": 0, "retries": 2, "duplicates": 1, "errors": 1},
    {"partner": "silent", "hour": MONDAY, "sent": 0, "acknowledged": 0, "failed": 0, "in_doubt": 0,
     "retries": 0, "duplicates": 0, "errors": 1},
]  # fmt: skip
CLASSED = {"confirmed": 9, "in_doubt": 1, "lost": AT_MOST + 2, "refused": 1, "pending": 2}
HOPS = [
    {"message_id": "m1", "party": "hub", "arrived_at": MONDAY, "left_at": MONDAY, "dwell_ms": 10.0,
     "next": "far"},
    {"message_id": "m1", "party": "far", "arrived_at": MONDAY, "left_at": MONDAY, "dwell_ms": 30.0,
     "next": "B"},
    {"message_id": "m2", "party": "hub", "arrived_at": MONDAY},
]  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Report:
    reconciled = [
        {"message_id": "tried" if name == "in_doubt" else f"{name}{n}", "class": name,
         "first_at": MONDAY, "last_at": MONDAY + timedelta(minutes=n), "detail": "so it is"}
        for name, number in CLASSED.items()
        for n in range(number)
    ]  # fmt: skip
    findings = [
        {"at": MONDAY + timedelta(hours=1), "kind": "clock", "subject": "a b", "detail": "off"},
        {"at": MONDAY, "kind": "gap", "subject": "a 1 5-9", "detail": "missing"},
        {"at": MONDAY, "kind": "totals", "subject": "run", "detail": "old"},
        {"at": MONDAY + timedelta(days=1), "kind": "totals", "subject": "run", "detail": "new"},
    ]
    packing = [{"pmode": "p", "hour": MONDAY, "messages": 3, "envelopes": 2, "fragments": 1,
                "payload_bytes": 1000, "wire_bytes": 800}]  # fmt: skip
    talk = [{"conversation_id": "c", "messages": 3, "requests": 2, "replies": 1, "unanswered": 1,
             "gaps": 0, "out_of_order": 4}]  # fmt: skip
    proven = [{"message_id": str(n), "valid": n > 0, "detail": "wrong"} for n in range(4)]
    proven.append({"message_id": "unsigned", "valid": None, "detail": "nothing is signed"})
    return report(_frames(spark, messages=MESSAGES, partners=PARTNERS, reconciliation=reconciled,
                          hops=HOPS, findings=findings, packing=packing, conversations=talk,
                          evidence=proven))  # fmt: skip


class TestNumbers:
    def test_volume_is_what_the_partners_table_says(self, found: Report) -> None:
        assert found.step == "hour"
        assert [(p.at, p.sent, p.acknowledged, p.in_doubt, p.failed) for p in found.points] == [
            (MONDAY, 109, 108, 0, 1), (MONDAY + timedelta(hours=1), 2, 0, 1, 1)
        ]  # fmt: skip
        assert [point.rate for point in found.points] == [108 / 109, 0.0]
        assert [point.received for point in found.points] == [1, 0]

    def test_latency_is_of_messages_sent_and_of_nothing_else(self, found: Report) -> None:
        assert found.latency == (500.0, 1000.0, 1000.0)
        assert (found.points[0].p50, found.points[1].p50) == (500.0, None)

    def test_attempts_are_counted_and_many_are_one_number(self, found: Report) -> None:
        assert found.attempts == {1: 10, 3: 1, 6: 1}

    def test_classes_are_counted(self, found: Report) -> None:
        assert found.classes == CLASSED
        assert found.messages == sum(CLASSED.values())

    def test_lists_have_an_end_and_begin_with_the_last(self, found: Report) -> None:
        lost = [one for one in found.listed if one.named == "lost"]
        assert len(lost) == AT_MOST
        assert lost[0].last_at == MONDAY + timedelta(minutes=CLASSED["lost"] - 1)
        assert {one.named for one in found.listed} == {"in_doubt", "lost", "refused", "pending"}

    def test_receipts_that_prove_nothing_are_listed(self, found: Report) -> None:
        assert [(one.message_id, one.signed) for one in found.unproven] == [
            ("0", True),
            ("unsigned", False),
        ]

    def test_a_listed_message_says_from_whom_to_whom(self, found: Report) -> None:
        doubtful = next(one for one in found.listed if one.named == "in_doubt")
        assert (doubtful.from_party, doubtful.to_party) == ("A", "B")
        unknown = next(one for one in found.listed if one.named == "lost")
        assert (unknown.from_party, unknown.to_party) == (None, None)

    def test_only_partners_with_trouble_are_in_trouble(self, found: Report) -> None:
        assert found.partners == (
            Partner("B", 12, 10, 1, 1, 10, 1, 2, 1000.0),
            Partner("silent", 0, 0, 0, 0, 0, 0, 1),
        )
        assert found.partners_in_all == 4

    def test_roads_lead_from_senders_over_relays(self, found: Report) -> None:
        assert found.relays == (Relay("hub", 2, 1, 10.0, 10.0), Relay("far", 1, 0, 30.0, 30.0))
        assert found.arriving == (Road("A", "hub", 2),)
        assert set(found.leaving) == {Road("hub", "far", 1, 10.0), Road("far", "B", 1, 30.0)}

    def test_findings_are_apart_from_totals(self, found: Report) -> None:
        assert found.findings_by_kind == {"gap": 1, "clock": 1}
        assert [one.subject for one in found.findings] == ["a 1 5-9", "a b"]
        assert found.totals is not None
        assert found.totals.detail == "new"

    def test_small_sums(self, found: Report) -> None:
        assert found.evidence == {True: 3, False: 1, None: 1}
        assert found.packing["wire_bytes"] == 800
        assert found.conversations["out_of_order"] == 4

    def test_the_page_shows_them(self, found: Report) -> None:
        shown = _texts(page(found, MONDAY))
        assert "40 messages, 22.5 % confirmed." in shown
        assert "Refused: 1 message" in shown
        assert "refused0" in shown
        assert "Pending: 2 messages" in shown
        assert "pending1" in shown
        assert "Unproven: 2 receipts" in shown
        assert "In doubt: 1 message" in shown
        assert f"The last {AT_MOST} of 27." in shown
        assert "1 did not leave hub." in shown
        assert "75 % of 4 receipts verified hold" in shown
        assert "stretches of missing events (1)" in shown
        assert "Last run: new" in shown


def _busy_report() -> Report:
    """One with everything in it, named by somebody who means harm."""
    points = tuple(Point(MONDAY + timedelta(hours=n), 9, 5, 1, 1, 4, 5.0, 50.0, 5000.0)
                   for n in range(30))  # fmt: skip
    name = HOSTILE
    return Report(
        points=points,
        latency=(5.0, 50.0, 5000.0),
        attempts={1: 100, 6: 3},
        classes={"confirmed": 100, "in_doubt": 1, "twice": 1},
        listed=(Listed("in_doubt", name, name, name, MONDAY, None, name),
                Listed("twice", name, None, f"type::{name}", MONDAY, MONDAY, None)),
        partners=(Partner(name, 10, 5, 3, 2, 1, 1, 1, 10.0),),
        partners_in_all=1,
        evidence={False: 1},
        unproven=(Unproven(name, name, True, MONDAY, name),),
        relays=(Relay(name, 5, 1, 1.0, 2.0), Relay("other", 1, 0, None, None)),
        arriving=(Road(name, name, 5), Road(None, "other", 1)),
        leaving=(Road(name, "other", 1, 3.0), Road("other", name, 1, 3.0), Road(name, None, 4)),
        findings=(Finding(MONDAY, name, name, name),),
        findings_by_kind={name: 1},
        totals=Finding(MONDAY, "totals", name, name),
    )  # fmt: skip


class _Reader(HTMLParser):
    """Whether tags are closed as they were opened, and what there is of each."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def _texts(text: str) -> str:
    return re.sub(r"\s+", " ", " ".join(_read(text).texts))


class TestPage:
    def test_hostile_names_are_escaped_wherever_they_stand(self) -> None:
        text = page(_busy_report(), MONDAY)
        assert "<script" not in text
        assert "\u202e" not in text
        assert "\x07" not in text
        seen = _read(text).seen
        assert {tag for tag, _ in seen}.isdisjoint({"script", "img", "iframe", "link", "object"})
        assert not any(name.startswith("on") for _, attributes in seen for name in attributes)

    def test_it_refers_to_nothing_outside(self) -> None:
        text = page(_busy_report(), MONDAY)
        assert "http:" not in text
        assert "https:" not in text
        assert "@import" not in text
        assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#hatch-doubt", "#hatch-waiting"}
        names = {name for _, attributes in _read(text).seen for name in attributes}
        assert names.isdisjoint({"src", "href", "srcset", "data", "action"})

    def test_every_picture_has_words(self) -> None:
        pictures = [attributes for tag, attributes in _read(page(_busy_report(), MONDAY)).seen
                    if tag == "svg"]  # fmt: skip
        assert all(one.get("aria-label") or one.get("aria-hidden") for one in pictures)
        assert sum("aria-label" in one for one in pictures) == 4

    def test_ids_that_the_style_names_are_there(self) -> None:
        ids = {attributes.get("id") for _, attributes in _read(page(_busy_report(), MONDAY)).seen}
        assert {"hatch-doubt", "hatch-waiting"} <= ids

    def test_bars_of_classes_have_one_scale(self) -> None:
        text = page(replace(_busy_report(), classes={"confirmed": 1012, "failed": 1}), MONDAY)
        parts = re.findall(r"--part:([0-9.]+)%", text)[:2]
        assert parts == ["99.90", "0.10"]

    @pytest.mark.parametrize("places", [(0,), (0, 5)], ids=["one hour", "hours apart"])
    def test_a_point_alone_is_drawn_as_a_dot(self, places: tuple[int, ...]) -> None:
        points = tuple(
            Point(MONDAY + timedelta(hours=n), 9, 9, p50=5.0, p95=50.0, p99=500.0)
            if n in places
            else Point(MONDAY + timedelta(hours=n))
            for n in range(places[-1] + 1)
        )
        seen = _read(page(replace(_busy_report(), points=points), MONDAY)).seen
        dots = [attributes["class"] for tag, attributes in seen if tag == "circle"]
        for name in ("rate", "p50", "p95", "p99"):
            assert dots.count(f"dot {name}") == len(places)

    def test_an_empty_report_says_so(self) -> None:
        text = _texts(page(Report(), MONDAY))
        assert "Nothing yet" in text
        assert "postroad pipeline run" in text

    def test_when_all_is_well_it_says_that(self) -> None:
        fine = replace(_busy_report(), classes={"confirmed": 5}, findings_by_kind={}, findings=())
        text = _texts(page(fine, MONDAY))
        assert "None is lost, doubled or in doubt." in text
        assert "Nothing is wrong with it." in text

    @pytest.mark.parametrize("step", ["hour", "day", "week"])
    @pytest.mark.parametrize("number", [1, 2, 100])
    def test_any_stretch_of_time_can_be_drawn(self, step: str, number: int) -> None:
        apart = {"hour": 1, "day": 24, "week": 168}[step]
        points = tuple(Point(MONDAY + timedelta(hours=apart * n), n, n) for n in range(number))
        shown = page(replace(_busy_report(), points=points, step=step), MONDAY)
        assert "nan" not in _texts(shown).split()
        _read(shown)


@pytest.mark.parametrize(
    ("share", "said"),
    [(None, "–"), (0, "0 %"), (1, "100 %"), (0.9999, "> 99.9 %"), (0.0001, "< 0.1 %"),
     (0.956, "95.6 %")],
)  # fmt: skip
def test_a_share_is_never_rounded_to_all_or_nothing(share: float | None, said: str) -> None:
    assert percent(share).replace("\u00a0", " ") == said


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(None, "–"), (12.4, "12 ms"), (1500, "1.5 s"), (45_000, "45 s"), (300_000, "5 min"),
     (9_000_000, "2.5 h"), (864_000_000, "10 days")],
)  # fmt: skip
def test_durations_read_well(milliseconds: float | None, said: str) -> None:
    assert duration(milliseconds).replace("\u00a0", " ") == said


def test_what_is_markup_stays_and_what_is_not_is_escaped() -> None:
    assert tag("p", tag("b", "a<b"), " & ", class_='x"y') == (
        '<p class="x&quot;y"><b>a&lt;b</b> &amp; </p>'
    )
    assert shortened("urn:type::oak-foods", 10) == "…oak-foods"


class _Lake:
    """Three days, of which one can see which are read."""

    def days(self, table: str) -> list[str]:
        return ["2026-03-01", "2026-03-02", "2026-03-03"]

    def read(self, table: str, dates: list[str] | None) -> list[str] | None:
        return dates


@pytest.mark.parametrize(("days", "read"), [(None, None), (2, ["2026-03-02", "2026-03-03"])])
def test_only_the_last_days_are_read_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, days: int | None, read: list[str] | None
) -> None:
    monkeypatch.setattr(reports, "report", lambda tables: tables)
    tables: Any = of_lake(_Lake(), days)  # type: ignore[arg-type]
    assert tables["messages"] == read
    assert all(dates == read for dates in tables.values())


class TestCommand:
    @pytest.fixture
    def app(self) -> typer.Typer:
        app = typer.Typer()
        app.command()(command)
        return app

    def test_an_empty_lake_gives_a_page_that_says_so(
        self, spark: SparkSession, app: typer.Typer, tmp_path: Path
    ) -> None:
        out = tmp_path / "report.html"
        options = ["--lake", str(tmp_path / "lake"), "--out", str(out)]
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 0, result.output
        assert "has nothing in it yet" in result.stdout
        assert "Nothing yet" in out.read_text(encoding="utf-8")

    def test_a_page_that_cannot_be_written_is_said(self, app: typer.Typer, tmp_path: Path) -> None:
        options = ["--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "no" / "where.html")]
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 2
        assert "there is no folder" in result.stderr
