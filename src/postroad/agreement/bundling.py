"""How the units of a P-Mode's leg may be bundled (Part 2, 3.3, 3.6.3 and 3.10.1)."""

from datetime import timedelta
from typing import Final, Literal

from msgspec import Struct

from postroad.agreement.pmode import Bundling, Leg, Ordering, PMode
from postroad.agreement.reliable import reliable_of

UNDEFINED: Final = "undefined"
DOCUMENT_ORDER: Final = "documentorder"
TIMESTAMP: Final = "timestamp"


class BundlingTerms(Struct, frozen=True):
    """What a leg says about bundling, with the defaults for what it leaves open."""

    pmode: str
    policy: Literal["never", "optional", "always"] = "never"
    primaries: frozenset[str] = frozenset()
    """The P-Modes whose units may be the primary of this one's."""
    max_size: int | None = None
    max_delay: timedelta | None = None
    ordering: Literal["undefined", "documentorder", "timestamp"] = "undefined"
    scope: tuple[str, ...] = ()
    """XPaths over a unit; units are ordered among those with the same values."""
    in_order: bool = False
    correlation: frozenset[str] = frozenset()
    """What tells the groups of InOrder delivery apart."""
    protocol: str | None = None
    """Of reliable messaging: its URI."""

    @property
    def bundled(self) -> bool:
        return self.policy != "never"


def bundling_terms(pmode: PMode, leg: Leg) -> BundlingTerms:
    """The terms of a leg. [P2-3.3-04] [P2-3.10.1-06]"""
    agreed = leg.bundling or Bundling()
    ordering = agreed.ordering or Ordering()
    scope = ordering.scope or ()
    return BundlingTerms(
        pmode.id,
        agreed.policy,
        frozenset(agreed.compatibility.pmode_list if agreed.compatibility else ()),
        agreed.max_size,
        agreed.max_delay,
        ordering.policy,
        scope,
        is_in_order(leg),
        frozenset(_correlation(leg) or scope),
        agreed_by.protocol if (agreed_by := reliable_of(leg)) is not None else None,
    )


def is_in_order(leg: Leg) -> bool:
    """Whether delivery in order is agreed, by reliable messaging or by reception awareness."""
    contract = leg.reliability.in_order if leg.reliability else None
    aware = leg.reception_awareness
    return bool(contract and contract.contract) or bool(aware and aware.in_order)


def _correlation(leg: Leg) -> tuple[str, ...]:
    agreed = leg.reliability.correlation if leg.reliability else None
    aware = leg.reception_awareness
    return agreed or ((aware.in_order,) if aware and aware.in_order else ())


def incompatible(unit: BundlingTerms, primary: BundlingTerms) -> str | None:
    """Why units of the one P-Mode cannot be secondary to a unit of the other; None: they can.

    [P2-3.3-01] [P2-3.3-06] [P2-3.6.3-01] [P2-3.6.3-03] [P2-3.6.3-04]
    """
    for one in (unit, primary):
        if not one.bundled:
            return f"units of P-Mode {one.pmode!r} are never bundled"
    if primary.pmode not in unit.primaries:
        return f"P-Mode {unit.pmode!r} does not list {primary.pmode!r} as a primary"
    if unit.protocol is not None and unit.protocol != primary.protocol:
        return f"{unit.pmode!r} has reliable messaging by a protocol, and {primary.pmode!r} has not"
    if unit.in_order and primary.ordering == UNDEFINED:
        return f"{unit.pmode!r} is delivered in order, and {primary.pmode!r} leaves it undefined"
    if unit.in_order and not primary.in_order:
        return f"{unit.pmode!r} is delivered in order, and {primary.pmode!r} is not"
    if unit.in_order and unit.correlation != primary.correlation:
        return f"{unit.pmode!r} and {primary.pmode!r} have different reliability correlations"
    return None
