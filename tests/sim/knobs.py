"""What a node takes from its modules rather than from its configuration, turned for each seed.

Limits are shrunken, so that small messages take the ways of large ones and nothing takes a day.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Final
from unittest.mock import patch

from postroad.agreement.waiting import Policy
from postroad.msh.pulling import Channels
from postroad.node import node, upkeep, working
from postroad.node.hub import fetching
from postroad.node.steps import arrival, calling
from postroad.node.walks import offering, posting, pulling, receiving, sending, submitting
from postroad.reliability import agreed
from tests.sim.agreements import Party
from tests.sim.faults import SHORT_MEMORY, Faults, dice

_NEVER: Final = 1e9
_SELDOM: Final = 20.0
_TINY: Final = 100
"""Bytes above which a message is a large one, in some seeds."""
_ONCE: Final = Policy(timeout=timedelta(seconds=40))
"""Where nothing is agreed about retries a receipt that calls back has a day to come; not here."""


@contextmanager
def turned(
    seed: int, parties: Mapping[str, Party], faults: Faults, pmodes: Collection[str]
) -> Iterator[None]:
    """The knobs as a seed wants them; `pmodes` are those of its messages."""
    draw = dice(seed, "knobs")
    large = draw.random() < 0.3
    with ExitStack() as stack:

        def turn(module: object, name: str, value: object) -> None:
            stack.enter_context(patch.object(module, name, value))

        # Loading P-Modes takes longer than a whole history.
        turn(node, "InForce", lambda config, _: parties[config.node].in_force)
        for party in parties.values():
            # Nobody asks for messages of which there are none.
            used = (one for one in party.in_force.pulled if one.pmode.id in pmodes)
            turn(party.in_force, "pulled", tuple(used))
            channels = party.in_force.channels
            offered = tuple(one for one in channels.offered if one.match.pmode.id in pmodes)
            fewer = Channels(offered, channels.expectation, channels.trusted)
            turn(party.in_force, "channels", fewer)
        turn(agreed, "ONCE", _ONCE)
        turn(sending, "ONCE", _ONCE)
        turn(upkeep, "RELOAD", _NEVER)
        turn(working, "_LONGEST", draw.choice((1.0, 5.0, 20.0)))
        turn(pulling, "_LOOK", draw.choice((1.0, 5.0)))
        # No hub pulls for others here.
        turn(fetching, "_LOOK", _NEVER)
        turn(calling, "_FIRST_WAIT", timedelta(seconds=draw.choice((1, 5))))
        if faults.forgetful:
            turn(upkeep, "PURGE", SHORT_MEMORY / 4)
            turn(arrival, "_LEAST_MEMORY", timedelta(seconds=SHORT_MEMORY))
        if large:
            turn(submitting, "ON_LOOP", _TINY)
            turn(arrival, "ON_LOOP", _TINY)
            turn(receiving, "ON_LOOP", _TINY)
            turn(receiving, "_IN_ONE_PIECE", _TINY)
            turn(offering, "_IN_ONE_PIECE", _TINY)
            turn(posting, "IN_ONE_PIECE", _TINY)
        yield


def rest() -> None:
    """Once nothing fails any more nobody need look for work that nobody told of."""
    working._LONGEST = _SELDOM  # type: ignore[misc]
