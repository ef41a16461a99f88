"""Receipts verified again, in bulk: signature, signer and digests, by the gateway's own code.

The acknowledgments of ebXML are receipts too. The journal tells which there are and where their
bytes lie, and those of the messages that they are for. Executors read both from the stores of the
nodes and prove one by the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from postroad.msh.proof import NOT_KEPT, Proof, Prover, trust_in
from postroad.pipeline.evidence_bytes import GONE, Gone, Kept
from postroad.pipeline.schema import DATE, EVIDENCE
from postroad.security.keys import load_certificates
from postroad.security.revocation import Revocation, load_lists

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENT: Final = ("submitted", "sent", "resent", "signed_again", "received")
"""Events that tell where the message lies; the last one holds, as it may have been signed again."""
_RECEIPTS: Final = ("receipt_received", "receipt_sent")
_ACKNOWLEDGMENTS: Final = ("ack_received", "acked")
"""What stands for receipts in ebXML."""
_ROWS: Final = pa.schema(
    [
        ("message_id", pa.string()),
        ("receipt_id", pa.string()),
        ("valid", pa.bool_()),
        ("signature", pa.bool_()),
        ("chain", pa.bool_()),
        ("digests", pa.bool_()),
        ("signer", pa.string()),
        ("checked_at", pa.timestamp("us", tz="UTC")),
        ("detail", pa.string()),
    ]
)
_LONGEST: Final = 1000
_TOGETHER: Final = 64
"""So many receipts fit into the cache of a processor with what they are for."""
_OFFSETS: Final = 40
"""Bits of an offset; the rest tells files apart."""


Row = tuple[str, str, int, str, str | None, str | None]
"""Message and receipt, when that came, of which node, and where both lie."""


class Believing(Struct, frozen=True):
    """Whom to believe; plain values, so that executors can be told."""

    certificates: bytes
    """Of authorities and partners, in PEM."""
    crls: bytes = b""
    """Revocation lists, in PEM."""
    signers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A party, and the names that a certificate must have which signs for it."""
    legacy: bool = False
    """Take weak algorithms and short keys."""

    def prover(self) -> Prover:
        """Who proves by it; ValueError when certificates or lists cannot be read."""
        trust = trust_in(load_certificates(self.certificates), legacy=self.legacy)
        lists = load_lists(self.crls) if self.crls else ()
        revocation = Revocation(lists, historical=True)
        signers = {party: frozenset(names) for party, names in self.signers}
        return Prover(trust, revocation=revocation, signers=signers, legacy=self.legacy)


_prover: Final = lru_cache(maxsize=4)(Believing.prover)
"""For the next task in the same process, which then knows the certificates already."""


def receipts(events: "DataFrame", nodes: Iterable[str]) -> "DataFrame":
    """One row per receipt, with the places of its bytes and of those of the message it is for.

    A receipt that both sides wrote of is taken where it was received, unless only the bytes of the
    other side are at hand: those of `nodes`. `at_hand` tells whether there are any.
    """
    from pyspark.sql import functions as F

    event = F.col("event")
    acknowledged = event.isin(*_ACKNOWLEDGMENTS) & F.col("protocol").startswith("ebxml-")
    receipt = (event.isin(*_RECEIPTS) | acknowledged) & F.col("signal_id").isNotNull()
    told = events.where((event.isin(*_SENT) | receipt) & F.col("message_id").isNotNull())
    sent = event.isin(*_SENT) & F.col("evidence").isNotNull() & F.col("signal_id").isNull()
    by_node = (
        told.select(
            "message_id", "node", "side", "event", "protocol", "signal_id", "at", "evidence"
        )
        .repartition("message_id")
        .groupBy("message_id", "node", "side")
        .agg(
            F.max(F.when(sent, F.struct("at", "evidence"))).alias("sent"),
            F.collect_set(F.when(receipt, F.struct("signal_id", "at", "evidence"))).alias("those"),
        )
        .select("*", F.explode("those").alias("receipt"))
    )
    first = F.struct(
        (~_among("node", nodes)).alias("elsewhere"),
        (F.col("side") == "receiving").alias("by_receiver"),
        F.col("receipt.at").alias("at"),
        F.col("node"),
        F.col("receipt.evidence").alias("receipt"),
        F.col("sent.evidence").alias("sent"),
    )
    return (
        by_node.withColumn("first", first)
        .groupBy("message_id", F.col("receipt.signal_id").alias("receipt_id"))
        .agg(F.min("first").alias("first"))
        .select(
            "message_id",
            "receipt_id",
            (~F.col("first.elsewhere")).alias("at_hand"),
            F.unix_micros("first.at").alias("at"),
            "first.node",
            "first.receipt",
            "first.sent",
        )
    )


