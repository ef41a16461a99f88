"""What is read quickly is what the full readers read, or it is left to them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import SignalMessage, UserMessage
from postroad.wire.ebms3_signals import signal_message
from postroad.wire.ebms3_user_messages import Findings, user_message
from postroad.wire.ebms3_usual import usual_receipt, usual_user_message
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import EB3, TEST_ACTION
from postroad.wire.soap import SoapVersion
from tests.property.strategies import messagings
from tests.unit.usual_units import AWARENESS, NON_REPUDIATION, USER, parsed

TEXTS = (
    None,
    "",
    " ",
    "\n\t",
    "text",
    " urn:blanks:around ",
    "two  blanks",
    "a\tb",
    "urn:\u00a0x",
    "\u00a0",
    "<angle>@example.com",
    "left@right",
    "2026-11-15T05:40:37+01:00",
    "2026-11-15T24:00:00Z",
    "2026-02-30T05:40:37Z",
    TEST_ACTION,
    "#fragment",
    "AAAA",
    "urn:" + "x" * 2000,
)
TAGS = (
    *(f"{{{EB3}}}{name}" for name in ("PartyId", "Role", "Property", "PartInfo", "MessageInfo")),
    "{urn:foreign}Other",
    "Role",
)
ATTRIBUTES = ("type", "name", "mpc", "href", "pmode", "other", "{urn:foreign}type")


def _text(element: etree._Element, draw) -> None:
    element.text = draw(st.sampled_from(TEXTS))


def _tail(element: etree._Element, draw) -> None:
    element.tail = draw(st.sampled_from(TEXTS))


def _attribute(element: etree._Element, draw) -> None:
    element.set(draw(st.sampled_from(ATTRIBUTES)), draw(st.sampled_from(TEXTS)) or "")


def _no_attributes(element: etree._Element, _draw) -> None:
    element.attrib.clear()


def _name(element: etree._Element, draw) -> None:
    element.tag = draw(st.sampled_from(TAGS))


def _comment(element: etree._Element, draw) -> None:
    comment = etree.Comment("c")
    comment.tail = draw(st.sampled_from(TEXTS))
    element.insert(draw(st.integers(0, len(element))), comment)


def _leaf(element: etree._Element, draw) -> None:
    leaf = etree.Element(draw(st.sampled_from(TAGS)))
    leaf.text = draw(st.sampled_from(TEXTS))
    element.insert(draw(st.integers(0, len(element))), leaf)


def _removed(element: etree._Element, _draw) -> None:
    parent = element.getparent()
    if parent is not None and parent.getparent() is not None:
        parent.remove(element)


def _moved_into_the_one_before(element: etree._Element, _draw) -> None:
    before = element.getprevious()
    if before is not None and isinstance(before.tag, str):
        before.append(element)


def _repeated(element: etree._Element, _draw) -> None:
    parent = element.getparent()
    if parent is not None and parent.getparent() is not None:
        copy = etree.fromstring(etree.tostring(element, with_tail=False))
        parent.insert(parent.index(element), copy)


def _last_first(element: etree._Element, _draw) -> None:
    if len(element) > 1:
        element.insert(0, element[-1])


DISTURBANCES = (
    _text,
    _tail,
    _attribute,
    _no_attributes,
    _name,
    _comment,
    _leaf,
    _removed,
    _moved_into_the_one_before,
    _repeated,
    _last_first,
)


@st.composite
def disturbed(draw) -> etree._Element:
    """A usual unit with something done to it somewhere."""
    unit = parsed(draw(st.sampled_from((USER, AWARENESS, NON_REPUDIATION))))
    for _ in range(draw(st.integers(0, 2))):
        elements = [item for item in unit.iter() if isinstance(item.tag, str)]
        draw(st.sampled_from(DISTURBANCES))(draw(st.sampled_from(elements)), draw)
    return unit


def agrees(element: etree._Element) -> bool:
    """Whether it was read quickly, and then as in full."""
    findings = Findings()
    quick: UserMessage | SignalMessage | None
    full: UserMessage | SignalMessage
    if element.tag == f"{{{EB3}}}SignalMessage":
        quick, full = usual_receipt(element), signal_message(element, findings)
    else:
        quick, full = usual_user_message(element), user_message(element, findings)
    if quick is None:
        return False
    assert quick == full
    assert findings.result() == ()
    return True


@settings(max_examples=max(500, settings().max_examples))
@given(disturbed())
def test_whatever_is_read_quickly_is_what_is_read_in_full(element):
    agrees(element)


@settings(max_examples=min(1000, settings().max_examples))
@given(messagings())
def test_whatever_may_be_sent_is_read_quickly_as_in_full_or_not_at_all(messaging):
    written = write_messaging(messaging, SoapVersion.SOAP_12)
    for element in xml.parse(written.encode()):
        agrees(element)


@pytest.mark.parametrize("unit", [USER, AWARENESS, NON_REPUDIATION])
def test_the_units_that_are_disturbed_here_are_usual(unit):
    assert agrees(parsed(unit))
