"""Records for the tests of the store."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from postroad.security.encrypt import Seal
from postroad.store.interface import Store, Transaction
from postroad.store.records import (
    Event,
    Message,
    Notice,
    Side,
    Signal,
    Split,
    State,
    Stored,
    StoredPart,
    Work,
)
from postroad.wire.content import CHUNK, Content

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def message(message_id: str = "m1@here", **fields: Any) -> Message:
    given = {
        "side": Side.RECEIVING,
        "state": State.DELIVERED,
        "created_at": START,
        "updated_at": START,
    }
    return Message(message_id=message_id, **given | fields)


def full_message(envelope: Stored, part: Stored) -> Message:
    """With another value than the default in every field."""
    return Message(
        side=Side.SENDING,
        message_id="full@here",
        unproven=True,
        beginning=8192,
        envelope_bytes=4_000_000,
        state=State.WAITING,
        created_at=after(1),
        updated_at=after(2),
        pmode="orders",
        leg=2,
        kind="fragment",
        protocol="ebms3",
        party="urn:x::us",
        ref_to_message_id="before@there",
        conversation_id="talk",
        from_party="urn:x::us",
        to_party="urn:x::them",
        from_role="buyer",
        to_role="seller",
        service="t::order",
        action="place",
        mpc="urn:mpc",
        agreement="a-1",
        properties=(("one", "1", None), ("two", "2", "string")),
        attempts=3,
        bytes=1234567890123,
        wire_bytes=17,
        payload_digests=("sha256:00", "sha256:ff"),
        envelope=envelope,
        soap="1.1",
        boundary="edge",
        seal=Seal("urn:aes", b"\x00\xff key", (b"\x01", b"\xfe")),
        parts=(
            StoredPart(
                "p1@here",
                "text/xml",
                10,
                "ab" * 32,
                part,
                "application/gzip",
                True,
                (("MimeType", "text/xml", None),),
                "ü.xml",
            ),
            StoredPart(None, "application/xml", 1, "cd" * 32, part, "application/xml"),
        ),
        fingerprint="f" * 8,
        peer="10.0.0.1",
        error_code="EBMS:0004",
        detail="what was \u2028 wrong",
        tries=2,
        unanswered=1,
        first_sent_at=after(3),
        last_sent_at=after(4.000001),
        due_at=after(5),
        decided_by=after(6),
        timer=2**40,
        transport=1,
        sequence_number=7,
        best_effort=True,
        signal=True,
        anew=True,
        anew_at=after(4.5),
        channel="urn:mpc/sub",
        route="orders",
        hop="https://hub.example/msh",
        stations=("first", "second"),
        copies=2,
        expires_at=after(9),
        accounts=("somebody",),
        bundle="m0@here",
        reply_message_id="r1@there",
        late=True,
        part_of="whole@here",
        fragment=2,
        fragments=3,
        split=Split("g1", 16, 3, 40, 45, "gzip", part, 1),
    )


def signal(envelope: Stored, message_id: str = "m1@here", **fields: Any) -> Signal:
    given = {
        "side": Side.RECEIVING,
        "signal_id": "s1@here",
        "kind": "receipt",
        "incoming": False,
        "at": START,
        "content_type": "application/soap+xml",
    }
    return Signal(message_id=message_id, envelope=envelope, **given | fields)


def work(kind: str = "send", message_id: str = "m1@here", due: float = 0, **fields: Any) -> Work:
    return Work(kind, message_id, after(due), **fields)


def notice(message_id: str = "m1@here", event: str = "failed", **fields: Any) -> Notice:
    return Notice(message_id, START, event, State.FAILED, **fields)


def event(name: str = "received", message_id: str | None = "m1@here", **fields: Any) -> Event:
    return Event(START, "urn:x::us", name, message_id=message_id, **fields)


def full_event() -> Event:
    """With a value in every column."""
    return Event(
        at=after(0.000001),
        party="urn:x::us",
        event="sent",
        side=Side.SENDING,
        message_id="m1@here",
        signal_id="s1@here",
        kind="message",
        ref_to_message_id="m0@there",
        conversation_id="talk",
        group_id="g@here",
        envelope="m1@here",
        from_party="us",
        to_party="them",
        service="order",
        action="place",
        mpc="urn:mpc",
        pmode="orders",
        protocol="as4",
        attempt=1,
        sequence_number=2**40,
        fragment=3,
        fragments=4,
        bytes=5,
        wire_bytes=6,
        payload_digests=("sha256:00", "sha256:ff"),
        peer="https://them.example/msh",
        error_code="EBMS:0001",
        severity="failure",
        detail="why",
        evidence="s1",
    )


def adding(name: str, content: bytes = b"content") -> Callable[[Transaction], bool]:
    def step(tx: Transaction) -> bool:
        tx.record([event("received", name)])
        return tx.add_message(message(name, envelope=tx.keep(content)))

    return step


class Pattern:
    """Content of any size that is in no memory: each chunk tells its number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        for number, start in enumerate(range(0, self.size, CHUNK)):
            yield (
                number.to_bytes(8, "big") * (CHUNK // 8)
                if self.size - start >= CHUNK
                else (number.to_bytes(8, "big") * (CHUNK // 8))[: self.size - start]
            )


def bytes_of(content: Content) -> bytes:
    return b"".join(content.chunks())


def written(store: Store, content: Content) -> Content:
    """The same content, from a sink of the store."""
    sink = store.new_sink()
    for chunk in content.chunks():
        sink.write(chunk)
    return sink.finish()
