"""XML that reads files, calls servers, expands without end, or asks for much work.

Sent as envelopes of every protocol that the nodes take, with and without attachments, and as
payloads. Nothing of it is signed where that does not matter: a parser comes before any signature.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postroad.wire.soap import SoapVersion
from tests.attack.campaign.forged import (
    accepted,
    delivered,
    from_buyer,
    inbox_end,
    order,
    received,
    refused,
    rewritten,
    soap,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target
from tests.attack.messages import Package, payload
from tests.attack.xml_attacks import (
    ENCODINGS,
    HIDING_ENCODINGS,
    ORDER,
    colliding,
    doctypes,
    evil_attachments,
    in_encoding,
    pointers,
    shapes,
    with_doctype,
)
from tests.changing import replace
from tests.e2e.nodes import COMMAND
from tests.fuzz.samples import agreements
from tests.fuzz.stateful_nodes import Sent

_SECRET: Final = b"the-secret-of-the-file"
_UNREADABLE: Final = ("EBMS:0009", "Client")
"""The error of ebMS, and the SOAP fault that older ebXML has for it."""
_END_OF_HEADER: Final = (b"</S12:Header>", b"</SOAP-ENV:Header>")


@dataclass(frozen=True, slots=True)
class _Base:
    """An envelope of a protocol, and how it is sent."""

    name: str
    envelope: bytes
    send_as: Callable[[bytes], Sent]


def _bases(target: Target) -> Iterator[_Base]:
    """Envelopes of each protocol, with and without MIME around them, to both nodes."""
    caught = order(None, "plain", ())
    yield _Base("AS4", caught.envelope, soap)
    for name in ("signed", "wsrm", "wsreliability", "ebxml-1.0", "ebxml-2.0", "ebxml-signed"):
        sent = target.recorded(name)[-1]
        yield _Base(name, received(sent).envelope, _as_part_of(sent))
    sequence = next(one for one in target.captured.all() if b":CreateSequence" in one.body)
    yield _Base("CreateSequence", sequence.body, lambda data: replace(sequence, body=data))
    receipt = next(
        one for one in target.captured.all() if one.to == "buyer" and b":Receipt" in one.body
    )
    yield _Base("receipt", receipt.body, lambda data: replace(receipt, body=data))


def _as_part_of(sent: Sent) -> Callable[[bytes], Sent]:
    own = received(sent)
    return lambda data: rewritten(sent, replace(own, envelope=data))


def _refuse(target: Target, sent: Sent) -> None:
    answer = refused(target, sent, *_UNREADABLE)
    if _SECRET in answer.body:
        raise Breach("the answer tells what is in a file of the node")
    if len(answer.body) > 20_000:
        raise Breach(f"the answer has {len(answer.body):,} bytes")


def _refuse_all(*requests: Sent) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        for one in requests:
            _refuse(target, one)

    return attack


def _in_header(base: _Base, xml: bytes) -> Sent:
    [end] = [one for one in _END_OF_HEADER if one in base.envelope]
    return base.send_as(base.envelope.replace(end, xml + end))


def _colliding_names(pairs: tuple[str, str]) -> bytes:
    written = " ".join(f'n{name}=""' for name in colliding(pairs, 12, 4000))
    return f"<x:a xmlns:x='urn:x' {written}/>".encode()


_HASHES: Final = {"DJBX31A": ("Aa", "BB"), "DJBX33A": ("Ez", "FY"), "DJBX33X": ("0a", "1B")}


def _secret(target: Target) -> Path:
    path = target.folder / "secret.txt"
    path.write_bytes(_SECRET)
    return path


def _declarations(target: Target) -> Iterator[Case]:
    secret = _secret(target).as_uri()
    yield Case("control: what is declared in other ways is taken", _control)
    for base in _bases(target):
        vectors = doctypes(secret, target.canary.url)
        near = doctypes(target.canary.url, secret)
        vectors |= {f"{name}, calling": near[name] for name in near if "far" not in name}
        for name, vector in sorted(vectors.items()):
            written = [with_doctype(base.envelope, vector, one) for one in ENCODINGS]
            yield Case(f"{base.name}: {name}", _refuse_all(*map(base.send_as, written)))
        text = base.envelope.decode().partition("?>\n")[2]
        for name in ("XXE SYSTEM", "XXE far SYSTEM", "billion laughs", "external DTD SYSTEM"):
            hidden = [in_encoding(vectors[name][0] + text, one) for one in HIDING_ENCODINGS]
            yield Case(f"{base.name}: {name}, hidden", _refuse_all(*map(base.send_as, hidden)))


def _control(target: Target) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        caught = order(None, "plain", ())
        text = with_doctype(caught.envelope, ("<!-- DOCTYPE -->", "text", "value"), encoding)
        accepted(target, soap(text), "plain")


def _shapes(target: Target) -> Iterator[Case]:
    yield Case("control: a header block is taken", _control)
    for base in _bases(target):
        for name, xml in sorted(shapes().items()):
            yield Case(f"{base.name}: {name}", _refuse_all(_in_header(base, xml.encode())))
        for name, pairs in _HASHES.items():
            attack = _refuse_all(_in_header(base, _colliding_names(pairs)))
            yield Case(f"{base.name}: attributes that collide in {name}", attack)
        for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"):
            broken = _in_header(base, b"<x:a xmlns:x='urn:x'>" + bad + b"</x:a>")
            yield Case(f"{base.name}: no UTF-8: {bad.hex()}", _refuse_all(broken))
        cuts = [base.envelope[: len(base.envelope) * n // 8] for n in range(8)]
        yield Case(f"{base.name}: cut short", _refuse_all(*map(base.send_as, cuts)))
    for old in ("", " ", "\0" * 100, "<", "<?xml", "<a/>", "<a/><b/>", '{"json": true}', "PK\3\4"):
        yield Case(f"no envelope: {old[:20]!r}", _refuse_all(soap(old.encode())))


def _outside(target: Target) -> Iterator[Case]:
    """What points outside is content like any other: it is delivered as it is, and not read."""
    secret = _secret(target).as_uri()
    for number, xml in enumerate(pointers(secret, target.canary.url)):
        yield Case(f"pointer {number} in the Body", _delivered_as_it_is(xml))
    array = (
        '<e:Array xmlns:e="http://schemas.xmlsoap.org/soap/encoding/" '
        'e:arrayType="xsd:string[1000000000]" e:offset="[999999999]"/>'
    )
    yield Case("an array of a declared size", _delivered_as_it_is(array))
    signed = from_buyer(target, "signed", [payload("one", ORDER, "application/xml")], body="")
    for name, content in evil_attachments(secret):
        [part] = signed.parts
        forged = signed.with_parts(replace(part, content=content))
        yield Case(f"signed payload: {name}", _digest_differs(forged))
        yield Case(f"unsigned payload: {name}", _payload_as_it_is(content))
    yield Case("control: the signed payload is taken", lambda one: _take(one, signed))


def _take(target: Target, message: Package) -> None:
    accepted(target, message)


def _digest_differs(message: Package) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        before = inbox_end(target)
        answer = refused(target, message, "EBMS:0101")
        if _SECRET in answer.body:
            raise Breach("the answer tells what is in a file of the node")
        undelivered(target, before)

    return attack


def _delivered_as_it_is(xml: str) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        message = order(None, "plain", (), body=xml)
        accepted(target, message, "plain")
        content = delivered(target, message)
        if _SECRET in content or xml.encode()[:20] not in content:
            raise Breach(f"delivered was {content[:300]!r}")

    return attack


def _payload_as_it_is(content: bytes) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        message = order(None, "plain", [payload("one", content, "application/xml")], body="")
        accepted(target, message, "plain")
        if delivered(target, message) != content:
            raise Breach("the payload was changed")

    return attack


def _soap_rules(target: Target) -> Iterator[Case]:
    versions = {version.media_type: version.namespace for version in SoapVersion}
    for media_type, namespace in versions.items():
        for number, envelope in enumerate(_ENVELOPES):
            written = envelope.replace("{s}", namespace).encode()
            yield Case(f"{media_type}: {number}", _refuse_all(soap(written, media_type)))


_ENVELOPES: Final = (
    '<e:Envelope xmlns:e="{s}"/>',
    '<e:Envelope xmlns:e="{s}"><e:Body/><e:Body/></e:Envelope>',
    '<e:Envelope xmlns:e="{s}"><e:Body/><e:Header/></e:Envelope>',
    '<e:Envelope xmlns:e="{s}"><e:Header/><e:Header/><e:Body/></e:Envelope>',
    '<e:Envelope xmlns:e="{s}"><e:Header/><x/><e:Body/></e:Envelope>',
    '<e:Envelope xmlns:e="{s}"><e:Envelope><e:Body/></e:Envelope></e:Envelope>',
    '<?pi?><e:Envelope xmlns:e="{s}"><e:Body/></e:Envelope>',
)


def _imports(target: Target) -> Iterator[Case]:
    """Agreements of other products with document types, as an operator may be sent them."""
    secret = _secret(target).as_uri()
    for product, content in agreements().items():
        yield Case(
            f"control: {product}", lambda it, data=content: _import(it, {"honest": data}, refused=0)
        )
        found = {
            f"{name} {encoding}": _declared(content, vector, encoding)
            for name, vector in doctypes(secret, target.canary.url).items()
            for encoding in ENCODINGS
        }
        yield Case(
            f"{len(found)} document types in {product}",
            lambda it, found=found: _import(it, found, refused=len(found)),
        )


def _declared(content: bytes, vector: tuple[str, str, str], encoding: str) -> bytes:
    """Return an agreement with a document type, and a reference to it before its end."""
    doctype, in_text, _ = vector
    text = re.sub(r"^<\?xml[^>]*\?>\s*", "", content.decode())
    end = text.rindex("</")
    name = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be").upper()
    head = f'<?xml version="1.0" encoding="{name}"?>\n{doctype}'
    return f"{head}{text[:end]}{in_text}{text[end:]}".encode(encoding)


def _import(target: Target, files: dict[str, bytes], *, refused: int) -> None:
    """Import files with the command; so many of them must be refused."""
    folder = target.folder / "imported"
    folder.mkdir(exist_ok=True)
    paths = []
    for number, data in enumerate(files.values()):
        paths.append(folder / f"{number}.xml")
        paths[-1].write_bytes(data)
    done = subprocess.run(
        [COMMAND, "pmode", "import", "--dry-run", "--json", *map(str, paths)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    written = done.stdout + done.stderr
    if b"Traceback" in written or _SECRET in written:
        raise Breach(f"the import told: {written[-800:]!r}")
    if len(written) > 2_000_000:
        raise Breach(f"the import wrote {len(written):,} bytes")
    found = json.loads(done.stdout)
    bad = [one for one in found if one["refused"] and not one["pmodes"]]
    if len(bad) != refused or (done.returncode == 0) != (refused == 0):
        raise Breach(f"{len(bad)} of {len(files)} files were refused, exit {done.returncode}")


CLASSES: Final = (
    AttackClass("XML: document types and entities", _declarations),
    AttackClass("XML: document types in agreements", _imports),
    AttackClass("XML: shapes and sizes", _shapes),
    AttackClass("XML: what points outside", _outside),
    AttackClass("XML: broken SOAP", _soap_rules),
)
