"""Ids as segments of a path: a slash inside an id, written %2F, is not one between segments."""

from typing import Final
from urllib.parse import quote, unquote

_LONGEST: Final = 1024
_WORDS: Final = frozenset({".", "..", "extent", "notices"})
"""Segments that mean something else than an id. An id that is the same is written encoded."""


def segment_of(id: str) -> str:
    """An id as a segment of a path."""
    segment = quote(id, safe="@:!$'()*+,;=~")
    if segment in _WORDS:
        return "".join(f"%{ord(letter):02X}" for letter in segment)
    return segment


def id_of(segment: str) -> str:
    """The id that a segment of a path stands for."""
    found = unquote(segment)
    if len(found) > _LONGEST:
        raise ValueError(f"an id has at most {_LONGEST} characters")
    if any(character < " " for character in found):  # Others of this kind can be in MessageIds.
        raise ValueError("an id has no control characters")
    return found


def kept_apart(path: str) -> str:
    """A raw path decoded, except for slash, percent sign and words within its segments."""
    return "/".join(map(_decoded, path.split("/")))


def _decoded(segment: str) -> str:
    found = unquote(segment)
    return segment if found in _WORDS else found.replace("%", "%25").replace("/", "%2F")
