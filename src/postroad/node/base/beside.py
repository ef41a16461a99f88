"""Work that is done in a thread of its own, a little ahead of who needs it."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

_AHEAD: Final = 4
"""So many pieces wait at most."""


def beside(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces, made in another thread; it ends when nobody takes them any more."""
    made: SimpleQueue[T | BaseException | None] = SimpleQueue()
    places = threading.Semaphore(_AHEAD)
    over = threading.Event()

    def make() -> None:
        try:
            for piece in pieces:
                made.put(piece)
                places.acquire()
                if over.is_set():
                    return
            made.put(None)
        except BaseException as error:
            made.put(error)

    threading.Thread(target=make, name="postroad-beside", daemon=True).start()
    try:
        while (piece := made.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            places.release()
            yield piece
    finally:
        over.set()
        places.release()
