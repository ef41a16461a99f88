"""Times as numbers: microseconds since 1970, as segments and the lake's state have them."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE: Final = timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    return EPOCH + micros * _ONE


def micros(at: datetime) -> int:
    return (at - EPOCH) // _ONE


def day(micros: int) -> str:
    """In UTC, as folders are named."""
    return f"{moment(micros):%Y-%m-%d}"
