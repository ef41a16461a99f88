"""Rows into files by day, without Spark."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.pipeline import daily
from postroad.pipeline.daily import by_day, writing
from postroad.store.places import Place

START: Final = datetime(2026, 3, 1, 22, tzinfo=UTC)
ROWS: Final = pa.table({"at": [START + timedelta(hours=hour) for hour in range(200)]})


def _write(folder: Path) -> list[str]:
    with writing(Place.of(folder), "mark") as days:
        for batch in ROWS.to_batches(30):
            for date, rows in by_day(batch, "at"):
                days.add(date, rows)
    return days.names


def _read(folder: Path, names: list[str]) -> list[tuple[str, datetime]]:
    return [
        (name.split("/")[0], row["at"])
        for name in names
        for row in pq.read_table(folder / name, partitioning=None).to_pylist()
    ]


@pytest.mark.parametrize(("opened", "waiting"), [(40, 1000), (40, 50), (2, 50)])
def test_each_row_lies_once_under_its_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: int, waiting: int
) -> None:
    monkeypatch.setattr(daily, "_OPEN", opened)
    monkeypatch.setattr(daily, "_WAITING", waiting)
    names = _write(tmp_path)
    expected = [(f"date={at:%Y-%m-%d}", at) for at in ROWS["at"].to_pylist()]
    assert sorted(_read(tmp_path, names)) == expected
    assert sorted(names) == Place.of(tmp_path).names()


def test_the_rows_of_a_day_that_come_together_are_one_file(tmp_path: Path) -> None:
    assert len(_write(tmp_path)) == len({f"{at:%Y-%m-%d}" for at in ROWS["at"].to_pylist()})


def test_after_an_error_no_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daily, "_WAITING", 1)

    def broken_off() -> None:
        with writing(Place.of(tmp_path), "mark") as days:
            days.add("2026-03-01", ROWS.to_batches()[0])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_off()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
