"""Content of any size as an answer, and the headers that make a stranger's file harmless."""

import base64
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator
from typing import Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from postroad.api.metadata import is_media_type

_RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
"""What Windows does not take for a file."""


async def streamed(
    chunks: Iterator[bytes],
    *,
    media_type: str,
    file_name: str,
    size: int | None = None,
    sha256: str | None = None,
) -> StreamingResponse:
    """An answer that is read as it is sent, in a thread. What cannot be opened raises here."""
    first = await run_in_threadpool(next, chunks, None)
    headers = {
        "Content-Type": media_type if is_media_type(media_type) else "application/octet-stream",
        "Content-Disposition": attachment(file_name),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    if size is not None:
        headers["Content-Length"] = str(size)
    if sha256:
        digest = base64.b64encode(bytes.fromhex(sha256)).decode()
        headers["ETag"] = f'"{sha256}"'
        headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return StreamingResponse(_pieces(first, chunks), headers=headers)


def attachment(file_name: str) -> str:
    """Content-Disposition with a name that is safe in the header and on disk (RFC 6266)."""
    name = safe_name(file_name)
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    encoded = f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else ""
    return f'attachment; filename="{plain}"{encoded}'


def safe_name(file_name: str, otherwise: str = "file") -> str:
    """A file name that names a file in the current folder and nothing else, on any system."""
    last = re.split(r"[/\\]", file_name)[-1]
    seen = "".join(one for one in last if not unicodedata.category(one).startswith("C"))
    name = re.sub(r'[<>:"|?*%;]', "_", seen).strip(" .")
    while len(name.encode()) > 200:
        name = name[1:]
    name = name.strip(" .")
    if not name or _RESERVED.fullmatch(name):
        return f"{otherwise}_{name}" if name else otherwise
    return name


async def _pieces(first: bytes | None, rest: Iterator[bytes]) -> AsyncIterator[bytes]:
    piece = first
    try:
        while piece is not None:
            yield piece
            piece = await run_in_threadpool(next, rest, None)
    finally:
        if close := getattr(rest, "close", None):
            close()
