"""Bundles for tests: two kinds of documents for one partner, signed, and who receives them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import Match, PModes
from postroad.agreement.pmode import PMode
from postroad.agreement.supported import ALL
from postroad.msh.answers import Answer
from postroad.msh.capture import read_capture
from postroad.msh.expectation import Expectation, Material
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection, Lens
from postroad.msh.outbound import (
    Draft,
    DraftPayload,
    Package,
    PackedUnit,
    WireForm,
    WirePart,
    pack,
    package_units,
    wire_form,
)
from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.limits import DEFAULT, Limits
from tests.pki import NOW, authority, issue

CA = authority("Bundles CA")
BUYER = issue(CA, "urn:example:buyer", key="ed25519")
SELLER = issue(CA, "urn:example:seller", key="ed25519")
READER = issue(CA, "reader", usage=("key_agreement",))
SECURITY = """
      x509: {sign: true}
      send_receipt: {reply_pattern: response}"""
BUNDLING = """
      policy: optional
      compatibility: {pmode_list: [invoices, catalogue]}
      max_size: 64 KiB
      max_delay: PT10S"""


def pmode_text(name: str, action: str, bundling: str = BUNDLING, security: str = SECURITY) -> str:
    return f"""\
id: {name}
initiator: {{party: urn:example:buyer}}
responder: {{party: urn:example:seller}}
legs:
  - protocol: {{address: https://seller.example/msh, soap_version: 1.2}}
    business_info: {{service: urn:example:purchasing, action: {action}}}
    security:{security}
    payload_service: {{compression_type: gzip}}
    bundling:{bundling}
"""


def loaded(text: str) -> PMode:
    [pmode] = load_pmodes(text, "pmode.yaml", supported=ALL).pmodes
    return pmode


def entropy() -> Callable[[int], bytes]:
    numbers = count()
    return lambda size: hashlib.shake_256(f"bundle {next(numbers)}".encode()).digest(size)


@dataclass
class World:
    """A sender and a receiver that agree on `invoices` and `catalogue`."""

    invoices: str = pmode_text("invoices", "Invoice")
    catalogue: str = pmode_text("catalogue", "Update")
    limits: Limits = DEFAULT
    matches: dict[str, Match] = field(init=False)

    def __post_init__(self) -> None:
        pmodes = [loaded(text) for text in (self.invoices, self.catalogue)]
        self.matches = {one.id: Match(one, one.legs[0], 1) for one in pmodes}
        own = Material(
            pins=(BUYER.certificate,),
            recipients=(READER.certificate,),
            keys=(READER,),
            signing=BUYER,
            answering=(SELLER.certificate,),
        )
        self.materials = {(name, 1): own for name in self.matches}
        self.expectation = Expectation(PModes(pmodes), self.materials)

    def unit(
        self,
        message_id: str,
        *contents: bytes,
        pmode: str = "catalogue",
        seconds: float = 0,
        conversation: str = "c",
        names: Sequence[str] = (),
    ) -> PackedUnit:
        """A unit that was made so many seconds after `NOW`."""
        payloads = tuple(
            DraftPayload(
                BytesContent(content),
                hashlib.sha256(content).digest(),
                "application/octet-stream",
                names[number] if names else f"{number}-{message_id}",
                compress=False,
            )
            for number, content in enumerate(contents)
        )
        draft = Draft(message_id, conversation, payloads)
        made = NOW + timedelta(seconds=seconds)
        return pack(draft, self.matches[pmode], now=made)

    def package(
        self,
        *units: PackedUnit,
        pmode: str = "invoices",
        seconds: float = 10,
        signals: Sequence[SignalMessage] = (),
    ) -> Package:
        return package_units(
            units,
            self.matches[pmode],
            self.materials[pmode, 1],
            now=NOW + timedelta(seconds=seconds),
            entropy=entropy(),
            signals=signals,
            limits=self.limits,
        )

    def look(self, made: Package, seconds: float = 11) -> Inspection:
        """What the receiver finds."""
        return self.received(wire(made), seconds)

    def received(self, form: WireForm, seconds: float = 11) -> Inspection:
        head = f"POST /msh HTTP/1.1\r\nContent-Type: {form.content_type}\r\n\r\n".encode()
        capture = read_capture([head, *form.pieces()], new_sink=BytesSink, limits=self.limits)
        lens = Lens(
            at=NOW + timedelta(seconds=seconds),
            receiving=True,
            expectation=self.expectation,
            limits=self.limits,
        )
        look = Look(capture, lens)
        if look.read():
            look.judge(look.terms())
        return look.found

    def heard(self, answer: Answer, seconds: float = 12) -> Inspection:
        """What the sender finds in an answer to a message of the primary's P-Mode."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {answer.content_type}\r\n\r\n".encode()
        capture = read_capture([head, answer.envelope], new_sink=BytesSink, limits=self.limits)
        at = NOW + timedelta(seconds=seconds)
        look = Look(capture, Lens(at=at, receiving=True, expectation=self.expectation))
        assert look.read()
        look.judge(self.expectation.answer_terms(self.matches["invoices"]))
        return look.found


def wire(made: Package) -> WireForm:
    contents = [part.content for part in made.parts]
    if made.seal is not None:
        contents = list(made.seal.on(contents))
    sealed = "application/octet-stream" if made.seal else None
    parts = [
        WirePart(part.payload.content_id, sealed or part.wire_type, content)
        for part, content in zip(made.parts, contents, strict=True)
    ]
    return wire_form(made.version, made.envelope, parts, "=_" + "0" * 30 if parts else None)
