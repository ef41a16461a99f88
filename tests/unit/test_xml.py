"""Reading XML that a stranger wrote, and the canonical form of what is written."""

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from postroad.wire import xml
from postroad.wire.errors import EbmsError
from postroad.wire.limits import Limits


def refused(data: bytes, limits: Limits | None = None) -> EbmsError:
    with pytest.raises(EbmsError) as caught:
        xml.parse(data, limits or Limits())
    assert caught.value.code == "EBMS:0009"
    assert caught.value.location
    return caught.value


def test_well_formed_xml_gives_its_root():
    assert xml.local(xml.parse(b'<?xml version="1.0"?><!-- c --><a xmlns="urn:x"><b/></a>')) == "a"


@pytest.mark.parametrize(
    "data",
    [b"", b"   ", b"not xml", b"<a>", b"<a></b>", b"<a/><b/>", b"<a>\xff</a>", b"<a>\x00</a>"],
)
def test_what_is_not_well_formed_is_refused_with_a_place(data):
    assert "not well-formed" in refused(data).detail


DOCTYPES = [
    b"<!DOCTYPE a><a/>",
    b'<?xml version="1.0"?>\n<!-- x --><!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
    b'\xef\xbb\xbf<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x"><a/>',
    "<!DOCTYPE a><a/>".encode("utf-16"),
    "<?xml version='1.0' encoding='UTF-16BE'?><!DOCTYPE a><a/>".encode("utf-16-be"),
    "<!DOCTYPE a><a/>".encode("utf-16-le"),
]


@pytest.mark.parametrize("data", DOCTYPES)
def test_a_document_type_is_refused_in_every_encoding(data):
    assert "DTD" in refused(data).detail


def test_the_word_doctype_in_content_is_content():
    root = xml.parse(b"<a><![CDATA[<!DOCTYPE html>]]></a>")
    assert xml.text(root) == "<!DOCTYPE html>"


@pytest.mark.parametrize("codec", ["utf-7", "utf-32", "cp037"])
def test_encodings_that_hide_things_are_refused(codec):
    refused(f'<?xml version="1.0" encoding="{codec}"?><a/>'.encode(codec))


def test_utf_16_is_read():
    assert xml.text(xml.parse("<a>é</a>".encode("utf-16"))) == "é"


def nested(depth: int) -> bytes:
    return b"<a>" * depth + b"</a>" * depth


def test_depth_is_bounded_exactly():
    limits = Limits(xml_depth=20)
    xml.parse(nested(20), limits)
    assert "20 levels" in refused(nested(21), limits).detail
    assert "levels" in refused(nested(200)).detail
    xml.parse(b"<a>" * 19 + b"<b/>" + b"</a>" * 19, limits)
    assert "20 levels" in refused(b"<a>" * 20 + b"<b/>" + b"</a>" * 20, limits).detail
    assert "20 levels" in refused(nested(21).decode().encode("utf-16"), limits).detail
    refused(nested(5000))


def test_attributes_are_bounded_exactly():
    def wide(count: int) -> bytes:
        return b"<a %s/>" % b" ".join(b'a%d=""' % n for n in range(count))

    limits = Limits(xml_attributes=10)
    xml.parse(wide(10), limits)
    assert "11 attributes" in refused(wide(11), limits).detail
    refused(wide(10_000))


def test_elements_are_bounded_exactly_and_comments_count():
    limits = Limits(xml_elements=5000)
    xml.parse(b"<a>" + b"<b/>" * 4999 + b"</a>", limits)
    refused(b"<a>" + b"<b/>" * 5000 + b"</a>", limits)
    refused(b"<a>" + b"<!---->" * 5000 + b"</a>", limits)
    refused(("<a>" + "<b/>" * 5000 + "</a>").encode("utf-16"), limits)


def test_size_is_bounded():
    limits = Limits(envelope_bytes=100)
    xml.parse(b"<a>" + b"x" * 93 + b"</a>", limits)
    assert "101 bytes" in refused(b"<a>" + b"x" * 94 + b"</a>", limits).detail


def test_names_and_values_beyond_reason_are_refused():
    refused(b"<%s/>" % (b"n" * 100_000))
    refused(b"<a %s=''/>" % (b"n" * 100_000))


