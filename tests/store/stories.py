"""What the stories of the contract have in common."""

from collections.abc import Callable
from typing import Any

from postroad.store.interface import Reader, Store
from postroad.store.records import Message, Side, Wanted
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


async def claimed(store: Store, now: float = 100, limit: int = 10, **other: Any) -> list[str]:
    """The messages of the work that is claimed."""
    kinds = other.get("kinds", KINDS)
    owner = other.get("owner", "node/1")
    lease = after(other.get("lease", now + 60))
    given = await store.run(lambda tx: tx.claim_work(kinds, after(now), owner, lease, limit))
    assert all(one.owner == owner and one.lease_until == lease for one in given)
    return [one.message_id for one in given]
