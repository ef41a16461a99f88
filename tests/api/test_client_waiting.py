"""The Python clients about messages that wait or were given up, and about partners."""

from typing import Any

import pytest

from postroad.api.client import ApiError
from tests.api.conftest import Connect, Serve
from tests.api.site import LostReplies, Site
from tests.api.world import World


def posts(scope: Any) -> bool:
    return bool(scope["method"] == "POST")


def test_doubt_is_told_and_ended(either: Any, site: Site, world: World) -> None:
    sent = either.send(pmode="buyer-to-seller-order", message_id="d/1@x")
    site.run(world.doubt("d/1@x"))
    doubtful = either.wait("d/1@x", 0)
    assert (doubtful.state, doubtful.severity, doubtful.settled) == ("in_doubt", "Warning", True)
    assert (doubtful.tries, doubtful.unanswered) == (2, 1)
    assert doubtful.first_sent_at < doubtful.last_sent_at
    settled = either.settle("d/1@x", "delivered", "urn:example:seller")
    assert (settled.state, settled.detail) == ("settled", "delivered")
    assert either.events("d/1@x")[-1].peer == "urn:example:seller"
    assert either.settle(sent.message_id, "received").detail == "received"
    assert either.events("d/1@x")[-1].peer == "operator"
    with pytest.raises(ApiError, match=r"422: body\.answer"):
        either.settle("d/1@x", "perhaps")
    with pytest.raises(ApiError, match="404: "):
        either.settle("nobody@x", "delivered")


def test_a_suspended_message_is_still_on_its_way(either: Any, site: Site, service: Any) -> None:
    sent = either.send(pmode="buyer-to-seller-order")
    site.run(service.change(service.outgoing(sent.message_id), state="suspended"))
    assert not either.wait(sent.message_id, 0).settled
    assert either.resume("seller") == 1


def test_all_notices_are_shown_until_they_are_known(either: Any, site: Site, world: World) -> None:
    names = [either.send(pmode="buyer-to-seller-order").message_id for _ in range(5)]
    for name in names:
        site.run(world.fail(name))
    notices = list(either.notices(limit=2))
    assert [one.message_id for one in notices] == names
    assert {(one.event, one.state, one.severity) for one in notices} == {
        ("failed", "failed", "Error")
    }
    assert notices[0].at.tzinfo is not None
    assert [one.id for one in either.notices(cursor=str(notices[2].id))] == [
        one.id for one in notices[3:]
    ]
    assert either.ack_notice(notices[0].id) is None
    with pytest.raises(ApiError, match="404: "):
        either.ack_notice(notices[0].id)
    assert [one.message_id for one in either.notices()] == names[1:]


def test_partners_are_suspended_and_resumed(either: Any, site: Site, world: World) -> None:
    assert either.partners() == ()
    suspended = either.suspend("urn:example:a/b", "maintenance")
    assert (suspended.name, suspended.gate) == ("urn:example:a/b", "suspended")
    assert suspended.detail == "maintenance"
    assert either.suspend("urn:example:a/b") == suspended
    site.run(world.pause("seller"))
    first, second = either.partners()
    assert (first.name, first.gate, first.failures) == ("seller", "paused", 5)
    assert first.until > first.since
    assert second == suspended
    assert either.resume("urn:example:a/b") == 0
    with pytest.raises(ApiError, match="409: "):
        either.resume("urn:example:a/b")
    with pytest.raises(ApiError, match="404: "):
        either.suspend("nobody")


@pytest.mark.parametrize("call", ["resume", "ack_notice"])
def test_what_would_fail_when_done_twice_is_not_repeated(
    connect: Connect, site: Site, serve: Serve, world: World, call: str
) -> None:
    client = connect()
    site.run(world.pause("seller"))
    site.run(world.fail(client.send(pmode="buyer-to-seller-order").message_id))
    given = {"resume": "seller", "ack_notice": next(iter(client.notices())).id}
    losing = LostReplies(serve(), 1, posts)
    site.app = losing
    with pytest.raises(ApiError, match="No answer"):
        getattr(client, call)(given[call])
    assert losing.asked == 1


def test_settling_is_repeated_when_its_reply_is_lost(
    connect: Connect, site: Site, serve: Serve, world: World
) -> None:
    client = connect()
    site.run(world.doubt(client.send(pmode="buyer-to-seller-order", message_id="m@x").message_id))
    losing = LostReplies(serve(), 1, posts)
    site.app = losing
    assert client.settle("m@x", "delivered").detail == "delivered"
    assert losing.asked == 2
