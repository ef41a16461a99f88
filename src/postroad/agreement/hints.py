"""What a model knows about its fields: hints for whoever wrote the file."""

from difflib import get_close_matches

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from postroad.agreement.explaining import UNKNOWN_KEY
from postroad.agreement.groups import Group
from postroad.agreement.parameters import Path, group_of


def hint(root: type[Group], details: ErrorDetails) -> str:
    """What to do about a value that does not fit."""
    path = details["loc"]
    if details["type"] == UNKNOWN_KEY:
        return _meant(group_at(root, path[:-1]) or root, str(path[-1]))
    if details["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "keys: " + ", ".join((group_at(root, path) or root).model_fields)
    found = field_at(root, path)
    return (found.description if found else None) or "the documentation tells what it takes"


def group_at(root: type[Group], path: Path) -> type[Group] | None:
    """The group that a path leads to."""
    place: type[Group] | None = root
    for key in path:
        if isinstance(key, str):
            info = place.model_fields.get(key) if place else None
            place = group_of(info.annotation)[0] if info else None
    return place


def field_at(root: type[Group], path: Path) -> FieldInfo | None:
    """The field that a path leads to, or the nearest one above."""
    names = [key for key in path if isinstance(key, str)]
    for depth in range(len(names), 0, -1):
        owner = group_at(root, tuple(names[: depth - 1]))
        if owner is not None and names[depth - 1] in owner.model_fields:
            return owner.model_fields[names[depth - 1]]
    return None


def _meant(group: type[Group], key: str) -> str:
    folded = {name.replace("_", ""): name for name in group.model_fields}
    close = get_close_matches(_fold(key), folded, n=1, cutoff=0.7)
    return (
        f"did you mean `{folded[close[0]]}`?"
        if close
        else f"keys here: {', '.join(group.model_fields)}"
    )


def _fold(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "").replace(".", "")
