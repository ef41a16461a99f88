"""Reading P-Mode files: what is wrong is told by file, line and column, and nothing crashes."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.agreement.loading import LoadResult, load_pmodes, load_sources
from postroad.agreement.parameters import PARAMETERS
from postroad.agreement.source import SourceLimits
from postroad.agreement.supported import SUPPORTED

PLAIN = """\
id: plain
responder: {party: urn:example:globex}
legs:
  - protocol: {address: "https://globex.example/msh"}
"""


def told(text: str | bytes, supported: frozenset[str] | None = SUPPORTED) -> list[str]:
    return [str(problem) for problem in load_pmodes(text, "p.yaml", supported).problems]


def only(text: str | bytes, supported: frozenset[str] | None = SUPPORTED) -> str:
    problems = told(text, supported)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_plain_file_is_read() -> None:
    result = load_pmodes(PLAIN, "p.yaml")
    assert result.ok
    assert [pmode.id for pmode in result.pmodes] == ["plain"]


def test_a_byte_order_mark_and_bytes_are_taken() -> None:
    assert told(b"\xef\xbb\xbf" + PLAIN.encode()) == []


def test_a_file_may_hold_a_list_or_several_documents() -> None:
    listed = "x-note: anything\npmodes:\n  - {id: a, responder: {party: urn:a}, legs: [{}]}\n"
    listed += "  - {id: b, responder: {party: urn:b}, legs: [{}]}\n"
    other = "---\nid: c\nresponder: {party: urn:c}\nlegs: [{}]\n---\n"
    result = load_pmodes(listed + other, "p.yaml")
    assert result.problems == ()
    assert [pmode.id for pmode in result.pmodes] == ["a", "b", "c"]


def test_anchors_and_merge_keys_work() -> None:
    text = """\
x-globex: &globex
  responder: {party: urn:globex}
  mep_binding: push
pmodes:
  - {<<: *globex, id: a, legs: [{business_info: {action: A}}]}
  - {<<: *globex, id: b, mep_binding: pull, legs: [{business_info: {action: A}}]}
