"""Replies to messages of the inbox, and waiting for those to one's own requests."""

from typing import Any

import httpx
import pytest

from postroad.store.records import Side
from tests.api.site import Site
from tests.api.uploads import BOUNDARY, body, part
from tests.api.world import Given, World

INBOX = "/api/v1/inbox"


def answer(http: httpx.Client, name: str, content: bytes) -> httpx.Response:
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return http.post(f"{INBOX}/{name}/reply", content=content, headers=kind)


def test_a_reply_needs_no_pmode_and_refers_to_its_message(
    http: httpx.Client, site: Site, world: World
) -> None:
    name = site.run(world.deliver([Given(b"<ask/>")]))
    given = body(part("metadata", b'{"message_id": "r-1@b"}'), part("price", b"12"))
    taken = answer(http, name, given)
    assert taken.status_code == 202
    shown = taken.json()
    assert (shown["message_id"], shown["ref_to_message_id"]) == ("r-1@b", name)
    assert shown["parts"][0]["size"] == 2
    assert answer(http, name, given).status_code == 200
    assert http.get(f"{INBOX}/{name}").json()["reply_message_id"] == "r-1@b"


def test_what_is_not_in_the_inbox_cannot_be_answered(http: httpx.Client) -> None:
    refused = answer(http, "nothing@b", body(part("metadata", b"{}")))
    assert (refused.status_code, refused.json()["status"]) == (404, 404)


@pytest.mark.parametrize("given", [b'{"pmode": 7}', b'{"answers": "x"}', b"[]"])
def test_what_is_no_reply_is_told_by_field(
    http: httpx.Client, site: Site, world: World, given: bytes
) -> None:
    name = site.run(world.deliver([Given(b"<ask/>")]))
    assert answer(http, name, body(part("metadata", given))).status_code == 422


def test_either_client_replies_and_waits_for_replies(either: Any, site: Site, world: World) -> None:
    asked = either.send(pmode=world.pmode, payloads=[b"?"])
    assert either.wait_reply(asked.message_id, 0.0) is None
    name = site.run(world.deliver([Given(b"<ask/>")], "ask-1@seller"))
    sent = either.reply(name, payloads=[b"12"], reply_id="r-1@b", pmode=world.pmode)
    assert (sent.message_id, sent.message.ref_to_message_id) == ("r-1@b", name)
    service: Any = world.service
    request = site.run(service.message(asked.message_id, Side.SENDING))
    site.run(service.change(request, reply_message_id=name))
    found = either.wait_reply(asked.message_id, 5.0)
    assert found is not None
    assert found.message_id == name


def test_a_reply_that_cannot_come_is_not_waited_for(either: Any, site: Site, world: World) -> None:
    asked = either.send(pmode=world.pmode, payloads=[b"?"])
    site.run(world.fail(asked.message_id))
    assert either.wait_reply(asked.message_id, 600.0) is None
