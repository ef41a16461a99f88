"""Whatever waits: the planner keeps all that is agreed about bundles, and forgets nobody."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.agreement.bundling import BundlingTerms, incompatible
from postroad.msh.bundling import Bundle, Plan, Waiting, deadline, plan
from postroad.msh.unbundling import unbundle
from postroad.wire.limits import Limits
from tests.unit.bundles import BUNDLING, pmode_text
from tests.unit.bundles import World as Agreed

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NAMES = ("a", "b", "c")
LIMITS = Limits(units=4, parts=6)
World = tuple[list[Waiting], dict[str, BundlingTerms]]


@st.composite
def agreed(draw: st.DrawFn, name: str) -> BundlingTerms:
    in_order = draw(st.booleans())
    ordering = draw(st.sampled_from(("documentorder", "timestamp", "undefined")))
    return BundlingTerms(
        name,
        draw(st.sampled_from(("never", "optional", "optional", "always"))),
        frozenset(draw(st.sets(st.sampled_from(NAMES)))),
        draw(st.sampled_from((None, 30, 60, 100))),
        draw(st.sampled_from((1, 3, 10))) * SECOND,
        ordering,
        in_order=in_order,
        correlation=frozenset(draw(st.sampled_from(("", "", "x")))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Units in the order of submission, at times that mostly go forward, and their terms."""
    terms = {name: draw(agreed(name)) for name in NAMES}
    units: list[Waiting] = []
    at = BEGIN
    for number in range(draw(st.integers(0, 14))):
        at += draw(st.sampled_from((0, 0, 1, 1, 2, 5, -1))) * SECOND
        pmode = draw(st.sampled_from(NAMES))
        ordered = terms[pmode].in_order or terms[pmode].ordering != "undefined"
        units.append(
            Waiting(
                f"u{number}",
                pmode,
                draw(st.sampled_from(("d1", "d1", "d2"))),
                at,
                draw(st.sampled_from((1, 10, 25, 70))),
                draw(st.sampled_from((5, 20))),
                draw(st.sampled_from(("s1", "s2"))) if ordered else None,
                draw(st.sampled_from(((f"p{number}",), (f"p{number}",), ("same",), ()))),
            )
        )
    return units, terms


def delivered(bundle: Bundle, terms: dict[str, BundlingTerms]) -> list[Waiting]:
    """The units in the order in which a receiver delivers them."""
    if terms[bundle[0].pmode].ordering == "timestamp":
        return sorted(bundle, key=lambda unit: unit.at)
    return list(bundle)


def check_bundle(bundle: Bundle, terms: dict[str, BundlingTerms]) -> None:
    primary, *others = bundle
    policies = [terms[unit.pmode].policy for unit in bundle]
    if not others:
        assert policies != ["always"]
        return
    assert "never" not in policies
    for unit in others:
        assert unit.destination == primary.destination
        assert incompatible(terms[unit.pmode], terms[primary.pmode]) is None
    times = [unit.at for unit in bundle]
    delays = [terms[unit.pmode].max_delay for unit in bundle]
    assert all(delay is None or max(times) - min(times) <= delay for delay in delays)
    most = terms[primary.pmode].max_size
    assert most is None or primary.envelope + sum(unit.size for unit in bundle) <= most
    parts = [name for unit in bundle for name in unit.content_ids]
    assert len(set(parts)) == len(parts)
    assert len(bundle) <= LIMITS.units
    assert len(parts) < LIMITS.parts


def series_of(units: Sequence[Waiting]) -> dict[object, list[str]]:
    """The ids of each series, in order."""
    key = lambda unit: (unit.destination, str(unit.series))  # noqa: E731
    ordered = sorted((unit for unit in units if unit.series), key=key)
    return {name: [unit.id for unit in group] for name, group in groupby(ordered, key)}


def planned(world: World, seconds: int, *, drain: bool = False) -> tuple[World, Plan, datetime]:
    now = BEGIN + seconds * SECOND
    return world, plan(world[0], world[1], now, limits=LIMITS, drain=drain), now


@given(worlds(), st.integers(0, 40), st.booleans())
@pytest.mark.req("P2-3.3-01", "P2-3.3-03", "P2-3.3-06", "P2-3.3-08", "P2-3.4-03")
def test_each_unit_goes_once_or_waits_and_all_that_is_agreed_holds(
    world: World, seconds: int, drain: bool
) -> None:
    (units, terms), found, _ = planned(world, seconds, drain=drain)
    told = [unit for bundle in found.bundles for unit in bundle]
    told += [*found.lonely, *found.waiting]
    assert sorted(unit.id for unit in told) == sorted(unit.id for unit in units)
    assert list(found.waiting) == [unit for unit in units if unit in found.waiting]
    for bundle in found.bundles:
        check_bundle(bundle, terms)


@given(worlds(), st.integers(0, 40), st.booleans())
@pytest.mark.req("P2-3.2.2-09", "P2-3.10.1-05", "P2-3.10.1-08")
def test_a_series_leaves_in_order_and_without_gaps(world: World, seconds: int, drain: bool) -> None:
    (units, terms), found, _ = planned(world, seconds, drain=drain)
    left = [unit for bundle in found.bundles for unit in delivered(bundle, terms)]
    failed = set(found.lonely)
    submitted = series_of([unit for unit in units if unit not in failed])
    for name, ids in series_of(left).items():
        assert ids == submitted[name][: len(ids)]


