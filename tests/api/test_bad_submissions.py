"""Submissions that are refused, and what is said about them."""

import errno
import json
import socket
import threading
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from postroad.api.limits import ApiLimits
from postroad.node.service import Service
from postroad.wire.content import BytesSink
from tests.api.conftest import TOKEN, Serve
from tests.api.site import Site
from tests.api.uploads import BOUNDARY, PATH, body, metadata, part, post
from tests.api.world import Faulty

ORDER = part("order", b"<order/>")


def _refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


def _head(size: int) -> bytes:
    """The head of a submission, for a body of that size."""
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def _empty(http: httpx.Client) -> bool:
    return http.get(PATH).json()["messages"] == []


WRONG_METADATA = {
    "no-pmode": ({"message_id": "m"}, "metadata.pmode"),
    "wrong-kind": ({"pmode": 4711}, "metadata.pmode"),
    "empty": ({"pmode": ""}, "metadata.pmode"),
    "unknown-field": ({"pmode": "buyer-to-seller-order", "adress": "x"}, "metadata.adress"),
    "control-character": (
        {"pmode": "buyer-to-seller-order", "message_id": "a\r\nb"},
        "metadata.message_id",
    ),
    "nul": ({"pmode": "buyer-to-seller-order", "properties": {"a": "\0"}}, "metadata.properties.a"),
    "number-as-property": (
        {"pmode": "buyer-to-seller-order", "properties": {"a": 1}},
        "metadata.properties.a",
    ),
    "property-without-value": (
        {"pmode": "buyer-to-seller-order", "properties": [{"name": "a"}]},
        "metadata.properties[0].value",
    ),
    "properties-as-text": (
        {"pmode": "buyer-to-seller-order", "properties": "a=b"},
        "metadata.properties",
    ),
    "huge-property": (
        {"pmode": "buyer-to-seller-order", "properties": {"a": "x" * 100_000}},
        "metadata.properties.a",
    ),
    "many-properties": (
        {"pmode": "buyer-to-seller-order", "properties": {f"p{n}": "" for n in range(1000)}},
        "metadata.properties",
    ),
    "long-id": (
        {"pmode": "buyer-to-seller-order", "message_id": "x" * 2000},
        "metadata.message_id",
    ),
    "text-for-truth": ({"pmode": "buyer-to-seller-order", "test": "yes"}, "metadata.test"),
    "media-type": (
        {"pmode": "buyer-to-seller-order", "payloads": [{"part": "order", "media_type": "xml"}]},
        "metadata.payloads[0].media_type",
    ),
    "folder-in-file-name": (
        {"pmode": "buyer-to-seller-order", "payloads": [{"part": "order", "file_name": "../../x"}]},
        "metadata.payloads[0].file_name",
    ),
    "missing-part": (
        {"pmode": "buyer-to-seller-order", "payloads": [{"part": "order"}, {"part": "invoice"}]},
        "metadata.payloads[1].part",
    ),
    "described-twice": (
        {"pmode": "buyer-to-seller-order", "payloads": [{"part": "order"}, {"part": "order"}]},
        "metadata.payloads[1].part",
    ),
    "no-object": ([], "metadata"),
}


@pytest.mark.parametrize(("told", "path"), WRONG_METADATA.values(), ids=WRONG_METADATA.keys())
def test_a_wrong_field_is_told_with_its_path(http: httpx.Client, told: Any, path: str) -> None:
    answer = post(http, body(part("metadata", json.dumps(told).encode()), ORDER))
    problem = _refused(answer, 422)
    assert path in [error["path"] for error in problem["errors"]]
    assert problem["detail"].startswith(path)
    assert len(answer.content) < 2000
    assert _empty(http)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'{"pmode": "a', b"[" * 5000], ids=lambda data: str(data[:8])
)
def test_metadata_that_are_no_json_are_told_as_such(http: httpx.Client, data: bytes) -> None:
    problem = _refused(post(http, body(part("metadata", data), ORDER)), 422)
    assert "JSON" in problem["detail"]


def test_metadata_must_be_there(http: httpx.Client) -> None:
    for sent in (body(ORDER), body()):
        problem = _refused(post(http, sent), 422)
        assert problem["errors"][0]["path"] == "metadata"
    assert _empty(http)


def test_metadata_must_come_first(http: httpx.Client) -> None:
    problem = _refused(post(http, body(ORDER, metadata())), 422)
    assert "before all payloads" in problem["detail"]
    assert _empty(http)


def test_metadata_must_come_once(http: httpx.Client) -> None:
    _refused(post(http, body(metadata(), ORDER, metadata())), 422)
    assert _empty(http)


@pytest.mark.parametrize(
    "kind",
    ["application/json", "text/plain", "multipart/related; boundary=x", ""],
    ids=["json", "text", "related", "none"],
)
def test_another_kind_of_body_is_not_taken(http: httpx.Client, kind: str) -> None:
    answer = http.post(PATH, content=b"{}", headers={"Content-Type": kind})
    assert "multipart/form-data" in _refused(answer, 415)["detail"]


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=" + "x" * 300])
def test_a_boundary_is_needed(http: httpx.Client, boundary: str) -> None:
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    _refused(http.post(PATH, content=body(metadata()), headers=headers), 400)


