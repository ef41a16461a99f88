"""Transition tables: how they are looked up, and how they are drawn.

A table is data: from each state, for each input, the state that follows. What is not in it does
not happen.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
I = TypeVar("I", bound=StrEnum)  # noqa: E741

Table = Mapping[S, Mapping[I, S | tuple[S, S]]]
"""A pair is of what follows when everything is certain, and when something is in doubt."""


class Impossible(Exception):
    """An input that the table does not have for this state."""

    def __init__(self, state: StrEnum, given: StrEnum) -> None:
        super().__init__(f"{given.value!r} does not happen in {state.value!r}")
        self.state = state
        self.given = given


def follow(table: Table[S, I], state: S, given: I, *, doubt: bool = False) -> S:
    """The state that follows; `Impossible` where there is none."""
    try:
        found = table[state][given]
    except KeyError:
        raise Impossible(state, given) from None
    return found[doubt] if isinstance(found, tuple) else found


def markdown(table: Table[S, I]) -> str:
    """The table as people read it: a row for each state and input."""
    lines = ["| from | when | to |", "| --- | --- | --- |"]
    for state, row in table.items():
        for given, found in row.items():
            lines.append(f"| {state.value} | {given.value} | {_shown(found)} |")
    return "\n".join(lines)


def _shown(found: S | tuple[S, S]) -> str:
    if isinstance(found, tuple):
        certain, doubtful = found
        return f"{certain.value}; in doubt: {doubtful.value}"
    return found.value
