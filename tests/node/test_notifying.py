"""The webhook: an application is told what happened, in order, until it has taken it."""

import hashlib
import hmac
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.settings.config import load_config
from postroad.node.steps.notifying import Notifier, notification
from postroad.node.steps.webhook_signature import WebhookRefused, sign_webhook, verify_webhook
from postroad.store.interface import Transaction
from postroad.store.memory import open_memory
from postroad.store.records import Message, Side, State, Stored, StoredPart, Work
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import Receive, Scope, Send, body_chunks
from postroad.transport.http_client import HttpClient
from postroad.transport.http_server import HttpServer
from tests.node.exchange import BEGIN, BUYER, SELLER, Clock, context_of, make_parties
from tests.ports import free_port
from tests.transport.wires import answer, in_loop

SECRET = b"a secret of the node and its application"
PMODE = "buyer-to-seller-plain"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parties")
    make_parties(folder)
    for unused in folder.glob("*/pmodes/*"):
        if unused.stem != PMODE:
            unused.unlink()
    for file in folder.glob("*/postroad.yaml"):
        # Nothing is signed here, and loading RSA keys takes its time.
        lines = file.read_text().splitlines(keepends=True)
        signing = ("keys:", "  signing:", "  decryption:")
        file.write_text("".join(line for line in lines if not line.startswith(signing)))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "parties"))


@dataclass
class Application:
    """Somebody who is told, and answers as the test says."""

    answers: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"".join([piece async for piece in body_chunks(receive, limit=1 << 20)])
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        self.bodies.append(body)
        await answer(send, self.answers.pop(0) if self.answers else 204, b"")

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(one) for one in self.bodies]


@dataclass
class World:
    """A node with a webhook, and time that passes when the test says so."""

    context: Context
    clock: Clock
    client: HttpClient

    @property
    def notifier(self) -> Notifier:
        return Notifier(self.context, self.client)

    async def happened(
        self, state: State, message_id: str = "m@buyer.example", **changes: Any
    ) -> Message:
        """A message comes to a state, and the work of telling is written in the same step."""
        side = Side.SENDING if self.context.config.node == BUYER else Side.RECEIVING
        now = self.clock()
        stored = StoredPart("p@x", "application/xml", 12, "ab" * 32, Stored("m0", 0, 5), "a/b")
        told = {"pmode": PMODE, "party": "urn:example:buyer", "parts": (stored,)}
        told |= {"from_party": "urn:example:buyer", "to_party": "urn:example:seller"}
        told |= {"service": "urn:example:purchasing", "action": "NewOrder"}
        events = changes.pop("events", ())
        message = Message(side, message_id, state, now, now, **{**told, **changes})

        def step(tx: Transaction) -> None:
            if not tx.add_message(message):
                tx.change_message(side, message_id, tuple(State), state=state, updated_at=now)
            tx.record([about(message, name, now, **more) for name, more in events])
            for work in notification(self.context, message, state, now):
                tx.add_work(work)

        await self.context.store.run(step)
        return message

    async def work(self) -> list[Work]:
        """What the work loop does: claim what is due, and perform it."""
        now = self.clock()
        claimed = await self.context.store.run(
            lambda tx: tx.claim_work(("notify",), now, "test/1", now + timedelta(minutes=15), 16)
        )
        for work in claimed:
            await self.notifier.perform(work)
        return claimed

    async def left(self) -> int:
        figures = await self.context.store.look(lambda reader: reader.figures())
        return figures.work.get("notify", 0)


def configure(folder: Path, party: str, url: str, more: str = "", secret: bytes = SECRET) -> Path:
    """Add a webhook to a party's configuration."""
    file = folder / party / "postroad.yaml"
    (folder / party / "keys" / "webhook.secret").write_bytes(secret + b"\n")
    section = f"\nwebhook:\n  url: {url}\n  secret_file: keys/webhook.secret\n{more}"
    file.write_text(file.read_text() + section)
    return file


@asynccontextmanager
async def world(
    folder: Path, app: Application | str, party: str = BUYER, more: str = "", sqlite: bool = False
) -> AsyncIterator[World]:
    clock = Clock()
    server = None
    if isinstance(app, Application):
        server = HttpServer(app)
        await server.start()
        url = f"{server.url}/events?for=orders"
    else:
        url = app
    config = load_config(configure(folder, party, url, more))
    opened = await (open_sqlite if sqlite else open_memory)(folder / party / "data", party)
    async with HttpClient() as client:
        yield World(context_of(config, opened, clock), clock, client)
    await opened.close()
    if server is not None:
        await server.close()


