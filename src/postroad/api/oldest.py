"""Which message has been on its way for longest."""

from typing import Final

from postroad.node.service import ON_ITS_WAY, Service
from postroad.store.records import WAITS, Message, Side, State, Wanted

_WAITING: Final = (
    Wanted(side=Side.SENDING, states=ON_ITS_WAY, limit=1),
    Wanted(side=Side.FORWARDING, states=tuple(one for one in State if one in WAITS), limit=1),
)


async def oldest_waiting(service: Service) -> Message | None:
    """The oldest of what is sent or passed on and whose fate is not decided yet."""
    found = [one for wanted in _WAITING for one in await service.messages(wanted)]
    return min(found, key=lambda one: one.created_at, default=None)
