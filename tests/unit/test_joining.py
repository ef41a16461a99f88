"""What each fragment does to its group: every rule of Part 2 section 4.3.2, every row of 4.6."""

from datetime import timedelta

import msgspec
import pytest

from postroad.msh.fragment_group import (
    TABLE,
    Arrival,
    Group,
    Input,
    Standing,
    Terms,
    expected,
    sender_of,
)
from postroad.msh.joining import (
    Decision,
    Verdict,
    opened,
    out_of_space,
    overdue,
    unopened,
)
from postroad.reliability.tables import Impossible
from postroad.wire.content import BytesContent, read_all
from postroad.wire.ebms3 import Party, PartyId, Property
from postroad.wire.errors import ERRORS, Category, EbmsError, Severity
from postroad.wire.fragments import MessageHeader
from postroad.wire.limits import MIB
from tests.changing import replace
from tests.unit.splits import MADE, ROUTING, Cut, Receiver, arrival, cut, source

HOUR = timedelta(hours=1)
TERMS = Terms(HOUR, 100, ROUTING)
HEADER = MessageHeader("b", "text/xml", "a@b")


def made(count: int = 4, **more: object) -> Cut:
    """A message in that many fragments of 100 bytes."""
    size = source(b"").body.size
    photo = bytes((count * 100 - size) % (count * 100)) if count * 100 > size else b""
    return cut(source(photo), size=100, **more)


def came(given: Cut, number: int, message_id: str | None = None) -> Arrival:
    return arrival(given.fragment(number, message_id))


def changed(one: Arrival, **fields: object) -> Arrival:
    return replace(one, fragment=replace(one.fragment, **fields))


def taken(receiver: Receiver, one: Arrival) -> Verdict:
    return receiver.take(one, BytesContent(bytes(one.size)))


def begun(*numbers: int, given: Cut, terms: Terms = TERMS, room: int | None = None) -> Receiver:
    """A receiver that has some fragments."""
    receiver = Receiver(terms, room)
    for number in numbers:
        assert taken(receiver, came(given, number)).decision is Decision.STORE
    return receiver


def only(receiver: Receiver) -> Group:
    (group,) = receiver.groups.values()
    return group


BIG = made(20)
PLAIN_2 = came(BIG, 2)


@pytest.mark.req("P2-4.3.2-05")
def test_a_group_is_whole_when_all_its_fragments_are_there() -> None:
    given = cut(size=300)
    receiver = Receiver(Terms(HOUR, 300, ROUTING))
    numbers = list(range(given.count, 0, -1))
    for number in numbers:
        verdict = receiver.take(came(given, number), given.fragment(number).data)
        assert verdict.decision is Decision.STORE
        last = number == 1
        assert verdict.group.standing is (Standing.WHOLE if last else Standing.GATHERING)
    group = only(receiver)
    assert (group.received, group.size) == (given.count, given.data.size)
    assert read_all(receiver.data(group), MIB) == source().bytes


@pytest.mark.req("P2-4.3.2-05", "P2-4.3.2-06", "P2-4.3.2-08")
def test_what_is_said_once_is_recorded_whenever_it_comes() -> None:
    receiver = begun(3, 2, given=BIG)
    assert only(receiver).count is None
    taken(receiver, came(BIG, 1))
    group = only(receiver)
    assert group.count == BIG.count
    assert group.message_size == BIG.data.size
    assert group.message_header == BIG.splitting.head.header
    assert group.action == "leasing"
    assert group.highest == 3


def refusal(receiver: Receiver, one: Arrival, code: str) -> Verdict:
    """The fragment is refused for that and nothing else, and its group with it."""
    verdict = taken(receiver, one)
    assert verdict.decision is Decision.REFUSE
    assert verdict.errors[0].code == code, verdict.errors
    assert verdict.errors[0].ref == one.message_id
    assert verdict.group.standing is Standing.REJECTED
    assert verdict.erases
    assert any(error.severity is Severity.FAILURE for error in verdict.errors)
    return verdict