def test_a_namespace_name_that_is_no_uri_is_still_well_formed():
    root = xml.parse(b'<a xmlns:p="http://example.org/with blank"><p:b/></a>')
    assert root[0].tag == "{http://example.org/with blank}b"
    refused(b'<a xmlns:p="http://example.org/with blank"><p:b></a>')


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
@pytest.mark.parametrize("document", ["<a><a{}b/></a>", "<a><b a{}b=''/></a>", "<{}:a/>"])
def test_a_name_that_older_parsers_refuse_is_refused(codec, document):
    """A relay could not pass it on: expat, which tells it the places, is such a parser."""
    for character in "\ufeff\u2070\u0370":
        refused(document.format(character).encode(codec))
    assert xml.parse("<ä é='ü'>ß\ufeff</ä>".encode(codec)).tag == "ä"


def test_a_comment_does_not_hide_half_of_a_value():
    assert xml.text(xml.parse(b"<a>buy<!-- -->er</a>")) == "buyer"


def test_a_place_is_readable_and_counts_siblings():
    root = xml.parse(b'<a xmlns:q="urn:q"><q:b/><q:b><c/></q:b></a>')
    assert xml.path(root[1][0]) == "a/q:b[2]/c"


def test_octets_are_decoded_or_the_place_is_told():
    root = xml.parse(b"<a><b> YW Jj\n</b><b>a*</b></a>")
    assert xml.octets(root[0], "EBMS:0101") == b"abc"
    with pytest.raises(EbmsError) as caught:
        xml.octets(root[1], "EBMS:0102")
    assert (caught.value.code, caught.value.location) == ("EBMS:0102", "a/b[2]")


@pytest.mark.parametrize(
    "text",
    [
        b'<a y:c="1"><b xmlns="relative"/></a>',
        b'<a><y:b/><b xmlns="relative"/></a>',
        b'<a><y:b/><b xmlns="relative"/><c y:d="1"/></a>',
    ],
)
def test_a_prefix_that_nobody_declared_is_refused_also_before_a_relative_namespace(text):
    with pytest.raises(EbmsError) as refused:
        xml.parse(text)
    assert refused.value.code == "EBMS:0009"


def test_a_relative_namespace_has_no_canonical_form_and_says_so():
    root = xml.parse(b'<a xmlns:p="relative"><p:b/></a>')
    with pytest.raises(EbmsError) as caught:
        xml.canonical(root)
    assert caught.value.code == "EBMS:0009"


def _in_scope(prefix, inside=b""):
    declared = f'<r xmlns="urn:d" xmlns:{prefix}="urn:p" xmlns:u="urn:u"><u:a>'.encode()
    return declared + inside + b"</u:a></r>"


def _new_prefix():
    """lxml remembers every name it met: this one is new to it."""
    return f"p{uuid.uuid4().hex}"


@pytest.fixture(params=["remembered", "too many to remember"])
def _room_for_prefixes(request, monkeypatch):
    if request.param != "remembered":
        monkeypatch.setattr(xml, "_MOST_PREFIX_BYTES", 0)
        monkeypatch.setattr(xml, "_prefixes", xml._Prefixes())


@pytest.mark.usefixtures("_room_for_prefixes")
def test_an_inclusive_prefix_counts_for_an_element_that_another_thread_read():
    prefix = _new_prefix()
    expected = f'<u:a xmlns:{prefix}="urn:p" xmlns:u="urn:u"></u:a>'.encode()
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        root = reader.submit(xml._tree_on_its_own, _in_scope(prefix)).result()
        for _ in range(2):
            assert writer.submit(xml.canonical, root[0], prefixes=(prefix,)).result() == expected
    for _ in range(2):
        assert xml.canonical(root[0], prefixes=(prefix,)) == expected


def test_an_inclusive_prefix_counts_for_an_element_of_a_message_with_many_tags():
    prefix = _new_prefix()
    root = xml.parse(_in_scope(prefix, b"<b></b>" * 5000))
    assert f'xmlns:{prefix}="urn:p"'.encode() in xml.canonical(root[0], prefixes=(prefix,))


@pytest.mark.usefixtures("_room_for_prefixes")
def test_the_default_namespace_can_be_on_the_inclusive_list():
    root = xml.parse(b'<r xmlns="urn:d" xmlns:u="urn:u"><u:a><b/></u:a></r>')
    expected = b'<u:a xmlns="urn:d" xmlns:u="urn:u"><b></b></u:a>'
    assert xml.canonical(root[0], prefixes=("#default",)) == expected


