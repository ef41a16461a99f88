"""What is in force now: P-Modes, keys and trust, loaded anew when their files change."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.bundling import BundlingTerms, bundling_terms
from postroad.agreement.channels import (
    alternate_leg,
    answering_of,
    channel_of,
    offering_of,
    pulling_of,
    somebody_may_pull,
)
from postroad.agreement.contacts import Contacts
from postroad.agreement.ebxml import Ebxml, addresses, order_scope, speaks
from postroad.agreement.matching import Header, Match, PModes, header
from postroad.agreement.places import initiator_sends, is_pulled, is_response, sides
from postroad.agreement.pmode import Partner, PMode
from postroad.agreement.reliable import Reliable, wsr_of, wsrm_of
from postroad.agreement.reply_patterns import answers_are_response, signal_channels
from postroad.agreement.restarting import restart_of
from postroad.agreement.retrying import is_reliable, resent_within, retry_of
from postroad.agreement.routes import Route
from postroad.agreement.splitting import SplittingTerms, splitting_terms
from postroad.agreement.waiting import Policy
from postroad.msh.answers import wants_receipt
from postroad.msh.expectation import NOTHING, Expectation, Material, Terms
from postroad.msh.lens import Lens
from postroad.msh.outbound import soap_version
from postroad.msh.pulling import Channel, Channels, message_channel
from postroad.node.service import Certificate, NotInForce, PModeSummary, Refused, Reloaded
from postroad.node.settings.agreements import Agreements, load_agreements
from postroad.node.settings.certificates import in_order, own_certificates, pmode_certificates
from postroad.node.settings.config import Config
from postroad.node.settings.keyring import Keyring, stale
from postroad.node.settings.reloading import Change, Watched, watch_keyring, watch_pmodes
from postroad.node.settings.routes import Road, Routing, road, watch_routes
from postroad.node.settings.taking import Taking, taking_of
from postroad.reliability.agreed import policy_of, window_of
from postroad.reliability.breaker import address_name
from postroad.reliability.schedule import ONCE
from postroad.security.keys import KeyStoreError, load_trusted
from postroad.security.revocation import OcspAnswer, OcspKey, Revocation, RevocationList
from postroad.store.records import Message, Side, State
from postroad.transport.tls import TlsProfile, profile_from_pmode
from postroad.wire.content import NewSink
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import DIALECTS, GUARANTEED, NONE, Dialect
from postroad.wire.limits import Limits
from postroad.wire.names import TWO_WAY
from postroad.wire.soap import SoapVersion

_log = logging.getLogger("postroad.node")
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
    answers: bool = False
    """They are the response to their requests (Two-Way/Sync)."""
    asks: bool = False
    """The response to them is their reply."""
    pipelined: bool = False
    """A message may go before earlier ones are answered."""
    bundling: BundlingTerms | None = None
    """They wait for others to go with; None: they go alone."""
    splitting: SplittingTerms | None = None
    """Large ones go in fragments; None: they go whole."""
    restarts: bool = False
    """An upload that breaks off goes on where it ended."""
    reliable: Reliable | None = None
    """Messages go in sequences of WS-ReliableMessaging."""
    wsr: Reliable | None = None
    """Messages are sent with WS-Reliability."""
    common: Message = field(init=False)
    """What is the same in all messages that are sent so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "common", _common(self))

    @property
    def address(self) -> str:
        return self.addresses[0] if self.addresses else ""

    def address_of(self, message: Message) -> str:
        """Return the address that a message goes to, of those that are tried one by one."""
        return self.addresses[min(message.transport, len(self.addresses) - 1)]

    def destination(self, message: Message) -> str:
        """Return where a message goes to, by the name that work and breakers have for it."""
        if not self.addresses:
            return message.partner
        return address_name(message.partner, self.address_of(message))

    @property
    def protocol(self) -> str:
        """As the journal calls it."""
        return "as4" if self.dialect is None else self.dialect.protocol


class Fetched(Struct, frozen=True):
    """What was learned about revoked certificates from the addresses that they name."""

    lists: tuple[RevocationList, ...] = ()
    answers: Mapping[OcspKey, OcspAnswer] = {}
    failures: Mapping[str, str] = {}


