"""Units of eb:Messaging as they usually are."""

from lxml import etree

from postroad.wire import xml
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
    """A receipt of that content."""
    return f"<eb:SignalMessage>{info}<eb:Receipt>{content}</eb:Receipt></eb:SignalMessage>"


AWARENESS = receipt(USER)
NON_REPUDIATION = receipt(INFORMATION)


def parsed(unit: str) -> etree._Element:
    """The unit in an eb:Messaging."""
    return xml.parse(f'<eb:Messaging xmlns:eb="{EB3}">{unit}</eb:Messaging>'.encode())[0]
