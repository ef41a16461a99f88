"""Commands about partners that are not served, and about notices."""

import json
from typing import Any

import pytest

from tests.api.site import Site
from tests.api.world import MemoryWorld
from tests.cli.conftest import Run, one_line

SEND = ("send", "--pmode", "buyer-to-seller-order", "--message-id")


# partners, suspend, resume


def test_when_all_are_served_it_is_said(ask: Run) -> None:
    assert ask("partners").stdout == "all partners are served\n"
    assert json.loads(ask("partners", "--json").stdout) == []


def test_partners_are_listed_with_gate_and_reason(ask: Run, site: Site, world: MemoryWorld) -> None:
    site.run(world.pause("seller"))
    heads, row = ask("partners").stdout.splitlines()
    shown = ["partner", "address", "gate", "failures", "since", "tried", "again", "why"]
    assert heads.split() == shown
    assert row.split()[:3] == ["seller", "paused", "5"]
    assert row.endswith("no seller")
    [told] = json.loads(ask("partners", "--json").stdout)
    assert (told["name"], told["gate"]) == ("seller", "paused")


def test_a_party_is_listed_with_its_addresses(ask: Run, site: Site, world: MemoryWorld) -> None:
    for address in ("http://a.example", "http://b.example"):
        site.run(world.pause("seller", address))
    _, *rows = ask("partners").stdout.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["seller", "http://a.example", "paused"],
        ["seller", "http://b.example", "paused"],
    ]
    ask("suspend", "seller")
    _, first, *others = ask("partners").stdout.splitlines()
    assert first.split()[:2] == ["seller", "suspended"]
    assert len(others) == 2
    [told] = json.loads(ask("partners", "--json").stdout)
    assert [one["address"] for one in told["addresses"]] == ["http://a.example", "http://b.example"]


def test_a_partner_is_suspended_and_resumed(ask: Run) -> None:
    suspended = ask("suspend", "urn:example:a/b", "--reason", "moving house")
    assert suspended.stdout == (
        "urn:example:a/b is suspended; go on with: postroad resume urn:example:a/b\n"
    )
    assert "moving house" in ask("partners").stdout
    assert ask("resume", "urn:example:a/b").stdout == "urn:example:a/b is served again\n"
    assert ask("partners").stdout == "all partners are served\n"


def test_suspending_and_resuming_are_told_to_machines(ask: Run) -> None:
    suspended = json.loads(ask("suspend", "seller", "--json").stdout)
    assert (suspended["name"], suspended["gate"]) == ("seller", "suspended")
    resumed = json.loads(ask("resume", "seller", "--json").stdout)
    assert resumed == {"partner": "seller", "messages": 0}


@pytest.mark.parametrize(("count", "said"), [(1, "1 suspended message goes"), (2, "2 suspended")])
def test_resuming_tells_how_much_goes_on(
    ask: Run, site: Site, world: MemoryWorld, count: int, said: str
) -> None:
    for number in range(count):
        ask(*SEND, f"{number}@b")
        message = world.service.outgoing(f"{number}@b")
        site.run(world.service.change(message, state="suspended"))
    assert f"; {said}" in ask("resume", "seller").stdout


def test_a_partner_that_is_served_cannot_be_resumed(ask: Run) -> None:
    refused = ask("resume", "seler")
    assert refused.exit_code == 1
    assert one_line(refused) == (
        "postroad: nothing waits for seler to be resumed; "
        "who is not served is told by: postroad partners"
    )


def test_an_unknown_partner_cannot_be_suspended(ask: Run) -> None:
    assert one_line(ask("suspend", "seler")) == "postroad: no P-Mode sends anything to seler"


def test_what_a_partner_says_cannot_move_the_cursor(
    ask: Run, site: Site, world: MemoryWorld
) -> None:
    site.run(world.pause("evil\x1b[2J"))
    shown = ask("partners")
    assert "\x1b" not in shown.stdout
    assert r"evil\x1b[2J" in shown.stdout


# inbox notices


@pytest.fixture
def told(ask: Run, site: Site, world: MemoryWorld) -> list[int]:
    """The numbers of three notices."""
    for name in ("1@b", "2@b", "3@b"):
        ask(*SEND, name)
        site.run(world.doubt(name))
    return [one.id for one in site.run(world.service.notices())]


def listed(ask: Run, *options: str) -> list[int]:
    found: list[dict[str, Any]] = json.loads(ask("inbox", "notices", "--json", *options).stdout)
    return [one["id"] for one in found]


def test_notices_are_listed_oldest_first(ask: Run, told: list[int]) -> None:
    heads, *rows = ask("inbox", "notices").stdout.splitlines()
    assert heads.split() == ["notice", "time", "state", "kind", "message", "why"]
    assert [int(row.split()[0]) for row in rows] == told
    assert "in_doubt  Warning  1@b" in rows[0]
    assert rows[0].endswith("EBMS:0301 no receipt came")
    assert listed(ask) == told
    assert listed(ask, "--limit", "2") == told[:2]


def test_notices_that_are_known_are_gone(ask: Run, told: list[int]) -> None:
    known = ask("inbox", "notices", "--ack", str(told[0]), "--ack", str(told[2]))
    assert known.stdout == (f"notice {told[0]} acknowledged\nnotice {told[2]} acknowledged\n")
    assert listed(ask) == [told[1]]


def test_a_notice_that_is_gone_is_a_line(ask: Run, told: list[int]) -> None:
    ask("inbox", "notices", "--ack", str(told[0]))
    again = ask("inbox", "notices", "--ack", str(told[0]))
    assert again.exit_code == 1
    assert one_line(again) == f"postroad: there is no notice {told[0]}"


def test_all_that_are_listed_can_be_known_at_once(ask: Run, told: list[int]) -> None:
    assert listed(ask, "--ack-all", "--limit", "1") == told[:1]
    assert listed(ask, "--ack-all") == told[1:]
    assert listed(ask) == []


def test_one_or_all_and_not_both(ask: Run, told: list[int]) -> None:
    both = ask("inbox", "notices", "--ack", str(told[0]), "--ack-all")
    assert (both.exit_code, one_line(both)) == (2, "postroad: give either --ack or --ack-all")
    assert ask("inbox", "notices", "--ack", "0").exit_code == 2
    assert listed(ask) == told
