"""A node's REST interface with an inbox in memory, for the tests of the data source."""

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType
from starlette.types import ASGIApp

from postroad.pipeline.source import PostroadSource
from postroad.store.records import State
from tests.api.memory_service import ORDERS, MemoryService
from tests.api.site import Site

TOKEN = "a-token-that-nobody-sees"
PMODE = ORDERS.id


@dataclass
class Inbox:
    """Each test has its own; server and application are made once."""

    site: Site
    app: FastAPI
    service: MemoryService

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.site.url, "token": TOKEN, "retries": "0"}

    def deliver(self, *payloads: bytes | str, kind: str = "application/xml", **fields: Any) -> None:
        """One message for each payload."""

        async def receive() -> None:
            for payload in payloads:
                data = payload.encode() if isinstance(payload, str) else payload
                self.service.receive([(data, kind, None)], **fields)

        self.site.run(receive())

    def serve(self, app: ASGIApp) -> None:
        """Put something between the node and those who ask."""
        self.site.app = app

    def instead(self, service: Any) -> None:
        self.app.state.service = service

    def purge(self) -> None:
        self.site.run(self.service.purge())

    @property
    def waiting(self) -> list[int]:
        """The cursors of what was not acknowledged."""
        found = self.service._messages.values()
        return [one.key for one in found if one.state is State.DELIVERED]

    @property
    def sent(self) -> dict[str, list[bytes]]:
        """The payloads of what was submitted, by message id."""
        return {
            one.message_id: [b"".join(self.service.part(one, part).chunks()) for part in one.parts]
            for one in self.service._messages.values()
            if one.state is State.SUBMITTED
        }

    def source(self, **options: object) -> PostroadSource:
        given = {name: str(value) for name, value in options.items()}
        return PostroadSource(CaseInsensitiveDict(self.options | given))

    def stream(self, **options: object) -> DataSourceStreamReader:
        source = self.source(**options)
        return source.streamReader(source.schema())

    def reader(self, schema: StructType | None = None, **options: object) -> DataSourceReader:
        source = self.source(**options)
        return source.reader(schema or source.schema())

    def rows(self, **options: object) -> list[dict[str, Any]]:
        """What a batch reads."""
        return rows_of(self.reader(**options))


def rows_of(reader: Any, *between: dict[str, Any]) -> list[dict[str, Any]]:
    """What the tasks of a batch read, one after the other."""
    found: list[dict[str, Any]] = []
    for partition in reader.partitions(*between):
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def cursors(rows: list[dict[str, Any]]) -> list[int]:
    return [row["cursor"] for row in rows]
