"""How far a stream is in an inbox, and the stretches of it that tasks read.

An offset is the cursor of the last message that was read. It also holds what must stay the same
until the end of the query: the node and its epoch (cursors begin again in another one), where the
query began (what lies before is not acknowledged by it), and how far retention had got then.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Self

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import InputPartition

from postroad.api.client_values import Extent

_STRETCH: Final = 10_000
"""Cursors in one partition, where nobody asks for more partitions."""


class DataLoss(PySparkRuntimeError):
    """Messages were removed before they were read."""

    def __init__(self, said: str) -> None:
        more = "with failOnDataLoss=false the query goes on with what is there"
        super().__init__(
            message=f"{said}; {more}", errorClass="POSTROAD_DATA_LOSS", messageParameters={}
        )


@dataclass(frozen=True, slots=True)
class Offset:
    node: str
    epoch: int
    cursor: int
    since: int
    purged: int

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Self:
        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def floor(self) -> int:
        """What was removed up to here does not concern the query."""
        return max(self.cursor, self.purged)

    def check(self, extent: Extent) -> None:
        """Whether all that follows is still there."""
        if (self.node, self.epoch) != (extent.node, extent.epoch):
            raise DataLoss(
                f"the checkpoint is of node {self.node}, epoch {self.epoch}, and this is "
                f"{extent.node}, epoch {extent.epoch}: its database was restored or made anew"
            )
        if extent.last < self.cursor:
            raise DataLoss(
                f"the checkpoint is at cursor {self.cursor}, and the inbox of {extent.node} ends "
                f"at {extent.last}: its database is an older one"
            )
        check_purged(extent, self.floor)


def check_purged(extent: Extent, floor: int) -> None:
    if extent.purged > floor:
        raise DataLoss(
            f"retention removed messages from the inbox of {extent.node} up to cursor "
            f"{extent.purged}, and only those up to {floor} had been read"
        )


@dataclass(frozen=True)
class Stretch(InputPartition):
    """The messages after one cursor up to another."""

    after: int
    through: int
    epoch: int
    floor: int | None
    """What was removed beyond this is a loss; None: nothing is."""


def stretches(
    after: int, through: int, epoch: int, floor: int | None, least: int
) -> list[InputPartition]:
    """Cut a range of cursors into partitions; always the same for the same range."""
    length = through - after
    if length <= 0:
        return []
    count = min(length, max(least, -(-length // _STRETCH)))
    cuts = [after + length * number // count for number in range(count + 1)]
    return [Stretch(start, end, epoch, floor) for start, end in pairwise(cuts)]
