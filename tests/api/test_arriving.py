"""Messages that come in fragments: how far each is, by REST and client."""

from datetime import UTC, datetime, timedelta

import httpx

from postroad.node.service import Arriving
from tests.api.conftest import Connect
from tests.api.world import MemoryWorld

BEGAN = datetime(2026, 5, 19, 10, tzinfo=UTC)
COMING = Arriving(
    "group-1", "seller", "orders", "c-1", 9, 3, None, 3000, BEGAN, BEGAN + timedelta(1), "192.0.2.1"
)


def test_what_is_coming_in_is_listed(http: httpx.Client, world: MemoryWorld) -> None:
    assert http.get("/api/v1/inbox/fragments").json() == {"arriving": []}
    world.service.coming = [COMING, COMING]
    [one] = http.get("/api/v1/inbox/fragments?limit=1").json()["arriving"]
    assert (one["group_id"], one["arrived"], one["fragments"]) == ("group-1", 3, 9)
    assert (one["bytes"], one["arrived_bytes"]) == (None, 3000)
    assert one["began"] == "2026-05-19T10:00:00Z"
    assert http.get("/api/v1/inbox/fragments?limit=0").status_code == 422


def test_a_client_lists_it(connect: Connect, world: MemoryWorld) -> None:
    world.service.coming = [COMING]
    [one] = connect().arriving()
    assert (one.group_id, one.began, one.until) == ("group-1", BEGAN, COMING.until)
