"""Ids as numbers: XXH64 as Spark's `xxhash64` has it, for whole columns of Arrow."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

Words = np.ndarray[Any, np.dtype[np.uint64]]

_SEED: Final = np.uint64(42)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE: Final = 32


def keys(ids: pa.Array) -> pa.Array:
    """The number of each text, null where there is none."""
    numbers = hashed(ids).view(np.int64)
    missing = ids.is_null().to_numpy(zero_copy_only=False) if ids.null_count else None
    return pa.array(numbers, mask=missing)


@dataclass(frozen=True)
class KeySet:
    """Some ids, each by its number. Ids of the same number are in it together, or none of them."""

    numbers: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Sorted, each once."""

    @staticmethod
    def of(*columns: pa.ChunkedArray) -> "KeySet":
        """Of columns of numbers; what is null is none."""
        return KeySet.union(np.asarray(column.drop_null()) for column in columns)

    @staticmethod
    def union(parts: Iterable[Any]) -> "KeySet":
        found = [np.asarray(part, dtype=np.int64) for part in parts]
        return KeySet(np.unique(np.concatenate(found))) if found else KeySet()

    def __len__(self) -> int:
        return len(self.numbers)

    def __or__(self, other: "KeySet") -> "KeySet":
        return KeySet(np.union1d(self.numbers, other.numbers))

    def __and__(self, other: "KeySet") -> "KeySet":
        return KeySet(np.intersect1d(self.numbers, other.numbers, assume_unique=True))

    def __sub__(self, other: "KeySet") -> "KeySet":
        return KeySet(np.setdiff1d(self.numbers, other.numbers, assume_unique=True))

    def holds(self, ids: pa.Array) -> Any:
        """Of each id, text or number, whether it is one of these."""
        if pa.types.is_integer(ids.type):
            return self._hold(ids)
        # The events of a message all name it: each name is looked up once.
        coded = ids.dictionary_encode()
        among = np.append(self._hold(keys(coded.dictionary)), False)
        return among[np.asarray(coded.indices.fill_null(len(coded.dictionary)))]

    def _hold(self, numbers: pa.Array) -> Any:
        if not len(self.numbers):
            return np.zeros(len(numbers), dtype=bool)
        wanted = np.asarray(numbers.fill_null(0))
        held = self._ends[wanted & (len(self._ends) - 1)] & np.asarray(numbers.is_valid())
        few = wanted[held]
        place = np.searchsorted(self.numbers, few)
        held[held] = self.numbers[np.minimum(place, len(self.numbers) - 1)] == few
        return held

    @cached_property
    def _ends(self) -> Any:
        """Whether one of these ends with such bits: most others are known by that at once."""
        ends = np.zeros(1 << (8 * len(self.numbers)).bit_length(), dtype=bool)
        ends[self.numbers & (len(ends) - 1)] = True
        return ends


def hashed(ids: pa.Array) -> Words:
    """The number of each text; of what is null, any."""
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    _, offsets, data = ids.cast(pa.string()).buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    # Four and eight bytes can be read at any place of it.
    text = np.zeros(int(ends[-1]) + 8, dtype=np.uint8)
    if data is not None:
        text[: ends[-1]] = np.frombuffer(data, dtype=np.uint8)[: ends[-1]]
    return _Texts(text, ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)).hashed()


class _Texts:
    """Texts in one buffer; each step of the algorithm is done for all of them at once."""

    def __init__(self, text: Any, places: Any, sizes: Any) -> None:
        self._bytes = text
        self._fours = np.ndarray(len(text) - 3, dtype="<u4", buffer=text, strides=(1,))
        self._eights = np.ndarray(len(text) - 7, dtype="<u8", buffer=text, strides=(1,))
        self._places = places
        self._sizes = sizes

    def hashed(self) -> Words:
        with np.errstate(over="ignore"):
            number = self._begun() + self._sizes.astype(np.uint64)
            left = self._sizes % _STRIPE
            place = self._places + self._sizes - left
            for _ in range(3):
                some = np.flatnonzero(left >= 8)
                word = _round(np.uint64(0), self._eights[place[some]])
                number[some] = _rotated(number[some] ^ word, 27) * _P1 + _P4
                place[some] += 8
                left[some] -= 8
            some = np.flatnonzero(left >= 4)
            word = self._fours[place[some]].astype(np.uint64) * _P1
            number[some] = _rotated(number[some] ^ word, 23) * _P2 + _P3
            place[some] += 4
            left[some] -= 4
            for _ in range(3):
                some = np.flatnonzero(left >= 1)
                word = self._bytes[place[some]].astype(np.uint64) * _P5
                number[some] = _rotated(number[some] ^ word, 11) * _P1
                place[some] += 1
                left[some] -= 1
            return _mixed(number)

    def _begun(self) -> Words:
        """After all whole stripes of each text."""
        number = np.full(len(self._sizes), _SEED + _P5)
        long = np.flatnonzero(self._sizes >= _STRIPE)
        if not len(long):
            return number
        stripes = self._sizes[long] // _STRIPE
        begin = (_SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1)
        lanes = [np.full(len(long), one) for one in begin]
        for stripe in range(int(stripes.max())):
            some = np.flatnonzero(stripes > stripe)
            place = self._places[long[some]] + _STRIPE * stripe
            for lane, values in enumerate(lanes):
                values[some] = _round(values[some], self._eights[place + 8 * lane])
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        whole = np.add.reduce([_rotated(values, bits) for values, bits in turns])
        for values in lanes:
            whole = (whole ^ _round(np.uint64(0), values)) * _P1 + _P4
        number[long] = whole
        return number


def _round(number: Any, word: Words) -> Any:
    return _rotated(number + word * _P2, 31) * _P1


def _rotated(number: Any, bits: int) -> Any:
    return (number << np.uint64(bits)) | (number >> np.uint64(64 - bits))


def _mixed(number: Words) -> Words:
    number ^= number >> np.uint64(33)
    number *= _P2
    number ^= number >> np.uint64(29)
    number *= _P3
    number ^= number >> np.uint64(32)
    return number
