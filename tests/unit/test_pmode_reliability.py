"""What of reliable messaging can be agreed on here, and what is refused with a sentence."""

from datetime import timedelta

import pytest

from postroad.agreement.loading import Problem, load_pmodes
from postroad.agreement.pmode import PMode
from postroad.agreement.reliable import reliable_of
from postroad.agreement.retrying import retry_of
from postroad.wire.names import DEFAULT_MPC, WSRM

HEAD = "id: p\ninitiator: {party: urn:acme, authorization: {username: u, password: p}}\n"
PULL = "mep_binding: pull\n"
WSR_LEG = "reliability: {protocol: ws-reliability, at_least_once: {contract: true%s}%s}"
BUNDLED = "\n    bundling: {policy: optional, max_delay: PT1S}"
WSRM_LEG = "reliability: {protocol: wsrm, at_least_once: {contract: true%s}%s}"


def told(leg: str, more: str = "") -> list[Problem]:
    text = f"{HEAD}responder: {{party: urn:globex}}\n{more}legs:\n  - {leg}\n"
    return [one for one in load_pmodes(text, "p.yaml").problems if one.level.value == "error"]


def only(leg: str, more: str = "") -> str:
    problems = told(leg, more)
    assert len(problems) == 1, [str(one) for one in problems]
    return str(problems[0])


def agreed(text: str) -> PMode:
    [found] = load_pmodes(
        f"{HEAD}responder: {{party: urn:globex}}\nlegs:\n  - {text}\n", "p.yaml", supported=None
    ).pmodes
    return found


@pytest.mark.req("P2-6.6.1-01")
def test_a_contract_that_can_be_kept_has_no_problem() -> None:
    assert told(WSRM_LEG % ("", "")) == []
    found = reliable_of(agreed(WSRM_LEG % ("", "")).legs[0])
    assert found is not None
    assert found.protocol == WSRM


