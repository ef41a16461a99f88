"""Signatures that point where they should not, or at what can be read in two ways."""

import pytest

from postroad.security.attachments import COMPLETE_TRANSFORM, CONTENT_TRANSFORM
from postroad.wire.names import DS, EXC_C14N
from tests.attack.forging import (
    ENVELOPED,
    STR_TRANSFORM,
    STRANGE_TRANSFORMS,
    STRANGE_URIS,
    XPATH,
    XSLT,
    Ref,
    element,
    exclusive,
    refs,
    resigned,
    sha256,
    with_ref,
)
from tests.attack.messages import (
    ACTION,
    BODY,
    FORGED_ACTION,
    Package,
    assert_holds,
    assert_refused,
    look,
    make,
)
from tests.changing import replace

# References


@pytest.mark.parametrize("uri", STRANGE_URIS)
@pytest.mark.parametrize("extra", [False, True], ids=["instead", "in addition"])
def test_a_reference_to_what_is_not_here_is_refused_and_nothing_is_fetched(
    message: Package, uri: str, extra: bool
) -> None:
    for digest in (sha256(b""), sha256(exclusive(element(message, "_messaging")))):
        strange = Ref(uri, digest)
        references = (
            [*refs(message), strange] if extra else with_ref(message, "#_messaging", strange)
        )
        found = look(resigned(message, references))
        assert_refused(found, "EBMS:0101")
        assert found["signature"]["valid"] is False


def test_a_reference_without_uri_is_refused(message: Package) -> None:
    written = resigned(message).envelope.replace(b' URI="#_messaging"', b"")
    assert_refused(look(replace(message, envelope=written)), "EBMS:0101")


@pytest.mark.parametrize("name", STRANGE_TRANSFORMS)
def test_a_transform_that_is_not_listed_is_refused(message: Package, name: str) -> None:
    steps = STRANGE_TRANSFORMS[name]
    for digest in (sha256(exclusive(element(message, "_messaging"))), sha256(b"")):
        other = with_ref(message, "#_messaging", Ref("#_messaging", digest, steps))
        found = look(resigned(message, other))
        assert_refused(found, "EBMS:0101")
        assert found["signature"]["valid"] is False


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (EXC_C14N,),
        (COMPLETE_TRANSFORM,),
        (CONTENT_TRANSFORM, CONTENT_TRANSFORM),
        (CONTENT_TRANSFORM, EXC_C14N),
        (DS + "base64",),
        (STR_TRANSFORM,),
    ],
)
def test_a_transform_of_attachments_other_than_their_content_is_refused(
    message: Package, steps: tuple[str, ...]
) -> None:
    uri = "cid:one@buyer.example"
    other = with_ref(message, uri, Ref(uri, sha256(message.parts[0].content), steps))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


@pytest.mark.parametrize("algorithm", ["", "urn:x", XPATH, XSLT, ENVELOPED, DS + "base64"])
def test_a_signed_info_that_is_canonicalised_in_another_way_is_refused(
    message: Package, algorithm: str
) -> None:
    assert_refused(look(resigned(message, canonicalization=algorithm)), "EBMS:0101")


@pytest.mark.parametrize(
    "digest", [b"", sha256(b""), b"\0" * 32, sha256(b"")[:16], sha256(b"<?xml version='1.0'?>")]
)
@pytest.mark.parametrize("uri", ["#_messaging", "#_body", "#_timestamp", "cid:one@buyer.example"])
def test_the_digest_of_nothing_stands_for_nothing(
    message: Package, uri: str, digest: bytes
) -> None:
    [own] = [one for one in refs(message) if one.uri == uri]
    other = with_ref(message, uri, replace(own, digest=digest))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


def test_a_namespace_that_cannot_be_canonicalised_digests_to_no_empty_string() -> None:
    """Void canonicalisation: where canonical form fails, nothing must count as signed."""
    message = make((), body='<o:Order xmlns:o="urn:example:order"><o:Pay>100</o:Pay></o:Order>')
    for broken in ('xmlns:v="1"', 'xmlns:v="relative/name"', 'xmlns:v="http://[bad"'):
        void = message.replaced("<o:Order ", f"<o:Order {broken} v:a='1' ")
        references = with_ref(message, "#_body", Ref("#_body", sha256(b"")))
        assert_refused(look(resigned(void, references)))


@pytest.mark.parametrize(
    "missing", ["#_messaging", "#_body", "#_timestamp", "cid:two@buyer.example"]
)
def test_a_signature_that_leaves_something_out_is_refused(message: Package, missing: str) -> None:
    found = look(resigned(message, with_ref(message, missing, None)))
    assert found["signature"]["valid"] is True
    assert_refused(found, "EBMS:0103")


def test_a_signature_over_nothing_is_refused(message: Package) -> None:
    assert_refused(look(resigned(message, [])), "EBMS:0101")


def test_the_parts_of_the_header_do_not_stand_for_the_whole(message: Package) -> None:
    """A signature over eb:UserMessage is none over eb:Messaging."""
    inner = message.replaced("<eb:UserMessage>", '<eb:UserMessage xml:id="_inner">')
    digest = sha256(exclusive(element(inner, "_inner")))
    other = with_ref(message, "#_messaging", Ref("#_inner", digest))
    assert_refused(look(resigned(inner, other)), "EBMS:0101", "EBMS:0103")


