"""The report's pictures, as SVG that has its colours from the page's style."""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from postroad.pipeline.report import Point, Report, Road
from postroad.pipeline.report_markup import (
    Markup,
    count,
    duration,
    moment,
    percent,
    shortened,
    tag,
    together,
)

_WIDTH, _HEIGHT = 480.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 440.0, 14.0, 198.0
_STEPS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
_MARKS: Final = (
    1.0, 10.0, 100.0, 1e3, 10e3, 60e3, 600e3, 3600e3, 21600e3, 86400e3, 864000e3, 8640000e3
)  # fmt: skip
"""Milliseconds that read well."""
HATCHES: Final = tag(
    "svg",
    tag(
        "defs",
        *(
            tag(
                "pattern",
                tag("rect", width=6, height=6, class_=f"{name} pale"),
                tag("path", d=path, class_=f"{name} drawn"),
                id=f"hatch-{name}",
                width=6,
                height=6,
                patternUnits="userSpaceOnUse",
            )
            for name, path in (("doubt", "M0 6L6 0M-1 1L1 -1M5 7L7 5"), ("waiting", "M0 3H6"))
        ),
    ),
    width=0,
    height=0,
    aria_hidden="true",
    class_="defs",
)
"""What tells areas apart without colour."""


class _Time:
    """Places of times on the x axis."""

    def __init__(self, points: Sequence[Point], step: str) -> None:
        self.start = points[0].at
        self.slots = round((points[-1].at - self.start) / _STEPS[step]) + 1
        self.wide = (_RIGHT - _LEFT) / self.slots
        self.step = _STEPS[step]

    def left(self, at: datetime) -> float:
        return _LEFT + (at - self.start) / self.step * self.wide

    def middle(self, at: datetime) -> float:
        return self.left(at) + self.wide / 2

    def axis(self) -> Markup:
        day = timedelta(days=1)
        whole = self.slots * self.step
        if whole <= 2 * day:
            gap, form = max(1, round(whole / timedelta(hours=1) / 6)) * timedelta(hours=1), "%H:%M"
        else:
            gap, form = max(1, math.ceil(whole / day / 6)) * day, "%-d %b"
        at = self.start if whole <= 2 * day else _next_midnight(self.start)
        marks = []
        while self.left(at) <= _RIGHT - 8:
            x = self.left(at)
            marks.append(tag("line", x1=x, x2=x, y1=_BOTTOM, y2=_BOTTOM + 4, class_="axis"))
            marks.append(tag("text", f"{at:{form}}", x=x, y=_BOTTOM + 18, class_="mark start"))
            at += gap
        base = tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis")
        return together(base, *marks)


def _next_midnight(at: datetime) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight if midnight == at else midnight + timedelta(days=1)


def volume(report: Report) -> Markup:
    """What was sent in each step of time, and what became of it; what came, as a line."""
    points = report.points
    time = _Time(points, report.step)
    top = _round_up(max(max(point.sent, point.received) for point in points))
    bars = []
    for point in points:
        bottom, parts = _BOTTOM, []
        for name in ("acknowledged", "waiting", "in_doubt", "failed"):
            high = getattr(point, name) / top * (_BOTTOM - _TOP)
            bottom -= high
            if high:
                parts.append(_bar(time, point.at, bottom, high, name))
        said = f"{moment(point.at)}: {_sum(point)}"
        bars.append(tag("g", tag("title", said), *parts))
    line = _line(time, points, lambda p: p.received, lambda v: _y(v / top), "received")
    shown = line if any(point.received for point in points) else None
    grid = _grid([(part * top, _y(part)) for part in (0.5, 1)], lambda v: _compact(v))
    return _picture("Messages sent, by what became of them", _told(points), grid, *bars, shown,
                    time.axis())  # fmt: skip


def rate(report: Report) -> Markup:
    """The share that was acknowledged, of what is decided."""
    rates = [point.rate for point in report.points if point.rate is not None]
    lowest = min(rates, default=1.0)
    floor = next(low for low in (0.98, 0.9, 0.5, 0.0) if lowest >= low)
    time = _Time(report.points, report.step)

    def y(value: float) -> float:
        return _y((value - floor) / (1 - floor))

    grid = _grid([(value, y(value)) for value in (floor, (1 + floor) / 2, 1.0)],
                 lambda v: f"{v * 100:g} %")  # fmt: skip
    line = _line(time, report.points, lambda p: p.rate, y, "rate")
    return _picture(
        "Delivery rate",
        f"Lowest {percent(lowest)} in one {report.step}.",
        grid,
        line,
        time.axis(),
    )


