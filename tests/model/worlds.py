"""The worlds that are looked at: each agreement with a network and a receiver that misbehave.

Not both at once. A network that doubles a message in front of a receiver who takes one copy and
turns away the other deceives every sender: the one answer that it hears is about the wrong copy.
TCP doubles nothing; `docs/reliability.md` says what that means for a proxy that does.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace as changed

from tests.model.world import Agreement, Budget, Receipts, World

_CALLBACK: Final = Receipts.CALLBACK

AGREEMENTS: Final = (
    Agreement(),
    Agreement(time_to_live=True),
    Agreement(suspend=True),
    Agreement(fail_fast=True),
    Agreement(strict_ack=True),
    Agreement(_CALLBACK),
    Agreement(_CALLBACK, time_to_live=True),
    Agreement(_CALLBACK, suspend=True),
    Agreement(_CALLBACK, ack_after_delivery=True),
    Agreement(Receipts.NONE),
)


def worlds(budget: Budget, retries: int, messages: int = 1) -> Iterator[World]:
    """All of them, as far as the budget says anything to them."""
    for agreement in AGREEMENTS:
        agreed = changed(agreement, retries=retries)
        given = budget if agreed.suspend else budget._replace(resumptions=0)
        seen = set()
        for world in (
            World(agreed, given._replace(rejections=0, delays=0), messages),
            World(agreed, given._replace(duplicates=0), messages),
            World(agreed, given._replace(rejections=0, delays=0, takeovers=0), messages, True),
            World(changed(agreed, in_order=True), _left_alone(given), messages),
        ):
            ordered = world.agreement.in_order
            if world in seen or (ordered and (messages == 1 or world.agreement.strict_ack)):
                continue
            seen.add(world)
            yield world


def _left_alone(budget: Budget) -> Budget:
    """Who resends or settles a message may let another overtake it."""
    return budget._replace(duplicates=0, resends=0, settlements=0)
