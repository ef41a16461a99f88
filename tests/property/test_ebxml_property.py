"""ebXML messages of every version: what is written is read as the same; relays change nothing else;
nothing makes the reader stumble."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import Description, Party, Schema
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    DELIVERY_SEMANTICS,
    DIALECTS,
    ERROR,
    METHODS,
    MS20,
    NOT_RECOGNIZED,
    ORDER_SEMANTICS,
    RELIABLE,
    REQUESTS,
    UNAUTHORIZED,
    Acknowledgment,
    AckRequested,
    EbxmlMessage,
    Error,
    ErrorList,
    Extension,
    Manifest,
    ManifestReference,
    MessageHeader,
    SequenceNumber,
    StatusData,
    StatusRequest,
    TraceHeader,
    Via,
    is_reserved,
)
from postroad.wire.ebxml_errors import is_short_description
from postroad.wire.ebxml_hops import add_trace, insert_signature, renew_via
from postroad.wire.ebxml_reader import dialect_of, must_understand_problems, read_ebxml
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.errors import EBXML_CODES, EbmsError
from postroad.wire.names import DS, EB2_NEXT_MSH, EB2_TO_PARTY_MSH
from postroad.wire.soap import read_envelope
from tests.changing import replace
from tests.conftest import PROJECT
from tests.fuzz.seeds import ebxml_messages
from tests.fuzz.words import WORDS
from tests.property.strategies import (
    cids,
    langs,
    message_ids,
    party_ids,
    references,
    services,
    texts,
    times,
    uris,
    xml_ids,
)

every_version = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
old_versions = pytest.mark.parametrize("dialect", [d for d in DIALECTS.values() if d.has_trace])
SCHEMAS = PROJECT.parent / "shared" / "schemas"
XML_NAMESPACE = b"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
 targetNamespace="http://www.w3.org/XML/1998/namespace">
 <xs:attribute name="lang" type="xs:language"/></xs:schema>"""
SIGNATURE = f'<ds:Signature xmlns:ds="{DS}"></ds:Signature>'


def _lists(items, most=2, **more):
    return st.lists(items, max_size=most, **more).map(tuple)


def _maybe(items):
    return st.none() | items


def _extension(text):
    element = etree.Element("{urn:x}a", nsmap={"x": "urn:x"})
    element.text = text
    return Extension("{urn:x}a", xml.canonical(element).decode())


extensions = _lists(texts.map(_extension), 1)
descriptions = _lists(st.builds(Description, texts, langs), unique_by=lambda one: one.lang)
reals = services.filter(lambda one: not is_reserved(one))
bare_parties = st.builds(Party, st.tuples(party_ids), st.just(""))
vias = st.builds(
    Via,
    sync_reply=_maybe(st.booleans()),
    reliable_messaging_method=_maybe(st.sampled_from(METHODS)),
    ack_requested=_maybe(st.sampled_from(REQUESTS)),
    cpa_id=texts,
) | st.builds(Via, sync_reply=st.booleans(), service=services, action=texts)


def parties(dialect):
    if not dialect.many_party_ids:
        return bare_parties
    ids = st.lists(party_ids, min_size=1, max_size=2).map(tuple)
    return st.builds(Party, ids, texts | st.just("") if dialect.has_role else st.just(""))


def traces(dialect):
    station = party_ids if dialect.trace_by_party else st.none()
    numbers = _maybe(st.integers(1, 4_294_967_295))
    return st.builds(TraceHeader, uris, uris, times, numbers, extensions, station, station)


