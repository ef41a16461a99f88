"""A buyer and a seller who exchanged messages: their stores on the disk, and what journals say."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postroad.node.base.journaling import about, place
from postroad.pipeline.evidence import Believing
from postroad.pipeline.schema import DATE, EVENTS
from postroad.store.interface import Reader, Store
from postroad.store.records import Recorded, Side, Signal, Stored
from postroad.store.sqlite import open_sqlite
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties

ORDER = ("application/xml", b"<Order><ID>PO-1</ID></Order>")
PICTURE = ("image/png", bytes(range(256)) * 3)


@dataclass(frozen=True)
class Receipt:
    """One receipt with the message it is for, as a node kept them."""

    message_id: str
    receipt_id: str
    receipt: bytes
    sent: bytes
    at: datetime

    @property
    def micros(self) -> int:
        return round(self.at.timestamp() * 1e6)


@dataclass(frozen=True)
class Books:
    """What two nodes kept."""

    folder: Path
    events: tuple[dict[str, Any], ...]
    receipts: dict[str, Receipt]
    """By message id, of the sending side."""

    @property
    def folders(self) -> dict[str, str]:
        return {name: str(self.folder / name / "data") for name in (BUYER, SELLER)}

    def certificate(self, name: str) -> Path:
        return self.folder / BUYER / "keys" / f"{name}.pem"

    def believing(self, name: str = "authority", **more: Any) -> Believing:
        return Believing(self.certificate(name).read_bytes(), **more)


def exchanged(folder: Path, messages: Sequence[tuple[str, str]]) -> Books:
    """Messages of these ids and kinds (order, signed, plain), carried and acknowledged."""
    make_parties(folder)
    return asyncio.run(_exchanged(folder, messages))


async def _exchanged(folder: Path, messages: Sequence[tuple[str, str]]) -> Books:
    stores: dict[str, Store] = {}
    for name in (BUYER, SELLER):
        stores[name] = await open_sqlite(folder / name / "data", name)
    exchange = Exchange(folder, stores)
    events: list[dict[str, Any]] = []
    receipts = {}
    for message_id, kind in messages:
        message = await exchange.carry(message_id, ORDER, PICTURE, kind=kind)
        assert message.envelope is not None
        sent = about(message, "sent", exchange.clock(), evidence=place(message.envelope))
        told = [(BUYER, 1, sent)]
        for name, store in stores.items():
            found = await store.look(partial(_events, message_id))
            told += [(name, one.seq + 1000, one.event) for one in found]
        events += [
            {"node": name, "epoch": 1, "seq": seq, **msgspec.structs.asdict(event)}
            for name, seq, event in told
        ]
        (signal,) = await stores[BUYER].look(partial(_signals, message_id))
        receipts[message_id] = Receipt(
            message_id,
            signal.signal_id,
            _bytes(stores[BUYER], signal.envelope),
            _bytes(stores[BUYER], message.envelope),
            exchange.clock(),
        )
    for store in stores.values():
        await store.close()
    return Books(folder, tuple(events), receipts)


def _events(message_id: str, reader: Reader) -> Sequence[Recorded]:
    return reader.events(message_id)


def _signals(message_id: str, reader: Reader) -> Sequence[Signal]:
    return reader.signals(Side.SENDING, message_id)


def _bytes(store: Store, stored: Stored) -> bytes:
    return b"".join(store.content(stored).chunks())


def event_frame(spark: SparkSession, told: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows of the table `events`, with their day."""
    rows = [Row(**{name: row.get(name) for name in EVENTS.names}) for row in told]
    day = F.date_format("at", "yyyy-MM-dd").alias(DATE)
    return spark.createDataFrame(rows, EVENTS.schema).select("*", day)


def at_another_time(receipt: Receipt, days: int) -> Receipt:
    return replace(receipt, at=receipt.at + timedelta(days=days))


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    """The bytes with something else of the same length in them, once."""
    assert len(old) == len(new)
    assert old in data
    return data.replace(old, new, 1)


def signature_of(envelope: bytes) -> bytes:
    found = re.search(rb"<ds:SignatureValue>([^<]+)", envelope)
    assert found is not None
    return found[1]
