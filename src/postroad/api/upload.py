"""A submission as it is uploaded: metadata first, then payloads, straight into the node's sinks.

No more than about a mebibyte of a payload is in memory at any time, whatever its size.
"""

import asyncio
import errno
import hashlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from postroad.api.limits import ApiLimits
from postroad.api.metadata import (
    BundleMetadata,
    G,
    GivenPayload,
    Metadata,
    read_metadata,
    triples,
)
from postroad.api.multipart import Cutter, PartBegins, PartEnds, Piece
from postroad.api.problems import ApiProblem, field_problem
from postroad.node.service import Submission, SubmittedPayload
from postroad.wire.content import Content, NewSink
from postroad.wire.limits import KIB, MIB

T = TypeVar("T")

METADATA: Final = "metadata"
_BATCH: Final = 1 * MIB
"""So much is digested and written at once, in a thread: handing over costs far less than that."""
_SMALL: Final = 128 * KIB
"""So little is digested and written on the spot: it is cheaper than handing over."""
_PIECES: Final = 1024
"""So many pieces wait for a batch at most, however small they are."""
_UNDESCRIBED: Final = GivenPayload(part="-")
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


async def read_submission(
    request: Request, new_sink: NewSink, limits: ApiLimits, kind: type[Metadata] = Metadata
) -> Submission:
    """The submission in a request; `ApiProblem` when there is none."""
    return await _read(request, _Upload(new_sink, limits, kind), limits, _one)


async def read_bundle(
    request: Request, new_sink: NewSink, limits: ApiLimits
) -> tuple[Submission, ...]:
    """The submissions of a bundle in a request."""
    return await _read(request, _Upload(new_sink, limits, BundleMetadata), limits, _many)


