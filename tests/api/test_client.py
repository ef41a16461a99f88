"""The Python clients: both do the same, and what is repeated is done once."""

import asyncio
import hashlib
import inspect
import io
import os
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import postroad
from postroad.api.client import ApiError, AsyncClient, Client, Payload, Property
from postroad.api.client_calls import pause
from postroad.api.client_upload import new_message_id
from postroad.node.service import Health, Refused, Reloaded, Service
from postroad.store.interface import StoreBusy
from postroad.store.records import Message
from tests.api.conftest import TOKEN, Connect, Serve
from tests.api.site import LostReplies, Site
from tests.api.world import Faulty, Given, World

MIB = 1024 * 1024


def _stored(site: Site, service: Service, message_id: str) -> list[bytes]:
    message = site.run(service.message(message_id))
    assert message
    return [b"".join(service.part(message, one).chunks()) for one in message.parts]


def _posts(scope: Any) -> bool:
    return bool(scope["method"] == "POST")


def test_both_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(Client) == calls(AsyncClient)
    assert {"send", "status", "events", "inbox", "part_to", "ack"} <= calls(Client).keys()


def test_the_package_offers_both_without_loading_a_server() -> None:
    assert postroad.Client is Client
    assert postroad.AsyncClient is AsyncClient
    code = "import sys, postroad; postroad.Client; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_payload_may_be_bytes_a_path_or_a_file(
    either: Any, site: Site, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "order.xml"
    path.write_bytes(b"<order/>")
    with path.open("rb") as file:
        file.seek(1)
        sent = either.send(
            pmode="buyer-to-seller-order", payloads=[b"bytes", path, str(path), file]
        )
    assert _stored(site, service, sent.message_id) == [
        b"bytes",
        b"<order/>",
        b"<order/>",
        b"order/>",
    ]
    assert [part.file_name for part in sent.message.parts] == [None, *["order.xml"] * 3]
    assert sent.message.parts[0].media_type == "application/octet-stream"
    assert sent.message.parts[1].media_type.endswith("/xml")


def test_a_pipe_is_sent_too(either: Any, site: Site, service: Service) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        with os.fdopen(writing, "wb") as file:
            file.write(b"through a pipe")
        sent = either.send(pmode="buyer-to-seller-order", payloads=[pipe])
    assert _stored(site, service, sent.message_id) == [b"through a pipe"]


def test_all_that_can_be_said_about_a_message_is_said(either: Any) -> None:
    payload = Payload(
        b"<a/>",
        media_type="application/x-order",
        file_name='o".xml',
        content_id="a@x",
        properties=[Property("language", "en", "iso")],
        compress=True,
    )
    sent = either.send(
        pmode="buyer-to-seller-order",
        payloads=[payload],
        message_id="m/1@x",
        conversation_id="c-1",
        ref_to_message_id="r-1@x",
        service="s",
        action="a",
        properties={"originalSender": "C1"},
    )
    message = either.status("m/1@x")
    assert sent.message_id == message.message_id == "m/1@x"
    assert sent.repeated is False
    assert (message.conversation_id, message.ref_to_message_id) == ("c-1", "r-1@x")
    assert (message.service, message.action) == ("s", "a")
    assert Property("originalSender", "C1") in message.properties
    [part] = message.parts
    assert (part.media_type, part.file_name) == ("application/x-order", 'o".xml')
    assert (part.content_id, part.compressed) == ("a@x", True)
    assert Property("language", "en", "iso") in part.properties
    assert message.created_at.tzinfo is not None


def test_a_payload_of_another_kind_is_refused_by_name(either: Any) -> None:
    with pytest.raises(TypeError, match="not int"):
        either.send(pmode="buyer-to-seller-order", payloads=[4711])


