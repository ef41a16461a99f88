"""WS-ReliableMessaging on the wire: what is not as it must be is told, and where."""

import pytest

from postroad.wire.ebms3 import CollaborationInfo, Party, PartyId, Service
from postroad.wire.errors import Severity
from postroad.wire.multihop import RoutingInput, RoutingUserMessage
from postroad.wire.names import I_CLOUD, NEXT_MSH, S12, WSRM, WSRM10
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.wsa import EndpointReference
from postroad.wire.wsrm import (
    MOST_HEADERS,
    MOST_RANGES,
    CreateSequence,
    SequenceAcknowledgement,
    action_of,
    write_acknowledgement,
    write_lifecycle,
)
from postroad.wire.wsrm_faults import ESCALATED, Code
from postroad.wire.wsrm_reader import read_lifecycle, read_rm_headers
from postroad.wire.xml import parse


def _envelope(header: str, body: str = "", namespace: str = WSRM) -> Envelope:
    return read_envelope(
        parse(
            (
                f'<S:Envelope xmlns:S="{S12}" xmlns:r="{namespace}"'
                ' xmlns:p="http://docs.oasis-open.org/ws-rx/wsrmp/200702"'
                ' xmlns:a="http://www.w3.org/2005/08/addressing">'
                f"<S:Header>{header}</S:Header><S:Body>{body}</S:Body></S:Envelope>"
            ).encode()
        )
    )


_ID = "<r:Identifier>urn:s</r:Identifier>"


def _ack(content: str) -> str:
    return f"<r:SequenceAcknowledgement>{_ID}{content}</r:SequenceAcknowledgement>"


def _range(lower: object, upper: object) -> str:
    return f'<r:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>'


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("<r:Sequence/>", "MessageNumber is missing"),
        ("<r:AckRequested/>", "Identifier is missing"),
        (f"<r:Sequence>{_ID}<r:MessageNumber>0</r:MessageNumber></r:Sequence>", "no number"),
        (f"<r:Sequence>{_ID}<r:MessageNumber>1{'0' * 19}</r:MessageNumber></r:Sequence>", "no num"),
        (f"<r:Sequence>{_ID}{_ID}<r:MessageNumber>1</r:MessageNumber></r:Sequence>", "more than"),
        (f"<r:Sequence>{_ID}<r:MessageNumber>1</r:MessageNumber></r:Sequence>" * 2, "are two"),
        ("<r:AckRequested><r:Identifier>a b</r:Identifier></r:AckRequested>", "no identifier"),
        (f"<r:AckRequested>{_ID}</r:AckRequested>" * (MOST_HEADERS + 1), "more than"),
        (_ack(""), "ranges, or None"),
        (_ack("<r:None/><r:Nack>1</r:Nack>"), "ranges, or None"),
        (_ack("<r:Nack>1</r:Nack><r:Final/>"), "ranges, or None"),
        (_ack(_range(3, 2)), "Lower is not above"),
        (_ack(_range(1, 5) + _range(4, 6)), "overlap"),
        (_ack("".join(_range(n * 2 + 1, n * 2 + 1) for n in range(MOST_RANGES + 1))), "more than"),
    ],
)
def test_a_header_that_cannot_be_is_told(header: str, said: str) -> None:
    found, problems = read_rm_headers(_envelope(header))
    assert found is None
    assert said in problems[0].detail
    assert problems[0].code == "EBMS:0201"


def test_the_older_version_is_told_by_name() -> None:
    header = f"<r:Sequence>{_ID}<r:MessageNumber>1</r:MessageNumber></r:Sequence>"
    for _, problems in (
        read_rm_headers(_envelope(header, "", WSRM10)),
        read_lifecycle(_envelope("", "<r:CreateSequence/>", WSRM10)),
    ):
        assert "1.0" in problems[0].detail


def test_ranges_may_come_in_any_order_and_touch() -> None:
    found, problems = read_rm_headers(_envelope(_ack(_range(4, 6) + _range(1, 3) + _range(9, 9))))
    assert not problems
    assert found is not None
    assert found.acknowledgements == (SequenceAcknowledgement("urn:s", ((1, 6), (9, 9))),)


def test_ranges_beside_none_are_read_with_a_warning() -> None:
    found, problems = read_rm_headers(_envelope(_ack(_range(1, 2) + "<r:None/><r:Final/>")))
    assert [(one.severity, one.code) for one in problems] == [(Severity.WARNING, "EBMS:0201")]
    assert found is not None
    assert found.acknowledgements == (SequenceAcknowledgement("urn:s", ((1, 2),), final=True),)


@pytest.mark.parametrize(
    ("written", "least", "order"),
    [
        ("<p:DeliveryAssurance><p:AtLeastOnce/><p:InOrder/></p:DeliveryAssurance>", True, True),
        ("<p:ExactlyOnceDelivery InOrder='true'/>", True, True),
        ("<p:AtMostOnceDelivery/>", False, False),
    ],
)
def test_an_assurance_is_read_in_both_forms(written: str, least: bool, order: bool) -> None:
    body = (
        "<r:CreateSequence><r:AcksTo><a:Address>http://a.example/</a:Address></r:AcksTo>"
        f"{written}</r:CreateSequence>"
    )
    found, problems = read_lifecycle(_envelope("", body))
    assert not problems
    assert isinstance(found, CreateSequence)
    assert found.assurance is not None
    assert (found.assurance.at_least_once, found.assurance.in_order) == (least, order)


def test_a_create_sequence_says_where_acknowledgements_go() -> None:
    _, problems = read_lifecycle(_envelope("", "<r:CreateSequence/>"))
    assert "AcksTo is missing" in problems[0].detail


@pytest.mark.parametrize("value", ["P", "PT", "1H", "PT1X", ""])
def test_an_expiry_that_is_no_duration_is_told(value: str) -> None:
    body = (
        f"<r:CreateSequenceResponse>{_ID}<r:Expires>{value}</r:Expires></r:CreateSequenceResponse>"
    )
    _, problems = read_lifecycle(_envelope("", body))
    assert "no duration" in problems[0].detail


def test_ranges_that_cannot_be_are_not_written() -> None:
    with pytest.raises(ValueError, match="ascend"):
        write_acknowledgement(
            SequenceAcknowledgement("urn:s", ((4, 5), (5, 6))), SoapVersion.SOAP_12
        )


def test_every_fault_has_an_error_of_ebms() -> None:
    assert set(ESCALATED) == set(Code)


@pytest.mark.req("P2-2.6.3.2-08")
def test_a_protocol_message_keeps_the_action_that_is_required_of_it() -> None:
    body = "<r:CreateSequence><r:AcksTo><a:Address>urn:x</a:Address></r:AcksTo></r:CreateSequence>"
    found, _ = read_lifecycle(_envelope("", body))
    assert found is not None
    assert action_of(found) == WSRM + "/CreateSequence"


def test_acknowledgments_may_go_where_an_endpoint_would_not_be_reached() -> None:
    """What routing input says that only an endpoint would refuse is a warning, no more."""
    message = RoutingUserMessage(
        Party((PartyId("urn:b"),), "Seller"),
        Party((PartyId("urn:a"),), "Buyer"),
        CollaborationInfo(Service("Sales"), "a", "1"),
    )
    routed = EndpointReference(I_CLOUD, (RoutingInput(message),), NEXT_MSH)
    body = write_lifecycle(CreateSequence(routed), SoapVersion.SOAP_12)
    found, problems = read_lifecycle(_envelope("", body))
    assert [one.severity for one in problems] == [Severity.WARNING]
    assert isinstance(found, CreateSequence)
    assert found.acks_to == routed
