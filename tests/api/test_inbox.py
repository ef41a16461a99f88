"""What was received: payloads as they were sent, and nothing that could harm whoever gets them."""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec import structs

from postroad.api.streaming import attachment, safe_name
from postroad.node.service import Service
from postroad.store.interface import StoreDamaged
from postroad.store.records import Message, State, StoredPart
from postroad.wire.content import Content
from tests.api.conftest import Serve
from tests.api.site import Site
from tests.api.uploads import body, metadata, post
from tests.api.world import Faulty, Given, World

INBOX = "/api/v1/inbox"


def test_a_payload_is_had_as_it_was_sent(http: httpx.Client, site: Site, world: World) -> None:
    data = bytes(range(256)) * 5000
    name = site.run(world.deliver([Given(b"<a/>", file_name="a.xml"), Given(data, "image/png")]))
    message = http.get(f"{INBOX}/{name}").json()
    assert [part["size"] for part in message["parts"]] == [4, len(data)]
    answer = http.get(f"{INBOX}/{name}/parts/2")
    digest = hashlib.sha256(data)
    assert answer.content == data
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Length"] == str(len(data))
    assert answer.headers["ETag"] == f'"{digest.hexdigest()}"'
    encoded = base64.b64encode(digest.digest()).decode()
    assert answer.headers["Repr-Digest"] == f"sha-256=:{encoded}:"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    first = http.get(f"{INBOX}/{name}/parts/1")
    assert first.headers["Content-Disposition"] == 'attachment; filename="a.xml"'


def test_an_empty_payload_is_one(http: httpx.Client, site: Site, world: World) -> None:
    name = site.run(world.deliver([Given(b"")]))
    answer = http.get(f"{INBOX}/{name}/parts/1")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(("number", "status"), [("0", 422), ("2", 404), ("-1", 422), ("x", 422)])
def test_a_payload_that_is_not_there_is_told_as_such(
    http: httpx.Client, site: Site, world: World, number: str, status: int
) -> None:
    name = site.run(world.deliver([Given(b"1")]))
    assert http.get(f"{INBOX}/{name}/parts/{number}").status_code == status


def test_what_was_sent_is_not_in_the_inbox(http: httpx.Client) -> None:
    post(http, body(metadata(message_id="m-1@x")))
    assert http.get(f"{INBOX}/m-1@x").status_code == 404
    assert http.get(f"{INBOX}/m-1@x/parts/1").status_code == 404
    assert http.post(f"{INBOX}/m-1@x/ack").status_code == 404


@pytest.mark.parametrize("state", [State.RECEIVED, State.REJECTED])
def test_what_was_not_delivered_is_not_in_the_inbox(
    http: httpx.Client, site: Site, world: World, serve: Serve, service: Service, state: State
) -> None:
    name = site.run(world.deliver([Given(b"1")]))

    async def message(*asked: Any) -> Message | None:
        found = await service.message(*asked)
        return found and structs.replace(found, state=state)

    serve(Faulty(service, message=message))
    assert http.get(f"{INBOX}/{name}").status_code == 404
    assert http.get(f"{INBOX}/{name}/parts/1").status_code == 404


def test_acknowledging_again_is_no_error(http: httpx.Client, site: Site, world: World) -> None:
    name = site.run(world.deliver([Given(b"1")]))
    for _ in range(2):
        answer = http.post(f"{INBOX}/{name}/ack")
        assert (answer.status_code, answer.json()["state"]) == (200, "consumed")
    assert http.get(f"{INBOX}/{name}/parts/1").content == b"1"


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("order.xml", "order.xml"),
        ("../../x", "x"),
        ("..\\..\\x.exe", "x.exe"),
        ("/etc/passwd", "passwd"),
        ('a"; filename="b.html', "a__ filename=_b.html"),
        ("a\r\nSet-Cookie: x=1", "aSet-Cookie_ x=1"),
        ("..", "file"),
        ("", "file"),
        (".htaccess", "htaccess"),
        ("con.txt", "file_con.txt"),
        ("übergröße.xml", "übergröße.xml"),
        ("a\u202efdp.exe", "afdp.exe"),
        ("100%.txt", "100_.txt"),
        ("x" * 500 + ".xml", "x" * 196 + ".xml"),
    ],
)
def test_a_file_name_from_a_stranger_is_made_safe(given: str, safe: str) -> None:
    assert safe_name(given) == safe
    header = attachment(given)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


