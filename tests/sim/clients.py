"""What a process of a node has for sending: each request becomes something on the network."""

import asyncio

from postroad.msh.outbound import WireForm
from postroad.transport.http_outgoing import Outgoing, Reply
from tests.sim.loop import Process
from tests.sim.network import Network


class Client:
    """The HTTP client of a process."""

    def __init__(self, network: Network, party: str, process: Process) -> None:
        self._network = network
        self._party = party
        self._process = process

    async def post(self, request: Outgoing) -> Reply:
        sent = self._network.transmission(self._party, request)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._network.begin(self._network.carry(sent, request, self._process, answer))
        return await answer

    async def close(self) -> None:
        """Nothing is open."""


class Mails:
    """The mail client of a process."""

    def __init__(self, network: Network, party: str, process: Process) -> None:
        self._network = network
        self._party = party
        self._process = process

    async def send(self, form: WireForm, address: str, message_id: str) -> None:
        sent = self._network.letter(self._party, form, address)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._network.begin(self._network.post_letter(sent, self._process, answer))
        await answer

    async def close(self) -> None:
        """Nothing is open."""
