"""Letters that break each rule of sections 7 and 8 of ebXML MS 0.98b once: what, and where."""

from typing import Final

from tests.node.ebxml_letters import (
    BODY,
    CID,
    DATA,
    GOOD,
    HEADER,
    MANIFEST,
    NEXT,
    RELIABLY,
    TIME,
    TOP,
    block,
    case,
    error,
    header,
    manifest,
    order,
    pack,
    quality,
    spoiled,
    via,
)

VIA: Final = f"{TOP}/eb:Via"
QUALITY: Final = f"{HEADER}/eb:QualityOfServiceInfo"
NUMBER: Final = '<eb:SequenceNumber eb:status="{}">{}</eb:SequenceNumber>'
FOREIGN: Final = '<x:a xmlns:x="urn:example:x"{}/>'
MUST: Final = ' SOAP-ENV:mustUnderstand="1"'
STATUS: Final = block(
    "StatusData",
    "<eb:RefToMessageId>0@seller.example</eb:RefToMessageId>",
    more=' eb:messageStatus="Received"',
)


def element(name: str, value: str) -> str:
    """A simple element of ebXML."""
    return f"<eb:{name}>{value}</eb:{name}>"


def with_via(attributes: str = "", content: str = "") -> str:
    """A reliable order with a Via."""
    return order("0.98b", via(attributes, content), inside=RELIABLY)


def in_header(old: str, new: str) -> str:
    """A reliable order with other attributes of its MessageHeader."""
    return spoiled(GOOD, f"<eb:MessageHeader{old}>", f"<eb:MessageHeader{new}>")


