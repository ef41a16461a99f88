"""Lists of messages: what they show, in which order, page by page."""

from datetime import timedelta

import httpx
import pytest

from postroad.node.service import Service
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Given, World

INBOX = "/api/v1/inbox"


def _ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [message["message_id"] for message in answer.json()["messages"]]


@pytest.fixture
def five(http: httpx.Client) -> list[str]:
    names = [f"m-{number}@x" for number in range(5)]
    for name in names:
        told = metadata(message_id=name, conversation_id=f"c-{name}", action=f"do-{name}")
        assert post(http, body(told)).status_code == 202
    return names


def test_newest_come_first_unless_asked_otherwise(http: httpx.Client, five: list[str]) -> None:
    assert _ids(http.get(PATH)) == five[::-1]
    assert _ids(http.get(PATH, params={"order": "oldest"})) == five


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_pages_show_each_message_once(
    http: httpx.Client, five: list[str], order: str, limit: int
) -> None:
    seen: list[str] = []
    pages = 0
    query: dict[str, str | int] = {"order": order, "limit": limit}
    while True:
        answer = http.get(PATH, params=query)
        pages += 1
        assert len(_ids(answer)) <= limit
        seen += _ids(answer)
        if answer.json()["next"] is None:
            break
        query["cursor"] = answer.json()["next"]
    assert seen == (five if order == "oldest" else five[::-1])
    assert pages == -(-5 // limit)


@pytest.mark.parametrize("limit", [2, 5])
def test_the_total_is_that_of_all_pages(http: httpx.Client, five: list[str], limit: int) -> None:
    query: dict[str, str | int] = {"limit": limit, "total": "true"}
    first = http.get(PATH, params=query).json()
    assert first["total"] == {"count": 5, "more": False}
    query["cursor"] = first["messages"][-1]["cursor"]
    assert http.get(PATH, params=query).json()["total"] == {"count": 5, "more": False}
    some = http.get(PATH, params={"total": "true", "action": f"do-{five[1]}"})
    assert some.json()["total"] == {"count": 1, "more": False}
    assert http.get(PATH).json()["total"] is None


def test_one_can_go_on_after_any_message(http: httpx.Client, five: list[str]) -> None:
    third = http.get(f"{PATH}/{five[2]}").json()["cursor"]
    assert _ids(http.get(PATH, params={"order": "oldest", "cursor": third})) == five[3:]


def test_a_list_is_filtered(http: httpx.Client, site: Site, world: World, five: list[str]) -> None:
    site.run(world.fail(five[0]))
    site.run(world.acknowledge(five[1]))
    received = site.run(world.deliver([Given(b"1")]))
    expected: list[tuple[str, list[str]]] = [
        ("side=receiving", [received]),
        ("side=sending&order=oldest", five),
        ("state=failed", [five[0]]),
        ("state=failed&state=acknowledged&order=oldest", five[:2]),
        ("state=failed,acknowledged&order=oldest", five[:2]),
        (f"conversation_id=c-{five[3]}", [five[3]]),
        (f"action=do-{five[4]}", [five[4]]),
        ("pmode=buyer-to-seller-order&side=receiving", [received]),
        ("pmode=other", []),
        ("service=other", []),
        ("from=buyer&order=oldest", five),
        ("to=buyer", [received]),
        ("partner=seller&order=oldest", [*five, received]),
        ("partner=seller&side=receiving", [received]),
        ("partner=seller&state=failed,acknowledged", [five[1], five[0]]),
        ("partner=buyer", []),
        ("error_code=EBMS:9999", []),
    ]
    code = http.get(f"{PATH}/{five[0]}").json()["error_code"]
    expected += [
        (f"error_code={code}&state=failed", [five[0]]),
        (f"error_code={code}&partner=seller", [five[0]]),
        (f"error_code={code}&partner=other", []),
    ]
    for query, ids in expected:
        assert _ids(http.get(f"{PATH}?{query}")) == ids, query


def test_a_list_is_bounded_in_time(
    http: httpx.Client, site: Site, service: Service, five: list[str]
) -> None:
    third = site.run(service.message(five[2]))
    assert third
    at = third.created_at
    assert five[2] in _ids(http.get(PATH, params={"since": at.isoformat()}))
    assert five[2] not in _ids(http.get(PATH, params={"until": at.isoformat()}))
    later = at + timedelta(hours=1)
    without_zone = later.replace(tzinfo=None).isoformat()
    assert _ids(http.get(PATH, params={"since": without_zone})) == []
    assert _ids(http.get(f"{PATH}?since={later.isoformat()}")) == []
    assert _ids(http.get(f"{PATH}?since=2020-01-01&until=2020-12-31")) == []


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "query.limit"),
        ("limit=1001", "query.limit"),
        ("limit=many", "query.limit"),
        ("cursor=abc", "query.cursor"),
        ("cursor=-1", "query.cursor"),
        ("cursor=99999999999999999999", "query.cursor"),
        ("state=lost", "query.state[0]"),
        ("side=up", "query.side"),
        ("order=random", "query.order"),
        ("since=yesterday", "query.since"),
        ("stat=failed", "query.stat"),
    ],
)
@pytest.mark.parametrize("list_path", [PATH, INBOX], ids=["messages", "inbox"])
def test_a_wrong_filter_is_refused_and_not_ignored(
    http: httpx.Client, list_path: str, query: str, path: str
) -> None:
    answer = http.get(f"{list_path}?{query}")
    assert answer.status_code == 422
    told = [error["path"] for error in answer.json()["errors"]]
    assert path in told or path.removesuffix("[0]") in told


def test_the_inbox_shows_what_waits_oldest_first(
    http: httpx.Client, site: Site, world: World, five: list[str]
) -> None:
    received = [site.run(world.deliver([Given(b"1")])) for _ in range(3)]
    assert _ids(http.get(INBOX)) == received
    assert _ids(http.get(INBOX, params={"limit": 2})) == received[:2]
    cursor = http.get(INBOX, params={"limit": 2}).json()["next"]
    assert _ids(http.get(INBOX, params={"cursor": cursor})) == received[2:]
    assert http.post(f"{INBOX}/{received[0]}/ack").status_code == 200
    assert _ids(http.get(INBOX)) == received[1:]
    assert _ids(http.get(INBOX, params={"consumed": "true"})) == received