TOLD = BIG.fragment(1).message_fragment

REPEATED = [
    pytest.param("EBMS:0041", {"message_size": 5000}, marks=pytest.mark.req("P2-4.6-03")),
    pytest.param("EBMS:0041", {"message_size": TOLD.message_size}),
    pytest.param(
        "EBMS:0042",
        {"fragment_count": 21},
        marks=pytest.mark.req("P2-4.6-04", "P2-4.3.2-06"),
    ),
    pytest.param("EBMS:0042", {"fragment_count": TOLD.fragment_count}),
    pytest.param("EBMS:0043", {"message_header": HEADER}, marks=pytest.mark.req("P2-4.6-05")),
    pytest.param("EBMS:0043", {"message_header": TOLD.message_header}),
    pytest.param("EBMS:0044", {"action": "other"}, marks=pytest.mark.req("P2-4.6-06")),
    pytest.param("EBMS:0044", {"action": "leasing"}),
]


@pytest.mark.req("P2-4.3.2-08")
@pytest.mark.parametrize(("code", "fields"), REPEATED)
def test_what_is_said_twice_is_rejected_even_if_it_is_the_same(
    code: str, fields: dict[str, object]
) -> None:
    refusal(begun(1, given=BIG), changed(PLAIN_2, **fields), code)


@pytest.mark.req("P2-4.6-07", "P2-4.3.2-08")
@pytest.mark.parametrize(("algorithm", "size"), [("gzip", 1), ("identity", 1), ("deflate", None)])
def test_compression_that_is_told_twice_is_rejected(algorithm: str, size: int | None) -> None:
    given = made(20, algorithm="identity")
    again = {
        "compression_algorithm": algorithm,
        "compressed_message_size": size or given.data.size,
    }
    refusal(begun(1, given=given), changed(came(given, 2), **again), "EBMS:0045")


@pytest.mark.req("P2-4.6-02", "P2-4.3.2-02", "P2-4.3.2-17")
def test_a_fragment_of_a_rejected_group_is_rejected() -> None:
    receiver = begun(1, given=BIG)
    refusal(receiver, changed(PLAIN_2, fragment_count=20), "EBMS:0042")
    for number in (1, 2, 3):
        refusal(receiver, came(BIG, number), "EBMS:0040")


@pytest.mark.req("P2-4.6-08", "P2-4.3.2-03")
def test_a_number_that_came_in_another_message_is_rejected_and_the_data_deleted() -> None:
    receiver = begun(1, 2, given=BIG)
    refusal(receiver, came(BIG, 2, "another@buyer.example"), "EBMS:0046")
    assert list(receiver.there.values()) == [{}]


def test_a_fragment_that_comes_again_under_its_id_is_a_retry() -> None:
    receiver = begun(1, 2, given=BIG)
    before = only(receiver)
    verdict = taken(receiver, PLAIN_2)
    assert verdict.decision is Decision.AGAIN
    assert verdict.group == before
    assert verdict.errors == ()
    assert not verdict.erases


@pytest.mark.req("P2-4.6-09")
def test_a_fragment_of_bad_structure_is_rejected() -> None:
    problem = EbmsError("EBMS:0047", "there are other parts")
    refusal(begun(1, given=BIG), replace(PLAIN_2, problems=(problem,)), "EBMS:0047")


@pytest.mark.req("P2-4.6-10", "P2-4.3.2-04")
def test_a_number_above_the_known_count_is_rejected() -> None:
    refusal(begun(1, given=BIG), changed(PLAIN_2, fragment_num=BIG.count + 1), "EBMS:0048")
    receiver = begun(1, given=BIG)
    last = came(BIG, BIG.count)
    assert taken(receiver, last).decision is Decision.STORE