@pytest.mark.parametrize(
    ("leg", "said"),
    [
        ("reliability: {at_most_once: true}", "names no protocol"),
        ("reliability: {protocol: wsrm, in_order: true}", "nothing is agreed on"),
        (WSR_LEG % ("", ", in_order: true"), "a group of its own, without order"),
        (WSR_LEG % ("", ", correlation: eb3:MessageInfo"), "a group of its own"),
        (WSR_LEG % (", reply_pattern: Pull", ""), "neither messages nor acknowledgments"),
        (WSRM_LEG % (", reply_pattern: Callback", ""), "nothing says where"),
        (WSRM_LEG % ("", ", correlation: 'a['"), "is no XPath"),
        (WSR_LEG % ("", "") + "\n    splitting: true", "split messages are not sent with it"),
        (WSRM_LEG % ("", "") + "\n    splitting: true", "acknowledgments of fragments are not"),
        (WSRM_LEG % ("", ", in_order: true") + "\n    splitting: true", "in no order"),
        (WSR_LEG % ("", "") + BUNDLED, "bundles are not sent with it"),
        (WSRM_LEG % ("", "") + BUNDLED, "errors about units of a bundle in a sequence"),
        (
            WSRM_LEG % (", reply_pattern: Callback", "")
            + BUNDLED
            + "\n    security: {send_receipt: true}",
            "receipts of units of a bundle in a sequence",
        ),
        (
            WSRM_LEG % ("", "")
            + "\n    security: {send_receipt: true}\n    reception_awareness: true",
            "reception_awareness sends messages again too",
        ),
        (
            WSRM_LEG % ("", "") + "\n    security: {send_receipt: true}",
            "would both be the response",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(leg: str, said: str) -> None:
    assert any(said in str(one) for one in told(leg))


@pytest.mark.req("P2-3.2.2-08")
def test_bundles_go_in_sequences_where_errors_about_their_units_call_back() -> None:
    report = "\n    error_handling: {report: {receiver_errors_to: 'https://b.example'%s}}"
    leg = WSRM_LEG % ("", "") + BUNDLED
    assert told(leg + report % ", as_response: false") == []
    assert "bundles that are pulled" in only(leg, PULL)


def test_units_of_a_sequence_are_bundled_with_primaries_of_a_sequence_only() -> None:
    other = "\n---\nid: q\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\nlegs:\n"
    other += "  - bundling: {policy: optional, max_delay: PT1S}\n"
    report = "{report: {receiver_errors_to: 'https://b.example', as_response: false}}"
    leg = WSRM_LEG % ("", "") + BUNDLED.replace("}", ", compatibility: {pmode_list: [q]}}")
    leg += f"\n    error_handling: {report}" + other
    assert "has reliable messaging by a protocol, and 'q' has not" in only(leg)


def test_messages_may_be_pulled_in_sequences() -> None:
    assert told(WSRM_LEG % ("", ""), PULL) == []


def test_acknowledgments_of_pulled_messages_are_not_pulled() -> None:
    leg = WSRM_LEG % (", reply_pattern: Pull", "")
    assert "with its next request" in only(leg, PULL)


def test_without_reliable_pull_acknowledgments_call_back() -> None:
    leg = (
        "reliability: {protocol: wsrm, at_least_once: {contract: {enabled: true, "
        "reliable_pull: false}}}"
    )
    assert "have to call back" in only(leg, PULL)


def test_late_replies_are_not_pulled_in_sequences() -> None:
    binding = "mep: twoWay\nmep_binding: {value: pushAndPush, alternate: pushAndPull}\n"
    legs = WSRM_LEG % ("", "") + "\n  - " + WSRM_LEG % ("", "")
    assert any("late replies" in str(one) for one in told(legs, binding))


def test_pull_requests_are_reliable_unless_somebody_says_no() -> None:
    contract = agreed(WSRM_LEG % ("", "")).legs[0].reliability.at_least_once.contract  # type: ignore[union-attr]
    assert contract is not None
    assert contract.reliable_pull is True


@pytest.mark.req("P2-6.6.3-01", "P2-2.6.2-10")
def test_the_channel_of_acknowledgements_is_named_or_inferred() -> None:
    pulled = WSRM_LEG % (", reply_pattern: Pull", "")
    assert reliable_of(agreed(pulled).legs[0]).channel == f"{DEFAULT_MPC}.response"  # type: ignore[union-attr]
    own = pulled + "\n    business_info: {mpc: urn:m}"
    assert reliable_of(agreed(own).legs[0]).channel == "urn:m.response"  # type: ignore[union-attr]
    epr = "{address: icloud, epr: {routing_input: {business_info: {mpc: urn:acks}}}}"
    contract = f"{{enabled: true, acks_to: {{value: https://h.example, addressing: {epr}}}}}"
    named = (
        f"reliability: {{protocol: wsrm, at_least_once: {{contract: {contract},"
        " reply_pattern: Pull}}"
    )
    assert reliable_of(agreed(named).legs[0]).channel == "urn:acks"  # type: ignore[union-attr]


def test_retries_have_their_own_parameters() -> None:
    policy = retry_of(agreed(WSRM_LEG % ("", ", retry: {max_retries: 2, period: PT7S}")).legs[0])
    assert policy is not None
    assert (policy.retries, policy.interval) == (2, timedelta(seconds=7))


def test_paths_of_correlation_start_at_the_message() -> None:
    paths = "eb3:UserMessage/eb3:CollaborationInfo/eb3:Service, ebint:UserMessage/eb3:PartyInfo"
    found = reliable_of(agreed(WSRM_LEG % ("", f", correlation: '{paths}'")).legs[0])
    assert found is not None
    assert found.correlation == ("eb3:CollaborationInfo/eb3:Service", "eb3:PartyInfo")


@pytest.mark.req("P2-6.6.1-02")
@pytest.mark.parametrize("pattern", ["", ", reply_pattern: Poll"])
def test_ws_reliability_is_a_protocol_for_messages_that_are_pushed(pattern: str) -> None:
    assert told(WSR_LEG % (pattern, "")) == []


def test_with_ws_reliability_nothing_is_pulled() -> None:
    leg = WSR_LEG % ("", "")
    assert any("messages nor acknowledgments are pulled" in str(one) for one in told(leg, PULL))


def test_a_secure_conversation_is_refused_with_what_to_do() -> None:
    [problem] = told("security: {conversation: true}")
    assert "sign and encrypt with security.x509" in str(problem)


def test_groups_begin_and_end_where_the_pmode_says() -> None:
    found = reliable_of(
        agreed(WSRM_LEG % ("", ", start_group: true, terminate_group: true")).legs[0]
    )
    assert found is not None
    assert (found.starts_group, found.ends_group) == (True, True)
    assert told(WSR_LEG % ("", ", start_group: true, terminate_group: true")) == []


@pytest.mark.parametrize("key", ["start_group", "terminate_group"])
def test_with_ws_reliability_each_message_is_a_group(key: str) -> None:
    assert "a group of its own" in only(WSR_LEG % ("", f", {key}: false"))


@pytest.mark.parametrize("key", ["start_group", "terminate_group"])
def test_messages_that_are_pulled_share_the_sequence_of_their_channel(key: str) -> None:
    assert "pulled from a channel share a sequence" in only(WSRM_LEG % ("", f", {key}: true"), PULL)


def test_no_response_is_acknowledged() -> None:
    leg = "reliability: {protocol: wsrm, at_least_once: {contract: {ack_response: %s}}}"
    assert told(leg % "false") == []
    assert "PMode[1].Reliability.AtLeastOnce.Contract.AckResponse: only Two-Way" in only(
        leg % "true"
    )
