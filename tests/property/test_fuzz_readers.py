"""No bytes whatever make a reader stumble: arbitrary ones, and messages damaged in every way.

`make fuzz` looks for the same with a fuzzer that is led by coverage, for as long as one likes.
"""

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
from tests.fuzz.mutations import mutate
from tests.fuzz.targets import TARGETS, Target, inspect, inspect_strictly
from tests.fuzz.targets import seeds as seeds_of
from tests.fuzz.words import WORDS, dictionary

Draw = Callable[[st.SearchStrategy[Any]], Any]

targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@st.composite
def damaged(draw: Draw, originals: tuple[bytes, ...]) -> bytes:
    """A valid input after one to four accidents."""
    others = tuple(seeds.messages().values())
    return mutate(draw(st.randoms()), draw(st.sampled_from(originals)), others)


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
@settings(max_examples=3 * settings.default.max_examples)
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
