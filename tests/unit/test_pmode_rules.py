"""The rules that a P-Mode keeps by itself: each broken once, told at its line."""

import pytest

from postroad.agreement.breach import Level
from postroad.agreement.loading import Problem, load_pmodes
from postroad.wire.fragments import COMPRESSION_ALGORITHMS
from postroad.wire.names import TEST_ACTION

HEAD = "id: p\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\n"
"""Three lines; what a test adds begins in line 4."""
PULLED = """id: p
initiator: {party: urn:acme, authorization: {username: u, password: p}}
responder: {party: urn:globex}
mep_binding: pull
legs:
  - security: {send_receipt: {reply_pattern: callback}}
"""
TWO_WAY = "mep: twoWay\nmep_binding: sync\n"
SIGNED = "x509: {sign: true, signature: {pins: a.pem}}"
EPR = "{address: icloud, epr: {routing_input: {business_info: {mpc: urn:m}}}}"
PULLS = HEAD.replace("urn:acme", "urn:acme, authorization: {username: u, password: p}")
"""The same, and it is said who may pull."""


def broken(text: str) -> list[Problem]:
    return list(load_pmodes(text, "p.yaml", supported=None).problems)


def breach(text: str, level: Level = Level.ERROR) -> tuple[int, str]:
    problems = broken(text)
    assert len(problems) == 1, [str(problem) for problem in problems]
    assert problems[0].level is level
    return problems[0].line, problems[0].message


def leg(text: str, head: str = HEAD) -> str:
    return head + "legs:\n  - " + text.replace("\n", "\n    ") + "\n"


def pulled(text: str) -> str:
    receipt = "\nsecurity: {send_receipt: {reply_pattern: callback}}"
    return leg(text + receipt, PULLS + "mep_binding: pull\n")


def test_a_pmode_that_breaks_no_rule_has_no_problems() -> None:
    assert broken(HEAD + "legs: [{}]\n") == []


