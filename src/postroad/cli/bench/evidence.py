"""The evidence benchmark: receipts verified through Spark, against the bare RSA operation.

A year of receipts cannot be made for a benchmark: as many as `distinct` are made, really signed,
and each is verified again and again. Nothing is remembered of a receipt, so each time is in full.
"""

import hashlib
import multiprocessing
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from postroad.cli.bench.wire import Measure
from postroad.msh.answers import write_answer
from postroad.msh.outbound import MESSAGING_ID
from postroad.node.first_steps.devpki import issue, make_authority
from postroad.node.first_steps.example import order_message
from postroad.security.algorithms import RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import MessageInfo, Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.receipts import nonrepudiation_receipt
from postroad.wire.soap import SoapVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NODE: Final = "bench"
_PLACE: Final = "s0123456789ab-{}"
_FILES: Final = 8
_PKCS1: Final = padding.PKCS1v15()
_SHA256: Final = hashes.SHA256()
_GOAL: Final = 0.5
_PAIRS: Final[list[KeyPair]] = []
"""The keys of buyer and seller, in the processes that make receipts."""


def evidence_measure(
    spark: "SparkSession", *, distinct: int = 10_000, times: int = 100, folder: Path | None = None
) -> Measure:
    """Receipts per second on all cores; the floor is bare verifying in as many processes.

    Session and workers are running, and code is compiled, when the clock starts. The floor runs
    before and after; the mean counts.
    """
    cores = spark.sparkContext.defaultParallelism
    with tempfile.TemporaryDirectory(dir=folder) as work:
        rows, trusted = _made(Path(work), distinct)
        frame = spark.createDataFrame(rows, _COLUMNS).repartition(_FILES).cache()
        frame.count()
        _through_spark(frame, work, trusted, -(-times // 3))
        before = _floor(cores)
        begin = perf_counter()
        verified = _through_spark(frame, work, trusted, times)
        seconds = perf_counter() - begin
        floor = (before + _floor(cores)) / 2
        frame.unpersist()
    if verified != distinct * times:
        raise RuntimeError(f"{verified} of {distinct * times} receipts hold: that measures nothing")
    return Measure(verified / seconds, floor, "per second", _GOAL, seconds=seconds)


_COLUMNS: Final = (
    "message_id string, receipt_id string, at long, node string, receipt string, sent string"
)


def _through_spark(frame: "DataFrame", work: str, trusted: bytes, times: int) -> int:
    """How many receipts hold: bytes read, receipts verified, rows given back to Spark."""
    from postroad.pipeline.evidence import Believing, proven

    again = frame.sparkSession.range(times)
    rows = proven(
        frame.crossJoin(again).drop("id"), {_NODE: work}, Believing(trusted), datetime.now(UTC)
    )
    return rows.where("valid").count()


def _made(folder: Path, distinct: int) -> tuple[list[tuple[Any, ...]], bytes]:
    """Messages and receipts in a store's files, and where each lies."""
    now = datetime.now(UTC).replace(microsecond=0)
    authority = make_authority("Bench authority", now=now)
    begin, end = now - timedelta(days=1), now + timedelta(days=1)
    pairs = [issue(authority, name, begin=begin, end=end) for name in ("buyer", "seller")]
    (folder / "segments").mkdir()
    share = -(-distinct // _FILES)
    work = [
        (folder, number, range(number * share, min(distinct, (number + 1) * share)), now)
        for number in range(_FILES)
    ]
    # A key pair is never handed on but by forking.
    with multiprocessing.get_context("fork").Pool(
        os.cpu_count(), initializer=_PAIRS.extend, initargs=(pairs,)
    ) as pool:
        rows = [row for some in pool.starmap(_written, work) for row in some]
    return rows, authority.certificate.public_bytes(Encoding.PEM)


def _written(folder: Path, number: int, those: range, now: datetime) -> list[tuple[Any, ...]]:
    name, rows, offset = _PLACE.format(number), [], 0
    with (folder / "segments" / name).open("wb") as file:
        for index in those:
            message_id, receipt_id = f"{index}@buyer.example", f"receipt-{index}@seller.example"
            sent, receipt = _exchange(message_id, receipt_id, now)
            file.write(sent + receipt)
            places = [f"{name}:{offset + len(sent)}:{len(receipt)}", f"{name}:{offset}:{len(sent)}"]
            offset += len(sent) + len(receipt)
            at = round(now.timestamp() * 1e6)
            rows.append((message_id, receipt_id, at, _NODE, *places))
    return rows


def _exchange(message_id: str, receipt_id: str, now: datetime) -> tuple[bytes, bytes]:
    """A signed message with a 10 KiB attachment, and its signed receipt."""
    buyer, seller = _PAIRS
    example = order_message(now)
    message = replace(example, message_info=replace(example.message_info, message_id=message_id))
    content = hashlib.shake_128(message_id.encode()).digest(10 * 1024)
    attachment = Attachment("order@buyer.example", BytesContent(content), "application/gzip")
    block = write_messaging(Messaging((message,), id=MESSAGING_ID), SoapVersion.SOAP_12)
    sent = secure(
        SoapVersion.SOAP_12,
        [Block(MESSAGING_ID, block)],
        [attachment],
        signing=Signing(buyer, RSA_SHA256),
        lifetime=Lifetime(now),
    )
    info = MessageInfo(now, receipt_id, message_id)
    signal = nonrepudiation_receipt(sent.references, message_info=info)
    answer = write_answer(signal, SoapVersion.SOAP_12, Signing(seller, RSA_SHA256), now)
    return sent.envelope, answer.envelope


def _floor(cores: int) -> float:
    """Bare verifications per second of so many processes together."""
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        return sum(pool.map(_bare, [3.0] * cores))


def _bare(seconds: float) -> float:
    key = rsa.generate_private_key(65537, 2048)
    data = os.urandom(1500)
    value, public = key.sign(data, _PKCS1, _SHA256), key.public_key()
    count, begin = 0, perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        public.verify(value, data, _PKCS1, _SHA256)
        count += 1
    return count / elapsed
