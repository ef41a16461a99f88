"""The scenes of the demo: each sends something, watches both sides, and says what it expects."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from rich.console import Console

from postroad.agreement.matching import Match
from postroad.api.client import Client
from postroad.api.client_values import ApiError, Event, Payload
from postroad.cli.demo import ebxml as demo_ebxml
from postroad.cli.demo import hubs as demo_hubs
from postroad.cli.demo import large as demo_large
from postroad.cli.demo import phase4 as demo_phase4
from postroad.cli.demo import prices as demo_prices
from postroad.cli.demo import supplier as demo_supplier
from postroad.cli.demo import updates as demo_updates
from postroad.cli.demo.messages import tell_messages_apart
from postroad.cli.demo.nodes import (
    Line,
    Road,
    RunningNode,
    disk_bytes,
    flip_one_bit,
    free_port,
    stormy,
    tampering,
)
from postroad.cli.demo.pipeline import NotReconciled, begin_spark, reconcile
from postroad.cli.java_peer import PeerError, PeerUnavailable
from postroad.msh.outbound import Draft, DraftPayload, WirePart, package, wire_form
from postroad.node.evidence.inspecting import inspect
from postroad.node.first_steps.devpki import issue, make_authority
from postroad.node.first_steps.initializing import Plan, Station, initialize, make_keys
from postroad.node.first_steps.samples import order_text
from postroad.node.settings.agreements import load_expectation
from postroad.wire.content import BytesContent
from postroad.wire.limits import MIB

_PATIENCE: Final = 60.0
_LOOK_AGAIN: Final = 0.05
COMPANIES: Final = ("buyer", "seller", "supplier")
_ORDER: Final = "buyer-to-seller-order"
_CLOSING: Final = {"ack_received": "acked", "receipt_received": "receipt_sent"}
"""What the sender tells at the end, and the receiver too, which may be later where it calls."""
_FAILED: Final = {"delivery_failed", "in_doubt"}
_LARGE: Final = 30 * MIB
_UPDATE: Final = "a catalogue update"


@dataclass(slots=True)
class Sent:
    """A message of the demo, and what should become of it."""

    story: str
    message_id: str
    delivered: bool
    digests: tuple[str, ...] = ()
    by: str = "buyer"
    state: str | None = None
    sender: list[Event] = field(default_factory=list)
    receiver: list[Event] = field(default_factory=list)


def _class(sent: Sent) -> str:
    """What the reconciliation should say; nobody has a journal of what a stranger sent."""
    if sent.delivered:
        return "confirmed"
    return "refused" if sent.sender else "pending"


def _at_rest(sent: Sent) -> bool:
    """Whether both sides are done."""
    there, here = ({one.event for one in events} for events in (sent.receiver, sent.sender))
    if not here.isdisjoint(_FAILED):
        return True
    return any(first in here and last in there for first, last in _CLOSING.items())


class Story:
    """Three companies, and what happens between them."""

    def __init__(self, work: Path, console: Console, stack: ExitStack, now: datetime) -> None:
        self._work = work
        self._console = console
        self._stack = stack
        self._now = now
        self._sent: list[Sent] = []
        self._updates: demo_updates.Told | None = None
        self._verified = 0
        self._with_phase4: list[str] = []
        self._classes: dict[str, int] = {}
        self._drawn: dict[str, int] = {}
        self.surprises: list[str] = []

    def tell(self) -> None:
        """The scenes, one after the other."""
        self._open()
        self._small_order()
        self._several_payloads()
        self._large_order()
        self._drawings()
        self._repeated_submission()
        self._older_tongue()
        self._collected()
        self._late_price()
        self._catalogue()
        self._by_hubs()
        self._another_product()
        self._stranger()
        self._tampered()
        self._spark = begin_spark()  # it takes its time, most of which a storm leaves to it
        self._storm()
        self._proofs()
        self._bad_company()
        self._reconciliation()

    def _open(self) -> None:
        """A folder, keys and a node for each company."""
        buyer, seller, supplier = (
            Station(name, self._work / name, free_port()) for name in COMPANIES
        )
        keys = make_keys((*COMPANIES, demo_phase4.NAME), now=self._now)
        initialize(Plan(buyer, seller), now=self._now, keys=keys)
        self._phase4_keys = keys.parties[demo_phase4.NAME].signing
        self._phase4 = demo_phase4.begin(
            self._work / demo_phase4.NAME,
            self._phase4_keys,
            buyer.folder / "keys" / "authority.pem",
            self._stack,
        )
        demo_supplier.found_supplier(supplier, buyer, keys, self._now)
        self._folders = {one.name: one.folder for one in (buyer, seller)}
        demo_ebxml.add_mail(self._folders)
        demo_prices.hurry(seller.folder)
        with (buyer.folder / "postroad.yaml").open("a") as file:
            # However long the seller takes to come back in the storm, nobody waits for a pause.
            file.write("\nsend: {breaker: {failures: 0}}   # a partner is never paused\n")
        near, far = (Station(n, self._work / "hubs" / n, free_port()) for n in ("near", "far"))
        demo_hubs.found_hubs(near, far, buyer, seller)
        demo_hubs.agree(self._folders, _ORDER, near, far)
        self._say("Three companies", f"keys, P-Modes and a node for each in {self._work}")
        self._nodes = {
            one.name: self._stack.enter_context(RunningNode(one.folder))
            for one in (buyer, seller, supplier)
        }
        for node in self._nodes.values():
            node.ready()
        self._buyer, self._seller = self._nodes["buyer"], self._nodes["seller"]
        # The one that is needed first starts beside what comes before; the other one comes later.
        self._hubs = self._stack.enter_context(RunningNode(near.folder)), RunningNode(far.folder)
        self._target, self._back = (f"http://127.0.0.1:{one.port}/msh" for one in (seller, buyer))

    def _small_order(self) -> None:
        self._say("A purchase order", "signed, encrypted and compressed")
        self._send("a small order", [Payload(order_text().encode(), media_type="application/xml")])

    def _several_payloads(self) -> None:
        self._say("An order with drawings", "three payloads, each signed and encrypted")
        self._send(
            "an order with three payloads",
            [
                Payload(order_text().encode(), media_type="application/xml"),
                Payload(disk_bytes(40_000), media_type="image/png", file_name="drawing.png"),
                Payload("Bitte liefern, danke. ✓".encode(), media_type="text/plain"),
            ],
        )

    def _large_order(self) -> None:
        self._say("A large order", "30 MB, never whole in anybody's memory")
        file = self._work / "catalogue.csv"
        file.write_bytes(disk_bytes(_LARGE))
        self._send("a large order", [file])

    def _drawings(self) -> None:
        """In fragments: what was cut off is sent again, and nothing else."""
        self._say("Drawings", "200 MB in fragments, over a line that is cut twice")
        line = Line(*demo_large.CUTS)
        road = self._stack.enter_context(Road(self._target, line.carry))
        demo_large.agree(self._folders, road.url, self._back)
        for one in (self._buyer, self._seller):
            one.client.reload()
        file = self._work / "drawings.zip"
        demo_large.draw(file)
        client = self._buyer.client
        sent = client.send(pmode=demo_large.DRAWINGS, payloads=[file])
        demo_large.follow(client, sent.message_id, self._console, _PATIENCE)
        self._watch("drawings over a bad line", sent.message_id, delivered=True)
        again = max(0, line.bytes - demo_large.SIZE)
        self._console.print(
            f"  {line.bytes / 1e6:.0f} MB passed for 200 MB: with the line {line.lost} fragments "
            f"were cut off, of which {again / 1e6:.0f} MB had left already"
        )
        if line.cuts:
            self.surprises.append("the line held")
        self._drawn = {"cuts": len(demo_large.CUTS), "megabytes_again": round(again / 1e6)}
        file.unlink()

    def _repeated_submission(self) -> None:
        """The application lost the reply and asks again: there is still one message."""
        self._say("The same again", "the application lost the reply and submits once more")
        payloads = [Payload(b"<Order>4712</Order>", media_type="application/xml")]
        name = f"order-4712-{self._now:%H%M%S}@buyer.example"
        for _ in range(2):
            sent = self._buyer.client.send(pmode=_ORDER, payloads=payloads, message_id=name)
        if not sent.repeated:
            self.surprises.append("a repeated submission was taken for a new message")
        self._watch("an order submitted twice", name, delivered=True)

    def _older_tongue(self) -> None:
        """The order goes by HTTP, its confirmation comes back by mail; both are acknowledged."""
        self._say("The older tongue", "ebXML 2.0: an order by HTTP, its confirmation by mail")
        demo_ebxml.agree(self._folders, self._target)
        for one in (self._buyer, self._seller):
            one.client.reload()
        payload = Payload(order_text().encode(), media_type="application/xml")
        order = self._buyer.client.send(pmode=demo_ebxml.ORDER, payloads=[payload])
        self._watch("an order in ebXML", order.message_id, delivered=True)
        confirmation = self._seller.client.send(
            pmode=demo_ebxml.CONFIRMATION,
            payloads=[Payload(b"<Confirmation>PO-1</Confirmation>", media_type="text/xml")],
            conversation_id=order.message.conversation_id,
            ref_to_message_id=order.message_id,
        )
        story = "a confirmation by mail"
        self._watch(story, confirmation.message_id, delivered=True, by="seller")

    def _collected(self) -> None:
        """Nobody can reach the supplier: its order waits until it is asked for."""
        self._say("Behind a firewall", "nobody can call the supplier; it collects its order")
        supplier = self._nodes["supplier"]
        if "msh" in supplier.serves:
            self.surprises.append("the supplier can be reached from outside")
        payload = Payload(order_text().encode(), media_type="application/xml")
        sent = self._buyer.client.send(pmode=demo_supplier.ORDER, payloads=[payload])
        supplier.client.pull(demo_supplier.ORDER)
        self._watch("an order that is collected", sent.message_id, delivered=True)

    def _late_price(self) -> None:
        """The answer would be the response; its author takes too long, so it is fetched."""
        self._say("A price", "asked for in one exchange; the answer is late, and collected")
        demo_prices.agree(self._folders, self._target)
        for one in (self._buyer, self._seller):
            one.client.reload()
        question = Payload(b"How much are a hundred?", media_type="text/plain")
        asked = self._buyer.client.send(pmode=demo_prices.PRICES, payloads=[question]).message_id
        request = self._watch("a price request", asked, delivered=True)
        if not any(one.error_code == "EBMS:0060" for one in request.sender):
            self.surprises.append("the buyer was not told that its price is late")
        price = Payload(b"12 a piece", media_type="text/plain")
        told = self._seller.client.reply(asked, payloads=[price]).message_id
        self._watch("a price that was fetched", told, delivered=True, by="seller")
        if self._buyer.client.status(asked).reply_message_id != told:
            self.surprises.append("the price does not answer the question")

    def _catalogue(self) -> None:
        """A thousand messages, each with its own receipt, in a few envelopes."""
        many = demo_updates.MANY
        self._say("A catalogue", f"{many:,} updates, signed, in a handful of envelopes")
        demo_updates.agree(self._folders, self._target)
        for one in (self._buyer, self._seller):
            one.client.reload()
        told = demo_updates.tell_updates(self._buyer.client, self._seller.client, _PATIENCE)
        for bundle in told.bundles:
            self._console.print(f"  one envelope with {len(bundle)} updates, one signature")
            self._watch(_UPDATE, bundle[-1], delivered=True)
        self._console.print(
            f"  {told.delivered} updates delivered, {told.acknowledged} receipts, one for each"
        )
        if not told.together or (told.delivered, told.acknowledged) != (many, many):
            self.surprises.append("not every catalogue update arrived in its envelope")
        self._updates = told

    def _by_hubs(self) -> None:
        """The order waits at a hub, which is killed, since the next one is not there yet."""
        self._say("By two hubs", "buyer, hub, hub, seller; a hub is killed with the order in hand")
        near, far = self._hubs
        near.ready()
        payload = Payload(order_text().encode(), media_type="application/xml")
        sent = self._buyer.client.send(pmode=demo_hubs.ORDER, payloads=[payload])
        self._until(lambda: any(near.client.messages(side="forwarding")))
        self._stack.enter_context(far)
        near.killed_and_started_again()
        far.ready()
        self._watch("an order by two hubs", sent.message_id, delivered=True)
        self._print(
            [
                (one, name)
                for name, hub in (("near", near), ("far", far))
                for one in hub.client.events(sent.message_id)
            ]
        )

    def _another_product(self) -> None:
        """An order to phase4 and its confirmation; both prove to the other what they received."""
        self._say("Another product", "phase4 is the partner: an order to it, a confirmation back")
        try:
            with self._console.status("phase4 is starting; Maven fetches it the first time"):
                partner = self._phase4.result()
            self._exchange_with(partner)
        except PeerUnavailable as missing:
            self._left_out(str(missing).splitlines()[0])
        except PeerError as error:
            self.surprises.append(f"phase4: {error}")

    def _exchange_with(self, partner: demo_phase4.Partner) -> None:
        folder = self._folders["buyer"]
        demo_phase4.agree(folder / "pmodes", partner, self._phase4_keys, self._back)
        client = self._buyer.client
        client.reload()
        order, confirmation = order_text().encode(), b"<Confirmation>PO-1</Confirmation>"
        sent = client.send(
            pmode=demo_phase4.ORDER,
            payloads=[Payload(order, media_type="application/xml")],
            wait=_PATIENCE,
        )
        got = partner.received(sent.message_id)
        told = partner.confirm(
            sent.message_id, confirmation, self._back, folder / "keys" / "buyer.pem"
        )
        self._with_phase4 = [sent.message_id, told["messageId"]]
        for message_id in self._with_phase4:
            self._print([(event, "buyer") for event in client.events(message_id)])
        good = {
            f"our order is {sent.message.state}": sent.message.state == "acknowledged",
            "phase4 verified, decrypted and unpacked the order": got["signed"]
            and got["encrypted"]
            and [one["sha256"] for one in got["payloads"]] == [demo_phase4.digest(order)],
            f"phase4 takes our receipt: {told.get('result')}": told.get("result") == "SUCCESS",
            "its confirmation is in the inbox": confirmation == client.part(told["messageId"]),
        }
        for text, held in good.items():
            mark = "[green]✔[/]" if held else "[red]✘[/]"
            self._console.print(f"  {mark} phase4 {partner.version}: {text}")
            if not held:
                self.surprises.append(text)

    def _stranger(self) -> None:
        """Somebody who calls himself the buyer, with a certificate of another authority."""
        self._say("A stranger", "claims to be the buyer, with a certificate of his own making")
        day = timedelta(days=1)
        authority = make_authority("buyer", now=self._now - day)
        key = issue(authority, "buyer", begin=self._now - day, end=self._now + day)
        expectation = load_expectation(self._work / "buyer/pmodes")
        pmode = next(leg.pmode for leg in expectation.pmodes.legs if leg.pmode.id == _ORDER)
        match = Match(pmode, pmode.legs[0], 1)
        material = expectation.material(match)
        name = f"forged-{self._now:%H%M%S}@buyer.example"
        content = BytesContent(b"<Order>everything</Order>")
        draft = Draft(
            name, name, (DraftPayload(content, b"", "application/octet-stream", "order@buyer"),)
        )
        made = package(
            draft,
            match,
            type(material)(recipients=material.recipients, signing=key),
            now=self._now,
            entropy=os.urandom,
        )
        assert made.seal is not None
        sealed = made.seal.on([part.content for part in made.parts])
        form = wire_form(
            made.version,
            made.envelope,
            [WirePart("order@buyer", "application/octet-stream", sealed[0])],
            "=_stranger",
        )
        body = b"".join(form.pieces())
        answer = httpx.post(self._target, content=body, headers={"Content-Type": form.content_type})
        if "EBMS:0101" not in answer.text:
            self.surprises.append(f"the stranger was answered {answer.text[:200]}")
        sent = Sent("a stranger's order", name, delivered=False, state="refused")
        self._sent.append(sent)
        self._follow(sent, lambda: bool(sent.receiver))

    def _tampered(self) -> None:
        """The road to the seller is not safe: one bit of the message is changed on the way."""
        self._say("A bad road", "one bit of the encrypted order changes on its way")
        road = self._stack.enter_context(Road(self._target, tampering(flip_one_bit)))
        with self._agreed({self._target: road.url}):
            self._send(
                "an order that was tampered with",
                [Payload(order_text().encode(), media_type="application/xml")],
                delivered=False,
            )

    def _storm(self) -> None:
        """The seller dies in mid-transfer, then the reply is lost, and lost again."""
        self._say("A storm", "the seller is killed in mid-transfer, then the reply is lost twice")
        strike = self._seller.killed_and_started_again
        road = self._stack.enter_context(Road(self._target, stormy(strike, lost=2)))
        sooner = {
            "max_retries: 8": "max_retries: 30",
            "period: PT30S": "period: PT2S",
            "backoff: 2": "backoff: 1",
        }
        with self._agreed({self._target: road.url, **sooner}):
            sent = self._send("an order in a storm", [Payload(disk_bytes(2 * MIB))])
        told = [one.event for one in (*sent.sender, *sent.receiver)]
        for event, times in (("delivered", 1), ("receipt_received", 1), ("duplicate", 2)):
            if told.count(event) != times:
                self.surprises.append(f"in the storm {event} stands {told.count(event)} times")

    @contextmanager
    def _agreed(self, changes: Mapping[str, str]) -> Iterator[None]:
        """The buyer's P-Mode with other words, for a while."""
        file = self._work / f"buyer/pmodes/{_ORDER}.yaml"
        before = text = file.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)
        self._buyer.client.reload()
        yield
        file.write_text(before)
        self._buyer.client.reload()

    def _proofs(self) -> None:
        """Each receipt is proven from the evidence alone, with nothing but the authority's word."""
        self._say("The proof", "evidence of each delivered message, verified offline")
        trust = self._work / "buyer/keys/authority.pem"
        anchor = x509.load_pem_x509_certificate(trust.read_bytes())
        for number, sent in enumerate((one for one in self._sent if one.delivered), 1):
            file = self._work / f"evidence-{number}.zip"
            self._nodes[sent.by].client.evidence_to(sent.message_id, file, side="sending")
            verdict = inspect(file, trust=anchor.public_bytes(Encoding.PEM))
            good = bool(verdict["holds"])
            self._verified += good
            mark = "[green]✔[/]" if good else "[red]✘[/]"
            self._console.print(f"  {mark} {file.name}: {sent.story}")
            if not good:
                self.surprises.append(f"the evidence of {sent.story} does not hold")

    def _bad_company(self) -> None:
        """What an attacker or an accident makes of a captured message, told by inspection."""
        self._say("In bad company", f"messages in {self._work / 'messages'}, told apart")
        folder = self._work / "messages"
        self.surprises += tell_messages_apart(folder, self._console, self._now)

    def _reconciliation(self) -> None:
        """All journals through Spark: what became of each order, by the word of both sides."""
        self._say("The reconciliation", "the journals of all, through Spark")
        bundles = self._updates.bundles if self._updates is not None else ()
        stories = {one: (_UPDATE, "confirmed") for bundle in bundles for one in bundle}
        stories |= {one.message_id: (one.story, _class(one)) for one in self._sent}
        stories |= dict.fromkeys(self._with_phase4, ("exchanged with phase4", "confirmed"))
        try:
            self._classes, wrong = reconcile(self._work, self._console, stories, self._spark)
        except NotReconciled as missing:
            self._left_out(str(missing))
            return
        self.surprises += wrong

    def _send(
        self, story: str, payloads: Sequence[Payload | Path], *, delivered: bool = True
    ) -> Sent:
        sent = self._buyer.client.send(pmode=_ORDER, payloads=payloads)
        return self._watch(story, sent.message_id, delivered=delivered)

    def _watch(self, story: str, message_id: str, *, delivered: bool, by: str = "buyer") -> Sent:
        """Follow a message until it comes to rest, and compare with what should become of it."""
        sent = Sent(story, message_id, delivered, by=by)
        self._sent.append(sent)
        self._follow(sent, lambda: _at_rest(sent))
        sent.state = self._nodes[by].client.status(message_id).state
        expected = "acknowledged" if delivered else "failed"
        if sent.state != expected:
            self.surprises.append(f"{story} is {sent.state}, not {expected}")
        if delivered and not any(one.event == "delivered" for one in sent.receiver):
            self.surprises.append(f"{story} was not delivered")
        if not delivered and any(one.event == "delivered" for one in sent.receiver):
            self.surprises.append(f"{story} was delivered")
        return sent

    def _follow(self, sent: Sent, done: Callable[[], bool]) -> None:
        """Wait until a message is at rest, and print what both sides tell, in the order of time."""
        until = monotonic() + _PATIENCE
        told: list[tuple[Event, str]] = []
        while True:
            last = done()
            for name, node in self._nodes.items():
                seen = sent.sender if name == sent.by else sent.receiver
                told += self._new_events(node.client, name, sent.message_id, seen)
            if last:
                break
            if monotonic() > until:
                self.surprises.append(f"{sent.story} did not come to rest")
                break
            threading.Event().wait(_LOOK_AGAIN)
        self._print(told)

    def _until(self, done: Callable[[], bool]) -> None:
        until = monotonic() + _PATIENCE
        while not done() and monotonic() < until:
            threading.Event().wait(_LOOK_AGAIN)

    def _new_events(
        self, client: Client, who: str, message_id: str, seen: list[Event]
    ) -> list[tuple[Event, str]]:
        try:
            events = client.events(message_id)[len(seen) :]
        except ApiError:
            return []
        seen += events
        return [(event, who) for event in events]

    def _print(self, told: list[tuple[Event, str]]) -> None:
        for event, who in sorted(told, key=lambda one: one[0].at):
            colour = "red" if event.severity == "failure" else "cyan"
            detail = f"  {event.error_code or ''} {event.detail}" if event.detail else ""
            self._console.print(
                f"  {event.at:%H:%M:%S.%f}  {who:<8} [{colour}]{event.event:<16}[/]{detail}",
                no_wrap=True,
                overflow="ellipsis",
            )

    def _say(self, title: str, text: str) -> None:
        self._console.print(f"\n[bold]{title}[/]: {text}")

    def _left_out(self, why: str) -> None:
        # A name in brackets, like that of an extra, is no markup.
        self._console.print(f"  left out: {why}", soft_wrap=True, markup=False)

    def totals(self) -> dict[str, object]:
        """The sums of the story; `lost` and `twice` are 0, or something is wrong."""
        updates = self._updates
        bundles = updates.bundles if updates is not None else ()
        others = sum(map(len, bundles)) - len(bundles)  # one of each was watched
        arrived = updates.delivered - len(bundles) if updates is not None else 0
        deliveries = [sum(e.event == "delivered" for e in one.receiver) for one in self._sent]
        return {
            "sent": len(self._sent) + others,
            "delivered": sum(count > 0 for count in deliveries) + arrived,
            "bundles": len(bundles),
            "receipts_verified": self._verified,
            "refused": sum(any(e.event == "rejected" for e in one.receiver) for one in self._sent),
            "lost": sum(
                one.state == "acknowledged" and not count
                for one, count in zip(self._sent, deliveries, strict=True)
            ),
            "twice": sum(count > 1 for count in deliveries),
            **{f"large_{name}": count for name, count in self._drawn.items()},
            **({"exchanged_with_phase4": len(self._with_phase4)} if self._with_phase4 else {}),
            **{f"reconciled_{name}": count for name, count in self._classes.items()},
            "as_expected": not self.surprises,
        }
