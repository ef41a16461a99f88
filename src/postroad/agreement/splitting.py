"""What a P-Mode leg says about splitting and joining, with what it leaves open filled in (4.5)."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from postroad.agreement.pmode import Leg
from postroad.wire.limits import MIB

USUAL_FRAGMENT: Final = 16 * MIB
"""The size of fragments where only the receiver's limits count."""
USUAL_INTERVAL: Final = timedelta(days=1)
USUAL_ALGORITHM: Final = "gzip"


class SplittingTerms(Struct, frozen=True):
    """How messages of a leg are split and joined. [P2-4.5-02]"""

    fragment_size: int | None = None
    """The largest data part in bytes; None: nothing was agreed."""
    routing_properties: frozenset[str] = frozenset()
    algorithm: str | None = None
    """The coding of the whole before it is split; None: as it is."""
    join_interval: timedelta = USUAL_INTERVAL

    @property
    def cut(self) -> int:
        """The size of the fragments that a sender makes."""
        return self.fragment_size or USUAL_FRAGMENT


def splitting_terms(leg: Leg) -> SplittingTerms | None:
    """None where messages of the leg are not split. [P2-4.4.2-01]"""
    agreed = leg.splitting
    if agreed is None or not agreed.enabled:
        return None
    compression = agreed.compression
    algorithm = None
    if compression is not None and compression.enabled:
        algorithm = compression.algorithm or USUAL_ALGORITHM
    return SplittingTerms(
        agreed.fragment_size,
        frozenset(agreed.routing_properties or ()),
        algorithm,
        agreed.join_interval or USUAL_INTERVAL,
    )
