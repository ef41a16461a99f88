"""The packaging of ebXML messages (section 7)."""

import pytest

from postroad.wire.ebxml import Manifest, ManifestReference
from postroad.wire.ebxml_packaging import encoding_of, packaging_problems
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.mime import MultipartReader
from postroad.wire.mime_headers import parse_content_type
from tests.unit.ebxml_samples import message

req = pytest.mark.req
OUTER = 'multipart/related; type="text/xml"; start="<soap@buyer.example>"; boundary="b"'
ORDER = "Content-ID: <order@buyer.example>\r\nContent-Type: text/plain\r\n\r\nan order"


def package(*parts, root="text/xml; charset=UTF-8", manifest=None, envelope=None):
    """The problems of a package of an envelope and parts."""
    given = manifest or message().manifest
    data = envelope or write_ebxml(message(manifest=given))
    head = f"Content-ID: <soap@buyer.example>\r\nContent-Type: {root}\r\n\r\n".encode()
    bodies = [head + data, *(part.encode() for part in parts)]
    body = b"".join(b"--b\r\n" + one + b"\r\n" for one in bodies) + b"--b--\r\n"
    outer = parse_content_type(OUTER)
    reader = MultipartReader(outer)
    reader.feed(body)
    found = reader.close()
    problems = packaging_problems(outer, found.root.content_type, data, found.attachments(), given)
    return [(one.code, one.severity.value, one.location) for one in problems]


def test_a_package_as_it_must_be_has_no_problems():
    assert package(ORDER) == []


@req("MS098-8.10.7-02")
def test_a_part_that_the_manifest_names_and_that_is_missing_is_a_mime_problem():
    assert package() == [("MimeProblem", "failure", "cid:order@buyer.example")]


def test_a_part_that_the_manifest_does_not_name_is_a_mime_problem():
    more = ORDER.replace("<order@", "<more@")
    assert package(ORDER, more) == [("MimeProblem", "failure", "cid:more@buyer.example")]


@req("MS098-8.10.7-03")
def test_a_reference_to_the_web_is_not_looked_up():
    away = Manifest((ManifestReference(href="http://buyer.example/order"),))
    assert package(manifest=away) == []


def test_the_envelope_is_text_xml():
    found = package(ORDER, root="application/soap+xml")
    assert found == [("MimeProblem", "failure", "cid:soap@buyer.example")]


@req("MS098-7.3.1.1-01", "MS098-7.3.1.1-02", "MS098-8.1.2-01", "MS098-8.1.2-02")
@pytest.mark.parametrize("charset", ["UTF-16", "ISO-8859-1", "nonsense"])
def test_a_charset_that_is_not_that_of_the_envelope_is_a_mime_problem(charset):
    found = package(ORDER, root=f"text/xml; charset={charset}")
    assert found == [("MimeProblem", "failure", "cid:soap@buyer.example")]


@req("MS098-7.3.1-02", "MS098-7.3.1.1-04")
@pytest.mark.parametrize(
    "root", ["text/xml", 'text/xml; charset="utf-8"', "text/xml; charset=us-ascii"]
)
def test_a_charset_may_be_missing_or_say_the_same_in_other_words(root):
    assert package(ORDER, root=root) == []


def test_us_ascii_does_not_hold_what_is_beyond_it():
    envelope = write_ebxml(message()).replace(b"NewOrder", "Neue Aufträge".encode())
    assert package(ORDER, root="text/xml; charset=us-ascii", envelope=envelope)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("<a/>".encode("utf-16"), "utf-16"),
        ("<a/>".encode("utf-16-be"), "utf-16"),
        (b"<a/>", "utf-8"),
        (b'<?xml version="1.0"?><a/>', "utf-8"),
        (b"<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "ISO-8859-1"),
        (b"", "utf-8"),
    ],
)
def test_the_encoding_is_told_by_the_first_bytes(data, expected):
    assert encoding_of(data) == expected


def test_an_envelope_alone_has_nothing_to_object_to():
    data = write_ebxml(message(manifest=None))
    outer = parse_content_type("text/xml")
    assert packaging_problems(outer, outer, data) == []
