"""Receipts and errors of a bundle: one for each unit, all in one message (Part 2, 3.2.2, 3.8)."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta

import pytest

from postroad.msh import proof
from postroad.msh.answers import (
    Answer,
    error,
    receipt,
    receipt_problems,
    sent_message,
    sent_messages,
    wants_receipt,
    write_answers,
)
from postroad.msh.evidence import Findings, Given, GivenSignal, judge, signed_part
from postroad.msh.lens import Inspection, Lens
from postroad.msh.outbound import Package
from postroad.msh.proof import Prover, trust_in
from postroad.msh.securing import answer_signing
from postroad.msh.unbundling import unbundle, unit_failures
from postroad.wire import xml
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    PartInfo,
    Party,
    PartyId,
    Reference,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB3
from postroad.wire.receipts import check_receipt, nonrepudiation_receipt, unit_references
from postroad.wire.soap import SoapVersion
from tests.changing import replace
from tests.pki import NOW
from tests.unit.bundles import BUNDLING, BUYER, SELLER, World, pmode_text

LATER = NOW + timedelta(seconds=11)
AT = round(LATER.timestamp() * 1_000_000)
INFO = MessageInfo(NOW, "m@x")
PARTY = Party((PartyId("urn:x"),), "role")
BUSINESS = CollaborationInfo(Service("urn:s"), "act", "c1")
NO_TROUBLE: Mapping[int, EbmsError] = {}


def answers(
    world: World, made: Package, later: Mapping[int, EbmsError] = NO_TROUBLE
) -> tuple[Inspection, list[SignalMessage], tuple[Answer, ...]]:
    """The receiver's answers to a bundle."""
    found = world.look(made)
    taken = unbundle(found)
    assert taken.failures == (), taken.failures
    failed = unit_failures(taken, later)
    assert found.verification is not None
    messages = [unit.message for unit in taken.units]
    signed = unit_references(found.verification.signed_references, messages, "_messaging")
    signals = []
    for number, unit in enumerate(taken.units):
        name, ref = f"signal-{number}@y", unit.message.message_info.message_id
        if number in failed:
            signals.append(error(failed[number], signal_id=name, ref=ref, now=LATER))
        elif unit.match is not None and wants_receipt(unit.match.leg):
            signals.append(
                receipt(
                    found,
                    unit.message,
                    unit.match,
                    signal_id=name,
                    now=LATER,
                    references=signed[number],
                )
            )
    how = answer_signing(world.matches["invoices"].leg, SELLER)
    return found, signals, write_answers(signals, SoapVersion.SOAP_12, how, LATER)


def three(world: World) -> Package:
    return world.package(
        world.unit("m1@x", b"one", pmode="invoices"),
        world.unit("m2@x", b"two", b"three"),
        world.unit("m3@x"),
    )


@pytest.mark.req("P2-3.2.2-05", "P2-3.2.1-10")
def test_each_unit_has_a_receipt_that_covers_its_own_parts() -> None:
    _, signals, _ = answers(World(), three(World()))
    covered = {}
    for signal in signals:
        assert signal.receipt is not None
        assert signal.receipt.non_repudiation is not None
        covered[signal.message_info.ref_to_message_id] = [
            one.uri for one in signal.receipt.non_repudiation.references
        ]
    assert covered == {
        "m1@x": ["#_messaging", "#_body", "#_timestamp", "cid:0-m1@x"],
        "m2@x": ["#_messaging", "cid:0-m2@x", "cid:1-m2@x"],
        "m3@x": ["#_messaging"],
    }


def test_a_receipt_covers_the_body_where_the_unit_has_a_payload_there_or_nobody_knows() -> None:
    in_body = UserMessage(INFO, PARTY, PARTY, BUSINESS, part_infos=(PartInfo("#order"),))
    attached = UserMessage(INFO, PARTY, PARTY, BUSINESS, part_infos=(PartInfo("cid:a@x"),))
    header, body, part = [
        Reference(uri, (), "sha256", b"digest") for uri in ("#header", "#body", "cid:a@x")
    ]
    signed = [header, body, part]
    units = [attached, in_body, attached]
    assert unit_references(signed, units, "header") == [
        (header, body, part),
        (header, body),
        (header, part),
    ]
    assert unit_references(signed, units, None)[2] == (header, body, part)
    assert unit_references(signed, units, "another")[2] == (header, body, part)


