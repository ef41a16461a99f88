"""The demo's supplier: nobody can reach it, so it calls out and collects what is for it."""

from datetime import datetime
from typing import Final

from postroad.node.first_steps.initializing import DevelopmentKeys, Plan, Station, initialize
from postroad.node.first_steps.profiles import Profile

ORDER: Final = "buyer-to-supplier-collected"


def found_supplier(supplier: Station, buyer: Station, keys: DevelopmentKeys, now: datetime) -> None:
    """Make the folder of a light client of AS4, and what it and the buyer agreed on."""
    initialize(Plan(supplier, buyer, profile=Profile.LIGHT), now=now, keys=keys, force=True)
