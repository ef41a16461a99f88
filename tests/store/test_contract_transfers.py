"""The contract of every backend: uploads that go on, and what came of them."""

import contextlib
from collections.abc import Callable

from postroad.store.interface import Store, Transaction
from postroad.store.transfers import Held, StoredTransfer
from tests.changing import replace
from tests.store.samples import START, after, bytes_of
from tests.store.stories import Tell

BEGUN = StoredTransfer(
    "cert:1", "/msh", "t1", "buyer", 0, 1_000_000, START, after(60), details=b"known"
)
LARGE = b"\x07" * 300_000


def growing(*pieces: bytes, transfer: StoredTransfer = BEGUN) -> Callable[[Transaction], None]:
    """A step that keeps pieces of an upload behind those that are there."""

    def step(tx: Transaction) -> None:
        known = tx.transfer(transfer.sender, transfer.path, transfer.name) or transfer
        kept = (*known.pieces, *[tx.keep(piece) for piece in pieces])
        tx.set_transfer(replace(known, pieces=kept, stored=sum(one.size for one in kept)))

    return step


async def known(store: Store, transfer: StoredTransfer = BEGUN) -> StoredTransfer | None:
    key = (transfer.sender, transfer.path, transfer.name)
    return await store.look(lambda reader: reader.transfer(*key))


async def held(store: Store, partner: str | None = None) -> Held:
    return await store.look(lambda reader: reader.held(partner))


async def size(store: Store) -> int:
    return (await store.look(lambda reader: reader.figures())).bytes


def test_an_upload_is_known_by_sender_path_and_name(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await known(store) is None
        await store.run(lambda tx: tx.set_transfer(BEGUN))
        assert await known(store) == BEGUN
        for other in ({"sender": "cert:2"}, {"path": "/other"}, {"name": "t2"}):
            assert await known(store, replace(BEGUN, **other)) is None

    tell(story)


def test_what_came_is_there_in_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(growing(b"one"))
        await store.run(growing(LARGE))
        await store.run(growing(b"two", b"three"))
        there = await known(store)
        assert there is not None
        assert there.stored == 300_011
        assert b"".join(bytes_of(store.content(one)) for one in there.pieces) == (
            b"one" + LARGE + b"twothree"
        )

    tell(story)


def test_every_field_comes_back(tell: Tell) -> None:
    async def story(store: Store) -> None:
        whole = replace(BEGUN, owner="node/1", open_until=after(5), stored=7, total=None)
        await store.run(lambda tx: tx.set_transfer(whole))
        assert await known(store) == whole
        done = replace(whole, owner=None, open_until=None, done=True, details=b"answer")
        await store.run(lambda tx: tx.set_transfer(done))
        assert await known(store) == done

    tell(story)


def test_pieces_that_it_has_no_more_are_removed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(growing(LARGE, b"rest"))
        before = await size(store)
        await store.run(lambda tx: tx.set_transfer(replace(BEGUN, done=True, stored=300_004)))
        assert before - await size(store) > 200_000

    tell(story)


def test_a_step_that_fails_keeps_what_was_there(tell: Tell) -> None:
    def failing(tx: Transaction) -> None:
        tx.remove_transfer(BEGUN.sender, BEGUN.path, BEGUN.name)
        raise ValueError

    async def story(store: Store) -> None:
        await store.run(growing(LARGE))
        with contextlib.suppress(ValueError):
            await store.run(failing)
        there = await known(store)
        assert there is not None
        assert bytes_of(store.content(there.pieces[0])) == LARGE

    tell(story)


def test_room_is_counted_for_each_partner_and_in_all(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.set_transfer(BEGUN))
        await store.run(lambda tx: tx.set_transfer(replace(BEGUN, name="t2", total=None, stored=5)))
        await store.run(lambda tx: tx.set_transfer(replace(BEGUN, partner="other", sender="2")))
        await store.run(lambda tx: tx.set_transfer(replace(BEGUN, name="t3", done=True)))
        assert await held(store, "buyer") == Held(2, 1_000_005)
        assert await held(store, "nobody") == Held(0, 0)
        assert await held(store) == Held(3, 2_000_005)

    tell(story)


def test_what_is_removed_takes_its_pieces_along(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(growing(LARGE))
        before = await size(store)
        await store.run(lambda tx: tx.remove_transfer("cert:1", "/msh", "t1"))
        await store.run(lambda tx: tx.remove_transfer("cert:1", "/msh", "t1"))
        assert await known(store) is None
        assert before - await size(store) > 200_000

    tell(story)


def test_those_whose_time_is_over_are_forgotten(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(growing(LARGE))
        later = replace(BEGUN, name="t2", expires_at=after(90))
        await store.run(growing(b"more", transfer=later))
        before = await size(store)
        assert await store.run(lambda tx: tx.forget_transfers(after(59), 10)) == 0
        assert await store.run(lambda tx: tx.forget_transfers(after(60), 10)) == 1
        assert await known(store) is None
        assert await known(store, later) is not None
        assert before - await size(store) > 200_000

    tell(story)


def test_only_the_last_that_are_done_are_remembered(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in range(5):
            one = replace(BEGUN, name=f"d{number}", done=True, touched_at=after(number))
            await store.run(lambda tx, one=one: tx.set_transfer(one))
        await store.run(growing(b"part"))
        await store.run(lambda tx: tx.forget_done_transfers(2))
        there = [await known(store, replace(BEGUN, name=f"d{number}")) for number in range(5)]
        assert [one is not None for one in there] == [False, False, False, True, True]
        assert await known(store) is not None

    tell(story)


def test_what_somebody_wrote_to_who_is_gone_is_free(tell: Tell) -> None:
    async def story(store: Store) -> None:
        mine = replace(BEGUN, owner="n/1-a#1", open_until=after(9))
        theirs = replace(BEGUN, name="t2", owner="n/2-b#1", open_until=after(9))
        await store.run(lambda tx: tx.set_transfer(mine))
        await store.run(lambda tx: tx.set_transfer(theirs))
        await store.run(lambda tx: tx.release_transfers("n/1-a"))
        assert await known(store) == BEGUN
        assert await known(store, theirs) == theirs

    tell(story)
