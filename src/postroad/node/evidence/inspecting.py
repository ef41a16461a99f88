"""`postroad.inspect()`: the shell around the inspection. Opens files, reads the clock, spools."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any

from cryptography import x509

from postroad.msh.expectation import Expectation
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Inspection, Lens
from postroad.msh.report import report
from postroad.node.evidence.archive import SIGNATURES
from postroad.node.evidence.check import Evidence, check_evidence, evidence_facts
from postroad.node.settings.agreements import load_expectation
from postroad.security.keys import BareKey, KeyPair, load_opening_keys, load_trusted
from postroad.security.revocation import Revocation, RevocationList, load_lists
from postroad.store.spool import SpoolSink
from postroad.wire.content import CHUNK, Content
from postroad.wire.limits import DEFAULT, Limits

Source = bytes | str | os.PathLike[str] | IO[bytes]
Trusted = bytes | str | os.PathLike[str] | x509.Certificate

_EXTENSIONS = {
    "application/xml": ".xml",
    "text/xml": ".xml",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/gzip": ".gz",
    "application/zip": ".zip",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "image/jpeg": ".jpg",
    "image/png": ".png",
}


@dataclass(frozen=True, slots=True)
class Tools:
    """What the one who inspects brings along; made once, used for any number of messages."""

    trust: tuple[x509.Certificate, ...] = ()
    keys: tuple[KeyPair | BareKey, ...] = ()
    at: datetime | None = None
    expectation: Expectation | None = None
    revocation_lists: tuple[RevocationList, ...] = ()
    allow_legacy: bool = False
    limits: Limits = field(default=DEFAULT)

    def lens(self) -> Lens:
        return Lens(
            at=self.at or datetime.now(UTC),
            at_given=self.at is not None,
            trusted=self.trust,
            keys=self.keys,
            legacy=self.allow_legacy,
            # The lists may be newer than the time that an evidence is judged by.
            revocation=Revocation(self.revocation_lists, historical=True),
            expectation=self.expectation,
            new_sink=lambda: SpoolSink(self.limits.memory_bytes),
            limits=self.limits,
        )


def inspect(
    source: Source,
    *,
    trust: Trusted | Sequence[Trusted] = (),
    key: bytes | str | os.PathLike[str] | KeyPair | None = None,
    password: str | bytes | None = None,
    at: datetime | str | None = None,
    pmode: str | os.PathLike[str] | None = None,
    crl: bytes | str | os.PathLike[str] | Sequence[bytes | str | os.PathLike[str]] = (),
    allow_legacy: bool = False,
    limits: Limits = DEFAULT,
) -> dict[str, Any]:
    """Everything about one ebMS 3.0 / AS4 message, as `postroad inspect --json` prints it.

    `source` is the message as bytes, the path of a file, or an open binary file: an HTTP message
    with its headers, a MIME body, an envelope alone, or the zip of an evidence. `trust` are
    certificates (PEM, DER, a path, or several), `key` opens what is encrypted, `password` opens
    key and trust stores, `at` is the time as of which certificates are judged (a datetime or ISO
    8601; UTC where it has no zone). `crl` are revocation lists, PEM or DER, as bytes or paths.
    """
    given = [trust] if isinstance(trust, bytes | str | os.PathLike | x509.Certificate) else trust
    tools = Tools(
        trust=tuple(one for item in given for one in _certificates(item, password)),
        keys=_key_pairs(key, password),
        at=moment(at) if at is not None else None,
        expectation=load_expectation(Path(pmode), password=_octets(password)) if pmode else None,
        revocation_lists=tuple(
            one
            for item in ([crl] if isinstance(crl, bytes | str | os.PathLike) else crl)
            for one in load_lists(_bytes(item))
        ),
        allow_legacy=allow_legacy,
        limits=limits,
    )
    with look_at(source, tools) as found:
        return facts_of(found)


def moment(value: datetime | str) -> datetime:
    """A time as people give it; in UTC where it has no zone. ValueError when it is none."""
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def inspect_source(
    source: Source, tools: Tools, *, progress: Callable[[int], None] | None = None
) -> Inspection:
    """Inspect; `progress` is told how many bytes were read each time some were."""
    return inspect_message(_counted(_chunks(source), progress), tools.lens())


@contextmanager
def look_at(
    source: Source, tools: Tools, *, progress: Callable[[int], None] | None = None
) -> Iterator[Inspection | Evidence]:
    """Inspect a message or verify an evidence, whichever it is.

    The contents of an evidence can be read as long as the context lasts.
    """
    chunks = _counted(_chunks(source), progress)
    begin = next(chunks, b"")
    if not begin.startswith(SIGNATURES):
        yield inspect_message(chain((begin,), chunks), tools.lens())
        return
    with _seekable(source, begin, chunks, tools.limits) as file:
        yield check_evidence(file, tools.lens())


def facts_of(found: Inspection | Evidence) -> dict[str, Any]:
    return report(found) if isinstance(found, Inspection) else evidence_facts(found)


@contextmanager
def _seekable(
    source: Source, begin: bytes, rest: Iterator[bytes], limits: Limits
) -> Iterator[IO[bytes]]:
    """A file to go back and forth in: the given one, or a copy of what comes only once."""
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield file
        return
    with tempfile.SpooledTemporaryFile(limits.memory_bytes) as copy:
        size = 0
        for chunk in chain((begin,), rest):
            size += len(chunk)
            if size > limits.message_bytes:
                break
            copy.write(chunk)
        yield copy


def _counted(chunks: Iterable[bytes], progress: Callable[[int], None] | None) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        if progress is not None:
            progress(len(chunk))


def _chunks(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes | bytearray | memoryview):
        yield bytes(source)
    elif isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield from iter(lambda: file.read(CHUNK), b"")
    else:
        yield from iter(lambda: source.read(CHUNK), b"")


def _certificates(item: Trusted, password: str | bytes | None) -> tuple[x509.Certificate, ...]:
    if isinstance(item, x509.Certificate):
        return (item,)
    return load_trusted(_bytes(item), _octets(password))


def _key_pairs(
    key: bytes | str | os.PathLike[str] | KeyPair | None, password: str | bytes | None
) -> tuple[KeyPair | BareKey, ...]:
    if key is None:
        return ()
    if isinstance(key, KeyPair):
        return (key,)
    return load_opening_keys(_bytes(key), _octets(password))


def _bytes(item: bytes | str | os.PathLike[str]) -> bytes:
    return item if isinstance(item, bytes) else Path(item).read_bytes()


def _octets(password: str | bytes | None) -> bytes | None:
    return password.encode() if isinstance(password, str) else password


def extract(inspection: Inspection, folder: Path) -> list[Path]:
    """Write envelope and opened payloads to a folder. File names are ours, never the message's."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    if inspection.capture is not None:
        written.append(_write(folder / "envelope.xml", [inspection.capture.envelope]))
    opened: dict[str | int, tuple[Content, str]] = {
        name: (attachment.content, attachment.media_type)
        for name, attachment in inspection.attachments.items()
    }
    every = [payload for payloads in inspection.payloads.values() for payload in payloads]
    for number, payload in enumerate(every):
        if payload.content is not None:
            name = payload.content_id if payload.content_id is not None else number
            opened[name] = (payload.content, payload.media_type or "")
    for number, (content, media_type) in enumerate(opened.values(), 1):
        extension = _EXTENSIONS.get(media_type.partition(";")[0].strip().lower(), ".bin")
        written.append(_write(folder / f"payload-{number}{extension}", content.chunks()))
    return written


def _write(path: Path, chunks: Iterable[bytes]) -> Path:
    with path.open("wb") as file:
        file.writelines(chunks)
    return path
