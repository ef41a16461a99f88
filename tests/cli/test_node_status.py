"""`postroad status` without an id: the node at a glance."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from postroad.cli.main import app
from postroad.cli.node_status import age
from postroad.node.service import Certificate, Health, NotInForce
from postroad.store.records import Figures
from tests.api.site import Site
from tests.api.world import Given, MemoryWorld
from tests.cli.conftest import NOBODY, Run, one_line

ORDERS = "buyer-to-seller-order"


def certificate(health: Health, use: str, days: int, partner: str | None = None) -> Certificate:
    begins, ends = health.at - timedelta(days=400), health.at + timedelta(days=days)
    return Certificate(use, f"of-{use}", f"CN={use}", begins, ends, use, partner)


@pytest.fixture
def busy(ask: Run, site: Site, world: MemoryWorld, order: Path) -> Run:
    """A node with messages, a partner that is down, and things to see to."""
    for name in ("1@b", "2@b", "3@b"):
        ask("send", "--pmode", ORDERS, "--payload", order, "--message-id", name)
    site.run(world.acknowledge("1@b"))
    site.run(world.deliver([Given(b"x")], "4@b"))
    site.run(world.pause("seller"))
    health = Health(True, (), Figures())
    world.service.healthy = Health(
        True,
        ("the disk is almost full",),
        Figures(),
        free=5_000_000_000,
        reserve=16_000_000,
        certificates=(
            certificate(health, "signing", -1),
            certificate(health, "partner", 12, "seller"),
            certificate(health, "tls", 100),
        ),
        not_in_force=(NotInForce("postroad.yaml", "workers was changed", "restart the node"),),
        partner_of={ORDERS: "seller", "quotes": "shipper"},
    )
    return ask


def test_the_node_is_shown_at_a_glance(busy: Run) -> None:
    done = busy("status")
    assert done.exit_code == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "ready yes" in lines
    assert "problem the disk is almost full" in lines
    counted = "receiving 1 delivered; sending 1 acknowledged, 2 submitted"
    assert f"messages {counted}" in lines
    [oldest] = [line for line in lines if line.startswith("oldest waiting ")]
    assert oldest.startswith("oldest waiting 2@b to seller, submitted, made ")
    assert "disk 5 GB free, 16 MB in reserve, 0 B used by the store" in lines
    [seller] = [line for line in lines if line.startswith("seller ")]
    assert seller.startswith("seller paused ")
    assert f" 2 {counted}" in seller
    assert any(line.startswith("shipper flowing 0 0") for line in lines)
    own, partner, tls = [line for line in lines if "CN=" in line]
    assert own.endswith("signing of-signing CN=signing expired")
    assert partner.endswith("partner seller CN=partner expires soon")
    assert tls.endswith("tls of-tls CN=tls")
    assert "postroad.yaml workers was changed restart the node" in lines


def test_the_node_as_data(busy: Run) -> None:
    status = json.loads(busy("status", "--json").stdout)
    assert status["messages"] == {
        "sending.acknowledged": 1,
        "sending.submitted": 2,
        "receiving.delivered": 1,
    }
    assert status["oldest_waiting"]["message_id"] == "2@b"
    assert [(one["name"], one["gate"], one["queue"]) for one in status["partners"]] == [
        ("seller", "paused", 2),
        ("shipper", "flowing", 0),
    ]
    warnings = [(one["use"], one["warning"]) for one in status["certificates"]]
    assert warnings == [("signing", "expired"), ("partner", "expires soon"), ("tls", None)]
    assert status["disk"] == {"free": 5_000_000_000, "reserve": 16_000_000, "used": 0}
    assert status["not_in_force"][0]["detail"] == "workers was changed"


def test_a_node_with_nothing_to_tell_has_one_line_for_each_thing(ask: Run) -> None:
    lines = ask("status").stdout.splitlines()
    assert any("all in force" in line for line in lines)
    assert not any("oldest" in line or "expires" in line for line in lines)


def test_long_tables_end_and_say_where_the_rest_is(ask: Run, world: MemoryWorld) -> None:
    partners = {f"p{number}": f"partner-{number:02}" for number in range(25)}
    world.service.healthy = Health(True, (), Figures(), partner_of=partners)
    shown = ask("status").stdout
    assert "partner-19" in shown
    assert "partner-20" not in shown
    assert "… and 5 more: see --json" in shown


def test_what_chooses_a_message_needs_its_id(ask: Run) -> None:
    assert "write its id" in one_line(ask("status", "--side", "sending"))


def test_a_node_that_is_not_there_is_told_with_what_to_do() -> None:
    said = one_line(CliRunner(env=NOBODY).invoke(app, ["status", "--url", "http://127.0.0.1:1"]))
    assert "no node answers" in said
    assert "postroad serve" in said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (11_530, "3 h 12 min"),
        (86_400 * 12 + 7200, "12 d"),
    ],
)
def test_ages_are_for_people(seconds: float, said: str) -> None:
    assert age(seconds) == said
