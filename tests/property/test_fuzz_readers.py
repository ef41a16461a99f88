"""No bytes whatever make a reader stumble: arbitrary ones, and messages damaged in every way.

`make fuzz` looks for the same with a fuzzer that is led by coverage, for as long as one likes.
"""

import base64
import gzip
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import PModes
from postroad.msh.expectation import Expectation
from postroad.msh.report import report
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.security.algorithms import ECDH_ES
from postroad.security.attachments import Attachment
from postroad.security.encrypt import encrypt
from postroad.security.keyestablishment import Encryption
from postroad.security.sign import write_security
from postroad.security.username import write_username_token
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import COMPRESSION_TYPE, GZIP, MIME_TYPE, Messaging, PartInfo, Property
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.soap import write_body, write_envelope
from tests.fuzz import seeds
from tests.fuzz.targets import TARGETS, Target, inspect, inspect_strictly
from tests.fuzz.targets import seeds as seeds_of
from tests.fuzz.words import WORDS, dictionary

Draw = Callable[[st.SearchStrategy[Any]], Any]

_VALUE = re.compile(rb'(?<=")[^"<>]{0,300}(?=")|(?<=>)[^<>]{1,300}(?=<)')
_TAG = re.compile(rb"<[^<>]{1,300}>")
_ELEMENT = re.compile(rb"<([\w:]+)(?:\s[^<>]*)?>.*?</\1>", re.DOTALL)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{200,}={0,2}")

targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def _flip(draw: Draw, data: bytes) -> bytes:
    if not data:
        return data
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes((data[at] ^ draw(st.integers(1, 255)),)) + data[at + 1 :]


def _range(draw: Draw, data: bytes) -> tuple[int, int]:
    begin = draw(st.integers(0, len(data)))
    return begin, min(len(data), begin + draw(st.sampled_from((1, 2, 8, 64, 500, 3000, 10**6))))


def _cut(draw: Draw, data: bytes) -> bytes:
    begin, end = _range(draw, data)
    return data[:begin] + data[end:]


def _double(draw: Draw, data: bytes) -> bytes:
    begin, end = _range(draw, data)
    return data[:end] + data[begin:end] + data[end:]


def _insert(draw: Draw, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from(WORDS)) + data[at:]


def _splice(draw: Draw, data: bytes) -> bytes:
    begin, end = _range(draw, data)
    other = draw(st.sampled_from(tuple(seeds.messages().values())))
    first, last = _range(draw, other)
    return data[:begin] + other[first:last] + data[end:]


def _pick(draw: Draw, pattern: re.Pattern[bytes], data: bytes) -> tuple[int, int] | None:
    found = [match.span() for match in pattern.finditer(data)]
    return draw(st.sampled_from(found)) if found else None


def _value(draw: Draw, data: bytes) -> bytes:
    """Another attribute value or text."""
    place = _pick(draw, _VALUE, data)
    if place is None:
        return data
    return data[: place[0]] + draw(st.sampled_from(WORDS)) + data[place[1] :]


def _swap(pattern: re.Pattern[bytes]) -> Callable[[Draw, bytes], bytes]:
    def swap(draw: Draw, data: bytes) -> bytes:
        """One tag or element in the place of another."""
        place, other = _pick(draw, pattern, data), _pick(draw, pattern, data)
        if place is None or other is None:
            return data
        return data[: place[0]] + data[slice(*other)] + data[place[1] :]

    return swap