"""
    first, second = load_pmodes(text, "p.yaml").pmodes
    assert first.responder == second.responder
    assert first.binding != second.binding


def test_texts_keep_their_zeros() -> None:
    pmode = load_pmodes(
        "id: 007\ninitiator: {party: {id: 0088, type: 1.10}}\nlegs: [{}]\n", "p.yaml"
    ).pmodes[0]
    assert pmode.id == "007"
    assert pmode.initiator is not None
    assert pmode.initiator.party is not None
    assert (pmode.initiator.party[0].id, pmode.initiator.party[0].type) == ("0088", "1.10")


def test_a_syntax_error_is_told_with_its_line() -> None:
    assert only("id: a\nlegs: [\n").startswith("p.yaml:3:1: error: not YAML: ")


def test_a_key_given_twice_is_told() -> None:
    problem = only(PLAIN + "id: again\n")
    assert problem.startswith("p.yaml:5:1: error: key `id` is given twice, first in line 1")


def test_an_unknown_key_gets_a_guess() -> None:
    problem = only(PLAIN.replace("address", "adress"))
    assert problem == (
        "p.yaml:4:16: error: PMode[1].Protocol.adress: unknown key `adress` "
        "(did you mean `address`?)"
    )


def test_a_key_in_the_spelling_of_the_specification_gets_the_right_one() -> None:
    problem = only(PLAIN.replace("address", "SOAPVersion"))
    assert "did you mean `soap_version`?" in problem


def test_a_wild_key_gets_the_list() -> None:
    assert "keys here: party, role" in only(PLAIN.replace("party:", "zzz: 1, party:"))


def test_rules_are_told_even_beside_an_unknown_key() -> None:
    problems = told(PLAIN.replace("adress", "x").replace("responder: {", "responder: {typo: 1, "))
    assert len(problems) == 1
    problems = told("id: a\nmep: twoWay\nresponder: {party: {typ: t, id: x}}\nlegs: [{}]\n")
    assert [line.split(":")[1] for line in problems] == ["2", "3", "3", "4"]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("id: plain\n", "", 1, "PMode.ID: `id` is missing (The P-Mode's name"),
        ("id: plain", "id:", 1, "PMode.ID: it has no value (give it one"),
        ("id: plain", "id: ~", 1, "PMode.ID: it has no value"),
        ("id: plain", "id: [a]", 1, "PMode.ID: a text is needed, not a list"),
        ("id: plain", "id: {a: b}", 1, "PMode.ID: a text is needed, not a group of keys"),
        ("id: plain", 'id: ""', 1, "PMode.ID: the text is empty"),
        ("id: plain", 'id: "*"', 1, "PMode.ID: '*' is no wildcard; leave the parameter out"),
        (
            "id: plain",
            "id: p\nmep: both",
            2,
            "PMode.MEP: 'both' is not known; known: oneWay, twoWay",
        ),
        ("party: urn:example:globex", "party: []", 2, "PMode.Responder.Party: fewer than 1 items"),
        ("{party: urn:example:globex}", "globex", 2, "PMode.Responder: a group of keys is needed"),
        (
            "https://globex.example/msh",
            "globex",
            4,
            "PMode[1].Protocol.Address: 'globex' is not a URI",
        ),
        (
            "protocol: {",
            "protocol: {soap_version: 1.3, ",
            4,
            "SOAPVersion: '1.3' is not one of '1.1'",
        ),
        (
            "protocol: {",
            "protocol: {add_actor_or_role_attribute: maybe, ",
            4,
            "AddActorOrRoleAttribute: 'maybe' is neither true nor false",
        ),
        ("legs:\n", "legs: {}\nx:\n", 3, "PMode[]: a list is needed, not a group of keys"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(old: str, new: str, line: int, said: str) -> None:
    problems = told(PLAIN.replace(old, new))
    found = [problem for problem in problems if said in problem]
    assert found, problems
    assert found[0].startswith(f"p.yaml:{line}:")


def test_a_number_is_needed_where_a_number_is_meant() -> None:
    text = PLAIN + "    security: {x509: {encryption: {encrypt: true, minimum_strength: lots}}}\n"
    assert "p.yaml:5:51: error: " in only(text)
    assert "MinimumStrength: 'lots' is not a whole number" in only(text)


def test_more_than_two_legs_or_pins_are_refused() -> None:
    assert "more than 2 items" in only("id: a\nresponder: {party: urn:b}\nlegs: [{}, {}, {}]\n")
    pins = "security: {x509: {sign: true, signature: {pins: [a, b, c]}}}"
    assert "Signature.Pins: more than 2 items" in only(PLAIN + f"    {pins}\n")


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("    security:\n      conversation: true\n", 6, "PMode[1].Security.Conversation"),
        ("    security: {conversation: {}}\n", 5, "PMode[1].Security.Conversation"),
    ],
)
def test_a_parameter_without_behaviour_is_refused_by_name(text: str, line: int, name: str) -> None:
    problem = only(PLAIN + text)
    assert problem.startswith(f"p.yaml:{line}:")
    assert f" error: {name}: not supported by this version (remove it" in problem


def test_reception_awareness_is_supported() -> None:
    aware = """\
    security: {send_receipt: {reply_pattern: callback, reply_to: https://acme.example/msh}}
    error_handling: {report: {missing_receipt_notify_producer: true}}
    reception_awareness:
      retry: {parameters: {max_retries: 3, timeout: PT10S, persist_duration: P1D}}
      duplicate_detection: {parameters: 'maxsize=10Mb,checkwindow=7D'}
      in_order: conversation
      ack_after_delivery: true
      strict_ack: false
"""
    assert told(PLAIN + aware) == []
    assert told(PLAIN + "    reception_awareness: false\n") == []


def test_a_later_version_only_extends_the_table() -> None:
    text = PLAIN + "    bundling: {policy: never}\n"
    assert told(text) == []
    assert "PMode[1].bundling.policy: not supported" in only(
        text, SUPPORTED - {"PMode[].bundling.policy"}
    )


def test_an_empty_file_is_no_pmode() -> None:
    for text in ("", "# nothing\n", "---\n---\n"):
        assert only(text) == (
            "p.yaml:1:1: error: there is no P-Mode in it (write one, or remove the file)"
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- id: a\n", "a P-Mode is a mapping of keys"),
        ("hello", "a P-Mode is a mapping of keys"),
        ("pmodes: {id: a}\n", "`pmodes:` holds a list"),
        ("pmodes: [a]\n", "a P-Mode is a mapping of keys"),
        ("pmodes: []\nid: b\n", "unknown key `id` beside `pmodes:`"),
        ("? [a]\n: b\n", "a key must be a plain text"),
        ("id: *nowhere\n", "alias *nowhere names no anchor"),
        ("id: !!python/name:os.system a\n", "is not used here"),
        ("id: !secret a\n", "tag !secret is not used here"),
        ("<<: a\nid: a\n", "<< takes a mapping"),
    ],
)
def test_other_shapes_are_refused(text: str, said: str) -> None:
    assert any(said in problem for problem in told(text)), told(text)


def test_what_is_not_utf_8_is_told_by_line() -> None:
    assert only(b"id: a\nlegs: \xff\n").startswith("p.yaml:2:1: error: not UTF-8 text")


def test_an_alias_of_itself_is_refused() -> None:
    assert any("names no anchor" in problem for problem in told("id: a\nlegs: &a [*a]\n"))


def laughs(levels: int, width: int) -> str:
    lines = ["x-0: &a0 {a: b}"]
    for level in range(1, levels):
        lines.append(f"x-{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join([*lines, f"pmodes:\n  - {{id: a, legs: *a{levels - 1}}}\n"])


def test_a_billion_laughs_are_refused_in_no_time() -> None:
    start = time.monotonic()
    assert "its aliases expand to more than 20000 nodes" in str(
        load_pmodes(laughs(12, 10), "p.yaml", limits=SourceLimits(nodes=20_000)).problems
    )
    assert time.monotonic() - start < 5


def test_merge_keys_cannot_blow_up_either() -> None:
    lines = ["x-0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(100)) + "}"]
    lines += [f"x-{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 50)}]}}" for n in range(1, 20)]
    result = load_pmodes("\n".join(lines), "p.yaml", limits=SourceLimits(nodes=20_000))
    assert "more than 20000 nodes" in str(result.problems)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 50_000, "a:\n" * 5])
def test_deep_nesting_is_refused(text: str) -> None:
    assert not load_pmodes("id: a\nlegs: " + text, "p.yaml").ok


def test_depth_through_aliases_is_bounded() -> None:
    deep = "[" * 20
    lines = [f"x-0: &a0 {deep}{']' * 20}"]
    lines += [f"x-{n}: &a{n} {deep}*a{n - 1}{']' * 20}" for n in range(1, 200)]
    text = "\n".join([*lines, "pmodes: [{id: a, legs: *a199}]"])
    assert "nested deeper than 32 levels" in str(load_pmodes(text, "p.yaml").problems)


def test_a_file_that_is_too_large_is_refused() -> None:
    result = load_pmodes(PLAIN * 100, "p.yaml", limits=SourceLimits(characters=1000))
    assert [p.message for p in result.problems] == ["the file is larger than 1000 characters"]


def test_a_hopeless_file_is_not_read_to_its_end() -> None:
    result = load_pmodes("pmodes:\n" + "- {x: 1}\n" * 5000, "p.yaml")
    assert 1000 < len(result.problems) < 1010
    assert result.problems[-1].message == "too many problems: the rest is not read"


def test_messages_stay_on_one_line_and_hold_no_control_characters() -> None:
    problem = only(PLAIN + '"\\e[31m\\nred": 1\n')
    assert problem.isprintable()


def test_problems_come_in_order_of_files_and_lines() -> None:
    result = load_sources([("b.yaml", "id: [a]\nx: 1\n"), ("a.yaml", PLAIN + "id: c\n")])
    assert [(p.file, p.line) for p in result.problems] == [
        ("b.yaml", 1),
        ("b.yaml", 1),
        ("b.yaml", 2),
        ("a.yaml", 5),
    ]


def test_values_of_passwords_are_not_told() -> None:
    text = PLAIN + "    security: {username_token: {username: u, password: [hunter2], digest: x}}\n"
    assert "hunter2" not in str(told(text))


GROUPS = {"legs", "initiator", "responder", "protocol", "security", "x509", "pmodes", "<<"}
KEYS = st.sampled_from(sorted({parameter.path.split(".")[-1] for parameter in PARAMETERS} | GROUPS))
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["push", "true", "urn:a", "PT1S", "&a b"]))
TREES = st.recursive(
    TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEYS, TEXTS), inner, max_size=4)
    ),
    max_leaves=12,
)


def flow(tree: object) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(flow, tree)) + "]"
    return str(tree)


def check_never_raises(text: str | bytes) -> None:
    result = load_pmodes(text, "p.yaml", supported=None)
    assert isinstance(result, LoadResult)
    assert result.pmodes or result.problems
    assert all(problem.line >= 1 and str(problem).isprintable() for problem in result.problems)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.one_of(KEYS, TEXTS), TREES, max_size=6))
def test_random_trees_never_raise(tree: dict[str, object]) -> None:
    check_never_raises(flow(tree))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.text(alphabet="{}[]:-&*!|>'\"%@`#,? \n\tab<")))
def test_random_texts_never_raise(text: str | bytes) -> None:
    check_never_raises(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_never_raises(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(PLAIN)))
    end = data.draw(st.integers(start, len(PLAIN)))
    check_never_raises(PLAIN[:start] + data.draw(st.text(max_size=5)) + PLAIN[end:])
