"""Bodies of requests that are still coming: how much of them may be held, by where they come from.

Whoever sends proves itself by the message, which is known when all of it came. So until then a
sender is known by its TLS client certificate only, and all others share a bounded part of memory
and disk.
"""

from collections import Counter
from typing import Final

from postroad.node.settings.config_groups import Http
from postroad.store.interface import StoreFull
from postroad.transport.admission import AddressRules, counted_address

_EXEMPT: Final = "networks that are exempt"
"""The source of bodies from addresses that are not limited one by one."""


class UnfinishedFull(StoreFull):
    """Too much is held of messages that are still coming; it may come again."""


class UnfinishedBodies:
    """What one process holds of bodies that are still coming from senders without a certificate."""

    def __init__(self, limits: Http, rules: AddressRules) -> None:
        self._limits = limits
        self._rules = rules
        self._held: Counter[str] = Counter()
        self.total = 0
        """Bytes that are held."""

    def begin(self, peer: str | None, certificate: bytes | None) -> "UnfinishedBody":
        """A body begins to come."""
        if certificate is not None:
            return UnfinishedBody(self, None)
        return UnfinishedBody(self, counted_address(peer or "", self._rules) or _EXEMPT)

    def add(self, source: str, more: int, own: int) -> None:
        """Count bytes of a body that has `own` bytes with them; a body alone is never refused."""
        self._held[source] += more
        self.total += more
        most = self._limits.unfinished_bytes_per_address
        if source != _EXEMPT and own < self._held[source] > most:
            raise UnfinishedFull(
                f"More than {most} bytes of unfinished messages come from {source}: raise "
                "http.unfinished_bytes_per_address if they are wanted."
            )
        if own < self.total and self.total > self._limits.unfinished_bytes:
            raise UnfinishedFull(
                f"More than {self._limits.unfinished_bytes} bytes of unfinished messages are held: "
                "raise http.unfinished_bytes if they are wanted."
            )

    def remove(self, source: str, size: int) -> None:
        """A body has come, or broke off."""
        self.total -= size
        self._held[source] -= size
        if self._held[source] <= 0:
            del self._held[source]


class UnfinishedBody:
    """One body that is still coming."""

    __slots__ = ("_bodies", "_size", "_source")

    def __init__(self, bodies: UnfinishedBodies, source: str | None) -> None:
        self._bodies = bodies
        self._source = source
        self._size = 0

    def add(self, more: int) -> None:
        """Count what came; `UnfinishedFull` where that is too much."""
        if self._source is not None:
            self._size += more
            self._bodies.add(self._source, more, self._size)

    def end(self) -> None:
        """All of it came, or no more will."""
        if self._source is not None and self._size:
            self._bodies.remove(self._source, self._size)
            self._size = 0
