"""WS-Reliability: what is written is read again, and is canonical; nothing makes it stumble."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from postroad.wire.errors import EbmsError
from postroad.wire.names import S12, WSR
from postroad.wire.soap import Envelope, SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.wsreliability import (
    MOST_NUMBER,
    FaultCode,
    Poll,
    PollRequest,
    Reply,
    ReplyPattern,
    Request,
    SequenceNum,
    WsrHeaders,
    conflict,
    read_wsr_headers,
    write_poll_request,
    write_request,
    write_response,
)
from postroad.wire.xml import canonical, parse
from tests.property.strategies import plain_uris

versions = st.sampled_from(SoapVersion)
ids = st.none() | st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
groups = st.text("ab:&é/", max_size=20).map(lambda one: f"urn:{one}x")
numbers = st.integers(0, MOST_NUMBER)
times = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
spans = st.timedeltas(timedelta(0), timedelta(days=9999))
sequence_nums = st.builds(SequenceNum, numbers, st.booleans(), st.none() | times, st.none() | spans)
requests = st.builds(
    Request,
    groups,
    times,
    st.sampled_from(ReplyPattern),
    st.none() | sequence_nums,
    st.none() | plain_uris,
    st.booleans(),
    st.booleans(),
    st.booleans(),
).filter(lambda one: conflict(one) is None)
ranges = st.tuples(numbers, numbers).map(lambda one: (min(one), max(one)))
faults = st.none() | st.sampled_from(FaultCode)
replies = st.builds(Reply, groups, fault=faults) | st.builds(
    lambda group, span, fault: Reply(group, *span, fault), groups, ranges, faults
)
polls = st.builds(Poll, groups, st.lists(ranges, max_size=3).map(tuple))


def _envelope(version: SoapVersion, blocks: list[str]) -> Envelope:
    return read_envelope(parse(write_envelope(version, blocks, write_body(version))))


@given(
    versions,
    ids,
    requests,
    st.lists(replies, min_size=1, max_size=4).map(tuple),
    st.builds(PollRequest, st.lists(polls, min_size=1, max_size=3).map(tuple)),
)
def test_headers_are_read_as_they_were_written(version, id, request, response, poll) -> None:
    blocks = [
        write_request(request, version, id=id),
        write_response(response, version, id=id),
        write_poll_request(poll, version, id=id),
    ]
    found, broken = read_wsr_headers(_envelope(version, blocks))
    assert not broken
    assert found == WsrHeaders(request, response, poll)
    assert all(canonical(parse(one.encode())).decode() == one for one in blocks)


_pieces = st.recursive(
    st.sampled_from(["", "7", "Response", "2026-01-01T00:00:00Z", "x", "<x:y xmlns:x='u'/>"]),
    lambda inner: st.builds(
        "<wsr:{0}{2}>{1}</wsr:{0}>".format,
        st.sampled_from(
            [
                "Request", "Response", "PollRequest", "MessageId", "SequenceNum", "ExpiryTime",
                "ReplyPattern", "Value", "ReplyTo", "BareURI", "AckRequested", "MessageOrder",
                "NonSequenceReply", "SequenceReplies", "ReplyRange", "RefToMessageIds",
                "SequenceNumRange", "Unknown",
            ]
        ),
        st.lists(inner, max_size=5).map("".join),
        st.sampled_from(
            ["", ' groupId="urn:x"', ' from="1" to="2"', ' from="5" to="2"', ' number="-1"',
             ' groupId="x" fault="wsr:Nonsense"', ' number="1" groupMaxIdleDuration="P"']
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_pieces, max_size=3))
def test_whatever_comes_is_read_or_told_by_name(headers) -> None:
    written = (
        f'<S12:Envelope xmlns:S12="{S12}" xmlns:wsr="{WSR}"><S12:Header>{"".join(headers)}'
        "</S12:Header><S12:Body/></S12:Envelope>"
    )
    try:
        envelope = read_envelope(parse(written.encode()))
    except EbmsError:
        return
    found, broken = read_wsr_headers(envelope)
    assert all(one.problem.detail.startswith(one.fault.value) for one in broken)
    assert found is None or not broken