@given(worlds(), st.integers(0, 40))
@pytest.mark.req("P2-3.6.3-03", "P2-3.6.3-04")
def test_a_unit_in_order_has_no_primary_that_forgets_the_order(world: World, seconds: int) -> None:
    (_, terms), found, _ = planned(world, seconds)
    for primary, *others in found.bundles:
        lead = terms[primary.pmode]
        for unit in others:
            own = terms[unit.pmode]
            if own.in_order:
                assert lead.ordering != "undefined"
                assert lead.in_order
                assert own.correlation == lead.correlation


@given(worlds(), st.integers(0, 40))
@pytest.mark.req("P2-3.5-06")
def test_only_who_must_be_bundled_and_found_nobody_in_time_is_lonely(
    world: World, seconds: int
) -> None:
    (_, terms), found, now = planned(world, seconds)
    for unit in found.lonely:
        own = terms[unit.pmode]
        assert own.policy == "always"
        assert deadline(unit, terms) <= now
        for other in found.waiting:
            if unit.series is None and other.series is None:
                pair = plan([unit, other], terms, now, limits=LIMITS)
                assert all(len(bundle) == 1 for bundle in pair.bundles)


@given(worlds(), st.integers(0, 40))
def test_who_waits_has_time_and_is_woken_when_the_first_has_not(world: World, seconds: int) -> None:
    (units, terms), found, now = planned(world, seconds)
    late = {unit for unit in found.waiting if deadline(unit, terms) <= now}
    for unit in late:
        before = units[: units.index(unit)]
        series = (unit.destination, unit.series)
        assert unit.series is not None
        assert any(
            other in found.waiting and (other.destination, other.series) == series
            for other in before
        )
    times = [deadline(unit, terms) for unit in found.waiting if unit not in late]
    assert found.wake == min(times, default=None)


@given(worlds(), st.integers(0, 40))
def test_the_same_is_planned_each_time(world: World, seconds: int) -> None:
    _, found, _ = planned(world, seconds)
    assert planned(world, seconds)[1] == found


@given(worlds())
@pytest.mark.req("P2-3.3-10")
def test_planned_at_each_arrival_and_wake_up_nobody_is_late_lost_or_out_of_order(
    world: World,
) -> None:
    units, terms = world
    arrivals = sorted(units, key=lambda unit: unit.at)
    waiting: list[Waiting] = []
    gone: list[Waiting] = []
    failed: list[Waiting] = []
    times: dict[str, datetime] = {}
    wake: datetime | None = None
    while arrivals or waiting:
        now = min(time for time in (wake, arrivals[0].at if arrivals else None) if time)
        while arrivals and arrivals[0].at <= now:
            waiting.append(arrivals.pop(0))
        found = plan(waiting, terms, now, limits=LIMITS)
        for bundle in found.bundles:
            check_bundle(bundle, terms)
            gone += delivered(bundle, terms)
        failed += found.lonely
        times |= {unit.id: now for unit in waiting if unit not in found.waiting}
        waiting, wake = list(found.waiting), found.wake
    submitted = sorted(units, key=lambda unit: unit.at)
    assert sorted(one.id for one in (*gone, *failed)) == sorted(one.id for one in units)
    assert series_of(gone) == series_of([unit for unit in submitted if unit not in failed])
    for place, unit in enumerate(submitted):
        before = [
            one
            for one in submitted[:place]
            if unit.series and (one.destination, one.series) == (unit.destination, unit.series)
        ]
        assert times[unit.id] <= max(deadline(one, terms) for one in (unit, *before))


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.lists(st.binary(max_size=200), max_size=3), st.integers(0, 9), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(("undefined", "documentorder", "timestamp")),
)
def test_a_bundle_comes_apart_into_what_was_put_into_it(
    given_units: list[tuple[list[bytes], int, bool]], policy: str
) -> None:
    world = AGREED[policy]
    units = [
        world.unit(f"m{n}@x", *contents, seconds=seconds, conversation="c1" if first else "c2")
        for n, (contents, seconds, first) in enumerate(given_units)
    ]
    taken = unbundle(world.look(world.package(*units, pmode="catalogue")))
    assert taken.failures == ()
    assert [unit.failures for unit in taken.units] == [()] * len(units)
    assert [unit.message for unit in taken.units] == [unit.user_message for unit in units]
    assert [
        [b"".join(one.content.chunks()) for one in unit.payloads if one.content]
        for unit in taken.units
    ] == [contents for contents, _, _ in given_units]
    numbers = [number for partition in taken.partitions for number in partition]
    assert sorted(numbers) == list(range(len(units)))
    for partition in taken.partitions if policy != "undefined" else ():
        key = (lambda n: (given_units[n][1], n)) if policy == "timestamp" else (lambda n: n)
        assert list(partition) == sorted(partition, key=key)
        assert len({given_units[n][2] for n in partition}) == 1


def _ordered(policy: str) -> Agreed:
    scope = ", scope: [eb3:CollaborationInfo/eb3:ConversationId]" * (policy != "undefined")
    ordering = f"\n      ordering: {{policy: {policy}{scope}}}"
    return Agreed(catalogue=pmode_text("catalogue", "Update", BUNDLING + ordering))


AGREED = {policy: _ordered(policy) for policy in ("undefined", "documentorder", "timestamp")}