def test_a_party_id_without_a_type_is_a_uri() -> None:
    parties = "  party:\n    - urn:acme\n    - {id: acme, type: t}\n    - acme\n"
    text = "id: p\ninitiator:\n" + parties + "legs: [{}]\n"
    problems = broken(text)
    assert (problems[0].line, problems[0].message) == (
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


def test_a_service_or_agreement_without_a_type_is_a_uri() -> None:
    line, said = breach(leg("business_info:\n  service: orders"))
    assert (line, said) == (
        6,
        "PMode[1].BusinessInfo.Service: 'orders' has no type and is not a URI",
    )
    assert breach(HEAD + "agreement: 2024-17\nlegs: [{}]\n")[0] == 4
    assert broken(leg("business_info: {service: {value: orders, type: t}}")) == []


def test_a_service_in_an_epr_is_held_to_the_same() -> None:
    epr = "addressing: {epr: {routing_input: {business_info: {service: orders}}}}"
    assert "BusinessInfo.Service: 'orders' has no type" in breach(pulled(epr))[1]
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
    assert breach(text + "legs: [{}]\n")[1].endswith("with push the Responder pulls nothing")


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


def test_as_response_does_not_contradict_the_reply_pattern() -> None:
    text = (
        "error_handling:\n  report:\n    receiver_errors: {reply_pattern: %s}\n    as_response: %s"
        "\n    receiver_errors_to: https://acme.example/errors"
    )
    for pattern, as_response, ok in [
        ("callback", "false", True),
        ("response", "true", True),
        ("callback", "true", False),
        ("response", "false", False),
        ("pull", "true", False),
        ("poll", "false", False),
    ]:
        assert (broken(leg(text % (pattern, as_response))) == []) is ok
    assert breach(leg(text % ("callback", "true")))[0] == 8


@pytest.mark.req("P2-6.5-01", "P2-6.5-02")
def test_errors_to_be_pulled_need_a_channel() -> None:
    text = (
        "security: {send_receipt: {}}\n"
        "error_handling:\n  report:\n    receiver_errors: {reply_pattern: pull}%s"
    )
    line, said = breach(leg(text % "", PULLS))
    assert (line, "with the channel to pull errors from" in said) == (8, True)
    routed = text % f"\n    receiver_errors_to: {{addressing: {EPR}}}"
    assert broken(leg(routed, PULLS)) == []
    assert "so nobody may" in breach(leg(routed), Level.WARNING)[1]
    alone = routed.replace("{send_receipt: {}}", "{}")
    assert "errors are pulled only when" in breach(leg(alone, PULLS), Level.WARNING)[1]


@pytest.mark.req("P2-2.7.1.4-07")
def test_acks_through_the_icloud_name_the_intermediary() -> None:
    text = "reliability: {at_least_once: {contract: {acks_to: {addressing: %s%s}}}}"
    assert "AcksTo is the URI of the intermediary" in breach(leg(text % (EPR, "")))[1]
    assert broken(leg(text % (EPR, ", value: https://hub"))) == []


@pytest.mark.req("P2-2.7.1.4-09")
def test_acks_that_go_directly_need_no_acks_to() -> None:
    text = (
        "reliability: {at_least_once: {contract: {acks_to: {addressing: {address: https://a}%s}}}}"
    )
    assert breach(leg(text % ", value: https://b"), Level.WARNING)[0] == 5
    assert broken(leg(text % "")) == []


def test_acks_to_is_a_uri() -> None:
    text = "reliability: {at_least_once: {contract: {acks_to: %s}}}"
    assert "is not a URI" in breach(leg(text % "here"))[1]
    assert broken(leg(text % "https://acme.example/acks")) == []


def test_poll_is_for_ws_reliability() -> None:
    text = "reliability: {protocol: %s, at_least_once: {reply_pattern: Poll}}"
    assert "Poll is limited to WS-Reliability" in breach(leg(text % "wsrm"))[1]
    assert broken(leg(text % "ws-reliability")) == []


def test_acknowledgments_to_be_pulled_have_an_epr_or_are_inferred() -> None:
    text = "reliability: {at_least_once: {reply_pattern: Pull, contract: %s}}"
    bare = "{acks_to: {value: https://b, addressing: {address: icloud}}}"
    assert "no EPR to route them by" in breach(leg(text % bare))[1]
    assert broken(leg(text % "true")) == []
    assert broken(leg(text % f"{{acks_to: {{value: https://b, addressing: {EPR}}}}}")) == []


def test_wsrm_does_not_acknowledge_delivery() -> None:
    text = "reliability: {protocol: wsrm, at_least_once: {contract: {ack_on_delivery: true}}}"
    assert breach(leg(text))[1].endswith("acknowledges receipt, not delivery")


@pytest.mark.req("P2-2.7.1.1-01")
def test_a_routed_address_is_the_icloud() -> None:
    line, said = breach(pulled(f"addressing: {EPR.replace('icloud', 'https://hub.example')}"))
    assert line == 6
    assert said.endswith("the address is not the I-Cloud's")
    assert broken(pulled(f"addressing: {EPR}")) == []


@pytest.mark.req("P2-2.7.1.4-01")
def test_an_initiator_without_routing_input_is_reached_directly() -> None:
    text = "id: p\ninitiator: {party: urn:a, addressing: {address: %s}}\nlegs: [{}]\n"
    assert breach(text % "icloud")[0] == 2
    assert broken(text % "https://acme.example") == []


def test_a_party_that_gets_no_signals_has_no_address_without_routing_input() -> None:
    text = "id: p\nresponder: {party: urn:a, addressing: {address: 'https://acme.example'}}\n"
    line, said = breach(text + "legs: [{}]\n")
    assert line == 2
    assert said.endswith("without EPR it says where signals go, and none go there")


@pytest.mark.req("P2-3.3-05")
@pytest.mark.parametrize(
    ("policy", "delay", "ok"),
    [
        ("never", "PT0S", True),
        ("optional", "PT0S", False),
        ("always", "PT0S", False),
        ("always", "PT1S", True),
    ],
)
def test_a_bundle_needs_time(policy: str, delay: str, ok: bool) -> None:
    listed = "" if policy == "never" else "\n  compatibility: {pmode_list: p}"
    problems = broken(leg(f"bundling:\n  policy: {policy}\n  max_delay: {delay}{listed}"))
    assert [problem.line for problem in problems] == ([] if ok else [7])


def test_a_list_of_pmodes_has_no_effect_without_bundling() -> None:
    problems = broken(leg("bundling: {compatibility: {pmode_list: p}}"))
    assert "no effect with policy never" in problems[0].message


@pytest.mark.req("P2-3.10.1-09")
def test_an_ordering_scope_needs_an_ordering() -> None:
    text = "bundling: {ordering: {scope: [eb3:From]%s}}\nreliability: {in_order: true}"
    assert breach(leg(text % ""))[1].startswith("PMode[1].bundling.ordering.scope: it is only for")
    assert broken(leg(text % ", policy: timestamp")) == []


@pytest.mark.req("P2-3.10.1-10")
def test_correlation_and_scope_are_equal() -> None:
    text = (
        "bundling: {ordering: {scope: 'a, b', policy: timestamp}}\nreliability: {in_order: true, "
    )
    assert breach(leg(text + "correlation: [a, c]}"))[1].endswith("Reliability.Correlation")
    assert broken(leg(text + "correlation: [b, a]}")) == []


@pytest.mark.req("P2-3.10.1-07")
def test_an_ordering_without_in_order_gets_a_warning() -> None:
    line, said = breach(leg("bundling: {ordering: {policy: documentorder}}"), Level.WARNING)
    assert line == 5
    assert "without InOrder delivery" in said


def test_who_must_be_bundled_does_not_wait_for_ever() -> None:
    line, said = breach(leg("bundling: {policy: always, compatibility: {pmode_list: p}}"))
    assert line == 5
    assert "would wait for ever" in said
    assert broken(leg("bundling: {policy: optional, compatibility: {pmode_list: p}}")) == []


@pytest.mark.req("P2-3.10.1-01")
@pytest.mark.parametrize(
    "in_order",
    [
        "reliability: {in_order: true}",
        "reception_awareness: {in_order: conversation}\nsecurity: {send_receipt: true}",
    ],
)
def test_a_secondary_unit_without_order_has_no_in_order(in_order: str) -> None:
    text = "bundling: {policy: optional, compatibility: {pmode_list: p}%s}\n"
    assert "leaves it undefined" in breach(leg(text % "" + in_order))[1]
    assert broken(leg(text % "")) == []
    assert broken(leg(text % ", ordering: {policy: timestamp}" + in_order)) == []


@pytest.mark.parametrize("scope", ["eb3:From[", "ebms:From"])
def test_an_ordering_scope_is_an_xpath(scope: str) -> None:
    text = f"bundling: {{ordering: {{scope: ['{scope}'], policy: timestamp}}}}"
    line, said = breach(leg(text + "\nreliability: {in_order: true}"))
    assert line == 5
    assert f"'{scope}' is no XPath" in said


@pytest.mark.req("P2-3.8-01")
def test_a_synchronous_request_should_not_be_bundled() -> None:
    text = (
        "id: p\nmep: twoWay\nmep_binding: sync\ninitiator: {party: urn:acme}\n"
        "responder: {party: urn:globex}\nlegs:\n"
        "  - protocol: {address: 'https://globex.example/msh'}\n"
        "    bundling: {policy: %s, max_delay: PT1S}\n  - {}\n"
    )
    [problem] = broken(text % "optional")
    assert problem.level is Level.WARNING
    assert "should not wait for others" in problem.message
    assert broken(text % "never") == []


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        pytest.param(
            "error_handling: {report: {as_response: true}}",
            "PMode[1].ErrorHandling.Report.AsResponse",
            marks=pytest.mark.req("P2-4.4.2-17"),
        ),
        (
            "error_handling: {report: {receiver_errors: {reply_pattern: response}}}",
            "PMode[1].ErrorHandling.Report.ReceiverErrors.ReplyPattern",
        ),
        pytest.param(
            "reliability: {at_least_once: {reply_pattern: Response}}",
            "PMode[1].Reliability.AtLeastOnce.ReplyPattern",
            marks=pytest.mark.req("P2-4.4.2-18"),
        ),
        pytest.param(
            "security: {send_receipt: {reply_pattern: response}}",
            "PMode[1].Security.SendReceipt.ReplyPattern",
            marks=pytest.mark.req("P2-4.4.2-19"),
        ),
    ],
)
def test_a_message_that_is_split_is_not_answered_in_the_response(parameter: str, name: str) -> None:
    line, said = breach(leg(f"splitting: true\n{parameter}"))
    assert line == 6
    assert said.startswith(f"{name}: ")
    assert broken(leg(f"splitting: false\n{parameter}")) == []


