"""References of a signature read from text: the same values as read from elements, or none."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from postroad.security.plain_references import plain_references
from postroad.security.verify import read_signed_info
from postroad.wire import xml
from postroad.wire.ebms3_signals import read_reference
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT
from postroad.wire.names import DS, EXC_C14N

PLAIN = (
    '<ds:Reference URI="#a"><ds:Transforms><ds:Transform Algorithm="urn:t"/></ds:Transforms>'
    '<ds:DigestMethod Algorithm="urn:m"/><ds:DigestValue>AAEC</ds:DigestValue></ds:Reference>'
)


def signed_info(references: str) -> etree._Element:
    return xml.parse(
        f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm="{EXC_C14N}"/>'
        f'<ds:SignatureMethod Algorithm="urn:s"/>{references}</ds:SignedInfo>'.encode()
    )


@given(
    st.lists(
        st.tuples(
            st.text("abc#:/%20&;<>\"'@.-_é ", max_size=12),
            st.text("abc:/#&;\"' ", min_size=1, max_size=8),
            st.binary(min_size=1, max_size=40),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_read_from_text_is_what_elements_say(given: list[tuple[str, str, bytes]]) -> None:
    element = signed_info(
        "".join(
            PLAIN.replace('"#a"', f'"{xml.escape_attribute(uri)}"')
            .replace("urn:t", xml.escape_attribute(algorithm))
            .replace("AAEC", base64.b64encode(digest).decode())
            for uri, algorithm, digest in given
        )
    )
    wanted = tuple(read_reference(one) for one in element[2:])
    assert plain_references(xml.canonical(element), element.prefix) in (wanted, None)
    assert read_signed_info(element, DEFAULT)[2] == wanted


def test_plain_references_are_read_from_text() -> None:
    element = signed_info(PLAIN + PLAIN.replace("#a", "cid:b@x"))
    wanted = tuple(read_reference(one) for one in element[2:])
    assert plain_references(xml.canonical(element), "ds") == wanted


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ('URI="#a"', 'Id="x" URI="#a"'),
        ("urn:t", "urn:é"),
        ("AAEC", "AA EC"),
        ("AAEC", "AAE"),
        ("AAEC", ""),
        ("<ds:DigestMethod", "text<ds:DigestMethod"),
        ("<ds:DigestMethod", f'<ds:DigestMethod xmlns:x="{DS}" xmlns:ds="urn:else"'),
        ('"urn:t"/>', '"urn:t"><x/></ds:Transform>'),
        ("<ds:Transforms>", '<ds:Transforms><ds:Transform Algorithm="urn:u"/>'),
        ("</ds:Reference>", "</ds:Reference>text"),
        ("</ds:Reference>", "</ds:Reference><ds:Object/>"),
    ],
)
def test_what_is_not_plain_is_left_to_the_reader_of_elements(usual: str, other: str) -> None:
    element = signed_info(PLAIN + PLAIN.replace(usual, other))
    assert plain_references(xml.canonical(element), "ds") is None


@pytest.mark.parametrize("place", ["<ds:DigestMethod", "</ds:DigestValue>", "<ds:Transform "])
def test_a_comment_is_no_less_an_error_for_not_being_signed(place: str) -> None:
    element = signed_info(PLAIN.replace(place, f"<!-- -->{place}"))
    try:
        wanted = tuple(read_reference(one, "EBMS:0101") for one in element[2:])
    except EbmsError as error:
        with pytest.raises(EbmsError, match=error.detail):
            read_signed_info(element, DEFAULT)
    else:
        assert read_signed_info(element, DEFAULT)[2] == wanted
