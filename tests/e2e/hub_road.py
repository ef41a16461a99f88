"""buyer, near, far, seller as real processes, with a tap at each edge of the road.

Each pattern of bridging is a P-Mode of its own, told apart by its action.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.nodes import Pair, Served, make_pair
from tests.e2e.taps import Tap
from tests.ports import free_port

BUYER, SELLER = "urn:example:buyer", "urn:example:seller"
OFFERED, RELAYED = "http://buyer.example/offered", "http://buyer.example/relayed"
BOTH = "http://buyer.example/both"
PATTERNS: Final = ("store", "stream", "sync", "collected", "fetched", "relayed", "both")
"""push on push in three models, pull on push, push on pull, pull on pull in one go or kept."""
USER: Final = {"username": "seller", "password": "a secret of ours"}
HUB: Final = {"username": "hub", "password": "a secret of the hub"}
SOON: Final[dict[str, Any]] = {"max_retries": "unlimited", "timeout": "PT2S", "period": "PT1S"}


@dataclass
class Road:
    pair: Pair
    near: Served
    far: Served
    taps: dict[str, Tap]

    @property
    def nodes(self) -> tuple[Served, ...]:
        return self.pair.buyer, self.near, self.far, self.pair.seller

    def send(self, payload: Path, message_id: str, pattern: str = "store") -> None:
        sent = self.pair.buyer.run(
            *("send", "--pmode", pattern, "--payload", payload, "--message-id", message_id)
        )
        assert sent.exit_code == 0, sent.output

    def state(self, message_id: str) -> str:
        with self.pair.buyer.client() as buyer:
            return buyer.status(message_id).state

    @property
    def far_url(self) -> str:
        [url] = [one.url + one.path for one in self.far.serving.doors if "msh" in one.serve]
        return url

    @contextmanager
    def rerouted(self, rules: list[Any]) -> Iterator[None]:
        """The first hub goes by other rules for a while."""
        self._route(rules)
        try:
            yield
        finally:
            self._route(near_rules(self, self.far_url))

    def _route(self, rules: list[Any]) -> None:
        write_routes(self.near, rules, _pulls(self.taps["buyer"].url))
        with self.near.client() as near:
            near.reload()

    def acknowledged(self, message_id: str) -> bool:
        return self.state(message_id) == "acknowledged"

    def seen(self, message_id: str, *taps: str) -> set[tuple[str, str]]:
        """Digest and Content-Type of each copy that passed some taps."""
        return set().union(*(self.taps[one].seen.get(message_id, set()) for one in taps))


def rule(name: str, to: str, *urls: str, **match: Any) -> dict[str, Any]:
    match = {"to_party": to} | match
    return {"id": name, "match": match, "to": {"push": list(urls), "retry": SOON}}


def make_road(folder: Path) -> Road:
    """Folders of all four; nothing runs but the taps."""
    pair = make_pair(folder)
    doors = [
        yaml.safe_load(one.config.read_text())["listen"][0]["address"]
        for one in (pair.buyer, pair.seller)
    ]
    ports = free_port(), free_port()
    places = dict(zip(("buyer", "seller"), (f"http://{one}/msh" for one in doors), strict=True))
    places |= {
        name: f"http://127.0.0.1:{port}/msh"
        for name, port in zip(("near", "far"), ports, strict=True)
    }
    taps = {name: Tap(url).start() for name, url in places.items()}
    road = Road(
        pair,
        _hub(folder / "near", "near", ports[0]),
        _hub(folder / "far", "far", ports[1]),
        taps,
    )
    write_routes(road.near, near_rules(road, places["far"]), _pulls(taps["buyer"].url))
    write_routes(road.far, _far_rules(road, places["near"]))
    for pattern in PATTERNS:
        for node in (pair.buyer, pair.seller):
            pmode = _pmode(node, pattern, taps)
            (node.folder / f"pmodes/{pattern}.yaml").write_text(yaml.safe_dump(pmode))
    return road


def _hub(folder: Path, name: str, port: int) -> Served:
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
    return Served(name, folder)


def write_routes(hub: Served, rules: list[Any], pulls: list[Any] | None = None) -> None:
    text = yaml.safe_dump({"routes": rules, "pull": pulls or []}, sort_keys=False)
    (hub.folder / "routes.yaml").write_text(text)


def near_rules(road: Road, *far: str) -> list[Any]:
    """Nobody listens at the first address that leads over."""
    nobody = "http://127.0.0.1:1/msh"
    return [
        *(streamed(model, far[0]) for model in ("stream", "sync")),
        rule("over", SELLER, nobody, *far),
        rule("home", BUYER, road.taps["buyer"].url),
        {"id": "relay", "match": {"mpc": RELAYED}, "to": {"relay": road.taps["buyer"].url}},
    ]


def streamed(model: str, url: str) -> dict[str, Any]:
    match = {"to_party": SELLER, "action": model}
    return {"id": model, "match": match, "to": {"push": url, "forward": model}}


def _far_rules(road: Road, near: str) -> list[Any]:
    home = road.taps["seller"].url
    waiting = {"to_party": SELLER, "action": ["collected", "both"]}
    return [
        *(streamed(model, home) for model in ("stream", "sync")),
        {"id": "box", "match": waiting, "to": {"channel": {"authorization": USER}}},
        rule("home", SELLER, home),
        rule("over", BUYER, near),
        {"id": "relay", "match": {"mpc": RELAYED}, "to": {"relay": near}},
    ]


def _pulls(buyer: str) -> list[Any]:
    return [
        {"mpc": mpc, "address": buyer, "authorization": HUB, "interval": "PT1S"}
        for mpc in (OFFERED, BOTH)
    ]


def _pmode(node: Served, pattern: str, taps: dict[str, Tap]) -> dict[str, Any]:
    """The signed and encrypted P-Mode of the pair: each end knows nothing but its hub."""
    pmode: dict[str, Any] = yaml.safe_load(
        (node.folder / "pmodes/buyer-to-seller-order.yaml").read_text()
    )
    [leg] = pmode["legs"]
    sends = node.name == "buyer"
    back = taps["near" if sends else "far"].url
    pmode["id"] = pattern
    leg["protocol"] |= {"address": taps["near"].url, "add_actor_or_role_attribute": True}
    leg["business_info"]["action"] = pattern
    leg["reception_awareness"]["retry"]["parameters"] = deepcopy(SOON) | {"timeout": "PT5S"}
    if pattern != "sync":
        leg["security"]["send_receipt"] |= {"reply_pattern": "callback", "reply_to": back}
        leg["error_handling"]["report"] = {"as_response": False, "receiver_errors_to": back}
    offered = {"fetched": OFFERED, "relayed": RELAYED, "both": BOTH}.get(pattern)
    if offered is not None:
        leg["business_info"]["mpc"] = offered
    pulled = pattern in (
        ("fetched", "both", "relayed") if sends else ("collected", "both", "relayed")
    )
    if pulled:
        user = USER if not sends or pattern == "relayed" else HUB
        puller = pmode["responder"] | {"authorization": user}
        pmode |= {"mep_binding": "pull", "initiator": puller, "responder": pmode["initiator"]}
        leg["protocol"]["address"] = taps["far"].url
        leg["pulling"] = {"interval": "PT1S", "longest": "PT1S"}
    return pmode
