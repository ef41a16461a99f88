"""WS-Addressing headers: what is read, what is refused, what is written."""

import pytest

from postroad.wire.ebms3 import CollaborationInfo, Party, PartyId, Service
from postroad.wire.errors import Severity
from postroad.wire.multihop import RoutingInput, RoutingUserMessage, read_routing_input
from postroad.wire.names import EB3, I_CLOUD, NEXT_MSH, ONE_WAY, S11, S12, TWO_WAY, WSA
from postroad.wire.soap import Envelope, SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.wsa import (
    ANONYMOUS,
    NONE,
    REPLY,
    Addressing,
    EndpointReference,
    RelatesTo,
    default_action,
    error_action,
    is_iri,
    read_addressing,
    read_endpoint_reference,
    receipt_action,
    write_addressing,
    write_endpoint_reference,
    write_reference_parameters,
)
from postroad.wire.xml import canonical, parse
from tests.changing import replace

ROUTING_INPUT = RoutingInput(
    RoutingUserMessage(
        Party((PartyId("b", "urn:t"),), "Seller"),
        Party((PartyId("a", "urn:t"),), "Buyer"),
        CollaborationInfo(Service("urn:s"), "Do.receipt", "1"),
        mpc="urn:mpc.receipt",
    )
)
I_CLOUD_EPR = EndpointReference(
    I_CLOUD, (replace(ROUTING_INPUT, is_reference_parameter=False),), NEXT_MSH
)
FULL = Addressing(
    to=I_CLOUD,
    action=ONE_WAY + ".receipt",
    message_id="urn:uuid:1",
    relates_to=(RelatesTo("urn:uuid:0"), RelatesTo("urn:uuid:9", "urn:other")),
    reply_to=I_CLOUD_EPR,
    fault_to=EndpointReference("http://f.example.com/?b&c", (b'<x:P xmlns:x="urn:x">1</x:P>',)),
    from_=EndpointReference(ANONYMOUS),
    to_role=NEXT_MSH,
    to_must_understand=True,
)
SOAP_12, SOAP_11 = SoapVersion.SOAP_12, SoapVersion.SOAP_11


def _envelope(*blocks: str, version: SoapVersion = SOAP_12) -> Envelope:
    return read_envelope(parse(write_envelope(version, blocks, write_body(version))))


def _wsa(name: str, value: str, attributes: str = "") -> str:
    return f'<wsa:{name} xmlns:wsa="{WSA}" xmlns:S12="{S12}" {attributes}>{value}</wsa:{name}>'


def _refused(*blocks: str) -> list[str]:
    addressing, problems = read_addressing(_envelope(*blocks))
    assert addressing is None
    assert {p.code for p in problems} <= {"EBMS:0009"}
    return [f"{(p.location or '').rpartition('/')[2]}: {p.detail}" for p in problems]


@pytest.mark.parametrize("version", SoapVersion)
def test_what_is_written_is_read_and_each_block_is_canonical(version: SoapVersion) -> None:
    blocks = write_addressing(FULL, version, id_prefix="wsa")
    assert read_addressing(_envelope(*blocks, version=version)) == (FULL, [])
    for n, block in enumerate(blocks, 1):
        element = parse(block.encode())
        assert canonical(element) == block.encode()
        assert f' wsu:Id="wsa-{n}"' in block
    for block, sent in zip(blocks, _envelope(*blocks, version=version).blocks, strict=True):
        assert canonical(sent.element) == block.encode()


def test_without_an_id_prefix_no_id_is_written() -> None:
    assert not any("wsu" in block for block in write_addressing(FULL, SOAP_12))


@pytest.mark.req("P2-2.4.5-10")
@pytest.mark.parametrize("version", SoapVersion)
def test_a_message_to_the_i_cloud_is_for_the_nextmsh_role(version: SoapVersion) -> None:
    for addressing in (Addressing(I_CLOUD, ONE_WAY), Addressing(I_CLOUD, ONE_WAY, to_role="urn:x")):
        blocks = _envelope(*write_addressing(addressing, version), version=version).blocks
        assert [(b.element.text, b.role) for b in blocks] == [(I_CLOUD, NEXT_MSH), (ONE_WAY, None)]


@pytest.mark.req("P2-2.6.3.1-03")
def test_soap_11_says_actor_where_soap_12_says_role() -> None:
    to_11 = write_addressing(FULL, SOAP_11)[0]
    to_12 = write_addressing(FULL, SOAP_12)[0]
    assert f'xmlns:S11="{S11}"' in to_11
    assert f' S11:actor="{NEXT_MSH}"' in to_11
    assert f' S12:role="{NEXT_MSH}"' in to_12
    epr = write_endpoint_reference(I_CLOUD_EPR, SOAP_11)
    assert epr.count(f'S11:actor="{NEXT_MSH}"') == 2
    assert "role=" not in epr


@pytest.mark.req("P2-2.6.3.2-07")
def test_the_action_has_no_role() -> None:
    action = write_addressing(FULL, SOAP_12)[1]
    assert action == f'<wsa:Action xmlns:wsa="{WSA}">{ONE_WAY}.receipt</wsa:Action>'
    wrong = _wsa("Action", ONE_WAY, f'S12:role="{NEXT_MSH}"')
    assert "nextmsh" in _refused(wrong)[0]


