"""The report as one page: it needs no network, no script and no other file."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from postroad.pipeline.report import BY_ID, CLASSES, LISTED, WELL, Report
from postroad.pipeline.report_charts import HATCHES, latency, rate, road_map, volume
from postroad.pipeline.report_markup import (
    Child,
    Markup,
    amount,
    count,
    duration,
    moment,
    name_of,
    percent,
    tag,
    together,
)
from postroad.pipeline.report_style import STYLE

_MEANING: Final = {
    "confirmed": ("good", "Delivered once, by the word of both sides or of one that knows."),
    "pending": ("idle", "On its way, or not decided yet."),
    "in_doubt": ("doubtful", "Transmitted without an answer, and no journal tells more."),
    "failed": ("idle", "Not delivered, and the sender knows or the receiver's journal shows it."),
    "refused": ("idle", "The receiver did not take it, and said so."),
    "lost": ("bad", "Acknowledged, but never delivered to the application."),
    "ghost": ("bad", "Delivered, though the sender was told that it failed."),
    "twice": ("bad", "Delivered more than once."),
}
_TODO: Final = {
    "in_doubt": "Ask the partner: postroad pipeline reconcile --settle.",
    "lost": "The sender believes that it arrived. Have the receiver look for it, or send it again.",
    "ghost": "The receiver works with it. Tell the sender before it is sent again as another.",
    "twice": "Ask the receiver which of them counts.",
    "refused": "Correct what the receiver objects to, and send it anew.",
    "failed": "Send it again.",
    "pending": "Wait, or ask the receiver if it takes too long.",
}
_KINDS: Final = {
    "chain": "segments that do not follow each other",
    "gap": "stretches of missing events",
    "identity": "events that were told in two ways",
    "quarantine": "rows set aside",
    "clock": "clocks that disagree",
    "two_senders": "ids with two senders",
    "two_receivers": "ids with two receivers",
    "unknown_event": "events of an unknown name",
    "foreign_file": "files that are no segments",
}
_AT_ONCE: Final = 6
"""Rows of a list that are shown without asking."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report, made: datetime) -> str:
    """The whole page."""
    body = _nothing() if report.empty else together(*_sections(report))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", "Postroad: what happened to every message"),
        tag("style", Markup(STYLE)),
    )
    footer = tag("footer", tag("p", f"Made on {moment(made)} UTC by postroad pipeline report. "
                                    "All times are UTC."))  # fmt: skip
    content = tag("body", HATCHES, _header(report), tag("main", body), footer)
    return f"<!doctype html>\n{tag('html', head, content, lang='en')}\n"


def _header(report: Report) -> Markup:
    period: Child = None
    if report.points:
        first, last = report.points[0].at, report.points[-1].at
        period = tag("p", f"{first:%-d %B %Y} to {last:%-d %B %Y}", class_="soft")
    return tag("header", tag("p", "Postroad", class_="brand"),
               tag("h1", "What happened to every message"), period)  # fmt: skip


def _nothing() -> Markup:
    return tag(
        "section",
        tag("h2", "Nothing yet"),
        tag("p", "The lake has no messages and no findings. Fill it first: "
                 "postroad pipeline run --once --journal JOURNAL --lake LAKE."),
    )  # fmt: skip


def _sections(report: Report) -> Iterable[Child]:
    yield _lead(report)
    yield _tiles(report)
    yield _classes(report)
    if report.points:
        yield tag("div", _volume(report), _rate(report), class_="pair")
        yield tag("div", _latency(report), _retries(report), class_="pair")
    yield from (_to_look_at(report, name) for name in BY_ID if report.classes.get(name))
    if report.unproven:
        yield _unproven(report)
    if report.partners:
        yield _partners(report)
    if report.relays:
        yield _roads(report)
    yield _findings(report)


def _lead(report: Report) -> Markup:
    parts = [f"{count(report.messages)} messages, {_share(report, 'confirmed')} confirmed."]
    wrong = [(name, report.classes.get(name, 0)) for name in LISTED]
    said = [f"{count(number)} {_plain(name)}" for name, number in wrong if number]
    parts.append(
        f"To look at: {', '.join(said)}." if said else "None is lost, doubled or in doubt."
    )
    if report.findings_by_kind:
        found = sum(report.findings_by_kind.values())
        parts.append(f"The journal itself has {count(found)} {_plural(found, 'finding')}.")
    return tag("p", " ".join(parts), class_="lead")


