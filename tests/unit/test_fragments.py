"""mf:MessageFragment: what is read, what is refused, what is written."""

import pytest

from postroad.wire.fragments import (
    COMPRESSION_ALGORITHMS,
    MAX_COUNT,
    MAX_SIZE,
    TYPES,
    MessageFragment,
    MessageHeader,
    read_message_fragment,
    write_message_fragment,
)
from postroad.wire.names import MF, NEXT_MSH, S12_ULTIMATE_RECEIVER
from postroad.wire.soap import HeaderBlock, SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.xml import parse
from tests.changing import replace

HEADER = MessageHeader("MIME_boundary", "text/xml", "car-data@cars.example.com")
FRAGMENT = MessageFragment(
    href="cid:3ec80b70@cars.example.com",
    group_id="fa053eaf-47ed-4862-b70b-e5acbd94061a",
    fragment_count=2,
    fragment_num=1,
    message_header=HEADER,
    action="leasing",
)
PRINTED = f"""
<mf:MessageFragment xmlns:mf="{MF}" href="cid:3ec80b70@cars.example.com">
    <mf:GroupId>fa053eaf-47ed-4862-b70b-e5acbd94061a</mf:GroupId>
    <mf:FragmentCount>2</mf:FragmentCount>
    <mf:FragmentNum>1</mf:FragmentNum>
    <mf:MessageHeader>
        <mf:Content-Type>Multipart/Related</mf:Content-Type>
        <mf:Boundary>MIME_boundary</mf:Boundary>
        <mf:Type>text/xml</mf:Type>
        <mf:Start>car-data@cars.example.com</mf:Start>
    </mf:MessageHeader>
    <mf:Action>leasing</mf:Action>
</mf:MessageFragment>
"""
"""The example of section 4.2.3."""


def _block(xml: str, version: SoapVersion = SoapVersion.SOAP_12) -> HeaderBlock:
    envelope = read_envelope(parse(write_envelope(version, [xml], write_body(version))))
    return envelope.blocks[0]


def _read(xml: str) -> MessageFragment:
    fragment, problems = read_message_fragment(_block(xml))
    assert problems == []
    assert fragment is not None
    return fragment


def _refused(xml: str) -> list[tuple[str, str, str]]:
    fragment, problems = read_message_fragment(_block(xml))
    assert fragment is None
    assert all(p.location and p.location.startswith("S12:Envelope/") for p in problems[:50])
    return [(p.code, (p.location or "").rpartition("/")[2], p.detail) for p in problems]


def test_the_printed_example_is_read() -> None:
    assert _read(PRINTED) == replace(FRAGMENT, must_understand=False)


def test_role_and_must_understand_and_id_are_read_from_the_block() -> None:
    xml = write_message_fragment(replace(FRAGMENT, id="fragment-1"), SoapVersion.SOAP_12)
    assert _read(xml).id == "fragment-1"
    assert _read(xml).must_understand
    targeted = xml.replace(
        " S12:mustUnderstand", f' S12:role="{S12_ULTIMATE_RECEIVER}" S12:mustUnderstand'
    )
    assert _read(targeted).role == S12_ULTIMATE_RECEIVER


def test_elements_of_other_namespaces_are_passed_over() -> None:
    extended = PRINTED.replace(
        "</mf:MessageFragment>", "<x:New xmlns:x='urn:x'/></mf:MessageFragment>"
    )
    assert _read(extended) == _read(PRINTED)


@pytest.mark.req("P2-4.2.3-01")
def test_all_of_the_source_header_is_kept() -> None:
    header = MessageHeader("b", "application/xop+xml", "root@x", "text/xml", "An <order> & more")
    written = write_message_fragment(replace(FRAGMENT, message_header=header), SoapVersion.SOAP_12)
    assert _read(written).message_header == header
    assert header.content_type == "Multipart/Related"


@pytest.mark.parametrize("type", TYPES)
def test_the_type_of_soap_12_with_attachments_is_accepted_too(type: str) -> None:
    assert _read(PRINTED.replace("text/xml", type)).message_header == replace(HEADER, type=type)


def test_the_content_type_is_compared_without_case_and_may_be_left_out() -> None:
    lower = _read(PRINTED.replace("Multipart/Related", "multipart/related"))
    assert lower.message_header == replace(HEADER, content_type="multipart/related")
    absent = PRINTED.replace("<mf:Content-Type>Multipart/Related</mf:Content-Type>", "")
    assert _read(absent).message_header == HEADER


def test_an_empty_action_differs_from_none() -> None:
    assert _read(PRINTED.replace(">leasing<", "><")).action == ""
    assert _read(PRINTED.replace("<mf:Action>leasing</mf:Action>", "")).action is None


@pytest.mark.parametrize("algorithm", COMPRESSION_ALGORITHMS)
def test_compression_is_an_algorithm_and_a_size(algorithm: str) -> None:
    fragment = replace(FRAGMENT, compression_algorithm=algorithm, compressed_message_size=17)
    assert _read(write_message_fragment(fragment, SoapVersion.SOAP_12)) == fragment


