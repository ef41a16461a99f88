"""The checker itself: it notices each promise that a doctored ledger or book breaks."""

import re
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.agreements import BUYER, HUB, SELLER, Agreements, Kind
from tests.chaos.ledger import Ledger, read_ledger
from tests.chaos.storm import Outcome, Plan, Watch
from tests.chaos.tally import BEGIN, END, record
from tests.chaos.verdict import Books, Comparison, Finding, Stored

KINDS = [
    Kind("plain", {}),
    Kind("ordered", {}, lane="pmode", hook_order=True),
    Kind("silent", {}, acknowledged=False, doubtful=True),
]
FIRST = "plain-1@buyer.example"
ORDERED = "ordered-1@buyer.example"
SECOND = "ordered-2@buyer.example"
SILENT = "silent-1@buyer.example"


@dataclass
class Case:
    """A ledger and books in which every promise holds."""

    ledger: list[dict[str, Any]]
    states: dict[str, tuple[str, str]]
    inbox: list[Stored]
    classes: dict[str, str]
    proofs: dict[str, bool]

    def findings(self) -> list[Finding]:
        books = Books(
            {BUYER: self.states, SELLER: {}},
            {BUYER: [], SELLER: self.inbox},
            self.classes,
            self.proofs,
        )
        return Comparison(KINDS, self.ledger).compare(books)

    def drop(self, event: str, message_id: str, **values: Any) -> None:
        wanted = {"event": event, "id": message_id, **values}
        left = [one for one in self.ledger if not wanted.items() <= one.items()]
        assert len(left) < len(self.ledger)
        self.ledger = left


def whole() -> Case:
    ledger: list[dict[str, Any]] = []
    inbox = []
    for cursor, (message_id, kind) in enumerate(
        {FIRST: "plain", ORDERED: "ordered", SECOND: "ordered", SILENT: "silent"}.items(), 1
    ):
        common = {"kind": kind, "sender": BUYER, "receiver": SELLER, "lane": kind}
        number = int(message_id.split("@")[0][-1])
        ledger += [
            {"event": "submitting", "id": message_id, "number": number, "digests": ["d"], **common},
            {"event": "accepted", "id": message_id},
            {"event": "read", "id": message_id, "node": SELLER, "cursor": cursor, "digests": ["d"]},
            {"event": "told", "id": message_id, "what": "received", "delivery": f"a{cursor}"},
        ]
        if kind != "silent":
            ledger.append(
                {"event": "told", "id": message_id, "what": "receipt", "delivery": f"b{cursor}"}
            )
        inbox.append(Stored(message_id, cursor))
    states = {one.message_id: ("acknowledged", "") for one in inbox} | {SILENT: ("sent", "")}
    classes = dict.fromkeys(states, "confirmed")
    return Case(ledger, states, inbox, classes, {FIRST: True})


def never_arrived(case: Case) -> None:
    """Nothing of the first message is at the receiver."""
    case.inbox = case.inbox[1:]
    case.drop("read", FIRST)
    case.drop("told", FIRST, what="received")


def lose(case: Case) -> None:
    never_arrived(case)
    case.drop("told", FIRST, what="receipt")


def forget(case: Case) -> None:
    del case.states[FIRST]


def lose_in_inbox(case: Case) -> None:
    case.drop("read", FIRST)


def lose_what_was_taken(case: Case) -> None:
    case.inbox.pop()
    case.drop("read", SILENT)
    case.drop("told", SILENT, what="received")
    case.classes[SILENT] = "pending"


def double(case: Case) -> None:
    case.inbox.append(Stored(FIRST, 9))


def read_twice(case: Case) -> None:
    case.ledger.append(
        {"event": "read", "id": FIRST, "node": SELLER, "cursor": 9, "digests": ["d"]}
    )


def come_back(case: Case) -> None:
    case.ledger.append({"event": "after_ack", "id": FIRST})


def tell_twice(case: Case) -> None:
    case.ledger.append({"event": "told", "id": FIRST, "what": "received", "delivery": "other"})


def invent(case: Case) -> None:
    case.inbox.append(Stored("nobody-1@buyer.example", 9))


def call_failed(case: Case) -> None:
    case.states[FIRST] = ("failed", "refused")
    case.ledger.append({"event": "told", "id": FIRST, "what": "failed", "delivery": "f"})


def settle_wrongly(case: Case) -> None:
    case.states[FIRST] = ("settled", "not_received")


def tell_of_receipt(case: Case) -> None:
    never_arrived(case)
    case.states[FIRST] = ("settled", "not_received")
    case.classes[FIRST] = "failed"


def leave_in_doubt(case: Case) -> None:
    case.states[FIRST] = ("in_doubt", "no receipt came")


def never_acknowledge(case: Case) -> None:
    case.states[FIRST] = ("sent", "")


def alter(case: Case) -> None:
    next(one for one in case.ledger if one["event"] == "read")["digests"] = ["other"]


def swap_in_inbox(case: Case) -> None:
    case.inbox[1], case.inbox[2] = Stored(ORDERED, 3), Stored(SECOND, 2)


