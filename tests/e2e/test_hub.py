"""Two hubs in a row between real nodes, over real sockets."""

import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.nodes import Pair, Served, free_ports, make_pair, until

PMODE = "by-hubs"


@dataclass
class Road:
    """buyer, near, far, seller."""

    pair: Pair
    near: Served
    far: Served

    def send(self, payload: Path, message_id: str) -> None:
        sent = self.pair.buyer.run(
            "send", "--pmode", PMODE, "--payload", payload, "--message-id", message_id
        )
        assert sent.exit_code == 0, sent.output

    def acknowledged(self, message_id: str) -> bool:
        with self.pair.buyer.client() as buyer:
            return buyer.status(message_id).state == "acknowledged"


def _hub(folder: Path, name: str, port: int, routes: list[dict[str, Any]]) -> Served:
    (folder / "keys").mkdir(parents=True)
    (folder / "keys/api.token").write_text(secrets.token_hex())
    (folder / "keys/api.token").chmod(0o600)
    settings = {
        "node": name,
        "party": f"urn:example:{name}",
        "listen": [{"address": f"127.0.0.1:{port}"}],
        "api": {"token_file": "keys/api.token"},
    }
    (folder / "postroad.yaml").write_text(yaml.safe_dump(settings))
    (folder / "routes.yaml").write_text(yaml.safe_dump({"routes": routes}))
    return Served(name, folder)


def _rule(name: str, to: str, *urls: str) -> dict[str, Any]:
    soon = {"max_retries": "unlimited", "timeout": "PT1S", "period": "PT1S"}
    return {"id": name, "match": {"to_party": to}, "to": {"push": list(urls), "retry": soon}}


def _agree(pair: Pair, near: str, far: str) -> None:
    """The signed and encrypted P-Mode of the pair: each end knows nothing but its hub."""
    for node, back in ((pair.buyer, near), (pair.seller, far)):
        file = node.folder / "pmodes/buyer-to-seller-order.yaml"
        pmode = yaml.safe_load(file.read_text())
        [leg] = pmode["legs"]
        leg["protocol"] |= {"address": near, "add_actor_or_role_attribute": True}
        leg["business_info"]["action"] = "ByHubs"
        leg["security"]["send_receipt"] |= {"reply_pattern": "callback", "reply_to": back}
        leg["error_handling"]["report"] = {"as_response": False, "receiver_errors_to": back}
        (node.folder / f"pmodes/{PMODE}.yaml").write_text(yaml.safe_dump({**pmode, "id": PMODE}))


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    folder = tmp_path_factory.mktemp("hubs")
    pair = make_pair(folder)
    doors = [
        yaml.safe_load(one.config.read_text())["listen"][0]["address"]
        for one in (pair.buyer, pair.seller)
    ]
    buyer, seller = (f"http://{address}/msh" for address in doors)
    ports = free_ports()
    near, far = (f"http://127.0.0.1:{port}/msh" for port in ports)
    nobody = "http://127.0.0.1:1/msh"
    there, back = "urn:example:seller", "urn:example:buyer"
    near_rules = [_rule("over", there, nobody, far), _rule("home", back, buyer)]
    far_rules = [_rule("home", there, seller), _rule("over", back, near)]
    road = Road(
        pair,
        _hub(folder / "near", "near", ports[0], near_rules),
        _hub(folder / "far", "far", ports[1], far_rules),
    )
    _agree(pair, near, far)
    nodes = (pair.buyer, road.near, road.far, pair.seller)
    try:
        for one in nodes:
            one.begin()
        for one in nodes:
            one.ready()
        yield road
    finally:
        for one in nodes:
            if one.process is not None:
                one.end(signal.SIGKILL)


def _carried_both(hub: Served, name: str) -> bool:
    """Whether a hub passed on a message and its receipt."""
    with hub.client() as client:
        told = [one.event for one in client.events(name)]
    return (told.count("received"), told.count("forwarded")) == (2, 2)


@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.4.5-01", "P2-2.4.5-03", "P2-2.6-02")
@pytest.mark.parametrize("size", [1000, 5_000_000])
def test_a_signed_and_encrypted_message_crosses_two_hubs_and_so_does_its_receipt(
    road: Road, tmp_path: Path, size: int
) -> None:
    payload = tmp_path / "order.bin"
    payload.write_bytes(os.urandom(size))
    name = f"order-{size}@buyer.example"
    road.send(payload, name)
    until(lambda: road.acknowledged(name), "the receipt is there")
    digests = set()
    for hub in (road.near, road.far):
        with hub.client() as client:
            [body] = client.status(name).parts
            digests.add(body.sha256)
        until(partial(_carried_both, hub, name), "message and receipt passed it")
    assert len(digests) == 1
    with road.pair.seller.client() as seller:
        assert seller.part(name) == payload.read_bytes()


def test_a_hub_that_is_killed_with_a_message_in_hand_brings_it_there(
    road: Road, tmp_path: Path
) -> None:
    payload, name = tmp_path / "order.bin", "order-late@buyer.example"
    payload.write_bytes(b"late")
    road.far.end()
    road.send(payload, name)
    with road.near.client() as near:
        until(lambda: any(near.messages(side="forwarding", state="ready")), "the hub has it")
    road.near.end(signal.SIGKILL)
    road.near.begin()
    road.far.start()
    road.near.ready()
    until(lambda: road.acknowledged(name), "the receipt is there")
    told = road.near.run("trace", name)
    assert told.exit_code == 0, told.output
    assert "forwarded" in told.stdout
    explained = road.near.run("route", "explain", name)
    assert explained.exit_code == 0, explained.output
    assert "over" in explained.stdout
