"""Content that the units of a bundle have in common is kept once."""

from postroad.store.interface import Transaction
from postroad.store.records import Stored


class Shared:
    """Keeps the same bytes once in a step; each message that asks for them owns them."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._kept: dict[bytes, Stored] = {}

    def keep(self, content: bytes) -> Stored:
        stored = self._kept.get(content)
        if stored is not None:
            return self._tx.share(stored)
        return self._kept.setdefault(content, self._tx.keep(content))
