"""Messages of a green live run, kept as small files for machines without Java.

`make interop RECORD=1` writes them again. Each peer has a folder below `recorded/`: one file per
HTTP message as it was on the wire, `trust.pem` and `key.pem` (throw-away keys that verify and open
them), and `index.json`, which says for each file who wrote it, when, and the facts that hold.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import postroad

RECORDED: Final = Path(__file__).with_name("recorded")
LARGEST: Final = 64 * 1024
_INDEX: Final = "index.json"


@dataclass(frozen=True, slots=True)
class Recording:
    """One message as it was on the wire, and what `postroad.inspect` has to say of it."""

    peer: str
    name: str
    writer: str
    """`peer` or `postroad`."""
    at: str
    facts: Mapping[str, Any]

    @property
    def file(self) -> Path:
        return RECORDED / self.peer / f"{self.name}.http"

    def inspect(self) -> dict[str, Any]:
        """Return the facts that must be the same as when the message was recorded."""
        return facts(self.file.read_bytes(), self.file.parent, self.at)


def facts(message: bytes, folder: Path, at: str) -> dict[str, Any]:
    """Return what must stay true of a recorded message."""
    key = folder / "key.pem"
    found = postroad.inspect(
        message, trust=folder / "trust.pem", key=key if key.exists() else None, at=at
    )
    signature = found["signature"]
    return {
        "kind": found["kind"],
        "holds": found["holds"],
        "signed": signature["present"] and [signature["valid"], signature["trusted"]],
        "signed_parts": len(signature["references"]) if signature["present"] else 0,
        "encrypted": any(part["encrypted"] for part in found["parts"]),
        "payloads": [
            payload["sha256"] for unit in found["units"] for payload in unit.get("payloads", ())
        ],
    }


class Recorder:
    """Keeps messages below `recorded/` when `--record` is given; does nothing otherwise."""

    def __init__(self, *, active: bool) -> None:
        self.active = active

    def keep(
        self,
        peer: str,
        name: str,
        writer: str,
        message: bytes,
        *,
        trust: bytes,
        key: bytes,
        at: str,
    ) -> None:
        """Keep an HTTP message (head, blank line, body) and the PEM that verifies and opens it."""
        if not self.active:
            return
        assert len(message) <= LARGEST, f"{peer} {name}: {len(message)} bytes are too many to keep"
        folder = RECORDED / peer
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trust.pem").write_bytes(trust)
        (folder / "key.pem").write_bytes(key)
        (folder / f"{name}.http").write_bytes(message)
        index = folder / _INDEX
        known = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
        recording = Recording(peer, name, writer, at, facts(message, folder, at))
        known[name] = asdict(recording)
        index.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def recordings() -> Iterator[Recording]:
    """Return all recorded messages."""
    for index in sorted(RECORDED.glob(f"*/{_INDEX}")):
        for value in json.loads(index.read_text(encoding="utf-8")).values():
            yield Recording(**value)
