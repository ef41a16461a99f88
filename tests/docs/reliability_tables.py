"""The tables of docs/reliability.md, drawn from the code.

`python -m tests.docs.reliability_tables` writes them into the page; a test compares.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import yaml

from postroad.agreement.pmode import PMode
from postroad.reliability import (
    awareness,
    breaker,
    delivery,
    ebxml,
    ebxml_sending,
    link,
    link_receiver,
    order,
    wsreliability,
    wsrm,
)
from postroad.reliability.agreed import policy_of
from postroad.reliability.delivery import Input, Life, Stage
from postroad.reliability.tables import markdown
from tests.conftest import PROJECT

PAGE: Final = PROJECT / "docs" / "reliability.md"
_TABLE: Final = re.compile(r"(?<=<!-- table: )(\w+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
_EXAMPLE: Final = re.compile(r"<!-- example: orders\.yaml -->\n```yaml\n(.*?)```", re.DOTALL)
_NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def rows(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table of these columns."""
    heads = list(heads)
    drawn = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in drawn)


def _copies() -> str:
    known = awareness.RECEPTION.items()
    return rows(
        ("known under the id", "what comes", "what is done"),
        ((has.value, came.value, done.value) for has, row in known for came, done in row.items()),
    )


def _answers() -> str:
    pairs = awareness.ANSWERS.items()
    return rows(("what comes back", "what it is"), ((one.value, is_.value) for one, is_ in pairs))


def _order() -> str:
    places = order.TABLE.items()
    return rows(
        ("status", "the number is", "what is done"),
        ((one.value, at.value, done.value) for one, row in places for at, done in row.items()),
    )


def _ebxml_receiving() -> str:
    draft = ebxml.RECEIVING[ebxml.Profile.RM000]
    cases = ebxml.RECEIVING[ebxml.Profile.MS098].items()
    return rows(
        ("what comes", "what is done", "in draft 000"),
        (
            (case.value, _steps(steps), "" if draft[case] == steps else _steps(draft[case]))
            for case, steps in cases
        ),
    )


def _steps(steps: Iterable[ebxml.Step]) -> str:
    return ", ".join(step.value for step in steps) or "nothing"


def _ebxml_words() -> str:
    words = ebxml_sending.WORDS
    return rows(
        ("what an answer says", "what it is"),
        (
            (one.value, words[one].value if one in words else "nothing")
            for one in ebxml_sending.Word
        ),
    )


def _link_receiver() -> str:
    cases = link_receiver.CASES.items()
    return rows(
        ("case", "the message", "the answer"),
        (
            (case.value, "is stored and processed" if keep else "is discarded", answer.value)
            for case, (keep, answer) in cases
        ),
    )


def _wsrm_destination() -> str:
    plain = wsrm.AS_IT_COMES
    return rows(
        ("the sequence is", "the number is", "what is done", "without order"),
        (
            (stage.value, at.value, done.value, _unlike(plain[stage][at], done))
            for stage, row in wsrm.IN_ORDER.items()
            for at, done in row.items()
        ),
    )


def _wsr_receiving() -> str:
    return rows(
        ("what comes", "what is done", "fault"),
        (
            (one.value, verdict.done.value, verdict.fault.value if verdict.fault else "")
            for one, verdict in wsreliability.RECEIVING.items()
        ),
    )


def _link() -> str:
    again = {True: "sent again, if a retry is left", False: "failed, and passed up"}
    return rows(
        ("error", "the message is", "the Receiver is"),
        (
            (one.value, again[what.resends], "suspended meanwhile" if what.suspends else "")
            for one, what in link.RECOVERIES.items()
        ),
    )


def _wsr_replies() -> str:
    return rows(
        ("a reply", "what it is"),
        (
            (fault.value if fault else "an acknowledgment", given.value)
            for fault, given in wsreliability.REPLIES.items()
        ),
    )


def _unlike(other: wsrm.Verdict, usual: wsrm.Verdict) -> str:
    return "" if other is usual else other.value


def _timeline() -> str:
    """What the example of the page does to a message that is never answered."""
    found = _EXAMPLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    policy = policy_of(PMode.model_validate(yaml.safe_load(found[1])).legs[0])
    life, at, lines = Life(Stage.READY, _NOON), _NOON, []
    while (over := delivery.woken(life, policy, at)) is None:
        decision = delivery.attempted(life, Input.UNANSWERED, policy, began=at, now=at, hope=True)
        assert decision.due is not None
        assert decision.decided_by is not None
        what = "it is sent" if not life.tries else f"retry {life.tries}"
        lines.append((_time(at), what, decision.life.stage.value, _time(decision.decided_by)))
        life, at = decision.life, decision.due
    lines.append((_time(at), "it is given up", over.life.stage.value, ""))
    return rows(("time", "what happens", "state", "decided by"), lines)


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S}"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "timeline": _timeline,
    "delivery": lambda: markdown(delivery.TABLE),
    "answers": _answers,
    "copies": _copies,
    "breaker": lambda: markdown(breaker.TABLE),
    "ebxml_receiving": _ebxml_receiving,
    "ebxml_words": _ebxml_words,
    "order": _order,
    "link": _link,
    "link_receiver": _link_receiver,
    "wsrm_source": lambda: markdown(wsrm.SOURCE),
    "wsrm_destination": _wsrm_destination,
    "wsr_receiving": _wsr_receiving,
    "wsr_replies": _wsr_replies,
}


def drawn(page: str) -> str:
    """The page with its tables as the code has them."""
    return _TABLE.sub(lambda one: f"{one[1]}{one[2]}{TABLES[one[1]]()}\n", page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
