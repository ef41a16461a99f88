"""The rules that a P-Mode keeps by itself: parties, exchanges, addresses. Each is broken once."""

import pytest

from postroad.agreement.breach import Level
from postroad.agreement.loading import load_pmodes
from postroad.wire.names import TEST_ACTION
from tests.unit.pmode_breaches import HEAD, PULLED, SIGNED, TWO_WAY, breach, broken, leg, pulled


def test_a_pmode_that_breaks_no_rule_has_no_problems() -> None:
    assert broken(HEAD + "legs: [{}]\n") == []


def test_a_party_id_that_has_no_type_and_is_not_a_uri_is_a_warning() -> None:
    parties = "  party:\n    - urn:acme\n    - {id: acme, type: t}\n    - acme\n"
    text = "id: p\ninitiator:\n" + parties + "legs: [{}]\n"
    problem = broken(text)[0]
    assert problem.level is Level.WARNING
    assert (problem.line, problem.message) == (
        6,
        "PMode.Initiator.Party[3]: 'acme' has no type and is not a URI",
    )


def test_the_ids_of_one_party_have_different_types() -> None:
    text = "id: p\ninitiator: {party: [urn:acme, urn:other]}\nlegs: [{}]\n"
    line, said = breach(text)
    assert (line, said) == (
        2,
        "PMode.Initiator.Party[2]: 'urn:other' has the same type as 'urn:acme'",
    )


def test_a_service_or_agreement_that_has_no_type_and_is_not_a_uri_is_a_warning() -> None:
    line, said = breach(leg("business_info:\n  service: eu_ics2_c2t"), Level.WARNING)
    assert (line, said) == (
        6,
        "PMode[1].BusinessInfo.Service: 'eu_ics2_c2t' has no type and is not a URI",
    )
    for agreement in ("EU-ICS2-TI-V1.0", "EDELIVERY-1110"):
        assert breach(HEAD + f"agreement: {agreement}\nlegs: [{{}}]\n", Level.WARNING)[0] == 4
    assert broken(leg("business_info: {service: {value: orders, type: t}}")) == []


def test_in_ebxml_an_untyped_service_that_is_not_a_uri_is_an_error() -> None:
    text = "business_info: {service: orders, action: a}\nebxml: {version: '2.0'}"
    assert "'orders' has no type and is not a URI" in breach(leg(text, HEAD + "agreement: c\n"))[1]


def test_a_service_in_an_epr_is_held_to_the_same() -> None:
    epr = "addressing: {epr: {routing_input: {business_info: {service: orders}}}}"
    assert "BusinessInfo.Service: 'orders' has no type" in breach(pulled(epr), Level.WARNING)[1]
    epr = "addressing: {epr: {routing_input: {initiator: {party: acme}, responder: {party: b}}}}"
    assert len(broken(pulled(epr))) == 2


def test_a_pmode_for_anyone_gets_a_warning() -> None:
    assert breach("id: p\nlegs: [{}]\n", Level.WARNING)[0] == 1


@pytest.mark.parametrize("binding", ["sync", "pushAndPush", "pushAndPull", "pullAndPush"])
def test_two_way_bindings_need_two_way(binding: str) -> None:
    line, said = breach(HEAD + f"mep_binding: {binding}\nlegs: [{{}}]\n")
    assert (line, said) == (4, f"PMode.MEPbinding: {binding} does not bind oneWay")


@pytest.mark.parametrize("binding", ["push", "pull"])
def test_one_way_bindings_need_one_way(binding: str) -> None:
    text = HEAD + f"mep: twoWay\nmep_binding: {binding}\nlegs: [{{}}, {{}}]\n"
    assert breach(text)[0] == 5


def test_two_way_needs_a_binding() -> None:
    assert breach(HEAD + "mep: twoWay\nlegs: [{}, {}]\n")[0] == 4


def test_legs_are_as_many_as_messages() -> None:
    assert breach(HEAD + TWO_WAY + "legs: [{}]\n") == (6, "PMode[]: twoWay has 2 legs, not 1")
    assert breach(HEAD + "legs: [{}, {}]\n") == (4, "PMode[]: oneWay has 1 leg, not 2")


@pytest.mark.req("P2-6.3.2-02")
@pytest.mark.parametrize(
    ("mep", "binding", "ok"),
    [
        ("oneWay", "push", True),
        ("oneWay", "pull", False),
        ("twoWay", "sync", False),
        ("twoWay", "pushAndPush", True),
        ("twoWay", "pullAndPull", False),
    ],
)
def test_pipelining_is_for_what_is_pushed(mep: str, binding: str, ok: bool) -> None:
    legs = "legs: [{}]\n" if mep == "oneWay" else "legs: [{}, {}]\n"
    text = f"mep: {mep}\nmep_binding:\n  value: {binding}\n  pipelining: true\n"
    problems = [one for one in broken(HEAD + text + legs) if "pipelined" in one.message]
    assert (problems == []) is ok
    assert all(problem.line == 7 for problem in problems)