def latency(report: Report) -> Markup:
    """Percentiles from submission to acknowledgment, on a logarithmic scale."""
    values = [v for p in report.points for v in (p.p50, p.p95, p.p99) if v is not None]
    low = max((mark for mark in _MARKS if mark <= min(values, default=1)), default=_MARKS[0])
    high = min((mark for mark in _MARKS if mark >= max(values, default=1)), default=_MARKS[-1])
    marks = [mark for mark in _MARKS if low <= mark <= max(high, low * 10)]
    time = _Time(report.points, report.step)

    def y(value: float) -> float:
        part = math.log(max(value, marks[0]) / marks[0]) / math.log(marks[-1] / marks[0])
        return _y(min(1.0, part))

    grid = _grid([(mark, y(mark)) for mark in marks], duration)
    lines: list[Markup] = []
    label = _BOTTOM + 13
    for name in ("p50", "p95", "p99"):
        known = [value for value in map(attrgetter(name), report.points) if value is not None]
        if known:
            label = min(y(known[-1]), label - 13)
            lines.append(_line(time, report.points, attrgetter(name), y, name))
            lines.append(tag("text", name, x=_RIGHT + 5, y=label + 4, class_="mark start"))
    p50, p95, p99 = (duration(value) for value in report.latency)
    said = f"Half within {p50}, 95\u00a0% within {p95}, 99\u00a0% within {p99}."
    return _picture("Time until acknowledged", said, grid, *lines, time.axis())


def road_map(report: Report, most: int = 12) -> Markup:
    """Senders to the left, relays in the middle, the stations that follow to the right."""
    relays = {relay.name: relay for relay in report.relays}
    onward = [road for road in report.leaving if road.to not in relays][:most]
    between = [road for road in report.leaving if road.to in relays]
    arriving = report.arriving[:most]
    rows = max(len(_ends(arriving, "origin")), len(_ends(onward, "to")), 2 * len(relays), 3)
    height = 26.0 * rows + 40
    places = {name: height * (n + 0.5) / len(relays) for n, name in enumerate(relays)}
    lefts, rights = _spread(_ends(arriving, "origin"), height), _spread(_ends(onward, "to"), height)
    most_carried = max((road.count for road in (*report.arriving, *report.leaving)), default=1)

    def road(
        one: Road, start: tuple[float, float], end: tuple[float, float], bend: float
    ) -> Markup:
        said = f"{one.origin or 'unknown'} to {one.to or 'unknown'}: {count(one.count)}"
        if one.dwell is not None:
            said += f", half of them left within {duration(one.dwell)}"
        (x1, y1), (x2, y2) = start, end
        turns = f"{x1 + bend:.0f} {y1:.1f} {x2 - bend:.0f} {y2:.1f}"
        path = f"M{x1:.0f} {y1:.1f}C{turns} {x2:.0f} {y2:.1f}"
        wide = 1.5 + 12 * math.sqrt(one.count / most_carried)
        return tag("path", tag("title", said), d=path, class_="road", stroke_width=wide)

    roads = [road(one, (250, lefts[one.origin]), (400, places[one.to]), 70)
             for one in arriving if one.to in places]  # fmt: skip
    roads += [road(one, (560, places[one.origin]), (710, rights[one.to]), 70)
              for one in onward if one.origin in places]  # fmt: skip
    roads += [road(one, (560, places[one.origin] + 8), (560, places[one.to] - 8), 60)
              if places[one.origin] < places[one.to]
              else road(one, (400, places[one.origin] - 8), (400, places[one.to] + 8), -60)
              for one in between if one.origin in places and one.to in places]  # fmt: skip
    stations = [_station(name, arriving, "origin", 240, y) for name, y in lefts.items()]
    stations += [_station(name, onward, "to", 720, y) for name, y in rights.items()]
    boxes = [_relay(report, name, y) for name, y in places.items()]
    named = ", ".join(f"{r.name} carried {count(r.count)}" for r in report.relays)
    return _picture("The roads that messages took over relays", f"{named}.", *roads, *stations,
                    *boxes, size=(960, height), wide=True)  # fmt: skip