def test_receipts_of_messages_that_are_split_call_back_and_need_an_address() -> None:
    line, said = breach(leg("splitting: true\nsecurity:\n  send_receipt: true"))
    assert (line, said) == (
        7,
        "PMode[1].Security.SendReceipt: receipts of messages that are split call back, which needs "
        "SendReceipt.ReplyTo",
    )
    receipt = "security: {send_receipt: {reply_to: 'https://acme.example/msh'}}"
    assert broken(leg(f"splitting: true\n{receipt}")) == []


@pytest.mark.req("P2-4.4.2-16")
def test_a_message_that_is_split_does_not_use_sync() -> None:
    line, said = breach(HEAD + TWO_WAY + "legs: [{splitting: true}, {}]\n")
    assert (line, said) == (5, "PMode.MEPbinding: a message that is split cannot use sync")


def test_a_message_is_split_into_something() -> None:
    line, said = breach(leg("splitting:\n  fragment_size: 0 B"))
    assert line == 6
    assert said == "PMode[1].Splitting.FragmentSize: a fragment holds at least one byte"
    assert broken(leg("splitting: {fragment_size: 1 B}")) == []


def test_a_message_is_compressed_before_it_is_split_by_a_coding_of_http() -> None:
    line, said = breach(leg("splitting:\n  compression:\n    algorithm: zstd"))
    assert line == 7
    assert "'zstd' is no compression" in said
    for known in COMPRESSION_ALGORITHMS:
        assert broken(leg(f"splitting: {{compression: {{algorithm: {known}}}}}")) == []


