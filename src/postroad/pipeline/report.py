"""The numbers of the report: small aggregates of a lake's tables, and lists that have an end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from postroad.pipeline.lake import Lake

CLASSES: Final = (
    "confirmed", "pending", "in_doubt", "failed", "refused", "lost", "ghost", "twice"
)  # fmt: skip
LISTED: Final = ("in_doubt", "lost", "ghost", "twice")
"""Classes that somebody should look at."""
BY_ID: Final = (*LISTED, "refused", "failed", "pending")
"""Classes whose messages are listed."""
AT_MOST: Final = 25
"""Rows of each list."""
_PERCENTS: Final = (0.5, 0.95, 0.99)
_ACCURACY: Final = 1000
_POINTS: Final = 120
_RELAYS: Final = 8
_USED: Final = ("messages", "reconciliation", "partners", "hops", "conversations", "packing",
                "evidence", "findings")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """What was sent and received in one hour, day or week."""

    at: datetime
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    in_doubt: int = 0
    received: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @property
    def waiting(self) -> int:
        return max(0, self.sent - self.acknowledged - self.failed - self.in_doubt)

    @property
    def rate(self) -> float | None:
        """Of what is decided, how much was acknowledged."""
        decided = self.sent - self.waiting
        return self.acknowledged / decided if decided else None


@dataclass(frozen=True, slots=True)
class Partner:
    name: str
    sent: int
    acknowledged: int
    failed: int
    in_doubt: int
    retries: int
    duplicates: int
    errors: int
    p95: float | None = None

    @property
    def rate(self) -> float | None:
        decided = self.acknowledged + self.failed + self.in_doubt
        return self.acknowledged / decided if decided else None

    @property
    def trouble(self) -> float:
        """How much of what is exchanged goes wrong; what is certain weighs most."""
        wrong = 3 * self.failed + 3 * self.in_doubt + self.errors + 0.3 * self.retries
        return wrong / max(self.sent, 20)

    @property
    def in_trouble(self) -> bool:
        """Whether too little is delivered or, while nothing is decided, something went wrong."""
        return self.trouble > 0 if self.rate is None else self.rate < WELL


WELL: Final = 0.95
"""The least delivery rate of a partner that is not in trouble."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A message that somebody should look at."""

    named: str
    message_id: str
    from_party: str | None
    to_party: str | None
    first_at: datetime | None
    last_at: datetime | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Unproven:
    """A receipt that does not prove what it says."""

    message_id: str
    receipt_id: str | None
    signed: bool
    checked_at: datetime | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Road:
    """From one station to the next; `dwell` is how long half of the messages stayed before it."""

    origin: str | None
    to: str | None
    count: int
    dwell: float | None = None


