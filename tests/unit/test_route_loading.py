"""Files of rules: what is wrong is told by line, and what is not built is refused by name."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.agreement.route_loading import load_routes

TO = "to: {push: 'http://next.example/msh'}"
USER = "authorization: {username: u, password: p}"
CHANNEL = f"{{{USER}}}"
PULLED = f"{{mpc: 'urn:m', address: 'http://a.example/', {USER}}}"
PLAIN = f"routes:\n  - id: all\n    {TO}\n"


def told(text: str | bytes) -> list[str]:
    return [str(problem) for problem in load_routes(text, "routes.yaml").problems]


def only(text: str | bytes) -> str:
    problems = told(text)
    assert len(problems) == 1, problems
    return problems[0]


def rules(*matches: str) -> str:
    """A file with a rule for each match; the third rule's match stands in line 8."""
    lines = [
        f"  - id: r{number}\n    match: {match}\n    {TO}\n" for number, match in enumerate(matches)
    ]
    return "routes:\n" + "".join(lines)


def test_a_plain_file_is_read() -> None:
    found = load_routes(PLAIN, "routes.yaml")
    assert found.ok
    assert [one.id for one in found.file.routes] == ["all"]
    assert found.file.routes[0].to.push == ("http://next.example/msh",)


def test_several_addresses_are_tried_in_order() -> None:
    text = "routes: [{id: a, to: {push: ['http://a.example/', 'http://b.example/']}}]\n"
    [route] = load_routes(text, "routes.yaml").file.routes
    assert route.to.push == ("http://a.example/", "http://b.example/")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a file of rules is one document"),
        ("- a\n", "a file of rules is one document"),
        ("routes: [\n", "not YAML"),
        (b"routes: \xff\n", "not UTF-8 text"),
        ("routes:\n", "routes: it has no value"),
        ("rules: []\n", "`routes` is missing"),
        ("routes: [{id: a, to: {}}]\n", "it leads nowhere"),
        ("routes: [{id: a, to: {push: []}}]\n", "it leads nowhere"),
        ("routes: [{id: a, to: {push: next.example}}]\n", "is no URL"),
        (rules("{actoin: a}"), "did you mean `action`?"),
        (rules("{action: []}"), "routes[0].match.action: the list is empty"),
        (rules("{properties: {a: []}}"), "routes[0].match.properties.a: the list is empty"),
        (rules("{to_party: {}}"), "it names no party"),
        (rules("{xpath: 'a['}"), "is not XPath 1.0"),
        (rules("{xpath: 'x:a'}"), "is not XPath 1.0"),
        (rules("{body: '{}a'}"), "is no element"),
        (PLAIN + "errors: nobody\n", "is no URL"),
        (
            PLAIN.replace("push: ", "tls: {protocol: TLS}, push: "),
            "is no https:// address, so that TLS is not used",
        ),
        (
            PLAIN + "pull: [{mpc: 'urn:m', address: 'http://a.example/'}]\n",
            "`authorization` is missing",
        ),
        (PLAIN + f"pull: [{PULLED}, {PULLED}]\n", "this channel is pulled already"),
        ("routes: [{id: a, to: {channel: {}}}]\n", "`authorization` is missing"),
        (PLAIN.replace("msh'", f"msh', channel: {CHANNEL}"), "cannot both be pushed and wait"),
        (f"routes: [{{id: a, to: {{channel: {CHANNEL}, retry: {{}}}}}}]\n", "these are pulled"),
        (
            f"routes: [{{id: a, to: {{channel: {CHANNEL}, forward: sync}}}}]\n",
            "messages in a channel wait",
        ),
        (PLAIN.replace("msh'", "msh', relay: 'http://a.example/'"), "relay is for PullRequests"),
        (
            "routes: [{id: a, to: {relay: 'http://a.example/', forward: sync}}]\n",
            "relay is for PullRequests",
        ),
        ("routes: [{id: a, to: {relay: []}}]\n", "it leads nowhere"),
        (
            "routes: [{id: a, to: {channel: {authorization: {username: a, password: b}, "
            "parent: {username: c, password: d}}}}]\n",
            "which has no parent here",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str | bytes, said: str) -> None:
    problems = told(text)
    assert problems
    assert all(one.startswith("routes.yaml:") for one in problems)
    assert said in problems[0]


def test_it_is_told_by_line_and_column() -> None:
    assert only(rules("{action: a}", "{action: b}", "{acton: c}")).startswith(
        "routes.yaml:9:13: error: routes[2].match"
    )


def test_two_equal_rules_are_an_error() -> None:
    said = only(rules("{action: [a, b], to_party: x}", "{to_party: [x], action: [b, a]}"))
    assert "error: routes[1].match: it matches the same messages as the rule 'r0'" in said


def test_two_rules_of_one_name_are_an_error() -> None:
    text = PLAIN + f"  - id: all\n    match: {{action: a}}\n    {TO}\n"
    assert any("error: routes[1].id: another rule is called 'all' too" in one for one in told(text))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("{}", "{action: a}"),
        ("{action: [a, b]}", "{action: a, to_role: x}"),
        ("{to_party: {type: t}}", "{to_party: {id: x, type: t}}"),
        ("{mpc: {value: 'urn:m/a', below: true}}", "{mpc: 'urn:m/a/b'}"),
        ("{body: x}", "{body: '{urn:n}x'}"),
        ("{action: a}", "{action: a, xpath: '//eb:UserMessage'}"),
    ],
)
def test_a_rule_that_can_never_match_is_a_warning(wide: str, narrow: str) -> None:
    never = "warning: routes[1].match: it never matches: the earlier rule 'r0'"
    assert any(never in one for one in told(rules(wide, narrow)))
    assert not any("never matches" in one for one in told(rules(narrow, wide)))


@pytest.mark.req("P2-2.5.5-18")
def test_a_channel_that_alone_decides_and_leads_to_two_places_is_a_warning() -> None:
    text = rules("{mpc: 'urn:m', action: a}", "{mpc: 'urn:m'}").replace("next", "far", 1)
    assert "urn:m alone decides here, and the rule 'r0' leads it elsewhere" in only(text)


def test_problems_are_counted_up_to_a_limit() -> None:
    problems = told(rules(*["{x: 1}"] * 2000))
    assert len(problems) < 1100
    assert "too many problems" in problems[-1]


def test_ten_thousand_rules_are_checked_quickly() -> None:
    began = time.process_time()
    text = rules(*(f"{{to_party: 'urn:p{number}', action: a}}" for number in range(10_000)))
    assert told(text) == []
    assert time.process_time() - began < 60


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_stumble(text: str) -> None:
    load_routes(text, "routes.yaml")
    load_routes(f"routes:\n  - {text}\n", "routes.yaml")