def _tiles(report: Report) -> Markup:
    attempts = report.attempts
    again = sum(number for tries, number in attempts.items() if tries > 1)
    signed = report.evidence.get(True, 0) + report.evidence.get(False, 0)
    tiles: list[tuple[str, str]] = [
        (count(report.messages), "messages"),
        (_share(report, "confirmed"), "confirmed"),
        (duration(report.latency[0]), "half acknowledged within"),
        (duration(report.latency[1]), "95\u00a0% acknowledged within"),
        (percent(again / max(1, sum(attempts.values()))), "sent more than once"),
    ]
    if signed:
        share = report.evidence.get(True, 0) / signed
        tiles.append((percent(share), f"of {count(signed)} receipts verified hold"))
    items = (tag("li", tag("b", number), tag("span", what)) for number, what in tiles)
    return tag("ul", *items, class_="tiles")


def _classes(report: Report) -> Markup:
    """All bars have one scale; the shortest can still be seen."""
    rows: list[Markup] = []
    for name in CLASSES:
        number = report.classes.get(name, 0)
        tone, why = _MEANING[name]
        rows += _bar(_plain(name), number, number / max(1, report.messages), tone,
                     f"{count(number)} · {_share(report, name)}")  # fmt: skip
        rows.append(tag("dd", why, class_="why"))
    return tag("section", tag("h2", "Reconciliation"), tag("dl", *rows, class_="bars"))


def _bar(label: str, number: int, part: float, tone: str, said: str) -> list[Markup]:
    fill = tag("i", style=f"--part:{part * 100:.2f}%") if number else None
    return [
        tag("dt", label),
        tag("dd", tag("div", fill, class_="track", aria_hidden="true"), class_=tone),
        tag("dd", said, class_="number"),
    ]


def _volume(report: Report) -> Markup:
    keys = [("acknowledged", "acknowledged"), ("waiting", "waiting"), ("in_doubt", "in doubt"),
            ("failed", "failed")]  # fmt: skip
    swatches = [
        tag("li", tag("svg", tag("rect", width=24, height=12, class_=f"area {name}"),
                      viewBox="0 0 24 12", aria_hidden="true"), said)
        for name, said in keys
    ]  # fmt: skip
    if any(point.received for point in report.points):
        line = tag("path", d="M1 6H23", class_="line received")
        swatches.append(tag("li", tag("svg", line, viewBox="0 0 24 12", aria_hidden="true"),
                            "received"))  # fmt: skip
    heads = (report.step, "sent", "acknowledged", "waiting", "in doubt", "failed", "received")
    rows = [
        (moment(p.at), *(count(n) for n in (p.sent, p.acknowledged, p.waiting, p.in_doubt,
                                            p.failed, p.received)))
        for p in report.points
    ]  # fmt: skip
    return tag("section", tag("h2", f"Volume per {report.step}"), volume(report),
               tag("ul", *swatches, class_="legend"), _as_table(heads, rows))  # fmt: skip


def _rate(report: Report) -> Markup:
    rows = [(moment(point.at), percent(point.rate)) for point in report.points]
    note = "Of messages that are decided: the share that was acknowledged."
    return tag("section", tag("h2", "Delivery rate"), rate(report), tag("p", note, class_="soft"),
               _as_table((report.step, "rate"), rows))  # fmt: skip


def _latency(report: Report) -> Markup:
    rows = [(moment(p.at), duration(p.p50), duration(p.p95), duration(p.p99))
            for p in report.points]  # fmt: skip
    p50, p95, p99 = (duration(value) for value in report.latency)
    note = (
        f"From submission to acknowledgment: half within {p50}, 95\u00a0% {p95}, 99\u00a0% {p99}."
    )
    return tag("section", tag("h2", "Time until acknowledged"), latency(report),
               tag("p", note, class_="soft"),
               _as_table((report.step, "p50", "p95", "p99"), rows))  # fmt: skip