@pytest.mark.req("P2-4.6-11", "P2-4.3.2-06")
def test_a_count_below_a_number_that_came_is_rejected() -> None:
    one = came(BIG, 1)
    refusal(begun(5, given=BIG), changed(one, fragment_count=4), "EBMS:0049")
    receiver = begun(5, given=BIG)
    assert taken(receiver, changed(one, fragment_count=5)).decision is Decision.STORE


@pytest.mark.req("P2-4.6-12", "P2-4.3.2-07")
def test_more_data_than_agreed_is_a_warning_with_a_failure_beside_it() -> None:
    verdict = refusal(begun(1, given=BIG), replace(PLAIN_2, size=101), "EBMS:0050")
    assert [(error.code, error.severity) for error in verdict.errors] == [
        ("EBMS:0050", Severity.WARNING),
        ("EBMS:0040", Severity.FAILURE),
    ]


def test_where_no_size_was_agreed_any_will_do() -> None:
    receiver = begun(1, given=BIG, terms=Terms(HOUR, None, ROUTING))
    assert taken(receiver, replace(PLAIN_2, size=1000)).decision is Decision.STORE


@pytest.mark.req("P2-4.6-13")
def test_a_fragment_after_the_join_interval_is_rejected() -> None:
    receiver = begun(1, given=BIG)
    receiver.now = MADE + HOUR
    assert taken(receiver, came(BIG, 3)).decision is Decision.STORE
    receiver.now += timedelta(microseconds=1)
    refusal(receiver, PLAIN_2, "EBMS:0051")


@pytest.mark.req("P2-4.6-13")
def test_a_group_that_is_not_whole_in_time_is_rejected_by_itself() -> None:
    receiver = begun(2, 3, given=BIG)
    group = only(receiver)
    assert group.until == MADE + HOUR
    assert overdue(group, MADE + HOUR) is None
    verdict = overdue(group, MADE + HOUR + timedelta(seconds=1))
    assert verdict is not None
    assert verdict.group.standing is Standing.REJECTED
    assert verdict.erases
    (error,) = verdict.errors
    assert error.code == "EBMS:0051"
    assert error.ref == came(BIG, 2).message_id


def test_a_whole_group_has_no_hurry() -> None:
    given = cut(size=MIB)
    receiver = begun(1, given=given, terms=Terms(HOUR))
    assert overdue(only(receiver), MADE + 2 * HOUR) is None


@pytest.mark.req("P2-4.6-14")
def test_properties_that_were_not_agreed_are_a_warning_and_the_fragment_is_taken() -> None:
    message = PLAIN_2.message
    with_more = replace(message, properties=(*message.properties, Property("secret", "x")))
    receiver = Receiver(TERMS)
    verdict = taken(receiver, replace(PLAIN_2, message=with_more))
    assert verdict.decision is Decision.STORE
    (error,) = verdict.errors
    assert (error.code, error.severity) == ("EBMS:0052", Severity.WARNING)
    assert "secret" in error.detail
    assert "region" not in error.detail


@pytest.mark.req("P2-4.6-15")
def test_fragments_that_do_not_say_the_same_are_rejected() -> None:
    message = came(BIG, 1).message
    others = [
        replace(message, mpc="urn:example:other"),
        replace(message, properties=(Property("region", "south"),)),
        replace(message, to_party=Party((PartyId("other", "urn:example"),), "Seller")),
        replace(message, message_info=replace(message.message_info, ref_to_message_id=None)),
    ]
    for other in others:
        refusal(begun(1, given=BIG), replace(PLAIN_2, message=other), "EBMS:0053")
    refusal(begun(1, given=BIG), replace(PLAIN_2, soap="1.1"), "EBMS:0053")


@pytest.mark.req("P2-4.6-16", "P2-4.3.2-09", "P2-4.3.2-10")
def test_a_group_for_which_there_is_no_room_is_rejected_when_that_is_known() -> None:
    one = came(BIG, 1)
    refusal(Receiver(TERMS, room=BIG.data.size - 1), one, "EBMS:0054")
    assert taken(Receiver(TERMS, room=BIG.data.size), one).decision is Decision.STORE
    receiver = begun(2, 3, given=BIG, room=200)
    refusal(receiver, came(BIG, 4), "EBMS:0054")