@pytest.mark.req("P2-2.6.3.2-05")
@pytest.mark.parametrize("action", ["Submit", "", "http://x/a b", "a/b", "urn:x<y", ":x"])
def test_an_action_that_is_no_iri_is_neither_written_nor_read(action: str) -> None:
    assert not is_iri(action)
    with pytest.raises(ValueError, match="absolute IRI"):
        write_addressing(Addressing(action=action), SOAP_12)
    escaped = action.replace("<", "&lt;")
    assert "wsa:Action: " in _refused(_wsa("Action", escaped))[0]


@pytest.mark.parametrize("action", [ONE_WAY, "urn:x:ü", "http://例え.jp/アクション?x=1#y"])
def test_an_iri_may_hold_any_language(action: str) -> None:
    assert is_iri(action)
    addressing = Addressing(action=action)
    blocks = write_addressing(addressing, SOAP_12)
    assert read_addressing(_envelope(*blocks)) == (addressing, [])


def test_a_message_without_these_headers_has_no_addressing() -> None:
    assert read_addressing(_envelope()) == (None, [])
    assert read_addressing(_envelope('<x:Y xmlns:x="urn:x"/>')) == (None, [])


def test_without_wsa_to_the_message_is_for_anyone() -> None:
    addressing, problems = read_addressing(_envelope(_wsa("Action", "urn:a")))
    assert problems == []
    assert addressing == Addressing(to=ANONYMOUS, action="urn:a")


@pytest.mark.parametrize("name", ["To", "Action", "MessageID"])
def test_a_header_given_twice_is_refused(name: str) -> None:
    problems = _refused(_wsa(name, "urn:a"), _wsa(name, "urn:b"))
    assert problems == [f"wsa:{name}[2]: this header is there more than once"]


def test_an_endpoint_given_twice_is_refused() -> None:
    reply_to = write_endpoint_reference(EndpointReference(NONE), SOAP_12, name="ReplyTo")
    assert len(_refused(reply_to, reply_to)) == 1


def test_a_message_may_relate_to_several_others() -> None:
    blocks = [_wsa("RelatesTo", "urn:1"), _wsa("RelatesTo", "urn:2", 'RelationshipType="urn:r"')]
    addressing, _ = read_addressing(_envelope(*blocks))
    assert addressing is not None
    assert addressing.relates_to == (RelatesTo("urn:1", REPLY), RelatesTo("urn:2", "urn:r"))


def test_a_reference_parameter_needs_to_and_action() -> None:
    (parameter,) = write_reference_parameters(I_CLOUD_EPR, SOAP_12)
    other = f'<x:P xmlns:x="urn:x" xmlns:wsa="{WSA}" wsa:IsReferenceParameter="1"/>'
    for block in (parameter, other):
        assert len(_refused(block)) == 2
        assert "without wsa:Action" in _refused(_wsa("To", I_CLOUD), block)[0]
        assert "without wsa:To" in _refused(_wsa("Action", "urn:a"), block)[0]
        both = _envelope(_wsa("To", I_CLOUD), _wsa("Action", "urn:a"), block)
        assert read_addressing(both)[1] == []


def test_headers_by_the_thousand_are_told_of_in_a_few_sentences() -> None:
    assert len(_refused(*[_wsa("To", "urn:a"), _wsa("RelatesTo", "a b")] * 5000)) < 100


def test_a_wsa_header_does_not_hide_as_a_reference_parameter() -> None:
    to, action = _wsa("To", "urn:a"), _wsa("Action", "urn:a")
    hidden = _wsa("To", "urn:b", 'wsa:IsReferenceParameter="true"')
    assert len(_refused(to, action, hidden)) == 1


def test_elements_inside_a_uri_are_refused() -> None:
    assert len(_refused(_wsa("To", "urn:a<x/>"))) == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        f"<wsa:Address>{ANONYMOUS}</wsa:Address><wsa:Address>{NONE}</wsa:Address>",
        "<wsa:Address>not an address</wsa:Address>",
        f"<wsa:Address>{NONE}</wsa:Address><wsa:ReferenceParameters/><wsa:ReferenceParameters/>",
    ],
)
def test_a_broken_endpoint_reference_is_refused(content: str) -> None:
    assert len(_refused(_wsa("ReplyTo", content))) == 1


@pytest.mark.parametrize("name", ["Messaging", "UserMessage"])
def test_a_reference_parameter_cannot_smuggle_a_header_of_ours(name: str) -> None:
    smuggled = f'<eb:{name} xmlns:eb="{EB3}"/>'
    reply_to = (
        f"<wsa:Address>{ANONYMOUS}</wsa:Address>"
        f"<wsa:ReferenceParameters>{smuggled}</wsa:ReferenceParameters>"
    )
    assert "cannot be a reference parameter" in _refused(_wsa("ReplyTo", reply_to))[0]


