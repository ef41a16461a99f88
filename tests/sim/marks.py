"""Rare things that the seeds of a long run must reach; one that is never reached tests nothing."""

from collections.abc import Mapping
from typing import Final

ENOUGH: Final = 200
"""Runs of fewer seeds need not reach everything."""

REQUIRED: Final = (
    "crash",
    "taken up after a crash",
    "receiver died over a request",
    "reply lost",
    "clock set back an hour",
    "submitted again",
    "contradiction refused",
    "resent by an operator",
    "duplicate",
    "sending acknowledged",
    "sending failed",
    "sending in_doubt",
    "sending sent",
    "receiving delivered",
    "receiving consumed",
    "receiving rejected",
    "error_received",
    "ghost of a copy",
)


def missing(reached: Mapping[str, int]) -> list[str]:
    """Those of the required marks that were never reached."""
    return [name for name in REQUIRED if not reached.get(name)]
