"""The wire benchmark: signing and verifying against the bare RSA operation, MIME against copying.

Product and floor take turns within the run, and the best of each counts: on a busy machine that is
what it can do in its quiet moments.
"""

import hashlib
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from postroad import __version__
from postroad.node.first_steps.devpki import issue, make_authority
from postroad.node.first_steps.example import order_message
from postroad.security.algorithms import RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.ids import Ids
from postroad.security.secure import Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.trust import Trust
from postroad.security.verify import missing_coverage, security_headers, signatures, verify
from postroad.wire.content import CHUNK, BytesContent, Content
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_reader import find_messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.limits import MIB
from postroad.wire.mime import (
    MultipartReader,
    OutgoingPart,
    multipart_content_type,
    write_multipart,
)
from postroad.wire.mime_headers import parse_content_type
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.xml import parse

_PKCS1 = padding.PKCS1v15()
_SHA256 = hashes.SHA256()
_TURNS = 400


@dataclass(frozen=True, slots=True)
class Measure:
    """Work per second of the product and of its floor."""

    product: float
    floor: float
    unit: str
    goal: float | None = None
    peak_rss_mib: float | None = None
    seconds: float | None = None

    @property
    def ratio(self) -> float:
        return self.product / self.floor

    def as_json(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "product": self.product,
            "floor": self.floor,
            "ratio": self.ratio,
            "unit": self.unit,
        }
        optional = {
            "goal": self.goal,
            "peak_rss_mib": self.peak_rss_mib,
            "seconds": self.seconds,
        }
        return facts | {name: value for name, value in optional.items() if value is not None}


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "postroad": __version__,
        "lxml": version("lxml"),
        "cryptography": version("cryptography"),
    }


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def wire_measures(*, seconds: float, mib: int) -> dict[str, Measure]:
    product_sign, raw_sign, product_verify, raw_verify = _operations()
    measures = {
        "sign": _against(product_sign, raw_sign, seconds, goal=0.60),
        "verify": _against(product_verify, raw_verify, seconds, goal=0.12),
    }
    for name in ("mime_read", "mime_write"):
        measures[name] = _mime_in_own_process(name, mib)
    return measures


def _operations() -> tuple[Callable[[], Any], ...]:
    """Sign and verify a message with a 10 KiB attachment, each by product and bare."""
    now = datetime.now(UTC)
    authority = make_authority("Bench authority", now=now)
    pair = issue(authority, "bench", begin=now, end=now + timedelta(days=1))
    key = pair.private_key
    assert isinstance(key, rsa.RSAPrivateKey)
    content = os.urandom(10 * 1024)
    message = order_message(now)
    signing = Signing(pair, RSA_SHA256)
    trust = Trust(anchors=(authority.certificate,))

    def product_sign() -> Secured:
        header = write_messaging(Messaging((message,), id="_messaging"), SoapVersion.SOAP_12)
        attachment = Attachment("order@buyer.example", BytesContent(content), "application/gzip")
        return secure(
            SoapVersion.SOAP_12, [Block("_messaging", header)], [attachment], signing=signing
        )

    signed = product_sign()

    def product_verify() -> None:
        envelope = read_envelope(parse(signed.envelope))
        security = security_headers(envelope.header)[None]
        attachments = {one.content_id: one for one in signed.attachments}
        check = verify(signatures(security)[0], Ids(envelope.root), attachments)
        messaging = find_messaging(envelope)
        assert messaging is not None
        assert check.valid
        assert check.certificate is not None
        assert not missing_coverage(check, [messaging, envelope.body], list(attachments))
        trust.verify(check.certificate, check.companions, now)

    data = os.urandom(1500)
    value = key.sign(data, _PKCS1, _SHA256)
    public = key.public_key()
    return (
        product_sign,
        lambda: key.sign(data, _PKCS1, _SHA256),
        product_verify,
        lambda: public.verify(value, data, _PKCS1, _SHA256),
    )


def _against(
    product: Callable[[], Any], floor: Callable[[], Any], seconds: float, *, goal: float
) -> Measure:
    """The best rate of each: they take short turns, so that both meet the machine's quiet times."""
    slice_ = seconds / _TURNS
    product(), floor()
    turns = [(_rate(product, slice_), _rate(floor, slice_)) for _ in range(_TURNS)]
    return Measure(max(a for a, _ in turns), max(b for _, b in turns), "per second", goal)


def _rate(operation: Callable[[], Any], seconds: float) -> float:
    count, begin = 0, perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        operation()
        count += 1
    return count / elapsed


def _mime_in_own_process(name: str, mib: int) -> Measure:
    """In a process of its own, so that its peak memory is its own."""
    script = f"from postroad.cli.bench.wire import mime_child; mime_child({name!r}, {mib})"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    product, floor, memory, seconds = map(float, done.stdout.split())
    return Measure(product, floor, "MiB/s", peak_rss_mib=memory, seconds=seconds)


class _Generated:
    """Content made of one random piece again and again: large, without holding it."""

    def __init__(self, mib: int) -> None:
        self._piece = os.urandom(CHUNK)
        self._count = mib * MIB // CHUNK

    @property
    def size(self) -> int:
        return self._count * CHUNK

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self._count):
            yield self._piece


class _Discarded:
    """A sink like a file whose writes cost nothing: what remains is the product's own work."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self.size += len(data)

    def finish(self) -> Content:
        return BytesContent(b"")

    def discard(self) -> None:
        pass


def mime_child(name: str, mib: int) -> None:
    """Measure one direction; prints product and floor in MiB/s, peak MiB, and seconds."""
    content = _Generated(mib)
    envelope = b"<e/>" + b" " * 6000
    names = {"boundary": "bench-4f1d", "root_id": "root@bench", "root_type": "application/soap+xml"}
    parts = [OutgoingPart("large@bench", "application/octet-stream", content)]
    outer = parse_content_type(multipart_content_type(**names))

    def read() -> None:
        reader = MultipartReader(outer, new_sink=_Discarded)
        for chunk in write_multipart(envelope, parts, **names):
            reader.feed(chunk)
        assert reader.close().parts[1].sha256

    def write() -> None:
        sink = bytearray(CHUNK)
        for chunk in write_multipart(envelope, parts, **names):
            sink[: len(chunk)] = chunk

    def digest_and_copy() -> None:
        state, sink = hashlib.sha256(), bytearray(CHUNK)
        for chunk in content.chunks():
            state.update(chunk)
            sink[:] = chunk

    def copy() -> None:
        sink = bytearray(CHUNK)
        for chunk in content.chunks():
            sink[:] = chunk

    product, floor = (read, digest_and_copy) if name == "mime_read" else (write, copy)
    before = _forget_peak()
    best_product = min(_seconds(product) for _ in range(3))
    memory = _peak_mib() - before
    best_floor = min(_seconds(floor) for _ in range(3))
    print(mib / best_product, mib / best_floor, memory, best_product)


def _seconds(operation: Callable[[], None]) -> float:
    begin = perf_counter()
    operation()
    return perf_counter() - begin


def _forget_peak() -> float:
    """Let the peak start from what is held now; gives that, in MiB."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_mib()


def _peak_mib() -> float:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
