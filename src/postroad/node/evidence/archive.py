"""The zip of an evidence: which files it has, and reading one that a stranger made.

Names are looked up and compared, never used as paths. Every size is bounded before it is read.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import IO, Final

import msgspec

from postroad.msh.evidence import ENVELOPE
from postroad.wire.content import CHUNK, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB, Limits

FORMAT: Final = 1
MANIFEST: Final = "evidence.json"
EVENTS: Final = "events.json"
VERDICT: Final = "verdict.json"
README: Final = "README.txt"
TRUSTED: Final = "certificates/trusted.pem"
MESSAGE_SIGNER: Final = "certificates/message.pem"
SIGNATURES: Final = (b"PK\x03\x04", b"PK\x05\x06")
"""How a zip begins."""

_KINDS: Final = "receipt|error|acknowledgment|hop|response"
"""Of signals; the last three are those of ebXML."""
_NAMES: Final = re.compile(
    r"evidence\.json|events\.json|verdict\.json|README\.txt|message/envelope\.xml"
    r"|message/parts/[1-9][0-9]{0,5}"
    rf"|signals/[1-9][0-9]{{0,5}}-({_KINDS})\.xml"
    rf"|certificates/(message|trusted|[1-9][0-9]{{0,5}}-({_KINDS}))\.pem"
)
_PART_PREFIX: Final = "message/parts/"
_MOST_FILES: Final = 4000
_MOST_SIGNALS: Final = 500
_MOST_AT_ONCE: Final = 4 * MIB
"""Of the directory of a zip, and of any other single read."""
_SMALL_FILE: Final = 64 * MIB
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
"""What the zip module raises over files that are not as they should be."""


def part_name(number: int) -> str:
    return f"{_PART_PREFIX}{number}"


def signal_name(number: int, kind: str) -> str:
    return f"signals/{number}-{kind}.xml"


def signer_name(signal_file: str) -> str:
    """Where the certificates of who signed a signal are."""
    return f"certificates/{signal_file.removeprefix('signals/').removesuffix('.xml')}.pem"


class ListedFile(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class ListedPart(msgspec.Struct, frozen=True):
    file: str
    content_id: str | None
    """None for a payload in the Body."""
    media_type: str
    """Of the signed form: what it was before encryption."""
    compressed: bool = False
    file_name: str | None = None


class ListedSignal(msgspec.Struct, frozen=True):
    file: str
    signal_id: str
    kind: str
    at: datetime
    incoming: bool
    believed: bool
    """Whether the node that made the evidence took it for true when it came."""


class Manifest(msgspec.Struct, frozen=True, rename={"from_party": "from", "to_party": "to"}):
    """What `evidence.json` says."""

    format: int
    message_id: str
    side: str
    node: str
    party: str
    state: str
    created_at: datetime
    updated_at: datetime
    made_at: datetime
    from_party: str | None = None
    to_party: str | None = None
    service: str | None = None
    action: str | None = None
    conversation_id: str | None = None
    pmode: str | None = None
    error_code: str | None = None
    detail: str | None = None
    parts: tuple[ListedPart, ...] = ()
    signals: tuple[ListedSignal, ...] = ()
    files: tuple[ListedFile, ...] = ()
    bundled: bool = False
    """The envelope holds other messages too; their parts are not here."""


def wrong(detail: str, location: str | None = None, code: str = "EBMS:0004") -> EbmsError:
    return EbmsError(code, detail, location=location)


class ZippedContent:
    """A file of the zip, read from there each time."""

    __slots__ = ("_archive", "_info")

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        self._archive = archive
        self._info = info

    @property
    def size(self) -> int:
        return self._info.file_size

    def chunks(self) -> Iterator[bytes]:
        try:
            with self._archive.open(self._info) as file:
                yield from iter(lambda: file.read(CHUNK), b"")
        except _DAMAGE as error:
            detail = f"this file of the zip is damaged: {error}"
            raise wrong(detail[:300], self._info.filename) from None


class Archive:
    """An opened evidence; `EbmsError` when the file is no zip that could be one."""

    def __init__(self, file: IO[bytes], limits: Limits) -> None:
        self._limits = limits
        size = file.seek(0, 2)
        try:
            self._zip = zipfile.ZipFile(_Bounded(file, size))
        except _DAMAGE as error:
            raise wrong(f"this zip cannot be read: {error}"[:300], "file") from None
        self._files: dict[str, zipfile.ZipInfo] = {}
        self.problems: list[EbmsError] = []
        self._take(size)

    def _take(self, size: int) -> None:
        """The files that may be there, none twice, and not larger than what holds them."""
        infos = self._zip.infolist()
        if len(infos) > _MOST_FILES:
            raise wrong(f"the zip has more than {_MOST_FILES} files", "file")
        if sum(one.compress_size for one in infos) > size:
            raise wrong("the files of the zip overlap: it was made to be larger than it is", "file")
        if sum(one.file_size for one in infos) > self._limits.message_bytes:
            raise wrong(f"the zip holds more than {self._limits.message_bytes} bytes", "file")
        for info in infos:
            problem = self._refused(info)
            if problem is None:
                self._files[info.filename] = info
            else:
                self.problems.append(wrong(problem, _shown(info.filename)))

    def _refused(self, info: zipfile.ZipInfo) -> str | None:
        name = info.filename
        if not _NAMES.fullmatch(name):
            return "no evidence has a file of this name"
        if name in self._files:
            return "the zip has two files of this name"
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            return "it is encrypted, or compressed in a way that is not known here"
        limits = self._limits
        most = limits.part_bytes if name.startswith(_PART_PREFIX) else _SMALL_FILE
        if info.file_size > most:
            return f"it is larger than {most} bytes"
        inflated = info.file_size > max(limits.decompression_floor, 1)
        if inflated and info.file_size > limits.decompression_ratio * max(info.compress_size, 1):
            return "it is a bomb: so little becomes so much"
        return None

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def content(self, name: str) -> ZippedContent | None:
        info = self._files.get(name)
        return ZippedContent(self._zip, info) if info is not None else None

    def read(self, name: str, most: int = _MOST_AT_ONCE) -> bytes:
        """The whole of a small file."""
        content = self.content(name)
        if content is None:
            raise wrong("it is missing from the zip", name)
        if content.size > most:
            raise wrong(f"it is larger than {most} bytes", name)
        return read_all(content, most)

    def manifest(self) -> Manifest:
        """What the evidence says it is; `EbmsError` when it says nothing that is understood."""
        if MANIFEST not in self._files:
            raise wrong(f"this zip is no evidence of Postroad: it has no {MANIFEST}", "file")
        octets = self.read(MANIFEST)
        try:
            found = msgspec.json.decode(octets, type=_Version)
            if found.format != FORMAT:
                raise wrong(
                    f"this evidence has format {found.format}, only {FORMAT} is known here; "
                    "use a newer Postroad",
                    MANIFEST,
                )
            manifest = msgspec.json.decode(octets, type=Manifest)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise wrong(f"it cannot be read: {error}"[:300], MANIFEST) from None
        for time in (manifest.created_at, manifest.updated_at, manifest.made_at):
            try:
                time.utctimetuple()
            except OverflowError:
                raise wrong(
                    f"the time {time.isoformat()} is outside the years 1 to 9999 in UTC", MANIFEST
                ) from None
        if len(manifest.signals) > _MOST_SIGNALS or len(manifest.parts) > self._limits.parts:
            raise wrong("it lists more parts or signals than any message has", MANIFEST)
        parts = [one.file for one in manifest.parts]
        signals = [one.file for one in manifest.signals]
        if parts != [part_name(number) for number in range(1, len(parts) + 1)] or signals != [
            signal_name(number, one.kind) for number, one in enumerate(manifest.signals, 1)
        ]:
            raise wrong("its parts or signals are not named one after the other", MANIFEST)
        return manifest

    def differences(self, manifest: Manifest) -> list[EbmsError]:
        """In what the files differ from the list of them."""
        found = list(self.problems)
        listed: set[str] = set()
        for one in manifest.files:
            if one.name in listed:
                found.append(wrong("it is listed twice", _shown(one.name)))
                continue
            listed.add(one.name)
            try:
                digest = self.sha256(one.name)
            except EbmsError as error:
                found.append(error)
                continue
            if digest.hex() != one.sha256:
                found.append(wrong("it was changed: its sha256 is not the listed one", one.name))
        needed = {ENVELOPE, EVENTS, VERDICT, README, *(one.file for one in manifest.parts)}
        needed.update(one.file for one in manifest.signals)
        found += [
            wrong(f"{MANIFEST} does not list it", _shown(name))
            for name in sorted((needed | set(self._files)) - listed - {MANIFEST})
        ]
        return found

    def sha256(self, name: str) -> bytes:
        content = self.content(name)
        if content is None:
            raise wrong("it is missing from the zip", _shown(name))
        digest = sha256()
        for chunk in content.chunks():
            digest.update(chunk)
        return digest.digest()


class _Version(msgspec.Struct):
    format: int


class _Bounded:
    """A file that refuses to be read in large pieces: what a zip says of itself may be a lie."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._size = size

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._file.tell(), 0)
        wanted = left if size < 0 else min(size, left)
        if wanted > _MOST_AT_ONCE:
            raise wrong("the directory of the zip is too large", "file")
        return self._file.read(wanted)


def _shown(name: str) -> str:
    """A name for people: a stranger's may be of any length."""
    return name if len(name) <= 100 else f"{name[:100]}…"
