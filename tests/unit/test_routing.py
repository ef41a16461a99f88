"""The routing function: which rule a message matches, and what that costs."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.agreement.routes import Route
from postroad.agreement.routing import RoutingSource, RoutingTable
from postroad.msh.forwarding import read_routable, route_report
from postroad.wire.ebms3 import AgreementRef, PartInfo, Party, PartyId, Property, PullRequest
from postroad.wire.multihop import RoutingUserMessage, routing_user_message, write_routing_input
from postroad.wire.names import DEFAULT_MPC
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from tests.changing import replace
from tests.unit.routed import ORDER, ROUTING_INPUT

ROUTED = routing_user_message(ORDER)


def rule(name: str = "r", to: str = "http://next.example/msh", **match: Any) -> Route:
    return Route.model_validate({"id": name, "match": match, "to": {"push": to}})


def found(*rules: Route, of: RoutingUserMessage | PullRequest = ROUTED) -> str | None:
    taken = RoutingTable(rules).route(RoutingSource(of))
    return taken.id if taken is not None else None


BUYER: dict[str, Any] = {"id": "123456789", "type": "urn:duns"}
SELLER: dict[str, Any] = {"id": "192837465", "type": "urn:duns"}


@pytest.mark.req("P2-2.5.5-01", "P2-2.5.5-02")
@pytest.mark.parametrize(
    ("fits", "differs"),
    [
        pytest.param(
            {"mpc": "urn:mpc:abc123"}, {"mpc": "urn:mpc:abc"}, marks=pytest.mark.req("P2-2.5.5-03")
        ),
        pytest.param(
            {"from_party": BUYER},
            {"from_party": "123456789"},
            marks=pytest.mark.req("P2-2.5.5-04"),
        ),
        ({"to_party": SELLER}, {"to_party": BUYER}),
        ({"to_party": {"type": "urn:duns"}}, {"to_party": {"type": "urn:gln"}}),
        ({"from_party": {"id": "b", "type": "urn:gln"}}, {"from_party": {"id": "b"}}),
        ({"from_role": "Buyer"}, {"from_role": "Seller"}),
        ({"to_role": "Seller"}, {"to_role": "Buyer"}),
        pytest.param(
            {"service": {"value": "Sales", "type": "urn:s"}},
            {"service": "Sales"},
            marks=pytest.mark.req("P2-2.5.5-05"),
        ),
        ({"action": "Process"}, {"action": "process"}),
        ({"agreement": "urn:agreement"}, {"agreement": {"value": "urn:agreement", "type": "t"}}),
        ({"conversation_id": "c1"}, {"conversation_id": "c2"}),
        pytest.param(
            {"properties": {"originalSender": "a & b"}},
            {"properties": {"originalSender": "a"}},
            marks=pytest.mark.req("P2-2.5.5-06"),
        ),
        pytest.param(
            {"part_properties": {"MimeType": ["text/plain", "text/xml"]}},
            {"part_properties": {"MimeType": "text/plain"}},
            marks=pytest.mark.req("P2-2.5.5-07"),
        ),
        (
            {"action": ["Other", "Process"], "to_role": "Seller"},
            {"action": "Process", "mpc": "urn:x"},
        ),
        ({}, {"pmode": "any"}),
    ],
)
def test_a_rule_matches_what_has_all_that_it_asks_for(
    fits: dict[str, Any], differs: dict[str, Any]
) -> None:
    assert found(rule(**fits)) == "r"
    assert found(rule(**differs)) is None


def test_the_first_rule_in_the_file_decides() -> None:
    narrow, wide = rule("narrow", action="Process"), rule("wide")
    assert found(narrow, wide) == "narrow"
    assert found(wide, narrow) == "wide"


def test_of_several_ids_of_a_party_one_is_enough() -> None:
    party = Party((PartyId("x"), PartyId("y")), "Seller")
    assert found(rule(to_party="y"), of=replace(ROUTED, to_party=party)) == "r"


@pytest.mark.parametrize(
    ("mpc", "below"),
    [
        ("http://a.example/mpc", True),
        ("http://a.example/mpc/x", True),
        ("http://a.example/mpc/x/y", True),
        ("http://a.example/mpc2", False),
        ("http://b.example/mpc/x", False),
        ("http://a.example/", False),
    ],
)
def test_a_channel_with_all_below_it(mpc: str, below: bool) -> None:
    message = replace(ROUTED, mpc=mpc)
    asked = rule(mpc={"value": "http://a.example/mpc", "below": True})
    assert (found(asked, of=message) == "r") is below


def test_a_message_without_mpc_is_in_the_default_channel() -> None:
    assert found(rule(mpc=DEFAULT_MPC), of=replace(ROUTED, mpc=None)) == "r"


@pytest.mark.req("P2-2.5.5-14", "P2-2.5.5-17")
def test_a_pull_request_is_routed_by_its_channel_and_by_nothing_else() -> None:
    asking = PullRequest("urn:mpc:one")
    assert found(rule("a", action="Process"), rule("b", mpc="urn:mpc:one"), of=asking) == "b"
    assert found(rule(to_party=SELLER), of=asking) is None


def _envelope(*blocks: str, body: str = "") -> bytes:
    return write_envelope(SoapVersion.SOAP_12, blocks, write_body(SoapVersion.SOAP_12, body))


INPUT = write_routing_input(ROUTING_INPUT, SoapVersion.SOAP_12)


@pytest.mark.req("P2-2.5.5-08", "P2-2.5.5-15")
def test_a_message_that_is_none_of_ebms_is_routed_by_its_routing_input_and_body() -> None:
    body = '<c:CreateSequence xmlns:c="urn:c"/>'
    table = RoutingTable(
        [
            rule("other", body="TerminateSequence"),
            rule("here", body="{urn:c}CreateSequence", to_party=SELLER),
        ]
    )
    report = route_report(read_routable(_envelope(INPUT, body=body)), table)
    assert (report.rule, report.routed_by) == ("here", "RoutingInput")


def test_xpath_says_what_nothing_else_can() -> None:
    table = RoutingTable(
        [
            rule("no", xpath="//eb:UserMessage[@mpc='urn:other']"),
            rule("yes", action="Process", xpath=["count(/S12:Envelope/S12:Header/*) = 1", "//o:x"]),
        ],
        {"o": "urn:o"},
    )
    matches = _envelope(INPUT, body='<x xmlns="urn:o"/>')
    assert route_report(read_routable(matches), table).rule == "yes"
    assert route_report(read_routable(_envelope(INPUT)), table).rule is None


def test_the_explanation_says_why_what_else_and_what_nearly() -> None:
    table = RoutingTable(
        [
            rule("far", action="x", to_role="y", service="z"),
            rule("near", action="Order", to_party=SELLER),
            rule("decides", to_party=SELLER, action=["Process", "Other"]),
            rule("later"),
        ]
    )
    report = route_report(read_routable(_envelope(INPUT)), table)
    assert report.rule == "decides"
    assert set(report.because) == {
        ("to_party", "urn:duns::192837465"),
        ("action", "Process"),
    }
    assert report.also == ("later",)
    assert [one.rule for one in report.nearly] == ["near", "far"]
    assert report.nearly[0].differences == ("action is Process, not Order",)


@pytest.mark.req("P2-2.5.6-12")
def test_without_a_rule_the_error_is_a_routing_failure_and_the_nearest_is_told() -> None:
    table = RoutingTable([rule("orders", action="Order", to_party=SELLER)])
    report = route_report(read_routable(_envelope(INPUT)), table)
    assert report.rule is None
    assert report.error is not None
    assert report.error.startswith("EBMS:0020")
    assert report.nearly[0].differences == ("action is Process, not Order",)


_VALUES = st.sampled_from(["a", "b", "c"])


@st.composite
def _rules(draw: st.DrawFn) -> list[Route]:
    made = []
    for number in range(draw(st.integers(1, 12))):
        match: dict[str, Any] = {}
        for name in draw(st.sets(st.sampled_from(["action", "from_role", "to_party", "mpc"]))):
            match[name] = draw(st.lists(_VALUES, min_size=1, max_size=2, unique=True))
        if "mpc" in match:
            match["mpc"] = [
                {"value": f"urn:m/{one}", "below": draw(st.booleans())} for one in match["mpc"]
            ]
        if draw(st.booleans()):
            match["properties"] = {draw(_VALUES): draw(_VALUES)}
        made.append(rule(str(number), **match))
    return made


@settings(max_examples=150, deadline=None)
@given(_rules(), st.tuples(*[_VALUES] * 6), st.booleans())
def test_the_index_finds_what_trying_one_after_the_other_finds(
    rules: list[Route], said: tuple[str, ...], deep: bool
) -> None:
    action, role, party, mpc, name, value = said
    info = replace(ROUTED.collaboration_info, action=action, agreement_ref=AgreementRef("x"))
    message = replace(
        ROUTED,
        collaboration_info=info,
        from_party=replace(ROUTED.from_party, role=role),
        to_party=Party((PartyId(party),), "Seller"),
        mpc=f"urn:m/{mpc}/sub" if deep else f"urn:m/{mpc}",
        properties=(Property(name, value),),
        part_infos=(PartInfo(None),),
    )
    one_by_one = next((one.id for one in rules if found(one, of=message)), None)
    assert found(*rules, of=message) == one_by_one


def _steps(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_ten_thousand_rules_take_no_more_steps_than_ten() -> None:
    def table(size: int) -> RoutingTable:
        return RoutingTable(
            [
                rule(str(number), to_party=f"urn:p{number}", action=["a", "Process"])
                for number in range(size - 1)
            ]
            + [rule("last", to_party=SELLER, action="Process")]
        )

    source = RoutingSource(ROUTED)
    few, many = table(10), table(10_000)
    assert many.route(source) is not None
    assert _steps(lambda: many.route(source)) == _steps(lambda: few.route(source))
