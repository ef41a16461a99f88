"""Why a value does not fit its parameter, in words for whoever wrote the file."""

from difflib import get_close_matches
from typing import Final

from pydantic_core import ErrorDetails

from postroad.agreement.breach import Breach
from postroad.agreement.groups import Group, Switch
from postroad.agreement.parameters import Path, step
from postroad.agreement.pmode import PMode

UNKNOWN_KEY: Final = "extra_forbidden"


def explain(details: ErrorDetails) -> Breach:
    """What is wrong, from what the model says of it."""
    path = details["loc"]
    kind = details["type"]
    context = details.get("ctx", {})
    given = details["input"]
    if kind == UNKNOWN_KEY:
        return unknown_key(path)
    if kind == "missing":
        return Breach(path, f"`{path[-1]}` is missing", meaning(path))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        keys = ", ".join((group_at(path) or PMode).model_fields)
        return Breach(path, f"a group of keys is needed, not {_kind(given)}", f"keys: {keys}")
    if kind == "tuple_type":
        return Breach(path, f"a list is needed, not {_kind(given)}", "begin each item with -")
    if kind == "string_type":
        return Breach(path, f"a text is needed, not {_kind(given)}", meaning(path))
    return Breach(path, _message(kind, context, details["msg"], given), meaning(path))


def is_consequence(details: ErrorDetails) -> bool:
    """Whether a list is called too short only because its items have errors of their own."""
    given = details["input"]
    return details["type"] == "too_short" and isinstance(given, list) and bool(given)


def _message(kind: str, context: dict[str, object], message: str, given: object) -> str:
    said = repr(given if not isinstance(given, str) else given[:100])
    if kind == "value_error":
        return str(context.get("error", message))
    if kind == "literal_error":
        return f"{said} is not one of {context.get('expected')}"
    if kind in ("bool_parsing", "bool_type"):
        return f"{said} is neither true nor false"
    if kind.startswith("int_"):
        return f"{said} is not a whole number"
    if kind == "too_long":
        return f"more than {context.get('max_length')} items"
    if kind in ("too_short", "string_too_short"):
        if isinstance(given, str):
            return "the text is empty"
        return f"fewer than {context.get('min_length')} items"
    return f"{said}: {message[:1].lower()}{message[1:]}"


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "a group of keys"
    return "a list" if isinstance(value, list) else "a text"


def group_at(path: Path) -> type[Group] | None:
    """The group that a path leads to."""
    place: type[Group] | None = PMode
    for key in path:
        if isinstance(key, str):
            into = step(place, key) if place else None
            place = into.group if into else None
    return place


def meaning(path: Path) -> str:
    """What the parameter at a path does."""
    place: type[Group] | None = PMode
    said = PMode.__doc__ or ""
    for key in path:
        if not isinstance(key, str) or place is None or key not in place.model_fields:
            continue
        if not (issubclass(place, Switch) and key == place.own):
            said = place.model_fields[key].description or ""
        into = step(place, key)
        place = into.group if into else None
    return said


def unknown_key(path: Path) -> Breach:
    """A key that its group does not know, and the one that was perhaps meant."""
    *parents, key = path
    group = group_at(tuple(parents)) or PMode
    known = {_fold(field): field for field in group.model_fields}
    known |= {_fold(info.title): field for field, info in group.model_fields.items() if info.title}
    meant = known.get(_fold(str(key)))
    if meant is None:
        close = get_close_matches(_fold(str(key)), known, n=1, cutoff=0.7)
        meant = known[close[0]] if close else None
    keys = ", ".join(group.model_fields)
    hint = f"did you mean `{meant}`?" if meant else f"keys here: {keys}"
    return Breach(path, f"unknown key `{key}`", hint)


def _fold(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "").replace(".", "")
