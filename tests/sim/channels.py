"""What may be the answer to a PullRequest, watched on the wire.

Part of the first oracle: a message is handed out to its receiver only, once for each request, after
the attempt was written down, and with the same bytes each time.
"""

from collections.abc import Callable, Mapping

from postroad.store.records import Message, Side
from tests.sim.history import History
from tests.sim.network import Transmission
from tests.sim.plan import Planned
from tests.sim.receipts import Find


class Channels:
    """Sees every message that is pulled."""

    def __init__(
        self,
        plan: Mapping[tuple[str, str], Planned],
        ids: Mapping[str, str],
        find: Find,
        is_halted: Callable[[str, str], bool],
        history: History,
    ) -> None:
        self._plan = plan
        self._ids = ids
        self._find = find
        self._is_halted = is_halted
        self._history = history
        self._bodies: dict[tuple[str, str], bytes] = {}
        """What was handed out first, by sender and message id."""
        self._served: set[bytes] = set()
        """PullRequests, copies or not, that brought a message."""

    def handed_out(self, sent: Transmission, times: Mapping[str, int], body: bytes) -> None:
        """Messages are the answer to a PullRequest, each for so manieth time."""
        for message_id, many in times.items():
            self._handed_out(sent, message_id, body, many)
        if len(times) > 1:
            self._history.mark("handed out in a bundle")
        self._served.add(sent.body)

    def _handed_out(self, sent: Transmission, message_id: str, body: bytes, times: int) -> None:
        sender, receiver = sent.receiver, sent.sender
        planned = self._plan.get((sender, message_id))
        row = self._find(sender, Side.SENDING, message_id)
        wrong = None
        if planned is None or planned.receiver != receiver or planned.kind.pulling is None:
            wrong = f"{sender} hands it out to {receiver}"
        elif sent.body in self._served:
            wrong = "one PullRequest brings two messages"
        elif not _is_written(row, times):
            wrong = "it was handed out, and that was not written down before"
        elif self._bodies.setdefault((sender, message_id), body) != body:
            wrong = "handed out again with other bytes"
        elif self._is_halted(sender, self._ids[receiver]):
            wrong = f"handed out to {receiver}, who is suspended"
        if wrong is not None:
            self._history.fail(wrong, message_id)
        self._history.mark("handed out" if times == 1 else "handed out again")


def _is_written(row: Message | None, times: int) -> bool:
    """Whether so many attempts are known; nobody can tell of a message that was removed."""
    return row is None or row.attempts >= times
