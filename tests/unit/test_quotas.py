"""In whose names messages count that wait at a hub."""

import pytest

from postroad.agreement.quotas import STRANGERS, Allowance, accounts_of


def names(*given: object) -> list[str]:
    return [one.name for one in accounts_of(*given)]  # type: ignore[arg-type]


def test_a_certificate_is_a_sender_whatever_party_it_speaks_for() -> None:
    assert names("a", "192.0.2.1", b"x") == names("b", "192.0.2.2", b"x")
    assert names("a", "192.0.2.1", b"x") != names("a", "192.0.2.1", b"y")


def test_without_one_the_party_counts_with_its_address_the_address_and_all_strangers() -> None:
    sender, address, strangers = accounts_of("a", "192.0.2.1", None)
    assert (sender.said, address.said, strangers) == ("a at 192.0.2.1", "192.0.2.1", STRANGERS)
    assert sender.name not in names("a", "192.0.2.2", None)
    assert sender.name not in names("b", "192.0.2.1", None)
    assert address.name in names("b", "192.0.2.1", None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        (None, "somebody", False),
    ],
)
def test_neighbours_of_an_address_of_ipv6_are_one(
    one: str | None, other: str | None, same: bool
) -> None:
    assert (names("a", one, None) == names("a", other, None)) is same


def test_no_name_can_be_taken_for_one_of_another_kind() -> None:
    [known] = accounts_of("a", "192.0.2.1", b"x")
    claimed = accounts_of(known.said, None, None)
    assert known.name not in {one.name for one in claimed}


@pytest.mark.parametrize(
    ("messages", "size", "holds"), [(1, 10, True), (2, 10, False), (1, 11, False)]
)
def test_both_messages_and_bytes_are_limited(messages: int, size: int, holds: bool) -> None:
    assert Allowance(messages=1, bytes=10).holds(messages, size) is holds
    assert Allowance().holds(messages, size)
