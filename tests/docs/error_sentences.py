"""The sentences by which Postroad says no, read from its own code.

A sentence is an argument of a call: `Breach(path, message, hint)`, `fail(message)`. What is filled
in when it is said stands as `…`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT

SOURCE: Final = PROJECT / "src" / "postroad"
OPEN: Final = "…"
_MOST: Final = 12
"""Forms that one call may take: more are not told apart."""


@dataclass(frozen=True)
class Call:
    """Where the parts of an error stand among the arguments of a call."""

    message: int
    hint: int | None = None
    code: int | str | None = None
    """The number of an argument, or the name of a keyword."""


@dataclass(frozen=True, order=True)
class Sentence:
    """One thing that may be said."""

    message: str
    hint: str = ""
    code: str = ""


def sentences(pattern: str, calls: Mapping[str, Call]) -> list[Sentence]:
    """All that the files of a pattern say by these calls, each once, in the order of the files."""
    found: dict[Sentence, None] = {}
    for file in sorted(SOURCE.glob(pattern)):
        found.update(dict.fromkeys(_in_file(file, calls)))
    return list(found)


def _in_file(file: Path, calls: Mapping[str, Call]) -> Iterator[Sentence]:
    tree = ast.parse(file.read_text())
    constants = _assigned(tree.body)
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            continue
        own = list(_own(scope))
        assigned, statement = _assigned(own), _statements(own)
        for node in own:
            if isinstance(node, ast.Call) and _name(node) in calls:
                at = statement.get(node)
                known = constants if at is None else constants | _before(at, assigned)
                yield from _said(node, calls[_name(node)], known)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but not in one inside of it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield child
        yield from _own(child)


def _statements(nodes: list[ast.AST]) -> dict[ast.AST, ast.stmt]:
    """The innermost statement that each node is part of."""
    found: dict[ast.AST, ast.stmt] = {}
    for node in nodes:
        if isinstance(node, ast.stmt):
            found.update(dict.fromkeys(ast.walk(node), node))
    return found


Known = Mapping[str, list[ast.expr]]


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """What names stand for, as far as that is written down, in the order of the lines."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            found.setdefault(target.id, []).append(value)
            value.col_offset = node.col_offset
    return found


def _before(at: ast.stmt, assigned: Known) -> dict[str, list[ast.expr]]:
    """What names stand for at a statement: the last value, and those that it replaced at times."""
    found: dict[str, list[ast.expr]] = {}
    for name, values in assigned.items():
        earlier = [one for one in values if one.lineno < at.lineno]
        for one in reversed(earlier):
            found.setdefault(name, []).insert(0, one)
            if one.col_offset <= at.col_offset:
                break
    return found


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return f".{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _said(node: ast.Call, call: Call, known: Known) -> Iterator[Sentence]:
    messages = _texts(_argument(node, call.message), known)
    hints = _texts(_argument(node, call.hint), known) if call.hint is not None else [""]
    codes = _texts(_argument(node, call.code), known) if call.code is not None else [""]
    for message, hint, code in list(product(messages, hints, codes))[:_MOST]:
        if any(one.isalpha() for one in message.replace(OPEN, "")):
            yield Sentence(message, "" if hint == OPEN else hint, "" if code == OPEN else code)


def _argument(node: ast.Call, place: int | str | None) -> ast.expr | None:
    if isinstance(place, str):
        return next((one.value for one in node.keywords if one.arg == place), None)
    return node.args[place] if place is not None and place < len(node.args) else None


def _texts(node: ast.expr | None, known: Known, depth: int = 0) -> list[str]:
    """The forms that an expression may take."""
    if node is None or depth > 4:
        return [OPEN]
    if isinstance(node, ast.Constant):
        # None is never said: whoever says something has looked before.
        return [OPEN if node.value is None else str(node.value)]
    if isinstance(node, ast.Name) and node.id in known:
        forms = [text for one in known[node.id] for text in _texts(one, known, depth + 1)]
        return list(dict.fromkeys(forms))[:_MOST]
    if isinstance(node, ast.JoinedStr):
        pieces = [
            _texts(one, known, depth) if isinstance(one, ast.Constant) else _filled(one, known)
            for one in node.values
        ]
        return [_tidy("".join(one)) for one in product(*pieces)][:_MOST]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = product(_texts(node.left, known, depth), _texts(node.right, known, depth))
        return [_tidy("".join(one)) for one in both][:_MOST]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, known, depth) + _texts(node.orelse, known, depth)
    return [OPEN]


def _filled(node: ast.expr, known: Known) -> list[str]:
    """What is filled in: a name for words that are written down beside it, else anything."""
    value = node.value if isinstance(node, ast.FormattedValue) else node
    if isinstance(value, ast.Name) and value.id in known:
        forms = _texts(value, known, 2)
        return forms if len(forms) <= 3 else [OPEN]
    return [OPEN]


def _tidy(text: str) -> str:
    while OPEN + OPEN in text:
        text = text.replace(OPEN + OPEN, OPEN)
    return text
