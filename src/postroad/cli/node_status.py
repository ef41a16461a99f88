"""The node at a glance, on a screen."""

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import typer
from rich.text import Text

from postroad.api.client_status import Certificate, PartnerStatus, Status
from postroad.cli.showing import (
    as_data,
    moment,
    plain,
    print_facts,
    print_json,
    print_table,
    size,
    state,
)

_ROWS: Final = 20
"""Partners and certificates that are shown; --json has all."""
_DAY: Final = 86_400
_UNITS: Final = ((_DAY, "d"), (3600, "h"), (60, "min"), (1, "s"))
_COLOURS: Final = {"expired": "red", "expires soon": "yellow", "not yet valid": "yellow"}


def show_node(status: Status, as_json: bool) -> None:
    """Print how a node is: what is wrong first, then partners, certificates and settings."""
    if as_json:
        print_json(as_data(status))
        return
    print_facts(_facts(status))
    _table(
        ("partner", "gate", "failures", "queue", "messages", "why"),
        [_partner(one) for one in sorted(status.partners, key=_by_trouble)],
    )
    now = datetime.now().astimezone()
    _table(
        ("expires", "in", "use", "of", "certificate", "warning"),
        [_certificate(one, now) for one in status.certificates],
    )
    _table(
        ("not in force", "what", "to do"),
        [(one.what, one.detail, one.to_do) for one in status.not_in_force],
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str | Text, ...]]) -> None:
    if not rows:
        return
    typer.echo()
    print_table(heads, rows[:_ROWS])
    if len(rows) > _ROWS:
        typer.echo(f"… and {len(rows) - _ROWS} more: see --json")


def _facts(status: Status) -> Iterator[tuple[str, str | Text]]:
    disk, oldest = status.disk, status.oldest_waiting
    yield "node", f"{status.name} ({status.party}), Postroad {status.version}"
    yield "ready", Text("yes", "green") if status.ready else Text("no", "red")
    for problem in status.problems:
        yield "problem", Text(plain(problem), "yellow")
    yield "messages", _counts(status.messages) or "none"
    if oldest is not None:
        to = f" to {oldest.partner}" if oldest.partner else ""
        said = f"{oldest.message_id}{to}, {oldest.state}, made {age(oldest.seconds)} ago"
        yield "oldest waiting", said
    free = "" if disk.free is None else f"{size(disk.free)} free, "
    yield "disk", f"{free}{size(disk.reserve)} in reserve, {size(disk.used)} used by the store"
    if not status.not_in_force:
        yield "settings", "all in force"


def _counts(messages: dict[str, int]) -> str:
    """How many messages there are, by side and state."""
    places = sorted((*name.split("."), count) for name, count in messages.items() if count)
    sides = itertools.groupby(places, key=lambda one: one[0])
    return "; ".join(
        f"{side} {', '.join(f'{count:,} {state}' for _, state, count in found)}"
        for side, found in sides
    )


def _by_trouble(partner: PartnerStatus) -> tuple[bool, int, str]:
    """Those first that need somebody, then those for whom most waits."""
    return partner.gate == "flowing", -partner.queue, partner.name


def _partner(partner: PartnerStatus) -> tuple[str | Text, ...]:
    until = f"tried again at {moment(partner.until)}" if partner.until else None
    return (
        partner.name or "(none or any)",
        state(partner.gate),
        str(partner.failures),
        f"{partner.queue:,}",
        _counts(partner.messages),
        "; ".join(filter(None, (partner.detail, until))),
    )


def _certificate(one: Certificate, now: datetime) -> tuple[str | Text, ...]:
    left = (one.expires_at - now).total_seconds()
    warning = one.warning or ""
    return (
        moment(one.expires_at),
        age(left) if left > 0 else "",
        one.use,
        one.partner or one.name,
        one.subject,
        Text(warning, _COLOURS.get(warning, "")),
    )


def age(seconds: float) -> str:
    """A length of time in its two largest units, or in days."""
    left, said = int(seconds), list[str]()
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        if count or (unit == "s" and not said):
            said.append(f"{count} {unit}")
            if len(said) == 2 or length == _DAY:
                break
    return " ".join(said)
