"""New units of a bundle: what `node.steps.keeping` would write of each, written for all at once."""

from collections.abc import Sequence

from postroad.agreement.matching import Match
from postroad.msh.payloads import Payload
from postroad.node.base.context import Context
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.exchanging import is_reply
from postroad.node.steps.keeping import Answering, Given, Keep, arrived, kept_message
from postroad.node.steps.notifying import notification
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, State, Work
from postroad.wire.ebms3 import UserMessage

_USUAL = Answering(None, as_response=True)
"""The receipt is part of the response to all units, or there is none."""


class Newcomers:
    """Units of one step that nobody has seen before, and about which nothing is special."""

    def __init__(
        self, context: Context, tx: Transaction, arrival: Arrival, keep: Keep, ids: Sequence[str]
    ) -> None:
        """`ids` are those of all units, known or not."""
        self._context = context
        self._tx = tx
        self._arrival = arrival
        self._keep = keep
        self._now = context.clock()
        self._tells = context.config.webhook is not None
        known = tx.messages_by_id(Side.RECEIVING, ids)
        self._known = {one.wire_id for one in known.values()}
        self._messages: list[Message] = []
        self._events: list[Event] = []
        self._works: list[Work] = []

    def take(
        self, message: UserMessage, match: Match, how: Answering, payloads: Sequence[Payload]
    ) -> Given | None:
        """A unit that is written with the others; None: it has to be looked at by itself.

        What was taken before is written then, so that the order of the units is kept.
        """
        message_id = message.message_info.message_id
        if message_id in self._known or how != _USUAL or is_reply(match):
            self.write()
            return None
        self._known.add(message_id)
        arrival, tx = self._arrival, self._tx
        state = State.RECEIVED if match.test else State.DELIVERED
        kept = kept_message(self._context, tx, arrival, message, match, state, payloads, self._keep)
        self._messages.append(kept)
        received, events = arrived(arrival, kept, how, self._now)
        self._events += events
        if self._tells:
            self._works += notification(self._context, kept, state, arrival.now)
        return Given(state, None, kept=kept, received=received, stored_id=message_id)

    def write(self) -> None:
        """Write down what was taken."""
        if not self._messages:
            return
        self._tx.add_messages(self._messages)
        self._tx.record(self._events)
        for work in self._works:
            self._tx.add_work(work)
        self._messages, self._events, self._works = [], [], []
