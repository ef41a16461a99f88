"""Messages of a green live run, kept as small files for machines without Java.

`make interop RECORD=1` writes them again. Each peer has a folder below `recorded/`: one file per
HTTP message as it was on the wire, `trust.pem` and `key.pem` (throw-away keys that verify and open
them), and `index.json`, which says for each file who wrote it, when, and the facts that hold.
"""

import email.message
import email.policy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import Any, Final

from lxml import etree

import postroad

RECORDED: Final = Path(__file__).with_name("recorded")
LARGEST: Final = 64 * 1024
_INDEX: Final = "index.json"
_KEPT_VALUES: Final = frozenset(
    ("Algorithm", "ValueType", "EncodingType", "Type", "mustUnderstand", "MimeType")
)
"""Attributes whose values belong to the shape of a message; of all others only the name does."""


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


def shape(content_type: str, body: bytes) -> str:
    """Return the structure of a message without its values: MIME headers, elements, attributes.

    Two messages of the same shape differ only in ids, times, digests, keys and business values.
    """
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    message = BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    return "\n".join(_part_shape(message)) + "\n"


def _part_shape(message: email.message.Message) -> Iterator[str]:
    for name, value in message.items():
        yield f"{name}: {_VARYING.sub(_ANY, str(value))}"
    content = message.get_payload(decode=True)
    if message.is_multipart():
        for part in message.iter_parts():  # type: ignore[attr-defined]
            yield "--"
            yield from _part_shape(part)
    elif "xml" in message.get_content_type() and content.lstrip().startswith(b"<"):
        yield from _element_shape(etree.fromstring(content), "")


_VARYING: Final = re.compile(r'(boundary="?|start="?|<)[^";>]*')
_ANY: Final = r"\1*"


def _element_shape(element: etree._Element, indent: str) -> Iterator[str]:
    name = etree.QName(element)
    attributes = sorted(
        f"{key}={value}" if etree.QName(key).localname in _KEPT_VALUES else str(key)
        for key, value in element.attrib.items()
    )
    yield " ".join([f"{indent}{element.prefix}:{name.localname}", *attributes])
    for child in element.iterchildren(etree.Element):
        yield from _element_shape(child, indent + " ")
