"""The lake: a folder per table in daily partitions, changed in commits that hold wholly or not.

A commit has four steps: rows are written below `_staging`; `_intent.json` then tells, in one
atomic write, all that is going to happen; files are moved into place and those of replaced days
removed; `_commit.json` marks it done. Who comes after a process that died completes an intent, and
throws staging without an intent away. So a commit happened when, and only when, its intent stands.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec

from postroad.pipeline import daily
from postroad.pipeline.daily import day_of
from postroad.pipeline.lake_formats import FORMATS, Format, NoFormat, nothing
from postroad.pipeline.picking import Choice, copy_without, left_rows, picked, picked_rows
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

    @property
    def adds(self) -> bool:
        """Whether nothing of the table goes for it."""
        return not self.replaced and not self.old


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

    def remove(
        self,
        table: str,
        dates: Collection[str],
        choice: Choice | None,
        schema: "StructType | None" = None,
    ) -> None:
        """The rows of these days that are chosen go (None: no row does); what is added stays.

        Only files that have such rows are written anew, and days that lie in many small files.
        """
        days = set(self.lake.days(table)).intersection(dates)
        whole = {day for day in days if self.lake.format.crowded(table, day)}
        if choice is not None:
            if (files := self.lake.format.paths(table, days - whole)) is None:
                whole = days
            elif files:
                self._copy_without(table, files, choice)
        if whole:
            rows = self.lake.read(table, whole, schema)
            self.replace(table, left_rows(rows, choice) if choice else rows, whole)

    def set(self, name: str, value: Any) -> None:
        """A small value of plain JSON, for `Lake.state`."""
        self._state[name] = value

    def days(self, table: str) -> list[str]:
        """The days that this change touches: has rows for, or replaces."""
        touched: set[str] = set()
        for landing in self._of(table):
            files = (*landing.files, *landing.old)
            touched.update(landing.replaced, (day_of(file) for file in files))
        return sorted(touched)

    def added(self, table: str, schema: "StructType | None" = None) -> "DataFrame":
        """The rows that were added so far, read from where they wait."""
        return self._together(self._waiting(self._adding(table), table, schema), table, schema)

    def added_files(self, table: str) -> list[str]:
        """The Parquet files of these."""
        return self._staged(self._adding(table))

    def kept(
        self, table: str, dates: Iterable[str], schema: "StructType | None" = None
    ) -> "DataFrame":
        """The rows of these days that were there before and stay."""
        wanted = set(dates)
        frames = self._waiting(self._changing(table), table, schema, wanted)
        days = self._days_left(table, wanted)
        if not self.lake.format.has(table, days):
            return self._together(frames, table, schema)
        files = self._files_left(table, days)
        if files is None or not any(landing.old for landing in self._of(table)):
            frames.append(self.lake.read(table, days, schema))
        elif files:
            frames.append(self._parquet(files, f"{self.lake.url}/{table}", table, schema))
        return self._together(frames, table, schema)

    def kept_files(self, table: str, dates: Iterable[str]) -> list[str] | None:
        """The Parquet files of these; None where the format alone knows them."""
        wanted = set(dates)
        files = self._files_left(table, self._days_left(table, wanted))
        return None if files is None else files + self._staged(self._changing(table), wanted)

    def find(
        self,
        table: str,
        choice: Choice,
        schema: "StructType",
        *columns: str,
        dates: Iterable[str] | None = None,
    ) -> "DataFrame":
        """Some of the rows of these days, or of all, that were there before and stay.

        They have all columns of `schema`, or those that are given, and their day.
        """
        wanted = set(self.lake.days(table) if dates is None else dates)
        files = self.kept_files(table, wanted)
        names = [*(columns or schema.names), DATE]
        if files is None:
            return picked_rows(self.kept(table, wanted, schema), choice).select(*names)
        return picked(self.lake.spark, files, some_of(dated(schema), names), choice)

    def read(
        self, table: str, dates: Iterable[str], schema: "StructType | None" = None
    ) -> "DataFrame":
        """The rows of these days as they will be after the commit."""
        wanted = set(dates)
        added = self._waiting(self._adding(table), table, schema, wanted)
        return reduce(lambda a, b: a.unionByName(b), added, self.kept(table, wanted, schema))

    def commit(self) -> None:
        """Make it all hold. After an error the next `begin` finds out whether it does."""
        reached("staged")
        lake = self.lake
        landings = tuple(
            msgspec.structs.replace(
                one,
                old=tuple(lake.format.files(one.table, one.replaced)) if one.replaced else one.old,
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

    def _adding(self, table: str) -> list[Landing]:
        return [landing for landing in self._of(table) if landing.adds]

    def _changing(self, table: str) -> list[Landing]:
        """Those with what is left of rows that are there."""
        return [landing for landing in self._of(table) if not landing.adds]

    def _days_left(self, table: str, wanted: Collection[str]) -> Set[str]:
        """Those that are not replaced as a whole."""
        return set(wanted).difference(*(landing.replaced for landing in self._of(table)))

    def _files_left(self, table: str, days: Collection[str]) -> list[str] | None:
        """The files of these days that stay as they are; None: they are not ours to know."""
        files = self.lake.format.paths(table, days)
        if files is None:
            return None
        gone = {f"{self.lake.url}/{old}" for landing in self._of(table) for old in landing.old}
        return [file for file in files if file not in gone]

    def _stage(self, table: str, rows: "DataFrame", dates: Sequence[str]) -> None:
        self._stage_files(table, lambda place: daily.write(rows, place, self._id), dates)

    def _stage_files(
        self, table: str, write: Callable[[Place], list[str]], dates: Sequence[str]
    ) -> None:
        """What a task of Spark wrote that failed lies there too, and is not among the files."""
        staged = self._folder(table)
        with told(self.lake.url):
            files = write(Place(self.lake.place.fs, self.lake.place.path(staged)))
        strangers = {day_of(file) for file in files} - set(dates) if dates else set()
        if strangers:
            raise ValueError(f"rows of {sorted(strangers)} among those to replace {dates}")
        self._land(Landing(table, staged, tuple(sorted(files)), tuple(dates)))

    def _copy_without(self, table: str, files: list[str], choice: Choice) -> None:
        staged = self._folder(table)
        place = Place(self.lake.place.fs, self.lake.place.path(staged))
        with told(self.lake.url):
            copies = copy_without(self.lake.spark, files, choice, place, self._id)
        if copies:
            made = sorted(copy for copy in copies.values() if copy is not None)
            old = sorted(file.removeprefix(f"{self.lake.url}/") for file in copies)
            self._land(Landing(table, staged, tuple(made), (), tuple(old)))

    def _folder(self, table: str) -> str:
        return f"{_STAGING}/{self._id}/{next(self._count)}-{table}"

    def _land(self, landing: Landing) -> None:
        self._landings.append(landing)
        reached(f"staged {landing.table}")

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
            if files := self._staged([landing], wanted):
                folder = f"{self.lake.url}/{landing.staged}"
                frames.append(self._parquet(files, folder, table, schema))
        return frames

    def _staged(self, landings: list[Landing], wanted: Collection[str] | None = None) -> list[str]:
        return [
            f"{self.lake.url}/{landing.staged}/{file}"
            for landing in landings
            for file in landing.files
            if wanted is None or day_of(file) in wanted
        ]

    def _parquet(
        self, files: list[str], folder: str, table: str, schema: "StructType | None"
    ) -> "DataFrame":
        reader = self.lake.spark.read.schema(dated(schema or schema_of(table)))
        return reader.option("basePath", folder).parquet(*files)

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


def some_of(schema: "StructType", names: Collection[str]) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name in names])


def dated(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    if DATE in schema.names:
        return schema
    return StructType([*schema.fields, StructField(DATE, StringType())])
