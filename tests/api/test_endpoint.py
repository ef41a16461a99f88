"""The protocol endpoint: what HTTP it takes, and how it says no."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from postroad.api.endpoint import msh_app
from postroad.node.base.requests import Request, Response, Upload
from postroad.node.settings.config import Config
from postroad.store.interface import StoreFull
from postroad.transport.http_body import TooLarge
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.restart import ContentRange
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse

LIMIT = 1000
CONFIG = Config.model_validate(
    {
        "node": "n1",
        "party": "urn:example:n1",
        "limits": {"message_bytes": f"{LIMIT} B", "part_bytes": "1000 B"},
    }
)


@dataclass
class Node:
    """Reads the body and answers; or does what a test says."""

    answer: Callable[[Request], Coroutine[Any, Any, Response]] | None = None
    config: Config = CONFIG
    requests: list[Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    notes: list[tuple[str, str | None]] = field(default_factory=list)

    async def note(self, code: str, detail: str, peer: str | None) -> None:
        assert detail
        self.notes.append((code, peer))

    async def receive(self, request: Request) -> Response:
        self.requests.append(request)
        if self.answer is not None:
            return await self.answer(request)
        try:
            self.bodies.append(b"".join([piece async for piece in request.body]))
        except TooLarge:
            return Response(413, "text/plain", b"too large")
        return Response(200, "application/soap+xml", b"<receipt/>")


@dataclass
class Call:
    """One request to the application, and what came of it."""

    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = (b"<order/>",)
    breaks_off: bool = False
    address: str | None = None
    read: int = 0
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def of(self, app: Any) -> "Call":
        scope = {
            "type": "http",
            "method": self.method,
            "path": "/msh",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
            "client": ("127.0.0.9", 4711),
            "extensions": {"connection": {"address": self.address}},
        }
        await app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        if self.read >= len(self.pieces):
            return {"type": "http.disconnect"}
        self.read += 1
        more = self.breaks_off or self.read < len(self.pieces)
        return {"type": "http.request", "body": self.pieces[self.read - 1], "more_body": more}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.answered = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]


def call(app: Any, **request: Any) -> Call:
    return asyncio.run(Call(**request).of(app))


def test_a_message_is_handed_to_the_node_and_its_answer_is_written_out() -> None:
    node = Node()
    done = call(msh_app(node), headers={"content-type": "text/xml"}, pieces=(b"<a>", b"</a>"))
    [request] = node.requests
    assert (request.content_type, request.peer) == ("text/xml", "127.0.0.9")
    assert node.bodies == [b"<a></a>"]
    assert (done.status, done.body) == (200, b"<receipt/>")
    assert done.answered == {"content-length": "10", "content-type": "application/soap+xml"}


def test_a_body_may_come_without_a_type() -> None:
    node = Node()
    call(msh_app(node))
    assert node.requests[0].content_type is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_only_post_is_known(method: str) -> None:
    node = Node()
    done = call(msh_app(node), method=method)
    assert (done.status, done.answered["allow"]) == (405, "POST")
    assert done.body == b"Messages are sent here with POST.\n"
    assert (node.requests, done.read) == ([], 0)


def test_who_asks_about_an_upload_is_told_how_much_is_there() -> None:
    async def there(request: Request) -> Response:
        return Response(200, length=4711)

    node = Node(there)
    done = call(msh_app(node), method="HEAD", headers={"etag": '"t1"'})
    assert (done.status, done.answered, done.body) == (200, {"content-length": "4711"}, b"")
    assert node.requests[0].upload == Upload("/msh", "t1", probe=True)


def test_where_uploads_do_not_go_on_only_post_is_known() -> None:
    async def unknown(request: Request) -> Response:
        return Response(405)

    done = call(msh_app(Node(unknown)), method="HEAD", headers={"etag": '"t1"'})
    assert (done.status, done.answered["allow"]) == (405, "POST")


def test_a_node_that_cannot_look_says_so_to_who_asks() -> None:
    async def full(request: Request) -> Response:
        raise StoreFull("no room")

    assert call(msh_app(Node(full)), method="HEAD", headers={"etag": '"t1"'}).status == 503


def test_an_upload_is_named_by_its_etag_and_its_range() -> None:
    node = Node()
    headers = {"etag": '"t1"', "content-range": "bytes 5-12/13"}
    call(msh_app(node), headers=headers)
    assert node.requests[0].upload == Upload("/msh", "t1", ContentRange(5, 12, 13))


@pytest.mark.parametrize(
    "headers",
    [{"content-range": "bytes 5-12/13"}, {"etag": '"t1"', "content-range": "the last five"}],
)
def test_a_range_of_nothing_or_nonsense_is_refused_unread(headers: dict[str, str]) -> None:
    node = Node()
    done = call(msh_app(node), headers=headers)
    assert (done.status, done.read, node.requests) == (400, 0, [])


def test_a_compressed_body_is_refused_unread() -> None:
    node = Node()
    done = call(msh_app(node), headers={"content-encoding": "GZIP"})
    assert (done.status, done.read, node.requests) == (415, 0, [])
    assert b"Content-Encoding" in done.body


def test_the_identity_encoding_is_no_encoding() -> None:
    assert call(msh_app(Node()), headers={"content-encoding": "identity"}).status == 200


def test_a_body_that_is_announced_too_large_is_refused_unread() -> None:
    done = call(msh_app(Node()), headers={"content-length": str(LIMIT + 1)})
    assert (done.status, done.read) == (413, 0)


def test_a_body_that_grows_too_large_is_read_no_further() -> None:
    done = call(msh_app(Node()), pieces=(b"x" * LIMIT, b"y", b"z"))
    assert (done.status, done.read) == (413, 2)


def test_a_body_of_the_largest_size_is_taken() -> None:
    headers = {"content-length": str(LIMIT)}
    assert call(msh_app(Node()), headers=headers, pieces=(b"x" * LIMIT,)).status == 200


def test_a_client_that_went_away_gets_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "postroad.receive"):
        done = call(msh_app(Node()), breaks_off=True)
    assert done.status == 0
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        "the client closed its connection before the end of its request",
    )


def test_an_unexpected_error_is_an_ebms_error_without_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stumble(_: Request) -> Response:
        raise RuntimeError("the secret reason")

    done = call(msh_app(Node(stumble)))
    assert done.status == 500
    assert b"secret" not in done.body
    envelope = read_envelope(parse(done.body))
    element = find_messaging(envelope)
    assert element is not None
    messaging = read_messaging(element, envelope.version).messaging
    assert messaging is not None
    [signal] = messaging.signals
    assert [one.error_code for one in signal.errors] == ["EBMS:0004"]
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None


def test_a_message_that_cannot_be_stored_is_to_come_again(caplog: pytest.LogCaptureFixture) -> None:
    async def full(_: Request) -> Response:
        raise StoreFull("There is no room to write here.")

    done = call(msh_app(Node(full)))
    assert (done.status, done.answered["retry-after"]) == (503, "60")
    assert b"EBMS:0202" in done.body
    [record] = caplog.records
    assert record.exc_info is None


def test_beyond_its_capacity_the_node_asks_to_come_again() -> None:
    async def scenario() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> Response:
            async for _ in request.body:
                pass
            entered.set()
            await leave.wait()
            return Response(202)

        app = msh_app(Node(slow), at_once=1)
        first = asyncio.create_task(Call().of(app))
        await entered.wait()
        second = await Call().of(app)
        assert (second.status, second.answered["retry-after"], second.read) == (503, "2", 0)
        leave.set()
        done = await first
        assert (done.status, done.answered) == (202, {"content-length": "0"})
        assert (await Call().of(app)).status == 202

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_no_address_has_all_messages_in_progress() -> None:
    async def scenario() -> None:
        entered, leave = asyncio.Semaphore(0), asyncio.Event()

        async def slow(request: Request) -> Response:
            async for _ in request.body:
                pass
            entered.release()
            await leave.wait()
            return Response(202)

        app = msh_app(Node(slow), at_once=5, per_address=2)
        addresses = ["192.0.2.1", "192.0.2.1", "192.0.2.2", None, None]
        begun = []
        for address in addresses:
            if address == "192.0.2.2":
                assert (await Call(address="192.0.2.1").of(app)).status == 503
            begun.append(asyncio.create_task(Call(address=address).of(app)))
            await entered.acquire()
        assert (await Call(address="192.0.2.3").of(app)).status == 503
        leave.set()
        assert [(await one).status for one in begun] == [202] * 5
        assert (await Call(address="192.0.2.1").of(app)).status == 202

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_failed_request_makes_room_for_the_next() -> None:
    async def stumble(_: Request) -> Response:
        raise RuntimeError

    app = msh_app(Node(stumble), at_once=1, per_address=1)
    assert [call(app, address="192.0.2.1").status for _ in range(3)] == [500, 500, 500]
