"""What changes in an ebXML message on its way, and that nothing else does."""

import pytest

from postroad.wire import xml
from postroad.wire.ebxml import MS098, MS20, Via
from postroad.wire.ebxml_hops import add_trace, insert_signature, renew_via
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.names import DS, EB1, S11
from tests.unit.ebxml_samples import OLD, find, message, read, reliable, trace, whole

req = pytest.mark.req
SIGNATURE = f'<ds:Signature xmlns:ds="{DS}"></ds:Signature>'
FIRST, SECOND = trace("buyer", "hub"), trace("hub", "seller", sequence_number=7)


@req("MS098-8.5-01", "MS098-8.5.3-01")
def test_exactly_one_trace_header_is_added_behind_those_that_are_there():
    data = write_ebxml(message())
    once = add_trace(data, MS098, FIRST)
    assert read(once).message == message(trace=(FIRST,))
    twice = add_trace(once, MS098, SECOND)
    assert read(twice).message == message(trace=(FIRST, SECOND))
    assert not read(twice).problems


@req("MS098-8.5-03", "MS098-8.5.1-01", "MS098-8.5.2-01", "MS098-8.5.2-02")
def test_a_new_list_has_its_version_and_must_be_understood():
    top = find(xml.parse(add_trace(write_ebxml(message()), MS098, FIRST)), "//eb:TraceHeaderList")
    assert top.get(f"{{{S11}}}mustUnderstand") == "1"
    assert top.get(f"{{{EB1}}}version") == "0.98b"


def test_all_other_bytes_stay():
    data = write_ebxml(message(header=reliable()))
    for changed in (
        add_trace(data, MS098, FIRST),
        renew_via(data, MS098, Via(cpa_id="hop")),
        insert_signature(data, SIGNATURE),
    ):
        size = len(changed) - len(data)
        at = next(i for i, (a, b) in enumerate(zip(data, changed, strict=False)) if a != b)
        spots = [k for k in range(at + 1) if changed[:k] + changed[k + size :] == data]
        assert spots


def test_a_message_with_a_space_in_a_namespace_name_is_passed_on():
    data = write_ebxml(message()).replace(b"<SOAP-ENV:Body>", b'<SOAP-ENV:Body xmlns:x="urn:a b">')
    assert b"urn:a b" in data
    assert read(add_trace(data, MS098, FIRST)).message == message(trace=(FIRST,))


@req("MS098-8.6.2-02")
def test_the_via_that_came_goes_and_another_takes_its_place():
    data = write_ebxml(whole())
    new = Via(sync_reply=True)
    assert read(renew_via(data, MS098, new)).message == whole(via=new)
    assert renew_via(data, MS098, None) == write_ebxml(whole(via=None))
    assert renew_via(renew_via(data, MS098, new), MS098, None) == write_ebxml(whole(via=None))


@req("MS098-8.13.8-01")
def test_there_is_at_most_one_via_afterwards():
    data = write_ebxml(whole()).replace(b"<eb:Via", b"<eb:Via/><eb:Via", 1)
    assert renew_via(data, MS098, Via(cpa_id="hop")).count(b"<eb:Via") == 1


def test_without_a_via_there_is_none_to_take_away():
    data = write_ebxml(message())
    assert renew_via(data, MS098, None) is data
    assert renew_via(write_ebxml(message(MS20)), MS20, None) == write_ebxml(message(MS20))


@req("MS098-8.8-01", "MS098-8.8-04", "MS098-8.13.7-01")
def test_the_signature_of_the_from_party_is_the_first():
    data = insert_signature(write_ebxml(whole()), SIGNATURE.replace("></", ' Id="hub"></'))
    found = read(insert_signature(data, SIGNATURE.replace("></", ' Id="buyer"></')))
    assert [one.get("Id") for one in found.signatures] == ["buyer", "hub"]
    assert not found.problems


@pytest.mark.parametrize("dialect", OLD, ids=lambda one: one.name)
def test_a_trace_does_not_depend_on_the_prefixes_of_the_message(dialect):
    data = write_ebxml(whole(dialect=dialect)).replace(b"eb:", b"x:").replace(b":eb=", b":x=")
    data = data.replace(b"SOAP-ENV", b"s")
    found = read(renew_via(add_trace(data, dialect, SECOND), dialect, Via(cpa_id="hop")))
    assert [one.sequence_number for one in found.message.trace] == [None, 7]
    assert found.message.via == Via(cpa_id="hop")
    assert not found.problems


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "us-ascii"])
def test_a_message_keeps_its_encoding(encoding):
    text = write_ebxml(whole()).decode().replace("UTF-8", encoding.upper())
    data = text.encode(encoding)
    via = Via(cpa_id="Hüte & Mützen")
    found = read(renew_via(add_trace(data, MS098, SECOND), MS098, via))
    assert found.message == whole(trace=(trace(), SECOND), via=via)


def test_an_empty_list_is_filled():
    data = write_ebxml(whole())
    start, end = data.index(b"<eb:TraceHeader>"), data.index(b"</eb:TraceHeaderList>")
    empty = data[: start - 1] + b"/>" + data[end + len(b"</eb:TraceHeaderList>") :]
    assert read(add_trace(empty, MS098, FIRST)).message == whole(trace=(FIRST,))


def test_what_looks_like_a_header_in_the_body_is_left_alone():
    via = f'<s:Header xmlns:s="{S11}"><Via xmlns="{EB1}"/></s:Header>'.encode()
    data = write_ebxml(message()).replace(b"</SOAP-ENV:Body>", via + b"</SOAP-ENV:Body>")
    assert renew_via(data, MS098, None) == data
    assert renew_via(data, MS098, Via(cpa_id="hop")).endswith(data[data.index(b"</SOAP-ENV:H") :])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<a>", "not well-formed"),
        (b"<!DOCTYPE a><a/>", "DTD"),
        (b"<a/>", "no MessageHeader"),
        (f'<s:Envelope xmlns:s="{S11}"><s:Header/></s:Envelope>'.encode(), "no MessageHeader"),
    ],
)
def test_what_is_no_ebxml_message_is_refused(data, why):
    with pytest.raises(ValueError, match=why):
        add_trace(data, MS098, FIRST)
    with pytest.raises(ValueError, match=why):
        renew_via(data, MS098, Via(cpa_id="hop"))


def test_a_signature_needs_a_header():
    data = f'<s:Envelope xmlns:s="{S11}"><s:Header/><s:Body/></s:Envelope>'.encode()
    with pytest.raises(ValueError, match="no SOAP Header"):
        insert_signature(data, SIGNATURE)


def test_version_2_0_has_neither_trace_nor_via():
    data = write_ebxml(message(MS20))
    with pytest.raises(ValueError, match="no TraceHeaderList"):
        add_trace(data, MS20, FIRST)
    with pytest.raises(ValueError, match="no Via"):
        renew_via(data, MS20, Via(cpa_id="hop"))