@st.composite
def headers(draw, dialect):
    old = dialect.has_quality_of_service
    delivery = draw(_maybe(st.sampled_from(DELIVERY_SEMANTICS))) if old else None
    eliminated = False if old else draw(st.booleans())
    reliable = delivery in RELIABLE or eliminated
    orders = ORDER_SEMANTICS if delivery in RELIABLE else ORDER_SEMANTICS[1:]
    numbers = st.builds(SequenceNumber, st.integers(0, 99_999_999)) | st.just(
        SequenceNumber(0, "Reset")
    )
    own = draw(message_ids)
    return MessageHeader(
        from_party=draw(parties(dialect)),
        to_party=draw(parties(dialect)),
        cpa_id=draw(texts),
        conversation_id=draw(texts),
        service=draw(reals),
        action=draw(texts),
        message_id=own,
        timestamp=draw(times),
        ref_to_message_id=draw(message_ids.filter(lambda other: other != own)),
        time_to_live=draw(_maybe(times)),
        delivery_semantics=delivery,
        message_order_semantics=draw(_maybe(st.sampled_from(orders))) if old else None,
        delivery_receipt_requested=draw(_maybe(st.sampled_from(REQUESTS))) if old else None,
        sequence_number=draw(_maybe(numbers)) if reliable else None,
        duplicate_elimination=eliminated,
        descriptions=draw(descriptions),
        extensions=draw(extensions) if dialect.open_header else (),
    )


@st.composite
def acknowledgments(draw, dialect):
    type = draw(st.sampled_from((DELIVERY_RECEIPT, ACKNOWLEDGMENT)))
    signs = draw(_lists(references)) if dialect.acknowledgment_references else ()
    to_party = st.sampled_from((None, EB2_TO_PARTY_MSH))
    actors = {ACKNOWLEDGMENT: st.just(EB2_NEXT_MSH), DELIVERY_RECEIPT: to_party}
    return Acknowledgment(
        timestamp=draw(times),
        type=type,
        signed=draw(st.booleans()) if dialect.has_trace else bool(signs),
        ref_to_message_id=draw(message_ids) if dialect.acknowledgment_refers else None,
        references=signs,
        actor=None if dialect.has_trace else draw(actors[type]),
    )


@st.composite
def one_error(draw, dialect, severities):
    text = draw((texts | st.just("")).filter(lambda one: not is_short_description(one)))
    silent = dialect.error_has_description and not text
    return Error(
        error_code=draw(st.sampled_from(EBXML_CODES) | texts.filter(lambda t: t != NOT_RECOGNIZED)),
        severity=draw(st.sampled_from(severities)),
        code_context=draw(uris),
        location=draw(_maybe(texts.map("#{}".format) | cids)),
        text=text,
        lang="en" if silent else draw(langs),
        min_retry_secs=draw(_maybe(st.integers(0, 10**9))),
    )


manifests = st.builds(
    Manifest,
    st.lists(
        st.builds(
            ManifestReference,
            href=cids,
            id=xml_ids,
            role=_maybe(uris),
            schemas=_lists(st.builds(Schema, uris, _maybe(texts))),
            descriptions=descriptions,
            extensions=extensions,
        ),
        min_size=1,
        max_size=2,
        unique_by=(lambda one: one.id, lambda one: one.href),
    ).map(tuple),
    st.just("the-manifest"),
    extensions,
)


@st.composite
def statuses(draw, dialect):
    status = draw(st.sampled_from(dialect.message_statuses))
    known = status not in (NOT_RECOGNIZED, UNAUTHORIZED)
    return StatusData(draw(message_ids), status, draw(_maybe(times)) if known else None)


