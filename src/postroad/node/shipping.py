"""The journal is shipped while a node runs, by the process that leads."""

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Final

from postroad.node.base.context import Context
from postroad.store.interface import StoreError

if TYPE_CHECKING:
    from postroad.store.segments import WrittenSegment
    from postroad.store.shipping import Shipper

LOOK: Final = 5.0
"""Seconds between two looks whether enough came together for a segment."""
LAST: Final = 3.0
"""Seconds for the last segment when the node stops; what does not get there is shipped later."""
_log = logging.getLogger("postroad.journal")


class Shipping:
    """Ships to where the configuration says, full segments soon and the rest by its age."""

    def __init__(self, context: Context, target: str) -> None:
        self._context = context
        self._target = target
        self._settings = context.config.journal
        self._shipper: Shipper | None = None
        self._due = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        age = self._settings.segment_age.total_seconds()
        self._due = self._now() + age
        while True:
            await asyncio.sleep(min(LOOK, age))
            await self.ship(everything=self._now() >= self._due)

    async def ship(self, *, everything: bool) -> None:
        """What is due; what cannot be shipped now is tried again after the age of a segment."""
        # Here, because only those who ship have these libraries, and they take long to load.
        shipping = await asyncio.to_thread(importlib.import_module, "postroad.store.shipping")
        if everything:
            self._due = self._now() + self._settings.segment_age.total_seconds()
        try:
            if self._shipper is None:
                self._shipper = self._made(shipping.Shipper)
            await self._shipper.ship(everything=everything, told=self._told)
        except (shipping.ShippingError, StoreError) as error:
            self._context.count("journal_shipping_failures")
            _log.error("the journal is not shipped", extra={"detail": str(error)})

    async def finish(self) -> None:
        """Ship what is there: the node stops."""
        try:
            async with asyncio.timeout(LAST):
                await self.ship(everything=True)
        except TimeoutError:
            _log.warning("the journal is shipped on at the next start")
        if self._shipper is not None:
            self._shipper.close()

    def _made(self, shipper: "type[Shipper]") -> "Shipper":
        data = self._context.config.data
        return shipper(
            self._context.store,
            self._target,
            size=self._settings.segment_size,
            folder=data if data.is_dir() else None,
        )

    def _told(self, segment: "WrittenSegment") -> None:
        self._context.counters["postroad_journal_shipped_seq"] = segment.last_seq
        self._context.count("journal_segments")
        _log.info("shipped", extra={"segment": segment.path, "events": segment.rows})

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