def _retries(report: Report) -> Markup:
    most = max(report.attempts.values(), default=1)
    last = max(report.attempts, default=1)
    rows: list[Markup] = []
    whole = sum(report.attempts.values())
    for tries, number in report.attempts.items():
        more = " or more" if tries == last and tries >= 6 else ""
        label = f"{tries}{more} {'attempt' if tries == 1 else 'attempts'}"
        said = f"{count(number)} · {percent(number / whole)}"
        rows += _bar(label, number, number / most, "good" if tries == 1 else "doubtful", said)
    return tag("section", tag("h2", "Retries"),
               tag("p", "How many attempts messages took.", class_="soft"),
               tag("dl", *rows, class_="bars"), *_besides(report))  # fmt: skip


def _besides(report: Report) -> Iterable[Markup]:
    """What conversations and packing come to, in a sentence each."""
    talk, packing = report.conversations, report.packing
    if talk.get("messages"):
        yield tag("h3", "Conversations")
        yield tag("p", f"{count(talk['requests'])} requests and {count(talk['replies'])} replies; "
                       f"{count(talk['unanswered'])} have no reply, {count(talk['gaps'])} numbers "
                       f"are missing, {count(talk['out_of_order'])} came out of order.",
                  class_="soft")  # fmt: skip
    if packing.get("payload_bytes"):
        wire, payload = packing["wire_bytes"], packing["payload_bytes"]
        yield tag("h3", "Packing")
        yield tag("p", f"{amount(payload)} of payload went as {amount(wire)} in "
                       f"{count(packing['envelopes'])} envelopes, "
                       f"{count(packing['fragments'])} fragments among them.",
                  class_="soft")  # fmt: skip


def _to_look_at(report: Report, name: str) -> Markup:
    number = report.classes[name]
    rows = [one for one in report.listed if one.named == name]
    shown = f"The last {len(rows)} of {count(number)}. " if len(rows) < number else ""
    heads = ("message", "from", "to", "since", "last event", "why")
    head = tag("tr", *(tag("th", label, scope="col") for label in heads))
    body = [
        tag(
            "tr",
            tag("td", one.message_id, class_="id"),
            tag("td", name_of(one.from_party), class_="name"),
            tag("td", name_of(one.to_party), class_="name"),
            tag("td", moment(one.first_at), class_="when"),
            tag("td", moment(one.last_at), class_="when"),
            tag("td", one.detail, class_="why"),
        )
        for one in rows
    ]
    title = f"{_plain(name).capitalize()}: {count(number)} {_plural(number, 'message')}"
    return tag("section", tag("h2", title),
               tag("p", f"{_MEANING[name][1]} {shown}{_TODO[name]}", class_="soft"),
               *_begun(head, body))  # fmt: skip


def _unproven(report: Report) -> Markup:
    wrong, unsigned = report.evidence.get(False, 0), report.evidence.get(None, 0)
    number, rows = wrong + unsigned, report.unproven
    shown = f"The last {len(rows)} of {count(number)}. " if len(rows) < number else ""
    note = (f"{count(wrong)} do not hold; {count(unsigned)} are unsigned, as are their messages. "
            f"{shown}Check again: postroad pipeline verify.")  # fmt: skip
    heads = ("message", "receipt", "signed", "checked", "why")
    head = tag("tr", *(tag("th", label, scope="col") for label in heads))
    body = [
        tag(
            "tr",
            tag("td", one.message_id, class_="id"),
            tag("td", one.receipt_id, class_="id"),
            tag("td", "yes" if one.signed else "no", class_="when"),
            tag("td", moment(one.checked_at), class_="when"),
            tag("td", one.detail, class_="why"),
        )
        for one in rows
    ]
    title = f"Unproven: {count(number)} {_plural(number, 'receipt')}"
    return tag("section", tag("h2", title), tag("p", note, class_="soft"), *_begun(head, body))