def test_two_routing_inputs_in_an_endpoint_reference_are_refused() -> None:
    twice = EndpointReference(I_CLOUD, I_CLOUD_EPR.reference_parameters * 2)
    reply_to = write_endpoint_reference(twice, SOAP_12, name="ReplyTo")
    assert "more than once" in _refused(reply_to)[0]


def test_a_broken_routing_input_in_an_endpoint_reference_is_told() -> None:
    broken = write_endpoint_reference(I_CLOUD_EPR, SOAP_12, name="ReplyTo").replace(
        "ebint:UserMessage", "ebint:Other"
    )
    assert "exactly one ebint:UserMessage" in _refused(broken)[0]


@pytest.mark.req("P2-2.6.3-01", "P2-2.6.3.1-01")
@pytest.mark.parametrize("version", SoapVersion)
def test_the_reference_of_an_endpoint_behind_the_i_cloud(version: SoapVersion) -> None:
    written = write_endpoint_reference(
        EndpointReference(I_CLOUD, I_CLOUD_EPR.reference_parameters), version
    )
    assert canonical(parse(written.encode())) == written.encode()
    assert read_endpoint_reference(parse(written.encode()), version) == (I_CLOUD_EPR, [])
    assert not I_CLOUD_EPR.reachable
    assert EndpointReference("https://msh.example.com").reachable


def test_routing_input_that_an_endpoint_would_refuse_is_no_reason_to_refuse_the_reference() -> None:
    message = replace(
        ROUTING_INPUT.user_message, collaboration_info=CollaborationInfo(Service("Sales"), "a", "1")
    )
    epr = EndpointReference(I_CLOUD, (RoutingInput(message),), NEXT_MSH)
    written = write_endpoint_reference(epr, SOAP_12)
    value, problems = read_endpoint_reference(parse(written.encode()), SOAP_12)
    assert value == epr
    assert [p.severity for p in problems] == [Severity.WARNING]


def test_routing_input_does_not_hide_what_else_is_wrong_with_a_reference() -> None:
    holder = "</wsa:ReferenceParameters>"
    twice = write_endpoint_reference(I_CLOUD_EPR, SOAP_12).replace(
        holder, f"{holder}<wsa:ReferenceParameters/>"
    )
    _, problems = read_endpoint_reference(parse(twice.encode()), SOAP_12)
    assert [p.detail for p in problems] == ["this element is there more than once"]


def test_an_endpoint_reference_can_have_another_name() -> None:
    written = write_endpoint_reference(
        I_CLOUD_EPR, SOAP_12, name="AcksTo", prefix="wsrm", namespace="urn:wsrm", id="x"
    )
    assert parse(written.encode()).tag == "{urn:wsrm}AcksTo"
    assert canonical(parse(written.encode())) == written.encode()
    assert read_endpoint_reference(parse(written.encode()), SOAP_12) == (I_CLOUD_EPR, [])


@pytest.mark.parametrize("version", SoapVersion)
def test_reference_parameters_become_header_blocks_marked_as_such(version: SoapVersion) -> None:
    epr = EndpointReference(
        I_CLOUD, (*I_CLOUD_EPR.reference_parameters, b'<x:P xmlns:x="urn:x" a="1">2</x:P>')
    )
    blocks = write_reference_parameters(epr, version, id_prefix="p")
    assert all(canonical(parse(block.encode())) == block.encode() for block in blocks)
    sent = _envelope(*blocks, version=version).blocks
    assert read_routing_input(sent[0]) == (replace(ROUTING_INPUT, id="p-1"), [])
    assert sent[1].element.get(f"{{{WSA}}}IsReferenceParameter") == "true"
    assert 'wsu:Id="p-2"' in blocks[1]


def test_a_raw_parameter_that_is_not_xml_is_not_written() -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        write_reference_parameters(EndpointReference(NONE, (b"<x",)), SOAP_12)


def test_default_actions_name_the_exchange_and_the_part_in_it() -> None:
    assert default_action(ONE_WAY) == EB3 + "oneWay"
    assert default_action(TWO_WAY) == EB3 + "twoWay.request"
    assert default_action(TWO_WAY, reply=True) == EB3 + "twoWay.reply"
    with pytest.raises(ValueError):
        default_action(ONE_WAY, reply=True)
    with pytest.raises(ValueError):
        default_action("urn:other")


def test_receipts_and_errors_add_their_suffix_to_the_action() -> None:
    assert receipt_action(default_action(ONE_WAY)) == EB3 + "oneWay.receipt"
    assert receipt_action(default_action(TWO_WAY)) == EB3 + "twoWay.request.receipt"
    assert receipt_action(default_action(TWO_WAY, reply=True)) == EB3 + "twoWay.reply.receipt"
    assert error_action(default_action(ONE_WAY)) == EB3 + "oneWay.error"
    assert error_action(default_action(TWO_WAY)) == EB3 + "twoWay.request.error"


def test_errors_go_to_fault_to_rather_than_to_reply_to() -> None:
    assert FULL.errors_to == FULL.fault_to
    assert replace(FULL, fault_to=None).errors_to == FULL.reply_to
    assert Addressing().errors_to is None
