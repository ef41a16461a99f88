"""Every state of small worlds is looked at; and what is broken on purpose is found."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from postroad.reliability import awareness, delivery
from postroad.reliability.awareness import RECEPTION, Arrival, Known, Reception
from postroad.reliability.delivery import TABLE, Decision, Input, Life, Stage
from tests.model.search import Counterexample, Found, explore
from tests.model.world import Agreement, Budget, Receipts, World
from tests.model.worlds import worlds

BUDGETS: Final = {
    "the network": Budget(losses=2, duplicates=1, unreachable=1),
    "crashes": Budget(losses=1, crashes=2),
    "takeovers": Budget(losses=1, crashes=1, takeovers=1),
    "the receiver": Budget(losses=1, rejections=1, delays=1, crashes=1),
    "people": Budget(losses=1, resends=1, settlements=1, resumptions=1),
}
CALLBACK: Final = Agreement(Receipts.CALLBACK)
FAULTS: Final = Budget(losses=1, crashes=1, rejections=1)


def wrong(world: World) -> Counterexample:
    with pytest.raises(Counterexample) as found:
        explore(world)
    return found.value


def table(stage: Stage, given: Input, after: Any) -> Mapping[Stage, Mapping[Input, Any]]:
    """The transitions of delivery, with one of them changed."""
    return {**TABLE, stage: {**TABLE[stage], given: after}}


def reception(known: Known, done: Reception) -> Mapping[Known, Mapping[Arrival, Reception]]:
    """What is done with copies, but for one case."""
    return {**RECEPTION, known: {**RECEPTION[known], Arrival.SAME: done}}


@pytest.mark.req("OV004-1-04", "OV004-1-10", "RM000-1.3.2-05", "MS098-10.3.1.5-06")
@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("trouble", BUDGETS)
def test_everything_holds_in_every_state(trouble: str, retries: int) -> None:
    states = sum(explore(world).states for world in worlds(BUDGETS[trouble], retries))
    print(f"{states:,} states")
    assert states > 500


@pytest.mark.parametrize("agreement", [Agreement(), CALLBACK], ids=["response", "callback"])
def test_everything_holds_with_two_retries(agreement: Agreement) -> None:
    agreed = Agreement(agreement.receipts, retries=2)
    assert explore(World(agreed, Budget(losses=2, crashes=1, unreachable=1))).states > 300


@pytest.mark.parametrize("receipts", Receipts)
def test_two_messages_hold_and_keep_their_order(receipts: Receipts) -> None:
    agreed = Agreement(receipts, in_order=True)
    found = explore(World(agreed, Budget(losses=1, crashes=1, rejections=1), messages=2))
    assert found.states > 300


def test_two_messages_do_not_hinder_each_other() -> None:
    found = explore(World(Agreement(), Budget(losses=2, unreachable=1), messages=2))
    assert found.states > 300


def test_without_faults_a_message_is_delivered_and_acknowledged() -> None:
    for agreed in (Agreement(), Agreement(strict_ack=True)):
        assert explore(World(agreed)).endings == {(Stage.ACKNOWLEDGED, True)}
    # A receipt that calls back may come after everything was tried.
    late = {(Stage.ACKNOWLEDGED, True), (Stage.SETTLED, True)}
    assert explore(World(CALLBACK)).endings == late


def test_every_stage_at_rest_is_reached() -> None:
    """What no state shows would be shown by none of these tests."""
    endings: set[tuple[Stage, bool]] = set()
    for trouble in BUDGETS.values():
        for world in worlds(trouble, 0):
            endings |= explore(world).endings
    assert {
        (Stage.SENT, True),
        (Stage.ACKNOWLEDGED, True),
        (Stage.FAILED, False),
        (Stage.IN_DOUBT, False),
        (Stage.IN_DOUBT, True),
        (Stage.EXPIRED, False),
        (Stage.SUSPENDED, False),
        (Stage.SUSPENDED, True),
        (Stage.SETTLED, True),
    } <= endings
    certainly_not = {Stage.FAILED, Stage.EXPIRED}
    assert not any(stage in certainly_not for stage, delivered in endings if delivered)
    assert (Stage.ACKNOWLEDGED, False) not in endings


# What the checker finds


def test_a_refusal_that_always_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table(Stage.WAITING, Input.REFUSED, Stage.FAILED)
    monkeypatch.setattr(delivery, "TABLE", broken)
    found = wrong(World(budget=FAULTS))
    assert found.rule == "what failed or expired is not there, and cannot come there any more"
    assert "a copy of 0 is turned away: rejected" in found.trace


def test_the_shortest_trace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table(Stage.WAITING, Input.REFUSED, Stage.FAILED)
    monkeypatch.setattr(delivery, "TABLE", broken)
    assert str(wrong(World(budget=Budget(losses=1, rejections=1)))).splitlines() == [
        "Not so: what failed or expired is not there, and cannot come there any more "
        "(messages=1 losses=1 rejections=1)",
        "  1. the sender sends 0",
        "  2. the sender waits no longer for 0",
        "  3. the sender sends 0",
        "  4. a copy of 0 is turned away: rejected",
        "  5. the sender hears about 0: an error of severity failure",
    ]


def test_doubt_that_is_called_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table(Stage.WAITING, Input.OUT_OF_RETRIES, Stage.FAILED)
    monkeypatch.setattr(delivery, "TABLE", broken)
    assert "the sender waits no longer for 0" in wrong(World(budget=FAULTS)).trace


def test_an_answer_before_the_commit_is_found() -> None:
    found = wrong(World(budget=FAULTS, answers_first=True))
    assert found.rule == "what is acknowledged is durable at the receiver"
    assert found.trace[1] == "a copy of 0 arrives, and the receiver crashes before its commit"


def test_a_copy_that_is_taken_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awareness, "RECEPTION", reception(Known.TAKEN, Reception.TAKE))
    assert wrong(World(budget=FAULTS)).rule == "a message is delivered at most once"


def test_a_receipt_for_a_copy_whose_first_was_rejected_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = reception(Known.REJECTED, Reception.ANSWER_AGAIN)
    monkeypatch.setattr(awareness, "RECEPTION", broken)
    assert wrong(World(budget=FAULTS)).rule == "what is acknowledged is durable at the receiver"


def test_forgetting_an_interrupted_attempt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "interrupted", lambda life, began: life)
    found = wrong(World(budget=Budget(crashes=1, unreachable=2)))
    assert "the sender crashes and starts again" in found.trace


def test_a_message_without_a_timer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = delivery.attempted

    def forgetful(*given: Any, **more: Any) -> Decision:
        return Decision(real(*given, **more).life)

    monkeypatch.setattr(delivery, "attempted", forgetful)
    rule = wrong(World(budget=FAULTS)).rule
    assert rule == "what is still to be sent has a timer, or somebody who sends it"


def test_a_message_that_is_never_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent and rejected again and again, and no attempt is counted."""

    def endless(life: Life, *_: Any, **more: Any) -> Decision:
        return Decision(life, more["now"])

    monkeypatch.setattr(delivery, "attempted", endless)
    assert wrong(World(is_bad=True)).rule == "it comes to rest"


def test_a_refusal_that_is_heard_twice_and_counted_twice_is_found() -> None:
    """Its sender repeats it when our answer was lost; meanwhile an operator sent another copy."""
    budget = Budget(losses=1, rejections=1, resends=1)
    assert explore(World(CALLBACK, budget))
    assert (
        "an operator sends it again: 0"
        in wrong(World(CALLBACK, budget, forgets_signals=True)).trace
    )


def test_overtaking_is_found() -> None:
    """What is held until its receipt was handed over may come after what was sent after it."""
    held = World(Agreement(strict_ack=True, in_order=True), messages=2)
    assert wrong(held).rule == "order is kept"


def test_a_network_that_doubles_what_a_receiver_takes_and_rejects_deceives_the_sender() -> None:
    """The limit that `docs/reliability.md` tells of."""
    found = wrong(World(budget=Budget(duplicates=1, rejections=1)))
    assert found.rule == "what failed or expired is not there, and cannot come there any more"
    assert "the network doubles a copy of 0" in found.trace


def test_states_and_moves_are_counted() -> None:
    assert explore(World()) == Found(4, 3, frozenset({(Stage.ACKNOWLEDGED, True)}))
