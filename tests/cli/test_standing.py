"""How a message stands, in words: on its way, given up, answered later."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.api import client_values
from postroad.api.client import Message, Partner
from postroad.cli.showing import moment
from postroad.cli.standing import has_arrived, in_words, outlook, to_do
from postroad.store.records import State
from tests.api.site import Site
from tests.api.world import MemoryWorld
from tests.cli.conftest import Run, one_line

SEND = ("send", "--pmode", "buyer-to-seller-order", "--message-id")
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER, END = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)


def facts(text: str) -> dict[str, str]:
    """Names and values of what `status` prints."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("  ")
        found[name] = value.strip()
    return found


@pytest.fixture
def sent(ask: Run) -> str:
    ask(*SEND, "s@b")
    return "s@b"


def change(site: Site, world: MemoryWorld, **fields: Any) -> None:
    site.run(world.service.change(world.service.outgoing("s@b"), **fields))


def waiting(site: Site, world: MemoryWorld) -> None:
    change(
        site,
        world,
        state=State.WAITING,
        attempts=5,
        tries=3,
        unanswered=2,
        first_sent_at=NOW,
        last_sent_at=NOW,
        due_at=LATER,
        decided_by=END,
        detail="the connection broke",
    )


# status


def test_a_message_that_waits_tells_when_it_is_tried_and_decided(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    waiting(site, world)
    told = facts(ask("status", sent).stdout)
    assert told["state"] == "waiting: it left, and no answer is known yet"
    assert told["why"] == "the connection broke"
    assert told["outlook"] == f"next attempt at {moment(LATER)}, decided by {moment(END)}"
    assert told["attempts"] == "5, 3 since it was sent anew, 2 unanswered"
    assert told["first sent"] == told["last sent"] == moment(NOW)
    assert told.keys().isdisjoint({"partner", "to do"})


def test_a_message_tells_that_its_partner_is_paused(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    waiting(site, world)
    site.run(world.pause("seller"))
    [partner] = site.run(world.service.partners())
    assert partner.until is not None
    told = facts(ask("status", sent).stdout)
    assert told["partner"].startswith("paused since ")
    assert "not reached 5 times in a row" in told["partner"]
    assert told["partner"].endswith(f"tried again at {moment(partner.until)}: no seller")
    assert told["outlook"].endswith("or later as long as the partner is not served")
    assert json.loads(ask("status", sent, "--json").stdout)["partner"]["gate"] == "paused"


def test_only_the_address_matters_that_a_message_was_sent_to(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    waiting(site, world)
    change(site, world, peer="http://a.example")
    site.run(world.pause("seller", "http://b.example"))
    assert "partner" not in facts(ask("status", sent).stdout)
    site.run(world.pause("seller", "http://a.example"))
    assert facts(ask("status", sent).stdout)["partner"].startswith("paused since ")
    told = json.loads(ask("status", sent, "--json").stdout)["partner"]
    assert (told["name"], told["gate"]) == ("seller", "paused")
    assert [one["address"] for one in told["addresses"]] == ["http://a.example"]


def test_another_partner_does_not_matter(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    site.run(world.pause("somebody else"))
    assert "partner" not in facts(ask("status", sent).stdout)
    assert json.loads(ask("status", sent, "--json").stdout)["partner"] is None


def test_a_message_whose_partner_is_suspended_tells_how_to_go_on(ask: Run, sent: str) -> None:
    ask("suspend", "seller", "--reason", "moving house")
    told = facts(ask("status", sent).stdout)
    assert told["outlook"] == "no attempt until the partner is resumed"
    assert told["partner"].startswith("suspended since ")
    assert told["partner"].endswith(": moving house")
    assert told["to do"] == "go on with: postroad resume seller"


def test_doubt_is_told_as_doubt(ask: Run, site: Site, world: MemoryWorld, sent: str) -> None:
    site.run(world.doubt(sent))
    told = facts(ask("status", sent).stdout)
    assert told["state"] == (
        "in_doubt, Warning: it left and no answer came, so the partner may have it"
    )
    assert told["why"] == "EBMS:0301 no receipt came"
    assert told["to do"] == (
        "send it again with: postroad resend s@b; or ask the partner, and note the answer with: "
        "postroad settle s@b --answer delivered"
    )
    assert json.loads(ask("status", sent, "--json").stdout)["severity"] == "Warning"


@pytest.mark.parametrize(
    ("state", "done"),
    [
        (State.FAILED, "send it again with: postroad resend s@b"),
        (State.EXPIRED, "submit it again under another id"),
    ],
)
def test_failure_is_told_as_failure(
    ask: Run, site: Site, world: MemoryWorld, sent: str, state: State, done: str
) -> None:
    change(site, world, state=state)
    told = facts(ask("status", sent).stdout)
    assert told["state"].startswith(f"{state.value}, Error: ")
    assert told["to do"] == done


def test_every_state_has_words() -> None:
    for state in State:
        assert in_words(message(state=state.value)), state


# settle


@pytest.mark.parametrize(
    ("answer", "words", "again"),
    [
        ("delivered", "given up, then told that it was delivered", None),
        ("received", "given up, then told that the partner has it", None),
        (
            "not_received",
            "given up, then told that the partner does not have it",
            "submit it again under another id",
        ),
    ],
)
def test_doubt_ends_with_an_answer(
    ask: Run,
    site: Site,
    world: MemoryWorld,
    sent: str,
    answer: str,
    words: str,
    again: str | None,
) -> None:
    site.run(world.doubt(sent))
    settled = ask("settle", sent, "--answer", answer, "--who", "seller")
    assert (settled.exit_code, settled.stdout) == (0, f"s@b settled: {words}\n")
    told = facts(ask("status", sent).stdout)
    assert told["state"] == f"settled: {words}"
    assert told.get("to do") == again
    [*_, last] = json.loads(ask("trace", sent, "--json").stdout)["events"]
    assert (last["event"], last["detail"], last["peer"]) == ("settled", answer, "seller")


def test_settling_is_told_to_machines(ask: Run, site: Site, world: MemoryWorld, sent: str) -> None:
    site.run(world.doubt(sent))
    told = json.loads(ask("settle", sent, "--answer", "delivered", "--json").stdout)
    assert (told["state"], told["detail"]) == ("settled", "delivered")


@pytest.mark.parametrize("options", [(), ("--answer", "perhaps")])
def test_without_an_answer_nothing_is_settled(
    ask: Run, site: Site, world: MemoryWorld, sent: str, options: tuple[str, ...]
) -> None:
    site.run(world.doubt(sent))
    assert ask("settle", sent, *options).exit_code == 2
    assert world.service.outgoing(sent).state is State.IN_DOUBT


def test_what_is_not_in_question_is_a_line(ask: Run, sent: str) -> None:
    assert one_line(ask("settle", sent, "--answer", "delivered")) == (
        "postroad: s@b is submitted: there is nothing to settle"
    )
    assert "nobody@b" in one_line(ask("settle", "nobody@b", "--answer", "delivered"))


# trace


def test_a_trace_tells_what_is_to_follow(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    waiting(site, world)
    site.run(world.pause("seller"))
    told = facts(ask("trace", sent).stdout)
    assert told["outlook"].startswith("next attempt at ")
    assert told["partner"].startswith("paused since ")
    data = json.loads(ask("trace", sent, "--json").stdout)
    assert (data["message"]["state"], data["partner"]["gate"]) == ("waiting", "paused")
    assert data["notices"] == []


def test_a_trace_tells_of_notices_until_they_are_known(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    ask(*SEND, "other@b")
    site.run(world.doubt("other@b"))
    site.run(world.doubt(sent))
    _, notice = site.run(world.service.notices())
    told = facts(ask("trace", sent).stdout)
    assert told[f"notice {notice.id}"] == (
        f"in_doubt at {moment(notice.at)}, not acknowledged by the application"
    )
    [shown] = json.loads(ask("trace", sent, "--json").stdout)["notices"]
    assert shown["id"] == notice.id
    ask("inbox", "notices", "--ack", str(notice.id))
    assert json.loads(ask("trace", sent, "--json").stdout)["notices"] == []


def test_a_trace_outlives_its_message(ask: Run, site: Site, world: MemoryWorld, sent: str) -> None:
    site.run(world.fail(sent))
    ask("purge", "--days", "0")
    traced = json.loads(ask("trace", sent, "--json").stdout)
    assert traced["message"] is None
    assert [one["event"] for one in traced["events"]] == ["submitted", "delivery_failed"]


# send --wait


@pytest.mark.parametrize(
    ("state", "detail", "said"),
    [
        (State.FAILED, "no route", "failed (Error): no route; send it again with: "),
        (State.EXPIRED, None, "expired (Error): its time was over before it left; submit it again"),
        (State.IN_DOUBT, "no receipt", "in doubt (Warning): no receipt; send it again with: "),
        (
            State.SETTLED,
            "not_received",
            "settled: given up, then told that the partner does not have it",
        ),
        (State.SETTLED, "received", "settled: given up, then told that the partner has it"),
    ],
)
def test_waiting_ends_when_it_was_given_up(
    ask: Run,
    site: Site,
    world: MemoryWorld,
    sent: str,
    state: State,
    detail: str | None,
    said: str,
) -> None:
    change(site, world, state=state, detail=detail)
    waited = ask(*SEND, sent, "--wait")
    assert (waited.exit_code, waited.stdout) == (1, "s@b\n")
    assert one_line(waited).startswith(f"postroad: s@b is {said}")


@pytest.mark.parametrize(
    ("state", "detail"),
    [(State.ACKNOWLEDGED, None), (State.SENT, None), (State.SETTLED, "delivered")],
)
def test_waiting_ends_well_when_it_has_arrived(
    ask: Run, site: Site, world: MemoryWorld, sent: str, state: State, detail: str | None
) -> None:
    change(site, world, state=state, detail=detail)
    waited = ask(*SEND, sent, "--wait")
    assert (waited.exit_code, waited.stdout, waited.stderr) == (0, "s@b\n", "")


def test_waiting_too_short_tells_what_follows(
    ask: Run, site: Site, world: MemoryWorld, sent: str
) -> None:
    waiting(site, world)
    assert one_line(ask(*SEND, sent, "--wait", "0")) == (
        f"postroad: s@b is waiting after 0 s, next attempt at {moment(LATER)}, "
        f"decided by {moment(END)}; look again with: postroad status s@b"
    )


@pytest.mark.parametrize("state", [State.SUSPENDED, State.READY])
def test_waiting_for_a_suspended_partner_tells_how_to_go_on(
    ask: Run, site: Site, world: MemoryWorld, sent: str, state: State
) -> None:
    ask("suspend", "seller")
    change(site, world, state=state)
    assert one_line(ask(*SEND, sent, "--wait", "0")).endswith(
        "no attempt until the partner is resumed; go on with: postroad resume seller"
    )


# lists


def test_lists_know_the_new_states_and_parties(
    ask: Run, site: Site, world: MemoryWorld, sent: str, order: Path
) -> None:
    ask(*SEND, "other@b", "--payload", order)
    for state in (State.EXPIRED, State.SUSPENDED, State.SETTLED):
        change(site, world, state=state)
        found = json.loads(ask("messages", "--json", "--state", state.value).stdout)
        assert [one["message_id"] for one in found] == ["s@b"]
    both = json.loads(ask("messages", "--json", "--to", "seller", "--from", "buyer").stdout)
    assert [one["message_id"] for one in both] == ["other@b", "s@b"]
    assert json.loads(ask("messages", "--json", "--to", "nobody").stdout) == []


# Words


def message(**fields: Any) -> Message:
    told = {"side": "sending", "message_id": "m@b", "state": "ready", "to_party": "seller"}
    times = {name: at.isoformat() for name, at in fields.items() if isinstance(at, datetime)}
    return client_values.message({**told, **fields, **times})


def partner(gate: str, until: datetime | None = None) -> Partner:
    return Partner("seller", gate, 5, until, NOW, "not reached", ())


@pytest.mark.parametrize(
    ("fields", "known", "said"),
    [
        ({}, None, ""),
        ({"due_at": LATER}, None, f"next attempt at {moment(LATER)}"),
        ({"due_at": END, "decided_by": END}, None, f"decided by {moment(END)}"),
        ({"due_at": NOW}, partner("paused", LATER), f"next attempt at {moment(LATER)}"),
        (
            {"due_at": NOW, "decided_by": LATER},
            partner("paused", END),
            f"next attempt at {moment(END)}, decided by {moment(LATER)}, "
            "or later as long as the partner is not served",
        ),
        ({"due_at": LATER}, partner("flowing"), f"next attempt at {moment(LATER)}"),
        ({"due_at": NOW}, partner("suspended"), "no attempt until the partner is resumed"),
        ({"state": "failed", "due_at": LATER}, None, ""),
        ({"side": "receiving", "state": "delivered"}, None, ""),
    ],
)
def test_the_outlook_says_what_is_known(
    fields: dict[str, Any], known: Partner | None, said: str
) -> None:
    assert outlook(message(**fields), known) == said


def test_an_id_in_a_command_is_quoted() -> None:
    given_up = message(message_id="a b;rm@x", state="failed")
    assert to_do(given_up) == "send it again with: postroad resend 'a b;rm@x'"


@pytest.mark.parametrize("state", ["delivered", "rejected"])
def test_nothing_is_to_be_done_about_what_came_in(state: str) -> None:
    assert to_do(message(side="receiving", state=state)) == ""


@pytest.mark.parametrize("state", ["submitted", "ready", "waiting", "suspended", "in_doubt"])
def test_what_is_not_known_to_have_arrived_has_not(state: str) -> None:
    assert not has_arrived(message(state=state))
