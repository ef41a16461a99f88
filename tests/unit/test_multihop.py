"""Routing input: read, written, inferred, and which of several counts."""

import re
from pathlib import Path

import pytest
from lxml import etree

from postroad.wire.ebms3 import (
    Error,
    Messaging,
    Party,
    PartyId,
    PullRequest,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.multihop import (
    ERROR,
    RECEIPT,
    RoutingInput,
    RoutingUserMessage,
    effective_routing_input,
    find_routing_input,
    infer_pull,
    infer_reverse,
    read_routing_input,
    routing_user_message,
    write_routing_input,
)
from postroad.wire.names import DEFAULT_MPC, EB3, EBINT, I_CLOUD, NEXT_MSH, ONE_WAY, S12, WSA
from postroad.wire.soap import (
    Envelope,
    HeaderBlock,
    SoapVersion,
    read_envelope,
    write_body,
    write_envelope,
)
from postroad.wire.wsa import read_addressing
from postroad.wire.xml import canonical, parse
from tests.changing import replace
from tests.conftest import PROJECT
from tests.unit.routed import BUYER, INFO, ORDER, ROUTING_INPUT, SELLER

BARE = RoutingInput(RoutingUserMessage(BUYER, SELLER, ORDER.collaboration_info))
PULL_SIGNAL = SignalMessage(INFO, pull_request=PullRequest("urn:mpc:pulled"))
SCHEMAS = PROJECT.parent / "shared" / "schemas"


def _block(xml: str, version: SoapVersion = SoapVersion.SOAP_12) -> HeaderBlock:
    envelope = read_envelope(parse(write_envelope(version, [xml], write_body(version))))
    return envelope.blocks[0]


def _read(xml: str) -> RoutingInput:
    value, problems = read_routing_input(_block(xml))
    assert problems == []
    assert value is not None
    return value


def _refused(xml: str) -> list[EbmsError]:
    value, problems = read_routing_input(_block(xml))
    assert value is None
    assert problems
    return problems


WRITTEN = write_routing_input(ROUTING_INPUT, SoapVersion.SOAP_12)


@pytest.mark.req("P2-2.5.5-10")
@pytest.mark.parametrize("version", SoapVersion)
def test_written_it_is_a_reference_parameter_for_nextmsh_around_one_message(
    version: SoapVersion,
) -> None:
    written = write_routing_input(BARE, version)
    block = _block(written, version)
    assert block.role == NEXT_MSH
    assert block.must_understand
    assert block.element.get(f"{{{WSA}}}IsReferenceParameter") == "true"
    assert [child.tag for child in block.element] == [f"{{{EBINT}}}UserMessage"]
    assert canonical(block.element) == written.encode()


@pytest.mark.parametrize("version", SoapVersion)
@pytest.mark.parametrize("value", [ROUTING_INPUT, BARE, replace(ROUTING_INPUT, role=None)])
def test_what_is_written_is_read(version: SoapVersion, value: RoutingInput) -> None:
    written = write_routing_input(value, version)
    assert read_routing_input(_block(written, version)) == (value, [])
    assert canonical(parse(written.encode())) == written.encode()


@pytest.mark.req("P2-2.5.5-11", "P2-2.5.5-12")
def test_without_message_info_it_is_valid_routing_input() -> None:
    value, problems = read_routing_input(_block(write_routing_input(BARE, SoapVersion.SOAP_12)))
    assert problems == []
    assert value is not None
    assert value.user_message.message_info is None
    assert effective_routing_input(value, None) == BARE.user_message


@pytest.mark.parametrize(
    "value",
    [
        ROUTING_INPUT,
        BARE,
        infer_reverse(ORDER, RECEIPT),
        infer_pull(ORDER)[0],
    ],
    ids=["full", "bare", "reverse", "pull"],
)
def test_what_is_written_is_valid_by_the_schema(value: RoutingInput) -> None:
    element = parse(write_routing_input(value, SoapVersion.SOAP_12).encode())
    _schema().assertValid(element)


def _schema() -> etree.XMLSchema:
    if not SCHEMAS.is_dir():
        pytest.skip("the schemas are not there")
    there = {
        "ws-addr": "ws-addr.xsd",
        "http://www.w3.org/2003/05/soap-envelope": "soap12.xsd",
        "http://schemas.xmlsoap.org/soap/envelope/": "soap11.xsd",
    }

    class Local(etree.Resolver):
        def resolve(self, url: str, _id: str, context: object) -> object:
            for end, name in there.items():
                if url.endswith(end):
                    return self.resolve_filename(str(SCHEMAS / name), context)
            if url.endswith("xml.xsd"):
                return self.resolve_string(XML_SCHEMA, context)
            return None

    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(Local())
    main = SCHEMAS / "ebms-multihop-1_0-200902_refactored.xsd"
    return etree.XMLSchema(etree.parse(str(main), parser))


XML_SCHEMA = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
           targetNamespace="http://www.w3.org/XML/1998/namespace">
  <xs:attribute name="lang" type="xs:language"/>
  <xs:attribute name="base" type="xs:anyURI"/>
  <xs:attribute name="space" type="xs:NCName"/>
  <xs:attributeGroup name="specialAttrs"/>
</xs:schema>
"""


def test_the_id_is_written_as_wsu_id_and_a_plain_id_is_read_too() -> None:
    assert ' wsu:Id="routing-1"' in WRITTEN
    assert _read(WRITTEN).id == "routing-1"
    assert _read(WRITTEN.replace(' wsu:Id="routing-1"', ' id="x"')).id == "x"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ebint:UserMessage", "ebint:Other"),
        ("ebint:UserMessage", "eb:UserMessage"),
        ("</ebint:UserMessage>", "</ebint:UserMessage><ebint:UserMessage/>"),
        ("eb:PartyInfo", "eb:Other"),
        ("eb:CollaborationInfo", "eb:Other"),
        ("<eb:Action>Process</eb:Action>", ""),
        ("<eb:Role>Buyer</eb:Role>", ""),
        (">orders123@buyer.example.com<", "><"),
    ],
)
def test_what_breaks_the_schema_is_an_invalid_header(old: str, new: str) -> None:
    assert old in WRITTEN
    start = WRITTEN.replace("<ebint:RoutingInput ", f'<ebint:RoutingInput xmlns:eb="{EB3}" ')
    assert {p.code for p in _refused(start.replace(old, new))} == {"EBMS:0009"}


def test_a_second_routing_input_in_the_header_is_refused() -> None:
    version = SoapVersion.SOAP_12
    for blocks in ([], [WRITTEN], [WRITTEN, WRITTEN]):
        envelope = read_envelope(parse(write_envelope(version, blocks, write_body(version))))
        if len(blocks) < 2:
            assert find_routing_input(envelope) == next(iter(envelope.blocks), None)
        else:
            with pytest.raises(EbmsError, match="EBMS:0009"):
                find_routing_input(envelope)


def test_a_routing_input_that_cannot_be_sent_is_not_written() -> None:
    for wrong in (
        replace(BARE.user_message, from_party=Party((), "x")),
        replace(BARE.user_message, mpc="a\x00b"),
    ):
        with pytest.raises(ValueError):
            write_routing_input(RoutingInput(wrong), SoapVersion.SOAP_12)


PRINTED = f"""
<ebint:RoutingInput xmlns:ebint="{EBINT}" xmlns:eb3="{EB3}" xmlns:S12="{S12}" xmlns:wsa="{WSA}"
    wsa:IsReferenceParameter="true" id="_ccd050c7" S12:mustUnderstand="true" S12:role="{NEXT_MSH}">
  <ebint:UserMessage mpc="e5c31ef7-d750-4db8-b4dc-13a751d80b9a.receipt">
    <eb3:PartyInfo>
      <eb3:From><eb3:PartyId type="urn:duns">192837465</eb3:PartyId><eb3:Role>Seller</eb3:Role>
      </eb3:From>
      <eb3:To><eb3:PartyId type="urn:duns">123456789</eb3:PartyId><eb3:Role>Buyer</eb3:Role>
      </eb3:To>
    </eb3:PartyInfo>
    <eb3:CollaborationInfo>
      <eb3:Service>Sales</eb3:Service>
      <eb3:Action>ProcessPurchaseOrder.receipt</eb3:Action>
      <eb3:ConversationId>ecae53d4</eb3:ConversationId>
    </eb3:CollaborationInfo>
  </ebint:UserMessage>
</ebint:RoutingInput>
"""
"""After the example of appendix E.3, whose Service and MPC are no URIs."""


def test_values_that_are_no_uris_are_told_of_and_routed_by() -> None:
    value, problems = read_routing_input(_block(PRINTED))
    assert value is not None
    assert value.user_message.mpc == "e5c31ef7-d750-4db8-b4dc-13a751d80b9a.receipt"
    assert value.user_message.collaboration_info.service == Service("Sales")
    assert {p.severity for p in problems} == {Severity.WARNING}


def _messaging(*units: UserMessage | SignalMessage, role: str | None = NEXT_MSH) -> Messaging:
    return Messaging(units, role=role)


def test_a_user_message_is_routed_by_itself() -> None:
    assert effective_routing_input(None, _messaging(ORDER)) == routing_user_message(ORDER)
    bundle = _messaging(PULL_SIGNAL, ORDER, replace(ORDER, mpc="urn:other"))
    assert effective_routing_input(None, bundle) == routing_user_message(ORDER)


def test_a_pull_request_is_routed_by_its_mpc() -> None:
    found = effective_routing_input(None, _messaging(PULL_SIGNAL))
    assert found == PullRequest("urn:mpc:pulled")
    assert found is not None
    assert found.effective_mpc == "urn:mpc:pulled"


def test_a_signal_is_routed_by_its_routing_input() -> None:
    signal = SignalMessage(INFO, errors=(Error("EBMS:0004", "failure"),))
    found = effective_routing_input(BARE, _messaging(signal, role=None))
    assert found == BARE.user_message
    assert effective_routing_input(BARE, None) == BARE.user_message
    assert effective_routing_input(None, _messaging(signal)) is None


@pytest.mark.parametrize("unit", [ORDER, PULL_SIGNAL], ids=["user message", "pull request"])
def test_routing_input_wins_over_what_is_in_the_message(unit: UserMessage | SignalMessage) -> None:
    assert effective_routing_input(BARE, _messaging(unit)) == BARE.user_message


def test_headers_for_other_roles_are_not_routed_by() -> None:
    assert effective_routing_input(None, _messaging(ORDER, role=None)) is None
    assert effective_routing_input(replace(BARE, role="urn:other"), None) is None
    everything = effective_routing_input(None, _messaging(ORDER, role=None), roles=(None,))
    assert everything == routing_user_message(ORDER)


def test_the_way_back_swaps_the_parties_and_marks_action_and_mpc() -> None:
    inferred = infer_reverse(ORDER)
    message = inferred.user_message
    assert (message.from_party, message.to_party) == (SELLER, BUYER)
    assert message.collaboration_info.service == Service("Sales", "urn:s")
    assert message.collaboration_info.action == "Process.response"
    assert message.mpc == "urn:mpc:abc123.response"
    assert (inferred.role, inferred.is_reference_parameter) == (NEXT_MSH, True)
    assert (message.message_info, message.part_infos) == (None, ())


@pytest.mark.parametrize("suffix", [".receipt", ".acknowledgment", ".error"])
def test_finer_suffixes_tell_what_comes_back(suffix: str) -> None:
    message = infer_reverse(routing_user_message(ORDER), suffix).user_message
    assert message.collaboration_info.action == "Process" + suffix
    assert message.mpc == "urn:mpc:abc123" + suffix


def test_an_mpc_that_is_not_mentioned_stays_so_unless_as4_is_spoken() -> None:
    silent = replace(ORDER, mpc=None)
    assert infer_reverse(silent, RECEIPT).user_message.mpc is None
    as4 = infer_reverse(silent, ERROR, default_mpc=True)
    assert as4.user_message.mpc == DEFAULT_MPC + ".error"


def test_the_way_back_keeps_the_conversation() -> None:
    info = infer_reverse(ORDER, RECEIPT).user_message.collaboration_info
    assert info.conversation_id == "c1"


def test_a_pull_request_is_routed_to_the_sender_of_what_it_pulls() -> None:
    inferred, request = infer_pull(ORDER)
    message = inferred.user_message
    assert (message.from_party, message.to_party) == (SELLER, BUYER)
    assert message.collaboration_info.service == Service("Sales", "urn:s")
    assert message.collaboration_info.action == "Process.pull"
    assert request == PullRequest("urn:mpc:abc123")
    assert infer_pull(replace(ORDER, mpc=None))[1] == PullRequest(None)


def _recorded(path: Path) -> Envelope:
    data = path.read_bytes()
    match = re.search(rb"<(\w+):Envelope.*</\1:Envelope>", data, re.S)
    assert match is not None
    return read_envelope(parse(match[0]))


def _routing_input(envelope: Envelope) -> RoutingInput:
    block = find_routing_input(envelope)
    assert block is not None
    value, problems = read_routing_input(block)
    assert [p for p in problems if p.severity is Severity.FAILURE] == []
    assert value is not None
    return value


def test_the_recorded_receipt_of_another_gateway_is_read(vectors: Path) -> None:
    envelope = _recorded(vectors / "as4net" / "multihopreceipt.xml")
    value = _routing_input(envelope)
    assert value.role == NEXT_MSH
    assert not value.is_reference_parameter
    assert value.user_message.mpc == DEFAULT_MPC + ".response"
    assert value.user_message.collaboration_info.action == "Send.response"
    assert value.user_message.property("finalRecipient") == "UK:UK010"
    assert value.user_message.message_info is not None
    addressing, problems = read_addressing(envelope)
    assert problems == []
    assert addressing is not None
    assert (addressing.to, addressing.to_role) == (I_CLOUD, NEXT_MSH)
    assert addressing.action == ONE_WAY + ".receipt"


def test_a_recorded_user_message_for_the_next_msh_is_routed_by_its_parties(vectors: Path) -> None:
    envelope = _recorded(vectors / "as4net" / "as4-multihop-usermessage.as4")
    element = find_messaging(envelope)
    assert element is not None
    routed_by = effective_routing_input(None, read_messaging(element, envelope.version).messaging)
    assert isinstance(routed_by, RoutingUserMessage)
    assert routed_by.to_party == Party((PartyId("receiverId"),), "rcv")
    assert routed_by.effective_mpc == DEFAULT_MPC


@pytest.mark.parametrize("name", ["No_MPC_WSSecurity", "Specified_MPC"])
def test_the_committee_infers_the_same_for_its_receipts(vectors: Path, name: str) -> None:
    sent = _recorded(vectors / "oasis" / f"UserMessage_{name}_multihop.xml")
    answer = _recorded(vectors / "oasis" / f"UserMessage_{name}_multihop.as4receipt.xml")
    element = find_messaging(sent)
    assert element is not None
    routed_by = effective_routing_input(None, read_messaging(element, sent.version).messaging)
    assert isinstance(routed_by, RoutingUserMessage)
    inferred = infer_reverse(routed_by, RECEIPT, default_mpc=True)
    recorded = _routing_input(answer)
    assert recorded == replace(inferred, id=recorded.id)
    assert read_addressing(answer)[1] == []