def test_progress_is_told(either: Any) -> None:
    told: list[tuple[int, int]] = []
    either.send(
        pmode="buyer-to-seller-order",
        payloads=[bytes(MIB)],
        progress=lambda sent, all: told.append((sent, all)),
    )
    sent = [one for one, _ in told]
    assert sent == sorted(sent)
    assert len(told) > 4
    assert told[-1][0] == told[-1][1] > MIB


@pytest.mark.parametrize("lost", [1, 3])
def test_a_lost_reply_is_repeated_and_the_message_is_there_once(
    connect: Connect, site: Site, serve: Serve, lost: int
) -> None:
    losing = LostReplies(serve(), lost, _posts)
    site.app = losing
    client = connect()
    sent = client.send(pmode="buyer-to-seller-order", payloads=[b"once", bytes(2 * MIB)])
    assert losing.asked == lost + 1
    assert sent.repeated is True
    assert [one.message_id for one in client.messages()] == [sent.message_id]
    assert sent.message.parts[1].sha256 == hashlib.sha256(bytes(2 * MIB)).hexdigest()


def test_who_gives_up_says_so(connect: Connect, site: Site, serve: Serve) -> None:
    losing = LostReplies(serve(), 10, _posts)
    site.app = losing
    with pytest.raises(ApiError, match="No answer from http") as caught:
        connect(retries=2).send(pmode="buyer-to-seller-order")
    assert caught.value.status == 0
    assert losing.asked == 3


def test_sending_again_is_not_repeated_when_its_reply_is_lost(
    connect: Connect, site: Site, serve: Serve, world: World
) -> None:
    client = connect()
    sent = client.send(pmode="buyer-to-seller-order")
    site.run(world.fail(sent.message_id))
    losing = LostReplies(serve(), 1, _posts)
    site.app = losing
    with pytest.raises(ApiError, match="No answer"):
        client.resend(sent.message_id)
    assert losing.asked == 1