@pytest.mark.req("P2-4.6-16")
def test_a_disk_that_fills_in_the_middle_rejects_the_group() -> None:
    group = only(begun(2, 3, given=BIG))
    verdict = out_of_space(group, "three@buyer.example")
    assert verdict.erases
    (error,) = verdict.errors
    assert (error.code, error.ref) == ("EBMS:0054", "three@buyer.example")
    assert out_of_space(verdict.group).group.standing is Standing.REJECTED


def test_more_fragments_than_a_node_bears_are_rejected() -> None:
    terms = replace(TERMS, most_fragments=10)
    refusal(Receiver(terms), changed(PLAIN_2, fragment_num=11), "EBMS:0054")
    refusal(Receiver(terms), came(BIG, 1), "EBMS:0054")
    refusal(Receiver(replace(TERMS, most_bytes=100)), came(BIG, 1), "EBMS:0054")


@pytest.mark.req("P2-4.6-17", "P2-4.6-15", "P2-4.3.2-16")
@pytest.mark.parametrize("code", ["EBMS:0053", "EBMS:0055"])
def test_a_joined_message_that_does_not_open_rejects_its_group(code: str) -> None:
    given = cut(size=MIB)
    receiver = begun(1, given=given, terms=Terms(HOUR))
    verdict = unopened(only(receiver), EbmsError(code, "it is not whole"))
    assert verdict.erases
    assert [error.code for error in verdict.errors] == [code]


def test_a_joined_message_is_not_harmed_by_fragments_that_follow() -> None:
    given = cut(size=300)
    receiver = Receiver(Terms(HOUR, 300, ROUTING))
    for number in range(1, given.count + 1):
        taken(receiver, came(given, number))
    key, group = next(iter(receiver.groups.items()))
    receiver.groups[key] = opened(group)
    assert taken(receiver, came(given, 1)).decision is Decision.AGAIN
    receiver.there[key].clear()
    for number, code in ((1, "EBMS:0046"), (given.count + 1, "EBMS:0048")):
        other = changed(came(given, 2, "another@buyer.example"), fragment_num=number)
        verdict = taken(receiver, other)
        assert verdict.decision is Decision.REFUSE
        assert verdict.errors[0].code == code
        assert verdict.group.standing is Standing.JOINED
        assert not verdict.erases


def test_a_whole_group_is_still_rejected_by_a_hostile_duplicate() -> None:
    given = cut(size=MIB)
    receiver = begun(1, given=given, terms=Terms(HOUR))
    verdict = taken(receiver, came(given, 1, "another@buyer.example"))
    assert verdict.errors[0].code == "EBMS:0046"
    assert verdict.erases
    with pytest.raises(Impossible):
        opened(verdict.group)


@pytest.mark.req("P2-4.7-04", "P2-4.3.2-18")
def test_two_senders_may_use_one_group_id() -> None:
    receiver = begun(1, given=BIG)
    other = replace(PLAIN_2.message, from_party=Party((PartyId("thief", "urn:example"),), "Buyer"))
    for message in (other, replace(other, from_party=Party((PartyId("buyer"),), "Buyer"))):
        assert taken(receiver, replace(PLAIN_2, message=message)).decision is Decision.STORE
    assert len(receiver.groups) == 3
    bad = changed(replace(PLAIN_2, message=other, size=101), fragment_num=3)
    refusal(receiver, bad, "EBMS:0050")
    assert taken(receiver, PLAIN_2).decision is Decision.STORE


