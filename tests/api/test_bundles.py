"""Bundles over REST and by the clients."""

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from postroad.api.client import ApiError, Payload, Unit
from tests.api.test_real_node import API, asked
from tests.node.bundled import UPDATES, bundling, units
from tests.node.reliable import SELLER, World, played

PATH: Final = f"{API}/bundles"
ORDERS: Final = "buyer-to-seller-order"


def files(told: Any, **parts: bytes) -> Any:
    return [
        ("metadata", (None, json.dumps(told), "application/json")),
        *((name, (f"{name}.xml", data, "application/xml")) for name, data in parts.items()),
    ]


def told(*messages: tuple[str, str], pmode: str = UPDATES) -> dict[str, Any]:
    """Messages by id and part."""
    return {
        "messages": [
            {"pmode": pmode, "message_id": name, "payloads": [{"part": part}]}
            for name, part in messages
        ]
    }


@pytest.mark.req("P2-3.1.3-04")
@played
async def test_a_bundle_is_submitted_in_one_request(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    given = told(("b@x", "second"), ("a@x", "first"))
    async with asked(buyer) as http:
        taken = await http.post(PATH, files=files(given, first=b"<a/>", second=b"<b/>"))
        assert taken.status_code == 202
        assert [one["message_id"] for one in taken.json()["messages"]] == ["b@x", "a@x"]
        again = await http.post(PATH, files=files(given, first=b"<a/>", second=b"<b/>"))
        assert again.status_code == 200
        assert [one["repeated"] for one in again.json()["messages"]] == [True, True]
        await world.until(1)
        [posted] = world.wire.to(SELLER)
        assert units(posted) == ["b@x", "a@x"]
        message = (await http.get(f"{API}/messages/a@x")).json()
        assert (message["state"], message["parts"][0]["file_name"]) == ("acknowledged", "first.xml")
    assert await seller.inbox() == ["b@x", "a@x"]


@pytest.mark.req("P2-3.4-01")
@played
async def test_a_bundle_that_is_not_allowed_is_refused_with_the_code(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(max_size="1 KiB"))
    buyer, _ = await world.both()
    async with asked(buyer) as http:
        refused = await http.post(
            PATH, files=files(told(("a@x", "a"), ("b@x", "b")), a=b"1", b=b"2")
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "EBMS:0030")
        assert (await http.get(f"{API}/messages/a@x")).status_code == 404


@pytest.mark.parametrize(
    ("given", "parts", "path"),
    [
        (told(("a@x", "a"), ("b@x", "c")), {"a": b"1"}, "metadata.messages[1].payloads[0].part"),
        (told(("a@x", "a")), {"a": b"1", "c": b"2"}, "metadata.messages"),
        ({"messages": []}, {}, "metadata.messages"),
        ({"messages": [{"pmode": 1}]}, {}, "metadata.messages[0].pmode"),
        ({"pmode": ORDERS}, {}, "metadata.messages"),
    ],
    ids=["a part is missing", "a part is left over", "no messages", "no text", "no bundle"],
)
def test_what_is_wrong_with_a_bundle_is_told_by_its_path(
    http: httpx.Client, given: Any, parts: dict[str, bytes], path: str
) -> None:
    refused = http.post(PATH, files=files(given, **parts))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["path"] == path
    assert http.get(f"{API}/messages").json()["messages"] == []


def test_a_client_submits_a_bundle(either: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.xml"
    path.write_bytes(b"<b/>")
    given = [Unit(ORDERS, [Payload(b"1", "text/plain")], "a@x"), Unit(ORDERS, [path])]
    first, second = either.send_bundle(given)
    assert (first.message_id, first.message.parts[0].media_type) == ("a@x", "text/plain")
    assert second.message.parts[0].file_name == "b.xml"


def test_a_client_is_told_why_a_bundle_is_not_taken(either: Any) -> None:
    with pytest.raises(ApiError) as refused:
        either.send_bundle([Unit("nobody")])
    assert refused.value.status == 422
