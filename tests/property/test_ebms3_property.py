"""Whatever may be sent is read back equal, and what is written is its own canonical form."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from postroad.wire import soap, xml
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import Severity
from postroad.wire.soap import SoapVersion
from postroad.wire.soap_faults import Fault, read_fault, write_fault
from tests.conftest import PROJECT
from tests.property.strategies import messagings, plain_uris, texts, uris, xml_ids

SCHEMAS = PROJECT.parent / "shared" / "schemas"
versions = st.sampled_from(SoapVersion)


@given(messagings(), versions)
def test_what_is_written_is_read_back_equal(messaging, version):
    written = write_messaging(messaging, version, keep_order=True)
    reading = read_messaging(xml.parse(written.encode()), version)
    assert reading.messaging == messaging
    assert [p for p in reading.problems if p.severity is Severity.FAILURE] == []


@given(messagings(), versions, st.booleans())
def test_what_is_written_is_its_own_canonical_form(messaging, version, keep_order):
    written = write_messaging(messaging, version, keep_order=keep_order).encode()
    assert xml.canonical(xml.parse(written)) == written


@given(messagings(), versions, st.none() | xml_ids)
def test_canonical_form_is_the_same_inside_the_envelope(messaging, version, body_id):
    header = write_messaging(messaging, version)
    body = soap.write_body(version, id=body_id)
    envelope = soap.read_envelope(xml.parse(soap.write_envelope(version, [header], body)))
    found = find_messaging(envelope)
    assert found is not None
    assert hashlib.sha256(xml.canonical(found)).digest() == hashlib.sha256(header.encode()).digest()
    assert xml.canonical(envelope.body) == body.encode()


@given(messagings(), versions)
def test_signals_are_written_first_and_otherwise_the_order_stays(messaging, version):
    reading = read_messaging(xml.parse(write_messaging(messaging, version).encode()), version)
    assert reading.messaging is not None
    assert reading.messaging.units == (*messaging.signals, *messaging.user_messages)


_documents = st.recursive(
    texts.map(xml.escape),
    lambda inner: st.builds(
        '<{0} xmlns="{1}" xmlns:p="{2}" a="{3}" p:b="p:c">{4}</{0}>'.format,
        st.sampled_from(("doc", "p:doc", "sub")),
        plain_uris,
        plain_uris,
        texts.map(xml.escape_attribute),
        st.lists(inner, max_size=3).map("".join),
    ),
    max_leaves=8,
)


@given(_documents, versions)
def test_a_body_keeps_its_content_and_its_digest_inside_the_envelope(document, version):
    alone = xml.parse(f"<Body>{document}</Body>".encode())
    body = soap.write_body(version, document, id="body")
    envelope = soap.read_envelope(xml.parse(soap.write_envelope(version, [], body)))
    assert xml.canonical(envelope.body) == body.encode()
    for before, after in zip(alone.iterdescendants(), envelope.body.iterdescendants(), strict=True):
        assert before.tag == after.tag
        assert dict(before.attrib) == dict(after.attrib)
        assert (before.text or "") == (after.text or "")


_names = st.builds("{{{}}}{}".format, plain_uris, xml_ids)


@given(texts, st.lists(_names, max_size=3), st.none() | uris, st.none() | uris)
def test_a_fault_is_read_back_equal(reason, subcodes, role, node):
    version = SoapVersion.SOAP_12
    fault = Fault(version.sender, reason, "en", tuple(subcodes), role, node, ("<a>b</a>",))
    content = write_fault(version, fault)
    namespaces = soap.value_namespaces(content)
    body = soap.write_body(version, content, id="b", namespaces=namespaces)
    envelope = soap.read_envelope(
        xml.parse(soap.write_envelope(version, [], body, namespaces=namespaces))
    )
    assert read_fault(envelope) == fault
    assert xml.canonical(envelope.body) == body.encode()


XML_NAMESPACE = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  targetNamespace="http://www.w3.org/XML/1998/namespace">
  <xs:attribute name="lang" type="xs:string"/><xs:attribute name="base" type="xs:anyURI"/>
</xs:schema>"""


class _Local(etree.Resolver):
    """Schemas from the folder beside the project; the import without a place gets one."""

    def resolve(self, system_url, public_id, context):
        name = str(system_url).rpartition("/")[2]
        if name == "xml.xsd":
            return self.resolve_string(XML_NAMESPACE, context)
        place = 'namespace="http://www.w3.org/XML/1998/namespace"'
        text = (SCHEMAS / name).read_text()
        text = text.replace(f"{place} />", f'{place} schemaLocation="xml.xsd"/>')
        return self.resolve_string(text.encode(), context, base_url=str(SCHEMAS / name))


@pytest.fixture(scope="module")
def header_schema():
    place = SCHEMAS / "ebms-header-3_0-200704.xsd"
    if not place.is_file():
        pytest.skip("the schemas are not there")
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Local())
    return etree.XMLSchema(etree.parse("local:/ebms-header-3_0-200704.xsd", parser))


@given(messagings(schema_valid=True), versions)
def test_what_the_schema_can_express_is_valid_by_it(header_schema, messaging, version):
    header_schema.assertValid(xml.parse(write_messaging(messaging, version).encode()))


@given(messagings(schema_valid=True), versions)
def test_what_the_schema_refuses_the_reader_refuses(header_schema, messaging, version):
    root = xml.parse(write_messaging(messaging, version).encode())
    for element in list(root.iterdescendants("*"))[:12]:
        parent = element.getparent()
        at = parent.index(element)
        parent.remove(element)
        if not header_schema.validate(root):
            assert read_messaging(root, version).problems
        parent.insert(at, element)