def test_ebxml_is_not_pipelined() -> None:
    text = "mep_binding: {value: push, pipelining: true}\nlegs: [{ebxml: {version: 2.0}}]\n"
    assert any("ebXML messages are not pipelined" in one.message for one in broken(HEAD + text))


@pytest.mark.req("P2-5.2-01")
def test_an_alternate_binding_is_for_two_way_and_changes_the_response_only() -> None:
    one_way = HEAD + "mep_binding: {value: push, alternate: pull}\nlegs: [{}]\n"
    assert breach(one_way)[1].endswith("for two-way exchanges only")
    for alternate, ok in [
        ("pushAndPull", True),
        ("pushAndPush", True),
        ("sync", False),
        ("pullAndPush", False),
        ("pull", False),
    ]:
        text = f"mep: twoWay\nmep_binding:\n  value: sync\n  alternate: {alternate}\n"
        problems = [
            one for one in broken(HEAD + text + "legs: [{}, {}]\n") if one.level is Level.ERROR
        ]
        assert (problems == []) is ok
        assert all(problem.line == 7 for problem in problems)
    twice = "mep: twoWay\nmep_binding: {value: sync, alternate: [pushAndPull, pushAndPush]}\n"
    assert broken(HEAD + twice + "legs: [{}, {}]\n")


def test_an_alternate_mpc_goes_with_an_alternate_binding() -> None:
    assert breach(leg("business_info: {mpc_alternate: urn:m}"))[0] == 5
    binding = "mep: twoWay\nmep_binding: {value: sync, alternate: pushAndPull}\n"
    legs = "legs: [{}, {business_info: {mpc_alternate: urn:m}}]\n"
    assert not any(one.level is Level.ERROR for one in broken(HEAD + binding + legs))


ASKED = """id: p
initiator: {party: urn:acme, authorization: {username: u, password: p}}
responder: {party: urn:globex}
mep: twoWay
"""
"""Four lines; what a test adds begins in line 5."""


@pytest.mark.parametrize(
    ("binding", "legs", "line", "said"),
    [
        ("pushAndPush", "[{}, {}]", 6, "the replies have no address"),
        ("{value: sync, alternate: pushAndPush}", "[{}, {}]", 6, "the replies have no address"),
        ("sync", "[{}, {protocol: {address: 'http://a.example'}}]", 6, "it has no effect"),
        (
            "{value: pushAndPush, alternate: pushAndPull}",
            "[{}, {protocol: {address: 'http://a.example'}, "
            "security: {send_receipt: {reply_pattern: callback}}}]",
            5,
            "no response is waited for",
        ),
        ("pushAndPull", "[{}, {}]", 6, "without receipts a message is gone"),
    ],
)
def test_what_a_two_way_exchange_lacks_is_told(
    binding: str, legs: str, line: int, said: str
) -> None:
    text = f"{ASKED}mep_binding: {binding}\nlegs: {legs}\n"
    found = [(one.line, one.message) for one in broken(text) if one.level is not Level.ERROR]
    assert [place for place, message in found if said in message] == [line]


def test_only_a_responder_that_pulls_has_credentials() -> None:
    text = HEAD.replace(
        "{party: urn:globex}", "{party: urn:globex, authorization: {username: u, password: p}}"
    )
    _, said = breach(text + "legs: [{}]\n", Level.WARNING)
    assert said.endswith("with push the Responder pulls nothing, unless it is from a hub")
    collected = text + "mep_binding: pull\nlegs: [{}]\n"
    (wrong,) = [one for one in broken(collected) if one.level is Level.ERROR]
    assert wrong.message.endswith("with pull the Responder pulls nothing")


def test_a_receipt_that_rides_in_a_reply_is_signed_with_it() -> None:
    request = f"{{security: {{{SIGNED}, send_receipt: true}}}}"
    line, said = breach(HEAD + TWO_WAY + f"legs: [{request}, {{}}]\n")
    assert (line, said.endswith("would ride in a reply that is not signed")) == (6, True)
    assert broken(HEAD + TWO_WAY + f"legs: [{request}, {{security: {{{SIGNED}}}}}]\n") == []


