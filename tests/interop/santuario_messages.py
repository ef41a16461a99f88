"""Signed ebXML messages of versions 0.98b, 1.0 and 2.0 for Santuario, and what it is to sign.

Nothing here needs Java.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lxml import etree

from postroad.agreement.algorithms import ALGORITHMS
from postroad.agreement.ebxml import cpa_terms
from postroad.msh.ebxml_answers import error_answer
from postroad.msh.ebxml_outbound import EbxmlPackage, hop, package_ebxml
from postroad.msh.ebxml_services import ping, pong
from postroad.msh.outbound import Draft, WireForm, WirePart, wire_form
from postroad.msh.securing import answer_signing
from postroad.reliability.ebxml_terms import agree
from postroad.security.keys import KeyPair
from postroad.security.tokens import TokenReference
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import DIALECTS, Dialect, Via
from postroad.wire.errors import EbmsError
from postroad.wire.names import DS
from postroad.wire.soap import SoapVersion
from tests.changing import replace
from tests.interop.wss4j_keys import NOW, signer
from tests.interop.wss4j_messages import MIXED, ONE, Agreed, Payload, draft

_BOUNDARY: Final = "=_" + "1" * 30
_PLAIN: Final[tuple[Payload, ...]] = ()
_BUYER: Final = Party((PartyId("urn:example:buyer"),), "")
_SELLER: Final = Party((PartyId("urn:example:seller"),), "")
_CPA: Final = "urn:example:cpa"
_SIGNERS: Final = (
    ("rsa-sha256", "rsa"),
    ("rsa-sha512", "rsa"),
    ("rsa-sha1", "rsa"),
    ("ecdsa-sha256", "p256"),
    ("ecdsa-sha384", "p384"),
)
_FORMS: Final = (
    TokenReference.BINARY_SECURITY_TOKEN,
    TokenReference.PKI_PATH,
    TokenReference.ISSUER_SERIAL,
    TokenReference.SUBJECT_KEY_IDENTIFIER,
)


@dataclass(frozen=True)
class SignedEbxml:
    """A signed ebXML message of ours on the wire."""

    version: str
    name: str
    signer: str
    """Alias of its key; for messages that only name their certificate."""
    content_type: str
    body: bytes
    tampered: bytes
    references: tuple[str, ...]


def _agreed(dialect: Dialect, key: KeyPair, signature: dict[str, Any] | None) -> Agreed:
    return Agreed(
        "1.1",
        key,
        signature,
        security={"send_receipt": False},
        leg={"ebxml": {"version": dialect.name}},
        pmode={"agreement": _CPA},
    )


def _draft(payloads: Sequence[Payload]) -> Draft:
    return replace(draft(payloads), properties=())


def _package(agreed: Agreed, payloads: Sequence[Payload]) -> EbxmlPackage:
    match = agreed.match()
    terms = agree(cpa_terms(match.leg), {}, timestamp=NOW)
    return package_ebxml(_draft(payloads), match, agreed.material, now=NOW, terms=terms)


def _form(made: EbxmlPackage, envelope: bytes | None = None) -> WireForm:
    parts = [WirePart(one.payload.content_id, one.wire_type, one.content) for one in made.parts]
    boundary = _BOUNDARY if parts else None
    return wire_form(SoapVersion.SOAP_11, envelope or made.envelope, parts, boundary)


def _hopped(envelope: bytes, dialect: Dialect) -> bytes:
    """What a second MSH adds on the way, after the signature was made."""
    for number in range(2):
        envelope = hop(
            envelope,
            dialect,
            sender_uri=f"https://hop{number}.example/msh",
            receiver_uri=f"https://hop{number + 1}.example/msh",
            now=NOW,
            via=Via(sync_reply=True),
        )
    return envelope


def _finished(dialect: Dialect, name: str, alias: str, form: WireForm, number: int) -> SignedEbxml:
    body = form.whole()
    if form.parts and number % 2:
        content = b"".join(form.parts[-1].content.chunks())
        at = body.rindex(content)
        tampered = body[:at] + bytes([content[0] ^ 1]) + body[at + 1 :]
    else:
        old = b"<eb:ConversationId>"
        tampered = body.replace(old, old + b"x")
    root = etree.fromstring(form.envelope)
    uris = tuple(str(one.get("URI")) for one in root.iter(f"{{{DS}}}Reference") if _own(one))
    return SignedEbxml(
        dialect.name, f"{number:03} {dialect.name} {name}", alias, form.content_type, body,
        tampered, uris,
    )  # fmt: skip


def _own(reference: etree._Element) -> bool:
    """Acknowledgments repeat references of the message that they are about."""
    parent = reference.getparent()
    return parent is not None and parent.tag == f"{{{DS}}}SignedInfo"


def signed_messages() -> list[SignedEbxml]:
    """Every version, algorithm, way to name the signer, and kind of message."""
    found: list[SignedEbxml] = []

    def add(dialect: Dialect, name: str, alias: str, form: WireForm) -> None:
        found.append(_finished(dialect, name, alias, form, len(found)))

    for dialect, (algorithm, kind), payloads in itertools.product(
        DIALECTS.values(), _SIGNERS, (_PLAIN, ONE, MIXED)
    ):
        agreed = _agreed(dialect, signer(kind), {"algorithm": algorithm})
        made = _package(agreed, payloads)
        name = f"{algorithm} {len(payloads)} payloads"
        add(dialect, name, f"new-{kind}", _form(made))
        if dialect.has_trace:
            form = _form(made, _hopped(made.envelope, dialect))
            add(dialect, f"{name} after two hops", f"new-{kind}", form)
    for dialect, form_of in itertools.product(DIALECTS.values(), _FORMS):
        agreed = _agreed(dialect, signer("rsa", known=True), {"key_reference": form_of.value})
        add(dialect, form_of.value, "known-rsa", _form(_package(agreed, ONE)))
    for dialect in DIALECTS.values():
        for kind_of, envelope in _signals(dialect):
            form = wire_form(SoapVersion.SOAP_11, envelope, (), None)
            add(dialect, kind_of, "new-p256", form)
    return found


def _signals(dialect: Dialect) -> Iterator[tuple[str, bytes]]:
    agreed = _agreed(dialect, signer("p256"), {})
    how = answer_signing(agreed.match().leg, agreed.key)
    sent = _package(agreed, ONE)
    asked = ping(
        dialect,
        from_party=_BUYER,
        to_party=_SELLER,
        cpa_id=_CPA,
        conversation_id="c-1",
        message_id="ping@buyer.example",
        now=NOW,
        signing=how,
    )
    yield "ping", asked.envelope
    answered = pong(sent.message, message_id="pong@seller.example", now=NOW, signing=how)
    yield "pong", answered.envelope
    refused = error_answer(
        [EbmsError("EBMS:0101", "the signature does not hold")],
        dialect,
        about=sent.message,
        message_id="error@seller.example",
        now=NOW,
        signing=how,
    )
    assert refused is not None
    yield "error", refused.envelope


@dataclass(frozen=True)
class EbxmlRequest:
    """A message of ours that Santuario is to sign."""

    version: str
    name: str
    call: dict[str, Any]
    legacy: bool
    has_xpath: bool


def requests(folder: Path) -> list[EbxmlRequest]:
    """Unsigned messages in the folder, and how Santuario is to sign each."""
    found = []
    shapes = itertools.product(
        DIALECTS.values(), _SIGNERS, (_PLAIN, MIXED), (True, False), (False, True)
    )
    for number, (dialect, (algorithm, kind), payloads, xpath, key_value) in enumerate(shapes):
        form = _form(_package(_agreed(dialect, signer(kind), None), payloads))
        body = folder / f"ebxml-{number:03}.body"
        body.write_bytes(form.whole())
        call: dict[str, Any] = {
            "name": f"{number:03} {dialect.name} {algorithm} {len(payloads)} payloads"
            f"{' XPath' if xpath else ''}{' KeyValue' if key_value else ''}",
            "body": str(body),
            "body_type": form.content_type,
            "file": str(folder / f"ebxml-{number:03}.out"),
            "algorithm": ALGORITHMS["signature"][algorithm],
            "digest": ALGORITHMS["digest"]["sha1" if "sha1" in algorithm else "sha256"],
            "signer": f"new-{kind}",
            "key_value": key_value,
            "no_c14n": bool(number % 3 == 0),
        }
        if xpath:
            call["xpath"] = dialect.hop_xpath
            call["namespaces"] = dict(dialect.hop_namespaces)
        weak = "sha1" in algorithm
        found.append(EbxmlRequest(dialect.name, call["name"], call, weak, xpath))
    return found
