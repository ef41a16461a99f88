"""A bundle that comes in: its units, what is wrong with each or with all, and their order."""

from datetime import timedelta

import pytest

from postroad.agreement.bundling import BundlingTerms
from postroad.msh.outbound import Package, PackedUnit, WireForm
from postroad.msh.unbundling import (
    Unbundled,
    processing_order,
    related_failed,
    related_failures,
    unbundle,
)
from postroad.wire.ebms3 import MessageInfo, PartInfo, PullRequest, SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.limits import Limits
from postroad.wire.multihop import effective_routing_input, routing_user_message
from postroad.wire.unit_paths import unit_path, unit_values, written_unit
from tests.changing import replace
from tests.pki import NOW
from tests.unit.bundles import BUNDLING, World, pmode_text, wire

WORLD = World()
ORDERED = "\n      ordering: {policy: %s, scope: [eb3:CollaborationInfo/eb3:ConversationId]}"


def taken(made: Package, world: World = WORLD) -> Unbundled:
    return unbundle(world.look(made))


def three(world: World = WORLD) -> list[PackedUnit]:
    return [
        world.unit("m1@x", b"one", pmode="invoices"),
        world.unit("m2@x", b"two", b"three", seconds=1),
        world.unit("m3@x", b"four", seconds=2),
    ]


def codes(failures: tuple[EbmsError, ...]) -> list[str]:
    return [one.code for one in failures]


@pytest.mark.req("P2-3.2.1-05")
def test_a_bundle_is_taken_apart_into_units_with_their_own_parts() -> None:
    found = taken(WORLD.package(*three()))
    assert found.failures == ()
    assert [unit.failures for unit in found.units] == [(), (), ()]
    assert [unit.message.message_info.message_id for unit in found.units] == [
        "m1@x",
        "m2@x",
        "m3@x",
    ]
    assert [unit.match and unit.match.pmode.id for unit in found.units] == [
        "invoices",
        "catalogue",
        "catalogue",
    ]
    contents = [
        [b"".join(one.content.chunks()) for one in unit.payloads if one.content]
        for unit in found.units
    ]
    assert contents == [[b"one"], [b"two", b"three"], [b"four"]]


def test_a_message_of_one_unit_is_no_bundle_and_all_that_is_wrong_is_of_the_whole() -> None:
    alone = WORLD.unit("m1@x", bytes(65 * 1024), pmode="invoices")
    assert taken(WORLD.package(alone)).failures == ()
    found = taken(WORLD.package(listed(three()[0], "cid:nowhere")))
    assert codes(found.failures) == ["EBMS:0007"]


def listed(unit: PackedUnit, *hrefs: str | None) -> PackedUnit:
    """The unit with further PartInfos."""
    infos = (*unit.user_message.part_infos, *map(PartInfo, hrefs))
    return replace(unit, user_message=replace(unit.user_message, part_infos=infos))


def test_a_unit_cannot_have_the_payload_of_another() -> None:
    first, second, third = three()
    found = taken(WORLD.package(first, second, listed(third, "cid:0-m2@x")))
    assert found.failures == ()
    assert [codes(unit.failures) for unit in found.units] == [[], [], ["EBMS:0007"]]
    [problem] = found.units[2].failures
    assert "cid:0-m2@x belongs to the unit m2@x" in problem.detail


def test_a_part_that_is_missing_concerns_its_unit_only() -> None:
    first, second, third = three()
    found = taken(WORLD.package(first, listed(second, "cid:nowhere"), third))
    assert [codes(unit.failures) for unit in found.units] == [[], ["EBMS:0007"], []]


@pytest.mark.req("P2-3.2.1-03")
@pytest.mark.parametrize("href", [None, "#body"])
def test_only_the_primary_may_have_its_payload_in_the_body(href: str | None) -> None:
    first, second, third = three()
    found = taken(WORLD.package(first, second, listed(third, href)))
    assert [bool(unit.failures) for unit in found.units] == [False, False, True]
    assert any("only the primary" in one.detail for one in found.units[2].failures)
    found = taken(WORLD.package(listed(first, href), second, third))
    assert not any("only the primary" in one.detail for one in found.units[0].failures)


