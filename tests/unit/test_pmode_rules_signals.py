"""The rules about receipts, errors and acknowledgments: how they go back, and where to."""

import pytest

from postroad.agreement.breach import Level
from tests.unit.pmode_breaches import EPR, PULLED, PULLS, SIGNED, breach, broken, leg, pulled


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


@pytest.mark.req("P2-2.7.1.4-02")
def test_errors_of_the_sender_have_somewhere_to_go() -> None:
    text = "error_handling: {report: {sender_errors_to: %s}}%s"
    hub = "\nprotocol: {address: 'https://hub.example/msh'}"
    assert broken(leg(text % ("'https://desk.example'", ""))) == []
    assert broken(leg(text % (f"{{addressing: {EPR}}}", hub))) == []
    assert "no hub" in breach(leg(text % (f"{{addressing: {EPR}}}", "")))[1]
    assert "says nothing" in breach(leg(text % ("{addressing: {address: icloud}}", hub)))[1]
