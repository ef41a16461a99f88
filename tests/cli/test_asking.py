"""Commands that ask partners: whether they are there, and what became of a message."""

import json
from datetime import UTC, datetime

import pytest

from postroad.cli.showing import moment
from postroad.store.records import State
from tests.api.memory_service import ORDERS, MemoryService
from tests.api.site import Site
from tests.api.world import MemoryWorld
from tests.cli.conftest import Run, one_line

AT = datetime(2026, 11, 15, 8, 57, 2, tzinfo=UTC)
ADDRESS = "http://seller.example/msh"
SAID = {
    "Received": "the partner has it",
    "Processed": "the partner has processed it",
    "Forwarded": "it was passed on towards the partner",
    "NotRecognized": "the partner does not know it",
    "UnAuthorized": "the partner does not tell us",
}
NOTE = "write it down with: postroad query m@b --settle"
AGAIN = "send it again with: postroad resend m@b"
OTHERWISE = (
    "ask the partner by other means, and note the answer with: "
    "postroad settle m@b --answer delivered"
)
NEXT = [
    ("in_doubt", "Received", NOTE),
    ("expired", "Processed", NOTE),
    ("in_doubt", "NotRecognized", AGAIN),
    ("sent", "NotRecognized", AGAIN),
    ("expired", "NotRecognized", "submit it again under another id"),
    ("suspended", "NotRecognized", "go on with: postroad resume seller"),
    ("waiting", "NotRecognized", None),
    ("acknowledged", "Received", None),
    ("acknowledged", "UnAuthorized", None),
    ("failed", "UnAuthorized", OTHERWISE),
]
"""How a message stands, what the partner says of it, and what is to be done then."""


@pytest.fixture
def older(ask: Run, site: Site, world: MemoryWorld) -> MemoryService:
    """A node that has sent m@b in the older tongue, and is in doubt about it."""
    ask("send", "--pmode", ORDERS.id, "--message-id", "m@b")
    site.run(world.doubt("m@b"))
    site.run(world.service.change(world.service.outgoing("m@b"), protocol="ebxml-2.0"))
    return world.service


def facts(text: str) -> dict[str, str]:
    """What is shown, by name."""
    return {line[:9].strip(): line[9:].strip() for line in text.splitlines()}


# ping


def test_a_partner_that_answers_is_told_with_address_and_time(ask: Run) -> None:
    answered = ask("ping", ORDERS.id)
    assert (answered.exit_code, answered.stderr) == (0, "")
    assert answered.stdout == f"{ADDRESS} answers Pong, after 0.040 s\n"


def test_a_ping_is_told_to_machines(ask: Run) -> None:
    told = json.loads(ask("ping", ORDERS.id, "--json").stdout)
    assert told == {
        "pmode": ORDERS.id,
        "answer": "Pong",
        "address": ADDRESS,
        "seconds": 0.04,
        "detail": None,
    }


def test_a_partner_that_does_not_answer_is_a_failure(ask: Run, world: MemoryWorld) -> None:
    world.service.will_say(None, detail="connection refused")
    silent = ask("ping", ORDERS.id)
    assert (silent.exit_code, silent.stdout) == (1, "")
    assert one_line(silent) == (
        f"postroad: {ADDRESS} does not answer: connection refused; "
        f"see whether {ORDERS.id} has the right address, and ask again"
    )


def test_machines_are_told_of_silence_too(ask: Run, world: MemoryWorld) -> None:
    world.service.will_say(None, detail="connection refused")
    silent = ask("ping", ORDERS.id, "--json")
    assert silent.exit_code == 1
    assert json.loads(silent.stdout)["answer"] is None
    assert one_line(silent)


def test_an_unknown_p_mode_cannot_be_pinged(ask: Run) -> None:
    assert "There is no P-Mode nobody" in one_line(ask("ping", "nobody"))


@pytest.mark.parametrize("command", [("ping", ORDERS.id), ("query", "m@b")])
def test_an_answer_is_waited_for_as_long_as_is_said(
    ask: Run, older: MemoryService, command: tuple[str, str]
) -> None:
    older.will_say("Received")
    ask(*command)
    assert older.patience == 10
    ask(*command, "--wait", "0.5")
    assert older.patience == 0.5
    assert ask(*command, "--wait", "0").exit_code == 2


# query


def test_what_the_partner_says_is_told_in_words(ask: Run, older: MemoryService) -> None:
    for word, said in SAID.items():
        older.will_say(word)
        answered = ask("query", "m@b")
        assert (answered.exit_code, answered.stderr) == (0, "")
        told = facts(answered.stdout)
        assert (told["message"], told["partner"]) == ("m@b", "seller")
        assert told["answer"] == f"{word}: {said}"
        assert told["asked"] == f"{ADDRESS}, 0.040 s"
        assert "received" not in told


