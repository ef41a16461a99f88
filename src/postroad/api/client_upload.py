"""The body of a submission as the clients send it: from the files, piece by piece."""

import asyncio
import io
import json
import mimetypes
import os
import secrets
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from postroad.api.client_values import Content, Payload, Progress, Properties

_PIECE: Final = 256 * 1024


def new_message_id() -> str:
    """An id that nobody else makes, later ones sorting after earlier ones."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return f"{uuid.UUID(int=number)}@postroad"


@dataclass(frozen=True, slots=True)
class _Source:
    """An open file from where its content begins."""

    file: IO[bytes]
    start: int
    size: int
    head: bytes


class Upload(AbstractContextManager["Upload"]):
    """A multipart body that can be sent again and again; closes what it opened."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        payloads: Sequence[Content | Payload],
        progress: Progress | None = None,
        units: Sequence[tuple[Mapping[str, Any], Sequence[Content | Payload]]] = (),
    ) -> None:
        """One message, or with `units` a bundle: the metadata and payloads of each."""
        self._opened = ExitStack()
        self._progress = progress
        self._boundary = f"postroad-{secrets.token_hex(16)}"
        self._sources: list[_Source] = []
        try:
            given: dict[str, Any] = self._described(metadata, payloads)
            if units:
                given = {"messages": [self._described(*one) for one in units]}
        except BaseException:
            self._opened.close()
            raise
        told = json.dumps(given).encode()
        self._begin = self._head('name="metadata"', "application/json")[2:] + told
        self._end = f"\r\n--{self._boundary}--\r\n".encode()

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Content-Type": f"multipart/form-data; boundary={self._boundary}",
            "Content-Length": str(self.size),
        }

    @property
    def size(self) -> int:
        parts = sum(len(source.head) + source.size for source in self._sources)
        return len(self._begin) + parts + len(self._end)

    def pieces(self) -> Iterator[bytes]:
        """The body from its beginning."""
        sent = 0
        for piece in self._all():
            yield piece
            sent += len(piece)
            if self._progress:
                self._progress(sent, self.size)

    async def async_pieces(self) -> AsyncIterator[bytes]:
        """The same, reading in a thread."""
        pieces = self.pieces()
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def _all(self) -> Iterator[bytes]:
        yield self._begin
        for source in self._sources:
            yield source.head
            source.file.seek(source.start)
            left = source.size
            while left:
                piece = source.file.read(min(_PIECE, left))
                if not piece:
                    raise OSError("A file became shorter while it was sent; send it again.")
                left -= len(piece)
                yield piece
        yield self._end

    def _described(
        self, metadata: Mapping[str, Any], payloads: Sequence[Content | Payload]
    ) -> dict[str, Any]:
        return {**metadata, "payloads": [self._add(one) for one in payloads]}

    def _add(self, given: Content | Payload) -> dict[str, Any]:
        """Open a payload and tell what its description in the metadata says."""
        payload = given if isinstance(given, Payload) else Payload(given)
        file, own_name = self._open(payload.content)
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        name = payload.file_name or own_name
        kind = payload.media_type or (mimetypes.guess_type(name)[0] if name else None)
        part = f"payload-{len(self._sources) + 1}"
        head = self._head(f'name="{part}"', "application/octet-stream")
        self._sources.append(_Source(file, start, size, head))
        told = {
            "part": part,
            "media_type": kind,
            "file_name": name,
            "content_id": payload.content_id,
            "properties": plain_properties(payload.properties),
            "compress": payload.compress,
        }
        return {key: value for key, value in told.items() if value is not None}

    def _open(self, content: Content) -> tuple[IO[bytes], str | None]:
        if isinstance(content, bytes):
            return io.BytesIO(content), None
        if isinstance(content, str | os.PathLike):
            path = Path(content)
            return self._opened.enter_context(path.open("rb")), path.name
        if not hasattr(content, "read"):
            raise TypeError(
                f"a payload is bytes, a path, an open binary file or a Payload, "
                f"not {type(content).__name__}"
            )
        name = getattr(content, "name", None)
        own_name = Path(name).name if isinstance(name, str) else None
        if content.seekable():
            return content, own_name
        spooled: IO[bytes] = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        shutil.copyfileobj(content, spooled, _PIECE)
        spooled.seek(0)
        return spooled, own_name

    def _head(self, name: str, media_type: str) -> bytes:
        return (
            f"\r\n--{self._boundary}\r\nContent-Disposition: form-data; {name}\r\n"
            f"Content-Type: {media_type}\r\n\r\n"
        ).encode()


def plain_properties(properties: Properties) -> Any:
    """Properties as JSON takes them."""
    if isinstance(properties, Mapping):
        return dict(properties)
    return [{"name": one.name, "value": one.value, "type": one.type} for one in properties]