@pytest.mark.req("P2-3.2.2-05", "P2-3.2.2-06")
@pytest.mark.parametrize(
    ("named", "holds"),
    [
        (["#_messaging", "cid:0-m2@x", "cid:1-m2@x"], True),
        (["#_messaging", "#_body", "#_timestamp", "cid:0-m2@x", "cid:1-m2@x"], True),
        (["#_messaging", "cid:0-m2@x"], False),
        (["#_body", "#_timestamp", "cid:0-m2@x", "cid:1-m2@x"], False),
    ],
    ids=["its own", "all that is shared", "a part is missing", "the header is missing"],
)
def test_a_receipt_about_a_unit_names_the_header_and_its_parts(
    named: list[str], holds: bool
) -> None:
    world = World()
    made = three(world)
    found, signals, _ = answers(world, made)
    assert found.verification is not None
    given = {one.uri: one for one in found.verification.signed_references}
    sent = sent_messages(made.envelope)["m2@x"]
    one = nonrepudiation_receipt(
        [given[uri] for uri in named], message_info=signals[1].message_info
    )
    try:
        check_receipt(
            one,
            sent_message_id="m2@x",
            sent_references=sent.references,
            also_sent=sent.neighbours,
        )
    except EbmsError:
        assert not holds
    else:
        assert holds


def test_a_unit_whose_pmode_asks_for_no_receipt_gets_none() -> None:
    quiet = pmode_text("catalogue", "Update").replace(
        "send_receipt: {reply_pattern: response}", "send_receipt: false"
    )
    world = World(catalogue=quiet)
    _, signals, _ = answers(world, three(world))
    assert [one.message_info.ref_to_message_id for one in signals] == ["m1@x"]


def test_all_answers_come_back_in_one_message_under_one_signature() -> None:
    world = World()
    found, signals, written = answers(world, three(world))
    assert found.holds
    assert len({one.envelope for one in written}) == 1
    envelope = written[0].envelope
    assert envelope.count(b"<ds:Signature ") == 1
    [messaging] = xml.parse(envelope).iter(f"{{{EB3}}}Messaging")
    assert [xml.local(unit) for unit in messaging] == ["SignalMessage"] * len(signals)
    heard = world.heard(written[0])
    assert heard.messaging is not None
    assert heard.messaging.signals == tuple(signals)
    assert heard.trusted


def test_the_sender_believes_each_receipt_about_its_own_unit_only() -> None:
    world = World()
    made = three(world)
    _, _, written = answers(world, made)
    heard = world.heard(written[0])
    sent = sent_messages(made.envelope)
    assert list(sent) == ["m1@x", "m2@x", "m3@x"]
    assert sent_message(made.envelope) == sent["m1@x"]
    assert heard.messaging is not None
    match = world.matches["invoices"]
    for signal, one in zip(heard.messaging.signals, sent.values(), strict=True):
        assert receipt_problems(heard, signal, one, match) == []
    first, second, _ = heard.messaging.signals
    forged = replace(second, receipt=first.receipt)
    [problem] = receipt_problems(heard, forged, sent["m2@x"], match)
    assert problem.code == "EBMS:0302"
    assert "cid:0-m2@x is missing" in problem.detail


@pytest.mark.req("P2-3.2.2-06", "P2-3.6.2-02")
def test_a_receipt_that_covers_the_whole_bundle_is_believed_too() -> None:
    world = World()
    made = three(world)
    found = world.look(made)
    unit = unbundle(found).units[1]
    assert unit.match is not None
    all_of_it = receipt(found, unit.message, unit.match, signal_id="r@y", now=LATER)
    how = answer_signing(world.matches["invoices"].leg, SELLER)
    [written] = write_answers([all_of_it], SoapVersion.SOAP_12, how, LATER)
    sent = sent_messages(made.envelope)["m2@x"]
    heard = world.heard(written)
    assert receipt_problems(heard, all_of_it, sent, world.matches["invoices"]) == []


def test_units_of_an_unsigned_bundle_are_answered_by_copies_of_their_headers() -> None:
    unsigned = "\n      send_receipt: {reply_pattern: response}"
    world = World(*(pmode_text(*one, security=unsigned) for one in PMODES))
    found = world.look(three(world))
    unit = unbundle(found).units[1]
    assert unit.match is not None
    signal = receipt(found, unit.message, unit.match, signal_id="r@y", now=LATER)
    assert signal.receipt is not None
    assert signal.receipt.user_message == unit.message


def evidence(
    made: Package, answer: Answer, message_id: str, *names: str, content: bytes | None = None
) -> Findings:
    """What message and receipt are worth, with these parts of the message at hand."""
    parts = [
        signed_part(
            number,
            part.payload.content_id,
            part.wire_type,
            part.content if content is None else BytesContent(content),
            part.payload.sha256 if content is None else hashlib.sha256(content).digest(),
        )
        for number, part in enumerate(made.parts)
        if part.payload.content_id in names
    ]
    signal = GivenSignal("receipt", "receipt", answer.envelope)
    lens = Lens(at=LATER, trusted=(BUYER.certificate, SELLER.certificate))
    return judge(Given(made.envelope, tuple(parts), (signal,), message_id), lens)


