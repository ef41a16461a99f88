"""Two-way exchanges: a request has its reply once, and both ends say the same of it.

Part of the first oracle: who answers gives one reply away, as the response where that is agreed on,
the same bytes each time; who asked takes one, for a request of its own, and notes it in the same
step.
"""

from collections.abc import Callable, Mapping
from typing import Final

from postroad.store.records import Event, Message, Side, State
from tests.sim.history import History
from tests.sim.network import Transmission
from tests.sim.plan import Planned
from tests.sim.receipts import Find

_GIVEN_UP: Final = (State.EXPIRED, State.FAILED, State.IN_DOUBT, State.SETTLED)
Took = Callable[[Planned], bool]


class Exchanges:
    """Sees every reply."""

    def __init__(
        self,
        plan: Mapping[tuple[str, str], Planned],
        find: Find,
        took: Took,
        history: History,
    ) -> None:
        self._plan = plan
        self._find = find
        self._took = took
        self._history = history
        self._requests = {
            (one.receiver, one.message_id) for one in plan.values() if one.kind.reply is not None
        }
        self._replies = {
            (one.receiver, one.message_id): one.answers
            for one in plan.values()
            if one.answers is not None
        }
        """What a reply answers, by who gets it and its id."""
        self._bodies: dict[tuple[str, str], bytes] = {}
        """What was the response first, by who answers and its id."""
        self._answered: dict[tuple[str, str], str] = {}
        """The reply that an application got, by who asked and the request's id."""
        self.too_late: set[tuple[str, str]] = set()
        """Requests, by sender and id, whose reply was refused since nobody waited any longer."""

    def responded(self, sent: Transmission, message_id: str, body: bytes, times: int) -> None:
        """A message is the response to another one, for so manieth time."""
        reply = self._plan.get((sent.receiver, message_id))
        row = self._find(sent.receiver, Side.SENDING, message_id)
        request = reply.answers if reply is not None else None
        wrong = None
        if request is None or (request.sender, request.message_id) != (
            sent.sender,
            sent.message_id,
        ):
            wrong = f"{sent.receiver} gives it to {sent.sender} as the response to another message"
        elif request.kind.binding != "sync":
            wrong = "it is a response, and that is not agreed on"
        elif row is not None and row.attempts < times:
            wrong = "it was the response, and that was not written down before"
        elif self._bodies.setdefault((sent.receiver, message_id), body) != body:
            wrong = "given again with other bytes"
        if wrong is not None:
            self._history.fail(wrong, message_id)
        self._history.mark("a reply as response" if times == 1 else "the same response again")

    def delivered(self, name: str, event: Event) -> None:
        """An application gets a message: if it is a reply, it is the only one."""
        message_id = event.message_id or ""
        if (name, message_id) in self._requests:
            self._history.mark("a request is there")
        request = self._replies.get((name, message_id))
        if request is None:
            return
        self._history.mark("answered")
        before = self._answered.setdefault((name, request.message_id), message_id)
        if before != message_id:
            said = f"{request.message_id} is answered twice, by {before} too"
            self._history.fail(said, message_id)
        row = self._find(name, Side.SENDING, request.message_id)
        if row is not None and row.reply_message_id != message_id:
            self._history.fail(f"{name} did not note at its request what answers it", message_id)
        late = row is not None and row.late
        self._history.mark("a late reply" if late else f"a reply by {request.kind.binding}")

    def row(self, name: str, row: Message) -> None:
        """What either end says of the reply to a request is true."""
        if row.reply_message_id is None:
            return
        sends = row.side is Side.SENDING
        reply = next(one for one in self._plan.values() if one.message_id == row.reply_message_id)
        request = reply.answers
        end = None if request is None else request.sender if sends else request.receiver
        if request is None or (end, request.message_id) != (name, row.wire_id):
            self._history.fail(f"{name} takes {reply.message_id} for its reply", row.message_id)
        elif sends and not self._took(reply):
            self._history.fail(f"{name} says it was answered, and has no reply", row.message_id)
        elif not sends and self._find(name, Side.SENDING, reply.message_id) is None:
            # Forgotten together with it, or never there.
            self._history.mark("the reply is forgotten before its request")

    def close(self, accepted: Mapping[tuple[str, str], Planned]) -> None:
        """Once all is at rest: who has a reply has noted it, and the other end knows that."""
        for (sender, message_id), planned in accepted.items():
            request = planned.answers
            row = self._find(sender, Side.SENDING, message_id)
            if request is None or row is None:
                continue
            asked = self._find(request.sender, Side.SENDING, request.message_id)
            known = asked.reply_message_id if asked is not None else message_id
            if row.state is State.ACKNOWLEDGED and known != message_id:
                self._history.fail(f"acknowledged, and {known} answers the request", message_id)
            if self._took(planned) and known != message_id:
                self._history.fail("it is there, and its request does not know it", message_id)

    def unanswered(self, accepted: Mapping[tuple[str, str], Planned]) -> list[str]:
        """Requests that are still in an inbox."""
        return [
            f"{one.receiver} has not answered {one.message_id}"
            for one in accepted.values()
            if one.kind.reply is not None and self._waits(one)
        ]

    def is_over(self, sender: str, message_id: str) -> bool:
        """Whether the reply to a request was given up: who asked goes on asking for it."""
        replies = [
            self._find(one.sender, Side.SENDING, one.message_id)
            for one in self._plan.values()
            if one.answers is not None
            and (one.answers.sender, one.answers.message_id) == (sender, message_id)
        ]
        found = [one for one in replies if one is not None]
        return bool(found) and all(one.state in _GIVEN_UP for one in found)

    def _waits(self, request: Planned) -> bool:
        row = self._find(request.receiver, Side.RECEIVING, request.message_id)
        return row is not None and row.state is State.DELIVERED and self._took(request)
