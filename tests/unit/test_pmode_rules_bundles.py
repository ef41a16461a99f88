"""The rules about bundles, order and fragments."""

import pytest

from postroad.agreement.breach import Level
from postroad.wire.fragments import COMPRESSION_ALGORITHMS
from tests.unit.pmode_breaches import HEAD, TWO_WAY, breach, broken, leg


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