def test_a_part_that_belongs_to_nobody_is_wrong_with_the_whole() -> None:
    first, second, third = three()
    less = replace(third.user_message, part_infos=())
    found = taken(WORLD.package(first, second, replace(third, user_message=less)))
    assert codes(found.failures) == ["EBMS:0007"]


def changed(made: Package, old: bytes, new: bytes) -> WireForm:
    """The message, unsigned, with its envelope changed."""
    return wire(replace(made, envelope=made.envelope.replace(old, new)))


def test_two_units_with_one_id_are_both_refused() -> None:
    plain = World(*(pmode_text(*one, security=" {}") for one in PMODES))
    made = plain.package(*three(plain))
    found = unbundle(plain.received(changed(made, b">m3@x<", b">m2@x<")))
    assert found.failures == ()
    assert [codes(unit.failures) for unit in found.units] == [[], ["EBMS:0009"], ["EBMS:0009"]]


PMODES = (("invoices", "Invoice"), ("catalogue", "Update"))


def test_a_unit_that_no_pmode_fits_fails_alone_but_not_the_primary() -> None:
    first, second, third = three()
    business = replace(second.user_message.collaboration_info, action="Unknown")
    odd = replace(second, user_message=replace(second.user_message, collaboration_info=business))
    found = taken(WORLD.package(first, odd, third))
    assert found.failures == ()
    assert [codes(unit.failures) for unit in found.units] == [[], ["EBMS:0010"], []]
    found = taken(WORLD.package(odd, first, third))
    assert "EBMS:0010" in codes(found.failures)


def test_the_same_fault_of_two_units_is_told_of_both() -> None:
    needy = pmode_text("catalogue", "Update").replace(
        "action: Update", "action: Update, properties: [{name: a, required: true}]"
    )
    world = World(catalogue=needy)
    found = taken(world.package(*three(world)), world)
    assert [codes(unit.failures) for unit in found.units] == [[], ["EBMS:0010"], ["EBMS:0010"]]


def test_a_broken_signature_is_wrong_with_the_whole() -> None:
    form = wire(WORLD.package(*three()))
    parts = tuple(
        replace(part, content=type(part.content)(b"else")) if number == 2 else part
        for number, part in enumerate(form.parts)
    )
    found = unbundle(WORLD.received(replace(form, parts=parts)))
    assert "EBMS:0101" in codes(found.failures)


@pytest.mark.req("P2-3.5-05", "P2-3.5-02")
def test_a_bundle_larger_than_the_primary_allows_is_refused() -> None:
    base = WORLD.package(*three())
    size = len(base.envelope) + sum(part.content.size for part in base.parts)
    first, second, _ = three()
    larger = WORLD.unit("m3@x", b"four" + bytes(64 * 1024 - size), seconds=2)
    assert taken(WORLD.package(first, second, larger)).failures == ()
    larger = WORLD.unit("m3@x", b"four" + bytes(64 * 1024 - size + 1), seconds=2)
    found = taken(WORLD.package(first, second, larger))
    [problem] = found.failures
    assert (problem.code, problem.ref) == ("EBMS:0030", "m1@x")
    assert problem.detail == "the bundle has 65537 bytes, P-Mode 'invoices' allows 64 KiB"
    assert found.units[0].failures == ()


@pytest.mark.req("P2-3.5-03", "P2-3.3-09", "P2-3.5-02")
def test_a_bundle_whose_oldest_unit_is_too_old_is_refused() -> None:
    units = [WORLD.unit("m1@x", seconds=10), WORLD.unit("m2@x"), WORLD.unit("m3@x", seconds=5)]
    assert taken(WORLD.package(*units)).failures == ()
    units[0] = WORLD.unit("m1@x", seconds=10.001)
    [problem] = taken(WORLD.package(*units)).failures
    assert (problem.code, problem.ref) == ("EBMS:0030", "m1@x")
    assert "m2@x is PT10.001S older than m1@x" in problem.detail
    assert "allows PT10S" in problem.detail


