"""What dead processes leave behind, and stores that fail while an outcome is recorded."""

from datetime import timedelta
from typing import Final

import pytest

from postroad.store.interface import StoreDamaged, StoreError, StoreFull
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BEGIN,
    BUYER,
    LARGE,
    SELLER,
    STORES,
    Held,
    Posted,
    World,
    failing,
    lost,
    played,
    refused,
    reply_lost,
    status,
)

M: Final = "m@buyer"
RETRY: Final = {"max_retries": 3, "timeout": "PT10S", "period": "PT20S"}
LEASE: Final = 20.0
SHORT: Final = {"lease": "PT20S"}
in_every_store = pytest.mark.parametrize("kept_in", STORES)


@pytest.mark.req("RM000-1.1-01", "RM000-1.1-04", "MS098-10.1.1-01", "MS098-10.1.1-04")
@in_every_store
@played
async def test_what_was_being_sent_when_a_node_died_is_sent_again_and_delivered_once(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    buyer, seller = await world.both()

    async def arrives(world: World, posted: Posted) -> Reply:
        await seller.receive(posted.content_type, posted.body)
        return await Held()(world, posted)

    world.wire.will(arrives)
    await buyer.send(M)
    await world.until(3)
    assert await seller.inbox() == [M]
    buyer = await world.start_again(BUYER)
    await world.until(4)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    first, second = world.wire.to(SELLER, M)
    assert first.body == second.body
    told = await buyer.events(M)
    assert [(one.event, one.attempt) for one in told if one.attempt] == [("sent", 1), ("resent", 2)]
    assert "stopped" in (told[1].detail or "")
    assert (await buyer.message(M)).attempts == 2
    assert (await seller.story(M)).count("delivered") == 1
    assert await buyer.work() == {}


@played
async def test_what_was_being_sent_when_a_node_died_is_never_said_not_to_have_left(
    world: World,
) -> None:
    world.agree()
    world.wire.will(Held(), refused)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    buyer = await world.start_again(BUYER)
    await world.until(100)
    assert await buyer.state(M) is State.IN_DOUBT


@in_every_store
@played
async def test_timers_survive_a_restart_and_go_off_when_they_would_have(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(5)
    buyer = await world.start_again(BUYER)
    await world.until(12)
    await buyer.stop()
    buyer = await world.start(BUYER)
    await world.until(200)
    assert world.wire.times(M) == [0, 10, 30, 50]
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_a_timer_that_went_off_while_nobody_was_there_is_not_forgotten(world: World) -> None:
    world.agree(receipt="callback", retry=RETRY | {"max_retries": 0})
    world.wire.usual[SELLER] = status(202)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(5)
    buyer.kill()
    await world.until(300)
    buyer = await world.start(BUYER)
    await world.until(301)
    assert await buyer.state(M) is State.IN_DOUBT
    assert (await buyer.story(M)).count("in_doubt") == 1


@played
async def test_a_large_message_is_packaged_by_whoever_comes_after(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    sent = await buyer.send(M, payload=LARGE)
    buyer.kill()
    assert sent.state is State.SUBMITTED
    buyer = await world.start(BUYER)
    await world.until(5)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_nothing_is_sent_under_an_id_that_was_forgotten_while_the_node_was_down(
    world: World,
) -> None:
    world.agree(retry=RETRY | {"persist_duration": "P1D"})
    world.wire.will(Held())
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    buyer.kill()
    world.clock.ahead += timedelta(days=5)
    buyer = await world.start(BUYER)
    await world.until(60)
    assert world.wire.times(M) == [0]
    assert await buyer.state(M) is State.IN_DOUBT


# Several processes


@pytest.mark.parametrize(
    ("apart", "moment"), [(0.0, 5.1), (0.0, 9.9), (2.5, 5.1), (4.5, 15.1), (4.4, 10.2), (6.6, 15.2)]
)
@played
async def test_a_process_that_dies_is_replaced_within_one_lease(
    world: World, apart: float, moment: float
) -> None:
    """Whenever it dies, and whenever the other one last looked."""
    world.agree(retry={"max_retries": 3, "timeout": "PT5M", "period": "PT5M"})
    world.configure(BUYER, send=SHORT)
    world.wire.will(Held())
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(apart)
    other = await world.start(BUYER, beside=True)
    await world.until(moment)
    buyer.kill()
    await world.until(100)
    first, second = world.wire.times(M)
    assert first == 0
    assert second - moment <= LEASE
    told = await other.events(M)
    assert [(one.event, one.attempt) for one in told if one.attempt] == [("sent", 1), ("resent", 2)]
    assert await other.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@in_every_store
@played
async def test_a_process_that_dies_is_replaced_in_the_end(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.agree(retry={"max_retries": 3, "timeout": "PT5M", "period": "PT5M"})
    world.configure(BUYER, send=SHORT)
    world.wire.will(Held())
    buyer, _ = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(M)
    await world.until(1)
    buyer.kill()
    await world.until(1 + 1.3 * LEASE)
    assert await other.state(M) is State.ACKNOWLEDGED
    assert len(world.wire.to(SELLER, M)) == 2


@in_every_store
@played
async def test_nobody_sends_what_another_process_is_still_sending(
    world: World, kept_in: str
) -> None:
    """Several nodes over one store send a message once."""
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    world.configure(BUYER, send=SHORT)
    slow = Held()
    world.wire.will(slow)
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(M)
    await world.until(10 * LEASE)
    assert len(world.wire.to(SELLER, M)) == 1
    slow.release()
    await world.wait(1)
    assert await other.state(M) is State.ACKNOWLEDGED
    assert (await seller.story(M)).count("delivered") == 1


@in_every_store
@played
async def test_retries_are_shared_by_processes_and_made_once(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    other = await world.start(BUYER, beside=True)
    for number in range(4):
        await (buyer, other)[number % 2].send(f"{number}@buyer")
    await world.until(200)
    for number in range(4):
        assert world.wire.times(f"{number}@buyer")[0] == 0
        assert len(world.wire.to(SELLER, f"{number}@buyer")) == 4


@played
async def test_a_late_outcome_of_a_process_that_lost_its_lease_is_counted_and_harms_nothing(
    world: World,
) -> None:
    """The first process is cut off from the store's loop for long, and comes back."""
    world.agree(retry=RETRY)
    world.configure(BUYER, send=SHORT)
    slow = Held()
    world.wire.will(slow)
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(M)
    await world.until(1)
    buyer.node.context.in_hand.clear()
    await world.until(3 * LEASE)
    assert await other.state(M) is State.ACKNOWLEDGED
    slow.release(lost)
    await world.until(200)
    found = await other.message(M)
    assert (found.state, found.attempts) == (State.ACKNOWLEDGED, 3)
    told = [(one.event, one.attempt) for one in await other.events(M) if one.attempt]
    assert told == [("sent", 1), ("resent", 2), ("resent", 3)]
    assert (await seller.story(M)).count("delivered") == 1
    assert await other.work() == {}


# A store that fails


@pytest.mark.parametrize("times", [1, 30])
@in_every_store
@played
async def test_an_outcome_that_could_not_be_stored_leaves_the_message_to_be_sent_again(
    world: World, kept_in: str, times: int
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    with failing(buyer.node.context.store, StoreFull("no room"), about="attempt", times=times):
        await buyer.send(M)
        await world.until(30)
    await world.until(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    found = await buyer.message(M)
    numbers = [one.attempt for one in await buyer.events(M) if one.attempt]
    assert numbers == list(range(1, found.attempts + 1))
    assert found.attempts == len(world.wire.to(SELLER, M))
    assert (await seller.story(M)).count("delivered") == 1
    assert await buyer.work() == {}


@played
async def test_an_attempt_whose_outcome_could_not_be_stored_may_have_left(world: World) -> None:
    world.agree()
    world.wire.will(reply_lost, refused)
    buyer, seller = await world.both()
    with failing(buyer.node.context.store, StoreFull("no room"), about="attempt"):
        await buyer.send(M)
        await world.until(5)
    assert await buyer.state(M) is State.IN_DOUBT
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("answer", ["receipt", "lost"])
@in_every_store
@played
async def test_an_outcome_of_which_nobody_knows_whether_it_was_stored_counts_once(
    world: World, kept_in: str, answer: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    if answer == "lost":
        world.wire.will(lost)
    buyer, _ = await world.both()
    error = StoreError("interrupted: look what is kept")
    with failing(buyer.node.context.store, error, kept=True, about="attempt"):
        await buyer.send(M)
        await world.until(1)
    await world.until(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert world.wire.times(M) == ([0] if answer == "receipt" else [0, 10])
    story = await buyer.story(M)
    assert story.count("sent") == 1
    assert story.count("receipt_received") == 1


@played
async def test_a_submission_of_which_nobody_knows_whether_it_was_stored_is_sent_if_it_was(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    world.configure(BUYER, send=SHORT)
    buyer, seller = await world.both()
    error = StoreError("interrupted: look what is kept")
    with (
        failing(buyer.node.context.store, error, kept=True, about="_add_all"),
        pytest.raises(StoreError),
    ):
        await buyer.send(M)
    await world.until(2 * LEASE)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    again = await buyer.send(M)
    assert again.state is State.ACKNOWLEDGED


@played
async def test_a_claim_of_which_nobody_knows_whether_it_was_stored_is_not_kept_for_ever(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    world.configure(BUYER, send=SHORT)
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(9)
    with failing(buyer.node.context.store, StoreError("interrupted"), kept=True, about="_round"):
        await world.until(12)
    await world.until(12 + 2 * LEASE)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_message_whose_bytes_are_gone_is_not_said_to_have_left(world: World) -> None:
    """The disk lost what was to be sent: nothing leaves, and that is told, once."""
    world.agree(retry=RETRY)
    world.wire.will(refused)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    found = await buyer.message(M)
    assert found.envelope is not None
    gone = found.envelope
    await buyer.node.context.store.run(lambda tx: tx.drop(gone))
    with pytest.raises(StoreDamaged):
        buyer.node.context.store.content(gone)
    await world.until(100)
    story = await buyer.story(M)
    assert "sent" not in story
    assert "resent" not in story
    assert len(story) < 10
    assert world.wire.times(M) == [0]


@played
async def test_a_receipt_that_could_not_be_stored_comes_again_with_the_next_copy(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=RETRY)
    buyer, seller = await world.both()
    with failing(buyer.node.context.store, StoreFull("no room"), about="_written", times=2):
        await buyer.send(M)
        await world.until(1)
        assert await buyer.state(M) is State.WAITING
    await world.until(100)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await seller.story(M)).count("delivered") == 1
    assert await seller.work() == {}


@played
async def test_the_heart_beats_on_while_work_waits(world: World) -> None:
    world.agree(retry=RETRY)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(95)
    beats = await buyer.journal("heartbeat")
    assert [round((one.at - BEGIN).total_seconds()) for one in beats] == [0, 30, 60, 90]
    assert {one.message_id for one in beats} == {None}


@played
async def test_an_attempt_is_in_the_journal_although_the_receipt_came_and_then_the_node_died(
    world: World,
) -> None:
    """The copy was still under way when the receipt of the one before it came."""
    world.agree(receipt="callback", retry=RETRY)
    world.wire.will(status(202), Held())
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(12)
    first, second = world.wire.to(SELLER, M)
    assert second.at > first.at
    await seller.receive(first.content_type, first.body)
    await world.until(13)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    buyer = await world.start_again(BUYER)
    await world.until(20)
    found = await buyer.message(M)
    assert (found.state, found.attempts) == (State.ACKNOWLEDGED, 2)
    told = [(one.event, one.attempt) for one in await buyer.events(M) if one.attempt]
    assert told == [("sent", 1), ("resent", 2)]
    assert len(world.wire.to(SELLER, M)) == 2
    assert await buyer.work() == {}