def test_non_repudiation_needs_a_signature() -> None:
    line, _ = breach(leg("security:\n  send_receipt:\n    non_repudiation: true"))
    assert line == 7
    signed = leg(f"security: {{send_receipt: {{non_repudiation: true}}, {SIGNED}}}")
    assert broken(signed) == []


@pytest.mark.req("P2-6.7.1-02")
def test_receipts_to_be_pulled_need_an_epr() -> None:
    text = "security: {send_receipt: {reply_pattern: pull%s}}"
    assert "pull needs SendReceipt.Addressing.EPR" in breach(leg(text % "", PULLS))[1]
    assert broken(leg(text % ", addressing: {address: icloud}", PULLS))
    without = EPR.replace("mpc: urn:m", "action: a")
    assert "with the channel" in breach(leg(text % f", addressing: {without}", PULLS))[1]
    assert broken(leg(text % f", addressing: {EPR}", PULLS)) == []


def test_only_what_the_initiator_pushes_is_answered_by_signals_that_are_pulled() -> None:
    text = PULLED.replace("callback", f"pull, addressing: {EPR}")
    assert "only the Initiator pulls" in breach(text)[1]
    report = (
        f"{{receiver_errors: {{reply_pattern: pull}}, receiver_errors_to: {{addressing: {EPR}}}}}"
    )
    text = f"{PULLED}    error_handling: {{report: {report}}}\n"
    assert "only the Initiator pulls" in breach(text)[1]


def test_only_receipts_of_pulled_messages_ride() -> None:
    rides = "    pulling: {piggyback: true}\n"
    assert broken(PULLED + rides) == []
    without = PULLED.replace("callback", "callback, enabled: false")
    assert any("no receipts" in one.message for one in broken(without + rides))
    elsewhere = PULLED.replace("callback", "callback, reply_to: 'http://else.example/msh'")
    assert "another address" in breach(elsewhere + rides)[1]


def test_pulled_signals_have_the_parameters_of_pulling_that_mean_something() -> None:
    text = (
        f"security: {{send_receipt: {{reply_pattern: pull, addressing: {EPR}}}}}\n"
        "pulling: {interval: PT5S%s}"
    )
    assert broken(leg(text % "", PULLS)) == []
    assert "for each message there is one" in breach(leg(text % ", capacity: 5", PULLS))[1]


def test_an_addressing_of_signals_without_an_epr_says_nothing() -> None:
    bare = "{addressing: {address: 'https://acme.example/msh'}}"
    text = f"security: {{send_receipt: {bare}}}"
    assert "without EPR says nothing" in breach(leg(text))[1]
    text = f"error_handling: {{report: {{receiver_errors_to: {bare}}}}}"
    assert "without EPR says nothing" in breach(leg(text))[1]


