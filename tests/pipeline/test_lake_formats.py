"""Lakes of Delta and Iceberg tables, where the session has the jars.

It has them by `SPARK_CONF_DIR`, with `spark.jars.packages` and the settings of
`lake_formats.SETTINGS` in its `spark-defaults.conf`.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from postroad.pipeline import lake as lakes
from postroad.pipeline.lake import Change, Lake, LakeError
from postroad.pipeline.lake_formats import Delta, fitted
from tests.pipeline.test_lake import (
    MONDAY,
    TUESDAY,
    BrokenOff,
    begun,
    breaking_at,
    content,
    rows,
)


@pytest.fixture(params=["delta", "iceberg"])
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    try:
        return Lake(spark, str(tmp_path / "lake"), request.param)
    except LakeError as missing:
        pytest.skip(str(missing))


def test_a_format_that_the_session_lacks_is_told_in_a_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Delta, "name", "deltoid")
    with pytest.raises(LakeError, match=r"this Spark session has no deltoid.*--format parquet"):
        Lake(spark, str(tmp_path), "delta")


def test_rows_are_fitted_to_some_columns_and_some_fields_of_structs(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a", (1, "x"), 5), ("b", None, 6), ("c", (None, None), 7)],
        "id string, part struct<number: int, text: string>, left: int",
    )
    schema = StructType.fromDDL("id string, part struct<number: bigint>")
    assert isinstance(schema, StructType)
    found = fitted(rows, schema)
    assert found.schema == schema
    assert [row.asDict(recursive=True) for row in found.orderBy("id").collect()] == [
        {"id": "a", "part": {"number": 1}},
        {"id": "b", "part": None},
        {"id": "c", "part": {"number": None}},
    ]


def test_days_are_added_replaced_and_emptied(lake: Lake) -> None:
    assert content(lake) == []
    first = begun(lake, 0)
    first.add("findings", rows(lake.spark, (MONDAY, "a"), (TUESDAY, "b")))
    first.commit()
    second = begun(lake, 1)
    second.replace("findings", rows(lake.spark, (MONDAY, "c")), [MONDAY])
    second.add("findings", rows(lake.spark, (TUESDAY, "d")))
    assert {row.subject for row in second.read("findings", [MONDAY, TUESDAY]).collect()} == {
        *("b", "c", "d")
    }
    second.commit()
    assert content(lake) == ["b", "c", "d"]
    assert content(lake, dates=[TUESDAY]) == ["b", "d"]
    third = begun(lake, 2)
    third.replace("findings", rows(lake.spark), [TUESDAY])
    third.commit()
    assert content(lake) == ["c"]
    assert lake.days("findings") == [MONDAY]


@pytest.mark.parametrize("point", ["staged", "intended", "landed findings", "done"])
def test_broken_off_and_begun_again_rows_are_there_once(
    lake: Lake, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(change: Change, subject: str) -> None:
        change.add("findings", rows(lake.spark, (MONDAY, subject)))
        change.commit()

    commit(begun(lake, 0), "a")
    with monkeypatch.context() as patch:
        patch.setattr(lakes, "reached", breaking_at(point))
        with pytest.raises(BrokenOff):
            commit(begun(lake, 1), "b")
    again = Lake(lake.spark, lake.url, type(lake.format).name)
    change = again.begin(1)
    if change is not None:
        commit(change, "b")
    assert content(again) == ["a", "b"]
