"""A buyer and a seller who speak ebXML, for tests: their P-Mode, keys, messages and looks."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import yaml

from postroad.agreement.ebxml import cpa_terms
from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import Match, PModes
from postroad.msh.answers import Answer
from postroad.msh.capture import Capture, Incoming
from postroad.msh.ebxml_outbound import EbxmlPackage, package_ebxml
from postroad.msh.expectation import Expectation, Material
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection, Lens
from postroad.msh.outbound import Draft, DraftPayload, WirePart, wire_form
from postroad.msh.securing import answer_signing
from postroad.reliability.ebxml_terms import Terms, agree
from postroad.security.sign import Signing
from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import DIALECTS, Dialect, EbxmlMessage
from postroad.wire.soap import SoapVersion
from tests import pki

NOW: Final = pki.NOW
CPA: Final = "urn:example:cpa:17"
BUYER: Final = Party((PartyId("urn:example:buyer"),), "")
SELLER: Final = Party((PartyId("urn:example:seller"),), "")
VERSIONS: Final = tuple(DIALECTS)
MESSAGE_ID: Final = "order-1@buyer.example"
BOUNDARY: Final = "=-boundary"


@dataclass
class World:
    """The P-Mode from buyer to seller, and what both do under it."""

    version: str = "2.0"
    signed: bool = False
    ebxml: dict[str, Any] = field(default_factory=dict)
    leg: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def buyer(self) -> Any:
        return pki.issue(pki.authority("ebXML CA"), "buyer")

    @cached_property
    def seller(self) -> Any:
        return pki.issue(pki.authority("ebXML CA"), "seller")

    @cached_property
    def dialect(self) -> Dialect:
        return DIALECTS[self.version]

    @property
    def yaml(self) -> str:
        leg: dict[str, Any] = {
            "protocol": {"address": "http://seller.example/msh"},
            "business_info": {"service": "urn:example:orders", "action": "NewOrder"},
            "reception_awareness": {
                "retry": {"parameters": {"max_retries": 3, "period": "PT1M", "timeout": "PT30S"}}
            },
            "ebxml": {"version": self.version, **self.ebxml},
            **self.leg,
        }
        if self.signed:
            signature = {"pins": ["buyer.pem"], "algorithm": "ecdsa-sha256"}
            leg["security"] = {"x509": {"sign": True, "signature": signature}}
        return yaml.safe_dump(
            {
                "id": "orders",
                "agreement": CPA,
                "initiator": {"party": BUYER.party_ids[0].value},
                "responder": {"party": SELLER.party_ids[0].value},
                "legs": [leg],
            }
        )

    @cached_property
    def expectation(self) -> Expectation:
        loaded = load_pmodes(self.yaml, "orders.yaml")
        assert loaded.ok, loaded.errors
        material = Material(
            pins=(self.buyer.certificate,) if self.signed else (),
            signing=self.buyer,
            answering=(self.seller.certificate,),
        )
        return Expectation(PModes(loaded.pmodes), {("orders", 1): material})

    @cached_property
    def match(self) -> Match:
        wanted = self.expectation.pmodes.legs[0]
        return Match(wanted.pmode, wanted.leg, 1)

    @cached_property
    def terms(self) -> Terms:
        asked = (
            {"ackRequested": self.ebxml["ack_requested"]} if "ack_requested" in self.ebxml else {}
        )
        return agree(cpa_terms(self.match.leg), asked, timestamp=NOW)

    @property
    def sellers_signing(self) -> Signing | None:
        return answer_signing(self.match.leg, self.seller) if self.signed else None

    def draft(self, *payloads: bytes, **given: Any) -> Draft:
        made = tuple(
            DraftPayload(
                BytesContent(data),
                hashlib.sha256(data).digest(),
                "application/xml",
                f"part-{number}@buyer.example",
            )
            for number, data in enumerate(payloads, 1)
        )
        return Draft(
            **{"message_id": MESSAGE_ID, "conversation_id": "c-1", "payloads": made} | given
        )

    def package(self, *payloads: bytes, draft: Draft | None = None, **given: Any) -> EbxmlPackage:
        return package_ebxml(
            draft or self.draft(*payloads),
            self.match,
            self.expectation.material(self.match),
            **{"now": NOW, "terms": self.terms} | given,
        )

    def look(
        self, capture: Capture, *, answering: bool = False, receiving: bool = True, **lens: Any
    ) -> Inspection:
        """What who receives finds; `answering`: by the terms for answers to the buyer."""
        given = {"expectation": self.expectation} | lens
        look = Look(capture, Lens(NOW, receiving=receiving, **given))
        assert look.read()
        terms = self.expectation.answer_terms(self.match) if answering else look.terms()
        look.judge(terms)
        return look.found

    def receive(self, made: EbxmlPackage, envelope: bytes | None = None) -> Inspection:
        """The seller looks at what the buyer packaged; `envelope`: as it arrived."""
        return self.look(arrived(made, envelope))

    def read(self, made: EbxmlPackage, envelope: bytes | None = None) -> EbxmlMessage:
        found = self.receive(made, envelope)
        assert found.ebxml is not None
        assert found.holds, found.problems
        return found.ebxml

    def hear(self, answer: Answer) -> Inspection:
        """The buyer looks at an answer of the seller's."""
        return self.look(alone(answer.envelope), answering=True)


def arrived(made: EbxmlPackage, envelope: bytes | None = None) -> Capture:
    """A package as it comes over the wire."""
    parts = [WirePart(part.payload.content_id, part.wire_type, part.content) for part in made.parts]
    boundary = BOUNDARY if parts else None
    form = wire_form(SoapVersion.SOAP_11, envelope or made.envelope, parts, boundary)
    return incoming(form.content_type, b"".join(form.pieces()))


def alone(envelope: bytes) -> Capture:
    return incoming("text/xml; charset=UTF-8", envelope)


def incoming(content_type: str, body: bytes) -> Capture:
    came = Incoming(content_type, new_sink=BytesSink)
    came.feed(body)
    return came.close()


def later(seconds: int) -> datetime:
    return datetime.fromtimestamp(NOW.timestamp() + seconds, NOW.tzinfo)


def codes(found: Inspection) -> list[str]:
    return [one.code for one in found.problems]


def asking(**given: Any) -> dict[str, Any]:
    """What a ping or a status request of the buyer says of itself."""
    parties = {"from_party": BUYER, "to_party": SELLER, "cpa_id": CPA, "conversation_id": "c-1"}
    return {**parties, "message_id": "ask-1@buyer.example", "now": NOW, **given}