def test_the_receipt_of_a_pulled_message_is_no_response() -> None:
    assert breach(PULLED.replace("callback", "response"))[0] == 6
    assert broken(PULLED) == []
    assert broken(PULLED.replace("pull", "push").replace("callback", "response")) == []


def test_reply_to_has_no_effect_on_responses() -> None:
    text = "security: {send_receipt: {reply_pattern: response, reply_to: https://a.example}}"
    assert breach(leg(text), Level.WARNING)[0] == 5


def test_receipts_that_are_called_back_need_an_address() -> None:
    text = "security:\n  send_receipt:\n    enabled: %s\n    reply_pattern: callback%s"
    line, said = breach(leg(text % ("true", "")))
    assert line == 8
    assert said.endswith("callback needs SendReceipt.ReplyTo")
    assert broken(leg(text % ("true", "\n    reply_to: https://acme.example/msh"))) == []
    assert breach(leg(text % ("true", f"\n    addressing: {EPR}")))[0] == 8
    assert broken(leg(text % ("false", ""))) == []


def test_errors_that_are_called_back_without_an_address_get_a_warning() -> None:
    text = "error_handling: {report: {as_response: %s}}"
    line, said = breach(leg(text % "false"), Level.WARNING)
    assert line == 5
    assert "errors have no way back" in said
    errors_to = "false, receiver_errors_to: https://acme.example/errors"
    assert broken(leg(text % "true")) == broken(leg(text % errors_to)) == []
    receipts_to = "security: {send_receipt: {reply_pattern: callback, reply_to: https://a.example}}"
    assert broken(leg(text % "false" + "\n" + receipts_to)) == []


def test_how_to_sign_or_encrypt_needs_whether() -> None:
    assert "Sign is not true" in breach(leg("security: {x509: {signature: {pins: a}}}"))[1]
    encryption = "security: {x509: {encryption: {algorithm: aes128-gcm}}}"
    assert "Encrypt is not true" in breach(leg(encryption))[1]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            "key_transport: rsa-oaep, key_agreement: x25519",
            "KeyAgreement: there is a key transport",
        ),
        ("key_wrap: kw-aes128", "KeyWrap: it belongs to a key agreement"),
        ("key_derivation: hkdf", "KeyDerivation: it belongs to a key agreement"),
        ("key_transport: rsa-oaep-mgf1p, mgf: mgf1sha256", "MGF: it belongs to"),
        ("algorithm: aes128-gcm, minimum_strength: 256", "aes128-gcm has 128 bits, below"),
    ],
)
def test_key_parameters_fit_together(parameters: str, said: str) -> None:
    text = f"security: {{x509: {{encryption: {{encrypt: true, {parameters}}}}}}}"
    assert said in breach(leg(text))[1]


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ("sign: true, signature: {pins: a, algorithm: rsa-sha1}", "rsa-sha1"),
        ("sign: true, signature: {pins: a, hash_function: md5}", "md5"),
        ("encryption: {encrypt: true, algorithm: aes256-cbc}", "aes256-cbc"),
        ("encryption: {encrypt: true, algorithm: tripledes-cbc}", "tripledes-cbc"),
        ("encryption: {encrypt: true, key_transport: rsa-1_5}", "rsa-1_5"),
    ],
)
def test_a_weak_algorithm_is_taken_by_name_with_a_warning(parameters: str, name: str) -> None:
    line, said = breach(leg(f"security: {{x509: {{{parameters}}}}}"), Level.WARNING)
    assert line == 5
    assert f": {name} is weak and taken only because it is named here" in said


def test_attachments_need_wss_1_1() -> None:
    text = "security: {wss_version: 1.0, x509: {sign: {attachment: a}, signature: {pins: a}}}"
    assert "needs WS-Security 1.1" in breach(leg(text))[1]


def test_a_signature_of_anyone_gets_a_warning() -> None:
    assert (
        "says whose signature holds"
        in breach(leg("security: {x509: {sign: true}}"), Level.WARNING)[1]
    )


def test_tokens_that_can_be_stolen_or_replayed_get_a_warning() -> None:
    token = "{username: u, password: p, %s}"
    text = "protocol: {address: http://x.example}\nsecurity: {username_token: " + token + "}"
    assert "can be replayed" in breach(leg(text % "nonce: false"), Level.WARNING)[1]
    assert "over http: in clear" in breach(leg(text % "digest: false"), Level.WARNING)[1]