def test_two_references_to_one_thing_are_refused(message: Package) -> None:
    for one in refs(message):
        assert_refused(look(resigned(message, [*refs(message), one])), "EBMS:0101")


# Namespaces, prefixes, comments, CDATA


def test_a_comment_in_a_signed_value_hides_no_half_of_it(message: Package) -> None:
    """Canonical form leaves comments out, so they can be put anywhere: the value stays whole."""
    split = message.replaced(
        f"<eb:Action>{ACTION}", f"<eb:Action>{ACTION[:3]}<!-- x -->{ACTION[3:]}"
    )
    split = split.replaced(
        "urn:example:buyer</eb:PartyId>", "urn:<!---->example:buyer</eb:PartyId>"
    )
    split = split.replaced("order-1@buyer", "<!--a-->order-1<!--b-->@buyer")
    found = look(split)
    assert_holds(found)
    [unit] = found["units"]
    assert unit["action"] == ACTION
    assert unit["message_id"] == "order-1@buyer.example"
    assert unit["from"] == look(message)["units"][0]["from"]


def test_a_comment_in_a_digest_or_certificate_hides_no_half_of_it(message: Package) -> None:
    for name in (b"DigestValue", b"SignatureValue"):
        tag = b"<ds:" + name + b">"
        at = message.envelope.index(tag) + len(tag) + 10
        split = replace(
            message, envelope=message.envelope[:at] + b"<!-- -->" + message.envelope[at:]
        )
        assert_holds(look(split))
        short = message.envelope[: at - 10] + b"<!--" + message.envelope[at - 10 : at] + b"-->"
        assert_refused(look(replace(message, envelope=short + message.envelope[at:])), "EBMS:0101")


def test_cdata_is_read_as_the_text_that_it_is(message: Package) -> None:
    written = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action><![CDATA[{ACTION}]]>")
    found = look(written)
    assert_holds(found)
    assert found["units"][0]["action"] == ACTION
    hidden = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action><![CDATA[{FORGED_ACTION}]]>")
    assert_refused(look(hidden), "EBMS:0101")


def test_character_references_are_read_as_the_characters_that_they_are(message: Package) -> None:
    written = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action>&#x4E;{ACTION[1:]}")
    found = look(written)
    assert_holds(found)
    assert found["units"][0]["action"] == ACTION


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("eb:", "evil:"),
        ("xmlns:eb=", "xmlns:unused='urn:x' xmlns:eb="),
        ("<eb:Action>", "<eb:Action extra='1'>"),
        ("<eb:Action>", "<eb:Action xmlns:eb='urn:example:other'>"),
        ('name="originalSender"', 'name="originalsender"'),
    ],
)
def test_a_header_that_is_written_differently_is_judged_by_its_canonical_form(
    message: Package, old: str, new: str
) -> None:
    found = look(message.replaced(old, new))
    if "unused" in new:
        assert_holds(found)
    else:
        assert_refused(found)


def test_a_default_namespace_above_the_signed_body_changes_what_it_means(message: Package) -> None:
    plain = make((), body="<Order><Pay>100</Pay></Order>")
    assert_holds(look(plain))
    moved = plain.replaced("<S12:Envelope ", '<S12:Envelope xmlns="urn:example:other" ')
    assert_refused(look(moved), "EBMS:0101")


def test_a_prefix_on_the_inclusive_list_cannot_be_bound_anew() -> None:
    message = make((), body=BODY)
    step = (
        f'<ds:Transform Algorithm="{EXC_C14N}"><ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" '
        'PrefixList="q S12"/></ds:Transform>'
    )
    bound = message.replaced("<S12:Envelope ", '<S12:Envelope xmlns:q="urn:example:good" ')
    digest = sha256(exclusive(element(bound, "_body"), ("q", "S12")))
    signed = resigned(bound, with_ref(message, "#_body", Ref("#_body", digest, (step,))))
    assert_holds(look(signed))
    for other in ("urn:example:evil", ""):
        wrong = signed.replaced(
            'xmlns:q="urn:example:good" ', f'xmlns:q="{other}" ' if other else ""
        )
        assert_refused(look(wrong), "EBMS:0101")


@pytest.mark.parametrize(
    "attributes",
    [
        'wsu:Id="_messaging" wsu:Id="_forged"',
        'xmlns:a="urn:x" xmlns:b="urn:x" a:i="1" b:i="2" wsu:Id="_messaging"',
        'xmlns:eb2="{eb}" xmlns:eb2="urn:x" wsu:Id="_messaging"',
        'und:Id="_messaging"',
    ],
)
@pytest.mark.parametrize("noise", [0, 300], ids=["alone", "behind 300 odd namespaces"])
def test_an_attribute_given_twice_or_without_namespace_is_not_xml(
    message: Package, attributes: str, noise: int
) -> None:
    """Attribute pollution; the noise is to make a parser stop telling of errors."""
    odd = "".join(f'<x:x xmlns:x="no uri {n}"/>' for n in range(noise))
    written = message.replaced('wsu:Id="_messaging"', attributes)
    written = written.replaced("<S12:Header>", f'<S12:Header><w:w xmlns:w="urn:w">{odd}</w:w>')
    assert_refused(look(written), "EBMS:0009")