@pytest.mark.req("P2-3.5-04", "P2-3.5-02")
def test_a_bundle_with_the_wrong_primary_is_refused() -> None:
    picky = World(catalogue=pmode_text("catalogue", "Update", BUNDLING.replace(", catalogue", "")))
    assert taken(picky.package(*three(picky)), picky).failures == ()
    first, *others = three(picky)
    [problem] = taken(picky.package(*others, first, pmode="catalogue"), picky).failures
    assert (problem.code, problem.ref) == ("EBMS:0030", "m2@x")
    assert "'catalogue' does not list 'catalogue' as a primary" in problem.detail


@pytest.mark.req("P2-3.3-01", "P2-3.3-04")
def test_units_that_are_never_bundled_are_refused_in_a_bundle() -> None:
    never = World(catalogue=pmode_text("catalogue", "Update", " {}"))
    [problem] = taken(never.package(*three(never)), never).failures
    assert (problem.code, problem.ref) == ("EBMS:0030", "m1@x")
    assert "'catalogue' are never bundled" in problem.detail


def test_nobody_signs_for_another_party_in_a_pmode_for_all_comers() -> None:
    named = "initiator: {party: urn:example:buyer}\n"
    open_for_all = World(*(pmode_text(*one).replace(named, "") for one in PMODES))
    first, second, third = three()
    other = replace(
        second.user_message,
        from_party=replace(
            first.user_message.from_party,
            party_ids=(replace(first.user_message.from_party.party_ids[0], value="urn:other"),),
        ),
    )
    made = WORLD.package(first, replace(second, user_message=other), third)
    found = taken(made, open_for_all)
    assert [codes(unit.failures) for unit in found.units] == [[], ["EBMS:0101"], []]


def test_a_faulty_signal_beside_units_concerns_no_unit() -> None:
    late = SignalMessage(MessageInfo(NOW + timedelta(days=3), "s@x"), PullRequest())
    found = taken(WORLD.package(*three(), signals=[late]))
    assert found.failures == ()
    assert [unit.failures for unit in found.units] == [(), (), ()]


def test_a_bundle_with_too_many_units_is_refused_by_its_primary() -> None:
    made = WORLD.package(*three())
    small = World(limits=Limits(units=2))
    found = taken(made, small)
    assert "EBMS:0008" in codes(found.failures)
    assert [unit.message.message_info.message_id for unit in found.units] == ["m1@x"]


def test_a_bundle_of_a_hundred_thousand_units_is_refused_before_it_is_read() -> None:
    made = WORLD.package(WORLD.unit("m1@x"))
    units = 100_000 * b"<eb:UserMessage/>"
    found = WORLD.received(changed(made, b"</eb:Messaging>", units + b"</eb:Messaging>"))
    assert not found.readable
    [problem] = found.problems
    assert problem.code == "EBMS:0009"
    assert "more than 50000 elements" in problem.detail


@pytest.mark.req("P2-3.9-03")
def test_an_intermediary_routes_a_bundle_by_its_primary_unit() -> None:
    routed = World(
        pmode_text("invoices", "Invoice").replace(
            "soap_version: 1.2", "soap_version: 1.2, add_actor_or_role_attribute: true"
        )
    )
    pull = SignalMessage(MessageInfo(NOW, "s@x"), PullRequest())
    made = routed.package(*three(routed), signals=[pull])
    found = routed.look(made)
    primary = made.user_message
    assert effective_routing_input(None, found.messaging) == routing_user_message(primary)
    assert primary.collaboration_info.action == "Invoice"


# Order


ORDER = BundlingTerms("p", "optional", ordering="documentorder")
TIME = BundlingTerms("p", "optional", ordering="timestamp")
TIMES = [NOW + timedelta(seconds=seconds) for seconds in (3, 1, 2, 1)]
NO_SCOPE: list[tuple[str, ...]] = [()] * 4


