"""All classes of attacks, in the order in which they run."""

from typing import Final

from tests.attack.campaign import replays
from tests.attack.campaign.model import AttackClass

CLASSES: Final[tuple[AttackClass, ...]] = (*replays.CLASSES,)
