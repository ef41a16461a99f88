"""The comparison: the ledger of the applications beside what the nodes and the pipeline say.

It knows nothing of nodes or files: values in, findings out. A finding is a promise of the
documentation that did not hold.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.agreements import Kind

ON_THE_WAY: Final = ("submitted", "ready", "waiting", "suspended")
YES: Final = ("acknowledged",)
NO: Final = ("failed", "expired")


@dataclass(frozen=True, order=True)
class Finding:
    """A promise that did not hold."""

    what: str
    """lost, doubled, wrongly reported, undecided, order, payload, webhook and so on."""
    message_id: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.message_id}: {self.detail}"


@dataclass(frozen=True)
class Stored:
    """A message of an inbox, consumed or not."""

    message_id: str
    cursor: int


@dataclass
class Books:
    """What the nodes say at the end, each by its name."""

    states: Mapping[str, Mapping[str, tuple[str, str]]]
    """Of each node: state and detail of what it sent, by id."""
    inboxes: Mapping[str, Sequence[Stored]]
    classes: Mapping[str, str] = field(default_factory=dict)
    """What the pipeline says, by id; empty if it did not run."""
    proofs: Mapping[str, bool] = field(default_factory=dict)
    """Whether evidence of a sample holds, by id."""


@dataclass
class _Sent:
    kind: Kind
    sender: str
    receiver: str
    lane: str
    number: int
    digests: list[str]
    accepted: bool = False


class Comparison:
    """All entries of a ledger, and what they are compared with."""

    def __init__(self, kinds: Iterable[Kind], ledger: Iterable[Mapping[str, Any]]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self.sent: dict[str, _Sent] = {}
        self._read: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._digests: dict[str, list[list[str]]] = defaultdict(list)
        self._hook: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._hook_order: list[str] = []
        self.findings: list[Finding] = []
        for entry in ledger:
            self._take(entry)

    def _take(self, entry: Mapping[str, Any]) -> None:
        name = entry["event"]
        if name == "submitting":
            kind = self._kinds[entry["kind"]]
            self.sent[entry["id"]] = _Sent(
                kind,
                entry["sender"],
                entry["receiver"],
                entry["lane"],
                entry["number"],
                entry["digests"],
            )
        elif name == "accepted":
            self.sent[entry["id"]].accepted = True
        elif name == "refused":
            self._find("refused", entry["id"], f"{entry['status']}: {entry['detail']}")
        elif name == "read":
            self._read[entry["id"]].add((entry["node"], entry["cursor"]))
            self._digests[entry["id"]].append(entry["digests"])
        elif name == "after_ack":
            self._find("doubled", entry["id"], "it was in the inbox after it was acknowledged")
        elif name == "behind":
            detail = f"cursor {entry['cursor']} appeared behind {entry['seen']}"
            self._find("order", entry["id"], detail)
        elif name == "told":
            known = self._hook[entry["id"], entry["what"]]
            if entry["what"] == "received" and not known:
                self._hook_order.append(entry["id"])
            known.add(entry["delivery"])

    def _find(self, what: str, message_id: str, detail: str) -> None:
        self.findings.append(Finding(what, message_id, detail))

    def compare(self, books: Books) -> list[Finding]:
        """Return all that does not hold."""
        has = {name: Counter(one.message_id for one in box) for name, box in books.inboxes.items()}
        self._strangers(books)
        for message_id, sent in self.sent.items():
            there = has.get(sent.receiver, Counter())[message_id]
            self._delivery(message_id, sent, there)
            if sent.accepted:
                state, detail = books.states.get(sent.sender, {}).get(message_id, ("", ""))
                self._state(message_id, sent, there, state, detail)
                if books.classes:
                    self._class(message_id, there, state, books.classes.get(message_id))
        self._order(books)
        for message_id, holds in books.proofs.items():
            if not holds:
                self._find("evidence", message_id, "acknowledged, and the evidence does not hold")
        return sorted(self.findings)

    def _strangers(self, books: Books) -> None:
        for name, box in books.inboxes.items():
            for one in box:
                sent = self.sent.get(one.message_id)
                if sent is None or sent.receiver != name:
                    self._find("doubled", one.message_id, f"{name} has it, nobody sent it there")

    def _delivery(self, message_id: str, sent: _Sent, there: int) -> None:
        """At most once, whole, and as the inbox says."""
        if there > 1:
            self._find("doubled", message_id, f"the inbox of {sent.receiver} has it {there} times")
        read = self._read.get(message_id, set())
        if len(read) > 1:
            self._find("doubled", message_id, f"the application read it as {sorted(read)}")
        if there and not read:
            self._find("lost", message_id, "it is in the inbox, the application never saw it")
        if read and not there:
            self._find("lost", message_id, "the application read it, the inbox has it not")
        if any(digests != sent.digests for digests in self._digests.get(message_id, ())):
            self._find("payload", message_id, "other bytes were received than were sent")
        told = self._hook.get((message_id, "received"), set())
        if len(told) > 1:
            self._find("doubled", message_id, f"the webhook was told {len(told)} times")
        if there and not told:
            self._find("webhook", message_id, "it is in the inbox, and the webhook was not told")
        if told and not there:
            self._find("webhook", message_id, "the webhook was told that it came, and it did not")
        if (message_id, "receipt") in self._hook and not there:
            self._find("wrongly reported", message_id, "the webhook was told of a receipt")

    def _state(self, message_id: str, sent: _Sent, there: int, state: str, detail: str) -> None:
        """What the sender's node says is true."""
        if not state:
            self._find("lost", message_id, f"{sent.sender} accepted it and does not know it")
        elif state in ON_THE_WAY or state == "in_doubt":
            self._find("undecided", message_id, f"it is still {state}: {detail}")
        elif state in YES and not there:
            self._find("lost", message_id, f"it is {state}, and {sent.receiver} does not have it")
        elif state in NO and there:
            self._find("wrongly reported", message_id, f"{state}, and {sent.receiver} has it")
        elif state in NO and not sent.kind.doubtful:
            self._find("undecided", message_id, f"{state} by a patient P-Mode: {detail}")
        elif state == "settled":
            arrived = "not_received" not in detail
            if arrived != bool(there):
                self._find("wrongly reported", message_id, f"settled as {detail}, there: {there}")
        elif state == "sent":
            if sent.kind.acknowledged:
                self._find("undecided", message_id, "it is sent, and was never acknowledged")
            elif not there and not sent.kind.best_effort:
                self._find("lost", message_id, f"it is {state}, {sent.receiver} has it not")
        expected = {"acknowledged": "receipt", "failed": "failed", "expired": "failed"}.get(state)
        if expected and (message_id, expected) not in self._hook:
            self._find("webhook", message_id, f"it is {state}, and the webhook was not told")

    def _class(self, message_id: str, there: int, state: str, name: str | None) -> None:
        """What the pipeline says about it is true."""
        if name is None:
            self._find("pipeline", message_id, "the reconciliation does not have it")
        elif name in ("twice", "lost"):
            self._find("pipeline", message_id, f"it is called {name}")
        elif there and name != "confirmed":
            if not (name == "ghost" and state in (*NO, "in_doubt", "settled")):
                self._find("pipeline", message_id, f"{state} and delivered is called {name}")
        elif not there:
            wrong = name in ("confirmed", "ghost")
            if wrong or (state in NO and name not in ("failed", "refused")):
                self._find("pipeline", message_id, f"{state} and not delivered is called {name}")

    def _order(self, books: Books) -> None:
        """Where order is promised, numbers of a lane ascend."""
        for box in books.inboxes.values():
            ordered = [one.message_id for one in sorted(box, key=lambda one: one.cursor)]
            self._ascends(ordered, "inbox", hook=False)
        self._ascends(self._hook_order, "webhook", hook=True)

    def _ascends(self, ids: Iterable[str], where: str, *, hook: bool) -> None:
        last: dict[str, tuple[int, str]] = {}
        for message_id in ids:
            sent = self.sent.get(message_id)
            if sent is None or sent.kind.lane is None or (hook and not sent.kind.hook_order):
                continue
            before = last.get(sent.lane)
            if before is not None and before[0] > sent.number:
                self._find("order", message_id, f"{where}: it came after {before[1]}")
            last[sent.lane] = max(before or (0, ""), (sent.number, message_id))
