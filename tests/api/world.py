"""A node and the world around it, as the tests of the interface need it.

To hold another node to these tests, write a `World` for it and yield it in the fixture `world`.
The node is the buyer and sends to the seller with the P-Mode `buyer-to-seller-order`; parties have
no type. The seller answers only when a test says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from postroad.node.service import Service
from postroad.store.records import State
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


class Faulty:
    """A service in which some calls do something else."""

    def __init__(self, service: Service, **instead: Any) -> None:
        self._service = service
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._service, name)
