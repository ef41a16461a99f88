"""A network that loses things until a test says that it is calm."""

import random
from typing import Any, Final

from postroad.transport.http_outgoing import Reply
from tests.node.reliable import Posted, World, lost, passed, refused, reply_lost

FOREVER: Final[dict[str, Any]] = {"max_retries": "unlimited", "timeout": "PT7S", "period": "PT11S"}
"""Retries that outlast any storm."""


class Stormy:
    """What is posted, or its answer, is lost, or it comes twice.

    For each time that something is lost in one of three ways, it passes `passing` times.
    """

    def __init__(self, dice: random.Random, passing: int) -> None:
        self._dice = dice
        self._happens = (*[passed] * passing, lost, reply_lost, refused)
        self.calm = False

    async def __call__(self, world: World, posted: Posted) -> Reply:
        what = passed if self.calm else self._dice.choice(self._happens)
        if not self.calm and self._dice.random() < 0.1:
            await passed(world, posted)
        return await what(world, posted)
