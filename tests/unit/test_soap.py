"""SOAP envelopes and faults, both versions."""

import hashlib

import pytest

from postroad.wire import soap, xml
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB3, NEXT_MSH, S11, S11_NEXT, S12, S12_NEXT, S12_NONE, WSSE
from postroad.wire.soap import SoapVersion
from postroad.wire.soap_faults import (
    Fault,
    must_understand_fault,
    read_fault,
    version_mismatch_fault,
    write_fault,
)

V11, V12 = SoapVersion.SOAP_11, SoapVersion.SOAP_12
both = pytest.mark.parametrize("version", list(SoapVersion))


def read(text: str) -> soap.Envelope:
    return soap.read_envelope(xml.parse(text.encode()))


def s12(inner: str, before: str = "") -> str:
    return f'{before}<e:Envelope xmlns:e="{S12}">{inner}</e:Envelope>'


def s11(inner: str) -> str:
    return f'<e:Envelope xmlns:e="{S11}">{inner}</e:Envelope>'


def refusal(text: str) -> EbmsError:
    with pytest.raises(EbmsError) as caught:
        read(text)
    assert caught.value.code == "EBMS:0009"
    return caught.value


@both
def test_an_envelope_gives_the_very_elements_that_were_parsed(version):
    root = xml.parse(soap.write_envelope(version, ['<a xmlns="urn:a"/>'], soap.write_body(version)))
    envelope = soap.read_envelope(root)
    assert envelope.version is version
    assert envelope.root is root
    assert envelope.header is root[0]
    assert envelope.body is root[1]
    assert envelope.blocks == (soap.HeaderBlock(root[0][0], None, False),)


def test_an_envelope_may_lack_a_header():
    envelope = read(s12("<e:Body/>"))
    assert envelope.header is None
    assert envelope.blocks == ()


def test_another_root_is_refused_and_named():
    error = refusal('<Messaging xmlns="urn:other"/>')
    assert "<Messaging> in namespace urn:other" in error.detail


def test_an_envelope_of_an_unknown_namespace_is_refused():
    root = xml.parse(b'<e:Envelope xmlns:e="urn:soap-9"><e:Body/></e:Envelope>')
    assert soap.version_of(root) is None
    with pytest.raises(EbmsError, match="urn:soap-9"):
        soap.read_envelope(root)


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("", "no Body"),
        ("<e:Header/>", "no Body"),
        ("<e:Header/><e:Header/><e:Body/>", "more than one Header"),
        ("<e:Body/><e:Header/>", "after the Body"),
        ("<e:Body/><e:Body/>", "more than one Body"),
        ('<x xmlns="urn:x"/><e:Body/>', "only Header and Body"),
        ('<e:Body/><x xmlns="urn:x"/>', "after the Body"),
        ("text<e:Body/>", "text is not allowed"),
        ("<e:Body/>text", "text is not allowed"),
        ("<e:Header>text</e:Header><e:Body/>", "text is not allowed"),
        ("<e:Header><x/></e:Header><e:Body/>", "in no namespace"),
        ("<e:Header/><e:Body><?php ?></e:Body>", "processing instructions"),
        ('<x xmlns="urn:x"><e:Body/></x>', "only Header and Body"),
    ],
)
def test_a_malformed_envelope_is_refused(inner, says):
    assert says in refusal(s12(inner)).detail


def test_a_processing_instruction_before_the_envelope_is_refused():
    assert "processing" in refusal(s12("<e:Body/>", before="<?pi a?><!-- c -->")).detail


def test_soap_11_allows_elements_after_the_body():
    assert read(s11('<e:Body/><x xmlns="urn:x"/>')).body is not None


def test_comments_between_the_parts_are_no_matter():
    assert read(s12("<!-- a --><e:Header><!-- b --></e:Header><e:Body/><!-- c -->")).blocks == ()


@pytest.mark.parametrize(("value", "is_true"), [("1", 1), ("true", 1), ("0", 0), (" false ", 0)])
def test_must_understand_is_read_in_each_spelling(value, is_true):
    block = f'<x xmlns="urn:x" e:mustUnderstand="{value}"/>'
    envelope = read(s12(f"<e:Header>{block}</e:Header><e:Body/>"))
    assert envelope.blocks[0].must_understand is bool(is_true)


def test_must_understand_of_another_value_is_refused():
    block = '<x xmlns="urn:x" e:mustUnderstand="yes"/>'
    assert "'yes'" in refusal(s12(f"<e:Header>{block}</e:Header><e:Body/>")).detail


def test_role_and_actor_are_read_and_an_empty_one_is_none():
    blocks = '<x xmlns="urn:x" e:role="urn:r"/><x xmlns="urn:x" e:role=""/>'
    envelope = read(s12(f"<e:Header>{blocks}</e:Header><e:Body/>"))
    assert [block.role for block in envelope.blocks] == ["urn:r", None]
    envelope = read(s11('<e:Header><x xmlns="urn:x" e:actor="urn:r"/></e:Header><e:Body/>'))
    assert envelope.blocks[0].role == "urn:r"