def _ends(roads: Iterable[Road], end: str) -> list[str | None]:
    return list(dict.fromkeys(getattr(road, end) for road in roads))


def _spread(names: list[str | None], height: float) -> dict[str | None, float]:
    return {name: height * (n + 0.5) / len(names) for n, name in enumerate(names)}


def _station(name: str | None, roads: Sequence[Road], end: str, x: float, y: float) -> Markup:
    carried = sum(road.count for road in roads if getattr(road, end) == name)
    anchor = "end" if end == "origin" else "start"
    dot = tag("circle", cx=x + (10 if anchor == "end" else -10), cy=y, r=4, class_="stop")
    label = tag("text", shortened(_named(name).rpartition("::")[2] or _named(name), 24), " ",
                tag("tspan", count(carried), class_="number"), x=x, y=y + 4.5,
                class_=f"station {anchor}")  # fmt: skip
    return tag("g", tag("title", _named(name)), dot, label)


def _named(name: str | None) -> str:
    return name or "unknown"


def _relay(report: Report, name: str, y: float) -> Markup:
    relay = next(one for one in report.relays if one.name == name)
    stays = f"stays {duration(relay.p50)}, 95\u00a0% {duration(relay.p95)}"
    lines = [
        tag("text", shortened(name, 20), x=480, y=y - 9, class_="relay middle"),
        tag("text", count(relay.count), x=480, y=y + 8, class_="number middle"),
        tag("text", stays, x=480, y=y + 23, class_="small middle"),
    ]
    box = tag("rect", x=400, y=y - 28, width=160, height=58, rx=8, class_="box")
    return tag("g", tag("title", f"{name}: {count(relay.count)}, {stays}"), box, *lines)


def _picture(
    title: str,
    said: str,
    *children: Markup | None,
    size: tuple[float, float] = (_WIDTH, _HEIGHT),
    wide: bool = False,
) -> Markup:
    width, height = size
    svg = tag("svg", *children, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img",
              aria_label=f"{title}. {said}")  # fmt: skip
    return tag("div", svg, class_="picture wide" if wide else "picture",
               tabindex="0" if wide else None)  # fmt: skip


def _bar(time: _Time, at: datetime, y: float, high: float, name: str) -> Markup:
    gap = min(2.0, time.wide * 0.15)
    return tag("rect", x=time.left(at) + gap / 2, y=y, width=max(0.6, time.wide - gap),
               height=high, class_=f"area {name}")  # fmt: skip


def _line(
    time: _Time,
    points: Sequence[Point],
    value: Callable[[Point], float | None],
    y: Callable[[float], float],
    name: str,
) -> Markup:
    """Broken where nothing is known. A point alone makes no line: it is a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        known = value(point)
        if known is not None:
            runs[-1].append((time.middle(point.at), y(known)))
        elif runs[-1]:
            runs.append([])
    path = "".join(
        f"{'L' if place else 'M'}{x:.1f} {high:.1f}"
        for run in runs
        if len(run) > 1
        for place, (x, high) in enumerate(run)
    )
    dots = [
        tag("circle", cx=run[0][0], cy=run[0][1], r=4, class_=f"dot {name}")
        for run in runs
        if len(run) == 1
    ]
    return together(tag("path", d=path, class_=f"line {name}") if path else None, *dots)


def _y(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _grid(marks: Iterable[tuple[float, float]], said: Callable[[float], str]) -> Markup:
    return together(
        *(
            together(
                tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid"),
                tag("text", said(value), x=_LEFT - 6, y=y + 4, class_="mark end"),
            )
            for value, y in marks
        )
    )


def _round_up(value: float) -> float:
    """To one or two leading digits, so that half of it reads well."""
    size = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next(size * n for n in (1, 2, 4, 6, 8, 10) if size * n >= value)


def _compact(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _sum(point: Point) -> str:
    parts = ((point.sent, "sent"), (point.acknowledged, "acknowledged"), (point.waiting, "waiting"),
             (point.in_doubt, "in doubt"), (point.failed, "failed"),
             (point.received, "received"))  # fmt: skip
    return ", ".join(f"{count(number)} {name}" for number, name in parts if number)


def _told(points: Sequence[Point]) -> str:
    most = max(points, key=lambda point: point.sent)
    sent = count(sum(point.sent for point in points))
    return f"{sent} sent in all, most at {moment(most.at)}: {count(most.sent)}."
