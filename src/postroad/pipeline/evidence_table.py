"""The table `evidence` of a lake: which receipts have a row, and how new rows come there.

Receipts are verified beside a pipeline that may be running, so this has an intent of its own: rows
are written below `_evidence`, `_evidence.json` then tells in one atomic write what is going to
happen, and then it happens. Who comes after a process that died completes it.
"""

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from postroad.pipeline.evidence_bytes import GONE
from postroad.pipeline.lake import Lake, Landing, told
from postroad.pipeline.schema import DATE, EVIDENCE
from postroad.store.places import Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTENT: Final = "_evidence.json"
_STAGING: Final = "_evidence"
_KEY: Final = ["message_id", "receipt_id"]


class _Intent(msgspec.Struct, frozen=True):
    id: str
    landing: Landing


def is_gone() -> "Column":
    """Whether a row is about bytes that were no longer there."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col("detail").startswith(GONE), F.lit(False))


def without_rows(lake: Lake, receipts: "DataFrame") -> "DataFrame":
    """Those of the receipts that have no row yet."""
    if not lake.days(EVIDENCE.name):
        return receipts
    return receipts.join(lake.read(EVIDENCE.name).select(*_KEY), _KEY, "left_anti")


def recover(lake: Lake) -> None:
    """Complete what a process that died had begun; remove what it had only written."""
    with suppress(FileNotFoundError):
        with lake.place.reading(_INTENT) as file:
            intent = msgspec.json.decode(file.read(), type=_Intent)
        _land(lake, intent)
    _forget(lake)


class Staged:
    """Rows that were written and wait for their place in the table."""

    def __init__(self, lake: Lake, rows: "DataFrame") -> None:
        self._lake = lake
        self._id = uuid.uuid4().hex
        self._schema = rows.schema
        self._write("new", rows)

    @property
    def rows(self) -> "DataFrame":
        return self._read("new")

    def add(self) -> None:
        """Bring them to the table, beside what is there."""
        self._land(Landing(EVIDENCE.name, self._folder("new"), self._files("new")))

    def put(self) -> None:
        """Bring them to the table in the place of what is there.

        A row stays whose receipt is not among the new ones, or could not be looked at again
        because its bytes have gone since: what was proven once is not forgotten for that.
        """
        old = self._lake.read(EVIDENCE.name)
        stays = old.join(self.rows.where(~is_gone()).select(*_KEY), _KEY, "left_anti")
        comes = self.rows.join(stays.select(*_KEY), _KEY, "left_anti")
        self._write("all", stays.select(*comes.columns).unionByName(comes))
        files = self._files("all")
        days = {*self._lake.days(EVIDENCE.name), *(file.split("=")[1][:10] for file in files)}
        replaced = tuple(sorted(days))
        gone = tuple(self._lake.format.files(EVIDENCE.name, replaced))
        self._land(Landing(EVIDENCE.name, self._folder("all"), files, replaced, gone))

    def _land(self, landing: Landing) -> None:
        intent = _Intent(self._id, landing)
        with told(self._lake.url):
            self._lake.write(_INTENT, intent)
            _land(self._lake, intent)
            _forget(self._lake)

    def _folder(self, name: str) -> str:
        return f"{_STAGING}/{self._id}/{name}"

    def _write(self, name: str, rows: "DataFrame") -> None:
        with told(self._lake.url):
            rows.write.partitionBy(DATE).parquet(f"{self._lake.url}/{self._folder(name)}")

    def _read(self, name: str) -> "DataFrame":
        folder = f"{self._lake.url}/{self._folder(name)}"
        return self._lake.spark.read.schema(self._schema).parquet(folder)

    def _files(self, name: str) -> tuple[str, ...]:
        place = Place(self._lake.place.fs, self._lake.place.path(self._folder(name)))
        return tuple(place.names())


def _land(lake: Lake, intent: _Intent) -> None:
    lake.format.land(intent.id, intent.landing)
    lake.place.remove(_INTENT)


def _forget(lake: Lake) -> None:
    with suppress(FileNotFoundError):
        lake.place.fs.rm(lake.place.path(_STAGING), recursive=True)
