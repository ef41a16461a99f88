"""The contract of every backend: channels, what waits in them, and what may come once only."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroad.store.interface import Place, Store, Transaction
from postroad.store.records import Offer, Queue, Side, State
from tests.store.samples import after, message, signal
from tests.store.stories import Refusal, Tell

HERE: Place = ("urn:mpc", "orders")


def offer(name: str, *items: str, at: float = 0, place: Place = HERE) -> Offer:
    return Offer(*place, name, after(at), items)


async def put(store: Store, *offers: Offer) -> None:
    for one in offers:
        assert await store.run(lambda tx, one=one: tx.add_offer(one))  # type: ignore[misc]


async def first(
    store: Store, *items: str, now: float = 0, places: Sequence[Place] = (HERE,)
) -> str | None:
    found = await store.run(lambda tx: tx.first_offer(places, after(now), items))
    return None if found is None else found.message_id


async def handed(store: Store, name: str, until: float) -> None:
    await store.run(lambda tx: tx.postpone_offer(name, after(until)))


async def queue(store: Store, channel: str = HERE[0]) -> Queue:
    return await store.look(lambda reader: reader.queue(channel))


def test_what_came_first_is_offered_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("b", at=2), offer("a", at=1))
        assert await first(store) == "b"
        await store.run(lambda tx: tx.remove_offer("b"))
        assert await first(store) == "a"
        await store.run(lambda tx: tx.remove_offer("a"))
        assert await first(store) is None

    tell(story)


def test_a_message_is_in_one_channel_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a"))
        elsewhere = offer("a", place=("urn:other", "orders"))
        assert not await store.run(lambda tx: tx.add_offer(elsewhere))
        assert await queue(store, "urn:other") == Queue()
        assert await queue(store) == Queue(1, after(0))

    tell(story)


def test_what_was_handed_out_is_offered_again_in_its_old_place(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a"), offer("b"))
        await handed(store, "a", until=10)
        assert await first(store, now=9) == "b"
        found = await store.look(lambda reader: reader.offer("a"))
        assert found is not None
        assert found.due_at == after(10)
        assert await first(store, now=10) == "a"

    tell(story)


def test_what_was_handed_out_still_counts(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a", at=1), offer("b", at=2))
        await handed(store, "a", until=10)
        assert await queue(store) == Queue(2, after(1))
        await store.run(lambda tx: tx.remove_offer("a"))
        assert await queue(store) == Queue(1, after(2))

    tell(story)


def test_a_step_counts_what_it_added_itself(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> list[int]:
            counts = []
            for name in ("a", "b"):
                tx.add_offer(offer(name))
                counts.append(tx.queue(HERE[0]).count)
            tx.remove_offer("a")
            return [*counts, tx.queue(HERE[0]).count]

        assert await store.run(step) == [1, 2, 1]

    tell(story)


def test_a_signal_waits_like_a_message_and_says_what_it_is_about(tell: Tell) -> None:
    async def story(store: Store) -> None:
        receipt = Offer(*HERE, "receipt", after(1), ("ref=a",), about="a")
        await put(store, offer("a"), receipt)
        found = await store.run(lambda tx: tx.first_offer([HERE], after(2), ["ref=a"]))
        assert found == Offer(*HERE, "receipt", after(1), about="a")
        assert await store.look(lambda reader: reader.offer("receipt")) == found
        await store.run(lambda tx: tx.remove_offer("receipt"))
        assert await first(store) == "a"

    tell(story)


def test_a_signal_leaves_its_channel_with_the_message_that_it_is_about(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_message(message("a", state=State.CONSUMED, side=Side.RECEIVING))
            tx.add_signal(signal(tx.keep(b"receipt"), "a", signal_id="receipt"))
            tx.add_offer(Offer(*HERE, "receipt", after(1), ("ref=a",), about="a"))

        await store.run(step)
        await store.run(lambda tx: tx.purge(after(99), [State.CONSUMED], 9))
        assert (await first(store), await queue(store)) == (None, Queue())

    tell(story)


def test_what_waits_is_counted_by_agreement(tell: Tell) -> None:
    async def story(store: Store) -> None:
        async def waiting() -> dict[str, int]:
            return (await store.look(lambda reader: reader.figures())).offers

        await put(store, offer("a"), offer("b", place=("urn:x", "orders")))
        await put(store, offer("c", place=("urn:x", "prices")))
        assert await waiting() == {"orders": 2, "prices": 1}
        await store.run(lambda tx: tx.remove_offer("c"))
        assert await waiting() == {"orders": 2}

    tell(story)


def test_channels_and_agreements_are_apart(tell: Tell) -> None:
    async def story(store: Store) -> None:
        other, sub = ("urn:mpc", "invoices"), ("urn:mpc/sub", "orders")
        await put(store, offer("a", place=sub), offer("b", place=other), offer("c"))
        assert await first(store) == "c"
        assert await first(store, places=[other]) == "b"
        assert await first(store, places=[other, sub, HERE]) == "a"
        assert await first(store, places=[]) is None

    tell(story)


def test_a_selection_finds_the_first_that_has_all_its_items(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(
            store,
            offer("a", "service=s", "ref=1"),
            offer("b", "service=s", "ref=2"),
            offer("c", "service=s", "ref=2", "action=x"),
        )
        assert await first(store, "service=s") == "a"
        assert await first(store, "ref=2", "service=s") == "b"
        assert await first(store, "ref=2", "service=s", "action=x") == "c"
        assert await first(store, "ref=1", "action=x") is None
        assert await first(store, "ref=") is None

    tell(story)


def test_a_selection_finds_nothing_that_is_handed_out_or_elsewhere(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a", "ref=1"), offer("b", "ref=1", place=("urn:mpc", "invoices")))
        await handed(store, "a", until=10)
        assert await first(store, "ref=1", now=1) is None
        assert await first(store, "ref=1", now=10) == "a"

    tell(story)


def test_what_many_have_and_none_together_is_selected_once_somebody_has_both(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, *(offer(str(number), f"half={number % 2}") for number in range(150)))
        for _ in range(2):
            assert await first(store, "half=0", "half=1") is None
        await put(store, offer("both", "half=0", "half=1"), offer("more", "half=1", "half=0", "x"))
        await put(store, offer("there", "half=0", "half=1", place=("urn:mpc", "others")))
        assert await first(store, "half=0", "half=1") == "both"
        await handed(store, "both", 10)
        assert await first(store, "half=1", "half=0", now=5) == "more"
        assert await first(store, "half=0", "half=1", now=20) == "both"
        await store.run(lambda tx: tx.remove_offer("both"))
        await store.run(lambda tx: tx.remove_offer("more"))
        assert await first(store, "half=0", "half=1", now=20) is None

    tell(story)


def test_many_selections_of_what_many_have_find_what_fits(tell: Tell) -> None:
    async def story(store: Store) -> None:
        kinds = range(40)
        items = {one: [f"{one}=x", f"{one}=y"] for one in kinds}
        everything = [(one, half) for one in kinds for half in items[one]]
        for number in range(60):
            offers = [offer(f"{number} {half}", half) for _, half in everything]
            await store.run(lambda tx, offers=offers: [tx.add_offer(one) for one in offers])
        for _ in range(2):
            for one in kinds:
                assert await first(store, *items[one]) is None
        await put(store, *(offer(f"both {one}", *items[one]) for one in kinds))
        for one in kinds:
            assert await first(store, *items[one]) == f"both {one}"

    tell(story)


def test_what_is_removed_is_not_selected(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a", "ref=1"))
        await store.run(lambda tx: tx.remove_offer("a"))
        assert await first(store, "ref=1") is None
        await put(store, offer("a", "ref=2"))
        assert await first(store, "ref=1") is None
        assert await first(store, "ref=2") == "a"

    tell(story)


def test_a_step_that_fails_leaves_a_channel_as_it_was(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a", "ref=1"), offer("b"))

        def step(tx: Transaction) -> None:
            tx.add_offer(offer("c"))
            tx.postpone_offer("b", after(10))
            tx.remove_offer("a")
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await first(store, "ref=1") == await first(store) == "a"
        assert (await queue(store)).count == 2
        await store.run(lambda tx: tx.remove_offer("a"))
        assert await first(store) == "b"

    tell(story)


def test_when_the_clock_is_set_back_nothing_is_handed_out_longer(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await put(store, offer("a"))
        await handed(store, "a", until=3610)
        await store.run(lambda tx: tx.shift_work(timedelta(hours=1)))
        assert await first(store, now=9) is None
        assert await first(store, now=10) == "a"

    tell(story)


def test_something_comes_for_the_first_time_once_until_it_is_forgotten(tell: Tell) -> None:
    async def story(store: Store) -> None:
        async def new(now: float, name: str = "nonce") -> bool:
            return await store.run(lambda tx: tx.first_time(name, after(now), after(now + 10)))

        assert await new(0)
        assert not await new(5)
        assert await new(5, "another")
        assert not await new(10)
        assert await new(11)

    tell(story)
