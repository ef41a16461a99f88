"""Bundles between the parties of `exchange`, for tests: made by hand, taken in by a real node."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lxml import etree

from postroad.msh.outbound import Draft, DraftPayload, PackedUnit, pack, package_units
from postroad.node.walks.receiving import Receiver, Request, Response
from postroad.store.memory import open_memory
from postroad.store.records import Message, Side, State, Wanted
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.names import EB3
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties
from tests.unit.bundles import wire

SIGNED, PLAIN = "buyer-to-seller-signed", "buyer-to-seller-plain"
BUNDLING: dict[str, Any] = {
    "policy": "optional",
    "compatibility": {"pmode_list": [SIGNED]},
    "max_size": "64 KiB",
    "max_delay": "PT10S",
}


def agree(folder: Path, name: str, **leg: Any) -> None:
    """Both parties have a P-Mode whose units are bundled, with these changes to its leg."""
    for party in (BUYER, SELLER):
        path = folder / party / "pmodes" / f"{name}.yaml"
        pmode = yaml.safe_load(path.read_text())
        pmode["legs"][0] |= {"bundling": BUNDLING} | leg
        path.write_text(yaml.safe_dump(pmode))


async def parties(folder: Path, ordering: Mapping[str, Any] | None = None, **leg: Any) -> "Bundles":
    make_parties(folder)
    bundling = BUNDLING | ({"ordering": dict(ordering)} if ordering else {})
    agree(folder, SIGNED, bundling=bundling, **leg)
    return await opened(folder)


async def opened(folder: Path) -> "Bundles":
    stores = {name: await open_memory(folder, name) for name in (BUYER, SELLER)}
    return Bundles(Exchange(folder, stores))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


@dataclass
class Bundles:
    """The seller, and a buyer who sends what a test puts together."""

    exchange: Exchange

    def unit(
        self, name: str, conversation: str = "c", content: bytes | None = None, pmode: str = SIGNED
    ) -> PackedUnit:
        context = self.exchange.contexts[BUYER]
        data = name.encode() if content is None else content
        payload = DraftPayload(
            BytesContent(data), hashlib.sha256(data).digest(), "text/plain", f"part-{name}"
        )
        sending = context.in_force.sending(pmode)
        return pack(Draft(name, conversation, (payload,)), sending.match, now=self.exchange.clock())

    def body(
        self, *units: PackedUnit, pmode: str = SIGNED, signals: Sequence[SignalMessage] = ()
    ) -> tuple[str, bytes]:
        context = self.exchange.contexts[BUYER]
        sending = context.in_force.sending(pmode)
        made = package_units(
            units,
            sending.match,
            sending.material,
            now=self.exchange.clock(),
            entropy=context.entropy,
            signals=signals,
        )
        form = wire(made)
        return form.content_type, b"".join(form.pieces())

    async def receive(self, given: tuple[str, bytes], at: str = SELLER) -> Response:
        request = Request(given[0], "127.0.0.1", _pieces(given[1]))
        return await Receiver(self.exchange.contexts[at]).receive(request)

    async def bundle(self, *units: PackedUnit, pmode: str = SIGNED) -> Response:
        return await self.receive(self.body(*units, pmode=pmode))

    async def kept(self, name: str) -> Message | None:
        store = self.exchange.stores[SELLER]
        return await store.look(lambda reader: reader.message(Side.RECEIVING, name))

    async def states(self, *names: str) -> list[State | None]:
        found = [await self.kept(name) for name in names]
        return [one.state if one else None for one in found]

    async def inbox(self) -> list[str]:
        store = self.exchange.stores[SELLER]
        wanted = Wanted(Side.RECEIVING, (State.DELIVERED,))
        return [one.message_id for one in await store.look(lambda reader: reader.messages(wanted))]

    async def events(self, name: str) -> list[str]:
        rows = await self.exchange.stores[SELLER].look(lambda reader: reader.events(name))
        return [one.event.event for one in rows]


def said(response: Response) -> dict[str, str]:
    """What a response says about each message: receipt, or the code of an error."""
    found = {}
    for signal in etree.fromstring(response.body).iter(f"{{{EB3}}}SignalMessage"):
        ref = signal.findtext(f".//{{{EB3}}}RefToMessageId")
        errors = [one.get("errorCode", "") for one in signal.iter(f"{{{EB3}}}Error")]
        found[ref or ""] = errors[0] if errors else "receipt"
    return found


def signal_ids(response: Response) -> dict[str, str]:
    found = {}
    for signal in etree.fromstring(response.body).iter(f"{{{EB3}}}SignalMessage"):
        ref = signal.findtext(f".//{{{EB3}}}RefToMessageId") or ""
        found[ref] = signal.findtext(f".//{{{EB3}}}MessageId") or ""
    return found
