"""The one table of P-Mode parameters, read off the models: YAML path, dotted name, meaning.

Dotted names, the supported table, messages about files and the page for readers come from here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from postroad.agreement.groups import Group, Switch
from postroad.agreement.pmode import PMode
from postroad.agreement.values import REVEAL

Path = tuple[str | int, ...]
ROOT: Final = "PMode"
MANY: Final = "[]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the table."""

    name: str
    """The dotted name, lists open: `PMode[].BusinessInfo.Properties[].name`."""
    path: str
    """The YAML keys, lists open: `legs[].business_info.properties[].name`."""
    meaning: str
    info: FieldInfo = field(repr=False, compare=False)

    @property
    def values(self) -> str:
        """What may be written, for readers; told by a JSON Schema, which only they wait for."""
        annotation: Any = self.info.annotation
        for item in self.info.metadata:
            annotation = Annotated[annotation, item]
        return _told(TypeAdapter(annotation).json_schema())


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter that a P-Mode sets, with its place in the file and its value as text."""

    name: str
    path: Path
    value: str


@dataclass(frozen=True, slots=True)
class Step:
    """One field on the way down: how its name grows, and the group that it leads to."""

    name: str
    group: type[Group] | None
    many: bool


def group_of(annotation: Any) -> tuple[type[Group] | None, bool]:
    """The group that a field holds, and whether it holds a list of them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return group_of(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return group_of(next(a for a in get_args(annotation) if a is not type(None)))
    if origin is tuple:
        return group_of(get_args(annotation)[0])[0], True
    if isinstance(annotation, type) and issubclass(annotation, Group):
        return annotation, False
    return None, False


def _steps(group: type[Group]) -> Iterator[tuple[type[Group], str, Step]]:
    for key, info in group.model_fields.items():
        child, many = group_of(info.annotation)
        name = f".{info.title}" if info.title else ""
        yield group, key, Step(name, child, many and child is not None)
        if child is not None:
            yield from _steps(child)


_STEPS: Final = {(group, key): into for group, key, into in _steps(PMode)}


def step(group: type[Group], key: str) -> Step | None:
    """Where a YAML key leads; None where the group has no such key."""
    return _STEPS.get((group, key))


def name_of(path: Sequence[str | int]) -> str:
    """The dotted name of a place in a P-Mode file: legs count from one, as in the specification."""
    name = ROOT
    place: type[Group] | None = PMode
    for position, key in enumerate(path, 1):
        if isinstance(key, int):
            name += f"[{key + 1}]"
            continue
        found = step(place, key) if place else None
        if found is None:
            return f"{name}.{key}"
        name += found.name
        if found.many and not found.name and position == len(path):
            name += MANY
        place = found.group
    return name


def _parameters(group: type[Group], name: str, path: str, about: str = "") -> Iterator[Parameter]:
    for key, info in group.model_fields.items():
        found = step(group, key)
        assert found is not None
        tail = MANY if found.many else ""
        child_name = name + found.name + tail
        child_path = f"{path}.{key}{tail}".removeprefix(".")
        if found.group is None:
            switch = issubclass(group, Switch) and key == group.own
            meaning = about if switch else info.description or ""
            yield Parameter(child_name, child_path, meaning, info)
        else:
            yield from _parameters(found.group, child_name, child_path, info.description or "")


def _told(schema: dict[str, Any]) -> str:
    options = [o for o in schema.get("anyOf", ()) if o.get("type") != "null"]
    if any(option.get("type") == "array" for option in options) or schema.get("type") == "array":
        array = next((o for o in options if o.get("type") == "array"), schema)
        return f"list of {_told(array['items'])}"
    if options:
        return ", ".join(dict.fromkeys(map(_told, options)))
    if "enum" in schema:
        short = [str(v) for v in schema["enum"] if isinstance(v, str) and "://" not in v and v]
        return ", ".join(short)
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("format") or schema.get("type")
    return {
        "boolean": "true, false",
        "integer": "number",
        "uri": "URI",
        "password": "text",
        "string": "text",
    }.get(kind if isinstance(kind, str) else "string", str(kind) if isinstance(kind, str) else "")


PARAMETERS: Final = tuple(_parameters(PMode, ROOT, ""))


def _settings(group: type[Group], data: dict[str, Any], name: str, path: Path) -> Iterator[Setting]:
    for key, value in data.items():
        found = step(group, key)
        assert found is not None
        child_name, child_path = name + found.name, (*path, key)
        if found.group is None:
            if value not in (None, []):
                yield Setting(child_name, child_path, _text(value))
        elif found.many:
            for index, item in enumerate(value or ()):
                item_name = f"{child_name}[{index + 1}]"
                yield from _settings(found.group, item, item_name, (*child_path, index))
        elif value is not None:
            yield from _settings(found.group, value, child_name, child_path)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def settings(pmode: PMode, *, reveal_passwords: bool = False) -> list[Setting]:
    """All parameters of a P-Mode that have a value, defaults among them."""
    data = pmode.model_dump(mode="json", context={REVEAL: reveal_passwords})
    return list(_settings(PMode, data, ROOT, ()))


def dotted(pmode: PMode) -> list[tuple[str, str]]:
    """A P-Mode in the specification's dotted names; passwords are masked."""
    return [(setting.name, setting.value) for setting in settings(pmode)]