def test_requests_have_no_alternate_channel() -> None:
    two_way = "mep: twoWay\nmep_binding: {value: sync, alternate: pushAndPush}\n"
    request = "{business_info: {mpc_alternate: 'http://a.example/late'}}"
    reply = "{protocol: {address: 'http://b.example'}}"
    said = breach(HEAD + two_way + f"legs: [{request}, {reply}]\n")[1]
    assert "requests do not go by the alternate binding" in said


def test_a_request_that_waits_for_its_reply_is_not_held_until_it_is_answered() -> None:
    aware = "reception_awareness: {strict_ack: true}, security: {send_receipt: true}"
    said = breach(HEAD + TWO_WAY + f"legs: [{{{aware}}}, {{}}]\n")[1]
    assert "could not answer what it gets only after the response" in said


def test_replies_that_are_responses_have_no_order() -> None:
    receipt = "security: {send_receipt: {reply_pattern: callback}}"
    aware = f"{{reception_awareness: {{in_order: conversation}}, {receipt}}}"
    said = breach(HEAD + TWO_WAY + f"legs: [{{}}, {aware}]\n")[1]
    assert "each reply is the response to its own request" in said


def test_the_receipt_for_a_response_is_called_back() -> None:
    reply = "{security: {send_receipt: {reply_pattern: response}}}"
    said = breach(HEAD + TWO_WAY + f"legs: [{{}}, {reply}]\n")[1]
    assert "the message is a response itself" in said
    assert broken(HEAD + TWO_WAY + f"legs: [{{}}, {reply.replace('response', 'callback')}]\n") == []


@pytest.mark.parametrize(
    "place",
    [
        "protocol: {address: mailto:msh@globex.example}",
        "security: {send_receipt: {reply_pattern: callback, reply_to: mailto:msh@acme.example}}",
        "error_handling: {report: {receiver_errors_to: mailto:msh@acme.example}}",
    ],
)
def test_only_ebxml_messages_go_by_mail(place: str) -> None:
    assert breach(leg(place))[1].endswith("only ebXML messages go by mail")


def test_an_address_needs_a_transport() -> None:
    assert breach(leg("protocol: {address: ftp://x}"))[1].endswith("no transport for ftp:")


def test_an_address_that_ends_within_an_ip_address_is_no_uri() -> None:
    assert "is not a URI" in breach(leg('protocol: {address: "http://["}'))[1]


@pytest.mark.req("P2-6.4.1-03")
def test_a_protocol_version_needs_a_protocol() -> None:
    line, said = breach(leg("protocol:\n  security:\n    protocol_version: 1.2"))
    assert line == 7
    assert said.startswith("PMode[1].Protocol.Security.ProtocolVersion: no security protocol")
    assert broken(leg("protocol: {security: {protocol: TLS, protocol_version: 1.2}}")) == []


def test_tls_does_not_go_with_http() -> None:
    assert breach(leg("protocol: {address: http://x.example, security: {protocol: TLS}}"))[0] == 5


@pytest.mark.req("P2-6.4.3-05")
def test_restart_needs_push() -> None:
    text = PULLED + "    protocol: {restart: true}\n"
    line, said = breach(text)
    assert (line, said) == (
        7,
        "PMode[1].Protocol.Restart: as2-restart needs the binding push, not pull",
    )
    assert broken(text.replace("true", "false")) == []


def test_restart_needs_a_signature() -> None:
    line, said = breach(leg("protocol: {restart: true}"))
    assert (line, said) == (
        5,
        "PMode[1].Protocol.Restart: a broken upload goes on only where messages are signed",
    )
    signed = f"protocol: {{restart: true}}\nsecurity: {{{SIGNED}}}"
    assert broken(leg(signed)) == []
    assert broken(leg("protocol: {restart: false}")) == []


def test_the_test_action_needs_the_test_service() -> None:
    assert breach(leg(f"business_info: {{action: {TEST_ACTION}}}"))[0] == 5


def test_a_property_or_payload_is_described_once() -> None:
    assert breach(leg("business_info:\n  properties:\n    - {name: a}\n    - {name: a}"))[0] == 8
    assert breach(leg("business_info: {payload_profile: {payloads: [{name: a}, {name: a}]}}"))
    assert broken(leg("business_info: {payload_profile: {payloads: [{}, {}]}}")) == []


def test_a_wrong_value_does_not_hide_what_is_wrong_elsewhere() -> None:
    text = """
id: x
mep: oneWay
mep_binding: push
initiator: {party: acme, role: Buyer}
responder: {role: Seller}
legs:
  - protocol: {soap_version: 1.3}
    business_info: {service: Sales, action: A}
"""
    lines = sorted(problem.line for problem in load_pmodes(text, "x.yaml").problems)
    assert lines == [5, 8, 9]
