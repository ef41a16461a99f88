"""Submissions that are as they should be."""

import hashlib
import json
import tracemalloc
from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest

from postroad import Client
from postroad.node.service import Service
from postroad.store.records import Side
from tests.api.conftest import TOKEN, Serve
from tests.api.site import Site
from tests.api.uploads import BOUNDARY, PATH, body, metadata, part, post
from tests.api.world import Faulty

MIB = 1024 * 1024


def _stored(site: Site, service: Service, message_id: str) -> list[bytes]:
    message = site.run(service.message(message_id, Side.SENDING))
    assert message
    return [b"".join(service.part(message, one).chunks()) for one in message.parts]


def test_a_message_is_taken_over(http: httpx.Client, site: Site, service: Service) -> None:
    told = {
        "pmode": "buyer-to-seller-order",
        "message_id": "order-1@buyer.example",
        "conversation_id": "c-1",
        "ref_to_message_id": "offer-1@seller.example",
        "properties": {"originalSender": "C1"},
        "payloads": [
            {
                "part": "order",
                "media_type": "application/xml",
                "content_id": "order@buyer.example",
                "file_name": "order.xml",
                "properties": [{"name": "language", "value": "en", "type": "iso"}],
            }
        ],
    }
    files = [
        ("metadata", (None, json.dumps(told), "application/json")),
        ("order", ("other.bin", b"<order/>", "application/octet-stream")),
    ]
    answer = http.post(PATH, files=files)
    assert answer.status_code == 202
    assert answer.headers["Location"] == "/api/v1/messages/order-1@buyer.example"
    message = answer.json()
    assert message["message_id"] == "order-1@buyer.example"
    assert message["side"] == "sending"
    assert message["repeated"] is False
    assert message["pmode"] == "buyer-to-seller-order"
    assert message["conversation_id"] == "c-1"
    assert message["ref_to_message_id"] == "offer-1@seller.example"
    assert {"name": "originalSender", "value": "C1", "type": None} in message["properties"]
    assert datetime.fromisoformat(message["created_at"]).tzinfo
    [kept] = message["parts"]
    assert kept["number"] == 1
    assert kept["media_type"] == "application/xml"
    assert kept["file_name"] == "order.xml"
    assert kept["content_id"] == "order@buyer.example"
    assert kept["size"] == 8
    assert kept["sha256"] == hashlib.sha256(b"<order/>").hexdigest()
    assert {"name": "language", "value": "en", "type": "iso"} in kept["properties"]
    assert _stored(site, service, "order-1@buyer.example") == [b"<order/>"]
    assert http.get(answer.headers["Location"]).json()["message_id"] == message["message_id"]


def test_a_message_needs_neither_id_nor_payload(http: httpx.Client) -> None:
    answer = post(http, body(metadata()))
    assert answer.status_code == 202
    assert answer.json()["message_id"]
    assert answer.json()["parts"] == []


def test_a_part_that_is_not_described_is_taken_as_it_says(http: httpx.Client) -> None:
    files = [
        ("metadata", (None, b'{"pmode": "buyer-to-seller-order"}')),
        ("a", ("C:\\orders\\ä order.xml", b"1", "application/xml")),
        ("b", (None, b"2")),
    ]
    first, second = http.post(PATH, files=files).json()["parts"]
    assert (first["media_type"], first["file_name"]) == ("application/xml", "ä order.xml")
    assert (second["media_type"], second["file_name"]) == ("application/octet-stream", None)


def test_payloads_stand_as_they_are_described_and_the_others_follow(
    http: httpx.Client, site: Site, service: Service
) -> None:
    told = metadata(
        message_id="m-1@x", payloads=[{"part": "x"}, {"part": "y"}, {"part": "x", "file_name": "2"}]
    )
    uploaded = [
        part(name, data)
        for name, data in zip("zxwxyz", (b"1", b"2", b"3", b"4", b"5", b"6"), strict=True)
    ]
    answer = post(http, body(told, *uploaded))
    assert _stored(site, service, "m-1@x") == [b"2", b"5", b"4", b"1", b"3", b"6"]
    assert [one["file_name"] for one in answer.json()["parts"]] == [None, None, "2", *[None] * 3]


def test_the_same_again_is_answered_as_before(http: httpx.Client, service: Service) -> None:
    sent = body(metadata(message_id="m-1@x"), part("order", b"1"))
    first, second = post(http, sent), post(http, sent)
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json()["repeated"] is True
    assert second.json()["created_at"] == first.json()["created_at"]
    assert len(http.get(PATH).json()["messages"]) == 1


def test_other_content_under_the_same_id_is_a_conflict(http: httpx.Client) -> None:
    post(http, body(metadata(message_id="m-1@x"), part("order", b"1")))
    answer = post(http, body(metadata(message_id="m-1@x"), part("order", b"2")))
    assert answer.status_code == 409
    assert "m-1@x" in answer.json()["detail"]
    assert len(http.get(PATH).json()["messages"]) == 1


@pytest.mark.parametrize("size", [1, 7, 1000], ids=lambda size: f"{size}-bytes")
def test_a_body_may_come_in_pieces_of_any_size(
    http: httpx.Client, site: Site, service: Service, size: int
) -> None:
    payload = f"\r\n--{BOUNDARY[:-1]}\r\n--\r\r\n--{BOUNDARY}x".encode() * 5
    sent = body(metadata(message_id="m-1@x"), part("order", payload), part("empty", b""))

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(sent), size):
            yield sent[at : at + size]

    assert post(http, pieces()).status_code == 202
    assert _stored(site, service, "m-1@x") == [payload, b""]


def test_a_large_payload_is_never_in_memory(client: Client, site: Site, service: Service) -> None:
    """Client and server together, in one process, for 64 MiB."""
    tracemalloc.start()
    try:
        sent = client.send(pmode="buyer-to-seller-order", payloads=[Endless(64 * MIB)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent.message.bytes == 64 * MIB
    assert peak < 12 * MIB
    digest = hashlib.sha256()
    for _ in range(64):
        digest.update(bytes(MIB))
    assert sent.message.parts[0].sha256 == digest.hexdigest()


def test_submissions_do_not_wait_for_one_another(http: httpx.Client, site: Site) -> None:
    """While one upload hangs in the middle, others are taken."""
    sent = body(metadata(message_id="slow@x"), part("order", bytes(3 * MIB)))

    def pieces() -> Iterator[bytes]:
        yield sent[: 2 * MIB]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=site.url, headers=headers, verify=False) as other:
            assert post(other, body(metadata(message_id="quick@x"))).status_code == 202
        yield sent[2 * MIB :]

    assert post(http, pieces()).status_code == 202
    listed = http.get(PATH, params={"order": "oldest"}).json()["messages"]
    assert [one["message_id"] for one in listed] == ["quick@x", "slow@x"]


def test_a_test_message_is_one(http: httpx.Client, serve: Serve, service: Service) -> None:
    seen = []

    async def submit(submission: object) -> object:
        seen.append(submission)
        return await service.submit(submission)  # type: ignore[arg-type]

    serve(Faulty(service, submit=submit))
    post(
        http, body(metadata(test=True, payloads=[{"part": "a", "compress": False}]), part("a", b""))
    )
    [submission] = seen
    assert submission.test is True
    assert submission.payloads[0].compress is False


class Endless:
    """A file of zeros that takes no room."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (self._size if whence == 2 else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        count = min(size, self._size - self._at)
        self._at += count
        return bytes(count)
