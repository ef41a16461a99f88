"""The usual units are read quickly; whatever is unusual is left to the full readers."""

import pytest
from lxml import etree

from postroad.wire import ebms3_usual, xml
from postroad.wire.ebms3_signals import signal_message
from postroad.wire.ebms3_user_messages import Findings, user_message
from postroad.wire.ebms3_usual import usual_receipt, usual_user_message
from postroad.wire.names import DS, EB3, EBBP, EXC_C14N, XENC

INFO = (
    "<eb:MessageInfo><eb:Timestamp>2026-11-15T05:40:37.123Z</eb:Timestamp>"
    "<eb:MessageId>m1@example.com</eb:MessageId></eb:MessageInfo>"
)
REFERRING = INFO.replace(
    "</eb:MessageId>", "</eb:MessageId><eb:RefToMessageId>r@example.com</eb:RefToMessageId>"
)
USER = f"""<eb:UserMessage>{INFO}
<eb:PartyInfo>
<eb:From><eb:PartyId type="t">alice</eb:PartyId><eb:Role>buyer</eb:Role></eb:From>
<eb:To><eb:PartyId>urn:bob</eb:PartyId><eb:Role> seller </eb:Role></eb:To>
</eb:PartyInfo>
<eb:CollaborationInfo>
<eb:AgreementRef pmode="p">urn:agreement</eb:AgreementRef>
<eb:Service type="s">orders</eb:Service><eb:Action>new  order</eb:Action>
<eb:ConversationId>c1</eb:ConversationId>
</eb:CollaborationInfo>
<eb:MessageProperties>
<eb:Property name="n" type="y">v</eb:Property><eb:Property name="m">v</eb:Property>
</eb:MessageProperties>
<eb:PayloadInfo>
<eb:PartInfo href="cid:p1@example.com">
<eb:PartProperties><eb:Property name="MimeType">text/xml</eb:Property></eb:PartProperties>
</eb:PartInfo><eb:PartInfo href="cid:p2@example.com"/><eb:PartInfo/>
</eb:PayloadInfo>
</eb:UserMessage>"""
REFERENCE = (
    f'<ebbp:MessagePartNRInformation><ds:Reference xmlns:ds="{DS}" URI="#a"><ds:Transforms>'
    f'<ds:Transform Algorithm="{EXC_C14N}"/></ds:Transforms>'
    f'<ds:DigestMethod Algorithm="{XENC}sha256"/><ds:DigestValue>AQID</ds:DigestValue>'
    "</ds:Reference></ebbp:MessagePartNRInformation>"
)
INFORMATION = (
    f'<ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">{REFERENCE}{REFERENCE}'
    "</ebbp:NonRepudiationInformation>"
)


def receipt(content: str, info: str = REFERRING) -> str:
    return f"<eb:SignalMessage>{info}<eb:Receipt>{content}</eb:Receipt></eb:SignalMessage>"


AWARENESS = receipt(USER)
NON_REPUDIATION = receipt(INFORMATION)


def parsed(unit: str) -> etree._Element:
    return xml.parse(f'<eb:Messaging xmlns:eb="{EB3}">{unit}</eb:Messaging>'.encode())[0]


def without(text: str, start: str, end: str) -> str:
    before, _, rest = text.partition(start)
    return before + rest.partition(end)[2]


@pytest.mark.parametrize(
    "unit",
    [
        USER,
        USER.replace("\n", ""),
        USER.replace(INFO, REFERRING),
        USER.replace("<eb:UserMessage>", '<eb:UserMessage mpc="urn:mpc">'),
        without(USER, "<eb:MessageProperties>", "</eb:MessageProperties>"),
        without(USER, "<eb:PayloadInfo>", "</eb:PayloadInfo>"),
        without(USER, "<eb:AgreementRef", "</eb:AgreementRef>"),
    ],
)
def test_the_usual_user_message_is_read_as_in_full(unit: str) -> None:
    findings = Findings()
    assert usual_user_message(parsed(unit)) == user_message(parsed(unit), findings)
    assert findings.result() == ()


@pytest.mark.parametrize("unit", [AWARENESS, NON_REPUDIATION])
def test_the_usual_receipt_is_read_as_in_full(unit: str) -> None:
    findings = Findings()
    assert usual_receipt(parsed(unit)) == signal_message(parsed(unit), findings)
    assert findings.result() == ()


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buy<!-- -->er</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role> </eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", '<eb:Role x="y">buyer</eb:Role>'),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buyer</eb:Role>x"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buyer</eb:Role><eb:Role>buyer</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", ""),
        ("</eb:From>", "</eb:From>x"),
        ("<eb:PartyInfo>", "<eb:PartyInfo>x"),
        ("urn:bob", "bob"),
        (' type="s"', ""),
        (' type="s"', ' type=" "'),
        ("urn:agreement", "agreement"),
        ("m1@example.com", "m1"),
        ("05:40:37.123Z", "05:40:37.123+01:00"),
        ("05:40:37.123Z", "25:40:37.123Z"),
        ('name="m"', ""),
        ("cid:p2@example.com", "cid:p1%40example.com"),
        ("cid:p2@example.com", "#body"),
        ("<eb:PartInfo/>", "<eb:PartInfo/><eb:PartInfo/>"),
        ("<eb:CollaborationInfo>", "<eb:CollaborationInfo/><eb:CollaborationInfo>"),
        ("urn:bob", "urn:" + "b" * 2000),
    ],
)
def test_whatever_is_unusual_is_left_to_the_full_reader(usual: str, other: str) -> None:
    assert usual in USER
    assert usual_user_message(parsed(USER.replace(usual, other))) is None
    assert usual_receipt(parsed(AWARENESS.replace(usual, other))) is None


@pytest.mark.parametrize(
    "unit",
    [
        f'<eb:SignalMessage>{INFO}<eb:PullRequest mpc="urn:mpc"/></eb:SignalMessage>',
        receipt(USER, INFO),
        receipt(USER + INFORMATION),
        receipt(""),
        receipt("<!-- -->"),
        receipt(f'<ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}"/>'),
        NON_REPUDIATION.replace("AQID", "?"),
        NON_REPUDIATION.replace(' URI="#a"', ""),
        NON_REPUDIATION.replace("<eb:Receipt>", '<eb:Receipt x="y">'),
        NON_REPUDIATION.replace("</ds:Reference>", "</ds:Reference><ebbp:MessagePartIdentifier/>"),
        NON_REPUDIATION.replace(INFORMATION, INFORMATION.replace(EBBP, "urn:other")),
    ],
)
def test_any_other_signal_is_left_to_the_full_reader(unit: str) -> None:
    assert usual_receipt(parsed(unit)) is None


def test_what_is_remembered_is_bounded() -> None:
    for number in range(ebms3_usual._REMEMBERED + 10):
        other = USER.replace("urn:bob", f"urn:bob:{number}").replace("orders", f"orders-{number}")
        assert usual_user_message(parsed(other)) is not None
    for remembering in (ebms3_usual._known_party, ebms3_usual._known_business):
        known = remembering.cache_info()
        assert known.currsize == known.maxsize == ebms3_usual._REMEMBERED
