"""Units that wait are put into bundles: who goes with whom, who leads, and when (Part 2, 3)."""

from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest

from postroad.agreement.bundling import BundlingTerms, bundling_terms, incompatible
from postroad.agreement.loading import load_pmodes
from postroad.agreement.supported import ALL
from postroad.msh.bundling import Plan, Waiting, plan
from postroad.wire.limits import Limits

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FIVE = 5 * SECOND


def terms(name: str, *primaries: str, policy: str = "optional", **more: Any) -> BundlingTerms:
    return BundlingTerms(
        name,
        policy,  # type: ignore[arg-type]
        frozenset(primaries),
        **{"max_delay": FIVE, **more},
    )


def unit(name: str, pmode: str, seconds: float = 0, size: int = 10, **more: Any) -> Waiting:
    return Waiting(name, pmode, "partner", BEGIN + seconds * SECOND, size, **more)


def planned(units: list[Waiting], *agreed: BundlingTerms, seconds: float = 0, **more: Any) -> Plan:
    known = {one.pmode: one for one in agreed}
    return plan(units, known, BEGIN + seconds * SECOND, **more)


def names(found: Plan) -> list[str]:
    """The bundles, each as the ids of its units."""
    return ["".join(one.id for one in bundle) for bundle in found.bundles]


@pytest.mark.req("P2-3.3-01")
def test_a_unit_that_is_never_bundled_goes_at_once_and_alone() -> None:
    found = planned([unit("A", "n"), unit("B", "n")], terms("n", "n", policy="never"))
    assert names(found) == ["A", "B"]


@pytest.mark.req("P2-3.3-02", "P2-3.3-10")
def test_units_wait_for_each_other_until_the_first_has_waited_long_enough() -> None:
    units = [unit("A", "p"), unit("B", "p", 2), unit("C", "p", 4)]
    found = planned(units, terms("p", "p"), seconds=4)
    assert (names(found), found.wake) == ([], BEGIN + FIVE)
    assert found.waiting == tuple(units)
    found = planned(units, terms("p", "p"), seconds=5)
    assert (names(found), found.wake) == (["ABC"], None)


@pytest.mark.req("P2-3.3-02")
def test_a_unit_that_may_be_bundled_goes_alone_when_its_time_has_come() -> None:
    assert names(planned([unit("A", "p")], terms("p", "p"), seconds=5)) == ["A"]


@pytest.mark.req("P2-3.3-03", "P2-3.5-06")
def test_a_unit_that_must_be_bundled_fails_when_nobody_came_in_time() -> None:
    alone, agreed = unit("A", "p"), terms("p", "p", policy="always")
    found = planned([alone], agreed, seconds=4.9)
    assert (names(found), found.lonely, found.wake) == ([], (), BEGIN + FIVE)
    found = planned([alone], agreed, seconds=5)
    assert (names(found), found.lonely) == ([], (alone,))
    found = planned([alone, unit("B", "p", 5)], agreed, seconds=5)
    assert (names(found), found.lonely) == (["AB"], ())


def test_the_last_of_many_that_must_be_bundled_is_not_left_alone() -> None:
    units = [unit(name, "p") for name in "ABCDE"]
    agreed = terms("p", "p", policy="always")
    found = planned(units, agreed, seconds=5, limits=Limits(units=4))
    assert (names(found), found.lonely) == (["ABC", "DE"], ())
    found = planned(units, agreed, seconds=1, limits=Limits(units=4))
    assert (names(found), [one.id for one in found.waiting]) == (["ABC"], ["D", "E"])


@pytest.mark.req("P2-3.3-06")
def test_the_primary_is_of_a_pmode_that_the_secondary_lists() -> None:
    units = [unit("A", "small"), unit("B", "large", 1), unit("C", "small", 2)]
    found = planned(units, terms("small", "large"), terms("large"), seconds=5)
    assert names(found) == ["BAC"]
    found = planned(units, terms("small", "other"), terms("large"), seconds=7)
    assert names(found) == ["A", "B", "C"]


def test_units_for_different_partners_never_meet() -> None:
    units = [Waiting(name, "p", name, BEGIN, 10) for name in ("A", "B")]
    assert names(planned(units, terms("p", "p"), seconds=5)) == ["A", "B"]