def _partners(report: Report) -> Markup:
    heads = ("sent", "delivered", "failed", "in doubt", "retries", "duplicates", "errors", "p95")
    head = tag("tr", tag("th", "partner", scope="col"),
               *(tag("th", label, scope="col", class_="n") for label in heads))  # fmt: skip
    body = [
        tag(
            "tr",
            tag("td", name_of(one.name), class_="name"),
            *_numbers(
                count(one.sent),
                tag("span", f"▼ {percent(one.rate)}", class_="flag")
                if one.rate is not None and one.rate < WELL
                else percent(one.rate),
                count(one.failed),
                count(one.in_doubt),
                count(one.retries),
                count(one.duplicates),
                count(one.errors),
                duration(one.p95),
            ),
        )
        for one in report.partners
    ]
    note = (f"The worst first, of {report.partners_in_all} partners: of what is decided less than "
            f"{percent(WELL)} was delivered (▼), or nothing is decided and there were errors or "
            "retries.")  # fmt: skip
    return tag("section", tag("h2", "Partners in trouble"), tag("p", note, class_="soft"),
               *_begun(head, body))  # fmt: skip


def _roads(report: Report) -> Markup:
    note = "Messages and fragments that went over relays: from whom, and where they went next."
    stuck = [f"{count(relay.stuck)} did not leave {relay.name}"
             for relay in report.relays if relay.stuck]  # fmt: skip
    rows = [(road.origin or "unknown", road.to or "unknown", count(road.count), "–")
            for road in report.arriving]  # fmt: skip
    rows += [(road.origin or "unknown", road.to or "unknown", count(road.count),
              duration(road.dwell)) for road in report.leaving]  # fmt: skip
    return tag("section", tag("h2", "The road map"), tag("p", note, class_="soft"),
               road_map(report), tag("p", f"{'; '.join(stuck)}.") if stuck else None,
               _as_table(("from", "to", "messages", "stay before it, half within"), rows, texts=2)
               )  # fmt: skip


def _findings(report: Report) -> Markup:
    totals = report.totals
    last = tag("p", f"Last run: {totals.detail or ''}", class_="soft") if totals else None
    if not report.findings_by_kind:
        return tag("section", tag("h2", "The journal itself"),
                   tag("p", "Nothing is wrong with it."), last)  # fmt: skip
    kinds = ", ".join(
        f"{_KINDS.get(kind, kind)} ({count(number)})"
        for kind, number in sorted(report.findings_by_kind.items(), key=lambda one: -one[1])
    )
    head = tag("tr", *(tag("th", label, scope="col")
                       for label in ("kind", "when", "what", "detail")))  # fmt: skip
    body = [
        tag("tr", tag("td", _plain(one.kind), class_="when"),
            tag("td", moment(one.at), class_="when"), tag("td", one.subject, class_="id"),
            tag("td", one.detail, class_="name"))
        for one in report.findings
    ]  # fmt: skip
    number = sum(report.findings_by_kind.values())
    shown = f"The last {len(body)} of {count(number)}." if len(body) < number else ""
    return tag("section", tag("h2", "The journal itself"), tag("p", f"Found: {kinds}. {shown}"),
               last, *_begun(head, body))  # fmt: skip


def _as_table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> Markup:
    """The same as a picture, for those who read or copy numbers."""
    head = tag("tr", *(tag("th", label, scope="col", class_="n" if place >= texts else None)
                       for place, label in enumerate(heads)))  # fmt: skip
    body = (
        tag(
            "tr", *(tag("td", cell, class_="name") for cell in row[:texts]), *_numbers(*row[texts:])
        )
        for row in rows
    )
    return tag("details", tag("summary", "as a table"), _table(head, body))


def _begun(head: Markup, body: Sequence[Markup]) -> Iterable[Markup]:
    """The first rows of a list; the others for who asks."""
    yield _table(head, body[:_AT_ONCE])
    if rest := body[_AT_ONCE:]:
        yield tag("details", tag("summary", f"{len(rest)} more"), _table(head, rest))


def _table(head: Markup, body: Iterable[Markup]) -> Markup:
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex="0")


def _numbers(*values: Child) -> list[Markup]:
    return [tag("td", value, class_="n") for value in values]


def _share(report: Report, name: str) -> str:
    return percent(report.classes.get(name, 0) / max(1, report.messages))


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _plural(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"
