"""Pieces that are made in another thread come as if they were made here."""

import threading
from collections.abc import Iterator

import pytest

from postroad.node.base.beside import beside


def test_pieces_come_in_their_order_from_another_thread() -> None:
    makers = set()

    def pieces() -> Iterator[int]:
        for number in range(100):
            makers.add(threading.current_thread())
            yield number

    assert list(beside(pieces())) == list(range(100))
    assert threading.current_thread() not in makers


def test_what_goes_wrong_is_told_to_who_takes_them() -> None:
    def pieces() -> Iterator[int]:
        yield 1
        raise ValueError("the disk has its own mind")

    taken = beside(pieces())
    assert next(taken) == 1
    with pytest.raises(ValueError, match="own mind"):
        next(taken)


def test_only_a_few_are_made_ahead_and_none_when_nobody_takes_them() -> None:
    made: list[int] = []
    ended = threading.Event()

    def pieces() -> Iterator[int]:
        try:
            for number in range(1000):
                made.append(number)
                yield number
        finally:
            ended.set()

    taken = beside(pieces())
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    taken.close()  # type: ignore[attr-defined]
    assert ended.wait(10)
    assert len(made) < 20
