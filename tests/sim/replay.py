"""The journal told again: from its events alone follows where each message stands.

The second oracle. Whatever a row says must follow from what the journal said up to then, and every
event must be possible after those before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from postroad.store.journal_columns import EVENTS
from postroad.store.records import Event, Message, Recorded, Side, State

ATTEMPTS: Final = frozenset(("sent", "resent", "send_failed"))
CLOSINGS: Final[Mapping[str, str]] = {
    "delivery_failed": "failed",
    "in_doubt": "in_doubt",
    "expired": "expired",
    "settled": "settled",
}
ON_ITS_WAY: Final = frozenset(("submitted", "ready", "waiting", "sent", "suspended"))
GIVEN_UP: Final = frozenset(("failed", "in_doubt", "expired"))
_ABOUT_A_MESSAGE: Final = ("hop_acked", "error_raised")
"""Events with the id of a signal that tell of a message, where others tell of a carried signal."""
TAKEN: Final = frozenset(("received", "held", "delivered", "consumed"))
"""States of a message that the receiver has for good."""
DELIVERED: Final = frozenset(("received", "delivered", "consumed"))
"""States of a message that is not held back from the application."""


class Untrue(Exception):
    """The journal contradicts itself, or the row."""


@dataclass
class Outgoing:
    """An outgoing message as its events tell it."""

    submitted: int = 0
    """The seq of that event."""
    attempts: int = 0
    acknowledged: bool = False
    refused: bool = False
    """The partner said that something is wrong with it."""
    closed: str | None = None
    """Failed, in_doubt, expired or settled, by the last event that says so."""
    closed_at: int = 0
    let_pass: bool = False
    """Whether what is to follow in order need not wait for it: it was given up, or settled."""
    purged: bool = False

    def take(self, seq: int, name: str, attempt: int | None) -> None:
        if name == "submitted":
            if self.submitted:
                raise Untrue("submitted twice")
            self.submitted = seq
            return
        if not self.submitted:
            raise Untrue(f"{name} before it was submitted")
        if name in ATTEMPTS:
            self._attempt(name, attempt)
        elif name in ("receipt_received", "ack_received"):
            self.acknowledged = True
        elif name == "error_received":
            self.refused = True
        elif name == "purged":
            self.purged = True
        elif name in CLOSINGS:
            if self.acknowledged and name != "settled":
                raise Untrue(f"{name} after it was acknowledged")
            self.closed, self.closed_at = CLOSINGS[name], seq
            self.let_pass |= name != "in_doubt"

    def _attempt(self, name: str, attempt: int | None) -> None:
        if attempt != self.attempts + 1:
            raise Untrue(f"{name} is attempt {attempt} after {self.attempts}")
        if (name == "sent") != (attempt == 1) and name != "send_failed":
            raise Untrue(f"attempt {attempt} is called {name}")
        self.attempts = attempt

    def fits(self, row: Message, begun_anew: int) -> str | None:
        """Why the row does not follow; None when it does. `begun_anew` is when it was resent."""
        state = row.state.value
        if row.attempts != self.attempts:
            return f"the row has {row.attempts} attempts, the journal {self.attempts}"
        if state == "acknowledged":
            return None if self.acknowledged else "acknowledged without a receipt"
        if self.acknowledged and state != "settled" and not begun_anew:
            return f"{state} although a valid receipt came"
        if state in CLOSINGS.values():
            return None if self.closed == state else f"{state}, but the journal says {self.closed}"
        if self.closed and self.closed_at > begun_anew:
            return f"{state}, but the journal says {self.closed}"
        return None


@dataclass
class Carried:
    """A message that is carried for others, as its events tell it."""

    received: int = 0
    attempts: int = 0
    passed: bool = False
    """The next one acknowledged it."""
    closed: bool = False
    purged: bool = False

    def take(self, seq: int, event: Event) -> None:
        name = event.event
        if name == "received":
            if self.received:
                raise Untrue("received twice: the second is a duplicate")
            self.received = seq
            return
        if not self.received:
            raise Untrue(f"{name} before it was received")
        if name in ("forwarded", "send_failed"):
            if event.attempt != self.attempts + 1:
                raise Untrue(f"{name} is attempt {event.attempt} after {self.attempts}")
            self.attempts = event.attempt
        elif name == "hop_acked":
            self.passed = True
        elif name in ("delivery_failed", "expired"):
            if self.passed:
                raise Untrue(f"{name} after it was passed on")
            self.closed = True
        elif name == "purged":
            self.purged = True

    def fits(self, row: Message) -> str | None:
        if row.attempts != self.attempts:
            return f"the row has {row.attempts} attempts, the journal {self.attempts}"
        if row.state is State.ACKNOWLEDGED and not self.passed:
            return "acknowledged without an event"
        if row.state.value in GIVEN_UP and not self.closed:
            return f"{row.state.value} without an event"
        return None


@dataclass
class Incoming:
    """An incoming message as its events tell it."""

    received: int = 0
    delivered: int = 0
    """The seq of that event."""
    rejected: int = 0
    purged: bool = False
    sender: str | None = None
    """Of what was received."""
    removed: set[str | None] = field(default_factory=set)
    """Whose message was delivered under the id, and removed."""

    def take(self, seq: int, name: str, sender: str | None) -> None:
        if name == "received":
            if self.purged and sender != self.sender:
                # An id that somebody else used, and that nobody remembers.
                self.delivered, self.purged = 0, False
            elif self.received:
                raise Untrue("received twice: the second is a duplicate")
            self.received, self.sender = seq, sender
        elif name == "delivered":
            if self.delivered:
                raise Untrue("delivered twice")
            if not self.received:
                raise Untrue("delivered and never received")
            self.delivered = seq
        elif name in ("duplicate", "held") and not self.received:
            raise Untrue(f"{name} before it was received")
        elif name in ("receipt_sent", "acked") and not self.received:
            raise Untrue("a receipt for what was never received")
        elif name == "rejected":
            if self.received and not self.purged:
                raise Untrue("rejected after it was received")
            self.rejected += 1
        elif name == "purged":
            self.purged = True
            if self.delivered:
                self.removed.add(self.sender)

    def fits(self, row: Message) -> str | None:
        state = row.state.value
        if state == "rejected":
            # Refusals of senders who proved nothing are counted after the first ones.
            return None if self.rejected or row.unproven else "rejected without an event"
        if not self.received:
            return f"{state} without the event received"
        if state in ("delivered", "consumed") and not self.delivered:
            return f"{state} without the event delivered"
        if state == "held" and self.delivered:
            return "held after it was delivered"
        return None


class Replay:
    """The journal of one party, as far as it was told."""

    def __init__(self) -> None:
        self.seq = 0
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[tuple[str, str | None], Incoming] = {}
        """By message id and sender: several may use one id."""
        self.carried: dict[str, Carried] = {}
        self.begun_anew: dict[str, int] = {}
        """When an operator sent a message again: the journal has no event of that."""
        self.deliveries: list[tuple[str, str]] = []
        """Sender and message id, in the order of delivery."""

    def take(self, recorded: Recorded) -> None:
        """The next event; `Untrue` says why it cannot be."""
        self.seq += 1
        if recorded.seq != self.seq:
            raise Untrue(f"event {recorded.seq} after {self.seq - 1}")
        event = recorded.event
        if event.side not in EVENTS[event.event]:
            raise Untrue(f"{event.event} on the side {event.side}")
        if event.message_id is None:
            return
        if event.side is Side.SENDING:
            known = self.outgoing.setdefault(event.message_id, Outgoing())
            known.take(recorded.seq, event.event, event.attempt)
        elif event.side is Side.RECEIVING:
            key = (event.message_id, event.from_party)
            arrived = self.incoming.setdefault(key, Incoming())
            arrived.take(recorded.seq, event.event, event.from_party)
            if event.event == "delivered":
                self.deliveries.append((event.from_party or "", event.message_id))

        elif event.side is Side.FORWARDING and (
            event.signal_id is None or event.event in _ABOUT_A_MESSAGE
        ):
            carried = self.carried.get(event.message_id)
            if carried is None or (carried.purged and event.event == "received"):
                carried = self.carried[event.message_id] = Carried()
            carried.take(recorded.seq, event)

    def fits(self, row: Message) -> str | None:
        """Why a row contradicts the journal; None when it does not."""
        if row.side is Side.FORWARDING:
            if row.signal:
                return None
            return self.carried.get(row.message_id, Carried()).fits(row)
        if row.side is Side.RECEIVING:
            return self.incoming.get((row.wire_id, row.from_party), Incoming()).fits(row)
        known = self.outgoing.get(row.message_id)
        if known is None:
            return "there is a row, and the journal knows nothing of it"
        return known.fits(row, self.begun_anew.get(row.message_id, 0))


def at_rest(state: State) -> bool:
    """Whether an outgoing message needs nothing any more."""
    return state.value not in ON_ITS_WAY or state is State.SENT
