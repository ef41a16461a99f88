"""What the stories of the contract have in common."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from postroad.store.interface import Reader, Store
from postroad.store.records import Message, Side, Wanted, Work
from tests.store.conftest import Story
from tests.store.samples import after

Tell = Callable[[Story], None]
KINDS = ("package", "send", "signal", "notify")


class Refusal(Exception):
    pass


async def found(store: Store, message_id: str, side: Side = Side.RECEIVING) -> Message | None:
    return await store.look(lambda reader: reader.message(side, message_id))


def asking(wanted: Wanted) -> Callable[[Reader], list[Message]]:
    return lambda reader: reader.messages(wanted)


async def listed(store: Store, **wanted: Any) -> list[str]:
    messages = await store.look(asking(Wanted(**wanted)))
    return [one.message_id for one in messages]


async def added(store: Store, *given: Work) -> list[int]:
    """The ids of work that is added in one step."""
    return await store.run(lambda tx: [tx.add_work(one) for one in given])


async def taken(store: Store, now: float = 100, limit: int = 10, **other: Any) -> list[Work]:
    """The work that is claimed."""
    kinds = other.pop("kinds", KINDS)
    owner = other.pop("owner", "node/1")
    lease = after(other.pop("lease", now + 60))
    given = await store.run(
        lambda tx: tx.claim_work(kinds, after(now), owner, lease, limit, **other)
    )
    assert all(one.owner == owner and one.lease_until == lease for one in given)
    return given


async def claimed(store: Store, now: float = 100, limit: int = 10, **other: Any) -> list[str]:
    """The messages of the work that is claimed."""
    return [one.message_id for one in await taken(store, now, limit, **other)]


async def due(
    store: Store, kinds: Collection[str] = KINDS, without: Collection[str] = ()
) -> datetime | None:
    """When the next unclaimed work is due."""
    return await store.look(
        lambda reader: min(reader.due_by_kind(kinds, without).values(), default=None)
    )


async def kept_work(store: Store, id: int) -> Work:
    """The work of this id, which must be there."""
    one = await store.look(lambda reader: reader.work(id))
    assert one is not None
    return one


async def finish(store: Store, id: int) -> None:
    await store.run(lambda tx: tx.finish_work(id))
