"""What a receiver may answer, watched on the wire: nothing that is not durable, never two things.

Part of the first oracle: a receipt leaves only when the message is kept, a copy gets the first
receipt byte for byte, and options about the moment of a receipt are obeyed.
"""

from collections.abc import Callable, Mapping

from postroad.store.records import Message, Side, State
from tests.sim.history import History
from tests.sim.network import Transmission
from tests.sim.plan import Planned

Find = Callable[[str, Side, str], Message | None]
"""The row of a message on the disk of a party, as it is now."""
FindReceived = Callable[[str, str, str], Message | None]
"""The same on the disk of its receiver, by receiver, sender and id."""


class Receipts:
    """Sees every receipt that leaves a receiver, as a response or as a request of its own."""

    def __init__(
        self,
        plan: Mapping[tuple[str, str], Planned],
        find: FindReceived,
        took: Callable[[Planned], bool],
        history: History,
    ) -> None:
        self._plan = plan
        self._find = find
        self._took = took
        self._history = history
        self._first: dict[tuple[str, str, str], bytes] = {}
        self.given: set[tuple[str, str]] = set()
        """By receiver and message id: receipts that were given to the transport."""

    def responded(self, sent: Transmission, body: bytes) -> None:
        """The receiver answers a request."""
        if sent.message_id is None or sent.is_signal:
            return
        receipt = _receipt(body, sent.message_id)
        if receipt is not None:
            planned = self._plan.get((sent.sender, sent.message_id))
            rides = planned is not None and planned.kind.binding == "sync"
            self._leaves(sent.sender, sent.receiver, sent.message_id, receipt if rides else body)

    def called(self, sent: Transmission) -> None:
        """A signal leaves as a request: from the receiver of the message to its sender."""
        if sent.message_id is not None and sent.is_signal and b":Receipt" in sent.body:
            self._leaves(sent.receiver, sent.sender, sent.message_id, sent.body)

    def _leaves(self, sender: str, receiver: str, message_id: str, body: bytes) -> None:
        planned = self._plan.get((sender, message_id))
        if planned is None or not self._took(planned):
            self._history.fail(f"{receiver} gives a receipt for what it has not", message_id)
            return
        first = self._first.setdefault((sender, receiver, message_id), body)
        if first != body:
            self._history.fail(f"{receiver} gives two different receipts", message_id)
        row = self._find(receiver, sender, message_id)
        afterwards = planned.kind.awareness.get("ack_after_delivery")
        if afterwards and row is not None and row.state is not State.CONSUMED:
            self._history.fail("its receipt leaves before the application has it", message_id)
        if (receiver, message_id) in self.given:
            self._history.mark("first response again")
        self.given.add((receiver, message_id))


def _receipt(body: bytes, message_id: str) -> bytes | None:
    """The receipt for it; in the answer to a bundle there may be receipts for other units only.

    That of a request rides on its reply, and when that was refused on another, or on none.
    """
    signals = body.split(b"SignalMessage>")
    about = b"RefToMessageId>%s<" % message_id.encode()
    return next((one for one in signals if b":Receipt" in one and about in one), None)
