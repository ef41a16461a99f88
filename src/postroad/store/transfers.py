"""Uploads that may be broken off and go on, in the store: what came of each, and its answer.

What came is content like any other, a piece for each step that kept some of it: so what a commit
did not reach is not there, and the sender goes on before it. A piece goes with its transfer.
"""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from postroad.store.records import Stored


class StoredTransfer(Struct, frozen=True):
    """One upload, known by who sends it, where to, and the name that he gave it."""

    sender: str
    path: str
    name: str
    partner: str
    """Whose share of the room it takes."""
    stored: int
    """So many bytes of it came, also when it is done and they are gone."""
    total: int | None
    touched_at: datetime
    expires_at: datetime
    pieces: tuple[Stored, ...] = ()
    """What came, in order."""
    owner: str | None = None
    """Who is just writing to it, until `open_until`."""
    open_until: datetime | None = None
    done: bool = False
    details: bytes = b""
    """What is known of it beside, as its owner writes it."""

    @property
    def size(self) -> int:
        """For how many bytes there must be room."""
        return 0 if self.done else max(self.stored, self.total or 0)


class Held(Struct, frozen=True):
    """How much is kept of uploads that are not done."""

    transfers: int
    bytes: int


class TransferReader(Protocol):
    """What can be asked about uploads."""

    def transfer(self, sender: str, path: str, name: str) -> StoredTransfer | None: ...

    def held(self, partner: str | None = None) -> Held:
        """Of one partner, or of all."""
        ...


class TransferSteps(Protocol):
    """What a step can do with uploads."""

    def set_transfer(self, transfer: StoredTransfer) -> None:
        """What is known of it from now on; pieces that it has no more are removed."""
        ...

    def remove_transfer(self, sender: str, path: str, name: str) -> None:
        """Forget it, with all that came of it."""
        ...

    def release_transfers(self, owner_prefix: str) -> None:
        """Who wrote to them is gone: others may go on."""
        ...

    def forget_transfers(self, now: datetime, limit: int) -> int:
        """Forget those whose time is over; how many there were."""
        ...

    def forget_done_transfers(self, most: int) -> None:
        """Of those that are done only the last are remembered, so many of them."""
        ...
