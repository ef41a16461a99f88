"""Channels: which are below others, and what a P-Mode says of its own."""

from datetime import timedelta

import pytest

from postroad.agreement.channels import channel_of, is_below, offering_of, signature_asked
from postroad.agreement.loading import load_pmodes
from postroad.agreement.pmode import PMode
from postroad.wire.names import DEFAULT_MPC

X = "http://buyer.example/mpc123"


def pulled(leg: str, initiator: str = "party: urn:a") -> PMode:
    text = f"id: p\nmep_binding: pull\ninitiator: {{{initiator}}}\nlegs: [{{{leg}}}]\n"
    [found] = load_pmodes(text, "p.yaml").pmodes
    return found


@pytest.mark.req("P2-2.5.4-05", "P2-2.5.4-06")
@pytest.mark.parametrize(
    ("channel", "parent", "below"),
    [
        (f"{X}/subc42", X, True),
        (f"{X}/a/b", f"{X}/a", True),
        (f"{X}/a", f"{X}/", True),
        (X, X, False),
        (X, f"{X}/a", False),
        (f"{X}4", X, False),
        (f"{X}/a", f"{X}/b", False),
        ("https://buyer.example/mpc123/a", X, False),
        ("http://seller.example/mpc123/a", X, False),
        ("http://buyer.example:81/mpc123/a", X, False),
        (f"{X}/a?b", X, False),
        ("urn:example:mpc/a", "urn:example:mpc", True),
        ("urn:example:mpc:a", "urn:example:mpc", False),
        (f"{DEFAULT_MPC}/a", DEFAULT_MPC, True),
    ],
)
def test_a_sub_channel_has_the_parents_scheme_authority_and_path(
    channel: str, parent: str, below: bool
) -> None:
    assert is_below(channel, parent) is below


def test_a_leg_names_its_channel_or_has_the_default_one() -> None:
    assert channel_of(pulled("").legs[0]) == DEFAULT_MPC
    assert channel_of(pulled(f"business_info: {{mpc: {X}}}").legs[0]) == X
    extended = f"business_info: {{mpc: {X}, sub_mpc_ext: a}}"
    assert channel_of(pulled(extended).legs[0]) == f"{X}/a"


def test_a_message_is_offered_as_long_as_both_limits_allow() -> None:
    receipt = "security: {send_receipt: true}"
    retry = "reception_awareness: {retry: {parameters: {time_to_live: %s}}}"
    for limits, ends in (
        ("", None),
        ("pulling: {keep: PT2H}", 2),
        ("reception_awareness: {retry: false}, pulling: {keep: PT2H}", 2),
        (retry % "PT1H", 1),
        (f"{retry % 'PT3H'}, pulling: {{keep: PT2H}}", 2),
        (f"{retry % 'PT1H'}, pulling: {{keep: PT2H}}", 1),
    ):
        policy = offering_of(pulled(f"{receipt}, {limits}").legs[0])
        assert policy is not None
        expected = None if ends is None else timedelta(hours=ends)
        assert policy.time_to_live == expected, limits


def test_without_retries_a_message_is_offered_once_only_where_that_is_said() -> None:
    receipt = "security: {send_receipt: true}"
    forever = offering_of(pulled(receipt).legs[0])
    assert forever is not None
    assert forever.retries is None
    assert offering_of(pulled(f"{receipt}, reception_awareness: {{retry: false}}").legs[0]) is None


@pytest.mark.parametrize(
    ("leg", "initiator", "asked"),
    [
        ("", "party: urn:a", False),
        ("security: {x509: {sign: true}}", "party: urn:a", True),
        (
            "security: {x509: {sign: true}}",
            "party: urn:a, authorization: {username: u, password: p}",
            False,
        ),
        (
            "security: {x509: {sign: true}}, pulling: {sign: true}",
            "party: urn:a, authorization: {username: u, password: p}",
            True,
        ),
        ("security: {x509: {sign: true}}, pulling: {sign: false}", "party: urn:a", False),
    ],
)
def test_a_request_is_signed_where_nothing_else_shows_who_asks(
    leg: str, initiator: str, asked: bool
) -> None:
    pmode = pulled(leg, initiator)
    assert signature_asked(pmode, pmode.legs[0]) is asked
