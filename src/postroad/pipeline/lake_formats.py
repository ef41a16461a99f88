"""How a table lies in a lake: plain Parquet files, or a table format that the session has."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from postroad.pipeline.daily import day_of
from postroad.pipeline.schema import DATE
from postroad.store.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SMALL: Final = 16 * 1024 * 1024
FEW: Final = 64
"""A file is small that has fewer bytes than that, and less than such a part of its day."""
CROWD: Final = 32
"""So many small files of a day are too many."""


class NoFormat(Exception):
    """The session doesn't know a format; the message is a sentence."""


class Landing(Protocol):
    """Rows that wait in staging for their place in a table."""

    @property
    def table(self) -> str: ...
    @property
    def staged(self) -> str: ...
    @property
    def files(self) -> tuple[str, ...]: ...
    @property
    def replaced(self) -> tuple[str, ...]: ...
    @property
    def old(self) -> tuple[str, ...]: ...


class Format(Protocol):
    """What a lake needs of a table format."""

    name: ClassVar[str]

    def read(
        self, table: str, dates: Iterable[str] | None, schema: "StructType"
    ) -> "DataFrame": ...

    def days(self, table: str) -> list[str]: ...

    def has(self, table: str, dates: Iterable[str]) -> bool:
        """Whether there may be rows of these days; it costs no job."""
        ...

    def files(self, table: str, dates: Iterable[str]) -> list[str]:
        """What a replacement of these days has to remove, below the lake."""
        ...

    def paths(self, table: str, dates: Iterable[str]) -> list[str] | None:
        """The files in which these days lie; None where the format alone knows that."""
        ...

    def crowded(self, table: str, date: str) -> bool:
        """Whether a day lies in so many small files that they should be made fewer."""
        ...

    def land(self, commit: str, landing: Landing) -> None:
        """Bring staged rows to their table; the same again changes nothing."""
        ...


class Parquet:
    """`TABLE/date=YYYY-MM-DD/*.parquet`."""

    name: ClassVar[str] = "parquet"

    def __init__(self, spark: "SparkSession", place: Place, url: str) -> None:
        self._spark = spark
        self._place = place
        self._url = url

    def read(self, table: str, dates: Iterable[str] | None, schema: "StructType") -> "DataFrame":
        there = self.days(table)
        days = there if dates is None else sorted(set(dates).intersection(there))
        if not days:
            return nothing(self._spark, schema)
        folder = f"{self._url}/{table}"
        paths = [folder] if days == there else [f"{folder}/{DATE}={day}" for day in days]
        return self._spark.read.schema(schema).option("basePath", folder).parquet(*paths)

    def days(self, table: str) -> list[str]:
        names = (path.rsplit("/", 1)[-1] for path in self._listed(table))
        return sorted(name.removeprefix(f"{DATE}=") for name in names if name.startswith(DATE))

    def has(self, table: str, dates: Iterable[str]) -> bool:
        return not set(dates).isdisjoint(self.days(table))

    def files(self, table: str, dates: Iterable[str]) -> list[str]:
        return [
            f"{table}/{DATE}={day}/{path.rsplit('/', 1)[-1]}"
            for day in dates
            for path in self._listed(f"{table}/{DATE}={day}")
        ]

    def paths(self, table: str, dates: Iterable[str]) -> list[str] | None:
        names = self.files(table, sorted(dates))
        return [f"{self._url}/{name}" for name in names if "/." not in name]

    def crowded(self, table: str, date: str) -> bool:
        path = self._place.path(f"{table}/{DATE}={date}")
        if not self._place.fs.exists(path):
            return False
        sizes = [found["size"] for found in self._place.fs.ls(path, detail=True)]
        small = min(SMALL, sum(sizes) // FEW)
        return len([size for size in sizes if size <= small]) >= CROWD

    def land(self, commit: str, landing: Landing) -> None:
        for file in landing.files:
            self._move(f"{landing.staged}/{file}", f"{landing.table}/{file}")
        for name in landing.old:
            self._place.remove(name)
        for day in {*landing.replaced, *map(day_of, landing.old)}:
            if not self._listed(f"{landing.table}/{DATE}={day}"):
                self._remove_folder(f"{landing.table}/{DATE}={day}")

    def _listed(self, name: str) -> list[str]:
        path = self._place.path(name)
        if self._place.local:
            folder = Path(path)
            return [str(found) for found in folder.iterdir()] if folder.is_dir() else []
        self._place.fs.invalidate_cache()
        return list(self._place.fs.ls(path, detail=False)) if self._place.fs.exists(path) else []

    def _move(self, source: str, target: str) -> None:
        """It may have been moved before."""
        a, b = self._place.path(source), self._place.path(target)
        if self._place.local:
            Path(b).parent.mkdir(parents=True, exist_ok=True)
            if Path(a).exists():
                Path(a).rename(b)
        elif self._place.fs.exists(a):
            self._place.fs.makedirs(b.rsplit("/", 1)[0], exist_ok=True)
            self._place.fs.mv(a, b)

    def _remove_folder(self, name: str) -> None:
        if self._place.local:
            path = Path(self._place.path(name))
            for hidden in path.glob(".*"):
                hidden.unlink()
            if path.is_dir():
                path.rmdir()


class _Kept:
    """What a table format of the session keeps: files are its own business."""

    name: ClassVar[str]

    def __init__(self, spark: "SparkSession", place: Place, url: str) -> None:
        self._spark = spark
        self._place = place
        self._url = url
        self._require()

    def read(self, table: str, dates: Iterable[str] | None, schema: "StructType") -> "DataFrame":
        from pyspark.sql import functions as F

        if not self._there(table):
            return nothing(self._spark, schema)
        rows = self._rows(table)
        if dates is not None:
            rows = rows.where(F.col(DATE).isin(sorted(set(dates))))
        return fitted(rows, schema)

    def days(self, table: str) -> list[str]:
        if not self._there(table):
            return []
        return sorted(row[0] for row in self._rows(table).select(DATE).distinct().collect())

    def has(self, table: str, dates: Iterable[str]) -> bool:
        return bool(set(dates)) and self._there(table)

    def files(self, table: str, dates: Iterable[str]) -> list[str]:
        return []

    def paths(self, table: str, dates: Iterable[str]) -> list[str] | None:
        return None

    def crowded(self, table: str, date: str) -> bool:
        return False

    def land(self, commit: str, landing: Landing) -> None:
        from pyspark.sql import functions as F

        if landing.files:
            folder = f"{self._url}/{landing.staged}"
            paths = [f"{folder}/{file}" for file in landing.files]
            staged = self._spark.read.option("basePath", folder).parquet(*paths)
            # Spark reads folders that look like dates as dates.
            rows = staged.withColumn(DATE, F.col(DATE).cast("string"))
            self._write(landing, rows, f"{commit} {landing.staged.rsplit('/', 1)[-1]}")
        elif landing.replaced and self._there(landing.table):
            self._write(landing, self._rows(landing.table).where("false"), commit)

    def _require(self) -> None:
        """Spark says at once when it doesn't know a format."""
        try:
            self._spark.read.format(self.name).load(f"{self._url}/_none").schema  # noqa: B018
        except Exception as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error) or "Failed to find" in str(error):
                raise NoFormat(
                    f"this Spark session has no {self.name}: give it the jar that fits its version"
                    f" (--set spark.jars.packages=...), or take --format parquet"
                ) from None

    def _there(self, table: str) -> bool:
        return bool(self._place.exists(f"{table}/{self.log}"))

    log: ClassVar[str]

    def _rows(self, table: str) -> "DataFrame":
        return self._spark.read.format(self.name).load(f"{self._url}/{table}")

    def _write(self, landing: Landing, rows: "DataFrame", once: str) -> None:
        raise NotImplementedError