BROKEN: Final = [
    case(
        "no Timestamp",
        spoiled(GOOD, f"</eb:MessageId>{element('Timestamp', TIME)}", "</eb:MessageId>"),
        "OtherXml",
        DATA,
    ),
    case(
        "Timestamp is no time",
        spoiled(GOOD, f"</eb:MessageId><eb:Timestamp>{TIME}", "</eb:MessageId><eb:Timestamp>noon"),
        "OtherXml",
        f"{DATA}/eb:Timestamp",
    ),
    case(
        "Timestamp in the future",
        GOOD.replace("2024-", "2034-"),
        "Inconsistent",
        f"{DATA}/eb:Timestamp",
    ),
    case(
        "RefToMessageId is empty",
        order(ref="", inside=RELIABLY),
        "OtherXml",
        f"{DATA}/eb:RefToMessageId",
    ),
    case(
        "TimeToLive is no time",
        order(live="soon", inside=RELIABLY),
        "OtherXml",
        f"{DATA}/eb:TimeToLive",
    ),
    case(
        "TimeToLive is over",
        order(live="2024-06-01T11:59:59Z", inside=RELIABLY),
        "TimeToLiveExpired",
        f"{DATA}/eb:TimeToLive",
        req="MS098-10.2.3-02 MS098-10.2.3-04 MS098-10.2.3-05",
    ),
    case(
        "no version",
        in_header(' SOAP-ENV:mustUnderstand="1" eb:version="0.98b"', MUST),
        "OtherXml",
        HEADER,
    ),
    case(
        "no mustUnderstand",
        in_header(f'{MUST} eb:version="0.98b"', ' eb:version="0.98b"'),
        "OtherXml",
        HEADER,
    ),
    case(
        "mustUnderstand is 0",
        in_header(MUST + ' eb:version="0.98b"', MUST.replace("1", "0") + ' eb:version="0.98b"'),
        "OtherXml",
        f"{HEADER}/@SOAP-ENV:mustUnderstand",
    ),
    case(
        "two MessageHeaders",
        order("0.98b", header(), inside=RELIABLY),
        "OtherXml",
        f"{HEADER}[2]",
    ),
    case(
        "foreign element in MessageHeader",
        spoiled(GOOD, "</eb:MessageHeader>", FOREIGN.format(MUST) + "</eb:MessageHeader>"),
        "NotSupported",
        f"{HEADER}/*[local-name()='a']",
        req="MS098-8.2.3-05",
    ),
    case(
        "foreign element in TraceHeader",
        spoiled(GOOD, "</eb:TraceHeader>", FOREIGN.format(MUST) + "</eb:TraceHeader>"),
        "NotSupported",
        f"{TOP}/eb:TraceHeaderList/eb:TraceHeader/*[local-name()='a']",
        req="MS098-8.2.3-05",
    ),
    case(
        "foreign element in Manifest",
        spoiled(GOOD, "</eb:Manifest>", FOREIGN.format(MUST) + "</eb:Manifest>"),
        "NotSupported",
        f"{MANIFEST}/*[local-name()='a']",
        req="MS098-8.2.3-05",
    ),
    case(
        "foreign element in Reference",
        spoiled(
            GOOD,
            f'xlink:href="cid:{CID}"/>',
            f'xlink:href="cid:{CID}">{FOREIGN.format(MUST)}</eb:Reference>',
        ),
        "NotSupported",
        f"{MANIFEST}/eb:Reference/*[local-name()='a']",
        req="MS098-8.2.3-05",
    ),
    case(
        "unknown deliverySemantics",
        order(inside=quality("Perhaps")),
        "NotSupported",
        f"{QUALITY}/@eb:deliverySemantics",
        req="MS098-10.2.1-02 MS098-10.2.1-07",
    ),
    case(
        "unknown messageOrderSemantics",
        order(inside=quality("OnceAndOnlyOnce", "Perhaps")),
        "NotSupported",
        f"{QUALITY}/@eb:messageOrderSemantics",
        req="MS098-8.4.7.2-05",
    ),
    case(
        "unknown deliveryReceiptRequested",
        order(inside=quality("OnceAndOnlyOnce", None, "Perhaps")),
        "ValueNotRecognized",
        f"{QUALITY}/@eb:deliveryReceiptRequested",
        req="MS098-8.4.7.1-02",
    ),
    case(
        "a signed receipt without a key",
        order(inside=quality("OnceAndOnlyOnce", None, "Signed")),
        "NotSupported",
        HEADER,
        req="MS098-8.4.7.1-05",
    ),
    case(
        "a signed acknowledgment without a key",
        with_via(' eb:ackRequested="Signed"'),
        "NotSupported",
        HEADER,
    ),
    case(
        "deliverySemantics against the CPA",
        order(inside=quality("BestEffort")),
        "Inconsistent",
        HEADER,
        req="MS098-8.4.2-06 MS098-8.4.2-08",
    ),
    case(
        "messageOrderSemantics against the CPA",
        order(action="unordered", inside=quality("OnceAndOnlyOnce", "Guaranteed")),
        "Inconsistent",
        HEADER,
        req="MS098-8.4.2-08",
    ),
    case(
        "OnceAndOnlyOnce against the CPA",
        order(action="besteffort", inside=RELIABLY),
        "Inconsistent",
        HEADER,
        req="MS098-8.4.2-08",
    ),
    case(
        "Guaranteed with BestEffort",
        order(action="besteffort", inside=quality("BestEffort", "Guaranteed")),
        "Inconsistent",
        f"{QUALITY}/@eb:messageOrderSemantics",
        req="MS098-8.4.7.2-04",
    ),
    case(
        "SequenceNumber with BestEffort",
        order(action="besteffort", inside=quality("BestEffort") + NUMBER.format("Reset", 0)),
        "Inconsistent",
        f"{HEADER}/eb:SequenceNumber",
        req="MS098-8.4.8-05",
    ),
    case(
        "SequenceNumber where the CPA says BestEffort",
        order(action="besteffort", inside=NUMBER.format("Reset", 0)),
        "Inconsistent",
        f"{HEADER}/eb:SequenceNumber",
        req="MS098-8.4.8-05",
    ),
    case(
        "SequenceNumber below its range",
        order(inside=RELIABLY + NUMBER.format("Continue", -1)),
        "OtherXml",
        f"{HEADER}/eb:SequenceNumber",
    ),
    case(
        "SequenceNumber above its range",
        order(inside=RELIABLY + NUMBER.format("Continue", 100_000_000)),
        "OtherXml",
        f"{HEADER}/eb:SequenceNumber",
    ),
    case(
        "SequenceNumber in other numerals",
        order(inside=RELIABLY + NUMBER.format("Continue", "\u0661")),
        "OtherXml",
        f"{HEADER}/eb:SequenceNumber",
    ),
    case(
        "unknown status of a SequenceNumber",
        order(inside=RELIABLY + NUMBER.format("Again", 0)),
        "ValueNotRecognized",
        f"{HEADER}/eb:SequenceNumber/@eb:status",
    ),
    case(
        "Reset that is not zero",
        order(inside=RELIABLY + NUMBER.format("Reset", 5)),
        "Inconsistent",
        f"{HEADER}/eb:SequenceNumber/@eb:status",
    ),
    case(
        "two Vias",
        order(
            "0.98b",
            via(' eb:ackRequested="None"'),
            via(' eb:ackRequested="None"'),
            inside=RELIABLY,
        ),
        "OtherXml",
        f"{VIA}[2]",
    ),
    case("Via without content", with_via(), "OtherXml", VIA),
    case(
        "Via without actor",
        spoiled(with_via(' eb:ackRequested="None"'), f' SOAP-ENV:actor="{NEXT}"', ""),
        "OtherXml",
        VIA,
    ),
    case(
        "Via with Service and no Action",
        with_via(' eb:ackRequested="None"', element("Service", "urn:example:log")),
        "Inconsistent",
        f"{VIA}/eb:Service",
    ),
    case(
        "Via with Action and no Service",
        with_via(' eb:ackRequested="None"', element("Action", "log")),
        "Inconsistent",
        f"{VIA}/eb:Action",
    ),
    case(
        "unknown syncReply",
        with_via(' eb:syncReply="perhaps"'),
        "ValueNotRecognized",
        f"{VIA}/@eb:syncReply",
    ),
    case(
        "unknown reliableMessagingMethod",
        with_via(' eb:reliableMessagingMethod="Pigeon"'),
        "ValueNotRecognized",
        f"{VIA}/@eb:reliableMessagingMethod",
    ),
    case(
        "reliableMessagingMethod in other letters",
        with_via(' eb:reliableMessagingMethod="EBXML"'),
        "ValueNotRecognized",
        f"{VIA}/@eb:reliableMessagingMethod",
        req="MS098-10.2.4-01",
    ),
    case(
        "reliableMessagingMethod Transport",
        with_via(' eb:reliableMessagingMethod="Transport"'),
        "NotSupported",
        HEADER,
    ),
    case(
        "unknown ackRequested",
        with_via(' eb:ackRequested="Maybe"'),
        "ValueNotRecognized",
        f"{VIA}/@eb:ackRequested",
        req="MS098-10.2.5-01",
    ),
    case(
        "Via of another version",
        spoiled(
            with_via(' eb:ackRequested="None"'),
            f'<eb:Via{MUST} eb:version="0.98b"',
            f'<eb:Via{MUST} eb:version="1.0"',
        ),
        "Inconsistent",
        f"{VIA}/@eb:version",
    ),
    case(
        "TraceHeaderList of another version",
        spoiled(
            GOOD,
            f'<eb:TraceHeaderList{MUST} eb:version="0.98b"',
            f'<eb:TraceHeaderList{MUST} eb:version="1.0"',
        ),
        "Inconsistent",
        f"{TOP}/eb:TraceHeaderList/@eb:version",
    ),
    case(
        "TraceHeaderList without mustUnderstand",
        spoiled(GOOD, f"<eb:TraceHeaderList{MUST}", "<eb:TraceHeaderList"),
        "OtherXml",
        f"{TOP}/eb:TraceHeaderList",
    ),
    case(
        "unknown extension in the Header",
        order("0.98b", block("Foo", "").replace(MUST, ""), inside=RELIABLY),
        "OtherXml",
        f"{TOP}/eb:Foo",
    ),
    case(
        "unknown extension in the Body",
        order(body=manifest() + block("Foo", "").replace(MUST, ""), inside=RELIABLY),
        "OtherXml",
        f"{BODY}/eb:Foo",
    ),
    case(
        "ErrorList about nothing",
        order("0.98b", error("Inconsistent", "Warning"), inside=RELIABLY),
        "Inconsistent",
        DATA,
    ),
    case(
        "StatusData with Manifest",
        order(body=manifest() + STATUS, inside=RELIABLY),
        "Inconsistent",
        MANIFEST,
    ),
    case(
        "Manifest without id",
        spoiled(GOOD, ' id="all"', ""),
        "OtherXml",
        MANIFEST,
    ),
    case(
        "id of Manifest is no XML ID",
        spoiled(GOOD, ' id="all"', ' id="1"'),
        "OtherXml",
        f"{MANIFEST}/@id",
    ),
    case(
        "Manifest without Reference",
        order(body=manifest(hrefs=()), inside=RELIABLY),
        "OtherXml",
        MANIFEST,
    ),
    case(
        "mustUnderstand of Manifest is 0",
        spoiled(GOOD, f"<eb:Manifest{MUST}", f"<eb:Manifest{MUST.replace('1', '0')}"),
        "OtherXml",
        f"{MANIFEST}/@SOAP-ENV:mustUnderstand",
    ),
    case(
        "Manifest of another version",
        spoiled(
            GOOD,
            f'<eb:Manifest{MUST} eb:version="0.98b"',
            f'<eb:Manifest{MUST} eb:version="2.0"',
        ),
        "Inconsistent",
        f"{MANIFEST}/@eb:version",
    ),
    case(
        "two Manifests",
        order(body=manifest() + manifest(), inside=RELIABLY),
        "OtherXml",
        f"{MANIFEST}[2]",
    ),
    case(
        "Reference without id",
        spoiled(GOOD, ' id="p0"', ""),
        "OtherXml",
        f"{MANIFEST}/eb:Reference",
    ),
    case(
        "Reference without href",
        pack(spoiled(GOOD, f' xlink:href="cid:{CID}"', "")),
        "OtherXml",
        f"{MANIFEST}/eb:Reference",
    ),
    case(
        "Reference that is no simple link",
        spoiled(GOOD, 'xlink:type="simple"', 'xlink:type="extended"'),
        "OtherXml",
        f"{MANIFEST}/eb:Reference/@xlink:type",
    ),
    case(
        "role of Reference is no URI",
        spoiled(GOOD, 'xlink:type="simple"', 'xlink:type="simple" xlink:role="the order"'),
        "OtherXml",
        f"{MANIFEST}/eb:Reference/@xlink:role",
    ),
    case(
        "Schema without location",
        spoiled(
            GOOD,
            f'xlink:href="cid:{CID}"/>',
            f'xlink:href="cid:{CID}"><eb:Schema version="1"/></eb:Reference>',
        ),
        "OtherXml",
        f"{MANIFEST}/eb:Reference/eb:Schema",
    ),
    case(
        "a part is missing",
        pack(GOOD),
        "MimeProblem",
        f"{MANIFEST}/eb:Reference[1]/@xlink:href",
        req="MS098-8.10.7-02",
    ),
    case(
        "two References to one part",
        order(body=manifest(hrefs=(f"cid:{CID}", f"cid:{CID}")), inside=RELIABLY),
        "NotSupported",
        f"{MANIFEST}/eb:Reference[2]",
    ),
    case(
        "a payload elsewhere that is not fetched",
        order(body=manifest(hrefs=("http://payloads.example/1",)), inside=RELIABLY),
        "MimeProblem",
        f"{MANIFEST}/eb:Reference[1]/@xlink:href",
        req="MS098-8.10.7-04",
    ),
]
