"""A multipart/form-data body cut into its parts as it comes."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from postroad.api.limits import ApiLimits
from postroad.api.metadata import is_media_type, without_controls
from postroad.api.problems import ApiProblem

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_AS_IT_IS: Final = ("", "7bit", "8bit", "binary")


@dataclass(frozen=True, slots=True)
class PartBegins:
    """The headers of a part."""

    name: str
    media_type: str | None
    file_name: str | None


@dataclass(frozen=True, slots=True)
class PartEnds:
    """The part is whole."""


Piece = PartBegins | memoryview | PartEnds


class Cutter:
    """Takes the body in chunks of any size and gives what stands in them, in order."""

    def __init__(self, content_type: str, limits: ApiLimits) -> None:
        self.ended = False
        """Whether the closing boundary was seen."""
        self._limits = limits
        self._pieces: list[Piece] = []
        self._parts = 0
        self._headers: dict[str, str] = {}
        self._field = bytearray()
        self._value = bytearray()
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._part_begins,
            "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": lambda data, start, end: self._pieces.append(
                memoryview(data)[start:end]
            ),
            "on_part_end": lambda: self._pieces.append(PartEnds()),
            "on_end": self._body_ends,
        }
        self._parser = MultipartParser(
            _boundary(content_type),
            callbacks,
            max_header_count=limits.part_headers,
            max_header_size=limits.part_header_bytes,
        )

    def cut(self, chunk: bytes) -> list[Piece]:
        self._pieces = []
        if self.ended:
            return []
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            if "exceeded" in str(error):
                raise ApiProblem(
                    413, f"A part has too many or too long headers ({error})."
                ) from None
            raise ApiProblem(400, f"This is no multipart/form-data body: {error}.") from None
        return self._pieces

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > self._limits.parts + 1:
            raise ApiProblem(413, f"A message has at most {self._limits.parts} payloads here.")
        self._headers = {}

    def _header_ends(self) -> None:
        name = self._field.decode("latin-1").lower()
        self._headers[name] = _text(bytes(self._value)).strip()
        self._field.clear()
        self._value.clear()

    def _headers_end(self) -> None:
        encoding = self._headers.get("content-transfer-encoding", "").lower()
        if encoding not in _AS_IT_IS:
            raise ApiProblem(
                415, f"A part is encoded as {encoding[:50]!r}; send the bytes as they are."
            )
        options = _options(self._headers.get("content-disposition", ""))
        if not options.get("name"):
            raise ApiProblem(400, "A part has no name in its Content-Disposition header.")
        media_type = self._headers.get("content-type") or None
        if media_type and not is_media_type(media_type):
            raise ApiProblem(
                415, f"The Content-Type of the part {options['name'][:100]!r} is no media type."
            )
        self._pieces.append(
            PartBegins(options["name"], media_type, _last_part(options.get("filename", "")))
        )

    def _body_ends(self) -> None:
        self.ended = True


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise ApiProblem(
            415, "Send multipart/form-data: a part named metadata, then the payloads as parts."
        )
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise ApiProblem(400, "The Content-Type header tells no boundary of 1 to 200 characters.")
    return boundary


def _options(disposition: str) -> dict[str, str]:
    """Parameters of Content-Disposition; browsers write quote and line break as %22, %0D, %0A."""
    kind, options = parse_options_header(disposition.encode().decode("latin-1"))
    if kind != b"form-data":
        return {}
    return {name.decode("latin-1"): _text(value) for name, value in options.items()}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _last_part(file_name: str) -> str | None:
    """A file name without folders and control characters."""
    name = without_controls(re.split(r"[/\\]", file_name)[-1]).replace("%22", '"')[-255:]
    return name if name not in ("", ".", "..") else None
