"""Where an intermediary's error goes, and what it looks like on its way back."""

from datetime import UTC, datetime

import pytest

from postroad.msh.forwarding import Routable, read_routable
from postroad.msh.reporting import Return, way_back, write_report
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.multihop import RoutingInput, RoutingUserMessage, infer_reverse
from postroad.wire.names import I_CLOUD, NEXT_MSH, ONE_WAY
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from postroad.wire.wsa import (
    ANONYMOUS,
    Addressing,
    EndpointReference,
    read_addressing,
    write_addressing,
)
from tests.unit.routed import ORDER

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PROBLEM = EbmsError("EBMS:0005", "the next MSH cannot be reached")
ERRORS, REPLIES = "http://errors.example/msh", "http://replies.example/msh"
ROUTED = infer_reverse(ORDER, ".told")


def message(
    fault_to: EndpointReference | None = None,
    reply_to: EndpointReference | None = None,
    version: SoapVersion = SoapVersion.SOAP_12,
) -> Routable:
    blocks = [write_messaging(Messaging((ORDER,), role=NEXT_MSH), version)]
    if fault_to or reply_to:
        headers = Addressing(action=ONE_WAY, reply_to=reply_to, fault_to=fault_to)
        blocks += write_addressing(headers, version)
    return read_routable(write_envelope(version, blocks, write_body(version)))


def back(found: Routable, *, known: bool = True) -> Return:
    way = way_back(found, lambda url: known)
    assert way is not None
    return way


def read(found: Routable, way: Return | None) -> Routable:
    """The report as the next station reads it."""
    answer = write_report(PROBLEM, found, way, signal_id="e@hub", now=NOW)
    return read_routable(answer.envelope)


@pytest.mark.req("P2-2.5.6-02", "P2-2.5.6-03")
def test_a_url_in_fault_to_is_told_directly_and_beats_reply_to() -> None:
    found = message(EndpointReference(ERRORS), EndpointReference(REPLIES))
    assert back(found).url == ERRORS
    assert back(message(None, EndpointReference(REPLIES))).url == REPLIES


@pytest.mark.req("P2-2.5.6-04", "P2-2.5.6-06")
@pytest.mark.parametrize("address", [ANONYMOUS, I_CLOUD])
@pytest.mark.parametrize("version", SoapVersion)
def test_routing_input_in_the_reference_leads_the_error_back(
    address: str, version: SoapVersion
) -> None:
    reply = EndpointReference(ANONYMOUS, (infer_reverse(ORDER, ".other"),))
    found = message(EndpointReference(address, (ROUTED,)), reply, version)
    way = back(found)
    assert way.url is None
    report = read(found, way)
    assert report.by == "RoutingInput"
    assert isinstance(report.input, RoutingUserMessage)
    assert report.input.collaboration_info.action == "Process.told"
    assert report.envelope is not None
    addressing, problems = read_addressing(report.envelope)
    assert problems == []
    assert addressing is not None
    assert (addressing.to, addressing.to_role) == (I_CLOUD, NEXT_MSH)
    assert addressing.action == f"{ONE_WAY}.error"


@pytest.mark.req("P2-2.5.6-07")
def test_without_addresses_the_way_back_is_inferred() -> None:
    found = message()
    report = read(found, back(found))
    assert isinstance(report.routing_input, RoutingInput)
    routed = report.routing_input.user_message
    assert (routed.from_party, routed.to_party) == (ORDER.to_party, ORDER.from_party)
    assert routed.collaboration_info.action == "Process.error"
    assert routed.mpc == "urn:mpc:abc123.error"


def test_a_host_that_nobody_knows_is_not_told_directly() -> None:
    way = back(message(EndpointReference("http://127.0.0.1/admin")), known=False)
    assert way.url is None
    assert way.reference.address == I_CLOUD


def test_the_report_is_an_error_about_the_message_for_who_sent_it() -> None:
    found = message()
    report = read(found, back(found))
    assert report.messaging is not None
    assert report.messaging.role is None
    [signal] = report.messaging.signals
    [error] = signal.errors
    assert signal.message_info.ref_to_message_id == ORDER.message_info.message_id
    assert error.ref_to_message_in_error == ORDER.message_info.message_id
    assert (error.error_code, error.severity) == ("EBMS:0005", "failure")
    assert report.is_error


def test_to_a_fixed_address_it_goes_without_routing_input() -> None:
    report = read(message(), None)
    assert report.source is None
    assert report.is_error
