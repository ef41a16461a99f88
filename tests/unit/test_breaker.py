"""When a partner is left alone: paused after failures, probed, suspended, resumed."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from postroad.reliability.breaker import (
    TABLE,
    Breaker,
    Gate,
    Input,
    Partner,
    address_name,
    address_of,
    asked,
    by_party,
    failed,
    halted,
    heard_from,
    is_of,
    is_served,
    party_of,
    probed,
    reached,
    resumed,
)

T0: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
BREAKER: Final = Breaker(failures=3, pause=10 * SECOND, longest=60 * SECOND)
WELL: Final = Partner("seller")
PAUSED: Final = Partner("seller", Gate.PAUSED, 3, 1, T0 + 10 * SECOND, T0, "no connection")
PATIENCE: Final = 30 * SECOND


def failing(partner: Partner, times: int, breaker: Breaker = BREAKER) -> Partner:
    for _ in range(times):
        partner = failed(partner, breaker, T0, "no connection")
    return partner


def probing(partner: Partner) -> Partner:
    assert partner.until is not None
    found = probed(partner, partner.until, PATIENCE)
    assert found is not None
    return found


def test_the_table_is_this() -> None:
    flowing, paused, probe, suspended = Gate
    assert {gate: dict(row) for gate, row in TABLE.items()} == {
        flowing: {
            Input.REACHED: flowing,
            Input.FAILED: flowing,
            Input.FAILED_TOO_OFTEN: paused,
            Input.ASKED: paused,
            Input.HALTED: suspended,
        },
        paused: {
            Input.REACHED: flowing,
            Input.ASKED: paused,
            Input.HEARD_FROM: paused,
            Input.PAUSE_OVER: probe,
            Input.HALTED: suspended,
            Input.RESUMED: flowing,
        },
        probe: {
            Input.REACHED: flowing,
            Input.FAILED: paused,
            Input.FAILED_TOO_OFTEN: paused,
            Input.ASKED: paused,
            Input.PAUSE_OVER: probe,
            Input.HALTED: suspended,
            Input.RESUMED: flowing,
        },
        suspended: {Input.RESUMED: flowing},
    }


def test_a_sign_of_life_ends_a_pause_early_once() -> None:
    breaker = Breaker(1, 30 * SECOND, 60 * SECOND)
    paused = failed(WELL, breaker, T0, "down")
    assert heard_from(paused, breaker, T0 + SECOND).until == T0 + 5 * SECOND
    heard = heard_from(paused, breaker, T0 + 20 * SECOND)
    assert (heard.gate, heard.until) == (Gate.PAUSED, T0 + 20 * SECOND)
    assert heard_from(heard, breaker, T0 + 10 * SECOND) == heard
    probing = probed(heard, T0 + 20 * SECOND, PATIENCE)
    assert probing is not None
    again = failed(probing, breaker, T0 + 21 * SECOND, "down")
    assert again.until == T0 + 81 * SECOND
    assert heard_from(again, breaker, T0 + 40 * SECOND).until == T0 + 40 * SECOND


def test_a_sign_of_life_changes_nothing_else() -> None:
    breaker = Breaker()
    left_alone = asked(WELL, T0, 90 * SECOND, "come again")
    for one in (WELL, left_alone, halted(WELL, T0, "stop")):
        assert heard_from(one, breaker, T0 + SECOND) == one


def test_a_partner_that_asks_for_it_is_left_alone_so_long() -> None:
    partner = asked(WELL, T0, 90 * SECOND, "come again")
    assert (partner.gate, partner.until) == (Gate.PAUSED, T0 + 90 * SECOND)
    sooner = asked(partner, T0, 5 * SECOND, "come again")
    assert sooner.until == partner.until
    assert probed(partner, T0 + 89 * SECOND, PATIENCE) is None
    suspended = halted(WELL, T0, "stop")
    assert asked(suspended, T0, 5 * SECOND, "come again") == suspended


def test_a_few_failures_pause_nobody() -> None:
    partner = failing(WELL, 2)
    assert (partner.gate, partner.failures, partner.detail) == (Gate.FLOWING, 2, "no connection")
    assert not partner.is_well


def test_failures_in_a_row_pause_a_partner() -> None:
    assert failing(WELL, 3) == PAUSED


def test_a_success_between_them_begins_the_row_anew() -> None:
    assert failing(reached(failing(WELL, 2)), 2).gate is Gate.FLOWING
    assert reached(failing(WELL, 2)) == WELL


def test_without_a_number_of_failures_nobody_is_paused() -> None:
    assert failing(WELL, 1000, changed(BREAKER, failures=0)).gate is Gate.FLOWING


def test_failures_of_what_was_under_way_make_a_pause_no_longer() -> None:
    assert failing(PAUSED, 100) == PAUSED


def test_nobody_probes_before_the_pause_is_over() -> None:
    assert probed(PAUSED, T0 + 10 * SECOND - timedelta(microseconds=1), PATIENCE) is None
    assert probed(WELL, T0, PATIENCE) is None


def test_one_message_probes_when_the_pause_is_over() -> None:
    probe = probing(PAUSED)
    assert probe.gate is Gate.PROBING
    assert probed(probe, T0 + 10 * SECOND, PATIENCE) is None


def test_another_probes_when_nothing_was_heard_of_the_first() -> None:
    again = probing(probing(PAUSED))
    assert (again.gate, again.until) == (Gate.PROBING, T0 + 10 * SECOND + 2 * PATIENCE)


def test_a_probe_that_gets_through_ends_everything() -> None:
    assert reached(probing(PAUSED)) == WELL


def test_pauses_grow_up_to_the_longest() -> None:
    partner, pauses = PAUSED, []
    for _ in range(5):
        probe = probing(partner)
        partner = failed(probe, BREAKER, T0, "no connection")
        assert partner.until is not None
        pauses.append((partner.until - T0) / SECOND)
    assert pauses == [20, 40, 60, 60, 60]


def test_it_is_known_since_when_a_partner_is_left_alone() -> None:
    later = failed(probing(PAUSED), BREAKER, T0 + 99 * SECOND, "no connection")
    assert later.since == T0


def test_after_very_many_pauses_one_is_as_long_as_the_longest() -> None:
    old = changed(PAUSED, gate=Gate.PROBING, pauses=10**6)
    assert failed(old, BREAKER, T0, "").until == T0 + BREAKER.longest


def test_after_a_success_the_first_pause_is_short_again() -> None:
    long_ago = failed(probing(PAUSED), BREAKER, T0, "no connection")
    assert failing(reached(probing(long_ago)), 3).until == T0 + BREAKER.pause


def test_an_attempt_from_before_the_pause_that_got_through_ends_it() -> None:
    assert reached(PAUSED) == WELL


@pytest.mark.req("RM001-2.6.8-01")
@pytest.mark.parametrize("partner", [WELL, PAUSED, probing(PAUSED)], ids=lambda one: one.gate)
def test_a_suspended_partner_waits_whatever_happens(partner: Partner) -> None:
    stopped = halted(partner, T0, "no retry is left")
    assert (stopped.gate, stopped.until, stopped.since) == (Gate.SUSPENDED, None, T0)
    assert stopped.detail == "no retry is left"
    later = T0 + timedelta(days=365)
    assert probed(stopped, later, PATIENCE) is None
    assert reached(stopped) == failing(stopped, 9) == halted(stopped, later, "again") == stopped


@pytest.mark.req("RM001-2.6.8-03")
@pytest.mark.parametrize("partner", [PAUSED, probing(PAUSED), halted(WELL, T0, "")])
def test_an_administrator_resumes(partner: Partner) -> None:
    assert resumed(partner) == WELL


def test_what_flows_cannot_be_resumed() -> None:
    assert resumed(WELL) is None
    assert resumed(failing(WELL, 2)) is None


@given(st.lists(st.sampled_from(("failed", "reached", "probed", "halted", "resumed"))))
def test_whatever_happens_a_pause_has_an_end_and_only_an_administrator_ends_a_suspension(
    steps: list[str],
) -> None:
    partner, now = WELL, T0
    for step in steps:
        before = partner
        now += 7 * SECOND
        if step == "failed":
            partner = failed(partner, BREAKER, now, "no connection")
        elif step == "reached":
            partner = reached(partner)
        elif step == "probed":
            partner = probed(partner, now, PATIENCE) or partner
        elif step == "halted":
            partner = halted(partner, now, "")
        else:
            partner = resumed(partner) or partner
        assert (partner.until is not None) == (partner.gate in (Gate.PAUSED, Gate.PROBING))
        assert partner.gate is Gate.FLOWING or partner.since is not None
        if before.gate is Gate.SUSPENDED and step != "resumed":
            assert partner == before


def test_a_breaker_is_of_a_party_or_of_one_of_its_addresses() -> None:
    name = address_name("urn:example:seller", "http://seller.example/msh")
    assert (party_of(name), address_of(name)) == ("urn:example:seller", "http://seller.example/msh")
    assert (party_of("seller"), address_of("seller")) == ("seller", None)
    assert is_of(name, "urn:example:seller")
    assert is_of(name, name)
    assert not is_of("urn:example:seller", name)
    assert not is_of(name, "urn:example:sell")
    assert is_served(name, ["urn:example:sell"])
    assert not is_served(name, ["urn:example:seller"])
    assert not is_served(name, [name])


def test_a_party_is_as_it_is_itself_or_as_its_worst_address() -> None:
    one = Partner(address_name("seller", "b"), failures=1, detail="once")
    two = changed(PAUSED, name=address_name("seller", "a"))
    [party] = by_party([one, two])
    assert (party.name, party.gate, party.until) == ("seller", Gate.PAUSED, PAUSED.until)
    assert [(each.name, each.gate) for each in party.addresses] == [
        ("a", Gate.PAUSED),
        ("b", Gate.FLOWING),
    ]
    [party] = by_party([one, two, halted(WELL, T0, "stop")])
    assert (party.gate, party.detail, len(party.addresses)) == (Gate.SUSPENDED, "stop", 2)
    found = by_party([Partner("b", failures=1), two])
    assert [each.name for each in found] == ["b", "seller"]
