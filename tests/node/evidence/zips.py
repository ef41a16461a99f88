"""Evidence about messages, as files and as zips that a forger put together again."""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Files = dict[str, bytes]
ORDER = b"<Order xmlns='urn:example:order'><ID>PO-1</ID></Order>"
PICTURE = bytes(range(256)) * 5
PAYLOADS = (
    ("application/xml", ORDER),
    ("text/plain", b"one\r\ntwo\n" * 50),
    ("image/png", PICTURE),
)


@dataclass(frozen=True)
class Made:
    """Evidence of both sides about the same messages."""

    folder: Path
    authority: Path
    zips: dict[tuple[str, str], bytes]


def unzipped(data: bytes) -> Files:
    """The files of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Files | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these files."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, data in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, data)
    return held.getvalue()


def listed(files: Files, **changes: Any) -> Files:
    """The files with an evidence.json that fits them again: what a careful forger would do."""
    manifest = {**json.loads(files["evidence.json"]), **changes}
    manifest["files"] = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "evidence.json"
    ]
    return {**files, "evidence.json": json.dumps(manifest).encode()}


def codes(facts: dict[str, Any], severity: str = "failure") -> list[str]:
    """What is told about evidence, by its codes."""
    return [one["code"] for one in facts["errors"] if one["severity"] == severity]


def flipped(data: bytes) -> bytes:
    """The same bytes but for the last bit."""
    return data[:-1] + bytes((data[-1] ^ 1,))
