"""Bodies of multipart/related, and what is read of them."""

from typing import Any

import pytest

from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime import ContentType, Multipart, MultipartReader, Part

SOAP = "application/soap+xml"
OUTER = ContentType("multipart/related", (("boundary", "b"), ("type", SOAP)))
ROOT = b"--b\r\nContent-Type: application/soap+xml\r\n\r\n<e/>\r\n"


def read(
    body: bytes,
    content_type: ContentType | None = OUTER,
    limits: Limits = DEFAULT,
    **more: Any,
) -> Multipart:
    """What is read of a body."""
    reader = MultipartReader(content_type, limits=limits, **more)
    reader.feed(body)
    return reader.close()


def data_of(part: Part) -> bytes:
    """The bytes of a part."""
    return read_all(part.content, 1 << 30)


def part_with(headers: bytes, content: bytes) -> Part:
    """The second of two parts, with these headers."""
    return read(ROOT + b"--b\r\n" + headers + b"\r\n" + content + b"\r\n--b--\r\n").parts[1]


def refused(body: bytes, content_type: ContentType | None = OUTER, **more: Any) -> EbmsError:
    """Why a body is refused."""
    with pytest.raises(EbmsError) as caught:
        read(body, content_type, **more)
    assert caught.value.location is not None
    return caught.value


def only_problem(package: Multipart) -> EbmsError:
    """The one thing that is wrong with a body that is read nevertheless."""
    (problem,) = package.problems
    assert problem.code == "EBMS:0007"
    return problem
