"""Messages that peers and Postroad exchanged in a green live run, verified without Java."""

import json

import pytest

from tests.interop import shapes
from tests.interop.recordings import Recording, recordings
from tests.interop.shapes import shape


@pytest.mark.parametrize("recording", list(recordings()), ids=lambda one: f"{one.peer}-{one.name}")
def test_a_recorded_message_is_still_what_it_was(recording: Recording) -> None:
    assert recording.inspect() == recording.facts


def test_postroad_writes_the_shapes_that_wss4j_accepted() -> None:
    """A new shape needs a green `make interop RECORD=1`, which keeps it."""
    families, digests = shapes.current()
    for name, found in families.items():
        assert found == (shapes.SHAPES / name).read_text(encoding="utf-8"), name
    assert digests == json.loads(shapes.DIGESTS.read_text(encoding="utf-8"))


def test_a_shape_has_the_structure_and_none_of_the_values() -> None:
    body = (
        b'--b\r\nContent-Type: application/soap+xml; charset="UTF-8"\r\nContent-ID: <a@b>\r\n\r\n'
        b'<e:E xmlns:e="urn:e" xmlns:w="urn:w" w:Id="x" Algorithm="urn:a">'
        b"<e:C>2026-11-18T01:02:03.004Z</e:C></e:E>"
        b"\r\n--b\r\nContent-Type: application/gzip\r\nContent-ID: <c@d>\r\n\r\nabc\r\n--b--\r\n"
    )
    found = shape('multipart/related; boundary=b; type="application/soap+xml"', body)
    assert found.splitlines() == [
        'Content-Type: multipart/related; boundary="*"; type="application/soap+xml"',
        "--",
        'Content-Type: application/soap+xml; charset="UTF-8"',
        "Content-ID: <*>",
        "e:E Algorithm=urn:a w:Id",
        " e:C=0000-00-00T00:00:00.000Z",
        "--",
        "Content-Type: application/gzip",
        "Content-ID: <*>",
    ]