def test_authorization_needs_credentials() -> None:
    text = PULLED.replace("{send", "{pmode_authorize: true, send")
    assert broken(text) == []
    without = text.replace(", authorization: {username: u, password: p}", "")
    assert any("Authorization to check" in one.message for one in broken(without))


@pytest.mark.parametrize(
    "text",
    ["pulling: {interval: PT5S}", "business_info: {sub_mpc_ext: s}"],
)
def test_what_is_about_pulling_is_for_what_is_pulled(text: str) -> None:
    line, said = breach(leg(text))
    assert (line, said.partition(": ")[2]) == (5, "the messages of this leg are not pulled")
    assert broken(PULLED + f"    {text}\n") == []


def test_authorization_is_for_what_is_pulled() -> None:
    text = PULLED.replace("{send", "{pmode_authorize: true, send").replace("callback", "response")
    assert breach(text.replace("binding: pull", "binding: push"))[0] == 6


def test_nobody_pulls_where_nothing_says_who_may() -> None:
    text = PULLED.replace(", authorization: {username: u, password: p}", "")
    assert "so nobody may" in breach(text, Level.WARNING)[1]
    for more in (f"    security: {{{SIGNED}, send_receipt: true}}\n",):
        signed = text.partition("  - security")[0] + "  - {}\n"
        assert broken(signed.replace("  - {}\n", "  -\n" + more)) == []


def test_what_is_pulled_without_receipts_gets_a_warning() -> None:
    text = PULLED.replace("send_receipt: {reply_pattern: callback}", "send_receipt: false")
    assert "arrived or not" in breach(text, Level.WARNING)[1]


def test_pulled_messages_keep_no_order_of_conversations() -> None:
    text = PULLED + "    reception_awareness: {in_order: conversation}\n"
    assert breach(text)[0] == 7


@pytest.mark.parametrize("extension", ["/s", "s/", "a b", "..", "a/../b", "a?b", "a#b", "a//b"])
def test_a_sub_channel_is_a_path(extension: str) -> None:
    text = PULLED + f"    business_info: {{sub_mpc_ext: '{extension}'}}\n"
    assert "no path that could be added" in breach(text)[1]


@pytest.mark.req("P2-2.5.4-06")
@pytest.mark.parametrize("end", ["?orders", "#orders"])
def test_a_channel_that_does_not_end_with_its_path_has_no_sub_channels(end: str) -> None:
    info = f"business_info: {{mpc: 'http://buyer.example/mpc{end}', sub_mpc_ext: north}}"
    assert "has no sub-channels" in breach(f"{PULLED}    {info}\n")[1]


def test_a_password_in_the_clear_goes_over_tls() -> None:
    text = PULLED + "    pulling: {digest: false}\n    protocol: {address: %s://x.example}\n"
    assert "over http: in clear" in breach(text % "http", Level.WARNING)[1]
    assert broken(text % "https") == []


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
    lines = sorted(problem.line for problem in load_pmodes(text, "x.yaml").errors)
    assert lines == [5, 8, 9]


@pytest.mark.req("P2-2.7.1.4-02")
def test_routing_of_pull_requests_is_for_what_is_pulled_between_known_parties() -> None:
    text = f"addressing: {EPR}"
    assert breach(leg(text))[1].endswith("nothing of this leg is pulled")
    assert "could be routed by" in breach(pulled("addressing: {action: 'urn:x'}"))[1]
    unknown = PULLS.replace("responder: {party: urn:globex}", "responder: {role: x}")
    found = [one.message for one in broken(leg(text, unknown + "mep_binding: pull\n"))]
    assert any("parties that are known" in one for one in found)


@pytest.mark.req("P2-2.7.1.4-02")
def test_errors_of_the_sender_have_somewhere_to_go() -> None:
    text = "error_handling: {report: {sender_errors_to: %s}}%s"
    hub = "\nprotocol: {address: 'https://hub.example/msh'}"
    assert broken(leg(text % ("'https://desk.example'", ""))) == []
    assert broken(leg(text % (f"{{addressing: {EPR}}}", hub))) == []
    assert "no hub" in breach(leg(text % (f"{{addressing: {EPR}}}", "")))[1]
    assert "says nothing" in breach(leg(text % ("{addressing: {address: icloud}}", hub)))[1]
