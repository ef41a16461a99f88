"""What holds whatever happened: a node's journal, messages and work tell the same story."""

from typing import Final

from postroad.store.interface import Store
from postroad.store.journal_columns import EVENTS
from postroad.store.qualified import is_qualified
from postroad.store.records import Event, Message, Side, State, Wanted

ATTEMPTS: Final = ("sent", "resent", "forwarded", "send_failed")
CLOSING: Final = {
    State.FAILED: "delivery_failed",
    State.IN_DOUBT: "in_doubt",
    State.EXPIRED: "expired",
    State.SETTLED: "settled",
}
ENDS: Final = tuple(CLOSING.values())


async def audit(name: str, store: Store) -> None:
    """Hold the journal of a node against its messages, and these against its work."""
    rows = await store.look(lambda reader: reader.journal(0, 1_000_000))
    events = [one.event for one in rows]
    for one in events:
        assert one.side in EVENTS[one.event], f"{one.event} {one.side}"
        assert (one.side is None) == (one.message_id is None), one.event
    messages = await store.look(lambda reader: reader.messages(Wanted(limit=10_000)))
    # A hub may carry messages of several senders under one id; their events cannot be told apart.
    shared = {
        one.wire_id
        for one in messages
        if one.side is Side.FORWARDING and is_qualified(one.message_id)
    }
    for message in messages:
        if message.side is Side.FORWARDING and message.wire_id in shared:
            continue
        if not message.signal:
            _audit_events(name, message, events)
            await _audit_timer(store, message)


def of_signal(event: Event) -> bool:
    """Whether it tells of a signal that is carried, and not of the message that this is about."""
    carried = ("received", "duplicate", "forwarded", "send_failed")
    return event.signal_id is not None and event.event in carried


def _audit_events(name: str, message: Message, events: list[Event]) -> None:
    told = [
        one
        for one in events
        if (one.message_id, one.side) == (message.wire_id, message.side) and not of_signal(one)
        # Several senders may have used its id.
        if one.pmode in (None, message.pmode)
    ]
    sizes = {one.bytes for one in told} - {None}
    assert len(sizes) <= 1, f"{name}: {message.message_id} has {sizes} bytes"
    if message.side is Side.RECEIVING:
        delivered = [one for one in told if one.event == "delivered"]
        assert len(delivered) <= 1, f"{name} delivered {message.message_id} twice"
        return
    numbers = [one.attempt for one in told if one.event in ATTEMPTS]
    assert numbers == list(range(1, message.attempts + 1)), message.message_id
    ends = [one.event for one in told if one.event in ENDS]
    closing = CLOSING.get(message.state)
    if message.side is Side.FORWARDING and closing == "in_doubt":
        closing = "delivery_failed"
    assert closing in (None, *ends[-1:]), message.message_id


async def _audit_timer(store: Store, message: Message) -> None:
    timer = message.timer
    if message.side is Side.RECEIVING or timer is None:
        return
    work = await store.look(lambda reader: reader.work(timer))
    assert work is not None, f"nobody looks at {message.message_id}"
    assert work.message_id in (message.message_id, message.bundle)
