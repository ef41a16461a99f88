"""A node and the world around it, as the tests of the interface need it.

To hold another node to these tests, write a `World` for it and yield it in the fixture `world`.
The node is the buyer and sends to the seller with the P-Mode `buyer-to-seller-order`; parties have
no type. The seller answers only when a test says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from postroad.node.service import Service
from postroad.reliability.breaker import Gate, address_name
from postroad.store.records import Partner, State
from tests.api.memory_service import ORDERS, MemoryService


@dataclass(frozen=True)
class Given:
    """A payload that a partner sends."""

    data: bytes
    media_type: str = "application/xml"
    file_name: str | None = None


class World(Protocol):
    service: Service
    pmode: str
    """A P-Mode with which the node sends."""

    async def deliver(self, payloads: Sequence[Given], message_id: str | None = None) -> str:
        """A partner's message comes to the inbox; its id."""
        ...

    async def acknowledge(self, message_id: str) -> bytes:
        """The partner's receipt for an outgoing message comes; its bytes."""
        ...

    async def fail(self, message_id: str) -> None:
        """The partner refuses an outgoing message."""
        ...

    async def doubt(self, message_id: str) -> None:
        """An outgoing message leaves, no answer comes, and it is given up."""
        ...

    async def pause(self, partner: str) -> None:
        """A partner is not reached, and paused."""
        ...


class MemoryWorld:
    pmode = ORDERS.id

    def __init__(self) -> None:
        self.service = MemoryService()

    async def deliver(self, payloads: Sequence[Given], message_id: str | None = None) -> str:
        parts = [(one.data, one.media_type, one.file_name) for one in payloads]
        fields = {} if message_id is None else {"message_id": message_id}
        return self.service.receive(parts, **fields).message_id

    async def acknowledge(self, message_id: str) -> bytes:
        receipt = f"<receipt>{message_id}</receipt>".encode()
        await self.service.answer(message_id, State.ACKNOWLEDGED, receipt)
        return receipt

    async def fail(self, message_id: str) -> None:
        await self.service.answer(message_id, State.FAILED, None)
        refused = {"error_code": "EBMS:0004", "detail": "the partner refused it"}
        await self.service.change(self.service.outgoing(message_id), **refused)
        self.service.notice(message_id, "failed")

    async def doubt(self, message_id: str) -> None:
        message = self.service.outgoing(message_id)
        now = datetime.now(UTC)
        await self.service.change(
            message,
            state=State.IN_DOUBT,
            attempts=2,
            tries=2,
            unanswered=1,
            first_sent_at=now - timedelta(minutes=1),
            last_sent_at=now,
            error_code="EBMS:0301",
            detail="no receipt came",
        )
        self.service.notice(message_id, "in_doubt")

    async def pause(self, partner: str, address: str | None = None) -> None:
        now = datetime.now(UTC)
        until = now + timedelta(seconds=30)
        name = partner if address is None else address_name(partner, address)
        self.service.unwell(Partner(name, Gate.PAUSED, 5, 1, until, now, f"no {partner}"))


class Faulty:
    """A service in which some calls do something else."""

    def __init__(self, service: Service, **instead: Any) -> None:
        self._service = service
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._service, name)
