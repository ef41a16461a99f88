"""Writing HTML and SVG: whatever is not markup made here is escaped."""

import html
import re
from datetime import datetime
from typing import Final

_GAP: Final = "\u00a0"
"""Between a number and its unit, where no line breaks."""
_VOID: Final = frozenset({"meta", "rect", "line", "circle", "path", "br", "polyline"})
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = Markup | str | float | None


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. A trailing underscore of a name goes, others become hyphens."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{said}>" if name in ("meta", "br") else f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{together(*children)}</{name}>")


def together(*children: Child) -> Markup:
    return Markup("".join(text(child) for child in children))


def text(value: Child) -> Markup:
    """Safe between tags and in attributes; what no screen shows becomes visible."""
    if value is None:
        return Markup("")
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return Markup(f"{value:.2f}".rstrip("0").rstrip("."))
    return Markup(html.escape(_UNSEEN.sub("\ufffd", str(value))))


def name_of(value: str | None) -> Markup:
    """A party; its type is said in small letters. The name's direction of writing stays its own."""
    if not value:
        return tag("em", "unknown")
    kind, _, plain = value.rpartition("::")
    small = tag("small", tag("bdi", shortened(kind, 24))) if kind else None
    return together(tag("bdi", plain or value, title=value), small)


def shortened(value: str, most: int) -> str:
    """The end of a name says more than its beginning: `urn:…::oak-foods`."""
    return value if len(value) <= most else "…" + value[-(most - 1) :]


def count(number: float) -> str:
    return f"{number:,.0f}"


def percent(share: float | None) -> str:
    """Never rounded up to everything, nor down to nothing."""
    if share is None:
        return "–"
    if 0.999 < share < 1:
        return f">{_GAP}99.9{_GAP}%"
    if 0 < share < 0.001:
        return f"<{_GAP}0.1{_GAP}%"
    return f"{share * 100:.1f}{_GAP}%".replace(f".0{_GAP}", _GAP)


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    for unit, size, limit in (("ms", 1, 1000), ("s", 1e3, 60e3), ("min", 60e3, 3.6e6)):
        if abs(milliseconds) < limit:
            value = milliseconds / size
            whole = value >= 10 or unit == "ms"
            return f"{value:.0f}{_GAP}{unit}" if whole else _short(value, unit)
    hours = milliseconds / 3.6e6
    return _short(hours, "h") if hours < 48 else _short(hours / 24, "days")


def _short(value: float, unit: str) -> str:
    return f"{value:.1f}{_GAP}{unit}".replace(f".0{_GAP}", _GAP)


def moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "–"


def amount(number: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number = number / 1024  # type: ignore[assignment]
    raise AssertionError
