"""A road with hubs: what a station on the way has for rules, and letters that pass it."""

import json
from typing import Any, Final

from tests.node.reliable import BUYER, SELLER, Station, World, address, party

NEAR, FAR = "near", "far"
"""Two hubs: the buyer's and the seller's."""
SOON: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}

PATIENT: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT1H", "period": "PT1H"}


def rule(name: str, to: str | list[str], retry: dict[str, Any] | None = None, **match: Any) -> Any:
    """One rule; `to` are stations."""
    push = [address(one) for one in ([to] if isinstance(to, str) else to)]
    return {"id": name, "match": match, "to": {"push": push, "retry": retry or SOON}}


def hub(world: World, name: str, *rules: Any, **more: Any) -> None:
    """The rules of a hub."""
    folder = world.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "routes.yaml").write_text(json.dumps({"routes": list(rules)} | more))


def by_way_of(world: World, first: str) -> None:
    """The buyer's messages go to a hub first, and their header is for the hubs too."""
    for at in (BUYER, SELLER):
        for pmode in world._pmodes[at]:
            [one] = pmode["legs"]
            one["protocol"]["add_actor_or_role_attribute"] = True
            if at == BUYER:
                one["protocol"]["address"] = address(first)


def road(world: World, *, signed: bool = True, retry: dict[str, Any] = PATIENT) -> None:
    """buyer, near, far, seller; receipts find their own way."""
    world.agree(receipt="callback", signed=signed, retry=retry)
    by_way_of(world, NEAR)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", FAR, **there), rule("home", BUYER, **back))
    hub(world, FAR, rule("home", SELLER, **there), rule("over", NEAR, **back))


def there_and_back(world: World, **how: Any) -> None:
    """As `road`, and what the seller says about a message goes to the seller's hub."""
    road(world, **how)
    for pmode in world._pmodes[SELLER]:
        [one] = pmode["legs"]
        one["security"]["send_receipt"]["reply_to"] = address(FAR)


def assert_every_byte_was_passed_on(world: World) -> None:
    """What the buyer sent reached both hubs and the seller, once and unchanged."""
    [first], [second], [third] = (
        [one for one in world.wire.to(name) if one.content_type.startswith("multipart")]
        for name in (NEAR, FAR, SELLER)
    )
    assert (first.body, first.content_type) == (second.body, second.content_type)
    assert (second.body, second.content_type) == (third.body, third.content_type)


def streamed(name: str, to: str | list[str], forward: str = "sync", **match: Any) -> Any:
    """A rule by which messages are passed on while they come."""
    made = rule(name, to, **match)
    return {**made, "to": {"push": made["to"]["push"], "forward": forward}}


async def hubs(world: World) -> tuple[Station, Station, Station, Station]:
    """All four stations, started."""
    buyer, seller = await world.both()
    return buyer, await world.start(NEAR), await world.start(FAR), seller
