"""The application behind a webhook: takes what it is told, and remembers it."""

from typing import Final

import msgspec

from postroad.node.base.requests import Request, Response
from tests.sim.loop import Process

NAME: Final = "application"


class Told(msgspec.Struct, frozen=True):
    """What a call says."""

    delivery_id: str
    event: str
    node: str
    message_id: str
    side: str
    state: str


class Listener:
    """Is always up; what is lost on the way is the network's fault."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self.process = Process(NAME)
        self.nodes = nodes
        """Those that call."""
        self.told: dict[str, Told] = {}
        """By delivery id, in the order in which they first came."""

    async def receive(self, request: Request) -> Response:
        body = b"".join([piece async for piece in request.body])
        told = msgspec.json.decode(body, type=Told)
        self.told.setdefault(told.delivery_id, told)
        return Response(200)

    def last(self, node: str, side: str, message_id: str) -> str | None:
        """The last state that was told of a message."""
        found = None
        for one in self.told.values():
            if (one.node, one.side, one.message_id) == (node, side, message_id):
                found = one.state
        return found