@st.composite
def messages(draw, dialect):
    """Any message that may be sent, without what is added for each hop."""
    header = draw(headers(dialect))
    worst = draw(st.sampled_from(("Warning", ERROR)))
    listed = _lists(one_error(dialect, ("Warning",) if worst != ERROR else ("Warning", ERROR)), 3)
    errors = draw(_maybe(st.builds(ErrorList, listed.filter(bool), st.just("the-errors"))))
    alone = errors is not None and errors.highest_severity == ERROR
    body = "" if alone else draw(st.sampled_from(("", "manifest", "status_data", "status_request")))
    ordered = header.sequence_number is not None
    asked = st.builds(AckRequested, st.booleans(), st.sampled_from((None, EB2_NEXT_MSH)))
    return EbxmlMessage(
        dialect=dialect,
        header=header,
        ack_requested=()
        if dialect.has_trace
        else draw(_lists(asked, unique_by=lambda one: one.actor)),
        sync_reply=not dialect.has_trace and not ordered and draw(st.booleans()),
        error_list=errors,
        acknowledgment=draw(_maybe(acknowledgments(dialect))),
        manifest=draw(manifests) if body == "manifest" else None,
        status_data=draw(statuses(dialect)) if body == "status_data" else None,
        status_request=StatusRequest(draw(message_ids))
        if body == "status_request" and dialect.has_status_request
        else None,
    )


def read(data):
    envelope = read_envelope(xml.parse(data))
    dialect = dialect_of(envelope)
    assert dialect is not None
    assert not must_understand_problems(envelope, dialect)
    return read_ebxml(envelope, dialect, lenient=False)


@every_version
@given(data=st.data())
def test_what_is_written_is_read_as_the_same(dialect, data):
    message = data.draw(messages(dialect))
    reading = read(write_ebxml(message))
    assert not reading.failures
    assert reading.message == message


def sent(dialect):
    """The envelopes of some messages of that version, as they leave their MSH."""
    own = [data for name, data in ebxml_messages().items() if name.endswith(f"-{dialect.name}")]
    return st.sampled_from(own)


@old_versions
@given(data=st.data())
def test_traces_and_via_are_read_as_they_were_added(dialect, data):
    envelope = data.draw(sent(dialect))
    before = read(envelope).message
    hops = data.draw(st.lists(traces(dialect), min_size=1, max_size=3))
    via = data.draw(_maybe(vias))
    for hop in hops:
        envelope = renew_via(add_trace(envelope, dialect, hop), dialect, via)
    assert read(envelope).message == replace(before, trace=(*before.trace, *hops), via=via)


def _signed_form(envelope, dialect):
    """What a signature covers: the canonical form without hop elements and signatures."""
    root = xml.parse(envelope)
    gone = [dialect.tag("TraceHeaderList"), dialect.tag("Via"), f"{{{DS}}}Signature"]
    for element in list(root.iter(*gone)):
        parent = element.getparent()
        before = element.getprevious()
        tail = element.tail or ""
        if before is None:
            parent.text = (parent.text or "") + tail
        else:
            before.tail = (before.tail or "") + tail
        element.tail = None
        parent.remove(element)
    return xml.canonical(root, exclusive=False)


@old_versions
@given(data=st.data())
def test_a_hop_changes_nothing_that_a_signature_covers(dialect, data):
    """Also with white space, comments and prefixes as another product may write them."""
    envelope = data.draw(sent(dialect))
    blank = data.draw(st.sampled_from((b"", b"\n\t", b"<!-- so -->", b"\r\n ")))
    envelope = envelope.replace(b"<eb:MessageHeader", blank + b"<eb:MessageHeader")
    envelope = envelope.replace(b"</SOAP-ENV:Header>", blank + b"</SOAP-ENV:Header>")
    envelope = insert_signature(envelope, SIGNATURE)
    covered = _signed_form(envelope, dialect)
    for _ in range(2):
        envelope = add_trace(envelope, dialect, data.draw(traces(dialect)))
        envelope = renew_via(envelope, dialect, data.draw(_maybe(vias)))
        assert _signed_form(envelope, dialect) == covered


@old_versions
@given(data=st.data())
def test_a_via_that_was_added_leaves_no_byte_behind(dialect, data):
    envelope = renew_via(data.draw(sent(dialect)), dialect, None)
    added = renew_via(envelope, dialect, data.draw(vias))
    assert renew_via(added, dialect, None) == envelope


_PLACES = re.compile(rb'(?<=")[^"<>]{0,300}(?=")|(?<=>)[^<>]{1,300}(?=<)|<[^<>]{1,300}>')