class InForce:
    """The files of a node as they were when they last could be loaded."""

    def __init__(self, config: Config, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._own = frozenset(PartyId(one.id, one.type) for one in config.party)
        self._keyring: Watched[Keyring] = watch_keyring(config)
        self._agreements: Watched[Agreements] = watch_pmodes(config.pmodes, self._load)
        self._routes: Watched[Routing] = watch_routes(config.routes)
        self._refreshing = threading.Lock()
        self._fetched = Fetched()
        self._certificates: tuple[object, object, tuple[Certificate, ...]] | None = None
        """P-Modes and keys, and the certificates that they name."""
        self._arrange()

    def _load(self, path: Path) -> Agreements:
        if not path.exists():
            return Agreements(Expectation(PModes(())), {})
        found = load_agreements(path, password=self._keyring.current.password)
        for warning in found.warnings:
            _log.warning(warning)
        return found

    def learn(self, fetched: "Fetched") -> None:
        """Use these lists and answers from now on, beside those in files."""
        self._fetched = fetched
        self._know_revoked()

    def _know_revoked(self) -> None:
        settings, fetched = self._config.security.revocation, self._fetched
        self.revocation = Revocation(
            (*self.keyring.revocation_lists, *fetched.lists),
            fetched.answers,
            fetched.failures,
            hard=settings.mode == "hard",
            wanted=bool(settings.crl_files or settings.fetch),
            skew=self._config.clock_skew,
        )
        """What is known about revoked certificates."""

    def _arrange(self) -> None:
        self._know_revoked()
        self._by_id: Mapping[str, PMode] = {
            leg.pmode.id: leg.pmode for leg in self.expectation.pmodes.legs
        }
        self._matches = {
            (pmode.id, number): Match(pmode, leg, number)
            for pmode in self._by_id.values()
            for number, leg in enumerate(pmode.legs, 1)
        }
        self.partner_of: Mapping[str, str] = {
            **{one.id: next(iter(one.to.push or ()), "") for one in self.routing.file.routes},
            **{name: self._partner(pmode) for name, pmode in self._by_id.items()},
        }
        """The partner of each P-Mode, and where each rule leads that passes messages on."""
        self.contacts = Contacts(self._by_id.values())
        """The addresses that P-Modes name for a party."""
        self._sending: dict[tuple[object, ...], Sending] = {}
        self._answers: dict[tuple[str, int], Terms] = {}
        self._taking: dict[int, Taking] = {}
        self._roads: dict[str, Road] = {}
        legs = [
            Match(one.pmode, one.leg, one.index + 1)
            for one in self.expectation.pmodes.legs
            if one.leg.ebxml is None
        ]
        self.restarts = any(restart_of(one.leg) and self.receives(one) for one in legs)
        """Whether uploads of some partner go on after they broke off."""
        pulled = [one for one in legs if is_pulled(one.pmode, one.number - 1)]
        alternate = [
            Match(one.pmode, alternate_leg(one.pmode), 2)
            for one in legs
            if one.number == 2 and is_pulled(one.pmode, 1, late=True)
        ]
        self.offered: tuple[Match, ...] = tuple(
            one for one in (*pulled, *alternate) if self.sends(one)
        )
        """The legs whose messages are pulled from this node, late replies among them."""
        self.pulled: tuple[Match, ...] = tuple(
            one for one in pulled if not self.sends(one) and self.receives(one)
        )
        """The legs whose messages this node pulls."""
        self.alternates: Mapping[str, Match] = {
            one.pmode.id: one for one in alternate if self.receives(one)
        }
        """The legs whose late replies this node pulls, by P-Mode."""
        heard = [
            Channel(one, mpc, signals=True) for one in legs for mpc in signal_channels(one.leg)
        ]
        self.offered_signals = tuple(one for one in heard if self.receives(one.match))
        """Where what this node says about messages that it received is pulled from it."""
        offered = (*map(message_channel, self.offered), *self.offered_signals)
        self.channels = Channels(offered, self.expectation, self.keyring.trust)
        """What is pulled from this node, and by what PullRequests are judged."""
        self.pulled_signals = tuple(one for one in heard if one.puller and self._is_own(one.puller))
        """Where this node pulls what is said about messages that it sent."""

    @property
    def keyring(self) -> Keyring:
        return self._keyring.current

    @property
    def expectation(self) -> Expectation:
        return self._agreements.current.expectation

    @property
    def routing(self) -> Routing:
        return self._routes.current

    def road(self, route: Route) -> Road:
        """How messages go on by a rule."""
        known = self._roads
        if route.id not in known:
            password = self.keyring.password
            known[route.id] = road(
                route, self.routing.folder, password.decode() if password else None
            )
        return known[route.id]

    def is_own(self, party: Party) -> bool:
        """Whether this node acts for a party."""
        return not self._own.isdisjoint(party.party_ids)

    def refresh(self) -> Reloaded:
        """Look at the files; what cannot be loaded leaves the old in force.

        The log tells it once, the answer as long as it is so.
        """
        problems: list[str] = []
        with self._refreshing:
            for what, watched in self._watched():
                outcome = watched.refresh()
                problems += outcome.problems
                if outcome.change is Change.RELOADED:
                    self._arrange()
                    _log.info("reloaded", extra={"what": what})
        for problem in problems:
            _log.error("not reloaded, the old stays in force", extra={"detail": problem})
        standing = tuple(one for _, watched in self._watched() for one in watched.problems)
        return Reloaded(not standing, len(self._by_id), standing)

    def _watched(self) -> tuple[tuple[str, Watched[Any]], ...]:
        return ("keys", self._keyring), ("P-Modes", self._agreements), ("routes", self._routes)

    def standing(self, now: datetime) -> tuple[str, ...]:
        """What an operator should see to, though the node goes on: a sentence each.

        Whoever asks for the node's health reads it, so nothing of the files is in it.
        """
        old = [
            f"the {what} on disk are not in force, the old ones are; the log says what is wrong"
            for what, watched in self._watched()
            if watched.problems
        ]
        signing = self.keyring.signing
        return (*old, *(stale(signing, "keys.signing", now) if signing else ()))

    def not_in_force(self) -> list[NotInForce]:
        """What is wrong with files that are therefore not used."""
        to_do = "correct it: the old stays in force until then"
        watched = self._watched()
        return [NotInForce(what, one, to_do) for what, files in watched for one in files.problems]

    def certificates(self) -> tuple[Certificate, ...]:
        """All that keys, trust and P-Modes name."""
        # Another thread may reload meanwhile: what was found belongs to what it was found in.
        source, listed = (self._matches, self.keyring), self._certificates
        if listed is None or listed[0] is not source[0] or listed[1] is not source[1]:
            listed = self._certificates = (*source, in_order(self._named_certificates()))
        return listed[2]

    def _named_certificates(self) -> Iterator[Certificate]:
        yield from own_certificates(self.keyring)
        for (name, number), match in self._matches.items():
            yield from pmode_certificates(
                name,
                self.partner_of[name],
                self.expectation.material(match),
                self._tls_pins(name, number),
                sends=self.serves(match),
            )

    def _tls_pins(self, name: str, leg: int) -> tuple[x509.Certificate, ...]:
        """The server certificates that a P-Mode names; sending says what is wrong with a file."""
        profile = self.tls(name, leg)
        pins: list[x509.Certificate] = []
        for file in profile.pins if profile is not None else ():
            with contextlib.suppress(OSError, KeyStoreError):
                pins += load_trusted(file.read_bytes(), self.keyring.password)
        return tuple(pins)

    def _partner(self, pmode: PMode) -> str:
        """The other party of a P-Mode; empty where the P-Mode leaves it open."""
        agreed = header(pmode, 1)
        sends = self.serves(Match(pmode, pmode.legs[0], 1))
        return str(agreed.to_party if sends else agreed.from_party)

    def lens(self, now: datetime, new_sink: NewSink) -> Lens:
        """With what incoming messages are looked at."""
        ring = self.keyring
        return Lens(
            at=now,
            trusted=ring.trust,
            keys=ring.opening,
            skew=self._config.clock_skew,
            receiving=True,
            revocation=self.revocation,
            expectation=self.expectation,
            new_sink=new_sink,
            limits=self._limits,
        )

    def match(self, pmode: str | None, leg: int) -> Match | None:
        """A leg of a P-Mode that is in force."""
        return self._matches.get((pmode or "", leg))

    def answer_terms(self, match: Match | None) -> Terms:
        """By what an answer about a message we sent is judged; nobody is trusted without one."""
        if match is None:
            return Terms(None, frozenset(), None, NOTHING)
        # Held first, as for `sending`.
        known, key = self._answers, (match.pmode.id, match.number)
        found = known.get(key)
        if found is None or found.match is not match:
            found = known[key] = self.expectation.answer_terms(match)
        return found

    def sending(self, pmode: str, leg: int = 1, *, late: bool = False) -> Sending:
        """What a message to be sent with this P-Mode needs; `Refused` says why it cannot be.

        `late`: it is a reply that goes by the alternate binding.
        """
        # Held first: what is found in the midst of a reload must not outlive it.
        known, key = self._sending, (pmode, leg, late)
        if key not in known:
            known[key] = self._find_sending(pmode, leg, late)
        return known[key]

    def sending_of(self, message: Message) -> Sending:
        """What a message that was taken over needs; `Refused` when its P-Mode is not there."""
        late = message.late and message.leg == 2
        return self.sending(message.pmode or "", message.leg, late=late)

    def _find_sending(self, name: str, leg: int, late: bool) -> Sending:
        match = self.match(name, leg)
        if match is None:
            known = ", ".join(sorted(self._by_id)[:10]) or "none"
            raise Refused(422, f"there is no P-Mode {name!r}; there are: {known}", code="EBMS:0010")
        pmode = match.pmode
        if pmode.mep == TWO_WAY and match.leg.ebxml is not None:
            raise Refused(422, f"{name} is two-way, and ebXML has one P-Mode for each direction")
        if not self.sends(match):
            sender = sides(pmode, leg - 1)[0]
            said = ", ".join(one.id for one in (sender.party if sender else None) or ())
            raise Refused(
                422, f"with {name} it is {said} that sends, not {self._config.party_name}"
            )
        if match.leg.ebxml is not None and match.leg.ebxml.relay:
            raise Refused(422, f"with {name} messages of others are passed on, and none are sent")
        return self._sending_by(Match(pmode, alternate_leg(pmode), 2) if late else match, late)

    def forwarding(self, pmode: str, leg: int) -> Sending:
        """What a message of others needs that is passed on with this P-Mode."""
        known, key = self._sending, ("forward", pmode, leg)
        if key not in known:
            match = self.match(pmode, leg)
            if match is None:
                raise Refused(422, f"there is no P-Mode {pmode!r} any more")
            known[key] = self._sending_by(match)
        return known[key]

    def _sending_by(self, match: Match, late: bool = False) -> Sending:
        pmode, leg = match.pmode, match.leg
        pulled = is_pulled(pmode, match.number - 1, late=late)
        answers = is_response(pmode, match.number - 1) and not late
        found = () if pulled or answers else addresses(leg)
        if pulled and not somebody_may_pull(pmode, leg):
            said = "add initiator.authorization, security.x509.sign or protocol.security.client"
            raise Refused(422, f"{pmode.id} says of nobody that it may pull: {said}")
        if not found and not pulled and not answers:
            said = "set Protocol.Address" + (" of its second leg" if match.number == 2 else "")
            raise Refused(422, f"{pmode.id} has no address: {said}")
        material = self.expectation.material(match)
        if material.signing is None:
            material = replace(material, signing=self.keyring.signing)
        spoken = speaks(leg)
        awaits = wants_receipt(leg) if leg.ebxml is None else _acknowledged(leg.ebxml)
        fetched = pulled or answers
        later = awaits and (leg.ebxml is not None or fetched or not answers_are_response(leg))
        reliable = wsrm_of(leg)
        if reliable is not None:
            awaits, later = True, reliable.pattern != "Response"
        wsr = wsr_of(leg)
        if wsr is not None:
            awaits, later = True, wsr.pattern == "Callback"
        if pulled and reliable is not None and not reliable.reliable_pull:
            said = "this node could make no sequence with who gets them in the end"
            raise Refused(
                422, f"{pmode.id} has messages pulled without reliable_pull, and {said}: set it"
            )
        policy = (offering_of(leg) or ONCE) if pulled else policy_of(leg)
        if answers:
            policy = answering_of(pmode)
        agreed = _sayable(header(pmode, match.number), spoken)
        if late:
            info = leg.business_info
            agreed = replace(agreed, mpc=(info.mpc if info else None) or agreed.mpc)
        return Sending(
            match,
            agreed,
            material,
            found,
            self.tls(pmode.id, match.number),
            policy,
            order_scope(leg),
            DIALECTS[spoken] if spoken else None,
            awaits,
            later,
            leg.ebxml is not None and leg.ebxml.message_order == GUARANTEED,
            leg.ebxml is not None and leg.ebxml.profile == "rm001" and is_reliable(leg.ebxml),
            channel_of(leg) if pulled else None,
            pulling_of(leg).capacity if pulled else None,
            answers,
            leg.ebxml is None and match.number == 1 and is_response(pmode, 1),
            not pulled and pmode.mep_binding is not None and pmode.mep_binding.pipelining,
            _bundling(match) if not answers else None,
            splitting_terms(leg) if leg.ebxml is None and not answers else None,
            restart_of(leg) is not None and not fetched,
            reliable,
            wsr,
        )

    def longest_memory(self) -> timedelta | None:
        """How long ids of received messages are needed, over all P-Modes; None: without end.

        As long as the windows for duplicates, as long as partners may send again, and as long as
        persistDuration says, although TimeToLive may end sending before. [OV004-1-08]
        [RM000-1.2.10-01] [MS098-10.2.9-01]
        """
        memory = timedelta(0)
        for one in self.expectation.pmodes.legs:
            retrying = retry_of(one.leg)
            ways = max(len(addresses(one.leg)), 1)
            within = timedelta(0) if retrying is None else resent_within(retrying, ways)
            if within is None:
                return None
            kept = retrying.persist_duration if retrying is not None else None
            memory = max(memory, within, window_of(one.leg), kept or memory)
        return memory

    def tls(self, name: str, leg: int = 1) -> TlsProfile | None:
        """How a P-Mode's partner is spoken to over TLS, where the P-Mode says.

        A leg that says nothing about it is as the first.
        """
        for number in (leg, 1):
            match = self.match(name, number)
            protocol = match.leg.protocol if match else None
            if protocol is not None and protocol.security is not None:
                break
        else:
            return None
        password = self.keyring.password
        return profile_from_pmode(
            protocol.security,
            self._agreements.current.folders[name],
            key_password=password.decode() if password else None,
        )

    def sends(self, match: Match) -> bool:
        """Whether this node's party is the sender of a leg."""
        sender, receiver = sides(match.pmode, match.number - 1)
        if sender is not None and sender.party is not None:
            return self._is_own(sender)
        if match.pmode.mep == TWO_WAY:
            return receiver is None or not self._is_own(receiver)
        return initiator_sends(match.pmode, 0)

    def serves(self, match: Match) -> bool:
        """Whether this node sends with a P-Mode, or passes messages on with it."""
        relays = match.leg.ebxml is not None and match.leg.ebxml.relay
        return relays or self.sends(match)

    def taking(self, match: Match) -> Taking:
        """How messages of a leg are taken and answered, remembered for each leg."""
        known = self._taking.get(id(match.leg))
        if known is None or known.leg is not match.leg:
            material, key = self.expectation.material(match), self.keyring.signing
            known = taking_of(match, self.receives(match), material, key)
            self._taking[id(match.leg)] = known
        return known

    def receives(self, match: Match) -> bool:
        """Whether this node's party is the receiver of a leg."""
        receiver = sides(match.pmode, match.number - 1)[1]
        return receiver is None or receiver.party is None or self._is_own(receiver)

    def _is_own(self, partner: Partner) -> bool:
        return any(PartyId(one.id, one.type) in self._own for one in partner.party or ())

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
            self.sends(Match(pmode, leg, 1)),
            pmode.id in self.alternates
            or any(one.pmode is pmode for one in self.pulled)
            or any(one.match.pmode is pmode for one in self.pulled_signals),
        )


