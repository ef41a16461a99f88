"""`spark.read.format("postroad")`: what is in an inbox now."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from postroad.pipeline.source_offsets import stretches
from postroad.pipeline.source_options import Reading
from postroad.pipeline.source_reading import read_stretch

if TYPE_CHECKING:
    from postroad.api.client import Client

_FILTERED: Final = ("pmode", "from_party", "to_party", "service", "action", "conversation_id")


class BatchReader(DataSourceReader):
    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = schema
        self._after = 0
        self._through: int | None = None

    def partitions(self) -> list[InputPartition]:
        reading = self._reading
        with reading.connection.client() as client:
            start = first_cursor(client, reading)
            extent = client.inbox_extent()
        ends = [extent.last, reading.ending, self._through]
        given = isinstance(reading.starting, int) and reading.since is None
        floor = start if given and reading.fail_on_data_loss else None
        return stretches(
            max(start, self._after),
            min(end for end in ends if end is not None),
            extent.epoch,
            floor,
            reading.partitions,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_stretch(self._reading, self._schema, partition)


class FilteringReader(BatchReader):
    """Leaves to the node what it can filter.

    A class of its own: Spark refuses a reader that takes filters where the session doesn't give
    any, and a reader cannot see that.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return [one for one in filters if not self._takes(one)]

    def _takes(self, one: Filter) -> bool:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        value: Any = getattr(one, "value", None)
        if attribute == ("cursor",) and isinstance(value, int):
            return self._bounds(one, value)
        if isinstance(one, EqualTo) and len(attribute) == 1 and attribute[0] in _FILTERED:
            known = self._reading.filters.get(attribute[0], value)
            if known == value and isinstance(value, str) and value:
                filters = self._reading.filters | {attribute[0]: value}
                self._reading = replace(self._reading, filters=filters)
                return True
        return False

    def _bounds(self, one: Filter, value: int) -> bool:
        if isinstance(one, GreaterThan | GreaterThanOrEqual):
            self._after = max(self._after, value - isinstance(one, GreaterThanOrEqual))
        elif isinstance(one, LessThan | LessThanOrEqual):
            end = value - isinstance(one, LessThan)
            self._through = end if self._through is None else min(self._through, end)
        else:
            return False
        return True


def first_cursor(client: "Client", reading: Reading) -> int:
    """After which cursor a first run begins."""
    if reading.since is not None:
        for message in client.inbox(consumed=True, since=reading.since, limit=1):
            return int(message.cursor) - 1
        return client.inbox_extent().last
    if isinstance(reading.starting, int):
        return reading.starting
    return 0 if reading.starting == "earliest" else client.inbox_extent().last
