"""The wsu:Timestamp of a message: written, signed, read, and judged by the time."""

from datetime import UTC, datetime, timedelta

import pytest

from postroad.security.secure import Lifetime
from postroad.security.sign import write_security_timestamp
from postroad.security.timestamps import Timestamp, check_timestamp, read_security_timestamp
from postroad.security.username import write_username_token
from postroad.security.verify import security_headers
from postroad.wire.errors import EbmsError
from postroad.wire.names import WSSE, WSU
from postroad.wire.xml import parse
from tests import pki
from tests.unit.signing import LIFETIME, check, signed


def _timestamp(content: str) -> tuple[Timestamp | None, list[EbmsError]]:
    text = f'<w:Security xmlns:w="{WSSE}" xmlns:wsu="{WSU}">{content}</w:Security>'
    return read_security_timestamp(parse(text.encode()))


def test_a_timestamp_is_written_signed_and_read() -> None:
    checked = check(signed(lifetime=LIFETIME))
    security = security_headers(checked.envelope.header)[None]
    timestamp, problems = read_security_timestamp(security)
    assert problems == []
    assert timestamp is not None
    assert timestamp.created == pki.NOW
    assert timestamp.expires == pki.NOW + timedelta(minutes=10)
    assert checked.verification.covers(timestamp.element)


def test_times_of_the_security_header_have_milliseconds_at_most() -> None:
    """Basic Security Profile 1.1, R3220: WSS4J refuses a fourth digit."""
    created = datetime(2026, 11, 18, 2, 3, 4, 567999, UTC)
    block = write_security_timestamp(created, created + timedelta(seconds=1), id="t").xml
    assert "<wsu:Created>2026-11-18T02:03:04.567Z</wsu:Created>" in block
    assert "<wsu:Expires>2026-11-18T02:03:05.567Z</wsu:Expires>" in block
    token = write_username_token("u", "p", digest=True, nonce=bytes(16), created=created)
    assert ">2026-11-18T02:03:04.567Z</wsu:Created>" in token


def test_a_timestamp_may_have_no_end() -> None:
    checked = check(signed(lifetime=Lifetime(pki.NOW)))
    timestamp, _ = read_security_timestamp(security_headers(checked.envelope.header)[None])
    assert timestamp is not None
    assert timestamp.expires is None
    assert check_timestamp(timestamp, pki.NOW + 5 * pki.YEAR) == []


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(-6, "in the future"), (-5, None), (0, None), (15, None), (16, "expired")],
)
def test_a_timestamp_is_judged_with_five_minutes_of_grace(minutes: int, said: str | None) -> None:
    security = security_headers(check(signed(lifetime=LIFETIME)).envelope.header)[None]
    timestamp, _ = read_security_timestamp(security)
    assert timestamp is not None
    problems = check_timestamp(timestamp, pki.NOW + timedelta(minutes=minutes))
    assert [problem.code for problem in problems] == (["EBMS:0103"] if said else [])
    assert all(said in problem.detail for problem in problems if said)


@pytest.mark.parametrize(
    ("content", "said", "place"),
    [
        (
            "<wsu:Timestamp/><wsu:Timestamp/>",
            "more than one wsu:Timestamp",
            "/wsu:Timestamp[2]",
        ),
        (
            "<wsu:Timestamp><wsu:Created>2026-01-01T00:00:00Z</wsu:Created>"
            "<wsu:Created>2026-01-01T00:00:00Z</wsu:Created></wsu:Timestamp>",
            "more than one wsu:Created",
            "/wsu:Timestamp/wsu:Created[2]",
        ),
        (
            "<wsu:Timestamp><wsu:Created>2026-01-01T00:00:00Z</wsu:Created>"
            "<wsu:Expires>2026-01-01T00:00:00Z</wsu:Expires></wsu:Timestamp>",
            "expires before it was created",
            "/wsu:Timestamp",
        ),
        (
            "<wsu:Timestamp><wsu:Created>soon</wsu:Created></wsu:Timestamp>",
            "soon",
            "/wsu:Timestamp/wsu:Created",
        ),
    ],
)
def test_a_timestamp_that_makes_no_sense_is_told(content: str, said: str, place: str) -> None:
    _, [problem] = _timestamp(content)
    assert problem.code == "EBMS:0103"
    assert said in problem.detail
    assert (problem.location or "").endswith(place)


def test_no_timestamp_is_no_problem() -> None:
    assert _timestamp("") == (None, [])
