"""What a rule says about a P-Mode that breaks it."""

from dataclasses import dataclass
from enum import StrEnum

from postroad.agreement.parameters import Path


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Breach:
    """A place in a P-Mode, what is wrong there and what to do."""

    path: Path
    message: str
    hint: str
    level: Level = Level.ERROR


def warning(path: Path, message: str, hint: str) -> Breach:
    return Breach(path, message, hint, Level.WARNING)
