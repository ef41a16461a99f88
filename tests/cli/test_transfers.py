"""How far a message in fragments is, as commands and REST tell it."""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from rich.console import Console

from postroad.cli import waiting
from postroad.store.records import Split, State
from tests.api.site import Site
from tests.api.world import MemoryWorld
from tests.cli.conftest import Run

ORDERS = "buyer-to-seller-order"
BIG = "big@b"
STATES = (State.ACKNOWLEDGED, State.ACKNOWLEDGED, State.WAITING, State.READY)


@pytest.fixture
def big(ask: Run, site: Site, world: MemoryWorld, order: Path) -> str:
    """A message in four fragments: two arrived, one more left."""
    ask("send", "--pmode", ORDERS, "--payload", order, "--message-id", BIG)
    whole, service = world.service.outgoing(BIG), world.service
    for number, state in enumerate(STATES, 1):
        fields = {"kind": "fragment", "part_of": BIG, "fragment": number, "fragments": 4}
        name = f"f{number}@b"
        fragment = replace(
            whole, message_id=name, state=state, bytes=1000, key=100 + number, parts=(), **fields
        )
        site.run(service.change(fragment))
    cut = Split("g1", 1000, 4, 3500, 3500, written=4)
    site.run(service.change(whole, state=State.WAITING, split=cut))
    return BIG


def test_the_status_tells_how_many_fragments_arrived(ask: Run, big: str) -> None:
    facts = ask("status", big).stdout.splitlines()
    [said] = [line for line in facts if line.startswith("fragments")]
    assert said.split(maxsplit=1)[1] == "2 of 4 arrived, 3 sent; 2 kB of 3.5 kB"
    told = json.loads(ask("status", big, "--json").stdout)
    assert told["transfer"] == {
        "fragments": 4,
        "sent": 3,
        "arrived": 2,
        "bytes": 3500,
        "arrived_bytes": 2000,
    }
    piece = ask("status", "f3@b").stdout
    assert "3 of 4, part of big@b" in piece


def test_a_trace_sums_fragments_up_and_lists_them_when_asked_to(ask: Run, big: str) -> None:
    short = ask("trace", big).stdout
    assert "2 of 4 arrived" in short
    assert "f1@b" not in short
    rows = [line.split() for line in ask("trace", big, "--fragments").stdout.splitlines()]
    listed = [row for row in rows if any(word.startswith("f") and "@b" in word for word in row)]
    assert [row[:2] for row in listed] == [
        ["1", "acknowledged"],
        ["2", "acknowledged"],
        ["3", "waiting"],
        ["4", "ready"],
    ]
    told = json.loads(ask("trace", big, "--fragments", "--json").stdout)
    assert [one["fragment"] for one in told["fragments"]] == [1, 2, 3, 4]
    assert "fragments" not in json.loads(ask("trace", big, "--json").stdout)


@pytest.fixture
def screen() -> Iterator[Console]:
    """A terminal that somebody looks at."""
    console = Console(record=True, force_terminal=True, width=120, stderr=True)
    with patch.object(waiting, "Console", lambda **_: console), patch.object(waiting, "_LOOK", 0.1):
        yield console


def test_who_waits_on_a_terminal_sees_a_bar_with_rate_and_time_left(
    ask: Run, big: str, screen: Console
) -> None:
    waited = ask("resend", big, "--wait", "1")
    assert waited.exit_code == 1
    shown = screen.export_text()
    assert "arrived" in shown
    assert "2 of 4 fragments" in shown
    assert "2.0/3.5 kB" in shown