@pytest.mark.req("P2-3.3-08")
def test_a_bundle_leaves_as_soon_as_it_is_full() -> None:
    units = [unit(name, "p", size=40, envelope=20) for name in "ABCDE"]
    found = planned(units, terms("p", "p", max_size=100))
    assert names(found) == ["AB", "CD"]
    assert [one.id for one in found.waiting] == ["E"]


@pytest.mark.req("P2-3.3-08")
def test_a_primary_larger_than_a_bundle_may_be_goes_alone_at_once() -> None:
    units = [unit("A", "p", size=101), unit("B", "p"), unit("C", "p")]
    found = planned(units, terms("p", "p", max_size=100))
    assert names(found) == ["A"]
    assert names(planned(units[1:], terms("p", "p", max_size=100), seconds=5)) == ["BC"]


def test_units_further_apart_than_any_of_them_allows_are_not_bundled() -> None:
    units = [unit("A", "slow"), unit("B", "slow", 8), unit("C", "quick", 9), unit("D", "slow", 10)]
    slow, quick = (
        terms("slow", "slow", max_delay=10 * SECOND),
        terms("quick", "slow", max_delay=SECOND),
    )
    assert names(planned(units, slow, quick, seconds=10)) == ["ABD", "C"]
    assert names(planned(units[1:], slow, quick, seconds=10)) == ["BC"]


def test_after_a_long_pause_the_backlog_is_cut_into_bundles_of_a_time() -> None:
    units = [unit(name, "p", 3 * place) for place, name in enumerate("ABCDE")]
    assert names(planned(units, terms("p", "p"), seconds=100)) == ["AB", "CD", "E"]


def test_units_with_the_same_content_id_are_not_bundled() -> None:
    units = [unit("A", "p", content_ids=("x",)), unit("B", "p", content_ids=("x",)), unit("C", "p")]
    assert names(planned(units, terms("p", "p"), seconds=5)) == ["AC", "B"]


def test_a_bundle_has_no_more_parts_than_a_message_may_have() -> None:
    units = [unit(name, "p", content_ids=(f"{name}1", f"{name}2")) for name in "ABCD"]
    assert names(planned(units, terms("p", "p"), seconds=5, limits=Limits(parts=7))) == ["ABC", "D"]


@pytest.mark.req("P2-3.2.2-09")
def test_a_series_is_bundled_without_gaps() -> None:
    agreed = terms("p", "p", ordering="documentorder", in_order=True, max_size=100)
    sizes = {"A": 40, "B": 40, "C": 70, "D": 5}
    units = [unit(name, "p", size=size, series="s") for name, size in sizes.items()]
    assert names(planned(units, agreed, seconds=5)) == ["AB", "CD"]
    free = [unit(name, "p", size=size) for name, size in sizes.items()]
    assert names(planned(free, terms("p", "p", max_size=100), seconds=5)) == ["ABD", "C"]


@pytest.mark.req("P2-3.10.1-03", "P2-3.10.1-08")
def test_with_document_order_the_primary_is_the_first_that_was_submitted() -> None:
    units = [unit("A", "small"), unit("B", "large", 1), unit("C", "small", 2)]
    large = terms("large", ordering="documentorder")
    assert names(planned(units, terms("small", "large"), large, seconds=7)) == ["A", "BC"]


@pytest.mark.req("P2-3.10.1-04", "P2-3.10.1-05")
def test_with_timestamps_the_primary_may_be_younger_but_ties_go_by_document_order() -> None:
    small, large = terms("small", "large"), terms("large", ordering="timestamp")
    units = [unit("A", "small", series="s"), unit("B", "large", 1, series="s")]
    assert names(planned(units, small, large, seconds=5)) == ["BA"]
    units = [unit("A", "small", series="s"), unit("B", "large", series="s")]
    assert names(planned(units, small, large, seconds=5)) == ["A", "B"]


def test_a_clock_that_was_set_back_does_not_turn_an_order_round() -> None:
    agreed = terms("p", "p", ordering="timestamp")
    units = [unit(name, "p", at, series="s") for name, at in (("A", 2), ("B", 3), ("C", 2))]
    assert names(planned(units, agreed, seconds=8)) == ["AB", "C"]