def test_an_answer_that_proves_nothing_is_told_with_its_reason(
    ask: Run, older: MemoryService
) -> None:
    older.will_say("NotRecognized", detail="the partner may have forgotten it")
    told = facts(ask("query", "m@b").stdout)
    assert (told["but"], told["to do"]) == ("the partner may have forgotten it", OTHERWISE)


def test_it_is_told_when_the_partner_received_it(ask: Run, older: MemoryService) -> None:
    older.will_say("Received", AT)
    assert facts(ask("query", "m@b").stdout)["received"] == moment(AT)


def test_it_is_told_what_to_do_next(ask: Run, site: Site, older: MemoryService) -> None:
    for state, word, what in NEXT:
        site.run(older.change(older.outgoing("m@b"), state=State(state)))
        older.will_say(word)
        assert facts(ask("query", "m@b").stdout).get("to do") == what, (state, word)


def test_what_was_said_to_be_lost_and_is_there_is_to_be_corrected(
    ask: Run, older: MemoryService
) -> None:
    ask("settle", "m@b", "--answer", "not_received")
    older.will_say("Received")
    told = facts(ask("query", "m@b").stdout)
    assert told["to do"] == "write it down with: postroad query m@b --settle"


def test_an_answer_is_told_to_machines(ask: Run, older: MemoryService) -> None:
    older.will_say("Processed", AT)
    told = json.loads(ask("query", "m@b", "--json").stdout)
    assert told == {
        "message_id": "m@b",
        "answer": "Processed",
        "means": "delivered",
        "timestamp": "2026-11-15T08:57:02+00:00",
        "address": ADDRESS,
        "seconds": 0.04,
        "settled": None,
        "detail": None,
    }


def test_a_definite_answer_is_written_down(ask: Run, site: Site, older: MemoryService) -> None:
    older.will_say("Processed")
    answered = ask("query", "m@b", "--settle")
    assert (answered.exit_code, answered.stderr) == (0, "")
    told = facts(answered.stdout)
    assert told["state"] == "settled: given up, then told that it was delivered"
    assert "to do" not in told
    assert site.run(older.events("m@b"))[-1].event.peer == "seller"


def test_without_settle_nothing_is_written_down(ask: Run, older: MemoryService) -> None:
    older.will_say("Processed")
    ask("query", "m@b")
    assert older.outgoing("m@b").state is State.IN_DOUBT


def test_what_cannot_be_written_down_is_a_failure(
    ask: Run, site: Site, older: MemoryService
) -> None:
    site.run(older.change(older.outgoing("m@b"), state=State.WAITING))
    older.will_say("NotRecognized")
    refused = ask("query", "m@b", "--settle")
    assert facts(refused.stdout)["answer"].startswith("NotRecognized: ")
    assert refused.exit_code == 1
    assert one_line(refused) == (
        "postroad: m@b is not settled now: m@b is waiting: it may still arrive"
    )


def test_no_answer_is_a_failure_with_a_way_out(ask: Run, older: MemoryService) -> None:
    older.will_say(None, detail="no answer came in time")
    silent = ask("query", "m@b", "--settle")
    assert (silent.exit_code, silent.stdout) == (1, "")
    assert one_line(silent) == (
        f"postroad: {ADDRESS} does not tell of m@b: no answer came in time; "
        f"whether it is there is told by: postroad ping {ORDERS.id}"
    )


def test_where_the_protocol_has_no_such_question_another_way_is_told(
    ask: Run, world: MemoryWorld
) -> None:
    ask("send", "--pmode", ORDERS.id, "--message-id", "m@b")
    refused = ask("query", "m@b")
    assert refused.exit_code == 1
    said = f"{ORDERS.id} speaks ebMS 3.0, which has no such question"
    assert one_line(refused) == f"postroad: {said}; {OTHERWISE}"


def test_an_unknown_message_cannot_be_asked_about(ask: Run) -> None:
    assert one_line(ask("query", "nobody@b")) == "postroad: there is no message nobody@b"


def test_what_a_partner_answers_cannot_move_the_cursor(ask: Run, older: MemoryService) -> None:
    older.will_say("Received\x1b[2J")
    shown = ask("query", "m@b")
    assert "\x1b" not in shown.stdout
    older.will_say(None, detail="\x1b[2J")
    for command in (("query", "m@b"), ("ping", ORDERS.id)):
        assert r"\x1b[2J" in one_line(ask(*command))
