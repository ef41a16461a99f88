"""The shapes of what Postroad writes, as WSS4J accepted them in a green live run.

A shape is the structure of a message without its values. `make interop RECORD=1` writes the shapes
after the run: one of each family in full, to be read, and a digest of every other. A machine
without Java thus notices when a shape changes, and knows that nobody has accepted the new one yet.
"""

import email.message
import email.policy
import hashlib
import json
import re
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path
from typing import Final

from lxml import etree

from tests.interop.wss4j_messages import written

SHAPES: Final = Path(__file__).with_name("recorded") / "shapes"
DIGESTS: Final = SHAPES / "digests.json"
_VARYING: Final = re.compile(r'(boundary="?|start="?|<)[^";>]*')
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")
_DIGIT: Final = re.compile(r"\d")
_KEPT_VALUES: Final = frozenset(
    ("Algorithm", "ValueType", "EncodingType", "Type", "mustUnderstand", "MimeType")
)
"""Attributes whose values belong to the shape of a message; of all others only the name does."""


def shape(content_type: str, body: bytes) -> str:
    """Return the structure of a message: MIME headers, elements, attributes, the form of times.

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


_ANY: Final = r"\1*"


def _element_shape(element: etree._Element, indent: str) -> Iterator[str]:
    attributes = sorted(_attribute(element, key) for key in element.attrib)
    name = f"{element.prefix}:{etree.QName(element).localname}"
    text = element.text or ""
    time = f"={_DIGIT.sub('0', text)}" if _TIME.fullmatch(text) else ""
    yield " ".join([f"{indent}{name}{time}", *attributes])
    for child in element.iterchildren(etree.Element):
        yield from _element_shape(child, indent + " ")


def _attribute(element: etree._Element, key: str) -> str:
    name = etree.QName(key)
    prefixes = [prefix for prefix, uri in element.nsmap.items() if uri == name.namespace]
    written_name = f"{prefixes[0]}:{name.localname}" if prefixes else name.localname
    kept = name.localname in _KEPT_VALUES
    return f"{written_name}={element.attrib[key]}" if kept else written_name


def current() -> tuple[dict[str, str], dict[str, str]]:
    """Return the first shape of each family by its file name, and the digest of every shape."""
    families: dict[str, str] = {}
    digests: dict[str, str] = {}
    for one in written():
        found = shape(one.content_type, one.body)
        file = re.sub(r"[^a-z0-9]+", "-", one.family.lower()).strip("-") + ".txt"
        families.setdefault(file, found)
        digests[f"{one.family}: {one.name}"] = hashlib.sha256(found.encode()).hexdigest()[:16]
    return families, digests


def record() -> None:
    """Write the shapes of now as those that were accepted."""
    families, digests = current()
    SHAPES.mkdir(parents=True, exist_ok=True)
    for old in SHAPES.glob("*.txt"):
        old.unlink()
    for name, text in families.items():
        (SHAPES / name).write_text(text, encoding="utf-8")
    DIGESTS.write_text(json.dumps(digests, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
