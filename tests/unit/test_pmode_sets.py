"""The rules that P-Modes keep together, within a file and across files."""

import pytest

from postroad.agreement.breach import Level
from postroad.agreement.loading import LoadResult, load_sources

INIT = """\
id: orders.init
mep: oneWay
mep_binding: push
initiator: {party: urn:acme, role: Buyer, authorization: {username: a, password: secret}}
responder: {party: urn:globex, role: Seller}
legs:
  - protocol: {address: https://hub.example/a, soap_version: 1.2, add_actor_or_role_attribute: true}
    business_info: {service: urn:orders, action: Place}
    error_handling: {report: {as_response: false, receiver_errors_to: https://a.example/errors}}
    reliability:
      protocol: wsrm
      at_least_once: {contract: {acks_to: https://a.example}, reply_pattern: Callback}
    security:
      wss_version: 1.1
      send_receipt: {reply_pattern: callback, reply_to: https://a.example/receipts}
"""
RESP = INIT.replace("orders.init", "orders.resp")


def load(*texts: str) -> LoadResult:
    sources = [(f"{n}.yaml", text) for n, text in enumerate(texts, 1)]
    return load_sources(sources, supported=None)


def told(*texts: str) -> list[str]:
    return [str(problem) for problem in load(*texts).problems]


def only(*texts: str) -> str:
    problems = told(*texts)
    assert len(problems) == 1, problems
    return problems[0]


def test_ids_are_unique_across_files() -> None:
    one = "id: same\nresponder: {party: urn:a}\nlegs: [{}]\n"
    assert only(one, one.replace("urn:a", "urn:b")).startswith(
        "2.yaml:1:1: error: PMode.ID: another P-Mode has the id 'same' too"
    )


@pytest.mark.req("P2-2.7.2-01", "P2-2.7.2-02", "P2-2.7.2-05")
def test_the_units_of_a_multi_hop_pmode_share_their_stem() -> None:
    assert [pmode.public_id for pmode in load(INIT, RESP).pmodes] == ["orders", "orders"]
    other = RESP.replace("orders.resp", "other.resp").replace("Place", "Cancel")
    assert told(INIT, other) == []
    assert only(INIT, RESP.replace("Place", "Cancel"))


@pytest.mark.req("P2-2.7.2-13")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mep_binding: push", "mep_binding: pull"),
        ("hub.example/a", "hub.example/b"),
        ("as_response: false", "as_response: true"),
        ("reply_pattern: Callback", "reply_pattern: Response"),
        ("callback, reply_to: https://a.example/receipts", "response"),
        ("https://a.example/receipts", "https://hub.example/receipts"),
        ("acks_to: https://a.example", "acks_to: https://hub.example"),
    ],
)
def test_the_units_may_differ_in_how_their_edge_works(old: str, new: str) -> None:
    resp = RESP.replace(old, new)
    if "pull" in new:
        assert load(INIT, resp).ok
    else:
        assert told(INIT, resp) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "name"),
    [
        pytest.param(
            "Buyer", "Payer", 4, "PMode.Initiator.Role", marks=pytest.mark.req("P2-2.7.2-07")
        ),
        pytest.param(
            "urn:globex",
            "urn:glob",
            5,
            "PMode.Responder.Party[1]",
            marks=pytest.mark.req("P2-2.7.2-08"),
        ),
        pytest.param(
            "soap_version: 1.2",
            "soap_version: 1.1",
            7,
            "PMode[1].Protocol.SOAPVersion",
            marks=pytest.mark.req("P2-2.7.2-09", "P2-6.4.2-01"),
        ),
        pytest.param(
            "add_actor_or_role_attribute: true",
            "add_actor_or_role_attribute: false",
            7,
            "PMode[1].Protocol.AddActorOrRoleAttribute",
            marks=pytest.mark.req("P2-6.4.2-01"),
        ),
        pytest.param(
            "urn:orders",
            "urn:other",
            8,
            "PMode[1].BusinessInfo.Service",
            marks=pytest.mark.req("P2-2.7.2-04", "P2-2.7.2-10"),
        ),
        pytest.param(
            "protocol: wsrm",
            "protocol: ws-reliability",
            11,
            "PMode[1].Reliability.Protocol",
        ),
        pytest.param(
            "wss_version: 1.1",
            "wss_version: 1.0",
            14,
            "PMode[1].Security.WSSVersion",
            marks=pytest.mark.req("P2-2.7.2-12"),
        ),
    ],
)
def test_the_units_share_the_rest(old: str, new: str, line: int, name: str) -> None:
    problem = only(INIT, RESP.replace(old, new))
    assert problem.startswith(f"2.yaml:{line}:")
    assert f"error: {name}: it is '" in problem
    assert "in 'orders.init'" in problem


