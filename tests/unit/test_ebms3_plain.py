"""Plainly written units are read from their text; whatever else there is, by elements."""

import pytest
from lxml import etree

from postroad.wire import ebms3_plain, xml
from postroad.wire.ebms3_plain import plain_units
from postroad.wire.ebms3_reader import read_messaging
from postroad.wire.ebms3_signals import signal_message
from postroad.wire.ebms3_user_messages import Findings, user_message
from postroad.wire.names import EB3, S12
from postroad.wire.soap import SoapVersion
from tests.unit.ebms3_blocks import cut
from tests.unit.usual_units import AWARENESS, INFO, NON_REPUDIATION, REFERRING, USER

PLAIN = USER.replace("\n", "").replace(" seller ", "seller").replace("new  order", "new-order")


def messaging(*units: str, prefix: str = "eb") -> etree._Element:
    text = f'<eb:Messaging xmlns:S="{S12}" xmlns:eb="{EB3}" S:mustUnderstand="true">'
    text = f"{text}{''.join(units)}</eb:Messaging>"
    text = text.replace("<eb:", f"<{prefix}:").replace("</eb:", f"</{prefix}:")
    return xml.parse(text.replace("xmlns:eb=", f"xmlns:{prefix}=").encode())


def other(unit: str, number: int) -> str:
    return unit.replace("m1@example.com", f"m{number}@example.com")


@pytest.mark.parametrize("prefix", ["eb", "eb3", "ns-2.x"])
@pytest.mark.parametrize(
    "unit",
    [
        PLAIN,
        PLAIN.replace(INFO, REFERRING),
        PLAIN.replace("<eb:UserMessage>", '<eb:UserMessage mpc="urn:mpc">'),
        PLAIN.replace(">v</eb:Property>", ">v w  x</eb:Property>"),
        PLAIN.replace("05:40:37.123Z", "05:40:37Z"),
        cut(PLAIN, "<eb:MessageProperties>", "</eb:MessageProperties>"),
        cut(PLAIN, "<eb:PayloadInfo>", "</eb:PayloadInfo>"),
        cut(
            cut(PLAIN, "<eb:PayloadInfo>", "</eb:PayloadInfo>"),
            "<eb:MessageProperties>",
            "</eb:MessageProperties>",
        ),
        cut(PLAIN, "<eb:AgreementRef", "</eb:AgreementRef>"),
        NON_REPUDIATION,
    ],
)
def test_plain_units_are_read_as_in_full(unit: str, prefix: str) -> None:
    element = messaging(unit, other(unit, 2), prefix=prefix)
    findings = Findings()
    read = signal_message if unit is NON_REPUDIATION else user_message
    assert plain_units(element) == [read(one, findings) for one in element]
    assert findings.result() == ()


@pytest.mark.parametrize(
    ("usual", "unusual"),
    [
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buy<!-- -->er</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buy&amp;er</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role><![CDATA[buyer]]></eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role> </eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", '<eb:Role x="y">buyer</eb:Role>'),
        ("<eb:Role>buyer</eb:Role>", '<eb:Role xmlns:eb="urn:other">buyer</eb:Role>'),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buyer</eb:Role>x"),
        ("<eb:Role>buyer</eb:Role>", ""),
        ("</eb:From>", "</eb:From>x"),
        ("<eb:PartyInfo>", "<eb:PartyInfo>x"),
        ("urn:bob", "bob"),
        ("urn:bob", "urn:" + "b" * 4000),
        (' type="s"', ""),
        (' type="s"', ' type=" "'),
        ("urn:agreement", "agreement"),
        ("m1@example.com", "m1"),
        ("05:40:37.123Z", "05:40:37.123+01:00"),
        ("05:40:37.123Z", "25:40:37.123Z"),
        ('name="m"', ""),
        (">v</eb:Property>", "> v</eb:Property>"),
        ("<eb:MessageProperties>", "<eb:MessageProperties/><eb:MessageProperties>"),
        ("</eb:MessageProperties>", "</eb:MessageProperties>x"),
        ("cid:p2@example.com", "cid:p1%40example.com"),
        ("cid:p2@example.com", "#body"),
        ("<eb:PartInfo/>", "<eb:PartInfo/><eb:PartInfo/>"),
        ("</eb:PayloadInfo>", "</eb:PayloadInfo><eb:PayloadInfo/>"),
        ("</eb:UserMessage>", "</eb:UserMessage>x"),
        ("</eb:UserMessage>", "</eb:UserMessage><!-- -->"),
        ("</eb:UserMessage>", "</eb:UserMessage><?x y?>"),
    ],
)
def test_what_is_not_plain_is_left_to_others(usual: str, unusual: str) -> None:
    assert usual in PLAIN
    assert plain_units(messaging(other(PLAIN, 2), PLAIN.replace(usual, unusual))) is None


@pytest.mark.parametrize(
    "unit",
    [
        "",
        AWARENESS,
        f'<eb:SignalMessage>{INFO}<eb:PullRequest mpc="urn:mpc"/></eb:SignalMessage>',
        NON_REPUDIATION.replace(REFERRING, INFO),
        NON_REPUDIATION.replace("AQID", "?"),
        NON_REPUDIATION.replace("AQID", ""),
        NON_REPUDIATION.replace(' URI="#a"', ""),
        NON_REPUDIATION.replace("<eb:Receipt>", '<eb:Receipt x="y">'),
        NON_REPUDIATION.replace("xmlns:ebbp=", "xmlns:other='urn:x' xmlns:ebbp="),
        NON_REPUDIATION.replace("</ds:Reference>", "</ds:Reference><ebbp:MessagePartIdentifier/>"),
    ],
)
def test_other_signals_are_left_to_others(unit: str) -> None:
    assert not plain_units(messaging(unit))


@pytest.mark.parametrize("units", [(PLAIN, PLAIN), (other(PLAIN, 2), NON_REPUDIATION)])
def test_what_breaks_a_rule_of_the_whole_is_found(units: tuple[str, ...]) -> None:
    element = messaging(*units)
    assert plain_units(element) is not None
    assert read_messaging(element, SoapVersion.SOAP_12).problems


def test_what_is_remembered_is_bounded() -> None:
    for number in range(ebms3_plain._REMEMBERED + 10):
        unit = PLAIN.replace("urn:bob", f"urn:bob:{number}").replace("orders", f"orders-{number}")
        assert plain_units(messaging(unit)) is not None
    known = ebms3_plain._terms.cache_info()
    assert known.currsize == known.maxsize == ebms3_plain._REMEMBERED