@dataclass(frozen=True, slots=True)
class Relay:
    name: str
    count: int
    stuck: int
    """Came, and were not handed on."""
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    at: datetime | None
    kind: str
    subject: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page shows."""

    points: tuple[Point, ...] = ()
    step: str = "hour"
    latency: tuple[float | None, ...] = (None, None, None)
    attempts: Mapping[int, int] = field(default_factory=dict)
    """How many messages took so many attempts; the last stands for more."""
    classes: Mapping[str, int] = field(default_factory=dict)
    listed: tuple[Listed, ...] = ()
    partners: tuple[Partner, ...] = ()
    """Those in trouble, the worst first."""
    partners_in_all: int = 0
    relays: tuple[Relay, ...] = ()
    arriving: tuple[Road, ...] = ()
    """From senders to the first relay."""
    leaving: tuple[Road, ...] = ()
    """From relays to the next station."""
    conversations: Mapping[str, int] = field(default_factory=dict)
    packing: Mapping[str, int] = field(default_factory=dict)
    evidence: Mapping[bool | None, int] = field(default_factory=dict)
    """How many receipts hold and do not; None: neither they nor their messages are signed."""
    unproven: tuple[Unproven, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_by_kind: Mapping[str, int] = field(default_factory=dict)
    totals: Finding | None = None

    @property
    def messages(self) -> int:
        return sum(self.classes.values())

    @property
    def empty(self) -> bool:
        return not self.messages and not self.findings_by_kind and not self.points


def of_lake(lake: "Lake", days: int | None = None) -> Report:
    """The report of a lake, or of its last days."""
    if not any(lake.days(name) for name in ("reconciliation", "messages", "findings")):
        return Report()
    dates = lake.days("reconciliation")[-days:] if days else None
    return report({name: lake.read(name, dates) for name in _USED})


def report(tables: Mapping[str, "DataFrame"]) -> Report:
    """The numbers of tables, each with the columns of `schema`."""
    missing = [name for name in _USED if name not in tables]
    if missing:
        raise ValueError(f"the report needs the table {missing[0]}; there are {', '.join(tables)}")
    messages = tables["messages"].filter("kind = 'message'")
    step = _step(tables["partners"], messages)
    flow = _flow(messages, step)
    sums = _sums_of_partners(tables["partners"], step)
    partners = _partners(sums, flow)
    troubled = sorted((one for one in partners if one.in_trouble), key=lambda one: -one.trouble)
    return Report(
        points=_points(sums, flow),
        step=step,
        latency=next((_percentiles(row) for row in flow if _whole(row)), (None, None, None)),
        attempts=_attempts(messages),
        classes=_counts(tables["reconciliation"], "class"),
        listed=_listed(tables["reconciliation"], messages),
        partners=tuple(troubled[:AT_MOST]),
        partners_in_all=len(partners),
        **_roads(tables["hops"], tables["messages"]),
        conversations=_sums(
            tables["conversations"],
            "messages", "requests", "replies", "unanswered", "gaps", "out_of_order",
        ),
        packing=_sums(
            tables["packing"], "messages", "envelopes", "fragments", "payload_bytes", "wire_bytes"
        ),
        evidence=_counts(tables["evidence"], "valid"),
        unproven=_unproven(tables["evidence"]),
        **_findings(tables["findings"]),
    )  # fmt: skip


def _step(partners: "DataFrame", messages: "DataFrame") -> str:
    """Hours while these can be told apart, then days, then weeks."""
    span = partners.agg(F.min("hour"), F.max("hour")).first()
    if span is None or span[0] is None:
        span = messages.agg(F.min("received_at"), F.max("received_at")).first()
    if span is None or span[0] is None:
        return "hour"
    hours = (span[1] - span[0]).total_seconds() / 3600
    return "hour" if hours <= _POINTS else "day" if hours <= _POINTS * 24 else "week"


def _flow(messages: "DataFrame", step: str) -> list[Any]:
    """Counts and percentiles by side and time, by side and partner, and by side, in one pass."""
    rows = messages.select(
        "side",
        _micros(F.date_trunc(step, F.coalesce("first_sent_at", "received_at"))).alias("at"),
        F.when(F.col("side") == "sending", F.col("to_party")).alias("partner"),
        F.when(F.col("side") == "sending", F.col("latency_ms")).alias("latency_ms"),
    )
    sets = [[F.col("side"), F.col("at")], [F.col("side"), F.col("partner")], [F.col("side")]]
    return (
        rows.groupingSets(sets, "side", "at", "partner")
        .agg(
            F.grouping_id().alias("level"),
            F.count("*").alias("count"),
            F.percentile_approx("latency_ms", list(_PERCENTS), _ACCURACY).alias("percentiles"),
        )
        .collect()
    )


_BY_TIME, _BY_PARTNER, _BY_SIDE = 0b001, 0b010, 0b011
"""Of grouping_id: the columns at and partner that are summed over."""


def _whole(row: Any) -> bool:
    return bool(row["level"] == _BY_SIDE and row["side"] == "sending")


def _percentiles(row: Any) -> tuple[float | None, ...]:
    return tuple(row["percentiles"] or (None, None, None))


_SUMS: Final = (
    "sent", "acknowledged", "failed", "in_doubt", "retries", "duplicates", "errors"
)  # fmt: skip


def _sums_of_partners(partners: "DataFrame", step: str) -> list[Any]:
    """By time and by partner."""
    rows = partners.withColumn("at", _micros(F.date_trunc(step, "hour")))
    sums = (F.sum(name).alias(name) for name in _SUMS)
    sets = [[F.col("at")], [F.col("partner")]]
    return rows.groupingSets(sets, "at", "partner").agg(*sums).collect()


def _points(sums: list[Any], flow: list[Any]) -> tuple[Point, ...]:
    found: dict[int, dict[str, Any]] = {
        row["at"]: {name: row[name] for name in _SUMS[:4]} for row in sums if row["at"] is not None
    }
    for row in flow:
        if row["level"] != _BY_TIME or row["at"] is None:
            continue
        point = found.setdefault(row["at"], {})
        if row["side"] == "receiving":
            point["received"] = row["count"]
        else:
            point |= dict(zip(("p50", "p95", "p99"), _percentiles(row), strict=True))
    return tuple(Point(_EPOCH + timedelta(microseconds=at), **found[at]) for at in sorted(found))


def _partners(sums: list[Any], flow: list[Any]) -> list[Partner]:
    slow = {row["partner"]: _percentiles(row)[1] for row in flow if row["level"] == _BY_PARTNER}
    return [
        Partner(row["partner"], p95=slow.get(row["partner"]), **{n: row[n] for n in _SUMS})
        for row in sums
        if row["partner"] is not None
    ]


_MORE: Final = 6
"""So many attempts and more are one number."""


def _attempts(messages: "DataFrame") -> dict[int, int]:
    tried = messages.filter("side = 'sending' and attempts > 0")
    rows = tried.groupBy(F.least("attempts", F.lit(_MORE)).alias("attempts")).count().collect()
    return {row["attempts"]: row["count"] for row in sorted(rows)}


def _listed(reconciliation: "DataFrame", messages: "DataFrame") -> tuple[Listed, ...]:
    """The last ones of each class that is listed, with who sent them to whom."""
    last = Window.partitionBy("class").orderBy(F.desc("last_at"), "message_id")
    of_class = reconciliation.filter(F.col("class").isin(*BY_ID))
    of_class = of_class.withColumn("place", F.row_number().over(last))
    chosen = of_class.filter(F.col("place") <= AT_MOST)
    rows = _with_micros(chosen, "first_at", "last_at").collect()
    rows.sort(key=lambda row: (row["class"], row["place"]))
    if not rows:
        return ()
    ids = [row["message_id"] for row in rows]
    known = messages.filter(F.col("message_id").isin(ids))
    if "date" in messages.columns and "date" in reconciliation.columns:
        known = known.filter(F.col("date").isin(list({row["date"] for row in rows})))
    parties = {
        row["message_id"]: (row["sender"], row["receiver"])
        for row in known.groupBy("message_id")
        .agg(F.min("from_party").alias("sender"), F.min("to_party").alias("receiver"))
        .collect()
    }
    return tuple(
        Listed(
            row["class"],
            row["message_id"],
            sender,
            receiver,
            _utc(row["first_at"]),
            _utc(row["last_at"]),
            row["detail"],
        )
        for row in rows
        for sender, receiver in [parties.get(row["message_id"], (None, None))]
    )


def _unproven(evidence: "DataFrame") -> tuple[Unproven, ...]:
    """The receipts that were checked last, those that do not hold before unsigned ones."""
    rows = evidence.filter("valid is null or not valid")
    rows = rows.orderBy(F.col("valid").isNull(), F.desc("checked_at"), "message_id").limit(AT_MOST)
    return tuple(
        Unproven(
            row["message_id"],
            row["receipt_id"],
            row["valid"] is not None,
            _utc(row["checked_at"]),
            row["detail"],
        )
        for row in _with_micros(rows, "checked_at").collect()
    )


def _roads(hops: "DataFrame", messages: "DataFrame") -> dict[str, Any]:
    relays = (
        hops.groupBy("party")
        .agg(
            F.count("*").alias("count"),
            F.count_if(F.col("left_at").isNull()).alias("stuck"),
            F.percentile_approx("dwell_ms", [0.5, 0.95], _ACCURACY).alias("dwell"),
        )
        .orderBy(F.desc("count"), "party")
        .limit(_RELAYS)
        .collect()
    )
    if not relays:
        return {}
    leaving = (
        hops.filter("left_at is not null")
        .groupBy("party", "next")
        .agg(
            F.count("*").alias("count"),
            F.percentile_approx("dwell_ms", 0.5, _ACCURACY).alias("dwell"),
        )
        .orderBy(F.desc("count"), "party", "next")
        .limit(AT_MOST)
        .collect()
    )
    # The first relay is the one that no other relay names as the next.
    first = hops.groupBy("message_id").agg(
        F.array_min(F.array_except(F.collect_set("party"), F.collect_set("next"))).alias("to")
    )
    senders = messages.filter("from_party is not null")
    senders = senders.groupBy("message_id").agg(F.min("from_party").alias("origin"))
    arriving = (
        first.join(senders, "message_id", "left")
        .groupBy("origin", "to")
        .count()
        .orderBy(F.desc("count"), "origin", "to")
        .limit(AT_MOST)
        .collect()
    )
    return {
        "relays": tuple(
            Relay(row["party"], row["count"], row["stuck"], *(row["dwell"] or (None, None)))
            for row in relays
        ),
        "arriving": tuple(Road(row["origin"], row["to"], row["count"]) for row in arriving),
        "leaving": tuple(
            Road(row["party"], row["next"], row["count"], row["dwell"]) for row in leaving
        ),
    }


def _findings(findings: "DataFrame") -> dict[str, Any]:
    counts = _counts(findings, "kind")
    totals = findings.filter("kind = 'totals'").orderBy(F.desc("at")).limit(1)
    # Clocks that disagree are many, and the least of all.
    rows = findings.filter("kind <> 'totals'")
    rows = rows.orderBy(F.col("kind") == "clock", F.desc("at"), "kind", "subject")
    counts.pop("totals", None)
    last = _with_micros(totals, "at").collect()
    return {
        "findings": tuple(map(_finding, _with_micros(rows.limit(AT_MOST), "at").collect())),
        "findings_by_kind": counts,
        "totals": _finding(last[0]) if last else None,
    }


def _finding(row: Any) -> Finding:
    return Finding(_utc(row["at"]), row["kind"], row["subject"], row["detail"])


def _counts(rows: "DataFrame", column: str) -> dict[Any, int]:
    return {row[column]: row["count"] for row in rows.groupBy(column).count().collect()}


def _sums(rows: "DataFrame", *names: str) -> dict[str, int]:
    row = rows.agg(*(F.sum(name).alias(name) for name in names)).first()
    return {name: int((row and row[name]) or 0) for name in names}


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(at: "Column") -> "Column":
    """A number: what Spark makes of a time depends on where the driver runs."""
    return F.unix_micros(at)


def _with_micros(rows: "DataFrame", *names: str) -> "DataFrame":
    return rows.withColumns({name: _micros(F.col(name)) for name in names})


def _utc(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
