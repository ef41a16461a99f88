"""What an attack campaign is made of: classes of attacks, cases, and what came of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.attack.campaign.target import Target


class Breach(Exception):
    """An attack that had an effect, or a promise of docs/security.md that did not hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """One attack: it sends what it likes, and raises Breach when something gives way."""

    name: str
    attack: "Callable[[Target], None]"
    expect_log: tuple[str, ...] = ()
    """Texts of error lines in the log that are right here, such as that of a webhook that fails."""


@dataclass(frozen=True, slots=True)
class AttackClass:
    """Attacks of one kind; a row of the tally."""

    name: str
    cases: "Callable[[Target], Iterable[Case]]"
    """Makes the cases; it may use the target, such as messages that were captured there."""


@dataclass
class Result:
    """What came of one class."""

    name: str
    cases: int = 0
    requests: int = 0
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)
    skipped: int = 0
    """Cases for which there was no time left."""
