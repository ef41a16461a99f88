"""The fast share of the simulation; `make sim SEEDS=2000` is the whole."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import pytest

from postroad.node import node, working
from postroad.node.ebxml import keeping as ebxml_keeping
from postroad.node.ebxml import relaying as ebxml_relaying
from postroad.node.steps import keeping, outcome
from postroad.node.walks import offering, submitting
from postroad.reliability.awareness import ANSWERS, Answer, Reception
from postroad.reliability.delivery import Input
from postroad.reliability.ebxml_sending import WORDS, Word
from postroad.store.memory import _MemoryTransaction
from postroad.store.records import Side
from tests.conftest import PROJECT
from tests.sim.agreements import Party, make_parties
from tests.sim.marks import REQUIRED, missing
from tests.sim.plan import asks, bundles, make_plan, pulls, speaks_ebxml
from tests.sim.run import Result, Smaller, simulate
from tests.sim.shrinking import shrink

AT_A_TIME = 8
MANY = 60
"""Seeds within which a mistake must be found."""
EBXML = tuple(seed for seed in range(5 * AT_A_TIME, 4 * MANY) if speaks_ebxml(seed))
"""Seeds in which ebXML is spoken, after those that are run anyway."""
PULLED = tuple(seed for seed in range(4 * MANY) if pulls(seed))
"""Seeds in which messages are pulled."""
PLAIN = tuple(seed for seed in range(MANY) if not asks(seed))
ASKED = tuple(seed for seed in range(4 * MANY) if asks(seed))
"""Seeds in which requests have replies."""
BUNDLED = tuple(seed for seed in range(4 * MANY) if bundles(seed))
"""Seeds in which messages are bundled."""


@pytest.fixture(scope="session")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Party]:
    return make_parties(tmp_path_factory.mktemp("parties"))


@pytest.mark.req(
    "OV004-1-02", "OV004-1-04", "OV004-1-05", "OV004-1-10", "OV004-1-12", "OV004-1-14", "OV004-2-04"
)
@pytest.mark.parametrize("first", range(0, 5 * AT_A_TIME, AT_A_TIME))
def test_whatever_fails_each_message_is_delivered_once_or_told_to_have_failed(
    parties: Mapping[str, Party], first: int
) -> None:
    for seed in range(first, first + AT_A_TIME):
        result = simulate(seed, parties)
        told = "\n".join(map(str, result.history.about(None)))
        assert result.broken is None, f"python -m tests.sim --seed {seed}\n{told}"


@pytest.mark.parametrize("seed", [7, 59])
def test_one_seed_gives_one_history(parties: Mapping[str, Party], seed: int) -> None:
    one, other = simulate(seed, parties), simulate(seed, parties)
    assert one.history.entries == other.history.entries
    assert len(one.history.entries) > 50


def test_the_history_is_the_same_in_another_process() -> None:
    """Nothing hangs on hashes, addresses or the time of the day."""

    def told(number: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed", "11"],
            cwd=PROJECT,
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert told("1") == told("2") != ""


def test_without_faults_everything_is_acknowledged(parties: Mapping[str, Party]) -> None:
    result = simulate(2, parties, Smaller(None, ()))
    assert result.broken is None
    assert not result.history.marks["resent"]
    assert result.history.marks["delivered"] == result.messages


def _found(
    parties: Mapping[str, Party],
    said: str = "",
    seeds: Iterable[int] = PLAIN,
    likely: int = 0,
) -> Result:
    """The first seed that fails with these words; the likely one is tried before the others."""
    for seed in chain((likely,), seeds):
        result = simulate(seed, parties)
        if result.broken is not None and said in str(result.broken):
            return result
    raise AssertionError(f"{MANY} seeds saw nothing")


def test_a_receiver_that_takes_copies_for_new_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "received", lambda *_: Reception.TAKE_INSTEAD)
    assert "received twice" in str(_found(parties).broken)


def test_a_sender_that_takes_trouble_for_a_refusal_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, Answer.TROUBLE, Input.REFUSED)
    assert _found(parties, "says failed, but", likely=13).broken


def test_attempts_that_a_crash_hides_are_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "left_behind", lambda context, tx, message, *_: message)
    assert "it left" in str(_found(parties, likely=9).broken)


def test_work_that_is_forgotten_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(tx: Any, id: int, *_: object, **__: object) -> None:
        tx.finish_work(id)

    monkeypatch.setattr(_MemoryTransaction, "postpone_work", forget)
    assert "nothing will ever be done" in str(_found(parties).broken)


def test_messages_that_overtake_each_other_are_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order: Callable[..., Any] = submitting.send_work

    def anyhow(*args: Any) -> Any:
        made = in_order(*args)
        return type(made)(made.kind, made.message_id, made.due_at, partner=made.partner)

    monkeypatch.setattr(submitting, "send_work", anyhow)
    assert "delivered before it" in str(_found(parties, likely=36).broken)


def test_a_receipt_that_proves_nothing_and_is_believed_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, Answer.BAD_RECEIPT, Input.ACKNOWLEDGED)
    assert "acknowledged" in str(_found(parties, likely=50).broken)


def test_a_partner_who_is_never_left_alone_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_MemoryTransaction, "set_partner", lambda *_: None)
    assert "no pause" in str(_found(parties).broken)


def test_an_msh_on_the_way_that_is_taken_for_the_receiver_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WORDS, Word.TAKEN_OVER, Input.ACKNOWLEDGED)
    assert "acknowledged" in str(_found(parties, seeds=EBXML).broken)


def test_a_relay_that_gives_up_and_tells_nobody_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ebxml_relaying.Reporting, "_notice", lambda *_: None)
    assert _found(parties, "was not told", EBXML, likely=165).broken


def test_a_copy_that_gets_another_acknowledgment_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ebxml_keeping, "_answers", lambda *_: [])
    assert "two different acknowledgments" in str(_found(parties, seeds=EBXML).broken)


def test_without_faults_what_is_pulled_is_acknowledged_and_leaves_its_channel(
    parties: Mapping[str, Party],
) -> None:
    result = simulate(PULLED[0], parties, Smaller(None, ()))
    assert result.broken is None
    assert result.history.marks["handed out"] == result.messages
    assert not result.history.marks["handed out again"]
    assert result.history.marks["delivered"] == result.messages


def test_a_channel_that_holds_few_messages_gets_more_than_these(
    parties: Mapping[str, Party],
) -> None:
    """In each such seed, so that the many of a long run reach it."""
    scarce = [one for one in PULLED if any(sent.kind.capacity for sent in make_plan(one))]
    assert scarce
    for seed in scarce[:2]:
        result = simulate(seed, parties, Smaller(None, ()))
        assert result.broken is None
        assert result.history.marks["a channel was full"]


def test_what_stays_in_its_channel_after_its_receipt_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "_offer", lambda *_: None)
    assert _found(parties, "still in its channel", PULLED).broken


def test_what_is_handed_out_and_not_written_down_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    def handed(self: Any, tx: Any, message_id: str, *_: object) -> Any:
        message = tx.message(Side.SENDING, message_id)
        return self.form(message, [message])

    monkeypatch.setattr(offering.Offering, "_handed", handed)
    assert "not written down before" in str(_found(parties, seeds=PULLED).broken)


def test_a_nonce_that_may_be_used_again_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_MemoryTransaction, "first_time", lambda *_: True)
    assert _found(parties, "one PullRequest brings two messages", PULLED, likely=12).broken


def test_without_faults_each_request_has_its_reply(parties: Mapping[str, Party]) -> None:
    result = simulate(ASKED[0], parties, Smaller(None, ()))
    assert result.broken is None
    marks = result.history.marks
    assert marks["answered"] > 0
    assert marks["answered"] + marks["a reply too late"] == marks["a request is there"]


def test_whatever_fails_each_request_has_its_reply_once(parties: Mapping[str, Party]) -> None:
    for seed in ASKED[-4:]:
        result = simulate(seed, parties)
        assert result.broken is None, f"python -m tests.sim --seed {seed}"


def test_a_second_reply_that_is_taken_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    def anyhow(tx: Any, reply: Any) -> None:
        found = tx.message(Side.RECEIVING, reply.ref_to_message_id)
        named = {"reply_message_id": reply.message_id}
        tx.change_message(Side.RECEIVING, found.message_id, (found.state,), **named)

    monkeypatch.setattr(submitting, "answer", anyhow)
    monkeypatch.setattr(keeping, "uncorrelated", lambda *_: None)
    assert _found(parties, "is answered twice", ASKED).broken


def test_a_reply_that_its_request_does_not_know_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "replied", lambda *_: None)
    assert _found(parties, "did not note at its request", ASKED).broken


def test_without_faults_what_is_bundled_is_acknowledged(parties: Mapping[str, Party]) -> None:
    result = simulate(BUNDLED[1], parties, Smaller(None, ()))
    assert result.broken is None
    assert result.history.marks["bundled"]
    assert result.history.marks["acknowledged"] <= result.messages


def test_a_bundle_that_is_not_written_down_for_all_its_units_is_found(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "bundle_left_behind", lambda *_: None)
    monkeypatch.setattr(working, "bundle_left_behind", lambda *_: None)
    assert _found(parties, "it left", BUNDLED, likely=85).broken


def test_a_failing_history_is_made_smaller(
    parties: Mapping[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, Answer.TROUBLE, Input.REFUSED)
    failed = _found(parties, likely=104)
    smaller, result = shrink(failed, lambda less: simulate(failed.seed, parties, less), most=12)
    assert result.broken is not None
    assert result.messages < failed.messages
    assert len(result.faults) < len(failed.faults)
    again = simulate(failed.seed, parties, smaller)
    assert again.history.digest() == result.history.digest()


def test_what_no_seed_reached_is_named() -> None:
    reached = dict.fromkeys(REQUIRED, 1)
    assert missing(reached) == []
    del reached["duplicate"]
    assert missing(reached) == ["duplicate"]