class Delta(_Kept):
    """A Delta table for each; a landing that is repeated is known by its transaction."""

    name: ClassVar[str] = "delta"
    log: ClassVar[str] = "_delta_log"

    def _write(self, landing: Landing, rows: "DataFrame", once: str) -> None:
        writer = rows.write.format("delta").partitionBy(DATE)
        writer = writer.option("txnAppId", f"postroad {once}").option("txnVersion", "1")
        if landing.replaced and self._there(landing.table):
            writer = writer.mode("overwrite").option("replaceWhere", _of(landing.replaced))
        else:
            writer = writer.mode("append")
        writer.save(f"{self._url}/{landing.table}")


class Iceberg(_Kept):
    """An Iceberg table for each, in a catalog that is the lake's folder."""

    name: ClassVar[str] = "iceberg"
    log: ClassVar[str] = "metadata"

    def __init__(self, spark: "SparkSession", place: Place, url: str) -> None:
        super().__init__(spark, place, url)
        self._catalog = f"lake_{hashlib.sha256(url.encode()).hexdigest()[:12]}"
        setting = f"spark.sql.catalog.{self._catalog}"
        spark.conf.set(setting, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{setting}.type", "hadoop")
        spark.conf.set(f"{setting}.warehouse", url)

    def _rows(self, table: str) -> "DataFrame":
        return self._spark.table(self._named(table))

    def _named(self, table: str) -> str:
        return f"{self._catalog}.`{table}`"

    def _write(self, landing: Landing, rows: "DataFrame", once: str) -> None:
        from pyspark.sql import functions as F

        name = self._named(landing.table)
        writer = rows.writeTo(name).using("iceberg").partitionedBy(F.col(DATE))
        writer = writer.option("snapshot-property.postroad", once).option("fanout-enabled", "true")
        if not self._there(landing.table):
            writer.create()
        elif landing.replaced:
            writer.overwrite(F.col(DATE).isin(list(landing.replaced)))
        elif once not in self._done(name):
            writer.append()

    def _done(self, name: str) -> set[str]:
        rows = self._spark.sql(f"SELECT summary['postroad'] FROM {name}.snapshots").collect()
        return {row[0] for row in rows}


def _of(days: Iterable[str]) -> str:
    return f"{DATE} IN ({', '.join(repr(day) for day in days)})"


def fitted(rows: "DataFrame", schema: "StructType") -> "DataFrame":
    """Rows with some of their columns, and of structs some of their fields."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    columns = []
    for one in schema.fields:
        value = F.col(one.name)
        if isinstance(one.dataType, StructType):
            parts = (value[name].alias(name) for name in one.dataType.names)
            value = F.when(value.isNotNull(), F.struct(*parts))
        columns.append(value.cast(one.dataType).alias(one.name))
    return rows.select(*columns)


def nothing(spark: "SparkSession", schema: "StructType") -> "DataFrame":
    """A frame with these columns and no row; it costs no job."""
    from pyspark.sql import functions as F

    columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields)
    return spark.range(0).select(*columns)


FORMATS: Final[dict[str, Any]] = {one.name: one for one in (Parquet, Delta, Iceberg)}
SETTINGS: Final = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    },
}
"""What a session must be started with, beside the jars, to know a format."""