def swap_at_webhook(case: Case) -> None:
    moved = next(one for one in case.ledger if one["event"] == "told" and one["id"] == ORDERED)
    case.ledger.remove(moved)
    case.ledger.append(moved)


def tell_nobody(case: Case) -> None:
    case.drop("told", FIRST, what="received")


def tell_no_end(case: Case) -> None:
    case.drop("told", FIRST, what="receipt")


def refuse(case: Case) -> None:
    case.ledger.append({"event": "refused", "id": FIRST, "status": 409, "detail": "other content"})


def call_it_lost(case: Case) -> None:
    case.classes[FIRST] = "lost"


def call_it_pending(case: Case) -> None:
    case.classes[FIRST] = "pending"


def leave_out_of_lake(case: Case) -> None:
    del case.classes[FIRST]


def disprove(case: Case) -> None:
    case.proofs[FIRST] = False


def test_where_every_promise_holds_nothing_is_found() -> None:
    assert whole().findings() == []


@pytest.mark.parametrize(
    ("doctor", "what"),
    [
        (lose, "lost"),
        (forget, "lost"),
        (lose_in_inbox, "lost"),
        (lose_what_was_taken, "lost"),
        (double, "doubled"),
        (read_twice, "doubled"),
        (come_back, "doubled"),
        (tell_twice, "doubled"),
        (invent, "doubled"),
        (call_failed, "wrongly reported"),
        (settle_wrongly, "wrongly reported"),
        (tell_of_receipt, "wrongly reported"),
        (leave_in_doubt, "undecided"),
        (never_acknowledge, "undecided"),
        (alter, "payload"),
        (swap_in_inbox, "order"),
        (swap_at_webhook, "order"),
        (tell_nobody, "webhook"),
        (tell_no_end, "webhook"),
        (refuse, "refused"),
        (call_it_lost, "pipeline"),
        (call_it_pending, "pipeline"),
        (leave_out_of_lake, "pipeline"),
        (disprove, "evidence"),
    ],
)
def test_a_broken_promise_is_found(doctor: Callable[[Case], None], what: str) -> None:
    case = whole()
    doctor(case)
    assert what in {one.what for one in case.findings()}


def test_a_message_that_failed_and_did_not_arrive_is_no_finding() -> None:
    case = whole()
    case.inbox.pop()
    case.drop("read", SILENT)
    case.drop("told", SILENT, what="received")
    case.states[SILENT] = ("failed", "connection refused")
    case.classes[SILENT] = "failed"
    case.ledger.append({"event": "told", "id": SILENT, "what": "failed", "delivery": "f"})
    assert case.findings() == []
    again = deepcopy(case)
    again.classes[SILENT] = "pending"
    assert [one.what for one in again.findings()] == ["pipeline"]


def test_what_was_never_accepted_owes_nothing_but_may_come_once_at_most() -> None:
    case = whole()
    case.drop("accepted", FIRST)
    case.states.pop(FIRST)
    case.drop("told", FIRST, what="receipt")
    assert case.findings() == []
    double(case)
    assert [one.what for one in case.findings()] == ["doubled"]


def test_a_ledger_reads_back_what_was_written(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        for number in range(3):
            ledger.write("accepted", id=str(number))
        assert ledger.lines == 3
        on_disk = list(read_ledger(tmp_path / "ledger"))
    assert on_disk == [{"event": "accepted", "id": str(number)} for number in range(3)]


def test_the_storm_is_given_up_only_when_nothing_moves() -> None:
    now = 0.0
    watch = Watch(60, clock=lambda: now)
    for step in range(10):
        now += 59
        assert watch.moves(step)
    now += 61
    assert not watch.moves(9)


def test_all_kinds_have_names_of_their_own_and_both_parties_send() -> None:
    urls = {name: f"http://127.0.0.1:1/{name}" for name in (BUYER, SELLER, HUB)}
    kinds = Agreements(urls, {BUYER: "b@example", SELLER: "s@example"}).kinds
    assert len({kind.name for kind in kinds}) == len(kinds) >= 40
    assert {kind.sender for kind in kinds} == {BUYER, SELLER}


def test_the_checker_is_independent_of_the_product_and_of_the_other_checkers() -> None:
    foreign = re.compile(r"^(?:from|import) (?:postroad|tests(?!\.chaos))\b", re.MULTILINE)
    guilty = [
        path.name
        for path in Path(__file__).parent.glob("*.py")
        if foreign.search(path.read_text(encoding="utf-8"))
    ]
    assert guilty == []


def test_the_tally_replaces_what_stands_between_the_markers() -> None:
    outcome = Outcome(
        Plan(1, 1, 7),
        [],
        Counter(plain=3),
        Counter(acknowledged=3),
        {"links": {"reset": 2}},
        {"messages": 3, "kinds": 1, "seconds": 60},
    )
    page = record(f"before\n{BEGIN}\nold\n{END}\nafter\n", outcome)
    assert page.startswith(f"before\n{BEGIN}\nSeed 7: 3 messages of 1 kinds in 1 minutes.")
    assert page.endswith(f"{END}\nafter\n")
    assert "old" not in page
    assert record(page, outcome) == page