@pytest.mark.parametrize("name", ["actor", "role"])
def test_a_security_header_may_have_its_role_without_a_prefix(name):
    blocks = f'<w:Security xmlns:w="{WSSE}" {name}="ebms"/><x xmlns="urn:x" {name}="ebms"/>'
    envelope = read(s12(f"<e:Header>{blocks}</e:Header><e:Body/>"))
    assert [block.role for block in envelope.blocks] == ["ebms", None]


def _mandatory(role: str | None) -> soap.Envelope:
    target = "" if role is None else f'e:role="{role}"'
    block = f'<x xmlns="urn:x" e:mustUnderstand="1" {target}/>'
    return read(s12(f"<e:Header>{block}</e:Header><e:Body/>"))


@pytest.mark.parametrize(
    ("role", "endpoint", "forwarder"),
    [
        (None, True, False),
        (S12 + "/role/ultimateReceiver", True, False),
        ("ebms", True, False),
        (S12_NEXT, True, True),
        (S11_NEXT, True, True),
        (NEXT_MSH, False, True),
        (S12_NONE, False, False),
        ("urn:somebody-else", False, False),
    ],
)
def test_only_blocks_for_our_roles_must_be_understood(role, endpoint, forwarder):
    envelope = _mandatory(role)
    assert bool(soap.not_understood(envelope, ())) is endpoint
    assert bool(soap.not_understood(envelope, (), {NEXT_MSH})) is forwarder


def test_nothing_is_missed_when_the_block_is_understood_or_optional():
    assert soap.not_understood(_mandatory(None), {"{urn:x}x"}) == []
    optional = read(s12('<e:Header><x xmlns="urn:x"/></e:Header><e:Body/>'))
    assert soap.not_understood(optional, ()) == []


def test_the_body_is_canonical_and_its_digest_survives_the_envelope():
    content = (
        '<?xml version="1.0"?>\n<b:doc b:z="1" a=\'2\' xmlns:b="urn:b" xmlns="urn:d"><c/></b:doc>'
    )
    body = soap.write_body(V12, content, id="body-1")
    assert '<b:doc xmlns:b="urn:b" a="2" b:z="1"><c xmlns="urn:d"></c></b:doc>' in body
    envelope = read(soap.write_envelope(V12, [], body).decode())
    digest = hashlib.sha256(xml.canonical(envelope.body)).digest()
    assert digest == hashlib.sha256(body.encode()).digest()


def test_a_value_in_the_body_never_loses_the_namespace_of_its_prefix():
    content = '<doc xmlns:xs="urn:xs" xmlns:i="urn:i" i:type="xs:date"/>'
    with pytest.raises(ValueError, match="'xs' of urn:xs"):
        soap.write_body(V12, content)
    needed = soap.value_namespaces(content)
    assert needed == {"xs": "urn:xs"}
    body = soap.write_body(V12, content, namespaces=needed)
    envelope = read(soap.write_envelope(V12, [], body, namespaces=needed).decode())
    assert xml.elements(envelope.body)[0].nsmap["xs"] == "urn:xs"
    assert xml.canonical(envelope.body) == body.encode()


def test_comments_beside_such_a_value_do_not_matter():
    content = '<!-- a --><doc xmlns:x="urn:x"><!-- b --><a>x:1</a><b t="x:2"/></doc>'
    assert soap.value_namespaces(content) == {"x": "urn:x"}


def test_a_prefix_with_two_meanings_in_values_cannot_be_sent_in_a_body():
    content = '<d><a xmlns:p="urn:1" t="p:x"/><a xmlns:p="urn:2" t="p:x"/></d>'
    with pytest.raises(ValueError, match="urn:1 and for urn:2"):
        soap.value_namespaces(content)


def test_the_envelope_keeps_the_prefix_of_soap_for_itself():
    with pytest.raises(ValueError, match="attachment"):
        soap.write_envelope(V12, [], soap.write_body(V12), namespaces={"S12": "urn:other"})


@pytest.mark.parametrize(
    "content",
    [
        "<a>",
        "</S12:Body><S12:Body>",
        "<!DOCTYPE a><a/>",
        "<a><?pi x?></a>",
        "<a>\ud800</a>",
        "<a>\x00</a>",
        '<a xmlns="http://x/?a&amp;b"/>',
        '<a xmlns="relative"/>',
        '<a xmlns="urn:["/>',
    ],
)
def test_a_body_that_cannot_be_sent_is_refused(content):
    with pytest.raises(ValueError, match="Body"):
        soap.write_body(V12, content)


@pytest.mark.parametrize("id", ["", "1a", "a:b", 'a"b', "a b"])
def test_a_body_id_must_be_a_name(id):
    with pytest.raises(ValueError, match="XML id"):
        soap.write_body(V12, id=id)


