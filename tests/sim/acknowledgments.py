"""What ebXML's acknowledgments may say, watched on the wire, whoever carries them.

The To Party acknowledges what it has, an MSH on the way what it keeps to pass it on; a copy gets
the first acknowledgment again.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.sim.history import History
from tests.sim.network import Transmission
from tests.sim.plan import Planned
from tests.sim.replay import Replay

_ACTION: Final = re.compile(
    rb"<eb:Action>Acknowledge?ment</eb:Action>|>Acknowledgement</rm:MessageType>"
)
_ERROR: Final = re.compile(rb"<eb:Action>MessageError</eb:Action>|>Error</rm:MessageType>")
_OWN: Final = re.compile(rb"<eb:MessageId>([^<]*)<")
_FROM: Final = re.compile(rb"<eb:From>.*?<eb:PartyId[^>]*>([^<]*)<", re.DOTALL)
_REF: Final = re.compile(rb"<eb:RefToMessageId>([^<]*)<")
_TRACE: Final = re.compile(rb"<eb:TraceHeaderList.*</eb:TraceHeaderList>", re.DOTALL)


def without_trace(body: bytes) -> bytes:
    """All that does not change from hop to hop."""
    return _TRACE.sub(b"", body)


class Acknowledgments:
    """Sees every acknowledgment of an ebXML message that leaves somebody."""

    def __init__(
        self,
        plan: Mapping[tuple[str, str], Planned],
        names: Mapping[str, str],
        took: Callable[[Planned], bool],
        replays: Mapping[str, Replay],
        history: History,
    ) -> None:
        self._plan = plan
        self._names = names
        self._took = took
        self._replays = replays
        self._history = history
        self._errors: set[bytes] = set()
        """The ids of errors that somebody sent."""
        self._first: dict[tuple[str, str], bytes] = {}
        self.given_by_relay: set[tuple[str, str]] = set()
        """By relay and message id."""

    def responded(self, sent: Transmission, body: bytes) -> None:
        """Somebody answers a request."""
        self._look(sent.receiver, body)

    def called(self, sent: Transmission) -> None:
        self._look(sent.sender, sent.body)

    def _look(self, at: str, body: bytes) -> None:
        if _ERROR.search(body) and (own := _OWN.search(body)) is not None:
            self._errors.add(own[1])
        if not _ACTION.search(body):
            return
        ref, by = _REF.search(body), _FROM.search(body)
        if ref is None or by is None:
            self._history.fail(f"{at} acknowledges nothing, or as nobody")
            return
        if ref[1] in self._errors:
            # A notice that a message was not delivered is sent reliably itself.
            self._history.mark("notice acknowledged")
            return
        message_id, who = ref[1].decode(), by[1].decode()
        receiver = self._names.get(who, at)
        planned = [
            one
            for (_, known), one in self._plan.items()
            if known == message_id and one.receiver == receiver
        ]
        # Over a link everybody goes by a URI.
        if planned or who in self._names:
            self._by_receiver(receiver, message_id, planned, body)
        else:
            self._by_relay(at, message_id)

    def _by_receiver(
        self, receiver: str, message_id: str, planned: Sequence[Planned], body: bytes
    ) -> None:
        if not any(map(self._took, planned)):
            self._history.fail(f"{receiver} acknowledges what it has not", message_id)
            return
        if any(one.kind.is_linked for one in planned) or len(planned) > 1:
            return
        said = without_trace(body)
        if self._first.setdefault((receiver, message_id), said) != said:
            self._history.fail(f"{receiver} gives two different acknowledgments", message_id)

    def _by_relay(self, relay: str, message_id: str) -> None:
        known = self._replays[relay].carried.get(message_id)
        if known is None or not known.received:
            self._history.fail(f"{relay} acknowledges what it does not carry", message_id)
        self._history.mark("hop acknowledged")
        self.given_by_relay.add((relay, message_id))