def test_not_now_is_asked_again(connect: Connect, serve: Serve, service: Service) -> None:
    refusals: list[Exception] = [StoreBusy("busy"), Refused(503, "full"), StoreBusy("busy")]

    async def submit(submission: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await service.submit(submission)

    serve(Faulty(service, submit=submit))
    assert connect().send(pmode="buyer-to-seller-order").repeated is False
    assert refusals == []
    refusals += [Refused(503, "The node is full; try again later.")] * 2
    with pytest.raises(ApiError) as caught:
        connect(retries=1).send(pmode="buyer-to-seller-order")
    assert (caught.value.status, caught.value.detail) == (503, "The node is full; try again later.")


def test_nobody_there_is_told_in_a_sentence(connect: Connect) -> None:
    client = connect("http://127.0.0.1:1", retries=0)
    with pytest.raises(ApiError, match="Is it running"):
        client.health()


def test_someone_else_there_is_told_in_a_sentence(connect: Connect, site: Site) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    site.app = other
    with pytest.raises(ApiError, match="is no Postroad"):
        connect().pmodes()


def test_the_pause_is_what_the_node_asks_for_and_bounded() -> None:
    def answer(seconds: str) -> httpx.Response:
        return httpx.Response(503, headers={"Retry-After": seconds})

    assert [pause(attempt, 0.5, None) for attempt in range(3)] == [0.5, 1, 2]
    assert pause(0, 0.5, answer("7")) == 7
    assert pause(0, 0.5, answer("soon")) == 0.5
    assert pause(0, 0.5, answer("9999")) == pause(20, 0.5, None) == 30


def test_an_error_tells_status_sentence_code_and_fields(either: Any) -> None:
    either.send(pmode="buyer-to-seller-order", message_id="m-1@x", payloads=[b"1"])
    with pytest.raises(ApiError) as conflict:
        either.send(pmode="buyer-to-seller-order", message_id="m-1@x", payloads=[b"2"])
    assert conflict.value.status == 409
    assert "m-1@x" in conflict.value.detail
    with pytest.raises(ApiError) as unknown:
        either.send(pmode="unknown")
    assert unknown.value.status in (404, 422)
    with pytest.raises(ApiError) as wrong:
        either.send(pmode="buyer-to-seller-order", properties={"a": "\0"})
    assert wrong.value.errors[0][0] == "metadata.properties.a"
    with pytest.raises(ApiError) as missing:
        either.part("nobody", 1)
    assert missing.value.status == 404


def test_a_wrong_token_is_told(connect: Connect) -> None:
    with pytest.raises(ApiError, match="401: "):
        connect(token="wrong").status("m-1@x")
    with pytest.raises(ApiError, match="401: "):
        connect(token=None).status("m-1@x")


def test_all_pages_are_shown(either: Any) -> None:
    ids = [
        either.send(pmode="buyer-to-seller-order", conversation_id=f"c-{n % 2}").message_id
        for n in range(5)
    ]
    assert [one.message_id for one in either.messages(limit=2)] == ids[::-1]
    assert [one.message_id for one in either.messages(order="oldest")] == ids
    chosen = either.messages(conversation_id="c-1", side="sending", limit=1)
    assert [one.message_id for one in chosen] == [ids[3], ids[1]]
    assert list(either.messages(since=datetime(2200, 1, 1, tzinfo=UTC))) == []
    assert list(either.messages(state=["failed", "in_doubt"])) == []
    assert list(either.messages(from_party="nobody")) == []


def test_the_inbox_is_taken(either: Any, site: Site, world: World, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    names = [site.run(world.deliver([Given(b"<a/>"), Given(data)])) for _ in range(3)]
    assert [one.message_id for one in either.inbox(limit=1)] == names
    assert either.received(names[0]).parts[1].size == len(data)
    assert either.part(names[0]) == b"<a/>"
    assert either.part(names[0], 2) == data
    target = either.part_to(names[0], 2, tmp_path / "data.bin")
    assert target.read_bytes() == data
    assert either.ack(names[0]).state == "consumed"
    assert either.ack(names[0]).state == "consumed"
    assert [one.message_id for one in either.inbox()] == names[1:]
    assert [one.message_id for one in either.inbox(consumed=True)] == names


def test_a_download_is_checked_and_appears_only_when_it_is_whole(
    either: Any, site: Site, world: World, serve: Serve, service: Service, tmp_path: Path
) -> None:
    name = site.run(world.deliver([Given(b"right")]))

    class Wrong:
        size = 5

        def chunks(self) -> Iterator[bytes]:
            yield b"wrong"

    serve(Faulty(service, part=lambda *_: Wrong()))
    with pytest.raises(ApiError, match="digest"):
        either.part(name, 1)
    with pytest.raises(ApiError, match="digest"):
        either.part_to(name, 1, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_begins_again(
    either: Any, site: Site, world: World, serve: Serve, service: Service, tmp_path: Path
) -> None:
    data = os.urandom(600_000)
    name = site.run(world.deliver([Given(data)]))
    breaks = [True, True]

    class Breaking:
        size = len(data)

        def chunks(self) -> Iterator[bytes]:
            yield data[:300_000]
            if breaks:
                breaks.pop()
                raise OSError("the disk is gone for a moment")
            yield data[300_000:]

    serve(Faulty(service, part=lambda *_: Breaking()))
    assert either.part_to(name, 1, tmp_path / "file").read_bytes() == data
    assert breaks == []


def test_the_proof_is_had(either: Any, site: Site, world: World, tmp_path: Path) -> None:
    sent = either.send(pmode="buyer-to-seller-order")
    receipt = site.run(world.acknowledge(sent.message_id))
    assert zipfile.is_zipfile(io.BytesIO(either.evidence(sent.message_id)))
    assert zipfile.is_zipfile(either.evidence_to(sent.message_id, tmp_path / "proof.zip"))
    [signal] = either.signals(sent.message_id)
    assert signal.kind == "receipt"
    assert either.signal(sent.message_id, signal.signal_id) == receipt
    assert either.events(sent.message_id)[0].event == "submitted"


def test_waiting_goes_on_until_the_message_is_settled(
    connect: Connect, site: Site, world: World, serve: Serve, service: Service
) -> None:
    asked = threading.Event()
    rounds: list[float] = []

    async def settled(message_id: str, timeout: float) -> Message | None:
        rounds.append(timeout)
        if len(rounds) < 3:
            return await service.settled(message_id, 0)
        asked.set()
        return await service.settled(message_id, timeout)

    def acknowledge() -> None:
        assert asked.wait(10)
        site.run(world.acknowledge("m-1@x"))

    serve(Faulty(service, settled=settled))
    partner = threading.Thread(target=acknowledge)
    partner.start()
    sent = connect().send(pmode="buyer-to-seller-order", message_id="m-1@x", wait=300)
    partner.join()
    assert sent.state == "acknowledged"
    assert sent.settled
    assert rounds == [30, 30, 30]


def test_waiting_ends_in_time(either: Any) -> None:
    sent = either.send(pmode="buyer-to-seller-order", wait=0.01)
    assert not sent.settled
    assert either.wait(sent.message_id, 0).state == sent.state


def test_what_failed_is_sent_again(either: Any, site: Site, world: World) -> None:
    sent = either.send(pmode="buyer-to-seller-order")
    site.run(world.fail(sent.message_id))
    assert either.status(sent.message_id).state == "failed"
    assert either.resend(sent.message_id).state != "failed"


def test_the_node_is_asked_and_told(either: Any, serve: Serve, service: Service) -> None:
    assert either.health().ready is True
    assert either.node().party == service.party
    assert "buyer-to-seller-order" in [pmode.id for pmode in either.pmodes()]
    assert either.reload() >= 1
    assert either.purge(30) == 0

    async def reload() -> Reloaded:
        return Reloaded(False, 1, ("orders.yaml:3: no such MEP",))

    async def health() -> Health:
        return Health(False, ("the disk is full",), (await service.health()).figures)

    serve(Faulty(service, reload=reload, health=health))
    assert either.health() == type(either.health())(False, ("the disk is full",))
    with pytest.raises(ApiError, match="no such MEP"):
        either.reload()


def test_clients_are_closed_by_their_blocks(site: Site, serve: Serve) -> None:
    serve()
    with Client(site.url + "/", token=TOKEN, verify=False) as client:
        assert client.health().ready
    with pytest.raises(RuntimeError):
        client.health()

    async def use() -> AsyncClient:
        async with AsyncClient(site.url, token=TOKEN, verify=False) as client:
            assert (await client.health()).ready
        return client

    with pytest.raises(RuntimeError):
        asyncio.run(asyncio.run(use()).health())


def test_ids_are_unique_and_ordered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({new_message_id() for _ in range(1000)}) == 1000
    ids = []
    for milliseconds in (1, 2, 1_700_000_000_000, 1_800_000_000_000):
        monkeypatch.setattr("time.time_ns", lambda at=milliseconds: at * 1_000_000)
        ids.append(new_message_id())
    assert ids == sorted(ids)
    assert uuid.UUID(ids[0].removesuffix("@postroad")).version == 7


def test_a_stretch_of_the_inbox_is_listed_and_acknowledged(
    connect: Connect, site: Site, world: World
) -> None:
    client = connect()
    names = [site.run(world.deliver([Given(b"1")])) for _ in range(3)]
    listed = list(client.inbox())
    assert client.inbox_extent().last == int(listed[-1].cursor)
    stretch = {"cursor": listed[0].cursor, "from_party": "seller"}
    assert client.ack_all(listed[1].cursor, **stretch) == 1
    assert [one.message_id for one in client.inbox()] == [names[0], names[2]]
    assert [one.message_id for one in client.inbox(consumed=True, through=listed[1].cursor)] == (
        names[:2]
    )