def _common(sending: Sending) -> Message:
    agreed, ebms = sending.agreed, sending.dialect is None
    soap = soap_version(sending.match.leg) if ebms else SoapVersion.SOAP_11
    return Message(
        Side.SENDING,
        "",
        State.SUBMITTED,
        _NEVER,
        _NEVER,
        pmode=sending.match.pmode.id,
        leg=sending.match.number,
        from_party=str(agreed.from_party),
        to_party=str(agreed.to_party),
        from_role=agreed.from_party.role,
        to_role=agreed.to_party.role,
        service=str(agreed.service),
        action=agreed.action,
        mpc=agreed.mpc if ebms else None,
        protocol=sending.protocol,
        agreement=agreed.agreement_ref.value if agreed.agreement_ref else None,
        soap=soap.number,
        peer=sending.address or None,
        channel=sending.channel,
    )


def _acknowledged(ebxml: Ebxml) -> bool:
    """Whether messages of a leg that speaks ebXML are acknowledged. [MS098-10.3.1.3-01]"""
    asked = ebxml.ack_requested != NONE or ebxml.delivery_receipt != NONE
    return asked or is_reliable(ebxml)


def _bundling(match: Match) -> BundlingTerms | None:
    terms = bundling_terms(match.pmode, match.leg)
    return terms if terms.bundled and match.leg.ebxml is None else None


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
