"""Headers that others wrote are read, and refused for what is wrong with them."""

import pytest

from postroad.wire import soap, xml
from postroad.wire.ebms3_reader import Reading, find_messaging, read_messaging
from postroad.wire.errors import EbmsError


def _recorded(vectors, name: str) -> Reading:
    envelope = soap.read_envelope(xml.parse((vectors / "phase4" / name).read_bytes()))
    element = find_messaging(envelope)
    assert element is not None
    return read_messaging(element, envelope.version)


@pytest.mark.parametrize(
    "name",
    [
        "soap11test/BundledMessage.xml",
        "soap11test/ErrorMessage.xml",
        "soap11test/PullRequest.xml",
        "soap11test/ReceiptMessage.xml",
        "soap11test/UserMessage.xml",
        "soap11test/UserMessageResponse.xml",
        "soap12test/PullRequest12.xml",  # its namespaces of WS-Security hold a line break
        "soap12test/UserMessage12.xml",
        "soap12test/test-2023-03-15.xml",
        "testfiles/ErrorMessage.xml",
        "testfiles/ErrorMessageNoRefToMessageID.xml",
        "testfiles/ErrorMessageWithFault.xml",
        "testfiles/TestReceipt12.xml",
    ],
)
def test_good_headers_of_another_product_are_read_without_failure(vectors, name):
    reading = _recorded(vectors, name)
    assert reading.messaging is not None
    assert reading.failures == ()


@pytest.mark.parametrize(
    ("name", "code", "place", "says"),
    [
        ("soap11test/EmptyMessaging.xml", "EBMS:0009", "eb:Messaging", "found none"),
        ("soap11test/MessageInfoIDMissing.xml", "EBMS:0009", "eb:MessageInfo", "eb:MessageId is"),
        ("soap11test/MessageInfoImaginaryTimestamp.xml", "EBMS:0009", "eb:Timestamp", "30:99"),
        ("soap11test/MessageInfoMissing.xml", "EBMS:0009", "eb:UserMessage", "eb:MessageInfo is"),
        ("testfiles/NoResponder.xml", "EBMS:0009", "eb:PartyInfo", "eb:To is required"),
        ("testfiles/UserMessageNoPartyID.xml", "EBMS:0009", "eb:PartyId", "is empty"),
    ],
)
def test_bad_headers_of_another_product_are_refused_for_what_is_wrong(
    vectors, name, code, place, says
):
    first = _recorded(vectors, name).failures[0]
    assert first.code == code
    assert first.location is not None
    assert first.location.endswith(place)
    assert says in first.detail


@pytest.mark.parametrize(
    "name", ["testfiles/WrongSigningDigestAlgorithm.xml", "testfiles/UserMessageWithoutWSSE.xml"]
)
def test_untyped_party_ids_of_another_product_are_a_warning(vectors, name):
    reading = _recorded(vectors, name)
    assert reading.failures == ()
    said = [one.detail for one in reading.problems if one.code == "EBMS:0003"]
    assert said
    assert all("eb:PartyId without the attribute type" in one for one in said)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("soap12test/UserMessageWithCompressedPayload12.xml", "not well-formed"),
        ("testfiles/TestReceipt11.xml", "nowhere else"),  # a whole envelope in the receipt
    ],
)
def test_damaged_messages_of_another_product_are_refused(vectors, name, says):
    with pytest.raises(EbmsError, match=says) as caught:
        _recorded(vectors, name)
    assert caught.value.code == "EBMS:0009"


@pytest.mark.parametrize("name", ["NoMessaging.xml", "UserMessage-no-soap.xml"])
def test_a_header_without_an_envelope_is_refused(vectors, name):
    data = (vectors / "phase4/soap11test" / name).read_bytes()
    with pytest.raises(EbmsError, match="<Messaging>"):
        soap.read_envelope(xml.parse(data))


def test_the_sample_messages_of_the_specification_are_read(vectors):
    for place in sorted((vectors / "oasis").glob("*.xml")):
        envelope = soap.read_envelope(xml.parse(place.read_bytes()))
        element = find_messaging(envelope)
        assert element is not None
        reading = read_messaging(element, envelope.version)
        assert reading.messaging is not None
        # The samples name the Service "Sales" without a type: a warning.
        assert reading.failures == ()