@st.composite
def spoiled(draw):
    """A message in which some values, tags and pieces were replaced, doubled, moved or cut."""
    seeds = tuple(ebxml_messages().values())
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        spots = [match.span() for match in _PLACES.finditer(data)]
        if not spots:
            break
        start, end = draw(st.sampled_from(spots))
        other = draw(st.sampled_from(seeds))
        first, last = draw(st.sampled_from([match.span() for match in _PLACES.finditer(other)]))
        new = draw(st.sampled_from((b"", data[start:end] * 2, other[first:last], *WORDS[:40])))
        data = data[:start] + new + data[end:]
    return data


@settings(max_examples=200)
@given(data=spoiled() | st.binary(max_size=200))
@example(data=b"")
def test_nothing_makes_the_reader_or_a_relay_stumble(data):
    try:
        envelope = read_envelope(xml.parse(data))
    except EbmsError:
        return
    for dialect in DIALECTS.values():
        must_understand_problems(envelope, dialect)
        reading = read_ebxml(envelope, dialect)
        assert all(problem.code in EBXML_CODES for problem in reading.problems)
        if reading.message is not None and not reading.failures:
            relayed(data, dialect)


def relayed(data, dialect):
    """What can be read can be relayed."""
    if not dialect.has_trace:
        return
    envelope = read_envelope(xml.parse(data))
    hop = TraceHeader("urn:a", "urn:b", read_ebxml(envelope, dialect).message.header.timestamp)
    again = renew_via(add_trace(data, dialect, hop), dialect, Via(cpa_id="hop"))
    found = read_ebxml(read_envelope(xml.parse(again)), dialect)
    assert found.message.trace[-1].sender_uri == "urn:a"
    assert found.message.via == Via(cpa_id="hop")


def test_every_seed_holds():
    for name, data in ebxml_messages().items():
        assert not read(data).problems, name
    assert {dialect_of(read_envelope(xml.parse(one))) for one in ebxml_messages().values()} == set(
        DIALECTS.values()
    )


@pytest.fixture(scope="module")
def schema():
    place = SCHEMAS / "msg-header-2_0.xsd"
    if not place.is_file():
        pytest.skip("the schemas are not there")
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Local())
    return etree.XMLSchema(etree.parse(str(place), parser))


class _Local(etree.Resolver):
    """The schemas that the one of 2.0 imports, under the names that it gives them."""

    def resolve(self, system_url, public_id, context):
        name = str(system_url).rpartition("/")[2]
        if name == "xml.xsd":
            return self.resolve_string(XML_NAMESPACE, context)
        name = {"envelope.xsd": "soap11.xsd"}.get(name, name)
        return self.resolve_filename(str(SCHEMAS / name), context)


@settings(max_examples=20)
@given(message=messages(MS20))
def test_what_is_written_in_2_0_is_valid_by_its_schema(schema, message):
    for element in etree.fromstring(write_ebxml(message)).iterfind("*/*"):
        schema.assertValid(element)


def test_what_the_schema_of_2_0_refuses_the_reader_refuses(schema):
    for name, data in ebxml_messages().items():
        if not name.endswith("-2.0"):
            continue
        root = xml.parse(data)
        for element in list(root.iterfind("*/*//*")):
            parent, at = element.getparent(), element.getparent().index(element)
            parent.remove(element)
            _agrees(schema, root)
            parent.insert(at, element)
        for element in list(root.iterfind("*//*")):
            for key in element.keys():  # noqa: SIM118
                value = element.attrib.pop(key)
                _agrees(schema, root)
                element.set(key, "")
                _agrees(schema, root)
                element.set(key, value)


def _agrees(schema, root):
    if all(schema.validate(one) for one in root.iterfind("*/*")):
        return
    try:
        envelope = read_envelope(root)
    except EbmsError:
        return
    assert read_ebxml(envelope, MS20).problems, etree.tostring(root)