def _among(column: str, names: Iterable[str]) -> "Column":
    from pyspark.sql import functions as F

    wanted = list(names)
    return F.col(column).isin(*wanted) if wanted else F.lit(False)


def proven(
    receipts: "DataFrame", folders: Mapping[str, str], believing: Believing, now: datetime
) -> "DataFrame":
    """A row of the table for each of these receipts, with its day."""
    from pyspark.sql import functions as F

    count = int(str(receipts.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    work = (
        receipts.withColumn("near", _near())
        .repartitionByRange(count, "near")
        .sortWithinPartitions("near")
        .select("message_id", "receipt_id", "at", "node", "receipt", "sent")
    )
    prove = partial(_proven, folders=dict(folders), believing=believing, now=now)
    day = F.date_format("checked_at", "yyyy-MM-dd").alias(DATE)
    return work.mapInArrow(prove, EVIDENCE.schema).select("*", day)


def _near() -> "Column":
    """Orders receipts as they lie in the stores: one number, which Spark sorts without comparing.

    Above is the file, by its hash, below the offset. Files with the same hash are read in turns.
    """
    from pyspark.sql import functions as F

    place = F.split("receipt", ":")
    file = F.xxhash64("node", F.get(place, 0))
    offset = F.coalesce(F.get(place, 1).try_cast("bigint"), F.lit(0))
    low = F.least(offset, F.lit((1 << _OFFSETS) - 1))
    return F.shiftleft(file, _OFFSETS).bitwiseOR(low)


def _proven(
    batches: Iterable[pa.RecordBatch],
    *,
    folders: Mapping[str, str],
    believing: Believing,
    now: datetime,
) -> Iterator[pa.RecordBatch]:
    """What an executor does."""
    kept, prover = Kept(folders), _prover(believing)
    for batch in batches:
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        proofs = [
            proof
            for start in range(0, len(rows), _TOGETHER)
            for proof in prove_some(prover, kept, rows[start : start + _TOGETHER])
        ]
        found = {
            name: pa.array([getattr(one, name) for one in proofs], _ROWS.field(name).type)
            for name in Proof.__struct_fields__
        }
        checked_at = pa.repeat(pa.scalar(now, _ROWS.field("checked_at").type), len(proofs))
        columns = {
            "message_id": batch.column(0),
            "receipt_id": batch.column(1),
            "checked_at": checked_at,
            **found,
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


def prove_some(prover: Prover, kept: Kept, rows: Sequence[Row]) -> list[Proof]:
    """What some receipts are worth: each step for all of them, as far as they are usual.

    A processor is faster at what it has just done. Whatever is not usual is proven by itself.
    """
    try:
        read = [
            (message_id, receipt_id, at, kept.read(node, receipt), kept.read(node, sent))
            for message_id, receipt_id, at, node, receipt, sent in rows
        ]
        found = [
            (prover.usual(receipt, sent, message_id, receipt_id), at)
            for message_id, receipt_id, at, receipt, sent in read
        ]
        quick = [
            prover.prove_usual(usual, at) if usual is not None else None for usual, at in found
        ]
    except Exception:
        # One of them cannot be read, or nobody foresaw it: the others must not suffer for it.
        quick = [None] * len(rows)
    return [
        prove(prover, kept, *row) if proof is None else proof
        for proof, row in zip(quick, rows, strict=True)
    ]


def prove(
    prover: Prover,
    kept: Kept,
    message_id: str,
    receipt_id: str,
    at: int,
    node: str,
    receipt: str | None,
    sent: str | None,
) -> Proof:
    """What one receipt is worth; whatever its bytes are, there is an answer."""
    try:
        data = kept.read(node, receipt)
    except Gone as gone:
        return Proof(False, None, None, None, None, f"{GONE}: {gone}"[:_LONGEST])
    message, missing = None, None
    try:
        message = kept.read(node, sent)
    except Gone as gone:
        missing = f"{GONE}: of the message, {gone}"[:_LONGEST]
    try:
        proof = prover.prove(data, message, message_id, receipt_id, at)
    except Exception as error:
        # One receipt that nobody foresaw must not end the proof of all others.
        said = f"it could not be looked at: {type(error).__name__}: {error}"
        return Proof(False, None, None, None, None, said[:_LONGEST])
    if missing is None:
        return proof
    others = proof.detail if proof.detail != NOT_KEPT else None
    return replace(proof, detail="; ".join(filter(None, (others, missing))))
