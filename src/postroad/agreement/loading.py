"""P-Mode files: YAML text in, P-Modes and everything that is wrong with them out, by line.

A file holds one P-Mode, a list under `pmodes:`, or several YAML documents of either kind.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from postroad.agreement.awareness import As4String
from postroad.agreement.breach import Breach, Level
from postroad.agreement.explaining import UNKNOWN_KEY, explain, is_consequence
from postroad.agreement.groups import Group, Valued
from postroad.agreement.parameters import MANY, ROOT, Path, name_of, step
from postroad.agreement.pmode import PMode
from postroad.agreement.reliability_rules import ABILITY_RULES
from postroad.agreement.rules import RULES
from postroad.agreement.set_rules import SET_RULES
from postroad.agreement.source import (
    DEFAULT_LIMITS,
    Mapping,
    Mark,
    Node,
    Plain,
    Plainer,
    Sequence,
    SourceLimits,
    TooMuch,
    documents,
    locate,
)
from postroad.agreement.supported import SUPPORTED

LIST_KEY: Final = "pmodes"
PRIVATE: Final = "x-"
"""Keys beside `pmodes:` that begin so are for anchors and notes."""


_GROUP: Final = 3
"""How much of a path names its group: `legs`, the number, `security`."""

_INSTEAD: Final[dict[object, str]] = {
    "conversation": "sign and encrypt with security.x509, hubs pass on conversations of others",
}
"""What to do where a parameter is not supported."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file: where, what, and what to do about it."""

    file: str
    line: int
    column: int
    level: Level
    message: str
    hint: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.level}: {self.message} ({self.hint})"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was read. The P-Modes are to be used only if `ok`."""

    pmodes: tuple[PMode, ...] = ()
    """All that are well-formed, also those that break a rule."""
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    """The file of each P-Mode."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.level is Level.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.level is Level.WARNING)

    @property
    def ok(self) -> bool:
        return not self.errors


def load_pmodes(
    text: str | bytes,
    name: str,
    supported: frozenset[str] | None = SUPPORTED,
    limits: SourceLimits = DEFAULT_LIMITS,
) -> LoadResult:
    """Read the P-Modes of one file; `name` is the file's name in messages.

    `supported` holds the dotted names of parameters that have a behaviour; None takes all.
    """
    return load_sources([(name, text)], supported, limits)


def load_sources(
    sources: Iterable[tuple[str, str | bytes]],
    supported: frozenset[str] | None = SUPPORTED,
    limits: SourceLimits = DEFAULT_LIMITS,
) -> LoadResult:
    """Read the P-Modes of several files (name and text), and hold them to each other too."""
    reading = _Reading(supported, limits)
    for name, text in sources:
        reading.file(name, text)
    return reading.result()


@dataclass(frozen=True, slots=True)
class _Found:
    """A P-Mode and where it came from."""

    pmode: PMode
    file: str
    node: Node


class _Reading:
    def __init__(self, supported: frozenset[str] | None, limits: SourceLimits) -> None:
        self._supported = supported
        self._limits = limits
        self._files: dict[str, int] = {}
        self._problems: dict[Problem, None] = {}
        # A dict for its order: what merged anchors repeat is told once.
        self._found: list[_Found] = []

    def result(self) -> LoadResult:
        pmodes = tuple(found.pmode for found in self._found)
        for rule in SET_RULES:
            for index, breach in rule(pmodes):
                self._breach(self._found[index].file, self._found[index].node, breach)
        in_order = sorted(self._problems, key=lambda p: (self._files[p.file], p.line, p.column))
        return LoadResult(pmodes, tuple(in_order), tuple(found.file for found in self._found))

    def file(self, name: str, text: str | bytes) -> None:
        """Read one file."""
        self._files.setdefault(name, len(self._files))
        first = len(self._problems)
        known = len(self._found)
        try:
            decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self._problem(name, Mark(line), "not UTF-8 text", "save the file as UTF-8")
            return
        nodes, faults = documents(decoded, self._limits)
        for fault in faults:
            self._problem(name, fault.mark, fault.message, fault.hint)
        plainer = Plainer(self._limits)
        for node in (node for document in nodes for node in self._pmode_nodes(name, document)):
            if len(self._problems) - first > self._limits.problems:
                self._problem(
                    name, node.mark, "too many problems: the rest is not read", "begin above"
                )
                break
            self._pmode(name, node, plainer)
        if len(self._found) == known and len(self._problems) == first:
            self._problem(name, Mark(), "there is no P-Mode in it", "write one, or remove the file")

    def _problem(
        self, file: str, mark: Mark, message: str, hint: str, level: Level = Level.ERROR
    ) -> None:
        said = one_line(message), one_line(hint)
        self._problems[Problem(file, mark.line, mark.column, level, *said)] = None

    def _breach(self, file: str, node: Node, breach: Breach) -> None:
        message = f"{name_of(breach.path)}: {breach.message}"
        self._problem(file, locate(node, breach.path), message, breach.hint, breach.level)

    def _pmode_nodes(self, file: str, document: Node) -> Iterator[Node]:
        if not isinstance(document, Mapping):
            hint = f"write its keys, or a list below `{LIST_KEY}:`"
            self._problem(file, document.mark, "a P-Mode is a mapping of keys", hint)
        elif LIST_KEY not in document.entries:
            yield document
        else:
            for key, entry in document.entries.items():
                if key != LIST_KEY and not key.startswith(PRIVATE):
                    message = f"unknown key `{key}` beside `{LIST_KEY}:`"
                    self._problem(
                        file, entry.mark, message, f"begin it with {PRIVATE}, or remove it"
                    )
            yield from self._listed(file, document.entries[LIST_KEY].node)

    def _listed(self, file: str, node: Node) -> Iterator[Node]:
        if not isinstance(node, Sequence):
            self._problem(
                file, node.mark, f"`{LIST_KEY}:` holds a list", "begin each P-Mode with -"
            )
            return
        for item in node.items:
            if isinstance(item, Mapping):
                yield item
            else:
                self._problem(file, item.mark, "a P-Mode is a mapping of keys", "write its keys")

    def _pmode(self, file: str, node: Node, plainer: Plainer) -> None:
        empty: list[Path] = []
        try:
            data = plainer.plain(node, empty)
        except TooMuch as error:
            self._problem(file, error.mark, str(error), "write it out, or part the file")
            return
        for path in empty:
            breach = Breach(path, "it has no value", "give it one, or remove the key")
            self._breach(file, node, breach)
        refused = [] if self._supported is None else unsupported(PMode, data, self._supported)
        for path in refused:
            hint = _INSTEAD.get(path[-1], "it is refused because nothing would come of it")
            breach = Breach(path, "not supported by this version", f"remove it; {hint}")
            self._breach(file, node, breach)
        try:
            pmode = PMode.model_validate(data)
        except ValidationError as error:
            told = {*empty, *refused}
            unknown: list[Path] = []
            wrong: list[Path] = []
            for details in error.errors(include_url=False):
                places = {details["loc"][:depth] for depth in range(len(details["loc"]) + 1)}
                if is_consequence(details):
                    continue
                (unknown if details["type"] == UNKNOWN_KEY else wrong).append(details["loc"])
                if not places & told:
                    self._breach(file, node, explain(details))
            rest = _without(data, [*unknown, *wrong])
        else:
            self._found.append(_Found(pmode, file, node))
            rest, wrong = pmode, []
        if rest is not None:
            self._rules(file, node, rest, {path[:_GROUP] for path in wrong})

    def _rules(self, file: str, node: Node, pmode: PMode, doubtful: set[Path]) -> None:
        """Tell what breaks a rule, but for groups where a wrong value was left out."""
        carried_out = () if self._supported is None else ABILITY_RULES
        for rule in (*RULES, *carried_out):
            for breach in rule(pmode):
                if breach.path[:_GROUP] not in doubtful:
                    self._breach(file, node, breach)


def _without(data: Plain, paths: list[Path]) -> PMode | None:
    """The P-Mode without these keys, so that its rules can be told too; None if worse."""
    for path in paths:
        _remove(data, path)
    try:
        return PMode.model_validate(data)
    except ValidationError:
        return None


def _remove(data: Any, path: Path) -> None:
    """Remove what a path leads to.

    It goes through `[0]` also where one item stands for a list, and ends below the key where a
    value may be of several kinds.
    """
    holder: dict[Any, Any] | None = None
    name: Any = None
    place = data
    for step_ in path:
        if isinstance(place, dict) and step_ in place:
            holder, name = place, step_
        elif not (isinstance(place, list) and isinstance(step_, int) and step_ < len(place)):
            if step_ == 0:
                continue
            break
        place = place[step_]
    if holder is not None:
        holder.pop(name, None)


def one_line(text: str) -> str:
    """What a file holds, made harmless for a terminal."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:600])
    return clean if len(text) <= 600 else clean + "…"


def unsupported(
    group: type[Group],
    data: Plain,
    supported: frozenset[str],
    path: Path = (),
    name: str = ROOT,
) -> list[Path]:
    """The paths of the parameters that a file sets and that are not in the table."""
    if isinstance(data, str) and issubclass(group, As4String):
        data = group.written(data)
    if not isinstance(data, dict):
        own = _own_name(group, name) if issubclass(group, Valued) else None
        return [path] if own is not None and own not in supported else []
    found: list[Path] = []
    for key, value in data.items():
        into = step(group, key)
        if into is None:
            continue
        child, child_path = name + into.name, (*path, key)
        if into.group is None:
            if child not in supported:
                found.append(child_path)
        elif into.many and isinstance(value, list):
            for index, item in enumerate(value):
                item_path = (*child_path, index)
                found += unsupported(into.group, item, supported, item_path, child + MANY)
        else:
            child += MANY if into.many else ""
            found += unsupported(into.group, value, supported, child_path, child)
    if not found and issubclass(group, Valued) and _own_name(group, name) not in supported:
        found.append(path)
    return found


def _own_name(group: type[Valued], name: str) -> str:
    own = step(group, group.own)
    return name + (own.name if own else "")
