"""Two hubs in a row between real nodes, over real sockets."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from postroad.api.client_values import ApiError
from tests.e2e.hub_road import (
    PATTERNS,
    SELLER,
    Road,
    make_road,
    near_rules,
    rule,
    streamed,
)
from tests.e2e.nodes import Served, until
from tests.e2e.taps import Tap, misbehaving

ROAD = ("buyer", "near", "far", "seller")


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    road = make_road(tmp_path_factory.mktemp("hubs"))
    try:
        for one in road.nodes:
            one.begin()
        for one in road.nodes:
            one.ready()
        yield road
    finally:
        for one in road.nodes:
            if one.process is not None:
                one.end(signal.SIGKILL)
        for tap in road.taps.values():
            tap.stop()


@pytest.mark.req("P2-2.2-01", "P2-2.4.3-01", "P2-2.4.5-01", "P2-2.4.5-03", "P2-2.5.1-02")
@pytest.mark.req("P2-2.4.7.1-02", "P2-2.4.7.2-01", "P2-2.4.7.2-03", "P2-2.4.7.2-04")
@pytest.mark.parametrize("size", [1000, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_way_over_two_hubs_keeps_every_byte_and_the_signature_holds(
    road: Road, tmp_path: Path, pattern: str, size: int
) -> None:
    """The receipt signs for the digests of what was sent, and is believed by the sender."""
    payload = tmp_path / "order.bin"
    payload.write_bytes(os.urandom(size))
    name = f"{pattern}-{size}@buyer.example"
    road.send(payload, name, pattern)
    until(lambda: road.acknowledged(name), "the receipt is there")
    with road.pair.seller.client() as seller:
        assert seller.part(name) == payload.read_bytes()
    sent, arrived = road.seen(name, "buyer", "near"), road.seen(name, "seller", "far")
    assert len(sent) == 1
    assert sent == arrived


def _carried_both(hub: Served, name: str) -> bool:
    """Whether a hub passed on a message and its receipt."""
    with hub.client() as client:
        told = [one.event for one in client.events(name)]
    return (told.count("received"), told.count("forwarded")) == (2, 2)


@pytest.mark.req("P2-2.4.1-01", "P2-2.6-02")
def test_both_hubs_carry_the_message_and_its_receipt(road: Road, tmp_path: Path) -> None:
    payload, name = tmp_path / "order.bin", "order-both@buyer.example"
    payload.write_bytes(b"paper")
    road.send(payload, name)
    until(lambda: road.acknowledged(name), "the receipt is there")
    for hub in (road.near, road.far):
        until(partial(_carried_both, hub, name), "message and receipt passed it")
    others = [value for one in road.nodes[1:] for value in ("--also", one.config)]
    told = json.loads(road.pair.buyer.run("trace", name, "--json", *others).stdout)
    stations = [one["node"] for one in told["events"]]
    assert set(stations) == {"buyer", "near", "far", "seller"}
    shown = road.pair.buyer.run("trace", name, *others).stdout.splitlines()
    heads = ["time", "after", "node", "side", "event", "what"]
    assert shown[1].split() == heads
    first = [next(n for n, line in enumerate(shown) if f" {one} " in line) for one in ROAD]
    assert first == sorted(first), "in the order of the road"
    elsewhere = road.pair.buyer.run("trace", "order-none@buyer.example", *others)
    assert elsewhere.exit_code == 1
    assert "There is no message" in elsewhere.stderr


def test_a_hub_that_is_killed_with_a_message_in_hand_brings_it_there(
    road: Road, tmp_path: Path
) -> None:
    payload, name = tmp_path / "order.bin", "order-late@buyer.example"
    payload.write_bytes(b"late")
    road.far.end()
    road.send(payload, name)
    with road.near.client() as near:
        until(lambda: any(near.messages(side="forwarding", state="ready")), "the hub has it")
    explained = road.near.run("route", "explain", name)
    assert explained.exit_code == 0, explained.output
    assert "over" in explained.stdout
    road.near.end(signal.SIGKILL)
    road.near.begin()
    road.far.start()
    road.near.ready()
    until(lambda: road.acknowledged(name), "the receipt is there")
    told = road.near.run("trace", name)
    assert told.exit_code == 0, told.output
    assert "forwarded" in told.stdout
    assert "by the rule over" in told.stdout
    explained = road.near.run("route", "explain", name)
    assert explained.exit_code == 1, explained.output
    assert "its envelope is no longer kept here" in explained.stderr


def _errors(hub: Served, name: str) -> list[str | None]:
    """What a hub said against a message; it knows nothing of one that did not come yet."""
    with hub.client() as client, suppress(ApiError):
        return [one.error_code for one in client.events(name)]
    return []


@pytest.mark.parametrize("how", ["nonsense", "hangs", "closes"])
def test_a_next_hop_that_misbehaves_is_passed_by(road: Road, tmp_path: Path, how: str) -> None:
    payload, name = tmp_path / "order.bin", f"order-{how}@buyer.example"
    payload.write_bytes(b"paper")
    with misbehaving(how) as bad, road.rerouted(near_rules(road, bad, road.far_url)):
        road.send(payload, name)
        until(lambda: road.acknowledged(name), "the receipt is there")
    with road.near.client() as near:
        peers = [one.peer for one in near.events(name) if one.event == "forwarded"]
    assert road.far_url in peers


@pytest.mark.req("P2-2.5.6-08")
@pytest.mark.parametrize("how", ["nonsense", "closes"])
def test_a_sender_hears_at_once_of_a_next_hop_that_misbehaves_and_comes_again(
    road: Road, tmp_path: Path, how: str
) -> None:
    payload, name = tmp_path / "order.bin", f"sync-{how}@buyer.example"
    payload.write_bytes(b"paper")
    others = near_rules(road, road.far_url)[2:]
    with misbehaving(how) as bad, road.rerouted([streamed("sync", bad), *others]):
        road.send(payload, name, "sync")
        until(lambda: "EBMS:0004" in _errors(road.near, name), "the sender is told")
    until(lambda: road.acknowledged(name), "the sender came again")


def test_an_alternate_route_is_taken_in_the_middle_of_a_series(road: Road, tmp_path: Path) -> None:
    payload = tmp_path / "order.bin"
    payload.write_bytes(b"paper")
    ways = [Tap(road.far_url).start() for _ in range(2)]
    others = [one for one in near_rules(road, road.far_url) if one["id"] != "over"]
    over = rule("ways", SELLER, *(one.url for one in ways))
    names = [f"series-{number}@buyer.example" for number in range(6)]
    try:
        with road.rerouted([*others, over]):
            for name in names[:3]:
                road.send(payload, name)
            until(lambda: all(map(road.acknowledged, names[:3])), "half of the series is there")
            ways[0].stop()
            for name in names[3:]:
                road.send(payload, name)
            until(lambda: all(map(road.acknowledged, names)), "all of it is there")
    finally:
        for one in ways:
            one.stop()
    assert [set(one.seen) for one in ways] == [set(names[:3]), set(names[3:])]
    with road.pair.seller.client() as seller:
        told = [[one.event for one in seller.events(name)] for name in names]
    assert [one.count("delivered") for one in told] == [1] * 6
