"""Whole messages of every kind that the readers know, for tests and fuzzers to start from.

Keys come from labels and entropy from a counter, so that every run sees the same bytes.
"""

import gzip
import hashlib
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding

from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import PModes
from postroad.msh.expectation import Expectation
from postroad.node.evidence.inspecting import Tools
from postroad.node.first_steps.example import http_request, order_message
from postroad.security.algorithms import ECDH_ES, ED25519
from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.tokens import TokenReference
from postroad.security.username import write_username_token
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    AgreementRef,
    Description,
    Error,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    PullRequest,
    Schema,
    Selection,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.ebxml import (
    DIALECTS,
    Acknowledgment,
    Dialect,
    EbxmlMessage,
    Extension,
    Manifest,
    ManifestReference,
    StatusData,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml import MessageHeader as EbxmlHeader
from postroad.wire.ebxml_errors import to_wire
from postroad.wire.ebxml_hops import add_trace, renew_via
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import MessageFragment, MessageHeader, write_message_fragment
from postroad.wire.multihop import RoutingInput, routing_user_message, write_routing_input
from postroad.wire.receipts import awareness_receipt, nonrepudiation_receipt
from postroad.wire.soap import SoapVersion, value_namespaces, write_body, write_envelope
from postroad.wire.soap_faults import must_understand_fault, write_fault
from postroad.wire.wsa import Addressing, EndpointReference, RelatesTo, write_addressing
from tests.changing import replace
from tests.pki import NOW, authority, issue, p12, pem, pem_certificates
from tests.unit.test_keys import _jks as jks

SOAP_11, SOAP_12 = SoapVersion.SOAP_11, SoapVersion.SOAP_12
CA: Final = authority("Fuzz CA")
BUYER: Final = issue(CA, "buyer", key="ed25519")
SELLER: Final = issue(CA, "seller", usage=("key_agreement",))
ORDER: Final = b'<?xml version="1.0"?>\n<Order xmlns="urn:example:order"><ID>PO-4711</ID></Order>\n'
CONTENT_ID: Final = "order@buyer.example"
PMODE: Final = """\
id: buyer-seller-orders
initiator: {party: urn:example:buyer}
responder: {party: urn:example:seller}
legs:
  - protocol: {address: https://seller.example/msh, soap_version: 1.2}
    business_info:
      service: urn:example:purchasing
      action: NewOrder
      properties: [{name: originalSender, required: true}]
    security:
      x509: {sign: true, encryption: {encrypt: true}}
      send_receipt: {non_repudiation: true}
    payload_service: {compression_type: gzip}
"""


def entropy() -> Callable[[int], bytes]:
    """A source of bytes that only looks unpredictable."""
    numbers = count()
    return lambda size: hashlib.shake_256(f"seed {next(numbers)}".encode()).digest(size)


@cache
def tools(*, agreed: bool = False) -> Tools:
    """What a receiver of these messages has at hand."""
    expectation = Expectation(PModes(load_pmodes(PMODE, "seed.yaml").pmodes)) if agreed else None
    trusted = (CA.certificate, BUYER.certificate)
    return Tools(trust=trusted, keys=(SELLER,), at=NOW, expectation=expectation)


def order(**changes: object) -> UserMessage:
    return replace(order_message(NOW), **changes)  # type: ignore[arg-type]


def order_attachment(
    content: bytes = gzip.compress(ORDER, mtime=0), media_type: str = "application/gzip"
) -> Attachment:
    return Attachment(CONTENT_ID, BytesContent(content), media_type)


def secured(
    message: UserMessage | SignalMessage | None = None,
    attachments: list[Attachment] | None = None,
    *,
    version: SoapVersion = SOAP_12,
    sign: bool = True,
    encrypt: bool = True,
    reference: TokenReference = TokenReference.BINARY_SECURITY_TOKEN,
    body: str = "",
    blocks: tuple[Block, ...] = (),
    tokens: tuple[str, ...] = (),
    signer: KeyPair = BUYER,
) -> Secured:
    """A message as its sender secures it."""
    header = write_messaging(Messaging((message or order(),), id="_messaging"), version)
    return secure(
        version,
        [Block("_messaging", header), *blocks],
        [order_attachment()] if attachments is None else attachments,
        signing=Signing(signer, ED25519, reference=reference) if sign else None,
        encryption=Encryption(SELLER.certificate, key=ECDH_ES) if encrypt else None,
        entropy=entropy(),
        lifetime=Lifetime(NOW, timedelta(hours=1)) if sign else None,
        body_content=body,
        tokens=[Block("", token) for token in tokens],
    )


def request(made: Secured, version: SoapVersion = SOAP_12) -> bytes:
    data = http_request(made.envelope, list(made.attachments))
    return data.replace(SOAP_12.media_type.encode(), version.media_type.encode())


def bare(data: bytes) -> bytes:
    """The body of an HTTP request, without its head."""
    return data.partition(b"\r\n\r\n")[2]


def chunked(data: bytes, *, packed: bool = False) -> bytes:
    """The same request sent in chunks, perhaps compressed on the way."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    lines.append(b"Transfer-Encoding: chunked")
    if packed:
        lines.append(b"Content-Encoding: gzip")
        body = gzip.compress(body, mtime=0)
    pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    frames = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"\r\n".join(lines) + b"\r\n\r\n" + frames + b"0\r\n\r\n"


def response(envelope: bytes, version: SoapVersion = SOAP_12) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {version.media_type};charset=UTF-8\r\n\r\n"
    return head.encode() + envelope


def signal(**content: object) -> SignalMessage:
    answered = order().message_info.message_id
    info = MessageInfo(NOW, "signal-1@seller.example", answered)
    return SignalMessage(info, **content)  # type: ignore[arg-type]


def receipt(reply_to: Secured) -> SignalMessage:
    info = MessageInfo(NOW, "receipt-1@seller.example", order().message_info.message_id)
    return nonrepudiation_receipt(reply_to.references, message_info=info)


def _error() -> SignalMessage:
    return signal(
        errors=(
            Error(
                "EBMS:0101",
                "failure",
                "Processing",
                "security",
                "FailedAuthentication",
                order().message_info.message_id,
                Description("the signature does not hold", "en"),
                "detail",
            ),
        )
    )


def _pull(version: SoapVersion) -> bytes:
    wanted = Selection(
        conversation_id="conversation-4711",
        agreement_ref=AgreementRef("urn:example:agreement", pmode="orders"),
        service=Service("urn:example:purchasing"),
        properties=(Property("originalSender", "urn:example:buyer"),),
    )
    info = MessageInfo(NOW, "pull-1@seller.example")
    asked = SignalMessage(info, pull_request=PullRequest("urn:example:mpc", wanted))
    token = write_username_token(
        "seller", "secret", digest=True, created=NOW, nonce=b"0123456789abcdef"
    )
    return secured(asked, [], version=version, sign=False, encrypt=False, tokens=(token,)).envelope


def _hop(version: SoapVersion) -> bytes:
    message = order()
    to = EndpointReference("http://seller.example/", (RoutingInput(routing_user_message(message)),))
    addressing = Addressing(
        action="urn:example:action",
        message_id="urn:uuid:1",
        relates_to=(RelatesTo("urn:uuid:0"),),
        reply_to=to,
    )
    routing = write_routing_input(
        RoutingInput(routing_user_message(message), id="_routing"), version
    )
    blocks = [Block("_routing", routing)]
    written = write_addressing(addressing, version, id_prefix="_address")
    blocks += [Block(f"_address-{n}", block) for n, block in enumerate(written, 1)]
    made = secured(version=version, encrypt=False, blocks=tuple(blocks))
    return request(made, version)


def _fragment() -> bytes:
    header = MessageHeader("b", "application/soap+xml", "root@buyer.example")
    piece = MessageFragment("cid:" + CONTENT_ID, "group-1", 1, 3, 2_000_000, header, id="_fragment")
    block = Block("_fragment", write_message_fragment(piece, SOAP_12))
    whole = order(part_infos=())
    attachment = order_attachment(b"--b\r\n", "application/octet-stream")
    return request(secured(whole, [attachment], encrypt=False, blocks=(block,)))


def _faults() -> dict[str, bytes]:
    found = {}
    for version in SoapVersion:
        refused = must_understand_fault(version, ["{urn:example}Strange"])
        content = write_fault(version, refused.fault)
        declared = value_namespaces(content)
        body = write_body(version, content, namespaces=declared)
        envelope = write_envelope(version, refused.header_blocks, body, namespaces=declared)
        found[f"fault-{version.number}"] = response(envelope, version)
    return found


def _body_order() -> UserMessage:
    return order(part_infos=(PartInfo(None, (Property("MimeType", "application/xml"),)),))


@cache
def messages() -> dict[str, bytes]:
    """Messages by name; each of them holds for the receiver that `tools` describes."""
    good = secured()
    bundle = write_messaging(
        Messaging((order(), signal(receipt=receipt(good).receipt)), id="_messaging"), SOAP_12
    )
    made = {
        "push": request(good),
        "push-mime": bare(request(good)),
        "push-chunked": chunked(request(good)),
        "push-packed": chunked(request(good), packed=True),
        "push-soap11": request(secured(version=SOAP_11), SOAP_11),
        "plain": request(secured(sign=False, encrypt=False)),
        "body": secured(_body_order(), [], body="<o:Order xmlns:o='urn:o'>1</o:Order>").envelope,
        "bundle": write_envelope(SOAP_12, [bundle], write_body(SOAP_12, "")),
        "receipt": response(secured(receipt(good), [], encrypt=False).envelope),
        "awareness": secured(
            awareness_receipt(order(), message_info=receipt(good).message_info),
            [],
            sign=False,
            encrypt=False,
        ).envelope,
        "error": secured(_error(), [], encrypt=False).envelope,
        "pull": _pull(SOAP_12),
        "pull-soap11": _pull(SOAP_11),
        "hop": _hop(SOAP_12),
        "hop-soap11": _hop(SOAP_11),
        "fragment": _fragment(),
        **_faults(),
    }
    for form in TokenReference:
        made[f"named-by-{form.value}"] = request(secured(encrypt=False, reference=form))
    return made


def _ebxml_message(dialect: Dialect, **content: object) -> bytes:
    """An order in the older tongue; or what `content` makes of it."""
    top = EbxmlHeader(
        from_party=Party((PartyId("urn:example:buyer"),), ""),
        to_party=Party((PartyId("4711", "urn:example:number"),), ""),
        cpa_id="http://cpa.example/1",
        conversation_id="conversation-1",
        service=Service("urn:example:purchasing"),
        action="NewOrder",
        message_id="1@buyer.example",
        timestamp=NOW,
        ref_to_message_id="0@seller.example",
        time_to_live=NOW + timedelta(days=1),
        descriptions=(Description("An order", "en"),),
    )
    given = EbxmlMessage(dialect=dialect, header=top)
    return write_ebxml(replace(given, **content))


def _ebxml_order(dialect: Dialect) -> bytes:
    reference = ManifestReference(
        href="cid:order@buyer.example",
        id="order",
        role="http://role.example/order",
        schemas=(Schema("http://schema.example/order.xsd", "1"),),
        descriptions=(Description("The order", "en"),),
        extensions=(Extension("{urn:x}note", '<x:note xmlns:x="urn:x">now</x:note>'),),
    )
    data = _ebxml_message(dialect, manifest=Manifest((reference,)))
    if dialect.has_trace:
        hop = TraceHeader("https://buyer.example/msh", "mailto:msh@hub.example", NOW, 7)
        data = add_trace(data, dialect, hop)
        data = renew_via(data, dialect, Via(sync_reply=False, ack_requested="Signed", cpa_id="hop"))
    return data


@cache
def ebxml_messages() -> dict[str, bytes]:
    """Envelopes of the older tongue by name; a strict reader has nothing against any of them."""
    made = {}
    for name, dialect in DIALECTS.items():
        problem = EbmsError("Inconsistent", "two and two are five", location="/a:b/c:d")
        acknowledgment = Acknowledgment(timestamp=NOW)
        made |= {
            f"order-{name}": _ebxml_order(dialect),
            f"error-{name}": _ebxml_message(dialect, error_list=to_wire([problem], dialect)),
            f"receipt-{name}": _ebxml_message(dialect, acknowledgment=acknowledgment),
            f"status-{name}": _ebxml_message(
                dialect, status_data=StatusData("0@seller.example", "Received", NOW)
            ),
        }
    return made


@cache
def stores() -> dict[str, bytes]:
    """Key and trust stores of each kind."""
    return {
        "pem": pem(BUYER),
        "pem-protected": pem(BUYER, b"secret"),
        "pem-certificates": pem_certificates(BUYER.certificate, CA.certificate),
        "der": BUYER.certificate.public_bytes(Encoding.DER),
        "p12": p12(issue(CA, "in a store"), None, "buyer"),
        "p12-protected": p12(issue(CA, "in a store"), b"secret", "buyer"),
        "jks": jks({"buyer": issue(CA, "in a store")}, {"ca": CA.certificate}, b"secret"),
    }
