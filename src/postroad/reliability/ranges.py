"""Sets of message numbers as ranges: ascending, none touching the next."""

from bisect import bisect_right
from collections.abc import Iterator

Ranges = tuple[tuple[int, int], ...]


def holds(ranges: Ranges, number: int) -> bool:
    """Whether a number is among them."""
    place = bisect_right(ranges, (number, float("inf")))
    return place > 0 and ranges[place - 1][1] >= number


def added(ranges: Ranges, number: int) -> Ranges:
    """The ranges with one number more."""
    if ranges and ranges[-1][1] == number - 1:
        # Nearly always it is the next one.
        return (*ranges[:-1], (ranges[-1][0], number))
    if holds(ranges, number):
        return ranges
    place = bisect_right(ranges, (number, float("inf")))
    before, after = ranges[:place], ranges[place:]
    lower = upper = number
    if before and before[-1][1] == number - 1:
        lower, before = before[-1][0], before[:-1]
    if after and after[0][0] == number + 1:
        upper, after = after[0][1], after[1:]
    return (*before, (lower, upper), *after)


def union(one: Ranges, other: Ranges) -> Ranges:
    """What is in either of them."""
    joined: list[tuple[int, int]] = []
    for lower, upper in sorted((*one, *other)):
        if joined and lower <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], upper)
        else:
            joined.append((lower, upper))
    return tuple(joined)


def missing(ranges: Ranges, first: int, last: int) -> Ranges:
    """What of the numbers from first to last is not among them."""
    holes: list[tuple[int, int]] = []
    at = first
    for lower, upper in ranges:
        if upper < at:
            continue
        if lower > last:
            break
        if lower > at:
            holes.append((at, lower - 1))
        at = upper + 1
    if at <= last:
        holes.append((at, last))
    return tuple(holes)


def beyond(one: Ranges, other: Ranges) -> Ranges:
    """What is in the one and not in the other."""
    return tuple(hole for lower, upper in one for hole in missing(other, lower, upper))


def numbers(ranges: Ranges) -> Iterator[int]:
    """Each of the numbers, in order."""
    for lower, upper in ranges:
        yield from range(lower, upper + 1)
