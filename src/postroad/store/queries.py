"""The named queries of `sql/queries.sql`, and the migrations: all SQL lives in .sql files."""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def queries() -> dict[str, str]:
    """Every query by its name."""
    text = files("postroad.store").joinpath("sql", "queries.sql").read_text(encoding="utf-8")
    pieces = _NAME.split(text)
    return {
        name: _COMMENT.sub("", sql).strip()
        for name, sql in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def query(name: str) -> str:
    """The query of this name."""
    return queries()[name]


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str

    def statements(self) -> Iterator[str]:
        """One after the other, so that all of them fit in one transaction."""
        statement = ""
        for line in self.text.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                yield statement
                statement = ""


@cache
def migrations() -> tuple[Migration, ...]:
    """All that there are, in order."""
    folder = files("postroad.store").joinpath("migrations")
    found = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple(
        Migration(int(name[:4]), name, folder.joinpath(name).read_text(encoding="utf-8"))
        for name in found
    )