def test_what_cannot_be_a_prefix_on_the_inclusive_list_changes_nothing():
    # From now on lxml takes an empty prefix for that of the default namespace.
    xml.parse(b'<a xmlns=""/>')
    root = xml.parse(_in_scope("p"))
    for odd in ("", "*", "{", "{urn:p}p", "p:p", "xml", "xmlns", "#other", "\N{SNOWMAN}", "9"):
        assert xml.canonical(root[0], prefixes=(odd,)) == xml.canonical(root[0])
        both = xml.canonical(root[0], prefixes=(odd, "p"))
        assert both == b'<u:a xmlns:p="urn:p" xmlns:u="urn:u"></u:a>'


def test_the_prefixes_of_strangers_are_not_remembered_without_end(monkeypatch):
    monkeypatch.setattr(xml, "_prefixes", xml._Prefixes())
    root = xml.parse(_in_scope("p"))
    for _ in range(20):
        xml.canonical(root[0], prefixes=tuple(_new_prefix() for _ in range(128)))
    assert 0 < xml._prefixes.bytes <= xml._MOST_PREFIX_BYTES
    assert sum(map(len, xml._prefixes.names)) < xml._prefixes.bytes


def test_threads_that_read_share_no_store_of_names():
    """Else they crash when both write to it. lxml drops an inclusive prefix that is not in it."""
    xml.parse(b"<a/>")
    prefix = _new_prefix()
    with ThreadPoolExecutor(1) as other:
        root = other.submit(xml.parse, _in_scope(prefix)).result()
    written = etree.tostring(root[0], method="c14n", exclusive=True, inclusive_ns_prefixes=[prefix])
    assert prefix.encode() not in written


@given(st.text(alphabet=st.characters(codec="utf-8")).filter(xml.is_xml_text))
def test_what_is_escaped_is_canonical_and_reads_back(value):
    written = f'<a b="{xml.escape_attribute(value)}">{xml.escape(value)}</a>'
    root = xml.parse(written.encode())
    assert (root.text or "", root.get("b")) == (value, value)
    assert xml.canonical(root) == written.encode()


ORDINARY = """
from postroad.wire import xml
import base64, os

def message(n):
    value = base64.encodebytes(os.urandom(600)).decode()
    return f'<a xmlns:p="urn:p" p:id="i{n}"><b>{value}</b><c>word{n} and {n} = more</c></a>'

for n in range(3000):
    xml.parse(message(n).encode())
print(xml._vocabulary.full)
"""


def test_ordinary_traffic_does_not_count_as_new_names():
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


GROWTH = """
import itertools
from postroad.wire.xml import parse
from postroad.wire.limits import Limits

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 // 1024

number = itertools.count()
def message(tags):
    names = (b"<n%d_%s/>" % (next(number), b"x" * 60) for _ in range(tags))
    return b"<r>" + b"".join(names) + b"</r>"

def read(tags, messages):
    for _ in range(messages):
        parse(message(tags))

read(40000, 2), read(200, 200)
before = resident()
read(40000, 20), read(200, 4000)
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its memory from /proc")
def test_messages_full_of_new_names_do_not_fill_the_memory():
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 96, "MiB that stay behind after 1,600,000 new names"


@given(st.recursive(st.just(()), lambda inner: st.tuples(st.sets(st.sampled_from("abc")), inner)))
def test_where_namespaces_are_said_to_be_few_they_are(nested: tuple) -> None:
    before, after = "", ""
    while nested:
        declared, nested = nested
        before += "<x" + "".join(f' xmlns:{one}="urn:{one}"' for one in sorted(declared)) + ">"
        after += "</x>"
    data = f"<r>{before}{after}</r>".encode()
    root = xml.parse(data)
    for most in range(1, 8):
        few = xml._few_namespaces(root, data, most)
        assert not (few and xml._too_many_namespaces(root, most))


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_namespaces_that_are_declared_again_at_every_level_are_bounded(codec: str) -> None:
    levels = "".join(f'<a xmlns:p="urn:{n}" xmlns:q="urn:{n}">' for n in range(20)) + "</a>" * 20
    assert "namespaces" in refused(levels.encode(codec), Limits(xml_attributes=30)).detail
    xml.parse(levels.encode(codec), Limits(xml_attributes=40))


@pytest.mark.parametrize("behind", [b"text", b"<second/>", b"<!-- open"])
def test_what_follows_the_root_is_refused_although_a_namespace_is_no_uri(behind: bytes) -> None:
    document = b'<a xmlns:b="urn:a b"><b:c/></a>'
    assert xml.parse(document).tag == "a"
    with pytest.raises(EbmsError, match="not well-formed"):
        xml.parse(document + behind)
