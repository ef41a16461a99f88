"""An eb:Messaging of any content, and what is read of it."""

from postroad.wire import soap, xml
from postroad.wire.ebms3 import SignalMessage, UserMessage
from postroad.wire.ebms3_reader import Reading, find_messaging, read_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import EB3, S12
from postroad.wire.soap import SoapVersion

V12 = SoapVersion.SOAP_12
W, F = Severity.WARNING, Severity.FAILURE

INFO = """<eb:MessageInfo><eb:Timestamp>2026-11-15T05:40:37.123Z</eb:Timestamp>
<eb:MessageId>m1@example.com</eb:MessageId></eb:MessageInfo>"""
USER = f"""<eb:UserMessage>{INFO}
<eb:PartyInfo>
<eb:From><eb:PartyId type="t">alice</eb:PartyId><eb:Role>buyer</eb:Role></eb:From>
<eb:To><eb:PartyId>urn:bob</eb:PartyId><eb:Role>seller</eb:Role></eb:To>
</eb:PartyInfo>
<eb:CollaborationInfo>
<eb:AgreementRef pmode="p">urn:agreement</eb:AgreementRef>
<eb:Service type="s">orders</eb:Service><eb:Action>new</eb:Action>
<eb:ConversationId>c1</eb:ConversationId>
</eb:CollaborationInfo>
<eb:MessageProperties><eb:Property name="n" type="y">v</eb:Property></eb:MessageProperties>
<eb:PayloadInfo>
<eb:PartInfo href="cid:p1@example.com">
<eb:Schema location="urn:xsd" version="1"/><eb:Description xml:lang="en">an order</eb:Description>
<eb:PartProperties><eb:Property name="MimeType">text/xml</eb:Property></eb:PartProperties>
</eb:PartInfo>
</eb:PayloadInfo>
</eb:UserMessage>"""
REFERRING = INFO.replace(
    "</eb:MessageId>", "</eb:MessageId><eb:RefToMessageId>r@example.com</eb:RefToMessageId>"
)
PULL = f'<eb:SignalMessage>{INFO}<eb:PullRequest mpc="urn:mpc"/></eb:SignalMessage>'
IN = "S12:Envelope/S12:Header/eb:Messaging"


def envelope(inner: str, attributes: str = 'e:mustUnderstand="true" id="m"') -> soap.Envelope:
    """An envelope around an eb:Messaging around what is given."""
    text = (
        f'<e:Envelope xmlns:e="{S12}"><e:Header><eb:Messaging xmlns:eb="{EB3}" {attributes}>'
        f"{inner}</eb:Messaging></e:Header><e:Body/></e:Envelope>"
    )
    return soap.read_envelope(xml.parse(text.encode()))


def read(inner: str, attributes: str = 'e:mustUnderstand="true" id="m"') -> Reading:
    """What is read of an eb:Messaging around what is given."""
    element = find_messaging(envelope(inner, attributes))
    assert element is not None
    reading = read_messaging(element, V12)
    assert all(one.detail and one.location for one in reading.problems), "each says what and where"
    return reading


def sole(reading: Reading) -> EbmsError:
    """The only thing that is wrong."""
    assert len(reading.problems) == 1, reading.problems
    return reading.problems[0]


def user(reading: Reading) -> UserMessage:
    """The first user message."""
    assert reading.messaging is not None
    return reading.messaging.user_messages[0]


def signal(reading: Reading) -> SignalMessage:
    """The first signal."""
    assert reading.messaging is not None
    return reading.messaging.signals[0]


def cut(text: str, start: str, end: str) -> str:
    """The text without what lies from `start` to `end`."""
    before, _, rest = text.partition(start)
    return before + rest.partition(end)[2]
