"""What the application is told about messages that it sent, until it says that it knows."""

from typing import Any

import httpx
import pytest

from tests.api.site import Site
from tests.api.uploads import body, metadata, post
from tests.api.world import Given, World

INBOX = "/api/v1/inbox"
NOTICES = "/api/v1/inbox/notices"


def _sent(http: httpx.Client, name: str) -> str:
    assert post(http, body(metadata(message_id=name))).status_code == 202
    return name


def _told(http: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = http.get(NOTICES, params=query)
    assert answer.status_code == 200, answer.text
    notices: list[dict[str, Any]] = answer.json()["notices"]
    return notices


@pytest.fixture
def three(http: httpx.Client, site: Site, world: World) -> list[str]:
    names = [_sent(http, f"m-{number}@x") for number in range(3)]
    for name in names:
        site.run(world.fail(name))
    return names


def test_which_kind_of_failure_it_is_is_told(http: httpx.Client, site: Site, world: World) -> None:
    assert _told(http) == []
    site.run(world.doubt(_sent(http, "doubtful@x")))
    site.run(world.fail(_sent(http, "failed@x")))
    doubtful, failed = _told(http)
    assert (doubtful["message_id"], doubtful["event"]) == ("doubtful@x", "in_doubt")
    assert (doubtful["state"], doubtful["severity"]) == ("in_doubt", "Warning")
    assert doubtful["error_code"] == "EBMS:0301"
    assert doubtful["detail"] == "no receipt came"
    assert (failed["state"], failed["severity"]) == ("failed", "Error")
    assert doubtful["id"] < failed["id"]
    assert doubtful["at"] <= failed["at"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_show_each_notice_once(http: httpx.Client, three: list[str], limit: int) -> None:
    seen: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = http.get(NOTICES, params=query).json()
        assert 1 <= len(page["notices"]) <= limit
        seen += [one["message_id"] for one in page["notices"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == three


def test_what_is_acknowledged_is_told_no_more(http: httpx.Client, three: list[str]) -> None:
    first = _told(http)[0]["id"]
    answer = http.post(f"{NOTICES}/{first}/ack")
    assert (answer.status_code, answer.content) == (204, b"")
    assert [one["message_id"] for one in _told(http)] == three[1:]


def test_a_notice_that_is_gone_is_told_as_such(http: httpx.Client, three: list[str]) -> None:
    first = _told(http)[0]["id"]
    http.post(f"{NOTICES}/{first}/ack")
    answer = http.post(f"{NOTICES}/{first}/ack")
    assert answer.status_code == 404
    assert str(first) in answer.json()["detail"]
    assert len(_told(http)) == 2


@pytest.mark.parametrize("id", ["0", "-1", "x", "1.5", "9223372036854775808", "%31%00"])
def test_what_is_no_number_of_a_notice_is_refused(
    http: httpx.Client, three: list[str], id: str
) -> None:
    assert http.post(f"{NOTICES}/{id}/ack").status_code == 422
    assert len(_told(http)) == 3


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "cursor=x", "cursor=-1", "state=failed"]
)
def test_a_wrong_question_is_refused(http: httpx.Client, query: str) -> None:
    answer = http.get(f"{NOTICES}?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith("query.")


def test_a_message_may_be_called_notices(http: httpx.Client, site: Site, world: World) -> None:
    """Its id is a word of ours: with an encoded letter it is an id."""
    site.run(world.deliver([Given(b"content")], "notices"))
    assert http.get(f"{INBOX}/%6Eotices").json()["message_id"] == "notices"
    assert http.get(f"{INBOX}/%6Eotices/parts/1").content == b"content"
    assert http.get(f"{INBOX}/notices").json() == {"notices": [], "next": None}
    assert http.post(f"{INBOX}/%6Eotices/ack").json()["state"] == "consumed"


def test_notices_and_messages_with_the_same_number_are_different_things(
    http: httpx.Client, site: Site, world: World, three: list[str]
) -> None:
    number = str(_told(http)[0]["id"])
    site.run(world.deliver([Given(b"content")], number))
    assert http.post(f"{INBOX}/{number}/ack").json()["state"] == "consumed"
    assert len(_told(http)) == 3
