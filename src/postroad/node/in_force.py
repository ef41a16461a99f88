"""What is in force now: P-Modes, keys and trust, loaded anew when their files change."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from postroad.agreement.channels import channel_of, offering_of, pulling_of, somebody_may_pull
from postroad.agreement.ebxml import Ebxml, addresses, order_scope, speaks
from postroad.agreement.matching import Header, Match, PModes, header
from postroad.agreement.places import initiator_sends, is_pulled, sides
from postroad.agreement.pmode import PMode
from postroad.agreement.retrying import is_reliable, resent_within, retry_of
from postroad.agreement.waiting import Policy
from postroad.msh.answers import receipt_is_response, wants_receipt
from postroad.msh.expectation import NOTHING, Expectation, Material, Terms
from postroad.msh.lens import Lens
from postroad.node.agreements import Agreements, load_agreements
from postroad.node.config import Config
from postroad.node.keyring import Keyring
from postroad.node.reloading import Change, Watched, watch_keyring, watch_pmodes
from postroad.node.service import PModeSummary, Refused, Reloaded
from postroad.reliability.agreed import policy_of, window_of
from postroad.reliability.schedule import ONCE
from postroad.transport.tls import TlsProfile, profile_from_pmode
from postroad.wire.content import NewSink
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import DIALECTS, GUARANTEED, NONE, Dialect
from postroad.wire.limits import Limits
from postroad.wire.names import PULL, PUSH

_log = logging.getLogger("postroad.node")


@dataclass(frozen=True, slots=True)
class Sending:
    """All that is needed to send with a P-Mode."""

    match: Match
    agreed: Header
    """What the messages' headers say."""
    material: Material
    addresses: tuple[str, ...]
    """Of the partner, in the order in which they are tried."""
    tls: TlsProfile | None
    policy: Policy = ONCE
    """When it is sent again."""
    in_order: str | None = None
    """conversation or pmode: what is sent one after the other."""
    dialect: Dialect | None = None
    """Of ebXML; None: ebMS 3.0."""
    awaits: bool = False
    """A receipt or an acknowledgment was agreed on."""
    later: bool = False
    """It is not the response, or need not be: it may come by itself."""
    numbered: bool = False
    """Messages carry their number in their conversation."""
    linked: bool = False
    """They carry that of their link, and one of them is under way at a time (draft 001)."""
    channel: str | None = None
    """They wait there until their receiver pulls them."""
    capacity: int | None = None
    """How many messages that channel holds."""
    pipelined: bool = False
    """A message may go before earlier ones are answered."""

    @property
    def address(self) -> str:
        return self.addresses[0] if self.addresses else ""

    @property
    def protocol(self) -> str:
        """As the journal calls it."""
        return "as4" if self.dialect is None else self.dialect.protocol