def test_senders_are_told_apart_whatever_is_in_their_ids() -> None:
    message = PLAIN_2.message
    many = replace(message, from_party=Party((PartyId("a"), PartyId("b")), "Buyer"))
    one = replace(message, from_party=Party((PartyId("a, b"),), "Buyer"))
    turned = replace(message, from_party=Party((PartyId("b"), PartyId("a")), "Buyer"))
    assert sender_of(many) == sender_of(turned)
    assert sender_of(many) != sender_of(one)


def test_fragments_that_add_up_to_something_else_are_rejected() -> None:
    given = made(20, algorithm="identity")
    receiver = Receiver(replace(TERMS, fragment_size=None))
    taken(receiver, came(given, 1))
    refusal(receiver, replace(came(given, 2), size=given.data.size), "EBMS:0003")
    two = cut(size=source().body.size - 1)
    shorter = begun(1, given=two, terms=Terms(HOUR))
    refusal(shorter, replace(came(two, 2), size=0), "EBMS:0003")


def test_a_group_of_which_nobody_told_the_mime_header_is_rejected() -> None:
    given = cut(size=MIB)
    refusal(Receiver(Terms(HOUR)), changed(came(given, 1), message_header=None), "EBMS:0009")


def test_another_coding_than_agreed_is_rejected() -> None:
    given = made(20, algorithm="deflate")
    refusal(Receiver(replace(TERMS, algorithm="gzip")), came(given, 1), "EBMS:0010")
    agreed = Receiver(replace(TERMS, algorithm="deflate"))
    assert taken(agreed, came(given, 1)).decision is Decision.STORE


def test_room_is_reserved_by_what_is_known() -> None:
    group = Group("s", "g", size=10)
    assert expected(group, TERMS) == 10
    assert expected(replace(group, count=7), TERMS) == 700
    assert expected(replace(group, count=7), Terms(HOUR)) == 10
    assert expected(replace(group, count=7, message_size=650), TERMS) == 650
    packed = replace(group, message_size=650, algorithm="gzip", compressed_size=65)
    assert expected(packed, TERMS) == 65 + 650
    assert expected(replace(packed, algorithm="identity", compressed_size=650), TERMS) == 650
    # What comes with the count comes late: it is presumed that it is compressed as agreed.
    agreed = replace(TERMS, algorithm="gzip")
    assert expected(replace(group, message_size=650), agreed) == 10 + 650
    assert expected(replace(group, message_size=650, count=7), agreed) == 650


def test_with_an_agreed_size_every_number_has_its_place() -> None:
    for number in (1, 2, 9):
        verdict = taken(Receiver(TERMS), came(BIG, number))
        assert verdict.offset == (number - 1) * 100
    loose = Receiver(Terms(HOUR, None, ROUTING))
    assert [taken(loose, came(BIG, number)).offset for number in (5, 1, 3)] == [0, 100, 200]


def test_a_group_can_be_written_down_and_read_again() -> None:
    for group in (
        only(begun(1, 2, given=BIG)),
        only(begun(1, given=made(20, algorithm="identity"))),
    ):
        assert msgspec.json.decode(msgspec.json.encode(group), type=Group) == group


def test_every_error_of_the_table_has_its_row() -> None:
    """Severity and category as section 4.6 has them."""
    content = {40, 41, 42, 43, 44, 45, 46, 48, 49}
    for number in range(40, 56):
        kind = ERRORS[f"EBMS:00{number}"]
        assert kind.severity is (Severity.WARNING if number in (50, 52) else Severity.FAILURE)
        if number in content:
            assert kind.category is Category.CONTENT
        else:
            expected = Category.PROCESSING if number == 55 else Category.UNPACKAGING
            assert kind.category is expected


def test_from_a_rejected_group_there_is_no_way_back() -> None:
    assert set(TABLE) == set(Standing)
    assert set(TABLE[Standing.REJECTED].values()) == {Standing.REJECTED}
    assert set(TABLE[Standing.JOINED].values()) == {Standing.JOINED}
    assert all(row.get(Input.WRONG) for row in TABLE.values())
