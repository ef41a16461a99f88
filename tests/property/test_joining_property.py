"""Split, then joined, is the identity; and whatever is changed on the way has its error."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from postroad.msh.fragment_group import Arrival, Group, Standing, Terms, header_of
from postroad.msh.inspection import Look
from postroad.msh.joined import arrival_of, capture_joined, header_mismatch, joined_pieces
from postroad.msh.joining import Decision, opened
from postroad.msh.lens import Lens
from postroad.wire.content import BytesSink, read_all
from postroad.wire.ebms3 import Messaging, Property
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import COMPRESSION_ALGORITHMS, MessageHeader
from postroad.wire.limits import MIB
from postroad.wire.soap import SoapVersion
from tests.changing import replace
from tests.unit.splits import MADE, ROUTING, Cut, Receiver, arrival, captured, cut, source

HOUR = timedelta(hours=1)
PHOTOS = st.one_of(
    st.binary(max_size=3000),
    st.builds(lambda word, n: word * n, st.binary(min_size=1, max_size=30), st.integers(1, 2000)),
)


@st.composite
def cuts(draw: st.DrawFn, most: int = 25) -> Cut:
    """Any message, cut into not too many fragments."""
    given_source = source(
        draw(PHOTOS), version=draw(st.sampled_from(SoapVersion)), mtom=draw(st.booleans())
    )
    algorithm = draw(st.sampled_from([None, *COMPRESSION_ALGORITHMS]))
    whole = cut(given_source, MIB, algorithm=algorithm).data.size
    size = draw(st.integers(max(1, whole // most + 1), whole + 10))
    return cut(given_source, size, algorithm=algorithm, streamed=draw(st.booleans()))


@given(made=cuts(), data=st.data(), agreed=st.booleans())
def test_split_then_join_is_the_identity(made: Cut, data: st.DataObject, agreed: bool) -> None:
    """In any order, with any retries between, in any coding, over the wire."""
    size = made.splitting.fragment_size
    receiver = Receiver(Terms(HOUR, size if agreed else None, ROUTING))
    order = data.draw(st.permutations(range(1, made.count + 1)))
    again = data.draw(st.lists(st.sampled_from(order), max_size=5))
    came: set[int] = set()
    spans: list[tuple[int, int]] = []
    for number in data.draw(st.permutations([*order, *again])):
        piece = made.fragment(number)
        look = Look(captured(made.form(piece)), Lens(MADE))
        assert look.read()
        look.judge(None)
        one = arrival_of(look.found)
        assert one is not None
        verdict = receiver.take(one, look.found.attachments[piece.data_id].content)
        assert verdict.errors == ()
        assert verdict.decision is (Decision.AGAIN if number in came else Decision.STORE)
        came.add(number)
        if verdict.decision is Decision.STORE:
            assert verdict.offset is not None
            spans.append((verdict.offset, one.size))
        whole = len(came) == made.count
        assert verdict.group.standing is (Standing.WHOLE if whole else Standing.GATHERING)
    spans.sort()
    assert all(at + n == after for (at, n), (after, _) in itertools.pairwise(spans))
    _is_the_source(made, verdict.group, receiver)


def _is_the_source(made: Cut, group: Group, receiver: Receiver) -> None:
    plain = b"".join(joined_pieces(group, receiver.data(group)))
    assert len(plain) == made.whole.message_size
    if not group.compressed:
        assert plain == read_all(made.data, MIB)
    capture = capture_joined(group, receiver.data(group), new_sink=BytesSink)
    assert capture.problems == ()
    look = Look(capture, Lens(MADE))
    assert look.read()
    version = made.splitting.version.number
    assert header_mismatch(group, look.found.messaging, version) is None
    assert b"".join(joined_pieces(group, receiver.data(group))) == plain
    assert opened(group).standing is Standing.JOINED


class Mutation(NamedTuple):
    """A change of one field of a fragment, and the error that it must give."""

    code: str
    change: Callable[[Arrival, Group, Terms], Arrival]


def _field(name: str, value: object) -> Callable[[Arrival, Group, Terms], Arrival]:
    return lambda one, _group, _terms: replace(one, fragment=replace(one.fragment, **{name: value}))


def _header(**fields: object) -> Callable[[Arrival, Group, Terms], Arrival]:
    return lambda one, _group, _terms: replace(one, message=replace(one.message, **fields))


def _number(one: Arrival, group: Group, _terms: Terms) -> Arrival:
    assert group.count is not None
    return replace(one, fragment=replace(one.fragment, fragment_num=group.count + 1))


def _coding(one: Arrival, _group: Group, _terms: Terms) -> Arrival:
    fields = {"compression_algorithm": "identity", "compressed_message_size": 10_000}
    return replace(one, fragment=replace(one.fragment, **fields))


def _size(one: Arrival, _group: Group, terms: Terms) -> Arrival:
    assert terms.fragment_size is not None
    return replace(one, size=terms.fragment_size + 1)


MUTATIONS = {
    "MessageSize": Mutation("EBMS:0041", _field("message_size", 10_000)),
    "FragmentCount": Mutation("EBMS:0042", _field("fragment_count", 30)),
    "MessageHeader": Mutation(
        "EBMS:0043", _field("message_header", MessageHeader("b", "text/xml", "a@b"))
    ),
    "Action": Mutation("EBMS:0044", _field("action", "other")),
    "Compression": Mutation("EBMS:0045", _coding),
    "FragmentNum of another": Mutation("EBMS:0046", _field("fragment_num", 1)),
    "structure": Mutation(
        "EBMS:0047", lambda one, _g, _t: replace(one, problems=(EbmsError("EBMS:0047", "x"),))
    ),
    "FragmentNum": Mutation("EBMS:0048", _number),
    "data": Mutation("EBMS:0050", _size),
    "mpc": Mutation("EBMS:0053", _header(mpc="urn:example:other")),
    "properties": Mutation("EBMS:0053", _header(properties=(Property("lane", "8"),))),
    "SOAP": Mutation("EBMS:0053", lambda one, _g, _t: replace(one, soap="1.0")),
}


@pytest.mark.parametrize("name", MUTATIONS)
@given(count=st.integers(3, 8), data=st.data())
def test_every_change_of_a_fragment_has_its_error(
    name: str, count: int, data: st.DataObject
) -> None:
    """Once the first fragment told what a group says once, whichever came meanwhile."""
    size = source().body.size
    made = cut(size=-(-size // count), algorithm="identity")
    assume(made.count > 2)
    terms = Terms(HOUR, made.splitting.fragment_size, ROUTING)
    receiver = Receiver(terms)
    others = data.draw(st.permutations(range(2, made.count + 1)))
    before = data.draw(st.integers(0, len(others) - 1))
    for number in data.draw(st.permutations([1, *others[:before]])):
        piece = made.fragment(number)
        assert receiver.take(arrival(piece), piece.data).decision is Decision.STORE
    (group,) = receiver.groups.values()
    piece = made.fragment(others[before])
    mutation = MUTATIONS[name]
    verdict = receiver.take(mutation.change(arrival(piece), group, terms), piece.data)
    assert verdict.decision is Decision.REFUSE
    assert verdict.errors[0].code == mutation.code
    assert verdict.erases
    for number in range(1, made.count + 1):
        later = made.fragment(number)
        assert receiver.take(arrival(later), later.data).errors[0].code == "EBMS:0040"


@given(
    seen=st.lists(st.integers(1, 50), min_size=1, max_size=10, unique=True),
    count=st.integers(1, 60),
    number=st.integers(1, 60),
)
def test_count_and_numbers_are_held_against_each_other(
    seen: list[int], count: int, number: int
) -> None:
    """Whichever comes first, the count or a number above it."""
    assume(number not in seen)
    assume(number <= count)
    one = arrival(cut(size=10, streamed=True).fragment(2))
    receiver = Receiver(Terms(HOUR, 10, ROUTING))

    def take(number: int, count: int | None) -> Decision | str:
        info = replace(one.message.message_info, message_id=f"{number}@x")
        fields = {"fragment_num": number, "fragment_count": count}
        came = replace(
            one,
            message=replace(one.message, message_info=info),
            fragment=replace(one.fragment, **fields),
        )
        verdict = receiver.take(came, made_of)
        return verdict.errors[0].code if verdict.errors else verdict.decision

    made_of = cut().data
    for other in seen:
        assert take(other, None) is Decision.STORE
    told = take(number, count)
    if count < max(seen):
        assert told == "EBMS:0049"
        return
    if told != "EBMS:0009":  # all are there, and none had the header of the whole
        assert told is Decision.STORE
        assert take(count + 1, None) == "EBMS:0048"


@given(made=cuts(most=4))
def test_what_fragments_copy_is_what_the_source_says(made: Cut) -> None:
    group = header_of(made.fragment(1).user_message)
    assert all(header_of(piece.user_message) == group for piece in made.fragments())
    message = made.splitting.messaging.user_messages[0]
    whole = Group("s", "g", header=group, soap="1.2")
    assert header_mismatch(whole, Messaging((message,)), "1.2") is None