def test_a_compressed_body_is_not_taken(http: httpx.Client) -> None:
    _refused(post(http, body(metadata()), **{"Content-Encoding": "gzip"}), 415)


def test_an_encoded_part_is_not_taken_as_it_stands(http: httpx.Client) -> None:
    encoded = part("order", b"PG9yZGVyLz4=", "Content-Transfer-Encoding: base64")
    _refused(post(http, body(metadata(), encoded)), 415)


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage",
        b"--other\r\n",
        f"--{BOUNDARY}\r\nBad Header: x\r\n\r\n".encode(),
        f"--{BOUNDARY}\r\nContent-Type: text/xml\r\n\r\nx\r\n--{BOUNDARY}--".encode(),
        part("order", b"", disposition="attachment"),
    ],
    ids=["garbage", "other-boundary", "bad-header", "no-name", "no-form-data"],
)
def test_a_body_that_cannot_be_read_is_told_as_such(http: httpx.Client, garbage: bytes) -> None:
    _refused(post(http, garbage), 400)


@pytest.mark.parametrize("cut", [1, 6, 30, 60], ids=lambda cut: f"{cut}-bytes-missing")
def test_a_body_that_ends_too_early_is_not_kept(http: httpx.Client, cut: int) -> None:
    sent = body(metadata(), part("order", b"x" * 40))
    problem = _refused(post(http, sent[: -cut - 2]), 400)
    assert "closing boundary" in problem["detail"]
    assert _empty(http)


def test_an_upload_that_breaks_off_leaves_nothing(
    http: httpx.Client, site: Site, serve: Serve, service: Service
) -> None:
    discarded = threading.Event()
    begun = threading.Event()

    class Watched(BytesSink):
        def write(self, data: bytes | memoryview, /) -> None:
            begun.set()
            super().write(data)

        def discard(self) -> None:
            discarded.set()

    serve(Faulty(service, new_sink=Watched))
    sent = body(metadata(), part("order", bytes(3 * 1024 * 1024)))
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        connection.sendall(_head(len(sent)) + sent[:-1000])
        assert begun.wait(10)
    assert discarded.wait(10)
    assert _empty(http)


def test_what_was_uploaded_is_given_up_when_a_later_part_is_wrong(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    discarded = []

    class Watched(BytesSink):
        def discard(self) -> None:
            discarded.append(self)

    serve(Faulty(service, new_sink=Watched))
    _refused(post(http, body(metadata(), ORDER, ORDER, metadata())), 422)
    assert len(discarded) == 2


def test_too_large_a_submission_is_refused_before_it_is_read(site: Site, serve: Serve) -> None:
    serve(limits=ApiLimits(upload_bytes=1000))
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall(_head(1001))
        answer = HTTPResponse(connection)
        answer.begin()
        told = answer.read()
    assert answer.status == 413
    assert b"1000 bytes" in told


def test_too_large_a_submission_is_refused_when_its_size_was_not_told(
    http: httpx.Client, serve: Serve
) -> None:
    serve(limits=ApiLimits(upload_bytes=1000))
    sent = body(metadata(), part("order", bytes(2000)))
    _refused(post(http, iter([sent[:500], sent[500:]])), 413)
    assert _empty(http)


def test_a_submission_as_large_as_allowed_is_taken(http: httpx.Client, serve: Serve) -> None:
    sent = body(metadata(), part("order", bytes(2000)))
    serve(limits=ApiLimits(upload_bytes=len(sent)))
    assert post(http, sent).status_code == 202


def test_too_many_parts_are_refused(http: httpx.Client, serve: Serve) -> None:
    serve(limits=ApiLimits(parts=3))
    assert post(http, body(metadata(), *[ORDER] * 3)).status_code == 202
    assert "3 payloads" in _refused(post(http, body(metadata(), *[ORDER] * 4)), 413)["detail"]


def test_too_large_metadata_are_refused(http: httpx.Client) -> None:
    told = metadata(properties={"a": "x" * 1024 * 1024})
    assert "metadata" in _refused(post(http, body(told)), 413)["detail"]


@pytest.mark.parametrize(
    "headers",
    [["X: " + "x" * 10_000], [f"X-{n}: x" for n in range(100)]],
    ids=["long", "many"],
)
def test_too_many_or_too_long_headers_of_a_part_are_refused(
    http: httpx.Client, headers: list[str]
) -> None:
    _refused(post(http, body(metadata(), part("order", b"", *headers))), 413)


def test_an_upload_that_hangs_is_given_up(http: httpx.Client, site: Site, serve: Serve) -> None:
    serve(limits=ApiLimits(idle_seconds=0.05))
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall(_head(1000) + body(metadata())[:20])
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_full_disk_is_told_as_not_now(http: httpx.Client, serve: Serve, service: Service) -> None:
    class Full(BytesSink):
        def write(self, data: bytes | memoryview, /) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    serve(Faulty(service, new_sink=Full))
    answer = post(http, body(metadata(), ORDER))
    assert "disk" in _refused(answer, 503)["detail"]
    assert int(answer.headers["Retry-After"]) > 0


def test_a_pmode_that_is_not_there_is_told(http: httpx.Client) -> None:
    answer = post(http, body(metadata(pmode="unknown"), ORDER))
    assert answer.status_code in (404, 422)
    assert "unknown" in _refused(answer, answer.status_code)["detail"]
    assert _empty(http)
