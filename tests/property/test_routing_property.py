"""Fragments, addressing and routing input: what is written is read again, and is canonical."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    PartInfo,
    Party,
    PartyId,
    Property,
    Service,
)
from postroad.wire.fragments import (
    COMPRESSION_ALGORITHMS,
    MAX_COUNT,
    MAX_SIZE,
    TYPES,
    MessageFragment,
    MessageHeader,
    read_message_fragment,
    write_message_fragment,
)
from postroad.wire.multihop import (
    RoutingInput,
    RoutingUserMessage,
    infer_pull,
    infer_reverse,
    read_routing_input,
    write_routing_input,
)
from postroad.wire.names import I_CLOUD, NEXT_MSH
from postroad.wire.soap import Envelope, SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.wsa import (
    ANONYMOUS,
    NONE,
    REPLY,
    Addressing,
    EndpointReference,
    RelatesTo,
    read_addressing,
    write_addressing,
)
from postroad.wire.xml import canonical, parse

versions = st.sampled_from(SoapVersion)
lines = st.text(
    st.characters(
        exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=20,
)
phrases = st.lists(lines, min_size=1, max_size=3).map(" ".join)
ids = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
uris = lines.map(lambda value: "urn:" + "".join(c for c in value if c not in '<>"{}|\\^`%') + "x")
positive = st.integers(1, MAX_COUNT)
sizes = st.integers(1, MAX_SIZE)


def some(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


headers = st.builds(
    MessageHeader,
    boundary=st.from_regex(r"[A-Za-z0-9'()+_,./:=?-]{1,70}", fullmatch=True),
    type=st.sampled_from(TYPES),
    start=st.from_regex(r"[!#-;=?-\[\]-~]{1,40}", fullmatch=True),
    start_info=some(st.sampled_from(["text/xml", "application/soap+xml; action=x"])),
    content_description=some(phrases | st.just("")),
    content_type=st.sampled_from(["Multipart/Related", "multipart/related"]),
)


@st.composite
def fragments(draw: st.DrawFn) -> MessageFragment:
    count = draw(some(positive))
    algorithm = draw(some(st.sampled_from(COMPRESSION_ALGORITHMS)))
    return MessageFragment(
        href=draw(st.from_regex(r"cid:[!-~]{1,40}", fullmatch=True)),
        group_id=draw(phrases),
        fragment_num=draw(st.integers(1, count or MAX_COUNT)),
        fragment_count=count,
        message_size=draw(some(sizes)),
        message_header=draw(some(headers)),
        action=draw(some(phrases | st.just(""))),
        compression_algorithm=algorithm,
        compressed_message_size=draw(sizes) if algorithm else None,
        id=draw(some(ids)),
    )


parties = st.builds(
    Party,
    party_ids=st.lists(
        st.builds(PartyId, phrases, phrases), min_size=1, max_size=3, unique_by=lambda p: p.type
    ).map(tuple),
    role=phrases,
)
properties = st.lists(st.builds(Property, phrases, phrases, some(phrases)), max_size=3).map(tuple)
messages = st.builds(
    RoutingUserMessage,
    from_party=parties,
    to_party=parties,
    collaboration_info=st.builds(
        CollaborationInfo,
        st.builds(Service, phrases, phrases),
        phrases,
        phrases | st.just(""),
        some(st.builds(AgreementRef, phrases, phrases, some(phrases))),
    ),
    message_info=some(
        st.builds(
            MessageInfo,
            st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
            ids.map(lambda value: f"{value}@x"),
            some(ids.map(lambda value: f"{value}@y")),
        )
    ),
    properties=properties,
    part_infos=st.lists(
        st.builds(PartInfo, uris, properties), max_size=3, unique_by=lambda p: p.href
    ).map(tuple),
    mpc=some(uris),
)
routing_inputs = st.builds(
    RoutingInput,
    messages,
    id=some(ids),
    role=some(st.just(NEXT_MSH)),
    must_understand=st.booleans(),
    is_reference_parameter=st.booleans(),
)


@st.composite
def references(draw: st.DrawFn) -> EndpointReference:
    address = draw(st.sampled_from([ANONYMOUS, NONE, I_CLOUD]) | uris)
    raw = draw(st.lists(st.sampled_from([b'<x:P xmlns:x="urn:x">1</x:P>', b"<y></y>"]), max_size=2))
    routing = draw(st.lists(routing_inputs, max_size=1))
    role = NEXT_MSH if address == I_CLOUD else draw(some(uris))
    return EndpointReference(address, (*routing, *raw), role)


@st.composite
def addressings(draw: st.DrawFn) -> Addressing:
    to = draw(st.sampled_from([ANONYMOUS, I_CLOUD]) | uris)
    return Addressing(
        to=to,
        action=draw(some(uris)),
        message_id=draw(some(uris)),
        relates_to=tuple(
            draw(st.lists(st.builds(RelatesTo, uris, st.just(REPLY) | uris), max_size=3))
        ),
        reply_to=draw(some(references())),
        fault_to=draw(some(references())),
        from_=draw(some(references())),
        to_role=NEXT_MSH if to == I_CLOUD else draw(some(uris)),
        to_must_understand=draw(st.booleans()),
    )


def _sent(version: SoapVersion, *blocks: str) -> Envelope:
    """The envelope around the blocks, after each was found canonical alone and inside of it."""
    envelope = read_envelope(parse(write_envelope(version, blocks, write_body(version))))
    for block, found in zip(blocks, envelope.blocks, strict=True):
        assert canonical(parse(block.encode())) == block.encode()
        assert canonical(found.element) == block.encode()
    return envelope


@given(fragments(), versions)
def test_a_fragment_survives_the_wire(fragment: MessageFragment, version: SoapVersion) -> None:
    envelope = _sent(version, write_message_fragment(fragment, version))
    assert read_message_fragment(envelope.blocks[0]) == (fragment, [])


@given(routing_inputs, versions)
def test_routing_input_survives_the_wire(value: RoutingInput, version: SoapVersion) -> None:
    envelope = _sent(version, write_routing_input(value, version))
    read, problems = read_routing_input(envelope.blocks[0])
    assert problems == []
    assert read == value


@given(addressings(), versions, some(ids))
def test_addressing_survives_the_wire(
    value: Addressing, version: SoapVersion, id_prefix: str | None
) -> None:
    envelope = _sent(version, *write_addressing(value, version, id_prefix=id_prefix))
    assert read_addressing(envelope) == (value, [])


@given(messages)
def test_the_way_back_of_the_way_back_has_the_parties_of_the_way_there(
    message: RoutingUserMessage,
) -> None:
    back = infer_reverse(message).user_message
    there = infer_reverse(back).user_message
    assert (there.from_party, there.to_party) == (message.from_party, message.to_party)
    assert (there.mpc is None) == (message.mpc is None)
    pulled = infer_pull(message)[0].user_message
    assert (pulled.from_party, pulled.to_party) == (back.from_party, back.to_party)
