"""The pictures of docs/house.md and docs/reliability.md, drawn from the code and the page.

`python -m tests.docs.pictures` writes them into docs/pictures; a test compares.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from postroad.reliability.delivery import TABLE, Input, Stage
from tests.conftest import PROJECT

FOLDER: Final = PROJECT / "docs" / "pictures"
SOURCE: Final = PROJECT / "src" / "postroad"
_STEP: Final = re.compile(r"^(\d+)\. (.*(?:\n   .*)*)", re.MULTILINE)
_PLACE: Final = re.compile(r"`(\w+)\.(\w+)(?:\.(\w+))?[^`]*`")
_STYLE: Final = """\
text { font: 13px sans-serif; fill: #222 }
.small { font-size: 11px; fill: #555; paint-order: stroke; stroke: #fff; stroke-width: 3px }
.box { fill: #fff; stroke: #888 }
.pure { fill: #e8f0e4; stroke: #6a8a5a }
.end { fill: #f4f4f4; stroke: #888 }
.way { fill: none; stroke: #3a5a9a; stroke-width: 1.5 }
.dot { fill: #3a5a9a }
"""
PLACES: Final[Mapping[Stage, tuple[float, float]]] = {
    Stage.SUBMITTED: (0, 1),
    Stage.READY: (1, 1),
    Stage.WAITING: (2, 1),
    Stage.SENT: (3, 1),
    Stage.ACKNOWLEDGED: (4, 1),
    Stage.SUSPENDED: (2, 2.2),
    Stage.EXPIRED: (0, 3.4),
    Stage.FAILED: (1, 3.4),
    Stage.IN_DOUBT: (3, 3.4),
    Stage.SETTLED: (2, 4.4),
}
"""Column and row of each stage of a message's life."""


def svg(width: float, height: float, drawn: Iterable[str]) -> str:
    """A picture of this size, on white, so that it can be read on any page."""
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" class="dot"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        *drawn,
        "</svg>\n",
    ))  # fmt: skip


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{kind}"/>'
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", small: bool = False) -> str:
    look = ' class="small"' if small else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{look}>{escape(words)}</text>'


def rooms() -> tuple[list[str], set[str]]:
    """The rooms from above to below, and those that are pure; as `lint-imports` checks them."""
    layers, pure, *_ = _contracts()
    return [_last(one) for one in layers["layers"]], {_last(one) for one in pure["source_modules"]}


def floors() -> list[list[str]]:
    """The floors of the node from above to below, each with what stands on it side by side."""
    within = _contracts()[2]
    return [[_last(one.strip()) for one in re.split("[|:]", row)] for row in within["layers"]]


def _contracts() -> list[dict[str, list[str]]]:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contracts: list[dict[str, list[str]]] = told["tool"]["importlinter"]["contracts"]
    return contracts


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def steps(page: str, walk: str) -> list[list[tuple[str, str]]]:
    """The places, room and module, that each step of a walk names on the page."""
    _, _, after = page.partition(f"**{walk}**")
    numbered = re.match(r"[^\n]*\n\n((?:\d+\. .*\n(?:   .*\n)*)+)", after)
    assert numbered is not None, walk
    known = {*rooms()[0], "store"}
    return [
        [
            (room, below if (SOURCE / room / module).is_dir() else module)
            for room, module, below in _PLACE.findall(one[2])
            if room in known
        ]
        for one in _STEP.finditer(numbered[1])
    ]


def draw_walk(page: str, walk: str) -> str:
    """A walk as a line through the rooms: from step to step, up and down."""
    lanes, pure = rooms()
    found = steps(page, walk)
    lanes = [one for one in (*lanes, "store") if any(one == room for s in found for room, _ in s)]
    stops = [(number, *place) for number, step in enumerate(found, 1) for place in step]
    high, wide, left = 46, 96, 90
    drawn = []
    for row, lane in enumerate(lanes):
        y = 10 + row * high
        drawn.append(
            box(5, y, left + wide * len(stops) + 5, high - 6, "pure" if lane in pure else "box")
        )
        drawn.append(text(14, y + 24, lane))
    points = []
    for place, (number, room, module) in enumerate(stops):
        x, y = left + wide * (place + 0.5), 10 + lanes.index(room) * high + 16
        points.append(f"{x:g},{y:g}")
        drawn.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" class="dot"/>')
        drawn.append(text(x, y + 18, f"{number} {module}", anchor="middle", small=True))
    drawn.insert(len(lanes) * 2, f'<polyline points="{" ".join(points)}" class="way"/>')
    return svg(left + wide * len(stops) + 15, len(lanes) * high + 14, drawn)


def draw_rooms() -> str:
    """The rooms one above the other; beside them those that know nothing of the others."""
    layers, pure = rooms()
    drawn = []
    for row, room in enumerate(layers):
        y = 10 + row * 34
        drawn.append(box(10, y, 240, 28, "pure" if room in pure else "box"))
        drawn.append(text(130, y + 19, room, anchor="middle"))
    low = 10 + len(layers) * 34
    for place, (room, what) in enumerate((("store", "disk, database"), ("pipeline", "Spark"))):
        x = 270 + place * 130
        drawn.append(box(x, 10, 120, low - 16))
        drawn.append(text(x + 60, low / 2, room, anchor="middle"))
        drawn.append(text(x + 60, low / 2 + 18, what, anchor="middle", small=True))
    drawn.append(
        text(10, low + 14, "A room calls rooms below it, never above. Green: pure.", small=True)
    )
    return svg(540, low + 26, drawn)


def draw_floors() -> str:
    """The node's floors one above the other; what stands side by side does not know the other."""
    drawn, wide = [], 520
    for row, floor in enumerate(floors()):
        y, share = 10 + row * 34, wide / len(floor)
        for place, name in enumerate(floor):
            x = 10 + place * share
            drawn.append(box(x + 2, y, share - 4, 28))
            folder = (SOURCE / "node" / name).is_dir()
            shown = f"{name}/" if folder else f"{name}.py"
            drawn.append(text(x + share / 2, y + 19, shown, anchor="middle"))
    return svg(wide + 20, 10 + len(floors()) * 34 + 6, drawn)


def draw_life() -> str:
    """The life of an outgoing message, without what changes nothing and what is sent again."""
    wide, high = 190, 92
    ways: dict[tuple[Stage, Stage], list[str]] = {}
    for stage, row in TABLE.items():
        for given, follows in row.items():
            for after in dict.fromkeys(follows if isinstance(follows, tuple) else (follows,)):
                if after is not stage and given is not Input.RESENT:
                    ways.setdefault((stage, after), []).append(given.value)
    drawn = []
    for number, ((before, after), why) in enumerate(ways.items(), 1):
        drawn.append(_arrow(_middle(before, wide, high), _middle(after, wide, high), number, why))
    for stage in Stage:
        x, y = _middle(stage, wide, high)
        drawn.append(box(x - 58, y - 16, 116, 32, "box" if TABLE[stage] else "end"))
        drawn.append(text(x, y + 5, stage.value, anchor="middle"))
    below = 5 * high + 20
    for number, ((before, after), why) in enumerate(ways.items()):
        column, row = divmod(number, (len(ways) + 1) // 2)
        told = f"{number + 1}  {before.value} to {after.value}: {'; '.join(why)}"
        drawn.append(text(14 + column * 500, below + 16 + row * 16, told, small=True))
    return svg(1000, below + 16 * ((len(ways) + 1) // 2) + 14, drawn)


def _middle(stage: Stage, wide: int, high: int) -> tuple[float, float]:
    column, row = PLACES[stage]
    return column * wide + 110, row * high


def _arrow(
    start: tuple[float, float], end: tuple[float, float], number: int, why: Iterable[str]
) -> str:
    """A bent line between the edges of two boxes, with its number; the reasons as its title."""
    (x, y), (to_x, to_y) = _edge(start, end), _edge(end, start)
    bend = -0.2 if y == to_y and abs(to_x - x) > 100 else 0.12
    mid_x, mid_y = (x + to_x) / 2 - (to_y - y) * bend, (y + to_y) / 2 + (to_x - x) * bend
    at_x, at_y = (x + 2 * mid_x + to_x) / 4, (y + 2 * mid_y + to_y) / 4
    path = f"M{x:.0f},{y:.0f} Q{mid_x:.0f},{mid_y:.0f} {to_x:.0f},{to_y:.0f}"
    return (
        f"<g><title>{escape('; '.join(why))}</title>"
        f'<path d="{path}" class="way" marker-end="url(#tip)"/>'
        f'<circle cx="{at_x:.0f}" cy="{at_y:.0f}" r="9" fill="#fff" stroke="#3a5a9a"/>'
        f"{text(round(at_x), round(at_y) + 4, str(number), anchor='middle', small=True)}</g>"
    )


def _edge(here: tuple[float, float], there: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box to elsewhere leaves the box."""
    dx, dy = there[0] - here[0], there[1] - here[1]
    share = min(60 / abs(dx) if dx else 9, 18 / abs(dy) if dy else 9)
    return here[0] + dx * share, here[1] + dy * share


def pictures() -> dict[str, str]:
    """All pictures by their file's name."""
    page = (PROJECT / "docs" / "house.md").read_text(encoding="utf-8")
    return {
        "rooms.svg": draw_rooms(),
        "floors.svg": draw_floors(),
        "walk-in.svg": draw_walk(page, "In"),
        "walk-out.svg": draw_walk(page, "Out"),
        "life.svg": draw_life(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, drawn in pictures().items():
        (FOLDER / name).write_text(drawn, encoding="utf-8")
