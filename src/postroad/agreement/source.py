"""YAML text to a tree that knows its lines, within bounds.

Every scalar stays the text that it is: what it means is the model's to say, so that the party id
`0088` keeps its zeros. Aliases share a node in the tree; only `plain` expands them, and counts.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import yaml

from postroad.agreement.parameters import Path

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_CORE_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")
)
_MERGE: Final = "<<"


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """What a file may cost before it is refused."""

    characters: int = 4 * 1024 * 1024
    depth: int = 32
    nodes: int = 400_000
    """Nodes of the tree, aliases expanded."""
    problems: int = 1000
    """How many problems of a file are told before reading it ends."""


DEFAULT_LIMITS: Final = SourceLimits()


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, counted from one."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the YAML itself."""

    mark: Mark
    message: str
    hint: str


@dataclass(slots=True)
class Scalar:
    mark: Mark
    text: str
    null: bool


@dataclass(slots=True)
class Sequence:
    mark: Mark
    items: list["Node"] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    mark: Mark
    """Where the key stands."""
    node: "Node"


@dataclass(slots=True)
class Mapping:
    mark: Mark
    entries: dict[str, Entry] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping
Plain = str | list["Plain"] | dict[str, "Plain"]


class TooMuch(Exception):
    """The tree is larger or deeper than the limits allow."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    node: Sequence | Mapping
    anchor: str | None
    key: Scalar | None = None
    merged: list[Node] = field(default_factory=list)


class Composer:
    """Builds the documents of one text from its events, without recursion."""

    def __init__(self, limits: SourceLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.documents: list[Node] = []
        self.faults: list[Fault] = []
        self._anchors: dict[str, Node] = {}
        self._open: list[_Open] = []
        self._count = 0

    def read(self, text: str) -> None:
        """Compose all documents; a fault that the parser cannot pass ends the reading."""
        if len(text) > self.limits.characters:
            size = f"{self.limits.characters} characters"
            self._fault(Mark(), f"the file is larger than {size}", "part it into several files")
            return
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
        except TooMuch as error:
            self._fault(error.mark, str(error), "write it flatter or part it")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = " ".join(filter(None, (error.context, error.problem)))
            self._fault(_mark(mark), f"not YAML: {problem}", _advice(text, mark))
        except (yaml.YAMLError, ValueError) as error:
            first = str(error).splitlines()[0] if str(error) else "unreadable"
            self._fault(Mark(), f"not YAML: {first}", "check the syntax and the characters")

    def _fault(self, mark: Mark, message: str, hint: str) -> None:
        self.faults.append(Fault(mark, message, hint))

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.NodeEvent):
            self._count += 1
            mark = _mark(event.start_mark)
            if self._count > self.limits.nodes:
                raise TooMuch(mark, f"more than {self.limits.nodes} nodes")
            self._node(event, mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def _node(self, event: yaml.NodeEvent, mark: Mark) -> None:
        if isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor or "")
            if node is None:
                self._fault(mark, f"alias *{event.anchor} names no anchor", "define it before")
                node = Scalar(mark, "", null=True)
            self._add(node, mark)
            return
        tag = getattr(event, "tag", None)
        if tag not in (None, "!") and tag not in _CORE_TAGS:
            self._fault(mark, f"tag {tag} is not used here", "remove it")
        if isinstance(event, yaml.ScalarEvent):
            null = event.style in (None, "") and event.value in _NULLS
            scalar = Scalar(mark, event.value, null)
            self._anchor(event.anchor, scalar)
            self._add(scalar, mark)
            return
        if len(self._open) >= self.limits.depth:
            raise TooMuch(mark, f"nested deeper than {self.limits.depth} levels")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._open.append(_Open(Mapping(mark) if mapping else Sequence(mark), event.anchor))

    def _anchor(self, anchor: str | None, node: Node) -> None:
        if anchor:
            self._anchors[anchor] = node

    def _close(self) -> None:
        closed = self._open.pop()
        if isinstance(closed.node, Mapping):
            for source in closed.merged:
                self._merge(closed.node, source)
        self._anchor(closed.anchor, closed.node)
        self._add(closed.node, closed.node.mark)

    def _add(self, node: Node, mark: Mark) -> None:
        if not self._open:
            self.documents.append(node)
            return
        parent = self._open[-1]
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
        elif parent.key is None:
            if not isinstance(node, Scalar):
                self._fault(mark, "a key must be a plain text", "write `key: value`")
                node = Scalar(mark, "", null=False)
            parent.key = node
        else:
            key, parent.key = parent.key, None
            self._pair(parent, key, node)

    def _pair(self, parent: _Open, key: Scalar, node: Node) -> None:
        assert isinstance(parent.node, Mapping)
        if key.text == _MERGE:
            parent.merged.append(node)
            return
        first = parent.node.entries.get(key.text)
        if first is not None:
            message = f"key `{key.text}` is given twice, first in line {first.mark.line}"
            self._fault(key.mark, message, "remove one of them")
            return
        parent.node.entries[key.text] = Entry(key.mark, node)

    def _merge(self, target: Mapping, source: Node) -> None:
        sources = source.items if isinstance(source, Sequence) else [source]
        for item in sources:
            if not isinstance(item, Mapping):
                self._fault(item.mark, "<< takes a mapping or a list of them", "use an alias")
                continue
            self._count += len(item.entries)
            if self._count > self.limits.nodes:
                raise TooMuch(item.mark, f"more than {self.limits.nodes} nodes")
            for key, entry in item.entries.items():
                target.entries.setdefault(key, entry)


class _YamlMark(Protocol):
    line: int
    column: int


def _mark(mark: _YamlMark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark()


class Plainer:
    """Plain values of a tree, aliases expanded within one budget for the whole file."""

    def __init__(self, limits: SourceLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._count = 0

    def plain(self, node: Node, empty: list[Path], path: Path = ()) -> Plain:
        """The values; the paths of keys that have none are noted in `empty` and left out."""
        self._count += 1
        if self._count > self.limits.nodes:
            raise TooMuch(node.mark, f"its aliases expand to more than {self.limits.nodes} nodes")
        if len(path) > self.limits.depth:
            raise TooMuch(node.mark, f"nested deeper than {self.limits.depth} levels")
        if isinstance(node, Scalar):
            if node.null:
                empty.append(path)
            return node.text
        if isinstance(node, Sequence):
            return [self.plain(item, empty, (*path, i)) for i, item in enumerate(node.items)]
        values = {}
        for key, entry in node.entries.items():
            if isinstance(entry.node, Scalar) and entry.node.null:
                empty.append((*path, key))
            else:
                values[key] = self.plain(entry.node, empty, (*path, key))
        return values


def locate(node: Node, path: Path) -> Mark:
    """Where a path stands in the file, or the nearest thing above it that does.

    `[0]` is passed over where one item stands for a list.
    """
    mark = node.mark
    for key in path:
        if isinstance(node, Mapping) and isinstance(key, str) and key in node.entries:
            entry = node.entries[key]
            mark, node = entry.mark, entry.node
        elif isinstance(node, Sequence) and isinstance(key, int) and key < len(node.items):
            node = node.items[key]
            mark = node.mark
        elif key != 0:
            break
    return mark


def documents(text: str, limits: SourceLimits = DEFAULT_LIMITS) -> tuple[list[Node], list[Fault]]:
    """All documents of a text, and what is wrong with it as YAML."""
    composer = Composer(limits)
    composer.read(text)
    return [node for node in composer.documents if not _empty(node)], composer.faults


def _empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.null


def _advice(text: str, mark: yaml.Mark | None) -> str:
    """What to look for where the parser stumbled."""
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if mark is not None and "\t" in line[: mark.column + 1]:
        return "indent with blanks, not with tabs"
    return (
        "look for a bracket or a quote that is not closed, or a wrong indent, here or just before"
    )
