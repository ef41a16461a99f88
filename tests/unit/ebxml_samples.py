"""ebXML messages of each version, for tests to write, read and spoil."""

from datetime import UTC, datetime

import pytest
from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DIALECTS,
    MS098,
    ONCE_AND_ONLY_ONCE,
    Acknowledgment,
    EbxmlMessage,
    Error,
    ErrorList,
    Manifest,
    ManifestReference,
    MessageHeader,
    Reading,
    StatusData,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml_reader import dialect_of, read_ebxml
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.names import DS, EB1, EB2, EBRM, S11, XLINK
from postroad.wire.soap import read_envelope
from tests.changing import replace

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BUYER = Party((PartyId("urn:example:buyer"),), "")
SELLER = Party((PartyId("1234567890123", "urn:duns"),), "")
VERSIONS = tuple(DIALECTS.values())
OLD = tuple(dialect for dialect in VERSIONS if dialect.has_trace)
PLACES = {"S": S11, "eb": EB1, "eb2": EB2, "xlink": XLINK, "ds": DS, "rm": EBRM}
HEADER = "/SOAP-ENV:Envelope/SOAP-ENV:Header"
BODY = "/SOAP-ENV:Envelope/SOAP-ENV:Body"
TOP = f"{HEADER}/eb:MessageHeader"
REF = "0@seller.example"


def header(**changes):
    given = MessageHeader(
        from_party=BUYER,
        to_party=SELLER,
        cpa_id="http://cpa.example/1",
        conversation_id="20260131-1",
        service=Service("urn:example:orders"),
        action="NewOrder",
        message_id="1@buyer.example",
        timestamp=NOW,
    )
    return replace(given, **changes)


def message(dialect=MS098, **changes):
    given = {
        "header": header(),
        "manifest": Manifest((ManifestReference(href="cid:order@buyer.example", id="order"),)),
    }
    return EbxmlMessage(dialect=dialect, **(given | changes))


def about(dialect=MS098, **changes):
    """A message about another one."""
    return message(dialect, header=header(ref_to_message_id=REF), manifest=None, **changes)


def errors(**changes):
    """A message that tells of one error."""
    given = Error(error_code="Inconsistent", code_context=MS098.error_code_context, text="so")
    return about(error_list=ErrorList((replace(given, **changes),)))


STATUS = about(status_data=StatusData(REF, "Received", NOW))
RECEIPT = about(acknowledgment=Acknowledgment(timestamp=NOW, type=ACKNOWLEDGMENT))


def reliable(**changes):
    return header(delivery_semantics=ONCE_AND_ONLY_ONCE, **changes)


def trace(sender="buyer", receiver="hub", **changes):
    given = TraceHeader(f"https://{sender}.example/msh", f"https://{receiver}.example/msh", NOW)
    return replace(given, **changes)


def whole(**changes):
    """A message of 0.98b with all that its Header may hold from hop to hop."""
    given = {"trace": (trace(),), "via": Via(ack_requested="Signed"), "header": reliable()}
    return message(**(given | changes))


def refused(value, why):
    """A message that must not be sent is not written."""
    with pytest.raises(ValueError, match=why):
        write_ebxml(value)


def written(value):
    """The tree of what is written, read without Postroad."""
    return etree.fromstring(write_ebxml(value))


def find(tree, path):
    """The one thing that a path leads to."""
    found = tree.xpath(path, namespaces=PLACES)
    assert len(found) == 1, (path, found)
    return found[0]


def read(data, **options) -> Reading:
    envelope = read_envelope(xml.parse(data))
    dialect = dialect_of(envelope)
    assert dialect is not None
    reading = read_ebxml(envelope, dialect, **options)
    assert all(one.detail and one.location for one in reading.problems), "each says what and where"
    return reading


def spoiled(old, new, value=None, *, count=1):
    """A good message, written, with something in it replaced."""
    data = write_ebxml(value or message()).decode()
    assert old in data, old
    return data.replace(old, new, count).encode()


def told(reading):
    """Code, severity and place of each problem."""
    return [(one.code, one.severity.value, one.location) for one in reading.problems]


def problems(old, new, value=None, **options):
    """What a reader says about a good message with something in it replaced."""
    return told(read(spoiled(old, new, value), **options))
