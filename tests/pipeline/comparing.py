"""What Spark says beside what the oracle says, journal by journal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.pipeline import oracle
from tests.pipeline.journals import KEYS, Event, Row, side_by_side, tables

Difference = tuple[str, Row | None, Row | None]
"""Table, what the oracle says, what Spark says."""

ROUNDS: Final = 6
PERCENTILES: Final = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99}


def differences(
    journals: Mapping[str, list[Event]], tables: Mapping[str, list[Row]]
) -> dict[str, list[Difference]]:
    """By the name of the journal, all that differs from what the oracle says."""
    expected = oracle.tables(side_by_side(journals))
    found: dict[str, list[Difference]] = defaultdict(list)
    for table in KEYS:
        ours, theirs = _keyed(table, expected[table]), _keyed(table, tables[table])
        for key in ours.keys() | theirs.keys():
            one, other = ours.get(key), theirs.get(key)
            if one is None or other is None or not _same(one, other):
                name = next((str(part) for part in key if "/" in str(part)), None)
                assert name is not None, f"{table} has a row of no journal: {other}"
                found[name.split("/")[0]].append((table, one, other))
    return found


def _keyed(table: str, found: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Rows by their key and how often it came before."""
    keyed: dict[tuple[Any, ...], Row] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for row in found:
        key = tuple(str(row[column]) for column in KEYS[table])
        keyed[*key, seen[key]] = row
        seen[key] += 1
    return keyed


def _same(expected: Row, came: Row) -> bool:
    """Whether all columns that the oracle has an opinion about are equal."""
    latencies = expected.get("latencies")
    if latencies is not None and not all(
        oracle.is_percentile(came[column], latencies, percent)
        for column, percent in PERCENTILES.items()
    ):
        return False
    return all(came[column] == expected[column] for column in expected if column != "latencies")


def smallest(
    spark: SparkSession,
    journals: Mapping[str, list[Event]],
    found: Mapping[str, list[Difference]],
) -> tuple[list[Event], list[Difference]]:
    """The smallest journal that differs, made smaller a few times as long as it still does."""
    name = min(found, key=lambda n: len(journals[n]))
    journal, left = journals[name], found[name]
    for _ in range(ROUNDS):
        smaller = {str(n): events for n, events in enumerate(_smaller(journal))}
        still = differences(smaller, tables(spark, side_by_side(smaller)))
        if not still:
            break
        name = min(still, key=lambda n: len(smaller[n]))
        journal, left = smaller[name], still[name]
    return journal, left


def _smaller(journal: list[Event]) -> Iterable[list[Event]]:
    """The same without a message, a node, a stretch or one event."""
    for column in ("message_id", "node"):
        for name in {e[column] for e in journal} - {None}:
            yield _without(journal, [e for e in journal if e[column] == name])
    ordered = sorted(journal, key=lambda e: (e["node"], e["epoch"], e["seq"]))
    for size in {len(ordered) // 4, 1} - {0}:
        for start in range(0, len(ordered), size):
            yield _without(journal, ordered[start : start + size])


def _without(journal: list[Event], gone: list[Event]) -> list[Event]:
    """The events that are left, numbered so that there are no more holes than before."""
    left = [e for e in journal if e not in gone]
    return [
        e
        | {
            "seq": e["seq"]
            - sum(
                (g["node"], g["epoch"]) == (e["node"], e["epoch"]) and g["seq"] < e["seq"]
                for g in gone
            )
        }
        for e in left
    ]


def told(journal: list[Event], found: Iterable[Difference]) -> str:
    """A difference for the reader: the journal without nulls, and both rows."""
    ordered = sorted(journal, key=lambda e: (e["node"], e["epoch"], e["seq"]))
    lines = [str({c: str(v) for c, v in e.items() if v is not None}) for e in ordered]
    for table, expected, came in found:
        lines += [f"table {table}", f"  oracle {_flat(expected)}", f"  spark  {_flat(came)}"]
    return "\n".join(lines)


def _flat(row: Row | None) -> str:
    return "no row" if row is None else ", ".join(f"{column}={row[column]}" for column in row)
