"""Rows picked out of files of many row groups, and files copied without some of their rows."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.pipeline import picking
from postroad.pipeline.folding import READ, SCHEMA, fold
from postroad.pipeline.keys import KeySet
from postroad.pipeline.picking import ByKey, Of
from postroad.pipeline.schema import DATE
from postroad.store.journal_columns import COLUMNS
from postroad.store.places import Place
from tests.pipeline.journals import side_by_side
from tests.pipeline.nasty import nasty

DAY: Final = "2026-03-02"


@pytest.fixture(scope="module")
def facts() -> pa.Table:
    events = side_by_side({str(seed): nasty(seed) for seed in range(40)})
    rows = pa.Table.from_pylist(events, schema=COLUMNS)
    return fold(rows.filter(rows["message_id"].is_valid()).select(READ))


@pytest.fixture(params=[10, 1000], ids=["many row groups", "one row group"])
def file(request: pytest.FixtureRequest, tmp_path: Path, facts: pa.Table) -> str:
    path = tmp_path / f"{DATE}={DAY}" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(facts, path, row_group_size=request.param, store_schema=False)
    return str(path)


class _Sent:
    """Messages that somebody sent."""

    columns = ("sending.party",)

    def mask(self, rows: Any, day: str | None) -> Any:
        return np.asarray(rows["sending"].is_valid())


def _every_third(facts: pa.Table) -> KeySet:
    return KeySet.of(facts["key"][::3])


def test_rows_are_picked_by_key_and_by_what_else_is_read_of_them(
    file: str, facts: pa.Table
) -> None:
    some = _every_third(facts)
    schema = SCHEMA.append(pa.field(DATE, pa.string()))
    held = [row for row in facts.to_pylist() if row["key"] in some.numbers.tolist()]
    for choice, expected in (
        (ByKey("key", some), held),
        (ByKey("message_id", {DAY: some}), held),
        (Of(ByKey("key", some), _Sent()), [row for row in held if row["sending"]]),
    ):
        batches = list(picking._picked(file, schema=schema, choice=choice))
        found = pa.Table.from_batches(batches, schema).to_pylist()
        assert found == [row | {DATE: DAY} for row in expected]
        assert 0 < len(found) < len(facts)


def test_a_copy_has_all_other_rows(
    file: str, facts: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picking, "attempt", lambda: 1)
    some = _every_third(facts)
    place = Place.of(tmp_path / "copies")
    (told,) = picking._copied(file, choice=ByKey("message_id", some), place=place, mark="m")
    ((old, copy),) = zip(*(column.to_pylist() for column in told.columns), strict=True)
    assert old == file
    found = pq.ParquetFile(place.path(copy)).read()
    assert found.to_pylist() == [
        row for row in facts.to_pylist() if row["key"] not in some.numbers.tolist()
    ]
    assert found.schema.field("sending").type == SCHEMA.field("sending").type


def test_a_file_without_such_rows_is_not_copied_and_one_with_no_others_is_gone(
    file: str, facts: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picking, "attempt", lambda: 1)
    place = Place.of(tmp_path / "copies")

    def copied(keys: KeySet) -> list[list[Any]]:
        told = picking._copied(file, choice=ByKey("key", keys), place=place, mark="m")
        return [batch["copy"].to_pylist() for batch in told]

    assert copied(KeySet()) == []
    assert copied(KeySet.of(facts["key"])) == [[None]]
    assert place.names() == []