def test_a_primary_that_knows_no_order_takes_one_unit_of_a_series() -> None:
    units = [unit("A", "p"), unit("B", "s", series="s"), unit("C", "s", series="s")]
    found = planned(units, terms("p"), terms("s", "p", ordering="timestamp"), seconds=5)
    assert names(found) == ["AB", "C"]


def test_a_unit_leaves_early_for_one_of_its_series_that_cannot_wait() -> None:
    slow = terms("slow", ordering="timestamp", max_delay=60 * SECOND)
    quick = terms("quick", ordering="timestamp", max_delay=SECOND)
    units = [unit("A", "slow", series="s"), unit("B", "quick", series="s"), unit("C", "slow")]
    assert names(planned(units, slow, quick, seconds=1)) == ["A", "B"]


def test_a_pull_request_drains_what_waits_bundled_on_the_fly() -> None:
    units = [unit("A", "p"), unit("B", "p"), unit("C", "q")]
    agreed = (terms("p", "p"), terms("q", policy="always"))
    assert names(planned(units, *agreed)) == []
    found = planned(units, *agreed, drain=True)
    assert (names(found), found.waiting, found.lonely) == (["AB"], (units[2],), ())


def test_without_a_delay_units_go_at_once_with_whoever_is_there() -> None:
    units = [unit("A", "p"), unit("B", "p")]
    assert names(planned(units, terms("p", "p", max_delay=None))) == ["AB"]


def test_a_hundred_thousand_units_are_planned_in_no_time() -> None:
    agreed = terms("p", "p", ordering="documentorder", in_order=True, max_size=1 << 20)
    units = [
        unit(str(number), "p", number / 1e6, 1500, series=number % 100, content_ids=(str(number),))
        for number in range(100_000)
    ]
    before = process_time()
    found = planned(units, agreed, seconds=6)
    assert process_time() - before < 10
    assert sum(map(len, found.bundles)) == len(units)


def leg(bundling: str, more: str = "") -> BundlingTerms:
    text = f"id: p\nlegs:\n  - bundling: {bundling}\n{more}"
    [pmode] = load_pmodes(text, "p.yaml", supported=ALL).pmodes
    return bundling_terms(pmode, pmode.legs[0])


@pytest.mark.req("P2-3.3-04", "P2-3.10.1-06")
def test_what_a_pmode_leaves_open_has_its_default() -> None:
    assert leg("{}") == BundlingTerms("p")
    assert (leg("{}").policy, leg("{}").ordering) == ("never", "undefined")


@pytest.mark.req("P2-7.2-06")
def test_the_terms_are_those_of_the_pmode() -> None:
    found = leg(
        "{policy: always, compatibility: {pmode_list: 'a, b'}, max_size: 1 MiB, max_delay: PT5S, "
        "ordering: {policy: timestamp, scope: [eb3:PartyInfo]}}",
        "    reliability: {in_order: true}\n",
    )
    scope = ("eb3:PartyInfo",)
    assert found == BundlingTerms(
        "p", "always", frozenset("ab"), 1 << 20, FIVE, "timestamp", scope, True, frozenset(scope)
    )


@pytest.mark.req("P2-3.6.3-01", "P2-3.6.3-03", "P2-3.6.3-04")
@pytest.mark.parametrize(
    ("primary", "why"),
    [
        ({"ordering": "timestamp", "in_order": True, "correlation": frozenset("c")}, None),
        ({"in_order": True, "correlation": frozenset("c")}, "leaves it undefined"),
        ({"ordering": "timestamp", "in_order": True}, "different reliability correlations"),
        ({"ordering": "timestamp", "correlation": frozenset("c")}, "is not"),
        ({"policy": "never"}, "never bundled"),
    ],
)
def test_a_unit_in_order_needs_a_primary_in_the_same_order(
    primary: dict[str, Any], why: str | None
) -> None:
    unit = terms("u", "p", in_order=True, ordering="timestamp", correlation=frozenset("c"))
    found = incompatible(unit, terms("p", **primary))
    assert found is None if why is None else why in (found or "")
