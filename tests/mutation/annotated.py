"""Functions of the product that name requirements, and a sample of their mutants.

A function carries out a requirement when its docstring or a comment in it has the id, such as
`[P2-5.1-01]`.
"""

import ast
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.spec.conformance import load

_ID: Final = re.compile(r"\b[A-Z]+\d+-[\w.]+-\d+\b")


@dataclass(frozen=True, slots=True)
class Annotated:
    """A function with the requirements that it names."""

    module: str
    name: str
    """As mutmut writes it, with the module."""
    lines: range
    ids: frozenset[str]

    @property
    def documents(self) -> set[str]:
        return {one.partition("-")[0] for one in self.ids}


def annotated_functions(source: Path) -> list[Annotated]:
    """Return the functions and methods below a folder that name requirements."""
    known = load().keys()
    found = []
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        for owner, function in _functions(ast.parse(text)):
            ids = frozenset(_ID.findall(ast.get_source_segment(text, function) or "")) & known
            if ids:
                lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
                found.append(Annotated(module, _mangled(module, owner, function.name), lines, ids))
    return found


def _mangled(module: str, owner: str | None, function: str) -> str:
    """Return the name of a function, or of a method of a class, in the names of its mutants."""
    return f"{module}.x_{function}" if owner is None else f"{module}.xǁ{owner}ǁ{function}"


def _functions(
    module: ast.Module,
) -> Iterator[tuple[str | None, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield functions, and methods with their class; functions inside others belong to those."""
    for one in module.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield None, one
        elif isinstance(one, ast.ClassDef):
            for method in one.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield one.name, method


def sample(
    functions: Sequence[Annotated],
    mutants_of: Callable[[Annotated], Sequence[str]],
    count: int,
    seed: int,
) -> dict[str, frozenset[str]]:
    """Choose mutants of different functions, in turn for each document, with the function's ids."""
    documents = sorted({document for one in functions for document in one.documents})
    waiting: dict[str, list[Annotated]] = {}
    for document in documents:
        waiting[document] = [one for one in functions if document in one.documents]
        random.Random(f"{document} {seed}").shuffle(waiting[document])
    chosen: dict[str, frozenset[str]] = {}
    drawn: set[str] = set()
    while len(chosen) < count and any(waiting.values()):
        for document in documents:
            while waiting[document] and len(chosen) < count:
                function = waiting[document].pop()
                names = () if function.name in drawn else mutants_of(function)
                drawn.add(function.name)
                if names:
                    pick = random.Random(f"{function.name} {seed}").choice(names)
                    chosen[pick] = function.ids
                    break
    return chosen
