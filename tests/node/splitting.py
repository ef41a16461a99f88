"""A partner that takes fragments by the rules of `msh.joining`, and answers when a test says so."""

from datetime import timedelta
from typing import Any, Final

from postroad.msh.answers import error, receipt, write_answer
from postroad.msh.capture import Capture, Incoming
from postroad.msh.fragment_group import Arrival, Group, Terms
from postroad.msh.inspection import Look
from postroad.msh.joined import arrival_of, capture_joined
from postroad.msh.joined_receipts import part_references
from postroad.msh.joining import Decision, receive
from postroad.msh.lens import Inspection, Lens
from postroad.security.attachments import Attachment
from postroad.store.records import Message, Side
from postroad.transport.http_outgoing import Reply
from postroad.wire import xml
from postroad.wire.content import BytesContent, BytesSink, Joined, read_all
from postroad.wire.ebms3 import MessageInfo, SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.mime_headers import content_id_of
from postroad.wire.receipts import nonrepudiation_receipt
from postroad.wire.soap import SoapVersion, read_envelope
from tests.node.reliable import BEGIN, BUYER, ORDERS, SOAP, Posted, Station, World

BIG: Final = "big@buyer"
PAYLOAD: Final = bytes(range(256)) * 400
"""102,400 bytes."""
RETRY: Final = {"max_retries": 3, "timeout": "PT10S", "period": "PT20S"}


def splitting(size: str = "30000 B", **more: Any) -> dict[str, Any]:
    return {"fragment_size": size, "join_interval": "PT10M", **more}


def agree(world: World, name: str = ORDERS, size: str = "30000 B", **terms: Any) -> None:
    """Messages are split, and their receipts call back; without `receipts` there are none."""
    given = {"receipt": "callback", "retry": RETRY} | terms
    world.agree(name, splitting=given.pop("splitting", splitting(size)), **given)


async def fragments(station: Station, whole: str = BIG) -> list[Message]:
    store = station.node.context.store
    return await store.look(
        lambda reader: reader.fragment_messages(Side.SENDING, whole, 0, 100_000)
    )


def captured(posted: Posted) -> Capture:
    incoming = Incoming(posted.content_type, new_sink=BytesSink)
    incoming.feed(posted.body)
    return incoming.close()


class Partner:
    """Takes what is posted to it without a word."""

    def __init__(self, **terms: Any) -> None:
        self.terms = Terms(timedelta(minutes=10), **terms)
        self.group: Group | None = None
        self.came: list[tuple[Posted, Inspection, Arrival]] = []
        """Each fragment, copies too."""
        self.data: dict[int, tuple[str, bytes]] = {}

    async def __call__(self, world: World, posted: Posted) -> Reply:
        look = Look(captured(posted), Lens(at=BEGIN, new_sink=BytesSink))
        assert look.read()
        look.judge(None)
        arrival = arrival_of(look.found)
        assert arrival is not None, look.found.problems
        number = arrival.fragment.fragment_num
        earlier = self.data.get(number, (None,))[0]
        verdict = receive(self.group, arrival, earlier, now=BEGIN, terms=self.terms)
        assert not verdict.errors, verdict.errors
        if verdict.decision is Decision.STORE:
            part = look.found.attachments[content_id_of(arrival.fragment.href) or ""]
            self.data[number] = (arrival.message_id, read_all(part.content, 1 << 30))
        self.group = verdict.group
        self.came.append((posted, look.found, arrival))
        return Reply(202, "", (), b"")

    @property
    def numbers(self) -> list[int]:
        return [one.fragment.fragment_num for _, _, one in self.came]

    def joined(self) -> Capture:
        assert self.group is not None
        assert self.group.complete
        pieces = [BytesContent(data) for _, (_, data) in sorted(self.data.items())]
        return capture_joined(self.group, Joined(pieces), new_sink=BytesSink)

    async def acknowledge(self, world: World, *numbers: int) -> None:
        """The receipts of fragments that came, or of some of them."""
        station = world.stations[BUYER]
        match = station.node.context.in_force.match(ORDERS, 1)
        assert match is not None
        for _, found, arrival in self.came:
            number = arrival.fragment.fragment_num
            if not numbers or number in numbers:
                name = f"r{number}@seller"
                signal = receipt(found, arrival.message, match, signal_id=name, now=BEGIN)
                await tell(station, signal)

    async def acknowledge_whole(self, world: World, message_id: str = BIG) -> None:
        capture = self.joined()
        info = MessageInfo(BEGIN, "whole@seller", message_id)
        attachments = [
            Attachment(one.content_id or "", one.content, one.content_type.media_type)
            for one in capture.attachments
        ]
        envelope = read_envelope(xml.parse(capture.envelope))
        given = part_references(envelope, attachments)
        await tell(world.stations[BUYER], nonrepudiation_receipt(given, message_info=info))

    async def refuse(self, world: World, number: int, code: str = "EBMS:0046") -> None:
        message_id = self.data[number][0]
        signal = error([EbmsError(code, "no")], signal_id="e@seller", ref=message_id, now=BEGIN)
        await tell(world.stations[BUYER], signal)


async def tell(station: Station, signal: SignalMessage) -> None:
    """A signal calls back, unsigned."""
    envelope = write_answer(signal, SoapVersion.SOAP_12, None, BEGIN).envelope
    response = await station.receive(SOAP, envelope)
    assert response.status in (200, 202), response.body
