"""A disk with a quota, in the layer of the store: what is written there, and how much is free."""

import errno
from typing import Final

import pytest

from postroad.store.contents import Batch
from postroad.store.reserve import Reserve
from postroad.wire.limits import MIB

RESERVE: Final = 4 * MIB


class Quota:
    """Room for the reserve and all else; while nothing beside the reserve is free, steps fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room = 1000 * MIB
        self._reserves: list[Reserve] = []
        write = Batch.write

        def free(reserve: Reserve) -> int:
            self._reserves = [reserve]
            return max(0, self.room - reserve.held())

        def written(batch: Batch) -> None:
            if any(free(one) == 0 for one in self._reserves):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(batch)

        patch.setattr(Reserve, "free", free)
        patch.setattr(Batch, "write", written)

    def fill(self) -> None:
        """Another program takes all that is free beside the reserve."""
        self.room = sum(one.held() for one in self._reserves)

    def make_room(self) -> None:
        self.room = 1000 * MIB
