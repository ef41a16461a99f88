"""`routes.yaml`: text in, rules and everything that is wrong with them out, by line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from postroad.agreement.breach import Breach, Level
from postroad.agreement.explaining import explain, is_consequence
from postroad.agreement.hints import hint
from postroad.agreement.loading import PRIVATE, Problem, one_line
from postroad.agreement.parameters import Path
from postroad.agreement.route_rules import ROUTE_RULES
from postroad.agreement.routes import Route, RoutesFile
from postroad.agreement.source import (
    Mapping,
    Mark,
    Node,
    Plain,
    Plainer,
    SourceLimits,
    TooMuch,
    documents,
    locate,
)

ROUTES_KEY: Final = "routes"
ROUTE_LIMITS: Final = SourceLimits(characters=32 * 1024 * 1024, nodes=4_000_000)
"""A hub may have tens of thousands of rules."""


@dataclass(frozen=True, slots=True)
class RoutesResult:
    """What was read. The rules are to be used only if `ok`."""

    file: RoutesFile
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if one.level is Level.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if one.level is Level.WARNING)

    @property
    def ok(self) -> bool:
        return not self.errors


def load_routes(text: str | bytes, name: str, limits: SourceLimits = ROUTE_LIMITS) -> RoutesResult:
    """Read the rules of a file; `name` is the file's name in messages."""
    return _Reading(name, limits).read(text)


class _Reading:
    def __init__(self, name: str, limits: SourceLimits) -> None:
        self._name = name
        self._limits = limits
        self._problems: dict[Problem, None] = {}
        self._tree: Node = Mapping(Mark())

    def read(self, text: str | bytes) -> RoutesResult:
        data = self._data(text)
        file = RoutesFile(routes=()) if data is None else self._file(data)
        told = sorted(self._problems, key=lambda one: (one.line, one.column))
        return RoutesResult(file, tuple(told))

    def _data(self, text: str | bytes) -> dict[str, Plain] | None:
        """The plain values of the one document of the file."""
        try:
            decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self._problem(Mark(line), "not UTF-8 text", "save the file as UTF-8")
            return None
        nodes, faults = documents(decoded, self._limits)
        for fault in faults:
            self._problem(fault.mark, fault.message, fault.hint)
        if faults:
            return None
        if len(nodes) != 1 or not isinstance(nodes[0], Mapping):
            mark = nodes[1].mark if len(nodes) > 1 else Mark()
            self._problem(mark, "a file of rules is one document", "begin it with routes:")
            return None
        self._tree = nodes[0]
        empty: list[Path] = []
        try:
            data = Plainer(self._limits).plain(self._tree, empty)
        except TooMuch as error:
            self._problem(error.mark, str(error), "write it out, or shorten the file")
            return None
        for path in empty:
            if not str(path[0]).startswith(PRIVATE):
                self._breach(Breach(path, "it has no value", "give it one, or remove the key"))
        assert isinstance(data, dict)
        return {key: value for key, value in data.items() if not key.startswith(PRIVATE)}

    def _file(self, data: dict[str, Plain]) -> RoutesFile:
        """The rules that are well-formed, and what is wrong with them all."""
        listed: Any = data.get(ROUTES_KEY)
        places: list[int] = []
        routes: list[Route] = []
        for index, one in enumerate(listed) if isinstance(listed, list) else ():
            if len(self._problems) > self._limits.problems:
                mark = locate(self._tree, (ROUTES_KEY, index))
                self._problem(mark, "too many problems: the rest is not read", "begin above")
                break
            try:
                routes.append(Route.model_validate(one))
                places.append(index)
            except ValidationError as error:
                self._invalid(error, (ROUTES_KEY, index))
        rest = data | {ROUTES_KEY: []} if isinstance(listed, list) else data
        try:
            file = RoutesFile.model_validate(rest)
        except ValidationError as error:
            self._invalid(error, ())
            file = RoutesFile(routes=())
        file = file.model_copy(update={ROUTES_KEY: tuple(routes)})
        for rule in ROUTE_RULES:
            for breach in rule(file):
                self._breach(_at(breach, places))
        return file

    def _invalid(self, error: ValidationError, where: Path) -> None:
        for details in error.errors(include_url=False):
            if is_consequence(details):
                continue
            details["loc"] = (*where, *details["loc"])
            said = explain(details).message
            self._breach(Breach(details["loc"], said, hint(RoutesFile, details)))

    def _breach(self, breach: Breach) -> None:
        place = "".join(_steps(breach.path))
        said = f"{place}: {breach.message}" if place else breach.message
        self._problem(locate(self._tree, breach.path), said, breach.hint, breach.level)

    def _problem(self, mark: Mark, message: str, advice: str, level: Level = Level.ERROR) -> None:
        said = one_line(message), one_line(advice)
        self._problems[Problem(self._name, mark.line, mark.column, level, *said)] = None


def _at(breach: Breach, places: list[int]) -> Breach:
    """Rules count those that are well-formed; the file has others between them."""
    path = breach.path
    if len(path) > 1 and path[0] == ROUTES_KEY and isinstance(path[1], int):
        path = (ROUTES_KEY, places[path[1]], *path[2:])
    return Breach(path, breach.message, breach.hint, breach.level)


def _steps(path: Path) -> Iterator[str]:
    """A place as people write it: `routes[0].match.to_party`; items count from zero."""
    for number, key in enumerate(path):
        if isinstance(key, int):
            yield f"[{key}]"
        else:
            yield f".{key}" if number else key
