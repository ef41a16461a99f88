"""Random changes to messages: to bytes, values, tags, elements, MIME parts and base64.

Every change is drawn from a `random.Random`, so a seed repeats it; hypothesis and the fuzzers use
the same ones.
"""

import base64
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.fuzz.words import WORDS

_VALUE: Final = re.compile(rb'(?<=")[^"<>]{0,300}(?=")|(?<=>)[^<>]{1,300}(?=<)')
_TAG: Final = re.compile(rb"<[^<>]{1,300}>")
_ELEMENT: Final = re.compile(rb"<([\w:]{1,80})(?:\s[^<>]{0,900})?>.{0,2000}?</\1>", re.DOTALL)
_NUMBER: Final = re.compile(rb'(?<=[">])\d{1,20}(?=["<])')
_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?")
_TIMES: Final = (
    b"0001-01-01T00:00:00+14:00",
    b"1969-12-31T23:59:59Z",
    b"2026-02-30T24:00:00Z",
    b"9999-12-31T23:59:59.999999999Z",
    b"2026-06-01T12:00:00",
)
_ATTRIBUTE: Final = re.compile(rb'\s[\w:]{1,60}="[^"<>]{0,300}"')
_NAME: Final = re.compile(rb"(?<=</)[\w:]{1,80}|(?<=<)[\w:]{1,80}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{200,4000}={0,2}")
_SIZES: Final = (1, 2, 8, 64, 500, 3000, 10**6)

Mutation = Callable[[Random, bytes], bytes]
Span = tuple[int, int]


def _range(random: Random, data: bytes) -> Span:
    begin = random.randint(0, len(data))
    return begin, min(len(data), begin + random.choice(_SIZES))


def _find(random: Random, pattern: re.Pattern[bytes], data: bytes) -> Span | None:
    """Return the place of a match behind a random position, else of the first one."""
    found = pattern.search(data, random.randint(0, len(data))) or pattern.search(data)
    return found.span() if found else None


def _replaced(data: bytes, span: Span, new: bytes) -> bytes:
    return data[: span[0]] + new + data[span[1] :]


def flip(random: Random, data: bytes) -> bytes:
    """Change one byte."""
    if not data:
        return data
    at = random.randint(0, len(data) - 1)
    return _replaced(data, (at, at + 1), bytes((data[at] ^ random.randint(1, 255),)))


def cut(random: Random, data: bytes) -> bytes:
    """Remove some bytes."""
    return _replaced(data, _range(random, data), b"")


def repeat(random: Random, data: bytes) -> bytes:
    """Write some bytes twice."""
    begin, end = _range(random, data)
    return _replaced(data, (end, end), data[begin:end])


def insert(random: Random, data: bytes) -> bytes:
    """Write a word of the dictionary somewhere."""
    at = random.randint(0, len(data))
    return _replaced(data, (at, at), random.choice(WORDS))


def change_value(random: Random, data: bytes) -> bytes:
    """Put a word of the dictionary in the place of an attribute value or a text."""
    place = _find(random, _VALUE, data)
    return data if place is None else _replaced(data, place, random.choice(WORDS))


def change_number(random: Random, data: bytes) -> bytes:
    """Put a neighbour, or a number at the edge of what fits somewhere, in the place of another."""
    place = _find(random, _NUMBER, data)
    if place is None:
        return data
    known = int(data[slice(*place)])
    edges = (known + 1, known - 1, 0, -1, 2**31, 2**63, 10**30)
    return _replaced(data, place, b"%d" % random.choice(edges))


def change_time(random: Random, data: bytes) -> bytes:
    """Put a time that few expect in the place of another."""
    place = _find(random, _TIME, data)
    return data if place is None else _replaced(data, place, random.choice(_TIMES))


def copy_value(random: Random, data: bytes) -> bytes:
    """Put a value in the place of another: an id is used twice, a reference leads elsewhere."""
    return _copied(random, _VALUE, data)


def copy_tag(random: Random, data: bytes) -> bytes:
    """Put a tag in the place of another."""
    return _copied(random, _TAG, data)


def copy_element(random: Random, data: bytes) -> bytes:
    """Put an element in the place of another."""
    return _copied(random, _ELEMENT, data)


def _copied(random: Random, pattern: re.Pattern[bytes], data: bytes) -> bytes:
    place, other = _find(random, pattern, data), _find(random, pattern, data)
    if place is None or other is None:
        return data
    return _replaced(data, place, data[slice(*other)])


def drop(random: Random, data: bytes) -> bytes:
    """Leave an element or an attribute out."""
    place = _find(random, random.choice((_ELEMENT, _ATTRIBUTE)), data)
    return data if place is None else _replaced(data, place, b"")


def double(random: Random, data: bytes) -> bytes:
    """Write an element or an attribute twice."""
    place = _find(random, random.choice((_ELEMENT, _ATTRIBUTE)), data)
    return data if place is None else _replaced(data, place, 2 * data[slice(*place)])


def exchange(random: Random, data: bytes) -> bytes:
    """Let two elements change places."""
    places = _find(random, _ELEMENT, data), _find(random, _ELEMENT, data)
    if places[0] is None or places[1] is None:
        return data
    first, second = sorted(one for one in places if one is not None)
    if first[1] > second[0]:
        return data
    swapped = data[slice(*second)] + data[first[1] : second[0]] + data[slice(*first)]
    return _replaced(data, (first[0], second[1]), swapped)


def rename(random: Random, data: bytes) -> bytes:
    """Give an element the name of another, in both of its tags."""
    place, other = _find(random, _ELEMENT, data), _find(random, _NAME, data)
    if place is None or other is None:
        return data
    element, name = data[slice(*place)], data[slice(*other)]
    old = _NAME.match(element, 1)
    if old is None:
        return data
    inner = element[old.end() : len(element) - len(old[0]) - 1]
    return _replaced(data, place, b"<" + name + inner + name + b">")


def inside_base64(random: Random, data: bytes) -> bytes:
    """Change what base64 hides: certificates, keys, signature values."""
    place = _find(random, _BASE64, data)
    if place is None:
        return data
    encoded = data[slice(*place)]
    inner = base64.b64decode(encoded[: len(encoded) // 4 * 4])
    for _ in range(random.randint(1, 3)):
        inner = flip(random, inner)
    return _replaced(data, place, base64.b64encode(inner))


BYTE_LEVEL: Final[tuple[Mutation, ...]] = (flip, cut, repeat, insert)
STRUCTURE_LEVEL: Final[tuple[Mutation, ...]] = (
    change_value,
    change_value,
    change_number,
    change_time,
    copy_value,
    copy_tag,
    copy_element,
    drop,
    double,
    exchange,
    rename,
    inside_base64,
)


def splice(random: Random, data: bytes, other: bytes) -> bytes:
    """Put a piece of another message in the place of a piece."""
    begin, end = _range(random, other)
    return _replaced(data, _range(random, data), other[begin:end])


def mutate(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Apply one to four changes."""
    for _ in range(random.randint(1, 4)):
        choice = random.randint(0, 20)
        if choice == 0 and others:
            data = splice(random, data, random.choice(others))
        else:
            level = BYTE_LEVEL if choice <= 6 else STRUCTURE_LEVEL
            data = random.choice(level)(random, data)
    return data
