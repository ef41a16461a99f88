"""WS-ReliableMessaging: what is written is read again; nothing makes it stumble."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from postroad.wire.errors import EbmsError
from postroad.wire.names import S12, WSRM
from postroad.wire.soap import (
    Envelope,
    SoapVersion,
    read_envelope,
    value_namespaces,
    write_body,
    write_envelope,
)
from postroad.wire.soap_faults import write_fault
from postroad.wire.wsa import ANONYMOUS, EndpointReference
from postroad.wire.wsrm import (
    MOST_NUMBER,
    Assurance,
    Behavior,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    Offer,
    RmHeaders,
    Sequence,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
    write_ack_requested,
    write_acknowledgement,
    write_lifecycle,
    write_sequence,
)
from postroad.wire.wsrm_faults import Code, RmFault, read_rm_fault, written_fault
from postroad.wire.wsrm_reader import read_lifecycle, read_rm_headers
from postroad.wire.xml import canonical, parse
from tests.property.strategies import plain_uris, texts

versions = st.sampled_from(SoapVersion)
identifiers = st.text("abc:/-&<é", min_size=1, max_size=30)
numbers = st.integers(1, MOST_NUMBER)
ids = st.none() | st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
spans = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=36_000))
references = st.builds(EndpointReference, st.just(ANONYMOUS) | plain_uris)
offers = st.builds(Offer, identifiers, references, spans, st.sampled_from(Behavior))
assurances = st.sampled_from(
    [
        Assurance(least, most, order)
        for least, most in ((True, False), (False, True), (True, True))
        for order in (False, True)
    ]
)
lasts = st.none() | st.integers(0, MOST_NUMBER)
messages: st.SearchStrategy[Lifecycle] = st.one_of(
    st.builds(CreateSequence, references, spans, st.none() | offers, st.none() | assurances),
    st.builds(
        CreateSequenceResponse,
        identifiers,
        spans,
        st.sampled_from(Behavior),
        st.none() | references,
    ),
    st.builds(CloseSequence, identifiers, lasts),
    st.builds(CloseSequenceResponse, identifiers),
    st.builds(TerminateSequence, identifiers, lasts),
    st.builds(TerminateSequenceResponse, identifiers),
)


@st.composite
def acknowledgements(draw: st.DrawFn) -> SequenceAcknowledgement:
    identifier = draw(identifiers)
    if draw(st.booleans()):
        nacks = draw(st.sets(numbers, min_size=1, max_size=4))
        return SequenceAcknowledgement(identifier, (), tuple(sorted(nacks)))
    ends = sorted(draw(st.sets(st.integers(0, 60), max_size=10)))
    # Each range is three numbers apart from the next one, so that none touch.
    pairs = zip(ends[::2], ends[1::2], strict=False)
    ranges = tuple((lower * 3 + 1, upper * 3 - 1) for lower, upper in pairs)
    return SequenceAcknowledgement(identifier, ranges, (), draw(st.booleans()))


def _envelope(version: SoapVersion, blocks: list[str], body: str = "") -> Envelope:
    return read_envelope(parse(write_envelope(version, blocks, write_body(version, body))))


@given(versions, identifiers, numbers, ids, st.lists(acknowledgements(), max_size=3))
def test_headers_are_read_as_they_were_written(version, identifier, number, id, acks) -> None:
    sequence = Sequence(identifier, number)
    blocks = [
        write_sequence(sequence, version, id=id),
        write_ack_requested(identifier, version, id=id),
        *(write_acknowledgement(one, version, id=id) for one in acks),
    ]
    found, problems = read_rm_headers(_envelope(version, blocks))
    assert not problems
    assert found == RmHeaders(sequence, (identifier,), tuple(acks))
    assert all(canonical(parse(one.encode())).decode() == one for one in blocks)


@given(versions, messages)
def test_life_cycle_messages_are_read_as_they_were_written(version, message) -> None:
    found, problems = read_lifecycle(_envelope(version, [], write_lifecycle(message, version)))
    assert not problems
    assert found == message


@given(versions, st.sampled_from(Code), texts, st.none() | identifiers)
def test_faults_are_read_as_they_were_written(version, code, reason, identifier) -> None:
    fault = RmFault(code, " ".join(reason.split()) or "x", identifier)
    written = written_fault(fault, version)
    content = write_fault(version, written.fault)
    declared = value_namespaces(content)
    body = write_body(version, content, namespaces=declared)
    envelope = write_envelope(version, written.header_blocks, body, namespaces=declared)
    found = read_rm_fault(read_envelope(parse(envelope)))
    assert found is not None
    assert (found.code, found.identifier) == (code, identifier)


_pieces = st.recursive(
    st.sampled_from(["", "7", "-1", "x", "PT1S", "9" * 30, "<wsrm:None/>", "<x:y xmlns:x='u'/>"]),
    lambda inner: st.builds(
        "<wsrm:{0}{2}>{1}</wsrm:{0}>".format,
        st.sampled_from(
            [
                "Sequence", "Identifier", "MessageNumber", "AckRequested", "Expires", "Offer",
                "SequenceAcknowledgement", "AcknowledgementRange", "Nack", "Final", "AcksTo",
                "CreateSequence", "CreateSequenceResponse", "Accept", "LastMsgNumber", "Unknown",
                "TerminateSequence", "CloseSequence", "IncompleteSequenceBehavior", "Endpoint",
            ]
        ),
        st.lists(inner, max_size=4).map("".join),
        st.sampled_from(["", ' Lower="1" Upper="2"', ' Lower="5" Upper="2"', ' Lower="x"']),
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_pieces, max_size=3), _pieces)
def test_whatever_comes_is_read_or_told_by_name(headers, body) -> None:
    written = (
        f'<S12:Envelope xmlns:S12="{S12}" xmlns:wsrm="{WSRM}"><S12:Header>{"".join(headers)}'
        f"</S12:Header><S12:Body>{body}</S12:Body></S12:Envelope>"
    )
    try:
        envelope = read_envelope(parse(written.encode()))
    except EbmsError:
        return
    for found, problems in (read_rm_headers(envelope), read_lifecycle(envelope)):
        assert all(one.code == "EBMS:0201" and one.detail for one in problems)
        assert found is None or not problems
