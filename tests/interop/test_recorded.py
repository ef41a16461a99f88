"""Messages that peers and Postroad exchanged in a green live run, verified without Java."""

import pytest

from tests.interop.recordings import Recording, recordings, shape


@pytest.mark.parametrize("recording", list(recordings()), ids=lambda one: f"{one.peer}-{one.name}")
def test_a_recorded_message_is_still_what_it_was(recording: Recording) -> None:
    assert recording.inspect() == recording.facts


def test_a_shape_has_the_structure_and_none_of_the_values() -> None:
    body = (
        b'--b\r\nContent-Type: application/soap+xml; charset="UTF-8"\r\nContent-ID: <a@b>\r\n\r\n'
        b'<e:E xmlns:e="urn:e" xmlns:w="urn:w" w:Id="x" Algorithm="urn:a"><e:C>text</e:C></e:E>'
        b"\r\n--b\r\nContent-Type: application/gzip\r\nContent-ID: <c@d>\r\n\r\nabc\r\n--b--\r\n"
    )
    found = shape('multipart/related; boundary=b; type="application/soap+xml"', body)
    assert found.splitlines() == [
        'Content-Type: multipart/related; boundary="*"; type="application/soap+xml"',
        "--",
        'Content-Type: application/soap+xml; charset="UTF-8"',
        "Content-ID: <*>",
        "e:E Algorithm=urn:a {urn:w}Id",
        " e:C",
        "--",
        "Content-Type: application/gzip",
        "Content-ID: <*>",
    ]