def test_a_file_name_that_is_not_ascii_is_told_both_ways() -> None:
    assert attachment("ü.xml") == "attachment; filename=\"_.xml\"; filename*=UTF-8''%C3%BC.xml"


@pytest.mark.parametrize("kind", ["text/html\r\nX-Evil: 1", "no media type", ""])
def test_a_media_type_that_is_none_is_not_repeated(
    http: httpx.Client, site: Site, world: World, kind: str
) -> None:
    name = site.run(world.deliver([Given(b"1", media_type=kind)]))
    answer = http.get(f"{INBOX}/{name}/parts/1")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert "X-Evil" not in answer.headers


class _Breaking:
    """Content that turns out damaged after some pieces."""

    size = 300_000

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self._pieces):
            yield bytes(100_000)
        raise StoreDamaged("the content is not what was written")


def _breaking(service: Service, pieces: int) -> Any:
    def part(message: Message, part: StoredPart) -> Content:
        return _Breaking(pieces)

    return Faulty(service, part=part)


def test_a_payload_that_cannot_be_opened_is_an_error_and_not_an_empty_answer(
    http: httpx.Client, site: Site, world: World, serve: Serve, service: Service
) -> None:
    name = site.run(world.deliver([Given(bytes(300_000))]))
    serve(_breaking(service, 0))
    answer = http.get(f"{INBOX}/{name}/parts/1")
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_payload_that_breaks_off_does_not_look_whole(
    http: httpx.Client, site: Site, world: World, serve: Serve, service: Service
) -> None:
    name = site.run(world.deliver([Given(bytes(300_000))]))
    serve(_breaking(service, 2))
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(f"{INBOX}/{name}/parts/1")


def _cursors(http: httpx.Client) -> dict[str, str]:
    listed = http.get(INBOX, params={"consumed": True}).json()["messages"]
    return {message["message_id"]: message["cursor"] for message in listed}


def test_a_stretch_of_the_inbox_is_listed_by_its_cursors(
    http: httpx.Client, site: Site, world: World
) -> None:
    names = [site.run(world.deliver([Given(b"1")])) for _ in range(4)]
    at = _cursors(http)
    stretch = {"cursor": at[names[0]], "through": at[names[2]]}
    listed = http.get(INBOX, params=stretch).json()["messages"]
    assert [message["message_id"] for message in listed] == names[1:3]


def test_a_stretch_of_the_inbox_is_acknowledged_at_once(
    http: httpx.Client, site: Site, world: World
) -> None:
    names = [site.run(world.deliver([Given(b"1")])) for _ in range(4)]
    at = _cursors(http)
    stretch = {"cursor": at[names[0]], "through": at[names[2]]}
    assert http.post(f"{INBOX}/ack", params=stretch).json() == {"acknowledged": 2}
    assert http.post(f"{INBOX}/ack", params=stretch).json() == {"acknowledged": 0}
    left = http.get(INBOX).json()["messages"]
    assert [message["message_id"] for message in left] == [names[0], names[3]]


def test_of_a_stretch_only_what_fits_is_acknowledged(
    http: httpx.Client, site: Site, world: World
) -> None:
    (last,) = [site.run(world.deliver([Given(b"1")]))]
    stretch = {"through": _cursors(http)[last], "pmode": "another"}
    assert http.post(f"{INBOX}/ack", params=stretch).json() == {"acknowledged": 0}


def test_nothing_is_acknowledged_without_an_end(http: httpx.Client) -> None:
    answer = http.post(f"{INBOX}/ack")
    assert answer.status_code == 422
    assert "through" in answer.text


def test_the_extent_of_the_inbox_is_told(http: httpx.Client, site: Site, world: World) -> None:
    empty = http.get(f"{INBOX}/extent").json()
    assert empty == {"node": world.service.name, "epoch": 1, "last": "0", "purged": "0"}
    name = site.run(world.deliver([Given(b"1")]))
    last = _cursors(http)[name]
    assert http.get(f"{INBOX}/extent").json() == empty | {"last": last}
    site.run(world.service.purge(0))
    assert http.get(f"{INBOX}/extent").json() == empty | {"last": last, "purged": last}
