"""The bytes that the journal points at: read from the contents of a node's store, or a copy."""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from postroad.store.places import Place
from postroad.wire.limits import DEFAULT

GONE: Final = "the bytes are gone"
"""How the detail of everything begins that is no longer there to be looked at."""
_OPENED: Final = 64
_AHEAD: Final = 8 * 1024 * 1024
"""How much is fetched at once from a store that is not a disk."""
_name: Final = re.compile(r"([sf])([0-9A-Za-z]{12})-(\d{1,18})").fullmatch

Reading = Callable[[int, int], bytes]
"""Size and offset to bytes."""


class Gone(Exception):
    """There are no such bytes; the message says what is there instead."""


class Kept:
    """What the nodes kept, each in its folder or behind its URL. Files stay open while in use."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = {node: Place.of(url) for node, url in folders.items()}
        self._opened: OrderedDict[tuple[str, str], Reading] = OrderedDict()

    def read(self, node: str, place: str | None) -> bytes:
        """The bytes at a place of a node's store, as its journal writes it."""
        if place is None:
            raise Gone("the journal does not say where they lie")
        try:
            name, begin, length = place.split(":")
            offset, size = int(begin), int(length)
        except ValueError:
            raise Gone(f"{place[:80]!r} names no place in a store") from None
        if size > DEFAULT.envelope_bytes or size < 0 or offset < 0:
            raise Gone(f"{place[:80]!r} can be the place of no envelope")
        reading = self._opened.get((node, name)) or self._open(node, name)
        try:
            data = reading(size, offset)
        except (OSError, ValueError) as error:
            raise Gone(f"{name} of {node} cannot be read ({error})") from None
        if len(data) < size:
            raise Gone(f"{name} of {node} ends {size - len(data)} bytes before the end of {place}")
        return data

    def _open(self, node: str, name: str) -> Reading:
        place, found = self._folders.get(node), _name(name)
        if place is None:
            raise Gone(f"nobody said where those of {node} lie")
        if found is None:
            raise Gone(f"{name[:80]!r} names no file of a store")
        folder = "segments" if found[1] == "s" else f"payloads/{int(found[3]) & 0xFF:02x}"
        finished = f"{folder}/{name}"
        # A node moves a file when it is finished, perhaps just now.
        for path in (finished, f"incoming/{found[2]}/{name}", finished):
            with suppress(FileNotFoundError):
                reading = _local(place.path(path)) if place.local else _remote(place, path)
                while len(self._opened) >= _OPENED:
                    self._opened.popitem(last=False)
                self._opened[node, name] = reading
                return reading
        raise Gone(f"{name} of {node} is not there")


def _local(path: str) -> Reading:
    # The file is closed when nobody reads from it any more.
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115
    number = file.fileno()

    def read(size: int, offset: int) -> bytes:
        assert not file.closed
        return os.pread(number, size, offset)

    return read


def _remote(place: Place, path: str) -> Reading:
    file = place.fs.open(place.path(path), "rb", block_size=_AHEAD)

    def read(size: int, offset: int) -> bytes:
        file.seek(offset)
        data: bytes = file.read(size)
        return data

    return read
