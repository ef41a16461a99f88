"""Rows of a partition as one payload: lines of JSON or CSV, on disk when they are many."""

import csv
import io
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Any, Final

_IN_MEMORY: Final = 16 * 1024 * 1024


class Spool(AbstractContextManager["Spool"]):
    """The lines that were added so far."""

    def __init__(self, as_csv: bool, columns: Sequence[str]) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._columns = columns
        self._digest = sha256()
        self._csv = as_csv
        self.rows = 0
        self.size = 0

    def add(self, row: Mapping[str, Any]) -> None:
        if self._csv and not self.rows:
            self._write(_csv_line(self._columns))
        values = {name: _plain(row[name]) for name in self._columns}
        self._write(_csv_line(values.values()) if self._csv else _json_line(values))
        self.rows += 1

    def digest(self) -> str:
        return self._digest.hexdigest()

    def file(self) -> IO[bytes]:
        self._file.seek(0)
        return self._file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        data = line.encode()
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)


def _json_line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"


def _csv_line(values: Any) -> str:
    line = io.StringIO()
    nested = [json.dumps(one) if isinstance(one, dict | list) else one for one in values]
    csv.writer(line, lineterminator="\n").writerow(nested)
    return line.getvalue()


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON doesn't know becomes a string."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value)
