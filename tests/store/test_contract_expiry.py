"""The contract of every backend: work that has to be looked at by a time, wherever it stands."""

from postroad.store.interface import Store, Transaction
from tests.store.samples import after, work
from tests.store.stories import Tell, claimed, due


def test_what_has_expired_is_given_though_its_partner_is_not_served(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_work(work("send", "ends", due=1, partner="away", expires_at=after(50)))
            tx.add_work(work("send", "stays", due=1, partner="away"))

        await store.run(step)
        assert await due(store, ["send"], ["away"]) == after(50)

        async def given(now: int) -> list[str]:
            found = await store.run(
                lambda tx: tx.claim_work(
                    ["send"], after(now), "me", after(now + 9), 9, without=["away"]
                )
            )
            return [one.message_id for one in found]

        assert await given(49) == []
        assert await given(50) == ["ends"]
        assert await given(51) == []

    tell(story)


def test_what_has_expired_is_given_though_its_turn_has_not_come(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> tuple[int, int, int]:
            return (
                tx.add_work(work("send", "first", due=900, lane="a")),
                tx.add_work(work("send", "second", due=1, lane="a", expires_at=after(50))),
                tx.add_work(work("send", "third", due=2, lane="a")),
            )

        first, second, _ = await store.run(step)
        assert await claimed(store, now=49) == []
        assert await claimed(store, now=50) == ["second"]
        await store.run(lambda tx: tx.finish_work(second))
        assert await claimed(store, now=60) == []
        await store.run(lambda tx: tx.finish_work(first))
        assert await claimed(store, now=61) == ["third"]

    tell(story)


def test_what_is_due_and_has_expired_is_given_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_work(work("send", "both", due=1, expires_at=after(2))))
        assert await claimed(store, now=3) == ["both"]
        assert await claimed(store, now=3) == []

    tell(story)


def test_the_end_can_be_set_and_taken_away(tell: Tell) -> None:
    async def story(store: Store) -> None:
        id = await store.run(lambda tx: tx.add_work(work("send", "one", due=900)))
        await store.run(lambda tx: tx.expire_work(id, after(40)))
        assert await due(store, ["send"]) == after(40)
        await store.run(lambda tx: tx.expire_work(id, None))
        assert await claimed(store, now=50) == []
        assert await due(store, ["send"]) == after(900)
        found = await store.look(lambda reader: reader.work(id))
        assert found is not None
        assert found.expires_at is None

    tell(story)