def test_the_evidence_of_a_unit_needs_its_own_parts_only() -> None:
    world = World()
    made = three(world)
    _, _, [answer, *_] = answers(world, made)
    found = evidence(made, answer, "m1@x", "0-m1@x")
    assert found.holds, found.all_problems()
    assert [one.uri for one, _ in found.signals[0].digests][-1] == "cid:0-m1@x"
    assert evidence(made, answer, "m3@x").holds
    missing = evidence(made, answer, "m2@x", "0-m2@x")
    assert any("cid:1-m2@x is not here" in one.detail for one in missing.all_problems())
    assert not evidence(made, answer, "m1@x", "0-m1@x", content=b"two").holds


def test_there_is_no_evidence_of_a_unit_that_the_bundle_does_not_hold() -> None:
    world = World()
    made = three(world)
    _, _, [answer, *_] = answers(world, made)
    [problem, *_] = evidence(made, answer, "m4@x").problems
    assert "holds 3 user messages, none of them m4@x" in problem.detail


@pytest.mark.parametrize("message_id", ["m1@x", "m2@x", "m3@x"])
def test_the_receipt_of_a_unit_is_proof_of_that_unit(message_id: str) -> None:
    world = World()
    made = three(world)
    _, signals, [answer, *_] = answers(world, made)
    [signal] = [one for one in signals if one.message_info.ref_to_message_id == message_id]
    prover = Prover(trust_in([SELLER.certificate]))
    name = signal.message_info.message_id
    found = prover.prove(answer.envelope, made.envelope, message_id, name, AT)
    assert found.valid, found
    other = prover.prove(answer.envelope, made.envelope, "m4@x", name, AT)
    assert not other.valid


def test_receipts_of_one_envelope_are_proved_by_reading_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    looked = proof._looked

    def counted(envelope: bytes, lens: Lens, *, whole: bool) -> Inspection:
        read.append(envelope)
        return looked(envelope, lens, whole=whole)

    monkeypatch.setattr(proof, "_looked", counted)
    world = World()
    made = three(world)
    _, signals, [answer, *_] = answers(world, made)
    prover = Prover(trust_in([SELLER.certificate]))
    for late, signal in enumerate(signals):
        info = signal.message_info
        ref, name = info.ref_to_message_id or "", info.message_id
        assert prover.prove(answer.envelope, made.envelope, ref, name, AT + late).valid
    assert read == [answer.envelope, made.envelope]


PMODES = (("invoices", "Invoice"), ("catalogue", "Update"))
EXAMPLE = """\
id: invoices
initiator: {party: urn:example:buyer}
responder: {party: urn:example:seller}
legs:
  - protocol: {address: http://seller.example/msh}
    business_info: {service: urn:example:purchasing, action: Invoice}
    security:
      x509: {sign: true}
      send_receipt: {enabled: true, reply_pattern: response}
    error_handling: {report: {as_response: true}}
    bundling:
      policy: always
      compatibility: {pmode_list: invoices}
      max_delay: PT10S
      ordering:
        policy: documentorder
        scope: [eb3:CollaborationInfo/eb3:ConversationId]
"""


@pytest.mark.req("P2-3.10.3-01", "P2-3.10.3-02", "P2-3.10.3-03", "P2-3.10.3-04")
def test_the_example_of_section_3_10_3() -> None:
    """Units 1, 3 and 4 are of conversation C1, 2 and 5 of C2; unit 3 cannot be processed."""
    world = World(invoices=EXAMPLE)
    conversations = ("C1", "C2", "C1", "C1", "C2")
    units = [
        world.unit(f"m{number}@x", b"document", pmode="invoices", conversation=conversation)
        for number, conversation in enumerate(conversations, 1)
    ]
    trouble = EbmsError("EBMS:0004", "the application could not take it", ref="m3@x")
    _, _, written = answers(world, world.package(*units), {2: trouble})
    heard = world.heard(written[0])
    assert heard.messaging is not None
    told = {
        signal.message_info.ref_to_message_id: [
            (one.error_code, one.severity, one.short_description, one.ref_to_message_in_error)
            for one in signal.errors
        ]
        if signal.errors
        else "receipt"
        for signal in heard.messaging.signals
    }
    assert told == {
        "m1@x": "receipt",
        "m2@x": "receipt",
        "m3@x": [("EBMS:0004", "failure", "Other", "m3@x")],
        "m4@x": [("EBMS:0031", "failure", "RelatedMessageFailed", "m4@x")],
        "m5@x": "receipt",
    }
    assert len({one.envelope for one in written}) == 1


@pytest.mark.req("P2-7.2-07")
def test_without_an_order_a_failure_stops_nobody() -> None:
    world = World(invoices=pmode_text("invoices", "Invoice", BUNDLING))
    trouble = EbmsError("EBMS:0004", "the application could not take it", ref="m1@x")
    _, signals, _ = answers(world, three(world), {0: trouble})
    assert [bool(one.errors) for one in signals] == [True, False, False]