@pytest.mark.req("P2-2.7.2-06")
def test_the_units_share_the_pattern() -> None:
    text = RESP.replace("oneWay", "twoWay").replace("mep_binding: push", "mep_binding: sync")
    assert any(
        "2.yaml:2:1: error: PMode.MEP: it is '" in problem
        for problem in told(INIT, text + "  - {}\n")
    )


def test_passwords_of_units_are_compared_but_not_told() -> None:
    problem = only(INIT, RESP.replace("secret", "hidden"))
    assert "PMode.Initiator.Authorization.password: it is set here and another in" in problem
    assert "secret" not in problem
    assert "hidden" not in problem


BUNDLED = """\
id: {id}
responder: {{party: urn:partner}}
legs:
  - business_info: {{action: {id}}}
    bundling: {bundling}
"""


@pytest.mark.req("P2-3.3-07")
def test_a_pmode_that_is_never_bundled_is_no_primary() -> None:
    secondary = BUNDLED.format(
        id="two", bundling="{policy: optional, compatibility: {pmode_list: [one]}}"
    )
    never = BUNDLED.format(id="one", bundling="{policy: never}")
    assert only(never, secondary).startswith("2.yaml:5:")
    assert "bundling.compatibility.pmodelist: P-Mode 'one' is never bundled" in only(
        never, secondary
    )
    assert told(never.replace("never", "optional"), secondary) == []
    unsaid = "id: one\nresponder: {party: urn:one}\nlegs: [{}]\n"
    assert "is never bundled" in only(unsaid, secondary)


LISTING = "{policy: optional, compatibility: {pmode_list: [one]}%s}"
OPTIONAL = "{policy: optional%s}"


def pair(unit: str = "", primary: str = "", *, unit_more: str = "", primary_more: str = "") -> str:
    """What is told of P-Mode `two`, whose units may go with those of `one`."""
    one = BUNDLED.format(id="one", bundling=OPTIONAL % primary) + primary_more
    two = BUNDLED.format(id="two", bundling=LISTING % unit) + unit_more
    return " ".join(line for line in told(one, two) if "[1].bundling" in line)


IN_ORDER = "    reliability: {in_order: true, correlation: [a]}\n"
TIMED = ", ordering: {policy: timestamp, scope: [a]}"


@pytest.mark.req("P2-3.6.3-01", "P2-3.6.3-03", "P2-3.6.3-04", "P2-3.10.1-01")
def test_a_unit_in_order_lists_only_primaries_in_the_same_order() -> None:
    more = {"unit_more": IN_ORDER, "primary_more": IN_ORDER}
    assert pair(TIMED, TIMED, **more) == ""
    assert (
        "error: PMode[1].bundling.compatibility.pmodelist: 'two' is delivered in order, and "
        in (pair(TIMED, "", **more))
    )
    assert "'one' is not" in pair(TIMED, TIMED, unit_more=IN_ORDER)
    other = TIMED.replace("[a]", "[b]"), IN_ORDER.replace("[a]", "[b]")
    said = pair(TIMED, other[0], unit_more=IN_ORDER, primary_more=other[1])
    assert "different reliability correlations" in said


SIGNED = "    security: {x509: {sign: true%s}, send_receipt: {non_repudiation: true}}\n"