def _inside_base64(draw: Draw, data: bytes) -> bytes:
    """Damage inside of what base64 hides: certificates, keys, signature values."""
    place = _pick(draw, _BASE64, data)
    if place is None:
        return data
    encoded = data[slice(*place)]
    inner = base64.b64decode(encoded[: len(encoded) // 4 * 4])
    for _ in range(draw(st.integers(1, 3))):
        inner = _flip(draw, inner)
    return data[: place[0]] + base64.b64encode(inner) + data[place[1] :]


_MUTATIONS = (
    _flip,
    _cut,
    _double,
    _insert,
    _splice,
    _value,
    _value,
    _swap(_TAG),
    _swap(_ELEMENT),
    _inside_base64,
)


@st.composite
def damaged(draw: Draw, originals: tuple[bytes, ...]) -> bytes:
    """A valid input after one to four accidents."""
    data: bytes = draw(st.sampled_from(originals))
    for mutation in draw(st.lists(st.sampled_from(_MUTATIONS), min_size=1, max_size=4)):
        data = mutation(draw, data)
    return data


words = st.lists(st.sampled_from(WORDS), max_size=30).map(b"".join)


@pytest.mark.parametrize("name", seeds.messages())
def test_the_seed_holds(name: str) -> None:
    """What the fuzzers start from is valid, so that one accident more leads somewhere new."""
    facts = report(inspect_source(seeds.messages()[name], seeds.tools()))
    assert facts["holds"], facts["errors"]


@targets
@given(data=st.one_of(st.binary(max_size=2000), words))
@example(data=b"")
def test_arbitrary_bytes_are_answered(target: Target, data: bytes) -> None:
    target(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=6 * settings.default.max_examples)
@given(data=st.data())
def test_damaged_input_is_answered(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(damaged(tuple(seeds_of(name).values()))))


media_types = st.sampled_from(
    ("application/gzip", "application/xml", "text/xml", "text/plain", "image/svg+xml", "a/b")
)
contents = st.one_of(
    st.binary(max_size=500),
    words,
    words.map(gzip.compress),
    st.sampled_from((seeds.ORDER, gzip.compress(bytes(10**6), mtime=0), b"<a>" * 300)),
)


@given(
    content=contents,
    media_type=media_types,
    told=st.one_of(st.none(), media_types, st.text(max_size=5)),
    compression=st.sampled_from((None, GZIP, "application/zip")),
)
def test_whatever_was_signed_and_encrypted_is_answered(
    content: bytes, media_type: str, told: str | None, compression: str | None
) -> None:
    """Behind a signature and encryption that hold, what comes out is as hostile as outside."""
    properties = [Property(MIME_TYPE, told)] if told and told.isprintable() else []
    properties += [Property(COMPRESSION_TYPE, compression)] if compression else []
    part = PartInfo(f"cid:{seeds.CONTENT_ID}", tuple(properties))
    attachment = Attachment(seeds.CONTENT_ID, BytesContent(content), media_type)
    try:
        made = seeds.secured(seeds.order(part_infos=(part,)), [attachment])
    except EbmsError:
        return  # XML that cannot be canonicalised cannot be signed either
    facts = inspect(seeds.request(made))
    assert facts["encryption"]["decrypted"] is True


@given(plaintext=st.one_of(words.map(lambda data: data.decode("latin-1")), st.text(max_size=50)))
@example(plaintext="<o:Order xmlns:o='urn:o'/>")
def test_whatever_was_encrypted_in_the_body_is_answered(plaintext: str) -> None:
    recipient = Encryption(seeds.SELLER.certificate, key=ECDH_ES)
    sealed = encrypt([], recipient, entropy=seeds.entropy(), body_content=plaintext or " ")
    security = write_security(seeds.SOAP_12, sealed.pieces)
    header = write_messaging(Messaging((seeds.order(part_infos=(PartInfo(),)),)), seeds.SOAP_12)
    begin, end = write_body(seeds.SOAP_12).split("><")
    body = f"{begin}>{sealed.body_content}<{end}"
    facts = inspect(write_envelope(seeds.SOAP_12, [security, header], body))
    assert facts["encryption"]["body"] is True


@pytest.mark.parametrize("name", seeds.messages())
def test_a_message_cut_anywhere_is_answered(name: str) -> None:
    """Every prefix at about a hundred places, as a broken connection leaves it."""
    message = seeds.messages()[name]
    for end in range(0, len(message), len(message) // 100 + 1):
        inspect(message[:end])
    inspect_strictly(message[: len(message) // 2])


def test_the_dictionary_is_one_that_the_fuzzer_reads() -> None:
    assert all(re.fullmatch(r'"(?:\\x[0-9a-f]{2})+"', line) for line in dictionary().splitlines())


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize("name", ["push", "pull"])
def test_a_time_at_the_end_of_times_is_answered(name: str, at: str) -> None:
    """Beyond it there is no time to compare with: adding a minute must not be a crash."""
    inspect(re.sub(rb"2026-06-01T1[23]:00:00(.000)?Z", at.encode(), seeds.messages()[name]))


def test_the_time_of_a_username_token_at_the_end_of_times_is_answered() -> None:
    token = write_username_token(
        "seller", "secret", digest=False, nonce=b"0" * 16, created=seeds.NOW
    ).replace("2026-06-01T12:00:00.000Z", "9999-12-31T23:59:59.999Z")
    message = seeds.order(part_infos=())
    made = seeds.secured(message, [], sign=False, encrypt=False, tokens=(token,))
    pmode = (
        "id: pulled\ninitiator: {party: urn:example:buyer}\nlegs:\n  - security:\n"
        "      username_token: {username: seller, password: secret, digest: false}\n"
    )
    expectation = Expectation(PModes(load_pmodes(pmode, "pulled.yaml").pmodes))
    facts = report(inspect_source(made.envelope, Tools(at=seeds.NOW, expectation=expectation)))
    assert facts["pmode"] == "pulled"
    assert [problem["code"] for problem in facts["errors"]] == ["EBMS:0101"]


@pytest.mark.parametrize("target", ["http://[", "//[::", "*", "%zz"])
def test_a_request_target_that_is_no_url_is_answered(target: str) -> None:
    inspect_strictly(seeds.messages()["push"].replace(b"POST /msh", b"POST " + target.encode()))
