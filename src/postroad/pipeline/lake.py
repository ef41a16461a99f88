"""The lake: a folder per table in daily partitions, changed in commits that hold wholly or not.

A commit has four steps: rows are written below `_staging`; `_intent.json` then tells, in one
atomic write, all that is going to happen; files are moved into place and those of replaced days
removed; `_commit.json` marks it done. Who comes after a process that died completes an intent, and
throws staging without an intent away. So a commit happened when, and only when, its intent stands.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec

from postroad.pipeline import daily
from postroad.pipeline.lake_formats import FORMATS, Format, NoFormat, nothing
from postroad.pipeline.schema import DATE, FINDINGS, TABLES
from postroad.store.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_INTENT: Final = "_intent.json"
_COMMIT: Final = "_commit.json"
_STAGING: Final = "_staging"
_NO_ROOM: Final = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|not enough space", re.I
)


class LakeError(Exception):
    """The lake cannot be used; the message is a sentence that says what to do."""


class Landing(msgspec.Struct, frozen=True):
    """Rows that wait in staging for their place in a table."""

    table: str
    staged: str
    """The folder with daily partitions, below the lake."""
    files: tuple[str, ...]
    """Below that folder."""
    replaced: tuple[str, ...] = ()
    """The days that hold nothing else afterwards."""
    old: tuple[str, ...] = ()
    """What lies there now, below the lake, and goes."""


class Intent(msgspec.Struct, frozen=True):
    """All that a commit does."""

    id: str
    query: str
    batch: int
    format: str
    landings: tuple[Landing, ...]
    state: dict[str, Any]


class Commit(msgspec.Struct, frozen=True):
    """The last commit that is done, and the small values that it left."""

    id: str = ""
    query: str = ""
    batch: int = -1
    format: str = ""
    state: dict[str, Any] = {}


def reached(point: str) -> None:
    """A named point on the way of a commit; tests break off here."""


class Lake:
    """Tables below one folder or URL."""

    def __init__(self, spark: "SparkSession", url: str, format: str = "parquet") -> None:
        self.spark = spark
        self.place = Place.of(url.replace("s3a://", "s3://"))
        self.url = self.place.root if self.place.local else url.rstrip("/")
        self._last = self._last_commit()
        if format not in FORMATS:
            raise LakeError(f"there is no format {format}: take one of {', '.join(FORMATS)}")
        if self._last.format not in ("", format):
            raise LakeError(
                f"the lake {self.url} has the format {self._last.format}: say --format"
                f" {self._last.format}, or take another folder for {format}"
            )
        try:
            self.format: Format = FORMATS[format](self.spark, self.place, self.url)
        except NoFormat as missing:
            raise LakeError(str(missing)) from None

    def read(
        self,
        table: str,
        dates: Iterable[str] | None = None,
        schema: "StructType | None" = None,
    ) -> "DataFrame":
        """The rows of a table, or of some of its days; none where there is nothing yet.

        `schema` (without the day) is needed for internal tables only.
        """
        return self.format.read(table, dates, dated(schema or schema_of(table)))

    def days(self, table: str) -> list[str]:
        """The days on which the table has rows."""
        return self.format.days(table)

    def state(self, name: str) -> Any:
        """A small value that the last commit left, None if none ever did."""
        return self._last.state.get(name)

    def begin(self, batch: int, query: str = "") -> "Change | None":
        """Begin a change; None when this batch of this query was committed before.

        What a process that died left behind is put in order first.
        """
        self.recover()
        if self._last.query == query and batch <= self._last.batch:
            return None
        return Change(self, query, batch)

    def recover(self) -> None:
        """Complete the commit whose intent stands; remove what no intent names."""
        self._last = self._last_commit()
        intent = self._read(_INTENT, Intent)
        if intent is not None and intent.id != self._last.id:
            with told(self.url):
                self._complete(intent)
        elif intent is not None:
            self.place.remove(_INTENT)
        self._remove_folder(_STAGING)

    def _complete(self, intent: Intent) -> None:
        for landing in intent.landings:
            self.format.land(intent.id, landing)
            reached(f"landed {landing.table}")
        done = Commit(
            intent.id,
            intent.query,
            intent.batch,
            intent.format,
            {**self._last.state, **intent.state},
        )
        self.write(_COMMIT, done)
        self._last = done
        reached("done")
        self.place.remove(_INTENT)
        reached("intent removed")

    def _last_commit(self) -> Commit:
        return self._read(_COMMIT, Commit) or Commit()

    def _read(self, name: str, kind: type[Any]) -> Any:
        try:
            with self.place.reading(name) as file:
                return msgspec.json.decode(file.read(), type=kind)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as broken:
            raise LakeError(
                f"{self.place.path(name)} cannot be read ({broken}): it was changed by hand;"
                " restore it, or start a new lake from the journal"
            ) from None

    def write(self, name: str, value: msgspec.Struct) -> None:
        with self.place.writing(name) as file:
            file.write(msgspec.json.encode(value))

    def _remove_folder(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.place.fs.rm(self.place.path(name), recursive=True)


class Change:
    """What one batch changes; nothing of it shows before the commit.

    Several threads may add and replace.
    """

    def __init__(self, lake: Lake, query: str, batch: int) -> None:
        self.lake = lake
        self.batch = batch
        self._query = query
        # A name of its own: what a process that died had begun may still be written by its JVM.
        self._id = uuid.uuid4().hex
        self._count = itertools.count()
        self._landings: list[Landing] = []
        self._state: dict[str, Any] = {}

    def add(self, table: str, rows: "DataFrame") -> None:
        """More rows, with `date`, beside what is there. They are written at once."""
        self._stage(table, rows, ())

    def add_files(self, table: str, write: Callable[[Place], list[str]]) -> None:
        """More rows, as Parquet files that are written below a folder in daily partitions."""
        self._stage_files(table, write, ())

    def replace(self, table: str, rows: "DataFrame", dates: Collection[str]) -> None:
        """The whole content of these days; a day without rows becomes empty."""
        self._stage(table, rows, tuple(sorted(set(dates))))

    def set(self, name: str, value: Any) -> None:
        """A small value of plain JSON, for `Lake.state`."""
        self._state[name] = value

    def days(self, table: str) -> list[str]:
        """The days that this change touches: has rows for, or replaces."""
        touched: set[str] = set()
        for landing in self._of(table):
            touched.update(landing.replaced, (_day_of(file) for file in landing.files))
        return sorted(touched)

    def added(self, table: str, schema: "StructType | None" = None) -> "DataFrame":
        """The rows that were added so far, read from where they wait."""
        added = [one for one in self._of(table) if not one.replaced]
        return self._together(self._waiting(added, table, schema), table, schema)

    def added_files(self, table: str) -> list[str]:
        """The Parquet files of these."""
        added = [one for one in self._of(table) if not one.replaced]
        return [f"{self.lake.url}/{one.staged}/{file}" for one in added for file in one.files]

    def read(
        self, table: str, dates: Iterable[str], schema: "StructType | None" = None
    ) -> "DataFrame":
        """The rows of these days as they will be after the commit."""
        wanted = set(dates)
        before = wanted.difference(*(landing.replaced for landing in self._of(table)))
        frames = self._waiting(self._of(table), table, schema, wanted)
        if self.lake.format.has(table, before):
            frames.append(self.lake.read(table, before, schema))
        return self._together(frames, table, schema)

    def commit(self) -> None:
        """Make it all hold. After an error the next `begin` finds out whether it does."""
        reached("staged")
        lake = self.lake
        landings = tuple(
            msgspec.structs.replace(
                one, old=tuple(lake.format.files(one.table, one.replaced)) if one.replaced else ()
            )
            # What is added stays, though its day is replaced.
            for one in sorted(self._landings, key=lambda one: not one.replaced)
        )
        name = type(lake.format).name
        intent = Intent(self._id, self._query, self.batch, name, landings, self._state)
        with told(lake.url):
            lake.write(_INTENT, intent)
            reached("intended")
            lake._complete(intent)
            lake._remove_folder(_STAGING)
        reached("cleaned")

    def _of(self, table: str) -> list[Landing]:
        return [landing for landing in self._landings if landing.table == table]

    def _stage(self, table: str, rows: "DataFrame", dates: Sequence[str]) -> None:
        self._stage_files(table, lambda place: daily.write(rows, place, self._id), dates)

    def _stage_files(
        self, table: str, write: Callable[[Place], list[str]], dates: Sequence[str]
    ) -> None:
        """What a task of Spark wrote that failed lies there too, and is not among the files."""
        staged = f"{_STAGING}/{self._id}/{next(self._count)}-{table}"
        with told(self.lake.url):
            files = tuple(sorted(write(Place(self.lake.place.fs, self.lake.place.path(staged)))))
        strangers = {_day_of(file) for file in files} - set(dates) if dates else set()
        if strangers:
            raise ValueError(f"rows of {sorted(strangers)} among those to replace {dates}")
        self._landings.append(Landing(table, staged, files, tuple(dates)))
        reached(f"staged {table}")

    def _waiting(
        self,
        landings: list[Landing],
        table: str,
        schema: "StructType | None",
        wanted: Collection[str] | None = None,
    ) -> "list[DataFrame]":
        """The staged rows of all days, or of those that are wanted."""
        frames = []
        for landing in landings:
            folder = f"{self.lake.url}/{landing.staged}"
            paths = [
                f"{folder}/{file}"
                for file in landing.files
                if wanted is None or _day_of(file) in wanted
            ]
            if paths:
                reader = self.lake.spark.read.schema(dated(schema or schema_of(table)))
                frames.append(reader.option("basePath", folder).parquet(*paths))
        return frames

    def _together(
        self, frames: "list[DataFrame]", table: str, schema: "StructType | None"
    ) -> "DataFrame":
        if not frames:
            return nothing(self.lake.spark, dated(schema or schema_of(table)))
        return reduce(lambda a, b: a.unionByName(b), frames)


class told:  # noqa: N801 - reads as a word
    """What went wrong with the disk below, told in a sentence."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and no_room(error):
            raise LakeError(
                f"there is no room left to write {self._url}: free disk space (or raise the"
                " quota) and run again; it goes on where it stopped, and nothing is half done"
            ) from error
        if isinstance(error, PermissionError):
            raise LakeError(
                f"{error.filename or self._url} may not be written: give this user the right to,"
                " or take another folder"
            ) from error


def no_room(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a full disk."""
    return bool(_NO_ROOM.search(str(error))) or (
        error.__cause__ is not None and no_room(error.__cause__)
    )


def schema_of(table: str) -> "StructType":
    """The columns of a table without the day."""
    if table == "_fact_findings":
        return FINDINGS.schema
    if table in TABLES:
        return TABLES[table].schema
    raise ValueError(f"the schema of {table} is not known here: give it")


def dated(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    if DATE in schema.names:
        return schema
    return StructType([*schema.fields, StructField(DATE, StringType())])


def _day_of(file: str) -> str:
    return file.split("/", 1)[0].removeprefix(f"{DATE}=")