def _sent(version: SoapVersion, fault: Fault, blocks: tuple[str, ...] = ()) -> soap.Envelope:
    content = write_fault(version, fault)
    namespaces = soap.value_namespaces(content)
    body = soap.write_body(version, content, namespaces=namespaces)
    return read(soap.write_envelope(version, blocks, body, namespaces=namespaces).decode())


@both
def test_a_fault_is_read_as_it_was_written(version):
    fault = Fault(version.sender, 'no <good> & "bad"', "de", (), "urn:role", None, ("<d>1</d>",))
    assert read_fault(_sent(version, fault)) == fault


def test_a_soap_12_fault_keeps_its_subcodes_and_node():
    subcodes = (f"{{{WSSE}}}FailedCheck", "{urn:own}Deeper")
    fault = Fault(V12.receiver, "r", subcodes=subcodes, node="urn:n")
    assert read_fault(_sent(V12, fault)) == fault


def test_a_soap_11_fault_has_its_last_subcode_in_place_of_the_code():
    fault = Fault(V11.sender, "r", subcodes=(f"{{{WSSE}}}FailedCheck",))
    found = read_fault(_sent(V11, fault))
    assert found is not None
    assert found.code == f"{{{WSSE}}}FailedCheck"


def test_a_soap_12_fault_code_must_be_one_of_soap():
    with pytest.raises(ValueError, match="SOAP's own"):
        write_fault(V12, Fault("{urn:x}Y", "r"))


def test_a_reason_may_hold_anything():
    found = read_fault(_sent(V12, Fault(V12.sender, "nul \x00 half \ud800")))
    assert found is not None
    assert found.reason == "nul \ufffd half \ufffd"


def test_the_english_reason_is_preferred():
    fault = (
        "<e:Fault><e:Code><e:Value>e:Sender</e:Value></e:Code><e:Reason>"
        '<e:Text xml:lang="nl">nee</e:Text><e:Text xml:lang="en-GB">no</e:Text>'
        "</e:Reason></e:Fault>"
    )
    found = read_fault(read(s12(f"<e:Body>{fault}</e:Body>")))
    assert found == Fault(V12.sender, "no", "en-GB")


def test_a_crippled_fault_is_read_as_far_as_it_goes():
    assert read_fault(read(s12("<e:Body><e:Fault/></e:Body>"))) == Fault("", "")
    fault = "<e:Fault><faultcode>zz:Oops</faultcode></e:Fault>"
    assert read_fault(read(s11(f"<e:Body>{fault}</e:Body>"))) == Fault("zz:Oops", "")


def test_a_fault_detail_without_canonical_form_is_read_all_the_same():
    fault = '<e:Fault><detail><x xmlns="relative">y</x></detail></e:Fault>'
    found = read_fault(read(s11(f"<e:Body>{fault}</e:Body>")))
    assert found is not None
    assert found.detail[0].endswith(">y</x>")


def test_a_body_without_a_fault_has_none():
    assert read_fault(read(s12("<e:Body/>"))) is None
    assert read_fault(read(s12('<e:Body><Fault xmlns="urn:x"/></e:Body>'))) is None


def test_blocks_not_understood_are_named_in_the_answer():
    message = must_understand_fault(V12, ["{urn:x}X", f"{{{EB3}}}Messaging"])
    envelope = _sent(V12, message.fault, message.header_blocks)
    assert message.fault.code == f"{{{S12}}}MustUnderstand"
    named = []
    for block in envelope.blocks:
        assert block.element.tag == f"{{{S12}}}NotUnderstood"
        prefix, _, name = str(block.element.get("qname")).partition(":")
        named.append(f"{{{block.element.nsmap[prefix]}}}{name}")
    assert named == ["{urn:x}X", f"{{{EB3}}}Messaging"]


def test_soap_11_names_what_was_not_understood_in_words():
    message = must_understand_fault(V11, ["{urn:x}X"])
    assert message.header_blocks == ()
    assert message.fault.code == f"{{{S11}}}MustUnderstand"
    assert "{urn:x}X" in message.fault.reason


@both
def test_a_version_mismatch_tells_which_versions_are_known(version):
    message = version_mismatch_fault(version)
    envelope = _sent(version, message.fault, message.header_blocks)
    (upgrade,) = envelope.blocks
    assert upgrade.element.tag == f"{{{S12}}}Upgrade"
    known = [
        upgrade.element.nsmap[str(item.get("qname")).partition(":")[0]] for item in upgrade.element
    ]
    assert known == [S12, S11]
    assert message.fault.code == f"{{{version.namespace}}}VersionMismatch"


def test_the_fault_of_another_product_is_read(vectors):
    data = (vectors / "phase4/testfiles/ErrorMessageWithFault.xml").read_bytes()
    fault = read_fault(soap.read_envelope(xml.parse(data)))
    assert fault is not None
    assert fault.code == V12.receiver
    assert fault.reason.startswith("Certificate revoked")