class InForce:
    """The files of a node as they were when they last could be loaded."""

    def __init__(self, config: Config, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._own = frozenset(PartyId(one.id, one.type) for one in config.party)
        self._keyring: Watched[Keyring] = watch_keyring(config)
        self._agreements: Watched[Agreements] = watch_pmodes(config.pmodes, self._load)
        self._refreshing = threading.Lock()
        self._arrange()

    def _load(self, path: Path) -> Agreements:
        if not path.exists():
            return Agreements(Expectation(PModes(())), {})
        return load_agreements(path, password=self._keyring.current.password)

    def _arrange(self) -> None:
        self._by_id: Mapping[str, PMode] = {
            leg.pmode.id: leg.pmode for leg in self.expectation.pmodes.legs
        }
        self._sending: dict[str, Sending] = {}
        legs = [Match(one.pmode, one.leg, one.index + 1) for one in self.expectation.pmodes.legs]
        pulled = [one for one in legs if one.pmode.binding == PULL and one.leg.ebxml is None]
        self.offered: tuple[Match, ...] = tuple(one for one in pulled if self._sends(one.pmode))
        """The legs whose messages are pulled from this node."""
        self.pulled: tuple[Match, ...] = tuple(
            one for one in pulled if one not in self.offered and self.receives(one)
        )
        """The legs whose messages this node pulls."""

    @property
    def keyring(self) -> Keyring:
        return self._keyring.current

    @property
    def expectation(self) -> Expectation:
        return self._agreements.current.expectation

    def refresh(self) -> Reloaded:
        """Look at the files; what cannot be loaded leaves the old in force.

        The log tells it once, the answer as long as it is so.
        """
        problems: list[str] = []
        with self._refreshing:
            for watched, what in ((self._keyring, "keys"), (self._agreements, "P-Modes")):
                outcome = watched.refresh()
                problems += outcome.problems
                if outcome.change is Change.RELOADED:
                    self._arrange()
                    _log.info("reloaded", extra={"what": what})
        for problem in problems:
            _log.error("not reloaded, the old stays in force", extra={"detail": problem})
        standing = self._keyring.problems + self._agreements.problems
        return Reloaded(not standing, len(self._by_id), standing)

    def lens(self, now: datetime, new_sink: NewSink) -> Lens:
        """With what incoming messages are looked at."""
        ring = self.keyring
        return Lens(
            at=now,
            trusted=ring.trust,
            keys=ring.opening,
            skew=self._config.clock_skew,
            receiving=True,
            expectation=self.expectation,
            new_sink=new_sink,
            limits=self._limits,
        )

    def match(self, pmode: str | None, leg: int) -> Match | None:
        """A leg of a P-Mode that is in force."""
        found = self._by_id.get(pmode or "")
        if found is None or not 1 <= leg <= len(found.legs):
            return None
        return Match(found, found.legs[leg - 1], leg)

    def answer_terms(self, match: Match | None) -> Terms:
        """By what an answer about a message we sent is judged; nobody is trusted without one."""
        if match is None:
            return Terms(None, frozenset(), None, NOTHING)
        return self.expectation.answer_terms(match)

    def sending(self, pmode: str) -> Sending:
        """What a message to be sent with this P-Mode needs; `Refused` says why it cannot be."""
        # Held first: what is found in the midst of a reload must not outlive it.
        known = self._sending
        if pmode not in known:
            known[pmode] = self._find_sending(pmode)
        return known[pmode]

    def _find_sending(self, name: str) -> Sending:
        match = self.match(name, 1)
        if match is None:
            known = ", ".join(sorted(self._by_id)[:10]) or "none"
            raise Refused(422, f"there is no P-Mode {name!r}; there are: {known}", code="EBMS:0010")
        pmode = match.pmode
        if pmode.binding not in (PUSH, PULL):
            said = "only one-way exchanges, pushed or pulled, are built so far"
            raise Refused(422, f"{name} is two-way: {said}")
        if not self._sends(pmode):
            sender = sides(pmode, 0)[0]
            said = ", ".join(one.id for one in (sender.party if sender else None) or ())
            raise Refused(
                422, f"with {name} it is {said} that sends, not {self._config.party_name}"
            )
        if match.leg.ebxml is not None and match.leg.ebxml.relay:
            raise Refused(422, f"with {name} messages of others are passed on, and none are sent")
        return self._sending_by(match)

    def forwarding(self, pmode: str, leg: int) -> Sending:
        """What a message of others needs that is passed on with this P-Mode."""
        known, key = self._sending, f"{leg} {pmode}"
        if key not in known:
            match = self.match(pmode, leg)
            if match is None:
                raise Refused(422, f"there is no P-Mode {pmode!r} any more")
            known[key] = self._sending_by(match)
        return known[key]

    def _sending_by(self, match: Match) -> Sending:
        pmode, leg = match.pmode, match.leg
        pulled = is_pulled(pmode, match.number - 1)
        found = () if pulled else addresses(leg)
        if pulled and not somebody_may_pull(pmode, leg):
            said = "add initiator.authorization, security.x509.sign or protocol.security.client"
            raise Refused(422, f"{pmode.id} says of nobody that it may pull: {said}")
        if not found and not pulled:
            raise Refused(422, f"{pmode.id} has no address: set Protocol.Address")
        material = self.expectation.material(match)
        if material.signing is None:
            material = replace(material, signing=self.keyring.signing)
        spoken = speaks(leg)
        awaits = wants_receipt(leg) if leg.ebxml is None else _acknowledged(leg.ebxml)
        later = awaits and (leg.ebxml is not None or pulled or not receipt_is_response(leg))
        policy = (offering_of(leg) or ONCE) if pulled else policy_of(leg)
        return Sending(
            match,
            _sayable(header(pmode, match.number), spoken),
            material,
            found,
            self.tls(pmode.id),
            policy,
            order_scope(leg),
            DIALECTS[spoken] if spoken else None,
            awaits,
            later,
            leg.ebxml is not None and leg.ebxml.message_order == GUARANTEED,
            leg.ebxml is not None and leg.ebxml.profile == "rm001",
            channel_of(leg) if pulled else None,
            pulling_of(leg).capacity if pulled else None,
            not pulled and pmode.mep_binding is not None and pmode.mep_binding.pipelining,
        )

    def longest_memory(self) -> timedelta | None:
        """How long ids of received messages are needed, over all P-Modes; None: without end.

        As long as the windows for duplicates, and as long as partners may send again. [OV004-1-08]
        """
        memory = timedelta(0)
        for one in self.expectation.pmodes.legs:
            retrying = retry_of(one.leg)
            ways = max(len(addresses(one.leg)), 1)
            within = timedelta(0) if retrying is None else resent_within(retrying, ways)
            if within is None:
                return None
            memory = max(memory, within, window_of(one.leg))
        return memory

    def tls(self, name: str) -> TlsProfile | None:
        """How a P-Mode's partner is spoken to over TLS, where the P-Mode says."""
        match = self.match(name, 1)
        protocol = match.leg.protocol if match else None
        if protocol is None or protocol.security is None:
            return None
        password = self.keyring.password
        return profile_from_pmode(
            protocol.security,
            self._agreements.current.folders[name],
            key_password=password.decode() if password else None,
        )

    def _sends(self, pmode: PMode) -> bool:
        """Whether this node's party is the sender of the first leg."""
        sender = sides(pmode, 0)[0]
        if sender is None or sender.party is None:
            return initiator_sends(pmode, 0)
        return any(PartyId(one.id, one.type) in self._own for one in sender.party)

    def serves(self, match: Match) -> bool:
        """Whether this node sends with a P-Mode, or passes messages on with it."""
        relays = match.leg.ebxml is not None and match.leg.ebxml.relay
        return relays or self._sends(match.pmode)

    def receives(self, match: Match) -> bool:
        """Whether this node's party is the receiver of a leg."""
        receiver = sides(match.pmode, match.number - 1)[1]
        if receiver is None or receiver.party is None:
            return True
        return any(PartyId(one.id, one.type) in self._own for one in receiver.party)

    def summaries(self) -> list[PModeSummary]:
        return [self._summary(pmode) for _, pmode in sorted(self._by_id.items())]

    def _summary(self, pmode: PMode) -> PModeSummary:
        leg = pmode.legs[0]
        info = leg.business_info
        sender, receiver = (
            ", ".join(one.id for one in (side.party if side else None) or ()) or None
            for side in (pmode.initiator, pmode.responder)
        )
        return PModeSummary(
            pmode.id,
            pmode.mep,
            pmode.binding,
            sender,
            receiver,
            info.service.value if info and info.service else None,
            info.action if info else None,
            leg.protocol.address if leg.protocol else None,
            self._sends(pmode),
        )


def _acknowledged(ebxml: Ebxml) -> bool:
    """Whether messages of a leg that speaks ebXML are acknowledged. [MS098-10.3.1.3-01]"""
    asked = ebxml.ack_requested != NONE or ebxml.delivery_receipt != NONE
    return asked or is_reliable(ebxml)


def _sayable(agreed: Header, dialect: str | None) -> Header:
    """The header as far as a dialect of ebXML can say it, so that wire and journal say the same."""
    if dialect is None:
        return agreed
    parties = [
        Party(
            one.party_ids if DIALECTS[dialect].many_party_ids else one.party_ids[:1],
            one.role if DIALECTS[dialect].has_role else "",
        )
        for one in (agreed.from_party, agreed.to_party)
    ]
    return replace(agreed, from_party=parties[0], to_party=parties[1])
