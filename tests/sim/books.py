"""The books of both ends, compared after every commit: the first and the third oracle.

The model of exactly once: what arrives is what was submitted, once, and in order where that is
promised; what a sender is told is true. And conservation: what was accepted is somewhere.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from postroad.agreement.waiting import Policy
from postroad.node.steps.notifying import EVENTS
from postroad.reliability.breaker import Gate, address_name, party_of
from postroad.store.records import Event, Message, Recorded, Side, State
from tests.sim.acknowledgments import Acknowledgments, without_trace
from tests.sim.agreements import Party
from tests.sim.channels import Channels
from tests.sim.ebxml_agreements import address
from tests.sim.exchanges import Exchanges
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.kinds import RELAY
from tests.sim.network import UNREACHABLE, Network, Transmission
from tests.sim.plan import Planned
from tests.sim.receipts import Receipts
from tests.sim.replay import ATTEMPTS, DELIVERED, GIVEN_UP, TAKEN, Outgoing, Replay, Untrue, at_rest
from tests.sim.store import Commit, Disk
from tests.sim.timing import Timing
from tests.sim.webhook import Listener

CERTAIN: Final = (State.FAILED, State.EXPIRED)
"""A sender who says this says that the receiver does not have the message."""
_SEQUENCE: Final = re.compile(rb"<wsrm:Sequence[ >].*?<wsrm:Identifier>([^<]*)<", re.DOTALL)
_AT_WORK: Final = (State.SUBMITTED, State.READY, State.WAITING)
_OFFERED: Final = (State.SUBMITTED, State.READY, State.WAITING)
_OPERATOR: Final = "operator"
_TOO_OFTEN: Final = 1000
"""Claims of one work; an agreement with the most retries comes to a few hundred."""
_UNDER_WAY: Final = 60.0
"""Seconds in which what was under way may still reach a partner who is suspended."""


class Books:
    """Looks at every commit of every party."""

    def __init__(
        self,
        plan: Sequence[Planned],
        parties: Mapping[str, Party],
        faults: Faults,
        history: History,
    ) -> None:
        self._history = history
        self._faults = faults
        self._names = {party.id: name for name, party in parties.items()}
        self._plan = {(one.sender, one.message_id): one for one in plan}
        self._disks: dict[str, Disk] = {}
        self._failures: dict[str, int] = {}
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        """By sender and address: attempts that did not reach it, and none between that did."""
        self.replays = {name: Replay() for name in parties}
        self._timings = {name: Timing(partial(self._policy, one)) for name, one in parties.items()}
        self.receipts = Receipts(self._plan, self._find_received, self._took, history)
        self._acknowledgments = Acknowledgments(
            self._plan, self._names, self._took, self.replays, history
        )
        ids = {name: party.id for name, party in parties.items()}
        self._channels = Channels(self._plan, ids, self._find, self._is_halted, history)
        self.exchanges = Exchanges(self._plan, self._find, self._took, history)
        self.accepted: dict[tuple[str, str], Planned] = {}
        """What an application was told is taken over."""
        self._bodies: dict[tuple[str, tuple[str, str], str | None], bytes] = {}
        """What was sent first, by sender, address, sequence and message id."""
        self._claims: Counter[tuple[str, int]] = Counter()
        """How often each work was taken up: a process that spins does nothing else."""
        self._holes: set[tuple[str, str]] = set()
        """By sender and conversation: where an operator said that something came which did not."""
        self._copies_refused: set[str] = set()
        """Messages of which a copy that the network made was refused."""
        self._resuming: set[tuple[str, str]] = set()
        self._halted: dict[tuple[str, str], float] = {}
        """By sender and partner: since when a partner is suspended."""
        self._brought: dict[tuple[str, str], Transmission] = {}
        """By receiver and message id: what brought a message that was taken."""

    def know(self, disk: Disk, failures: int) -> None:
        """The disk of a party, and after how many failures in a row it leaves a partner alone."""
        self._disks[disk.name] = disk
        self._failures[disk.name] = failures

    def accept(self, planned: Planned) -> None:
        self.accepted[planned.sender, planned.message_id] = planned

    def truth(self, party: str, message_id: str) -> str:
        """What a partner says when it is asked about a message."""
        return "received" if self._has(self._plan[party, message_id], TAKEN) else "not_received"

    def begun_anew(self, party: str, message_id: str) -> None:
        """An operator resends a message that was given up."""
        self.replays[party].begun_anew[message_id] = self.replays[party].seq
        for unit in self._with(party, message_id):
            self._timings[party].anew(unit)

    def _with(self, party: str, message_id: str) -> list[str]:
        """The units that are sent with a message: all of its bundle."""
        row = self._find(party, Side.SENDING, message_id)
        bundle = row.bundle if row is not None else None
        rows = self._disks[party].messages() if bundle is not None else []
        units = [one for one in rows if one.side is Side.SENDING and one.bundle == bundle]
        return [one.message_id for one in units] or [message_id]

    def _find(self, party: str, side: Side, message_id: str) -> Message | None:
        return self._disks[party].message(side, message_id)

    def _find_received(self, receiver: str, sender: str, message_id: str) -> Message | None:
        """What a party received from another: several may use one id."""
        rows = self._disks[receiver].messages_of_id(Side.RECEIVING, message_id)
        return next((one for one in rows if self._names.get(one.from_party or "") == sender), None)

    def __call__(self, commit: Commit) -> None:
        """One commit: its events, then the rows that it changed, then the other end."""
        name = commit.disk.name
        for recorded in commit.events:
            self._event(name, recorded)
            self._mark(recorded.event, commit)
            self._hammered(name, recorded.event)
            self._refused(recorded.event, commit.cause)
        for key in commit.touched:
            row = commit.disk.message(*key)
            if row is not None:
                self._row(commit, row)
        for partner in commit.partners:
            self._partner(commit.disk, partner)
        for work in commit.claimed:
            self._claims[name, work] += 1
            if self._claims[name, work] == _TOO_OFTEN:
                self._fail(f"{name}: work {work} is taken up again and again", None)

    def _partner(self, disk: Disk, partner: str) -> None:
        """Who is suspended stays so until an operator says otherwise."""
        found = disk.tables.partners.get(partner)
        self._history.mark(f"partner {found.gate.value if found else 'well'}")
        key = disk.name, partner
        if not party_of(partner):
            # An address is suspended and resumed together with a party.
            return
        if found is not None and found.gate is Gate.SUSPENDED:
            self._halted.setdefault(key, self._history.time())
        elif self._halted.pop(key, None) is not None and key not in self._resuming:
            self._fail(f"{disk.name}: {partner} is served again, and nobody resumed it", None)

    def resuming(self, party: str, partner: str) -> None:
        """An operator is about to resume a partner."""
        self._resuming.add((party, partner))
        if partner not in self._names:
            # An address: whoever is reached there is resumed with it.
            self._resuming.update((party, one) for one in self._names)

    def _hammered(self, name: str, event: Event) -> None:
        """Who could not be reached so and so often is left alone for a while."""
        row = self._find(name, Side.SENDING, event.message_id or "")
        if row is not None and row.bundle not in (None, row.message_id):
            # An attempt with a bundle counts once.
            return
        sender = name if row is not None else self._names.get(event.from_party or "", "")
        planned = self._plan.get((sender, event.message_id or ""))
        if planned is not None and planned.kind.is_linked:
            # Over a link its retries decide, and then its receiver is suspended.
            return
        key = name, address_name(self._partner_of(name, event), event.peer or "")
        if event.event in ("sent", "resent", "forwarded", "resumed"):
            self._in_a_row[key] = 0
        elif event.event == "send_failed" and (event.detail or "").startswith(UNREACHABLE):
            self._in_a_row[key] += 1
            found = self._disks[name].tables.partners.get(key[1])
            paused = found is not None and found.gate is not Gate.FLOWING
            if 0 < self._failures[name] <= self._in_a_row[key] and not paused:
                self._fail(f"{self._in_a_row[key]} failures, and no pause", event.message_id)

    def _partner_of(self, name: str, event: Event) -> str:
        """To whom an attempt was made; of a signal that is carried only its row tells."""
        if event.side is Side.FORWARDING and event.signal_id is not None:
            row = self._disks[name].message(Side.FORWARDING, event.signal_id)
            return (row.to_party if row is not None else None) or ""
        return event.to_party or ""

    def leaves(self, sent: Transmission) -> None:
        """Something is given to the network."""
        self.receipts.called(sent)
        self._acknowledgments.called(sent)
        if not sent.is_signal and sent.message_id is not None:
            # Life-cycle messages of a sequence are about no message.
            body = without_trace(sent.body)
            sequence = _SEQUENCE.search(body)
            # What its sequence did not acknowledge in time goes into the next one, written anew.
            place = sent.url, sequence[1].decode() if sequence is not None else ""
            first = self._bodies.setdefault((sent.sender, place, sent.message_id), body)
            if first != body:
                self._fail("sent again with other bytes", sent.message_id)
        to = self._to(sent)
        partner = next((one for one, name in self._names.items() if name == to), "")
        if not sent.is_signal and self._is_halted(sent.sender, partner):
            self._fail(f"sent to {sent.receiver}, who is suspended", sent.message_id)

    def _to(self, sent: Transmission) -> str:
        """For whom it is: whoever is on the way."""
        planned = self._plan.get((sent.sender, sent.message_id or ""))
        return sent.receiver if planned is None else planned.receiver

    def responded(self, sent: Transmission, body: bytes) -> None:
        self.receipts.responded(sent, body)
        self._acknowledgments.responded(sent, body)

    def handed_out(self, sent: Transmission, times: Mapping[str, int], body: bytes) -> None:
        if sent.pulls:
            self._channels.handed_out(sent, times, body)
            return
        for message_id, many in times.items():
            self.exchanges.responded(sent, message_id, body, many)

    def _is_halted(self, sender: str, receiver: str) -> bool:
        """Whether a partner is suspended, and nothing to it can still be under way."""
        since = self._halted.get((sender, receiver))
        return since is not None and self._history.time() - since >= _UNDER_WAY

    def _refused(self, event: Event, cause: object) -> None:
        if not isinstance(cause, Transmission) or not cause.extra or not cause.message_id:
            return
        refused = event.event in ("rejected", "error_raised")
        # An error about the message of another under the same id, brought to the wrong one.
        astray = event.event == "error_received" and f"{cause.receiver}." not in cause.url
        if refused or astray:
            self._copies_refused.add(cause.message_id)

    def _fail(self, what: str, message_id: str | None) -> None:
        self._history.fail(what, message_id)

    def _event(self, name: str, recorded: Recorded) -> None:
        event = recorded.event
        if event.event != "heartbeat":
            self._history.event(name, recorded)
        try:
            self.replays[name].take(recorded)
            self._time(name, event)
        except Untrue as wrong:
            self._fail(f"the journal of {name}: {wrong}", event.message_id)
        if event.event == "delivered":
            self._delivered(name, event)
            self.exchanges.delivered(name, event)
        if event.event == "purged" and event.side is Side.FORWARDING:
            # Who forgot what it carried takes a copy for new, and writes it anew.
            self._brought.pop((name, event.message_id or ""), None)
            for key in [one for one in self._bodies if one[::2] == (name, event.message_id)]:
                del self._bodies[key]
        if event.event == "settled" and event.message_id is not None:
            self._settled(name, event)

    def _mark(self, event: Event, commit: Commit) -> None:
        self._history.mark(event.event)
        if event.event == "resent" and event.envelope not in (None, event.message_id):
            self._history.mark("sent in a bundle again")
        if event.event == "delivery_failed" and event.error_code == "EBMS:0030":
            self._history.mark("lonely")
        if (event.protocol or "").startswith("ebxml"):
            self._mark_ebxml(event)
        if event.event in ("sent", "resent") and event.detail is not None:
            if "stopped" not in event.detail:
                self._history.mark("an outcome could not be stored")
            elif commit.process.up:
                self._history.mark("a lease ran out")
            else:
                self._history.mark("taken up after a crash")

    def _mark_ebxml(self, event: Event) -> None:
        self._history.mark(f"{event.protocol}: {event.event}")
        if event.side is Side.FORWARDING:
            self._history.mark(f"forwarding: {event.event}")
        if event.error_code == "TransientError":
            self._history.mark("told to wait")
        key = self._names.get(event.from_party or "", ""), event.message_id or ""
        planned, peer = self._plan.get(key), event.peer or ""
        if planned is None or event.event not in ATTEMPTS or event.side is not Side.SENDING:
            return
        if peer.startswith("mailto:"):
            self._history.mark("sent by mail")
        if len(planned.kind.ways) > 1 and peer != address(planned.receiver):
            self._history.mark("another transport")

    def _time(self, name: str, event: Event) -> None:
        """Attempts come when they may, as far as the node's own clock can tell."""
        of_a_partner = event.event in ("suspended", "resumed")
        sent = event.side is Side.SENDING or of_a_partner
        if sent and "clock set" not in self._faults.rates:
            self._timings[name].take(event)

    def _delivered(self, name: str, event: Event) -> None:
        """What is held until its receipt was handed over is not delivered before."""
        message_id = event.message_id or ""
        planned = self._plan.get((self._names.get(event.from_party or "", ""), message_id))
        calm = (
            not self._disks[name].deaths
            and not {"slow disk", "commit unknown"} & self._faults.rates.keys()
        )
        strict = planned is not None and planned.kind.awareness.get("strict_ack")
        if strict and calm and (name, message_id) not in self.receipts.given:
            self._fail("delivered before its receipt was handed over", message_id)

    def _settled(self, sender: str, event: Event) -> None:
        """What a receipt settled late is there; what an operator says is his word."""
        self._history.mark("settled by an operator" if event.peer == _OPERATOR else "settled late")
        planned = self._plan.get((sender, event.message_id or ""))
        if planned is None or self._has(planned, TAKEN):
            return
        if event.peer != _OPERATOR:
            self._fail(f"{sender} is told settled, but nothing is there", event.message_id)
        elif event.detail != "not_received":
            # What is to follow it in order waits for a number that never comes.
            self._holes.add((sender, planned.conversation))

    def _row(self, commit: Commit, row: Message) -> None:
        name = commit.disk.name
        self._history.mark(f"{row.side.value} {row.state.value}")
        wrong = self.replays[name].fits(row)
        if wrong is not None:
            self._fail(f"{name}, {row.side.value}: {wrong}", row.message_id)
        self.exchanges.row(name, row)
        if row.side is Side.RECEIVING:
            self._received(name, row, commit.cause)
            return
        if row.side is Side.FORWARDING:
            self._carried(commit.disk, row, commit.cause)
            return
        self._told(name, row)
        if row.message_id in commit.disk.tables.offers and row.state not in _OFFERED:
            self._fail(f"{row.state.value}, and still in its channel", row.message_id)
        if row.state in _AT_WORK and not self._has_work(commit.disk, row):
            self._fail(f"{row.state.value}, and nothing will ever be done about it", row.message_id)

    def _has_work(self, disk: Disk, row: Message) -> bool:
        if row.message_id in disk.tables.offers and row.state is not State.SUBMITTED:
            # Whoever may pull it does, sooner or later.
            return True
        fetched = row.channel is not None or self._is_response(disk.name, row)
        sent_by = "offer" if fetched else "send"
        kinds = (
            ("forward",)
            if row.side is Side.FORWARDING
            else ("package", "bundle", "sequence", sent_by)
        )
        if f"~unacknowledged:{row.message_id}" in disk.tables.states:
            # It is passed on when its acknowledgement has gone.
            kinds = ("signal",)
        return any(
            work.message_id in (row.message_id, row.bundle) and work.kind in kinds
            for work in disk.tables.work.values()
        )

    def _is_response(self, name: str, row: Message) -> bool:
        """Whether a reply goes as the response to its request."""
        planned = self._plan.get((name, row.message_id))
        request = planned.answers if planned is not None else None
        return request is not None and request.kind.binding == "sync" and not row.late

    def _came(self, at: str, row: Message, cause: object) -> None:
        """What brought a message that was taken."""
        if isinstance(cause, Transmission) and not cause.is_signal:
            self._brought.setdefault((at, row.message_id), cause)

    def _carried(self, disk: Disk, row: Message, cause: object) -> None:
        """Who carries a message for others keeps it until it is passed on, or given up."""
        self._came(disk.name, row, cause)
        if row.state in _AT_WORK and not self._has_work(disk, row):
            self._fail(f"{disk.name} carries it, and will never pass it on", row.message_id)
        sender = self._names.get(row.from_party or "", "")
        planned = self._plan.get((sender, row.message_id))
        if row.signal:
            return
        if planned is None or planned.kind.relay is None:
            self._fail(f"{disk.name} carries what nobody sent through it", row.message_id)
            return
        if row.state is State.ACKNOWLEDGED and not self._has(planned, TAKEN):
            self._fail("it was passed on, but nobody has it", row.message_id)
        if row.state in CERTAIN and self._has(planned, DELIVERED):
            self._ghost(disk.name, planned.receiver, row)

    def _received(self, receiver: str, row: Message, cause: object) -> None:
        """What a receiver took is what was submitted, and no sender is sure of the contrary."""
        if row.state.value not in TAKEN:
            return
        sender = self._names.get(row.from_party or "", "")
        planned = self._plan.get((sender, row.wire_id))
        if planned is None or planned.receiver != receiver:
            self._fail(f"{receiver} took what nobody sent it", row.wire_id)
            return
        if row.payload_digests != (planned.digest,):
            self._fail(f"{receiver} has another content than {sender} sent", row.wire_id)
        self._came(receiver, row, cause)
        sent = self._disks[sender].message(Side.SENDING, row.wire_id)
        if sent is None:
            if not self._is_purged(sender, row.wire_id):
                self._fail(f"{receiver} has what {sender} has no row of", row.wire_id)
        elif sent.state in CERTAIN and row.state.value in DELIVERED:
            self._ghost(sender, receiver, sent)

    def _told(self, sender: str, row: Message) -> None:
        """What a sender is told agrees with what the receiver has."""
        planned = self._plan.get((sender, row.message_id))
        if planned is None:
            self._fail(f"{sender} has a row of what nobody submitted", row.message_id)
            return
        if row.payload_digests != (planned.digest,):
            self._fail(f"{sender} has another content than was submitted", row.message_id)
        if row.state is State.ACKNOWLEDGED and not self._has(planned, TAKEN):
            self._fail(f"{sender} is acknowledged what {planned.receiver} has not", row.message_id)
        if row.state in CERTAIN and self._has(planned, DELIVERED):
            self._ghost(sender, planned.receiver, row)

    def _has(self, planned: Planned, states: frozenset[str]) -> bool:
        """Whether the receiver has it from this sender in one of these states, or had it."""
        incoming, name = self.replays[planned.receiver].incoming, planned.message_id
        parties = [one for one, station in self._names.items() if station == planned.sender]
        known = [incoming[name, one] for one in parties if (name, one) in incoming]
        if any(one.removed for one in known):
            return True
        disk = self._disks[planned.receiver]
        return any(not one.purged for one in known) and any(
            one.state.value in states
            for one in disk.messages_of_id(Side.RECEIVING, name)
            if one.from_party in parties
        )

    def _took(self, planned: Planned) -> bool:
        return self._has(planned, TAKEN)

    def _is_purged(self, sender: str, message_id: str) -> bool:
        told = self.replays[sender].outgoing.get(message_id)
        return told is not None and told.purged

    def _ghost(self, sender: str, receiver: str, row: Message) -> None:
        """The sender is sure that the receiver has not what it has.

        Against a network that makes copies nobody can be sure of a refusal: that copy was refused,
        another one comes later and is taken.
        """
        stations = (receiver, RELAY)
        brought = [self._brought.get((one, row.message_id)) for one in stations]
        extra = any(one is not None and one.extra for one in brought)
        if extra or row.message_id in self._copies_refused:
            self._history.mark("ghost of a copy")
            return
        if row.bundle is not None:
            # Refused by call-back, and sent on for its neighbours: its receipt settles it.
            self._history.mark("ghost of a bundle")
            return
        self._fail(f"{sender} says {row.state.value}, but {receiver} has it", row.message_id)

    def _policy(self, party: Party, event: Event) -> Policy | None:
        """How often a message is sent; None: as often as a copy of its request comes."""
        planned, pmode = self._plan[party.name, event.message_id or ""], event.pmode or ""
        if planned.answers is None:
            policy = party.in_force.sending(pmode).policy
            if planned.kind.is_linked:
                # After an error of the transport the interval counts the first time, too.
                policy = replace(policy, timeout=min(policy.timeout, policy.interval))
            return policy
        sync = planned.answers.kind.binding == "sync"
        return None if sync else party.in_force.sending(pmode, 2).policy

    # At the end

    def unsettled(self) -> list[str]:
        """What is not at rest yet."""
        found = self.exchanges.unanswered(self.accepted)
        for disk in self._disks.values():
            for row in disk.messages():
                if row.side is not Side.RECEIVING and not at_rest(row.state):
                    found.append(f"{disk.name}: {row.message_id} is {row.state.value}")
            for work in disk.tables.work.values():
                if work.kind in ("gap", "held", "sequence_end"):
                    # It only says later that a message is missing, or ends an idle sequence.
                    continue
                if work.kind == "collect" and self.exchanges.is_over(disk.name, work.message_id):
                    continue
                found.append(
                    f"{disk.name}: {work.kind} of {work.message_id} is to be done at"
                    f" {work.due_at:%H:%M:%S}, claimed by {work.owner}"
                )
        return found

    def close(self, network: Network, listener: Listener) -> None:
        """All that must hold once everything is at rest."""
        for (sender, message_id), planned in self.accepted.items():
            row = self._disks[sender].message(Side.SENDING, message_id)
            if row is None:
                if not self._is_purged(sender, message_id):
                    self._fail(f"{sender} forgot what it accepted", message_id)
                continue
            self._close(planned, row, network.posts[sender, message_id])
            self._close_webhook(planned, row, listener)
        for name, disk in self._disks.items():
            self._conserve(name, disk)
        self._check_order()
        self._check_relay()
        self.exchanges.close(self.accepted)

    def _close(self, planned: Planned, row: Message, posts: int) -> None:
        if posts > row.attempts:
            said = f"it left {posts} times, and the journal has {row.attempts} attempts"
            self._fail(said, row.message_id)
        good = [State.ACKNOWLEDGED, State.SETTLED]
        if planned.kind.relay is not None:
            # The carrier took it over: more is not promised to who sends again.
            good.append(State.SENT)
        refused = self.replays[planned.sender].outgoing[row.message_id].refused
        if planned.kind.endless and not refused and row.state not in good:
            self._fail(f"{row.state.value} although there was no end to retries", row.message_id)
        waits = planned.kind.order and (planned.sender, planned.conversation) in self._holes
        if row.state is State.ACKNOWLEDGED and not waits and not self._has(planned, DELIVERED):
            self._fail("acknowledged, and never delivered", row.message_id)
        if row.state.value in GIVEN_UP and not self._has_notice(planned.sender, row):
            self._fail(f"{row.state.value}, and nobody was told", row.message_id)

    def _close_webhook(self, planned: Planned, row: Message, listener: Listener) -> None:
        """An application that wants to be called was told the last of each message."""
        if planned.sender in listener.nodes and row.state in EVENTS:
            told = listener.last(planned.sender, "sending", row.message_id)
            if told != row.state.value:
                self._fail(
                    f"{row.state.value}, but its application was told {told}", row.message_id
                )
        arrived = self._has(planned, DELIVERED) and planned.receiver in listener.nodes
        if arrived and not listener.last(planned.receiver, "receiving", row.message_id):
            self._fail(f"the application of {planned.receiver} was told nothing", row.message_id)

    def _has_notice(self, party: str, row: Message) -> bool:
        return any(
            notice.message_id == row.message_id and notice.state is row.state
            for notice in self._disks[party].tables.notices.values()
        )

    def _conserve(self, name: str, disk: Disk) -> None:
        """Submitted = acknowledged + failed + expired + in doubt + settled + sent + removed."""
        for message_id in disk.tables.offers:
            self._fail(f"{name}: it is at rest, and still in its channel", message_id)
        states = Counter(row.state.value for row in disk.messages() if row.side is Side.SENDING)
        told = self.replays[name].outgoing.values()
        submitted, purged = len(told), sum(one.purged for one in told)
        if sum(states.values()) + purged != submitted:
            said = f"{submitted} submitted, {purged} removed, but {dict(states)}"
            self._fail(f"{name}: {said}", None)

    def _check_relay(self) -> None:
        """What a relay acknowledged was passed on, or who sent it was told that it was not."""
        if "answers mixed up" in self._faults.rates:
            # Who is answered as another was takes a notice for heard that was not.
            return
        for relay, message_id in self._acknowledgments.given_by_relay:
            carried = self.replays[relay].carried[message_id]
            row = self._disks[relay].message(Side.FORWARDING, message_id)
            if row is None and not carried.purged:
                self._fail(f"{relay} forgot what it acknowledged", message_id)
            for (sender, known), planned in self.accepted.items():
                told = self.replays[sender].outgoing[known]
                if known != message_id or planned.kind.relay is None or told.purged:
                    continue
                if carried.closed and not told.refused and not told.acknowledged:
                    self._fail(f"{relay} gave it up, and {sender} was not told", message_id)

    def _check_order(self) -> None:
        """Where order is promised nobody overtakes a message, not even one that is in doubt."""
        for replay in self.replays.values():
            seen: dict[tuple[str, str], list[tuple[str, Outgoing]]] = {}
            for party_id, message_id in replay.deliveries:
                sender = self._names.get(party_id, "")
                planned = self._plan.get((sender, message_id))
                if planned is None or planned.kind.order is None:
                    continue
                lane = planned.conversation if planned.kind.order == "conversation" else ""
                told = self.replays[sender].outgoing[message_id]
                before = seen.setdefault((planned.pmode, lane), [])
                for earlier, known in before:
                    if known.submitted > told.submitted and not told.let_pass:
                        said = f"{earlier} was submitted after it and delivered before it"
                        self._fail(said, message_id)
                before.append((message_id, told))