@pytest.mark.req("P2-3.6.2-01")
def test_who_wants_signed_receipts_should_not_list_unsigned_primaries() -> None:
    said = pair(unit_more=SIGNED % "")
    assert "warning" in said
    assert "bundles of 'one' are not signed" in said
    assert pair(unit_more=SIGNED % "", primary_more=SIGNED % "") == ""


@pytest.mark.req("P2-3.2.2-07")
def test_receipts_that_come_in_one_message_are_signed_alike() -> None:
    other = SIGNED % ", signature: {hash_function: sha384}"
    said = pair(unit_more=SIGNED % "", primary_more=other)
    assert "error" in said
    assert "receipts are signed in another way than those of 'one'" in said
    back = "non_repudiation: true, reply_pattern: callback, reply_to: 'https://a.example/msh'"
    alone = other.replace("non_repudiation: true", back)
    assert pair(unit_more=SIGNED % "", primary_more=alone) == ""


@pytest.mark.req("P2-3.6.3-02")
def test_a_primary_should_be_sent_again_when_its_units_are() -> None:
    retry = "retry: {parameters: {max_retries: 3, period: PT1M}}"
    aware = f"    security: {{send_receipt: true}}\n    reception_awareness: {{{retry}}}\n"
    assert "bundles of 'one' are not" in pair(unit_more=aware)
    assert pair(unit_more=aware, primary_more=aware) == ""


def test_units_for_different_parties_never_meet() -> None:
    one = BUNDLED.format(id="one", bundling=OPTIONAL % "").replace("urn:partner", "urn:other")
    assert "they never meet" in only(one, BUNDLED.format(id="two", bundling=LISTING % ""))


def test_who_must_be_bundled_and_has_nobody_to_go_with_gets_a_warning() -> None:
    alone = BUNDLED.format(id="one", bundling="{policy: always, max_delay: PT1S}")
    assert "so each of them fails" in only(alone)
    assert told(alone, BUNDLED.format(id="two", bundling=LISTING % "")) == []


def test_a_primary_that_is_not_read_gets_a_warning() -> None:
    secondary = BUNDLED.format(
        id="two", bundling="{policy: optional, compatibility: {pmode_list: [one]}}"
    )
    assert load(secondary).problems[0].level is Level.WARNING


@pytest.mark.req("P2-2.7.1.2-04")
def test_one_destination_routed_by_two_values_gets_a_warning() -> None:
    text = (
        "id: {0}\nresponder:\n  party: urn:g\n"
        "  addressing: {{epr: {{routing_input: {{business_info: {{action: {1}}}}}}}}}\n"
        "legs: [{{business_info: {{action: {0}}}}}]\n"
    )
    assert told(text.format("a", "R"), text.format("b", "R")) == []
    problem = only(text.format("a", "R"), text.format("b", "S"))
    assert problem.startswith("2.yaml:4:")
    assert "'a' routes to the same party by other values" in problem


def test_two_pmodes_for_the_same_messages_get_a_warning() -> None:
    text = "id: {0}\nresponder: {{party: urn:g}}\nlegs: [{{business_info: {{action: {1}}}}}]\n"
    assert told(text.format("a", "X"), text.format("b", "Y")) == []
    result = load(text.format("a", "X"), text.format("b", "X"))
    assert result.ok
    assert str(result.problems[0]).startswith(
        "2.yaml:3:8: warning: PMode[1]: a message that matches 'a' matches this P-Mode just as well"
    )


def test_two_pmodes_whose_messages_both_name_them_can_be_told_apart() -> None:
    text = (
        "id: {0}\nagreement: {{value: urn:x, include_pmode: {1}}}\n"
        "responder: {{party: urn:g}}\nlegs: [{{}}]\n"
    )
    assert told(text.format("a", "true"), text.format("b", "true")) == []
    for named, other in (("true", "false"), ("false", "true"), ("false", "false")):
        problem = only(text.format("a", named), text.format("b", other))
        assert "agreement.include_pmode: true in both" in problem
