"""Distinguished names: compared however they are printed, and printed as RFC 2253 asks.

Inside, a name is its relative names in the order of the certificate; in print (RFC 2253, 4514) the
last one comes first, but not everyone turns them around.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from cryptography import x509

from postroad.security.der import der_elements

REMEMBERED: Final = 2048
LARGEST_CERTIFICATE: Final = 16 * 1024
"""Bytes of a certificate that is read: what strangers send is remembered, so it must be small."""

Rdn = frozenset[tuple[str, str]]
NameKey = tuple[Rdn, ...]

RawRdn = tuple[tuple[str, int, bytes, bytes], ...]
"""Of each attribute: its type, and the tag, content and whole DER of its value."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""What RFC 2253 has a keyword for; all else is written by number."""

_MORE_KEYWORDS: Final = {
    "1.2.840.113549.1.9.1": "emailAddress",
    "2.5.4.5": "serialNumber",
    "2.5.4.97": "organizationIdentifier",
}
_TYPES: Final = {
    **{keyword.upper(): oid for oid, keyword in (*_KEYWORDS.items(), *_MORE_KEYWORDS.items())},
    "E": "1.2.840.113549.1.9.1",
    "EMAIL": "1.2.840.113549.1.9.1",
    "COMMONNAME": "2.5.4.3",
    "SN": "2.5.4.4",
    "SURNAME": "2.5.4.4",
    "COUNTRY": "2.5.4.6",
    "COUNTRYNAME": "2.5.4.6",
    "LOCALITY": "2.5.4.7",
    "LOCALITYNAME": "2.5.4.7",
    "S": "2.5.4.8",
    "SP": "2.5.4.8",
    "STATEORPROVINCENAME": "2.5.4.8",
    "STREETADDRESS": "2.5.4.9",
    "ORGANIZATION": "2.5.4.10",
    "ORGANIZATIONNAME": "2.5.4.10",
    "ORGANIZATIONALUNIT": "2.5.4.11",
    "ORGANIZATIONALUNITNAME": "2.5.4.11",
    "T": "2.5.4.12",
    "TITLE": "2.5.4.12",
    "DESCRIPTION": "2.5.4.13",
    "BUSINESSCATEGORY": "2.5.4.15",
    "POSTALCODE": "2.5.4.17",
    "TELEPHONENUMBER": "2.5.4.20",
    "NAME": "2.5.4.41",
    "G": "2.5.4.42",
    "GN": "2.5.4.42",
    "GIVENNAME": "2.5.4.42",
    "I": "2.5.4.43",
    "INITIALS": "2.5.4.43",
    "GENERATION": "2.5.4.44",
    "GENERATIONQUALIFIER": "2.5.4.44",
    "DNQ": "2.5.4.46",
    "DNQUALIFIER": "2.5.4.46",
    "PSEUDONYM": "2.5.4.65",
    "DOMAINCOMPONENT": "0.9.2342.19200300.100.1.25",
    "USERID": "0.9.2342.19200300.100.1.1",
    "UNSTRUCTUREDNAME": "1.2.840.113549.1.9.2",
    "UNSTRUCTUREDADDRESS": "1.2.840.113549.1.9.8",
    "JURISDICTIONL": "1.3.6.1.4.1.311.60.2.1.1",
    "JURISDICTIONST": "1.3.6.1.4.1.311.60.2.1.2",
    "JURISDICTIONC": "1.3.6.1.4.1.311.60.2.1.3",
}
_STRINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1A: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_OID_FORM: Final = re.compile(r"(?:OID\.)?([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_SLASH: Final = re.compile(r"/(?=[A-Za-z][A-Za-z0-9]*=|[0-9.]+=)")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_SEPARATORS: Final = frozenset(",;+")
_LONGEST_NAME: Final = 4096
_NAME_SHOWN: Final = 300


def rfc2253_name(name: x509.Name) -> str:
    """A name as RFC 2253 prints it, and as X509IssuerName carries it."""
    return _printed(relative_names(name.public_bytes()), _KEYWORDS)


def issuer_matches(certificate: x509.Certificate, issuer_name: str, serial: int) -> bool:
    """Whether an X509IssuerSerial means this certificate, however its writer prints names."""
    try:
        serials, issuer = _issuer_serial(certificate)
        if serial not in serials:
            return False
        asked = _parsed(issuer_name)
    except ValueError:
        return False
    return asked in (issuer, issuer[::-1])


@lru_cache(maxsize=REMEMBERED)
def _issuer_serial(certificate: x509.Certificate) -> tuple[tuple[int, ...], NameKey]:
    serial, issuer, _, _ = certificate_names(certificate)
    return _serials(serial), name_key(issuer)


def _serials(serial: int) -> tuple[int, ...]:
    """A negative serial number (against RFC 5280) is also printed as if it had no sign."""
    if serial >= 0:
        return (serial,)
    return serial, serial + (1 << 8 * ((~serial).bit_length() // 8 + 1))


def certificate_names(
    certificate: x509.Certificate,
) -> tuple[int, tuple[RawRdn, ...], tuple[RawRdn, ...], bytes]:
    """Serial number, issuer, subject and public key as they are encoded, odd ones too."""
    signed = certificate.tbs_certificate_bytes
    if len(signed) > LARGEST_CERTIFICATE:
        raise ValueError(f"it is larger than {LARGEST_CERTIFICATE} bytes")
    [(_, tbs, _)] = der_elements(signed)
    fields = [(content, whole) for tag, content, whole in der_elements(tbs) if tag != 0xA0]
    if len(fields) < 6:
        raise ValueError("it is not whole")
    serial = int.from_bytes(fields[0][0], signed=True)
    return serial, relative_names(fields[2][1]), relative_names(fields[4][1]), fields[5][1]


def relative_names(name: bytes) -> tuple[RawRdn, ...]:
    [(_, sequence, _)] = der_elements(name)
    return tuple(tuple(_attributes(content)) for _, content, _ in der_elements(sequence))


def _attributes(rdn: bytes) -> Iterator[tuple[str, int, bytes, bytes]]:
    for _, attribute, _ in der_elements(rdn):
        (_, oid, _), (tag, content, whole) = der_elements(attribute)
        yield _dotted(oid), tag, content, whole


def _dotted(oid: bytes) -> str:
    numbers = [0]
    for byte in oid:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(0)
    if len(numbers) < 2 or oid[-1] >= 0x80:
        raise ValueError("an attribute type is not an object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _characters(tag: int, content: bytes) -> str | None:
    encoding = _STRINGS.get(tag)
    if encoding is None:
        return None
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return content.decode("latin-1")


def name_key(rdns: tuple[RawRdn, ...]) -> NameKey:
    return tuple(
        frozenset((oid, _comparable(tag, content, whole)) for oid, tag, content, whole in rdn)
        for rdn in rdns
    )


def _comparable(tag: int, content: bytes, whole: bytes) -> str:
    text = _characters(tag, content)
    return "#" + whole.hex() if text is None else _folded(text)


def _folded(text: str) -> str:
    """Names are equal but for case, width and the number of spaces (RFC 5280, 7.1)."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def readable_name(rdns: tuple[RawRdn, ...]) -> str:
    text = _printed(rdns, _KEYWORDS | _MORE_KEYWORDS) or "without a name"
    return text if len(text) <= _NAME_SHOWN else text[:_NAME_SHOWN] + "…"


def _printed(rdns: tuple[RawRdn, ...], keywords: dict[str, str]) -> str:
    return ",".join(
        "+".join(_printed_attribute(*attribute, keywords) for attribute in rdn)
        for rdn in reversed(rdns)
    )


def _printed_attribute(
    oid: str, tag: int, content: bytes, whole: bytes, keywords: dict[str, str]
) -> str:
    keyword = keywords.get(oid)
    text = _characters(tag, content)
    if keyword is None or text is None:
        return f"{keyword or oid}=#{whole.hex()}"
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    last = len(text) - 1
    return "".join(
        _escaped_character(c, edge=(i == 0 and c in " #") or (i == last and c == " "))
        for i, c in enumerate(text)
    )


def _escaped_character(c: str, *, edge: bool) -> str:
    if c in ',+"\\<>;' or (edge and c == "#"):
        return "\\" + c
    if c.isprintable() and not edge:
        return c
    return "".join(f"\\{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=REMEMBERED)
def _parsed(text: str) -> NameKey:
    """A printed name to what is compared, in the order of print; ValueError where it is none."""
    if len(text) > _LONGEST_NAME:
        raise ValueError("the name is too long")
    text = text.lstrip()
    if text.startswith("/"):
        return tuple(
            frozenset((_attribute(part),)) for part in _SLASH.split(text)[1:] if "=" in part
        )
    found: list[Rdn] = []
    rdn: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        equals = text.find("=", at)
        if equals < 0:
            raise ValueError("an attribute has no value")
        oid = _type(text[at:equals])
        value, at = _value(text, equals + 1)
        rdn.append((oid, value))
        if at >= len(text) or text[at] != "+":
            found.append(frozenset(rdn))
            rdn = []
        at += 1
    return tuple(found)


def _attribute(part: str) -> tuple[str, str]:
    kind, _, value = part.partition("=")
    return _type(kind), _folded(value)


def _type(text: str) -> str:
    name = text.strip()
    numbered = _OID_FORM.fullmatch(name)
    if numbered:
        return numbered[1]
    oid = _TYPES.get(name.upper())
    if oid is None:
        raise ValueError("an attribute type is not known")
    return oid


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins here, and where the separator after it stands."""
    while at < len(text) and text[at].isspace():
        at += 1
    if text[at : at + 1] == "#":
        return _hex_value(text, at + 1)
    quoted = text[at : at + 1] == '"'
    octets, at = _octets(text, at + 1 if quoted else at, '"' if quoted else _SEPARATORS)
    if quoted:
        at += 1
        while at < len(text) and text[at].isspace():
            at += 1
        if at < len(text) and text[at] not in _SEPARATORS:
            raise ValueError("characters follow a quoted value")
    return _folded(octets.decode("utf-8")), at


def _octets(text: str, at: int, ends: str | frozenset[str]) -> tuple[bytes, int]:
    octets = bytearray()
    while at < len(text) and text[at] not in ends:
        if text[at] != "\\":
            octets += text[at].encode("utf-8", "surrogatepass")
            at += 1
            continue
        pair = text[at + 1 : at + 3]
        if len(pair) == 2 and _HEX.issuperset(pair):
            octets.append(int(pair, 16))
            at += 3
        else:
            octets += pair[:1].encode("utf-8", "surrogatepass")
            at += 2
    return bytes(octets), at


def _hex_value(text: str, at: int) -> tuple[str, int]:
    end = at
    while end < len(text) and text[end] not in _SEPARATORS:
        end += 1
    [(tag, content, whole)] = der_elements(bytes.fromhex(text[at:end]))
    return _comparable(tag, content, whole), end
