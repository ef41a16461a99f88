"""WS-Reliability on the wire: a broken header has its fault, and what cannot be is not written."""

from datetime import UTC, datetime, timedelta

import pytest

from postroad.wire.soap import SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.wsreliability import (
    LONGEST_ID,
    FaultCode,
    ReplyPattern,
    Request,
    SequenceNum,
    read_wsr_headers,
    write_request,
)
from postroad.wire.xml import parse
from tests.changing import replace

V = SoapVersion.SOAP_12
F = FaultCode
REQUEST = Request(
    "urn:g",
    datetime(2026, 11, 15, tzinfo=UTC),
    ReplyPattern.CALLBACK,
    SequenceNum(3),
    "https://a.example/acks",
    True,
    True,
    True,
)


@pytest.mark.parametrize(
    ("old", "new", "fault", "says"),
    [
        ('groupId="urn:g"', 'groupId="g g"', F.INVALID_MESSAGE_ID, "is no groupId"),
        ('number="3"', 'number="-3"', F.INVALID_MESSAGE_ID, "number is one from 0"),
        ('number="3"', 'number="3" last="maybe"', F.INVALID_MESSAGE_ID, "last true or false"),
        (
            'number="3"',
            'groupMaxIdleDuration="P" number="3"',
            F.INVALID_MESSAGE_PARAMETERS,
            "the end of the group",
        ),
        ("2026-11-15T00:00:00Z", "tomorrow", F.INVALID_EXPIRY_TIME, "'tomorrow' is no time"),
        ("Callback", "Shout", F.INVALID_REPLY_PATTERN, "Response, Callback or Poll"),
        ("https://a.example/acks", "a b", F.INVALID_REPLY_PATTERN, "a BareURI with a URI"),
        (
            "https://a.example/acks",
            f"urn:{'x' * LONGEST_ID}",
            F.INVALID_REPLY_PATTERN,
            "a BareURI with a URI",
        ),
        (
            "<wsr:AckRequested></wsr:AckRequested>",
            "",
            F.INVALID_MESSAGE_PARAMETERS,
            "order needs AckRequested",
        ),
    ],
)
def test_each_broken_header_has_its_fault(old: str, new: str, fault: FaultCode, says: str) -> None:
    written = write_request(REQUEST, V)
    assert written.count(old) == 1
    blocks = (written.replace(old, new),)
    found, [broken] = read_wsr_headers(
        read_envelope(parse(write_envelope(V, blocks, write_body(V))))
    )
    assert found is None
    assert broken.fault is fault
    assert broken.problem.detail.startswith(f"{fault}: ")
    assert says in broken.problem.detail


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (replace(REQUEST, reply_to="a b"), "'a b' cannot be replied to"),
        (replace(REQUEST, reply_to=f"urn:{'x' * LONGEST_ID}"), "cannot be replied to"),
        (replace(REQUEST, reply_to=None), "Callback needs a ReplyTo"),
        (replace(REQUEST, sequence_num=None), "order needs a SequenceNum"),
        (
            replace(REQUEST, sequence_num=SequenceNum(3, group_max_idle=timedelta(days=10_000))),
            "not idle for longer",
        ),
    ],
)
def test_a_request_that_cannot_be_is_not_written(request_: Request, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        write_request(request_, V)
