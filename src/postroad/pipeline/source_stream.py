"""`spark.readStream.format("postroad")`: an inbox as it fills, each message exactly once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from postroad.api.client_values import Extent
from postroad.pipeline.source_batch import first_cursor
from postroad.pipeline.source_offsets import DataLoss, Offset, stretches
from postroad.pipeline.source_options import Reading
from postroad.pipeline.source_reading import listed, read_stretch

if TYPE_CHECKING:
    from postroad.api.client import Client


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark remembers the offsets; nothing is kept here that a restart would miss."""

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = schema
        self._target: Extent | None = None
        self._acknowledged = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with self._reading.connection.client() as client:
            cursor = first_cursor(client, self._reading)
            extent = client.inbox_extent()
        given = isinstance(self._reading.starting, int) and self._reading.since is None
        purged = cursor if given else extent.purged
        return Offset(extent.node, extent.epoch, cursor, cursor, purged).plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._reading.most_messages is not None:
            return ReadMaxRows(self._reading.most_messages)
        if self._reading.most_bytes is not None:
            return ReadMaxBytes(self._reading.most_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._reading.connection.client() as client:
            self._target = client.inbox_extent()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        here = Offset.read(start)
        with self._reading.connection.client() as client:
            extent = client.inbox_extent()
            try:
                here.check(extent)
            except DataLoss:
                if self._reading.fail_on_data_loss:
                    raise
                here = _of_now(here, extent)
            last = self._last(extent)
            if last <= here.cursor:
                # The very same: anything else would be a new batch.
                return start
            cursor = self._limited(client, here.cursor, last, limit)
        return replace(here, cursor=cursor).plain()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        with self._reading.connection.client() as client:
            extent = client.inbox_extent()
        return {"node": extent.node, "epoch": extent.epoch, "cursor": extent.last}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = Offset.read(start), Offset.read(end)
        same = (begin.node, begin.epoch) == (stop.node, stop.epoch)
        after = begin.cursor if same else stop.since
        floor = begin.floor if self._reading.fail_on_data_loss else None
        return stretches(after, stop.cursor, stop.epoch, floor, self._reading.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_stretch(self._reading, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for these again: the application has them.

        All since the query began: what a crash left out is made up for.
        """
        done = Offset.read(end)
        if not self._reading.acknowledge or done.cursor <= max(done.since, self._acknowledged):
            return
        with self._reading.connection.client() as client:
            extent = client.inbox_extent()
            if (extent.node, extent.epoch) == (done.node, done.epoch):
                client.ack_all(
                    str(done.cursor),
                    cursor=str(max(done.since, self._acknowledged)),
                    **self._reading.filters,
                )
                self._acknowledged = done.cursor

    def _last(self, extent: Extent) -> int:
        """How far to go: to the end, or to where that was when the query was started."""
        target = self._target
        if target is None or target.epoch != extent.epoch:
            return extent.last
        return min(target.last, extent.last)

    def _limited(self, client: "Client", after: int, last: int, limit: ReadLimit) -> int:
        """The cursor of the last message that the limit allows."""
        messages, size, least = _allowed(limit)
        if messages is not None and self._reading.most_bytes is not None:
            size = self._reading.most_bytes
        if messages is None and size is None and least is None:
            return last
        total, cursor = 0, after
        for count, message in enumerate(listed(client, self._reading, after, last), 1):
            total += message.bytes
            if size is not None and count > 1 and total > size:
                return cursor
            cursor = int(message.cursor)
            if count == messages:
                return cursor
            if count == least:
                return last
        return after if least is not None and self._target is None else last


def _allowed(limit: ReadLimit) -> tuple[int | None, int | None, int | None]:
    """Messages at most, bytes at most, messages at least."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows, None, None
    if isinstance(limit, ReadMaxFiles):
        return limit.max_files, None, None
    if isinstance(limit, ReadMaxBytes):
        return None, limit.max_bytes, None
    if isinstance(limit, ReadMinRows):
        return None, None, limit.min_rows
    return None, None, None


def _of_now(here: Offset, extent: Extent) -> Offset:
    """The same place in what is there now; from the beginning when that is another inbox."""
    if (here.node, here.epoch) == (extent.node, extent.epoch) and extent.last >= here.cursor:
        return here
    return Offset(extent.node, extent.epoch, 0, 0, extent.purged)