@pytest.mark.parametrize("sqlite", [False, True], ids=["memory", "sqlite"])
@in_loop
async def test_a_failure_is_told_with_all_that_is_known(folder: Path, sqlite: bool) -> None:
    app = Application()
    refused = [
        ("error_received", {"error_code": "EBMS:0004", "severity": "failure", "detail": "no"}),
        ("delivery_failed", {"error_code": "EBMS:0004", "severity": "failure", "detail": "no"}),
    ]
    async with world(folder, app, sqlite=sqlite) as node:
        await node.happened(
            State.FAILED, conversation_id="c@x", ref_to_message_id="r@x", events=refused
        )
        await node.work()
        assert await node.left() == 0
    (told,) = app.told
    assert len(told.pop("delivery_id")) == 32
    assert told.pop("cursor").isdigit()
    assert told == {
        "attempt": 1,
        "event": "failed",
        "at": "2024-06-01T12:00:00.250000Z",
        "node": "buyer",
        "message_id": "m@buyer.example",
        "side": "sending",
        "state": "failed",
        "severity": "Error",
        "pmode": PMODE,
        "from": "urn:example:buyer",
        "to": "urn:example:seller",
        "service": "urn:example:purchasing",
        "action": "NewOrder",
        "conversation_id": "c@x",
        "ref_to_message_id": "r@x",
        "error_code": "EBMS:0004",
        "detail": "no",
        "parts": [
            {
                "content_id": "p@x",
                "media_type": "application/xml",
                "size": 12,
                "sha256": "ab" * 32,
                "file_name": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("party", "state", "event"),
    [
        (SELLER, State.DELIVERED, "received"),
        (BUYER, State.ACKNOWLEDGED, "receipt"),
        (BUYER, State.FAILED, "failed"),
        (BUYER, State.IN_DOUBT, "in_doubt"),
        (BUYER, State.EXPIRED, "failed"),
        (BUYER, State.SUSPENDED, "suspended"),
        (BUYER, State.SETTLED, "settled"),
        (BUYER, State.SENT, None),
        (BUYER, State.WAITING, None),
        (SELLER, State.RECEIVED, None),
        (SELLER, State.REJECTED, None),
    ],
)
@in_loop
async def test_what_is_told_of_each_state(
    folder: Path, party: str, state: State, event: str | None
) -> None:
    app = Application()
    async with world(folder, app, party) as node:
        await node.happened(state)
        await node.work()
    assert [one["event"] for one in app.told] == ([event] if event else [])
    assert [one["state"] for one in app.told] == ([state.value] if event else [])


@in_loop
async def test_the_call_is_json_and_its_signature_can_be_verified(folder: Path) -> None:
    app = Application()
    async with world(folder, app) as node:
        await node.happened(State.ACKNOWLEDGED)
        await node.work()
    headers, body = app.headers[0], app.bodies[0]
    assert headers["content-type"] == "application/json"
    at = str(int(BEGIN.timestamp()))
    mac = hmac.new(SECRET, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["postroad-signature"] == f"t={at},v1={mac}"
    verify_webhook(body, headers["postroad-signature"], SECRET, BEGIN)


@in_loop
async def test_events_that_are_not_asked_for_are_not_told(folder: Path) -> None:
    app = Application()
    async with world(folder, app, more="  events: [failed]\n") as node:
        await node.happened(State.ACKNOWLEDGED)
        await node.happened(State.FAILED, "other@buyer.example")
        await node.work()
    assert [one["message_id"] for one in app.told] == ["other@buyer.example"]


@in_loop
async def test_what_is_not_taken_is_told_again_with_doubling_waits(folder: Path) -> None:
    app = Application([500, 302, 404, 503])
    more = "  first_interval: PT10S\n  longest_interval: PT30S\n"
    async with world(folder, app, more=more) as node:
        await node.happened(State.ACKNOWLEDGED)
        for wait in (10, 20, 30, 30):
            await node.work()
            node.clock.wait(wait - 0.001)
            assert await node.work() == []
            node.clock.wait(0.001)
        await node.work()
        assert await node.left() == 0
    assert [one["attempt"] for one in app.told] == [1, 2, 3, 4, 5]
    assert len({one["delivery_id"] for one in app.told}) == 1
    assert len({one["at"] for one in app.told}) == 1


@in_loop
async def test_each_attempt_is_signed_at_its_own_time(folder: Path) -> None:
    app = Application([500])
    async with world(folder, app) as node:
        await node.happened(State.ACKNOWLEDGED)
        await node.work()
        node.clock.wait(3600)
        await node.work()
        now = node.clock()
    first, second = (one["postroad-signature"] for one in app.headers)
    verify_webhook(app.bodies[1], second, SECRET, now)
    with pytest.raises(WebhookRefused, match="seconds ago"):
        verify_webhook(app.bodies[0], first, SECRET, now)


@in_loop
async def test_nobody_listening_is_tried_again(folder: Path) -> None:
    app = Application()
    port = free_port()
    async with world(folder, f"http://127.0.0.1:{port}/events") as node:
        await node.happened(State.ACKNOWLEDGED)
        await node.work()
        assert await node.left() == 1
        server = HttpServer(app, port=port)
        await server.start()
        node.clock.wait(5)
        await node.work()
        assert await node.left() == 0
        await server.close()
    assert [one["attempt"] for one in app.told] == [2]


@in_loop
async def test_after_the_last_attempt_it_is_given_up_and_said_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application([500] * 3)
    async with world(folder, app, more="  attempts: 3\n") as node:
        await node.happened(State.ACKNOWLEDGED)
        for _ in range(5):
            await node.work()
            node.clock.wait(3600)
        assert await node.left() == 0
        given_up = node.context.counters['postroad_webhook_calls_total{outcome="given_up"}']
    assert len(app.told) == 3
    assert given_up == 1
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "given up telling of receipt after 3 attempts" in record.message
    assert vars(record)["message_id"] == "m@buyer.example"
    assert "orders" not in vars(record)["peer"]


@in_loop
async def test_calls_about_a_message_come_in_order(folder: Path) -> None:
    app = Application([500])
    async with world(folder, app) as node:
        await node.happened(State.FAILED, events=[("delivery_failed", {"detail": "first"})])
        node.clock.wait(1)
        await node.happened(State.ACKNOWLEDGED)
        await node.happened(State.ACKNOWLEDGED, "other@buyer.example")
        await node.work()
        assert [one["event"] for one in app.told] == ["failed", "receipt"]
        assert app.told[1]["message_id"] == "other@buyer.example"
        node.clock.wait(5)
        await node.work()
        await node.work()
        assert await node.left() == 0
    about_it = [one for one in app.told if one["message_id"] == "m@buyer.example"]
    assert [one["event"] for one in about_it] == ["failed", "failed", "receipt"]
    assert [one["detail"] for one in about_it] == ["first", "first", None]


@in_loop
async def test_a_call_that_is_given_up_lets_the_next_one_pass(folder: Path) -> None:
    app = Application([500])
    async with world(folder, app, more="  attempts: 1\n") as node:
        await node.happened(State.FAILED)
        node.clock.wait(1)
        await node.happened(State.ACKNOWLEDGED)
        await node.work()
        await node.work()
        assert await node.left() == 0
    assert [one["event"] for one in app.told] == ["failed", "receipt"]


@in_loop
async def test_what_is_told_later_is_what_was_so_at_the_time(folder: Path) -> None:
    app = Application([500])
    failed = [("delivery_failed", {"error_code": "EBMS:0005", "detail": "refused"})]
    async with world(folder, app, more="  events: [failed]\n") as node:
        await node.happened(State.FAILED, events=failed)
        await node.work()
        node.clock.wait(60)
        await node.happened(State.ACKNOWLEDGED, events=[("receipt_received", {})])
        await node.work()
    first, second = app.told
    assert {**first, "attempt": 2} == second
    assert (second["state"], second["error_code"]) == ("failed", "EBMS:0005")


@in_loop
async def test_each_failure_is_told_with_its_own_reason(folder: Path) -> None:
    app = Application([500])
    async with world(folder, app) as node:
        await node.happened(State.FAILED, events=[("delivery_failed", {"detail": "first"})])
        node.clock.wait(1)
        await node.happened(State.FAILED, events=[("delivery_failed", {"detail": "second"})])
        await node.work()
        node.clock.wait(5)
        await node.work()
        await node.work()
    assert [one["detail"] for one in app.told] == ["first", "first", "second"]
    assert len({one["delivery_id"] for one in app.told}) == 2


@in_loop
async def test_a_message_that_is_gone_is_still_told_of(folder: Path) -> None:
    app = Application()
    async with world(folder, app) as node:
        await node.happened(State.ACKNOWLEDGED)
        node.clock.wait(1)
        now = node.clock()
        await node.context.store.run(lambda tx: tx.purge(now, [State.ACKNOWLEDGED], 10))
        await node.work()
    (told,) = app.told
    assert (told["event"], told["message_id"]) == ("receipt", "m@buyer.example")
    assert told["pmode"] is None


@in_loop
async def test_a_new_secret_signs_after_a_reload(folder: Path) -> None:
    app = Application()
    async with world(folder, app) as node:
        await node.happened(State.ACKNOWLEDGED, "one@x")
        await node.work()
        (folder / BUYER / "keys" / "webhook.secret").write_bytes(b"another secret, of today\n")
        assert node.context.in_force.refresh().ok
        await node.happened(State.ACKNOWLEDGED, "two@x")
        await node.work()
    old, new = (one["postroad-signature"] for one in app.headers)
    verify_webhook(app.bodies[0], old, SECRET, BEGIN)
    verify_webhook(app.bodies[1], new, b"another secret, of today", BEGIN)
    with pytest.raises(WebhookRefused, match="another secret"):
        verify_webhook(app.bodies[1], new, SECRET, BEGIN)


@in_loop
async def test_without_a_secret_calls_are_not_signed(folder: Path) -> None:
    app = Application()
    server = HttpServer(app)
    await server.start()
    file = configure(folder, BUYER, server.url)
    file.write_text(file.read_text().replace("  secret_file: keys/webhook.secret\n", ""))
    async with HttpClient() as client:
        store = await open_memory(node=BUYER)
        node = World(context_of(load_config(file), store, Clock()), Clock(), client)
        await node.happened(State.ACKNOWLEDGED)
        await node.work()
    await server.close()
    assert "postroad-signature" not in app.headers[0]


@in_loop
async def test_without_a_webhook_nothing_is_to_be_done(folder: Path) -> None:
    clock = Clock()
    config = load_config(folder / BUYER / "postroad.yaml")
    async with HttpClient() as client:
        store = await open_memory(node=BUYER)
        node = World(context_of(config, store, clock), clock, client)
        await node.happened(State.FAILED)
        assert await node.left() == 0


@in_loop
async def test_work_that_was_left_when_the_webhook_was_removed_ends(folder: Path) -> None:
    app = Application()
    async with world(folder, app) as node:
        await node.happened(State.FAILED)
        node.context.config = node.context.config.model_copy(update={"webhook": None})
        await node.work()
        assert await node.left() == 0
    assert app.told == []


PARTNERS_ERROR = [
    ("error_received", {"error_code": "EBMS:0004", "severity": "failure"}),
    ("delivery_failed", {"error_code": "EBMS:0004"}),
]
CONNECTION = [("delivery_failed", {"error_code": "EBMS:0005"})]
IN_DOUBT = [("in_doubt", {"detail": "no answer"})]
PRODUCER = "process_error_notify_producer"
DELIVERY = "delivery_failures_notify_producer"


@pytest.mark.parametrize(
    ("switches", "state", "events", "told"),
    [
        ({}, State.FAILED, PARTNERS_ERROR, True),
        ({PRODUCER: True, DELIVERY: True}, State.FAILED, CONNECTION, True),
        ({PRODUCER: False}, State.FAILED, PARTNERS_ERROR, False),
        ({PRODUCER: False}, State.FAILED, CONNECTION, True),
        ({PRODUCER: False}, State.IN_DOUBT, IN_DOUBT, True),
        ({DELIVERY: False}, State.FAILED, PARTNERS_ERROR, True),
        ({DELIVERY: False}, State.FAILED, CONNECTION, False),
        ({DELIVERY: False}, State.IN_DOUBT, IN_DOUBT, False),
        ({PRODUCER: False, DELIVERY: False}, State.FAILED, CONNECTION, False),
        ({PRODUCER: False, DELIVERY: False}, State.ACKNOWLEDGED, [], True),
    ],
)
@in_loop
async def test_the_pmode_says_of_which_failures_the_sender_is_told(
    folder: Path, switches: dict[str, bool], state: State, events: list[Any], told: bool
) -> None:
    agree(folder / BUYER, switches)
    app = Application()
    async with world(folder, app) as node:
        await node.happened(state, events=events)
        await node.work()
        assert await node.left() == 0
    assert bool(app.told) is told


@pytest.mark.parametrize(
    ("switch", "told"), [(True, True), (False, False)], ids=["asked-for", "not-asked-for"]
)
@in_loop
async def test_the_receiver_is_told_of_refused_messages_where_the_pmode_says_so(
    folder: Path, switch: bool, told: bool
) -> None:
    agree(folder / SELLER, {"process_error_notify_consumer": switch})
    app = Application()
    async with world(folder, app, SELLER) as node:
        await node.happened(
            State.REJECTED, events=[("rejected", {"error_code": "EBMS:0101", "detail": "forged"})]
        )
        await node.work()
    assert [(one["event"], one["error_code"]) for one in app.told] == (
        [("failed", "EBMS:0101")] if told else []
    )


def agree(party: Path, switches: dict[str, bool]) -> None:
    """Put switches into the P-Mode."""
    file = party / "pmodes" / f"{PMODE}.yaml"
    lines = "".join(f"        {name}: {str(value).lower()}\n" for name, value in switches.items())
    before = "      report:\n"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, before + lines))


class TestVerifying:
    BODY = b'{"event":"received"}'
    HEADER = sign_webhook(BODY, SECRET, BEGIN)

    def test_a_signed_call_is_believed(self) -> None:
        verify_webhook(self.BODY, self.HEADER, SECRET, BEGIN)
        verify_webhook(self.BODY, self.HEADER, SECRET.decode(), BEGIN.timestamp() + 299)
        verify_webhook(self.BODY, self.HEADER, SECRET, BEGIN + timedelta(days=1), tolerance=90_000)
        verify_webhook(self.BODY, f"{self.HEADER},v2=later", SECRET, BEGIN)

    def test_either_of_two_signatures_is_enough(self) -> None:
        both = self.HEADER.replace(",", f",v1={'0' * 64},")
        verify_webhook(self.BODY, both, SECRET, BEGIN)

    @pytest.mark.parametrize("seconds", [-301, 301])
    def test_an_old_or_early_call_is_refused(self, seconds: int) -> None:
        with pytest.raises(WebhookRefused, match="at most 300"):
            verify_webhook(self.BODY, self.HEADER, SECRET, BEGIN + timedelta(seconds=seconds))

    def test_an_old_call_is_refused_by_the_clock_of_the_machine(self) -> None:
        with pytest.raises(WebhookRefused, match="seconds"):
            verify_webhook(self.BODY, sign_webhook(self.BODY, SECRET, BEGIN), SECRET)

    def test_a_changed_body_another_secret_or_another_time_is_refused(self) -> None:
        later = self.HEADER.replace(str(int(BEGIN.timestamp())), str(int(BEGIN.timestamp()) + 1))
        for body, header, secret in (
            (self.BODY + b" ", self.HEADER, SECRET),
            (self.BODY, self.HEADER, b"other"),
            (self.BODY, later, SECRET),
        ):
            with pytest.raises(WebhookRefused, match="does not fit"):
                verify_webhook(body, header, secret, BEGIN)

    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "t=1",
            "v1=00",
            "t=x,v1=00",
            "t=1,t=2,v1=00",
            "t=,v1=00",
            "t=-5,v1=00",
            "t=²,v1=00",
            "t=" + "9" * 400 + ",v1=00",
            "t=1,v1=é",
            "nonsense",
            "t=1,v1=" + "0" * 5000,
        ],
    )
    def test_a_header_that_is_none_is_refused(self, header: str | None) -> None:
        with pytest.raises(WebhookRefused):
            verify_webhook(self.BODY, header, SECRET, BEGIN)

    def test_an_empty_secret_proves_nothing(self) -> None:
        forged = sign_webhook(self.BODY, b"", BEGIN)
        with pytest.raises(WebhookRefused, match="no secret"):
            verify_webhook(self.BODY, forged, "", BEGIN)
