"""Messages of every shape that Postroad writes, made by the functions that the node itself uses.

`written()` gives the same messages in the same order each time; each belongs to a family, which is
one row of the matrix, and has a tampered copy that a verifier has to refuse. It needs no Java.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Final

import yaml
from lxml import etree

from postroad.agreement.algorithms import ALGORITHMS
from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import Match, PModes
from postroad.agreement.reliable import reliable_of
from postroad.agreement.supported import ALL
from postroad.msh.answers import error, receipt, write_answer, write_answers
from postroad.msh.expectation import Expectation, Material
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Inspection
from postroad.msh.outbound import (
    Draft,
    DraftPayload,
    Package,
    PackedUnit,
    WireForm,
    WirePart,
    pack,
    package,
    package_units,
    secured_at,
    wire_form,
)
from postroad.msh.pulling import Channel, pull_request, relayed_pull_request
from postroad.msh.routing_headers import error_routing, receipt_routing
from postroad.msh.securing import (
    answer_signing,
    encryption,
    signing,
    username_tokens,
)
from postroad.msh.splitting import Whole, fragment, mime_head, split
from postroad.msh.wsreliability import request_block, write_poll, write_replies
from postroad.msh.wsrm import ack_blocks, sequence_blocks, write_message, write_rm_fault
from postroad.node.evidence.inspecting import Tools
from postroad.security.algorithms import AES128_GCM
from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.security.tokens import TokenReference
from postroad.wire.content import BytesContent, read_all
from postroad.wire.ebms3 import Messaging, Selection, Service, SignalMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.names import WSSE, WSU
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import EndpointReference
from postroad.wire.wsreliability import FaultCode, Reply
from postroad.wire.wsrm import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
)
from postroad.wire.wsrm import Sequence as RmSequence
from postroad.wire.wsrm_faults import Code, RmFault
from tests.interop.wss4j_keys import NOW, PASSWORD, ROOT, recipient, signer
from tests.pki import YEAR

SOAP: Final = {"1.1": SoapVersion.SOAP_11, "1.2": SoapVersion.SOAP_12}
USERS: Final = {"buyer": PASSWORD}
ORDER: Final = (
    b'<?xml version="1.0"?>\n<o:Order xmlns:o="urn:o" b="2"  a="1"><o:N/>5 &lt; 6</o:Order>\n'
)
"""XML whose canonical form differs from its bytes."""
TEXT: Final = "Zeile\nZeile\r\nfünf\rEnde".encode()
OCTETS: Final = bytes(range(256)) * 5
_BOUNDARY: Final = "=_" + "0" * 30
_SECURITY: Final = f"{{{WSSE}}}Security"
_TIMESTAMP: Final = f"{{{WSU}}}Timestamp"
_ROUTED: Final = {
    "address": "icloud",
    "epr": {"routing_input": {"business_info": {"service": "urn:example:route"}}},
}

EMBEDDED: Final = "embedded tokens"
AES_192: Final = "AES-192"
HKDF_SHA2: Final = "HKDF with SHA-384 and SHA-512"
MD5: Final = "RSA with MD5"

Payload = tuple[str, bytes]
"""Media type and content."""
ONE: Final[tuple[Payload, ...]] = (("application/octet-stream", OCTETS),)
MIXED: Final[tuple[Payload, ...]] = (
    ("application/xml", ORDER),
    ("text/plain", TEXT),
    ("application/octet-stream", OCTETS),
)


@dataclass(frozen=True)
class Written:
    """A message of ours on the wire, and what a verifier has to find in it."""

    family: str
    name: str
    content_type: str
    body: bytes
    tampered: bytes
    signed: tuple[str, ...]
    """Elements as `{namespace}name`, attachments as `cid:` URLs."""
    attachments: dict[str, str]
    """SHA-256 of each attachment after decryption, by Content-ID."""
    roles: tuple[str, ...] = ("",)
    """The SOAP roles of its Security headers."""
    users: tuple[str, ...] = ()
    allow_rsa15: bool = False
    bouncy_castle: bool = False
    """The JDK has no brainpool curves."""
    content: str = ""
    """The content of the Body after decryption, in canonical form."""


def entropy() -> Callable[[int], bytes]:
    """A source of bytes that only looks unpredictable."""
    numbers = itertools.count()
    return lambda size: hashlib.shake_256(f"wss4j {next(numbers)}".encode()).digest(size)


@dataclass(frozen=True)
class Agreed:
    """One P-Mode and the keys of both sides."""

    soap: str = "1.2"
    key: KeyPair = field(default_factory=lambda: signer("rsa"))
    signature: dict[str, Any] | None = field(default_factory=dict)
    """None: messages are not signed."""
    sign: dict[str, Any] | bool = True
    encryption: dict[str, Any] | None = None
    recipient: KeyPair | None = None
    security: dict[str, Any] = field(default_factory=dict)
    leg: dict[str, Any] = field(default_factory=dict)
    pmode: dict[str, Any] = field(default_factory=dict)

    def match(self) -> Match:
        x509: dict[str, Any] = {}
        if self.signature is not None:
            x509 |= {"sign": self.sign, "signature": self.signature}
        if self.encryption is not None:
            x509["encryption"] = {"encrypt": True, **self.encryption}
        leg = {
            "protocol": {"address": "https://seller.example/msh", "soap_version": self.soap},
            "business_info": {"service": "urn:example:purchasing", "action": "NewOrder"},
            "security": {"x509": x509, "send_receipt": True, **self.security},
            **self.leg,
        }
        whole = {
            "id": "orders",
            "initiator": {"party": "urn:example:buyer"},
            "responder": {"party": "urn:example:seller"},
            "legs": [leg],
            **self.pmode,
        }
        loaded = load_pmodes(yaml.safe_dump(whole), "orders.yaml", supported=ALL)
        assert loaded.pmodes, loaded.errors
        [made] = loaded.pmodes
        return Match(made, made.legs[0], 1)

    @property
    def material(self) -> Material:
        other = self.recipient or recipient("rsa")
        return Material(
            pins=(self.key.certificate,),
            recipients=(other.certificate,),
            keys=(other,),
            signing=self.key,
        )

    @property
    def version(self) -> SoapVersion:
        return SOAP[self.soap]

    def signs(self) -> Signing | None:
        """How this side signs its answers."""
        return answer_signing(self.match().leg, self.key)

    def found(self, made: Package) -> Inspection:
        """What the receiver of a message finds, before it answers."""
        form = wire(made)
        match = self.match()
        expectation = Expectation(PModes([match.pmode]), {(match.pmode.id, 1): self.material})
        head = f"POST /msh HTTP/1.1\r\nContent-Type: {form.content_type}\r\n\r\n".encode()
        tools = Tools(trust=(ROOT.certificate,), at=NOW, expectation=expectation)
        return inspect_message([head + form.whole()], tools.lens())


def draft(payloads: Sequence[Payload] = ONE, name: str = "order") -> Draft:
    return Draft(
        f"{name}@buyer.example",
        "conversation-1",
        tuple(
            DraftPayload(
                BytesContent(content),
                hashlib.sha256(content).digest(),
                media_type,
                f"{name}-{number}@buyer.example",
                file_name=f"{name} {number}.dat",
            )
            for number, (media_type, content) in enumerate(payloads, 1)
        ),
        properties=(("originalSender", "urn:example:buyer & sons", None),),
    )


def message(agreed: Agreed, payloads: Sequence[Payload] = ONE, **given: Any) -> Package:
    """A user message as the node packages it."""
    given = {"now": NOW, "entropy": entropy()} | given
    return package(draft(payloads), agreed.match(), agreed.material, **given)


def wire(made: Package) -> WireForm:
    """The message as the node sends it."""
    contents = [part.content for part in made.parts]
    if made.seal is not None:
        contents = list(made.seal.on(contents))
    parts = [
        WirePart(
            part.payload.content_id,
            "application/octet-stream" if made.seal else part.wire_type,
            content,
            part.payload.file_name,
        )
        for part, content in zip(made.parts, contents, strict=True)
    ]
    return wire_form(made.version, made.envelope, parts, _BOUNDARY if parts else None)


# What a verifier has to find, and what it has to refuse


def _header(envelope: bytes) -> list[etree._Element]:
    return [one for one in etree.fromstring(envelope)[0] if one.tag != _SECURITY]


def _expected(envelope: bytes) -> list[str]:
    """All header blocks but Security, the Body and the Timestamp."""
    root = etree.fromstring(envelope)
    found = [str(one.tag) for one in [*_header(envelope), root[1]]]
    found += [str(one.tag) for one in root.iter(_TIMESTAMP)]
    return found


def _changed_element(envelope: bytes, number: int, names: Sequence[str]) -> bytes:
    """The envelope with one attribute more, in one of the elements that are signed."""
    root = etree.fromstring(envelope)
    wanted = sorted(set(names))
    element = next(root.iter(wanted[number % len(wanted)]))
    element.set("tampered", "yes")
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")


def _changed_password(envelope: bytes) -> bytes:
    root = etree.fromstring(envelope)
    element = next(root.iter(f"{{{WSSE}}}Password"))
    element.text = "x" + (element.text or "")[1:]
    return etree.tostring(root)


def _changed_content(form: WireForm) -> bytes:
    """The last attachment with one bit changed, in the middle."""
    last = form.parts[-1]
    content = bytearray(read_all(last.content, last.content.size))
    content[len(content) // 2] ^= 1
    whole = form.whole()
    end = whole.rindex(b"\r\n--" + (form.boundary or "").encode())
    return whole[: end - len(content)] + bytes(content) + whole[end:]


class _Batch:
    """The messages, as they are made."""

    def __init__(self) -> None:
        self.messages: list[Written] = []

    def add(
        self,
        family: str,
        name: str,
        form: WireForm,
        plain: dict[str, bytes] | None = None,
        *,
        listed: Sequence[str] = (),
        is_signed: bool = True,
        **facts: Any,
    ) -> None:
        """Add a message; `plain` are its attachments before encryption, by Content-ID.

        `listed` are the further elements that its P-Mode lists to be signed.
        """
        contents = plain or {}
        number = len(self.messages)
        elements = _expected(form.envelope) if is_signed else []
        if form.parts and (number % 2 or not is_signed):
            tampered = _changed_content(form)
        else:
            changed = (
                _changed_element(form.envelope, number, elements)
                if elements
                else _changed_password(form.envelope)
            )
            tampered = form.whole().replace(form.envelope, changed)
        signed = [*elements, *listed, *(f"cid:{one}" for one in contents if is_signed)]
        digests = {one: hashlib.sha256(data).hexdigest() for one, data in contents.items()}
        self.messages.append(
            Written(
                family,
                f"{number:03} {name}",
                form.content_type,
                form.whole(),
                tampered,
                tuple(sorted(signed)),
                digests,
                **facts,
            )
        )

    def add_package(self, family: str, name: str, made: Package, **facts: Any) -> None:
        plain = {
            part.payload.content_id: read_all(part.content, part.content.size)
            for part in made.parts
        }
        self.add(family, name, wire(made), plain, **facts)

    def add_envelope(
        self, family: str, name: str, envelope: bytes, version: SoapVersion, **facts: Any
    ) -> None:
        self.add(family, name, wire_form(version, envelope, (), None), **facts)


# Families


def _signature_algorithms(batch: _Batch) -> None:
    family = "signature algorithms"
    curves = ("p256", "p384", "p521", "brainpool")
    keys = {
        "rsa": ("rsa",),
        "ecdsa": curves,
        "eddsa-ed25519": ("ed25519",),
        "eddsa-ed448": ("ed448",),
    }
    for name in ALGORITHMS["signature"]:
        if name == "dsa-sha1":
            continue  # Postroad verifies it, but does not sign with it
        kinds = keys.get(name) or keys[name.partition("-")[0]]
        for kind, soap in itertools.product(kinds, SOAP):
            agreed = Agreed(soap, signer(kind), {"algorithm": name})
            row = MD5 if name == "rsa-md5" else family
            batch.add_package(
                row,
                f"{name} {kind} SOAP {soap}",
                message(agreed),
                bouncy_castle=kind == "brainpool",
            )


def _digests(batch: _Batch) -> None:
    for digest, payloads in itertools.product(("sha256", "sha384", "sha512", "sha1"), (ONE, MIXED)):
        agreed = Agreed(signature={"hash_function": digest})
        name = f"{digest} {len(payloads)} payloads"
        batch.add_package("digest algorithms", name, message(agreed, payloads))


def _token_references(batch: _Batch) -> None:
    for form, kind, soap in itertools.product(TokenReference, ("rsa", "p256", "ed25519"), SOAP):
        family = EMBEDDED if form is TokenReference.EMBEDDED else "token references"
        alone = form in (TokenReference.BINARY_SECURITY_TOKEN, TokenReference.PKI_PATH)
        key = signer(kind, known=not alone)
        agreed = Agreed(soap, key, {"key_reference": form.value})
        batch.add_package(family, f"{form} {kind} SOAP {soap}", message(agreed))


def _payloads(batch: _Batch) -> None:
    sets: dict[str, tuple[Payload, ...]] = {
        "none": (),
        "XML": (("text/xml", ORDER),),
        "XML of another type": (("application/vnd.example+xml", ORDER),),
        "text": (("text/plain", TEXT),),
        "text of one line end": (("text/csv", b"\n"),),
        "nothing in it": (("application/octet-stream", b""),),
        "mixed": MIXED,
        "200 kB": (("application/pdf", OCTETS * 160),),
        "twenty": tuple(("application/json", b'{"n": %d}' % n) for n in range(20)),
    }
    for (name, payloads), raw, compressed in itertools.product(
        sets.items(), (False, True), (False, True)
    ):
        if raw and any("xml" in one or "text" in one for one, _ in payloads) and not compressed:
            continue  # a signature over raw XML is an agreement of its own; see the next family
        leg = {"payload_service": {"compression_type": "gzip"}} if compressed else {}
        agreed = Agreed(signature={"raw": raw}, leg=leg)
        said = f"{name}{', raw' if raw else ''}{', compressed' if compressed else ''}"
        batch.add_package("payloads and compression", said, message(agreed, payloads))


def _rsa_encryption(batch: _Batch) -> None:
    family = "encryption with RSA"
    mgfs, digests = tuple(ALGORITHMS["mgf"]), ("sha1", "sha256", "sha384", "sha512")
    shapes: list[dict[str, str]] = [
        {"key_transport": "rsa-oaep", "mgf": mgf, "digest": digest}
        for mgf, digest in itertools.product(mgfs, digests)
    ]
    shapes += [{"key_transport": "rsa-oaep-mgf1p", "digest": digest} for digest in digests]
    shapes += [{"algorithm": name} for name in ALGORITHMS["encryption"]]
    shapes.append({"key_transport": "rsa-1_5"})
    for number, shape in enumerate(shapes):
        agreed = Agreed(("1.2", "1.1")[number % 2], encryption=shape)
        name = " ".join(shape.values())
        made = message(agreed, MIXED if number % 3 else ONE)
        row = AES_192 if name.startswith("aes192") else family
        batch.add_package(row, name, made, allow_rsa15="rsa-1_5" in name)
    agreed = Agreed(signature=None, encryption={})
    batch.add_package(family, "not signed", message(agreed), is_signed=False)


def _key_agreement(batch: _Batch) -> None:
    shapes = itertools.product(
        ("p256", "p384", "p521", "brainpool", "x25519", "x448"),
        ("hkdf", "concat-kdf"),
        (
            ("kw-aes128", "sha256"),
            ("kw-aes192", "sha384"),
            ("kw-aes256", "sha512"),
            ("kw-aes256", "sha256"),
        ),
    )
    for number, (kind, derivation, (wrap, digest)) in enumerate(shapes):
        agreed = Agreed(
            ("1.2", "1.1")[number % 2],
            signer("ed25519" if kind.startswith("x") else "p256"),
            encryption={"key_derivation": derivation, "key_wrap": wrap, "digest": digest},
            recipient=recipient(kind),
        )
        weaker = derivation == "concat-kdf" or digest == "sha256"
        family = "encryption with key agreement" if weaker else HKDF_SHA2
        batch.add_package(family, f"{kind} {derivation} {digest} {wrap}", message(agreed))


def _recipient_references(batch: _Batch) -> None:
    for form, kind in itertools.product(TokenReference, ("rsa", "p256", "x25519")):
        agreed = Agreed(encryption={"key_reference": form.value}, recipient=recipient(kind))
        family = EMBEDDED if form is TokenReference.EMBEDDED else "recipient references"
        batch.add_package(family, f"recipient {form} {kind}", message(agreed))


def _signals(batch: _Batch) -> None:
    for soap, kind in itertools.product(SOAP, ("rsa", "p256", "ed25519")):
        agreed = Agreed(soap, signer(kind))
        for one in _answers(agreed):
            written = write_answer(one, agreed.version, agreed.signs(), NOW)
            name = f"{written.kind} {kind} SOAP {soap}"
            batch.add_envelope("receipts and errors", name, written.envelope, written.version)
        both = write_answers(_answers(agreed), agreed.version, agreed.signs(), NOW)
        name = f"receipt and error in one {kind} SOAP {soap}"
        batch.add_envelope("receipts and errors", name, both[0].envelope, agreed.version)
        awareness = Agreed(
            soap, signer(kind), security={"send_receipt": {"non_repudiation": False}}
        )
        written = write_answer(_answers(awareness)[0], agreed.version, agreed.signs(), NOW)
        name = f"receipt without digests {kind} SOAP {soap}"
        batch.add_envelope("receipts and errors", name, written.envelope, written.version)


def _answers(agreed: Agreed) -> tuple[SignalMessage, SignalMessage]:
    """A receipt and an error for a message of the P-Mode."""
    sent = message(agreed, MIXED)
    one = sent.user_message
    said = receipt(
        agreed.found(sent), one, agreed.match(), signal_id="receipt@seller.example", now=NOW
    )
    wrong = EbmsError("EBMS:0303", "the payload cannot be unpacked", location="cid:x")
    ref = one.message_info.message_id
    return said, error([wrong], signal_id="error@seller.example", ref=ref, now=NOW)


def _pulled(soap: str, *, digest: bool = True, sign: bool = True, user: bool = True) -> Agreed:
    who: dict[str, Any] = {"party": "urn:example:seller"}
    if user:
        who["authorization"] = {"username": "buyer", "password": PASSWORD}
    other = {"party": "urn:example:buyer"}
    pmode = {"mep_binding": "pull", "initiator": who, "responder": other}
    return Agreed(soap, leg={"pulling": {"digest": digest, "sign": sign}}, pmode=pmode)


def _pull_requests(batch: _Batch) -> None:
    wanted = Selection(conversation_id="c-1", service=Service("urn:example:purchasing"))
    for soap, digest, sign, user in itertools.product(SOAP, *(((True, False),) * 3)):
        if not (sign or user):
            continue
        agreed = _pulled(soap, digest=digest, sign=sign, user=user)
        channel = Channel(agreed.match(), "urn:example:mpc")
        for selection, riding in ((None, None), (wanted, _answers(Agreed(soap))[0])):
            asked = pull_request(
                channel,
                selection,
                signal_id="pull@seller.example",
                now=NOW,
                entropy=entropy(),
                key=signer("rsa"),
                riding=riding,
            )
            signed = sign or riding is not None
            name = " ".join(
                (
                    *(("digest" if digest else "text",) if user else ()),
                    "signed" if signed else "unsigned",
                    "with a receipt" if riding else "alone",
                    f"SOAP {soap}",
                )
            )
            batch.add_envelope(
                "pull requests",
                name,
                asked.envelope,
                asked.version,
                is_signed=signed,
                roles=(*(("",) if signed else ()), *(("ebms",) if user else ())),
                users=("buyer",) if user else (),
            )
    user_of = _pulled("1.2").match().pmode.initiator
    assert user_of is not None
    assert user_of.authorization is not None
    asked = relayed_pull_request(
        "urn:example:mpc",
        user_of.authorization,
        signal_id="pull@hub.example",
        now=NOW,
        entropy=entropy(),
    )
    batch.add_envelope(
        "pull requests",
        "of an intermediary",
        asked.envelope,
        asked.version,
        is_signed=False,
        roles=("ebms",),
        users=("buyer",),
    )


def _username_tokens(batch: _Batch) -> None:
    for soap, digest, signed in itertools.product(SOAP, (True, False), (True, False)):
        token = {"username": "buyer", "password": PASSWORD, "digest": digest}
        agreed = Agreed(
            soap,
            signature={} if signed else None,
            security={"username_token": token, "send_receipt": True},
        )
        name = f"{'digest' if digest else 'text'}{' signed' if signed else ''} SOAP {soap}"
        made = message(agreed, ONE if signed else ())
        batch.add_package("user name tokens", name, made, is_signed=signed, users=("buyer",))


def _bundles(batch: _Batch) -> None:
    for soap, count, encrypted in itertools.product(SOAP, (2, 5), (False, True)):
        agreed = Agreed(soap, signer("p256"), encryption={} if encrypted else None)
        match = agreed.match()
        units: list[PackedUnit] = [
            pack(draft(MIXED if n % 2 else ONE, f"unit-{n}"), match, now=NOW) for n in range(count)
        ]
        for signals in ((), _answers(Agreed(soap))):
            made = package_units(
                units, match, agreed.material, now=NOW, entropy=entropy(), signals=signals
            )
            name = f"{count} units{' with signals' if signals else ''}"
            said = f"{name}{', encrypted' if encrypted else ''} SOAP {soap}"
            batch.add_package("bundles", said, made)


def _fragments(batch: _Batch) -> None:
    for soap, encrypted, routed in itertools.product(SOAP, (False, True), (False, True)):
        pmode = {"responder": {"party": "urn:example:seller", "addressing": _ROUTED}}
        agreed = Agreed(soap, encryption={} if encrypted else None, pmode=pmode if routed else {})
        match, material = agreed.match(), agreed.material
        unit = pack(draft(MIXED), match, now=NOW)
        whole = package_units((unit,), match, material, now=NOW, entropy=entropy(), bare=True)
        form = wire(whole)
        cut = split(
            Messaging((whole.user_message,), id="_messaging"),
            mime_head({"content-type": form.content_type}),
            agreed.version,
            group_id="group-1",
            fragment_size=1500,
        )
        source = form.content()
        for number in (1, 2):
            piece = fragment(
                cut,
                number,
                f"fragment-{number}@buyer.example",
                source,
                Whole(source.size, source.size),
            )
            made = secure(
                agreed.version,
                piece.blocks,
                [piece.attachment],
                signing=signing(match.leg, material.signing),
                encryption=encryption(match.leg, material),
                entropy=entropy(),
                lifetime=secured_at(NOW),
                tokens=username_tokens(match.leg, NOW, entropy()),
            )
            parts = [
                WirePart(one.content_id, one.media_type, one.content) for one in made.attachments
            ]
            sent = wire_form(
                agreed.version, made.envelope, parts, _BOUNDARY + "f", root_id=piece.root_id
            )
            plain = {piece.data_id: read_all(piece.data, piece.data.size)}
            name = f"number {number}{', encrypted' if encrypted else ''} SOAP {soap}"
            batch.add("fragments", f"{name}{' routed' if routed else ''}", sent, plain)


def _multi_hop(batch: _Batch) -> None:
    family = "multi-hop messages and signals"
    buyer = {"party": "urn:example:buyer", "addressing": _ROUTED}
    seller = {"party": "urn:example:seller", "addressing": _ROUTED}
    for soap, encrypted in itertools.product(SOAP, (False, True)):
        agreed = Agreed(
            soap,
            encryption={} if encrypted else None,
            pmode={"initiator": buyer, "responder": seller},
        )
        name = f"SOAP {soap}{', encrypted' if encrypted else ''}"
        batch.add_package(family, f"user message {name}", message(agreed))
        aimed = {"address": "https://hub.example", "soap_version": soap}
        aimed["add_actor_or_role_attribute"] = True  # type: ignore[assignment]
        by_header = Agreed(soap, leg={"protocol": aimed})
        batch.add_package(family, f"for the next MSH {name}", message(by_header))
    for soap in SOAP:
        agreed = Agreed(soap, pmode={"initiator": buyer, "responder": seller})
        match = agreed.match()
        sent = message(agreed)
        found = agreed.found(sent)
        said, wrong = _answers(agreed)
        for signal, routing in (
            (said, receipt_routing(match, sent.user_message, found)),
            (wrong, error_routing(match, sent.user_message, found)),
        ):
            assert routing is not None
            written = write_answer(signal, agreed.version, agreed.signs(), NOW, routing)
            name = f"{written.kind} SOAP {soap}"
            batch.add_envelope(family, name, written.envelope, written.version)
        pulled = _pulled(soap, user=False)
        routed = Agreed(soap, leg={**pulled.leg, "addressing": _ROUTED}, pmode=pulled.pmode)
        asked = pull_request(
            Channel(routed.match(), "urn:example:mpc"),
            None,
            signal_id="pull@seller.example",
            now=NOW,
            entropy=entropy(),
            key=signer("rsa"),
        )
        batch.add_envelope(family, f"pull request SOAP {soap}", asked.envelope, asked.version)


def _reliable_messaging(batch: _Batch) -> None:
    family = "WS-ReliableMessaging"
    sequence = RmSequence("urn:uuid:00000000-0000-4000-8000-000000000001", 3)
    name = sequence.identifier
    acks = (
        SequenceAcknowledgement(name, ((1, 2), (4, 9))),
        SequenceAcknowledgement(name, nacks=(3,)),
    )
    bodies: tuple[Lifecycle | None, ...] = (
        CreateSequence(EndpointReference("http://buyer.example/acks")),
        CreateSequenceResponse(name, timedelta(hours=1)),
        CloseSequence(name, 3),
        CloseSequenceResponse(name),
        TerminateSequence(name, 3),
        TerminateSequenceResponse(name),
        None,
    )
    for soap in SOAP:
        agreed = Agreed(soap, signer("p256"))
        version = agreed.version
        headers = sequence_blocks(sequence, version)
        batch.add_package(family, f"message SOAP {soap}", message(agreed, headers=headers))
        both = [*headers, *ack_blocks(acks, version)]
        sealed = Agreed(soap, encryption={})
        made = message(sealed, headers=both)
        batch.add_package(family, f"message with acknowledgements, encrypted SOAP {soap}", made)
        for body in bodies:
            written = write_message(
                body,
                version,
                message_id="rm-1@buyer.example",
                now=NOW,
                how=agreed.signs(),
                relates_to="mid:0@seller.example",
                acks=() if body else acks,
            )
            kind = type(body).__name__ if body else "acknowledgements"
            content = _content(written.envelope)
            batch.add_envelope(
                family, f"{kind} SOAP {soap}", written.envelope, version, content=content
            )
        fault = write_rm_fault(
            RmFault(Code.UNKNOWN_SEQUENCE, "no such sequence", name),
            version,
            message_id="rm-2@buyer.example",
            now=NOW,
            how=agreed.signs(),
            final=acks[0],
        )
        batch.add_envelope(
            family,
            f"fault SOAP {soap}",
            fault.envelope,
            version,
            content=_content(fault.envelope),
        )


def _ws_reliability(batch: _Batch) -> None:
    family = "WS-Reliability"
    for soap in SOAP:
        reliability = {
            "at_least_once": {"contract": True, "reply_pattern": "Response"},
            "at_most_once": {"contract": True},
            "protocol": "ws-reliability",
        }
        agreed = Agreed(soap, signer("p256"))
        version = agreed.version
        unreceipted = {"send_receipt": False}
        asked = Agreed(soap, security=unreceipted, leg={"reliability": reliability})
        reliable = reliable_of(asked.match().leg)
        assert reliable is not None
        block = request_block(reliable, "order@buyer.example", NOW + timedelta(days=1), version)
        batch.add_package(family, f"message SOAP {soap}", message(agreed, headers=[block]))
        how = agreed.signs()
        replies = (
            Reply("mid:1@buyer.example"),
            Reply("mid:2@x", fault=FaultCode.INVALID_EXPIRY_TIME),
        )
        written = write_replies(replies, version, message_id="r@x", now=NOW, how=how)
        batch.add_envelope(family, f"replies SOAP {soap}", written.envelope, version)
        poll = write_poll("1@buyer.example", version, message_id="p@x", now=NOW, how=how)
        batch.add_envelope(family, f"poll SOAP {soap}", poll.envelope, version)


def _bodies(batch: _Batch) -> None:
    """No P-Mode puts a payload into the Body; this is what `security.secure` writes if asked."""
    content = '<o:Order xmlns:o="urn:o" a="1">5 &lt; 6</o:Order>'
    for soap, encrypted, attached in itertools.product(SOAP, (False, True), (False, True)):
        agreed = Agreed(soap)
        version = agreed.version
        unit = message(agreed, ()).user_message
        block = Block("_messaging", write_messaging(Messaging((unit,), id="_messaging"), version))
        attachments = [Attachment("x@y", BytesContent(OCTETS), "application/octet-stream")]
        certificate = recipient("rsa").certificate
        made = secure(
            version,
            [block],
            attachments if attached else [],
            signing=agreed.signs(),
            encryption=Encryption(certificate, AES128_GCM) if encrypted else None,
            entropy=entropy(),
            lifetime=Lifetime(NOW, 10 * YEAR),
            body_content=content,
        )
        parts = [WirePart(one.content_id, one.media_type, one.content) for one in made.attachments]
        form = wire_form(version, made.envelope, parts, _BOUNDARY if parts else None)
        plain = {"x@y": OCTETS} if attached else {}
        name = (
            f"SOAP {soap}{', encrypted' if encrypted else ''}{', attachment' if attached else ''}"
        )
        batch.add("Body content and expiry", name, form, plain, content=content)


def _content(envelope: bytes) -> str:
    body = etree.fromstring(envelope)[1]
    return "".join(
        etree.tostring(one, method="c14n", exclusive=True, with_comments=False).decode()
        for one in body
    )


def _listed_elements(batch: _Batch) -> None:
    """Tokens that a P-Mode lists to be signed and encrypted."""
    for soap, element, encrypted in itertools.product(
        SOAP, ("UsernameToken", "BinarySecurityToken"), (False, True)
    ):
        encryption = {"encrypt": {"element": "wsse:UsernameToken"}} if encrypted else None
        agreed = Agreed(
            soap,
            sign={"element": f"wsse:{element}"},
            encryption=encryption,
            security={"username_token": {"username": "buyer", "password": PASSWORD}},
        )
        name = f"listed {element}{', encrypted' if encrypted else ''} SOAP {soap}"
        # With encryption there is a token for the recipient too.
        tokens = 2 if encrypted and element == "BinarySecurityToken" else 1
        listed = (f"{{{WSSE}}}{element}",) * tokens
        batch.add_package(
            "user name tokens", name, message(agreed), listed=listed, users=("buyer",)
        )


FAMILIES: Final[tuple[Callable[[_Batch], None], ...]] = (
    _signature_algorithms,
    _digests,
    _token_references,
    _payloads,
    _rsa_encryption,
    _key_agreement,
    _recipient_references,
    _signals,
    _pull_requests,
    _username_tokens,
    _bundles,
    _fragments,
    _multi_hop,
    _reliable_messaging,
    _ws_reliability,
    _bodies,
    _listed_elements,
)


@cache
def written() -> tuple[Written, ...]:
    """All messages, family by family."""
    batch = _Batch()
    for family in FAMILIES:
        family(batch)
    return tuple(batch.messages)