async def _read(
    request: Request,
    upload: "_Upload[G]",
    limits: ApiLimits,
    put: "Callable[[G, list[_Uploaded]], T]",
) -> T:
    """What came, put together."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise ApiProblem(415, "Send the body without Content-Encoding.")
    cutter = Cutter(request.headers.get("content-type", ""), limits)
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.upload_bytes:
        raise _too_large(limits)
    try:
        async for chunk in _chunks(request, limits):
            for piece in cutter.cut(chunk):
                await upload.take(piece)
        if not cutter.ended:
            raise ApiProblem(
                400, "The body ends before its closing boundary; nothing of it was kept."
            )
        return put(upload.metadata, upload.uploaded)
    except OSError as error:
        upload.discard()
        if error.errno not in _DISK_FULL:
            raise
        raise ApiProblem(
            503,
            "The disk of the node is full; nothing of the upload was kept. Try again later.",
            headers={"Retry-After": "60"},
        ) from error
    except BaseException:
        upload.discard()
        raise


async def _chunks(request: Request, limits: ApiLimits) -> AsyncIterator[bytes]:
    """The body as it comes, up to the limits of size and patience."""
    stream = aiter(request.stream())
    total = 0
    while True:
        try:
            async with asyncio.timeout(limits.idle_seconds):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ApiProblem(
                408,
                f"Nothing came for {limits.idle_seconds:g} seconds; nothing of it was kept.",
                headers={"Connection": "close"},
            ) from None
        total += len(chunk)
        if total > limits.upload_bytes:
            raise _too_large(limits)
        yield chunk


def _too_large(limits: ApiLimits) -> ApiProblem:
    return ApiProblem(413, f"A submission has at most {limits.upload_bytes} bytes here.")


@dataclass(frozen=True, slots=True)
class _Uploaded:
    """A payload part that is whole."""

    head: PartBegins
    content: Content
    sha256: bytes


class _Upload(Generic[G]):
    """What came of a submission so far."""

    def __init__(self, new_sink: NewSink, limits: ApiLimits, kind: type[G]) -> None:
        self._new_sink = new_sink
        self._limits = limits
        self._kind: type[G] = kind
        self._metadata: G | None = None
        self._metadata_bytes: bytearray | None = None
        self._incoming: _Incoming | None = None
        self._all: list[_Incoming] = []
        self.uploaded: list[_Uploaded] = []

    @property
    def metadata(self) -> G:
        if self._metadata is None:
            raise _metadata_first()
        return self._metadata

    async def take(self, piece: Piece) -> None:
        if isinstance(piece, PartBegins):
            self._begin(piece)
        elif isinstance(piece, PartEnds):
            await self._end()
        elif self._incoming:
            await self._incoming.write(piece)
        elif self._metadata_bytes is not None:
            self._metadata_bytes += piece
            if len(self._metadata_bytes) > self._limits.metadata_bytes:
                raise ApiProblem(
                    413, f"The metadata have at most {self._limits.metadata_bytes} bytes here."
                )

    def _begin(self, head: PartBegins) -> None:
        if head.name == METADATA and self._metadata:
            raise field_problem([(METADATA, "there are two parts of this name; send one")])
        if head.name == METADATA:
            self._metadata_bytes = bytearray()
        elif self._metadata is None:
            raise _metadata_first()
        else:
            self._incoming = _Incoming(head, self._new_sink)
            self._all.append(self._incoming)

    async def _end(self) -> None:
        if self._incoming:
            self.uploaded.append(await self._incoming.finish())
            self._incoming = None
        elif self._metadata_bytes is not None:
            self._metadata = read_metadata(bytes(self._metadata_bytes), self._kind)
            self._metadata_bytes = None

    def discard(self) -> None:
        for incoming in self._all:
            incoming.discard()


class _Incoming:
    """A payload on its way into a sink, digested as it goes."""

    def __init__(self, head: PartBegins, new_sink: NewSink) -> None:
        self._head = head
        self._sink = new_sink()
        self._digest = hashlib.sha256()
        self._waiting: list[memoryview] = []
        self._size = 0

    async def write(self, data: memoryview) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _BATCH or len(self._waiting) >= _PIECES:
            await run_in_threadpool(self._flush)

    async def finish(self) -> _Uploaded:
        if self._size <= _SMALL:
            return self._finish()
        return await run_in_threadpool(self._finish)

    def discard(self) -> None:
        self._sink.discard()

    def _flush(self) -> None:
        for data in self._waiting:
            self._digest.update(data)
            self._sink.write(data)
        self._waiting.clear()
        self._size = 0

    def _finish(self) -> _Uploaded:
        self._flush()
        return _Uploaded(self._head, self._sink.finish(), self._digest.digest())


def _metadata_first() -> ApiProblem:
    return field_problem([(METADATA, "send a part of this name with JSON before all payloads")])


def _one(given: Metadata, uploaded: list[_Uploaded]) -> Submission:
    """Payloads as they are described, then the others as they came."""
    parts = _Parts(uploaded)
    payloads = parts.described(given.payloads, METADATA)
    parts.check()
    return _submission(given, payloads + [_payload(one, _UNDESCRIBED) for one in parts.left()])


def _many(given: BundleMetadata, uploaded: list[_Uploaded]) -> tuple[Submission, ...]:
    """Each message with the payloads that it names."""
    parts = _Parts(uploaded)
    found = [
        _submission(one, parts.described(one.payloads, f"{METADATA}.messages[{number}]"))
        for number, one in enumerate(given.messages)
    ]
    parts.check()
    for over in parts.left():
        said = f"no message of the bundle names the part {over.head.name!r} among its payloads"
        raise field_problem([(f"{METADATA}.messages", said)])
    return tuple(found)


def _submission(given: Metadata, payloads: list[SubmittedPayload]) -> Submission:
    return Submission(
        pmode=given.pmode,
        payloads=tuple(payloads),
        message_id=given.message_id,
        conversation_id=given.conversation_id,
        ref_to_message_id=given.ref_to_message_id,
        service=given.service,
        action=given.action,
        properties=triples(given.properties),
        test=given.test,
    )


class _Parts:
    """What was uploaded, by the names under which it is described.

    Of parts with one name the first belongs to the first description, and so on.
    """

    def __init__(self, uploaded: list[_Uploaded]) -> None:
        self._uploaded = uploaded
        self._rest = set(range(len(uploaded)))
        self._by_name: defaultdict[str, deque[int]] = defaultdict(deque)
        self._missing: list[tuple[str, str]] = []
        for number, one in enumerate(uploaded):
            self._by_name[one.head.name].append(number)

    def described(self, given: list[GivenPayload], path: str) -> list[SubmittedPayload]:
        """The payloads that are described there, in the order of their descriptions."""
        payloads = []
        for number, one in enumerate(given):
            if self._by_name[one.part]:
                found = self._by_name[one.part].popleft()
                self._rest.remove(found)
                payloads.append(_payload(self._uploaded[found], one))
            else:
                said = f"no part {one.part!r} was uploaded"
                self._missing.append((f"{path}.payloads[{number}].part", said))
        return payloads

    def check(self) -> None:
        """Whether all was uploaded that is described."""
        if self._missing:
            raise field_problem(self._missing)

    def left(self) -> list[_Uploaded]:
        """What nobody described."""
        return [self._uploaded[number] for number in sorted(self._rest)]


def _payload(uploaded: _Uploaded, given: GivenPayload) -> SubmittedPayload:
    head = uploaded.head
    return SubmittedPayload(
        content=uploaded.content,
        sha256=uploaded.sha256,
        media_type=given.media_type or head.media_type or "application/octet-stream",
        content_id=given.content_id,
        file_name=given.file_name or head.file_name,
        properties=triples(given.properties),
        compress=given.compress,
    )