@pytest.mark.req("P2-3.10.2-01")
def test_without_an_order_units_have_nothing_to_do_with_each_other() -> None:
    found = processing_order(BundlingTerms("p", "optional"), TIMES, NO_SCOPE)
    assert found == ((0,), (1,), (2,), (3,))
    assert related_failures(found, {0}) == {}


@pytest.mark.req("P2-3.10.2-02", "P2-3.10.1-02")
def test_in_document_order_units_go_as_they_stand() -> None:
    assert processing_order(ORDER, TIMES, NO_SCOPE) == ((0, 1, 2, 3),)


@pytest.mark.req("P2-3.10.2-03", "P2-3.10.2-04", "P2-3.10.2-05")
def test_by_timestamp_older_units_go_first_and_equal_ones_as_they_stand() -> None:
    assert processing_order(TIME, TIMES, NO_SCOPE) == ((1, 3, 2, 0),)


@pytest.mark.req("P2-3.10.2-06", "P2-3.10.3-02")
def test_the_scope_parts_units_into_groups() -> None:
    scopes = [("a",), ("b",), ("a",), ("b",)]
    assert processing_order(ORDER, TIMES, scopes) == ((0, 2), (1, 3))
    assert processing_order(TIME, TIMES, scopes) == ((2, 0), (1, 3))


@pytest.mark.req("P2-3.10.3-01", "P2-3.10.3-02")
def test_a_failure_stops_those_behind_it_in_its_group() -> None:
    groups = ((0, 2, 3), (1, 4))
    assert related_failures(groups, {2}) == {3: 2}
    assert related_failures(groups, {0, 2}) == {3: 2}
    assert related_failures(groups, {4}) == {}


@pytest.mark.req("P2-3.10.3-03")
def test_a_unit_that_is_stopped_is_told_why() -> None:
    units = [unit.user_message for unit in three()]
    problem = related_failed(units[1], units[0])
    assert (problem.code, problem.ref) == ("EBMS:0031", "m2@x")
    assert problem.kind.short_description == "RelatedMessageFailed"
    assert problem.severity == "failure"
    assert "m1@x" in problem.detail


@pytest.mark.req("P2-3.10.2-03", "P2-3.10.2-06")
def test_the_order_of_a_bundle_is_that_of_its_primary() -> None:
    ordered = World(invoices=pmode_text("invoices", "Invoice", BUNDLING + ORDERED % "timestamp"))
    made = ordered.package(
        ordered.unit("m1@x", pmode="invoices", seconds=3, conversation="c1"),
        ordered.unit("m2@x", seconds=2, conversation="c2"),
        ordered.unit("m3@x", seconds=1, conversation="c1"),
    )
    assert taken(made, ordered).partitions == ((2, 0), (1,))


# What units have in common


@pytest.mark.parametrize(
    ("expression", "alike"),
    [
        ("eb3:CollaborationInfo/eb3:ConversationId", False),
        ("eb:CollaborationInfo/eb:ConversationId", False),
        ("eb3:PartyInfo/eb3:From", True),
        ("eb3:CollaborationInfo/eb3:Action/text()", True),
        ("eb3:MessageInfo/eb3:MessageId", False),
        ("eb3:MessageProperties/eb3:Property[@name='a']", True),
        ("count(eb3:PartyInfo)", True),
        ("eb3:PayloadInfo/eb3:PartInfo/@href", False),
    ],
)
def test_an_xpath_selects_what_units_have_in_common(expression: str, alike: bool) -> None:
    units = [
        WORLD.unit("m1@x", b"1", conversation="c1"),
        WORLD.unit("m2@x", b"2", conversation="c2"),
    ]
    one, other = unit_values([written_unit(unit.user_message) for unit in units], [expression])
    assert (one == other) is alike


@pytest.mark.parametrize("expression", ["eb3:From[", "unknown:From", ""])
def test_what_is_no_xpath_is_told(expression: str) -> None:
    with pytest.raises(ValueError, match="is no XPath"):
        unit_path(expression)