NUM = "<mf:FragmentNum>1</mf:FragmentNum>"
ACTION = "<mf:Action>leasing</mf:Action>"
COMPRESSION = "<mf:CompressionAlgorithm>gzip</mf:CompressionAlgorithm>"
COMPRESSED = "<mf:CompressedMessageSize>5</mf:CompressedMessageSize>"
UNCOMPRESSED = "<mf:UncompressedMessageSize>5</mf:UncompressedMessageSize>"


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        (' href="cid:3ec80b70@cars.example.com"', "", "EBMS:0047", "mf:MessageFragment"),
        ("cid:3ec80b70", "http://x/3ec80b70", "EBMS:0047", "mf:MessageFragment"),
        (">fa053eaf-47ed-4862-b70b-e5acbd94061a<", ">  <", "EBMS:0009", "mf:GroupId"),
        (">fa053eaf-47ed-4862-b70b-e5acbd94061a<", "><x/>y<", "EBMS:0009", "mf:GroupId"),
        (">fa053eaf-47ed-4862-b70b-e5acbd94061a<", ">a&#10;b<", "EBMS:0009", "mf:GroupId"),
        (">fa053eaf-47ed-4862-b70b-e5acbd94061a<", f">{'a' * 1001}<", "EBMS:0009", "mf:GroupId"),
        (NUM, "", "EBMS:0009", "mf:MessageFragment"),
        (NUM, NUM + NUM, "EBMS:0009", "mf:FragmentNum[2]"),
        (NUM, "<mf:FragmentNum>0</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>-1</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>1.0</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>1_0</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>١</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>2147483648</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, "<mf:FragmentNum>3</mf:FragmentNum>", "EBMS:0048", "mf:FragmentNum"),
        (NUM, f"<mf:FragmentNum>{'9' * 5000}</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, f"<mf:FragmentNum>{'0' * 5000}1</mf:FragmentNum>", "EBMS:0009", "mf:FragmentNum"),
        (NUM, NUM + "<mf:MessageSize>1</mf:MessageSize>", "EBMS:0009", "mf:MessageSize"),
        ("Multipart/Related", "Multipart/Mixed", "EBMS:0009", "mf:Content-Type"),
        ("MIME_boundary", "", "EBMS:0009", "mf:Boundary"),
        ("MIME_boundary", 'a" ; x="b', "EBMS:0009", "mf:Boundary"),
        ("MIME_boundary", "a&#13;&#10;b", "EBMS:0009", "mf:Boundary"),
        ("MIME_boundary", "b" * 71, "EBMS:0009", "mf:Boundary"),
        ("text/xml", "text/plain", "EBMS:0009", "mf:Type"),
        (">car-data@cars.example.com<", ">&lt;car-data@x&gt;<", "EBMS:0009", "mf:Start"),
        (">car-data@cars.example.com<", ">a b<", "EBMS:0009", "mf:Start"),
        (">leasing<", ">a&#10;b<", "EBMS:0009", "mf:Action"),
        (ACTION, ACTION + COMPRESSION, "EBMS:0009", "mf:CompressionAlgorithm"),
        (ACTION, ACTION + COMPRESSED, "EBMS:0009", "mf:CompressedMessageSize"),
        (ACTION, ACTION + UNCOMPRESSED, "EBMS:0009", "mf:UncompressedMessageSize"),
        (
            ACTION,
            ACTION + COMPRESSION.replace("gzip", "zip") + COMPRESSED,
            "EBMS:0001",
            "mf:CompressionAlgorithm",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_code_and_place(
    old: str, new: str, code: str, place: str
) -> None:
    assert old in PRINTED
    refused = _refused(PRINTED.replace(old, new))
    assert [(c, p) for c, p, _ in refused] == [(code, place)]
    assert len(refused[0][2]) < 250


@pytest.mark.req("P2-4.2.2-04")
def test_a_number_above_the_count_is_refused_both_ways() -> None:
    assert _refused(PRINTED.replace(NUM, "<mf:FragmentNum>3</mf:FragmentNum>"))[0][0] == "EBMS:0048"
    with pytest.raises(ValueError, match="fragment 3 of only 2"):
        write_message_fragment(replace(FRAGMENT, fragment_num=3), SoapVersion.SOAP_12)


def test_all_problems_are_told_at_once() -> None:
    wrong = (
        PRINTED.replace("cid:3ec80b70", "3ec80b70")
        .replace("MIME_boundary", "")
        .replace(NUM, "<mf:FragmentNum>x</mf:FragmentNum>")
    )
    assert {place for _, place, _ in _refused(wrong)} == {
        "mf:MessageFragment",
        "mf:Boundary",
        "mf:FragmentNum",
    }


def test_problems_by_the_thousand_are_told_of_in_a_few_sentences() -> None:
    assert len(_refused(PRINTED.replace(NUM, NUM * 5000))) <= 51


@pytest.mark.req("P2-4.4.2-02")
@pytest.mark.parametrize("version", SoapVersion)
def test_written_it_must_be_understood_by_the_ultimate_receiver(version: SoapVersion) -> None:
    block = _block(write_message_fragment(FRAGMENT, version), version)
    assert block.must_understand
    assert block.role is None
    for wrong in (replace(FRAGMENT, role=NEXT_MSH), replace(FRAGMENT, must_understand=False)):
        with pytest.raises(ValueError, match="ultimate receiver"):
            write_message_fragment(wrong, version)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(FRAGMENT, href="http://x"),
        replace(FRAGMENT, group_id=""),
        replace(FRAGMENT, fragment_num=0),
        replace(FRAGMENT, fragment_count=MAX_COUNT + 1),
        replace(FRAGMENT, message_size=MAX_SIZE + 1),
        replace(FRAGMENT, action="a\r\nX-Evil: 1"),
        replace(FRAGMENT, compression_algorithm="gzip"),
        replace(FRAGMENT, compression_algorithm="zip", compressed_message_size=1),
        replace(FRAGMENT, message_header=replace(HEADER, start="<root@x>")),
        replace(FRAGMENT, message_header=replace(HEADER, boundary='x"')),
        replace(FRAGMENT, message_header=replace(HEADER, content_description="a\nb")),
    ],
)
def test_a_value_that_would_be_refused_is_not_written(wrong: MessageFragment) -> None:
    with pytest.raises(ValueError):
        write_message_fragment(wrong, SoapVersion.SOAP_12)
