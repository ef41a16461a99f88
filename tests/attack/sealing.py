"""Ciphertext that is cut, changed, swapped or wrapped: every way to attack an encrypted message."""

import base64
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

from lxml import etree

from postroad.security.algorithms import SHA1
from postroad.security.encrypt import encrypt
from postroad.security.keyestablishment import Encryption
from postroad.wire.content import read_all
from postroad.wire.names import DS, S12, WSSE, XENC
from tests.attack.messages import Package, entropy, payload
from tests.attack.wrapping import FORGED_CONTENT
from tests.changing import replace

Change = Callable[[bytes], bytes]

DATA: Final = f"{{{XENC}}}EncryptedData"
KEY: Final = f"{{{XENC}}}EncryptedKey"


def changed(message: Package, change: Callable[[etree._Element], None]) -> Package:
    """The message with its envelope's tree changed."""
    root = etree.fromstring(message.envelope)
    change(root)
    return replace(message, envelope=etree.tostring(root))


def with_part(message: Package, change: Change) -> Package:
    """The message with the first ciphertext changed."""
    first, *rest = message.parts
    return message.with_parts(replace(first, content=change(first.content)), *rest)


def flip(at: int) -> Change:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return change


def key_value(change: Change) -> Callable[[etree._Element], None]:
    def apply(root: etree._Element) -> None:
        value = root.find(f".//{KEY}/{{{XENC}}}CipherData/{{{XENC}}}CipherValue")
        value.text = base64.b64encode(change(base64.b64decode(value.text))).decode()

    return apply


def body_value(change: Change) -> Callable[[etree._Element], None]:
    def apply(root: etree._Element) -> None:
        value = root.find(f".//{{{S12}}}Body//{{{XENC}}}CipherValue")
        value.text = base64.b64encode(change(base64.b64decode(value.text))).decode()

    return apply


def failing(message: Package) -> dict[str, Package]:
    """Every way in which decryption itself can fail."""
    return {
        "cut to nothing": with_part(message, lambda data: b""),
        "cut to less than an IV": with_part(message, lambda data: data[:5]),
        "cut to an IV": with_part(message, lambda data: data[:12]),
        "cut to IV and half a tag": with_part(message, lambda data: data[:20]),
        "cut by a byte": with_part(message, lambda data: data[:-1]),
        "cut by a tag": with_part(message, lambda data: data[:-16]),
        "one byte more": with_part(message, lambda data: data + b"\0"),
        "IV changed": with_part(message, flip(0)),
        "first byte changed": with_part(message, flip(12)),
        "last byte changed": with_part(message, flip(-17)),
        "tag changed": with_part(message, flip(-1)),
        "tag zeroed": with_part(message, lambda data: data[:-16] + b"\0" * 16),
        "key changed": changed(message, key_value(flip(7))),
        "key cut": changed(message, key_value(lambda value: value[:-1])),
        "key empty": changed(message, key_value(lambda value: b"")),
        "key zero": changed(message, key_value(lambda value: b"\0" * len(value))),
        "key too large": changed(message, key_value(lambda value: b"\xff" * len(value))),
        "body cut": changed(message, body_value(lambda value: value[:-1])),
        "body empty": changed(message, body_value(lambda value: b"")),
        "body tag changed": changed(message, body_value(flip(-1))),
        "body byte changed": changed(message, body_value(flip(13))),
        "other OAEP digest": message.replaced(
            f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{XENC}sha256"/><xenc11:MGF',
            f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{SHA1}"/><xenc11:MGF',
        ),
        "longer key asked": message.replaced("xmlenc11#aes128-gcm", "xmlenc11#aes256-gcm"),
    }


def _forged_pieces(encryption: Encryption) -> tuple[etree._Element, etree._Element, bytes]:
    """An EncryptedKey and EncryptedData for the recipient, made by the attacker."""
    sealed = encrypt(
        [payload("one", FORGED_CONTENT)], encryption, entropy=entropy(), id="_attacker"
    )
    nodes = [etree.fromstring(piece) for piece in sealed.pieces]
    key = next(node for node in nodes if node.tag == KEY)
    data = next(node for node in nodes if node.tag == DATA)
    content = read_all(sealed.attachments[0].content, 1 << 20)
    return key, data, content


_MODES = ("data wrapped", "key kept, data wrapped", "key and data wrapped", "both wrapped apart")
_WEAKNESSES = ("schema", "same Id", "key reference", "Type")
_PLACES = ("wrapper header", "Security of another role", "Body", "Object", "EncryptedData")


def encryption_wrappings(message: Package, encryption: Encryption) -> Iterator[tuple[str, Package]]:
    for mode, weakness, place, swapped in product(_MODES, _WEAKNESSES, _PLACES, (False, True)):
        name = f"{mode}; {weakness}; {place}; {'forged' if swapped else 'own'} ciphertext"
        yield name, _encryption_wrapped(message, encryption, mode, weakness, place, swapped)


def _encryption_wrapped(
    message: Package, encryption: Encryption, mode: str, weakness: str, place: str, swapped: bool
) -> Package:
    root = etree.fromstring(message.envelope)
    own_key, own_data = root.find(f".//{KEY}"), root.find(f".//{DATA}")
    key, data, content = _forged_pieces(encryption)
    if weakness == "same Id":
        key.set("Id", own_key.get("Id"))
        data.set("Id", own_data.get("Id"))
        data.find(f".//{{{WSSE}}}Reference").set("URI", f"#{own_key.get('Id')}")
    elif weakness == "key reference":
        data.remove(data.find(f"{{{DS}}}KeyInfo"))
        for reference in key.iter(f"{{{XENC}}}DataReference"):
            reference.set("URI", f"#{data.get('Id')}")
    elif weakness == "Type":
        data.set("Type", XENC + "Content")
    where = _place(root, place)
    if mode == "data wrapped":
        own_data.addprevious(data)
        own_key.addprevious(key)
        where.append(own_data)
    elif mode == "key kept, data wrapped":
        own_data.addprevious(data)
        where.append(own_data)
    elif mode == "key and data wrapped":
        own_data.addprevious(data)
        own_data.addprevious(key)
        where.append(own_key)
        where.append(own_data)
    else:
        where.append(data)
        where.append(key)
    one, two = message.parts
    parts = (replace(one, content=content), two) if swapped else (one, two)
    return replace(message, envelope=etree.tostring(root), parts=parts)


def _place(root: etree._Element, place: str) -> etree._Element:
    header, body = root.find(f"{{{S12}}}Header"), root.find(f"{{{S12}}}Body")
    if place == "wrapper header":
        return etree.SubElement(header, "{urn:example:w}Wrapper")
    if place == "Security of another role":
        other = etree.SubElement(header, f"{{{WSSE}}}Security")
        other.set(f"{{{S12}}}role", "urn:example:other")
        return other
    if place == "Body":
        return body
    if place == "Object":
        return etree.SubElement(next(root.iter(f"{{{DS}}}Signature")), f"{{{DS}}}Object")
    return body.find(DATA)
