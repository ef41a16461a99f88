"""Strict acknowledgment: a message is for the application only when its receipt was handed over.

Until then it is held. Who answers the request says whether the transport took the receipt; if it
did, or if nobody can say any more because the process is gone, the message is delivered. If it is
known that it did not, the message stays held: its sender comes again and gets the same receipt.
[OV004-1-06]
"""

import logging
from datetime import datetime
from typing import Final

from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.steps.notifying import notification
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, State, Work

_log = logging.getLogger("postroad.receive")
NOT_HANDED: Final = "its receipt could not be handed over; it is delivered when it comes again"


class Handing:
    """Delivers what was held, once its receipt is on its way."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def perform(self, work: Work) -> None:
        """Who answered is gone, and the receipt may have left."""
        await self.handed(work.message_id, work.id, True)

    async def handed(self, message_id: str, work: int, taken: bool) -> None:
        """The transport took the receipt, or it is known that it did not."""
        context, now = self._context, self._context.clock()

        def step(tx: Transaction) -> None:
            tx.finish_work(work, context.owner)
            message = tx.message(Side.RECEIVING, message_id)
            if message is None or message.state is not State.HELD:
                return
            if taken:
                deliver(context, tx, message, now)
            else:
                tx.change_message(
                    Side.RECEIVING, message_id, (State.HELD,), detail=NOT_HANDED, updated_at=now
                )

        try:
            await context.store.run(step)
        except StoreError as error:
            _log.error("not delivered yet", extra={"message_id": message_id, "detail": str(error)})
            context.let_go[work] = False
        finally:
            context.in_hand.discard(work)
        context.told()


def deliver(context: Context, tx: Transaction, message: Message, now: datetime) -> None:
    """A message that was held is for the application now."""
    tx.change_message(
        Side.RECEIVING,
        message.message_id,
        (State.HELD,),
        state=State.DELIVERED,
        detail=None,
        updated_at=now,
    )
    tx.record((about(message, "delivered", now),))
    for work in notification(context, message, State.DELIVERED, now):
        tx.add_work(work)
