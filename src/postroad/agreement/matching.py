"""Which P-Mode a user message belongs to.

A parameter that a P-Mode leaves unset is no constraint; every one that it sets must be equal in
the message. Of several that match, the most specific wins: the criteria are ordered, and one that
is set outweighs all behind it. Two P-Modes can therefore tie only when they set the same criteria
to the same values; then AgreementRef/@pmode decides. Partners name their P-Modes as they like, so
another @pmode keeps no message from a P-Mode, unless the P-Mode says so. A leg takes
messages of its own tongue only: ebMS 3.0, or a dialect of ebXML.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from postroad.agreement.channels import is_below
from postroad.agreement.ebxml import speaks
from postroad.agreement.places import initiator_sends, is_pulled, sides
from postroad.agreement.pmode import Leg, Partner, PMode
from postroad.wire.ebms3 import AgreementRef, Party, PartyId, Service, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.names import (
    AS4_ACTION,
    AS4_SERVICE,
    DEFAULT_MPC,
    INITIATOR_ROLE,
    RESPONDER_ROLE,
    TEST_ACTION,
    TEST_SERVICE,
)

LOCATION: Final = "eb:Messaging/eb:UserMessage"
_MOST_KNOWN: Final = 4096


class Match(Struct, frozen=True):
    """The P-Mode of a message, and which of its legs the message is."""

    pmode: PMode
    leg: Leg
    number: int
    """Counted from one, as in `PMode[1]`."""
    test: bool = False
    """The message is for the test service: it is processed, but not delivered."""
    against: bool = False
    """It is an ebXML signal that goes against the leg's direction: from its receiver."""


class Protected(NamedTuple):
    """How a message is protected."""

    signed: bool
    encrypted: bool


class Header(Struct, frozen=True):
    """What a leg says that a message's header holds; AS4's defaults where it says nothing.

    ebXML has no defaults: there a role, service or action that is unset is empty.
    """

    from_party: Party
    to_party: Party
    service: Service
    action: str
    mpc: str
    agreement_ref: AgreementRef | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The constraints of one leg: None is none."""

    pmode: PMode
    index: int
    criteria: tuple[Any, ...]
    """In the order of `CRITERIA`."""
    dialect: str | None = None
    """Of ebXML; None: ebMS 3.0."""

    @property
    def leg(self) -> Leg:
        return self.pmode.legs[self.index]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that a P-Mode can ask of a header."""

    name: str
    wanted: Callable[[PMode, int], Hashable]
    given: Callable[[UserMessage], Hashable]


def _agreement(pmode: PMode, _index: int) -> Hashable:
    return (pmode.agreement.value, pmode.agreement.type) if pmode.agreement else None


def _ids(partner: Partner | None) -> frozenset[PartyId] | None:
    if partner is None or partner.party is None:
        return None
    return frozenset(PartyId(item.id, item.type) for item in partner.party)


def _role(partner: Partner | None) -> str | None:
    return partner.role if partner else None


def _service(leg: Leg) -> Service | None:
    service = leg.business_info.service if leg.business_info else None
    return Service(service.value, service.type) if service else None


def _action(leg: Leg) -> str | None:
    return leg.business_info.action if leg.business_info else None


def _mpcs(pmode: PMode, index: int) -> frozenset[str] | None:
    info = pmode.legs[index].business_info
    if info is None or info.mpc is None:
        return None
    return frozenset(filter(None, (info.mpc, info.mpc_alternate)))


def _given_agreement(message: UserMessage) -> Hashable:
    ref = message.collaboration_info.agreement_ref
    return (ref.value, ref.type) if ref else None


CRITERIA: Final = (
    Criterion("AgreementRef", _agreement, _given_agreement),
    Criterion(
        "From PartyId",
        lambda pmode, index: _ids(sides(pmode, index)[0]),
        lambda message: frozenset(message.from_party.party_ids),
    ),
    Criterion(
        "To PartyId",
        lambda pmode, index: _ids(sides(pmode, index)[1]),
        lambda message: frozenset(message.to_party.party_ids),
    ),
    Criterion(
        "Service",
        lambda pmode, index: _service(pmode.legs[index]),
        lambda message: message.collaboration_info.service,
    ),
    Criterion(
        "Action",
        lambda pmode, index: _action(pmode.legs[index]),
        lambda message: message.collaboration_info.action,
    ),
    Criterion(
        "From Role",
        lambda pmode, index: _role(sides(pmode, index)[0]),
        lambda message: message.from_party.role,
    ),
    Criterion(
        "To Role",
        lambda pmode, index: _role(sides(pmode, index)[1]),
        lambda message: message.to_party.role,
    ),
    Criterion("mpc", _mpcs, lambda message: message.effective_mpc),
)
_WAIVED_IN_TESTS: Final = frozenset({"Service", "Action"})
_WAIVED_IN_SIGNALS: Final = frozenset({"Service", "Action", "From Role", "To Role", "mpc"})
"""What an ebXML signal, a message of the MSH's own service, has of its own."""


def wanted(pmode: PMode, index: int) -> Wanted:
    """What a leg asks of a message."""
    criteria = tuple(c.wanted(pmode, index) for c in CRITERIA)
    return Wanted(pmode, index, criteria, speaks(pmode.legs[index]))


def header(pmode: PMode, number: int) -> Header:
    """What a leg's messages carry, with the defaults of AS4 for what is unset (AS4 5.2.5)."""
    index = number - 1
    info = pmode.legs[index].business_info
    sender, receiver = sides(pmode, index)
    agreement = pmode.agreement
    named = pmode.public_id if pmode.includes_pmode else None
    if speaks(pmode.legs[index]) is not None:
        return Header(
            _party(sender, ""),
            _party(receiver, ""),
            _service(pmode.legs[index]) or Service(""),
            _action(pmode.legs[index]) or "",
            DEFAULT_MPC,
            AgreementRef(agreement.value) if agreement else None,
        )
    roles = (INITIATOR_ROLE, RESPONDER_ROLE)
    sender_role, receiver_role = roles if initiator_sends(pmode, index) else roles[::-1]
    return Header(
        _party(sender, sender_role),
        _party(receiver, receiver_role),
        _service(pmode.legs[index]) or Service(AS4_SERVICE),
        _action(pmode.legs[index]) or AS4_ACTION,
        (info.mpc if info else None) or DEFAULT_MPC,
        AgreementRef(agreement.value, agreement.type, named) if agreement else None,
    )


def _party(partner: Partner | None, default_role: str) -> Party:
    ids = tuple(PartyId(i.id, i.type) for i in (partner and partner.party) or ())
    return Party(ids, _role(partner) or default_role)


class PModes:
    """P-Modes ready for matching: found by service, action and parties, without a scan."""

    def __init__(self, pmodes: Iterable[PMode]) -> None:
        self.legs: list[Wanted] = [
            wanted(pmode, index) for pmode in pmodes for index in range(len(pmode.legs))
        ]
        self._by_business: dict[Hashable, list[Wanted]] = {}
        self._by_parties: dict[Hashable, list[Wanted]] = {}
        self._known: dict[Hashable, Match] = {}
        for leg in self.legs:
            _, sender, receiver, service, action, *_ = leg.criteria
            business = (service, action, sender, receiver)
            self._by_business.setdefault(business, []).append(leg)
            self._by_parties.setdefault((sender, receiver), []).append(leg)

    def candidates(
        self, message: UserMessage, *, ebxml: str | None = None, signal: bool = False
    ) -> Iterator[Wanted]:
        """The legs that can match: few, however many P-Modes and PartyIds there are."""
        info = message.collaboration_info
        senders = (frozenset(message.from_party.party_ids), None)
        receivers = (frozenset(message.to_party.party_ids), None)
        if signal or (ebxml is None and is_test(message)):
            for parties in product(senders, receivers):
                yield from self._by_parties.get(parties, ())
            return
        for key in product((info.service, None), (info.action, None), senders, receivers):
            yield from self._by_business.get(key, ())

    def match(
        self,
        message: UserMessage,
        protected: Protected | None = None,
        *,
        ebxml: str | None = None,
        signal: bool = False,
    ) -> Match:
        """The most specific P-Mode that the message fits; EBMS:0010 when there is none.

        Of several that a ping fits, the one counts whose messages are `protected` like it.
        `ebxml` is the dialect of an ebXML message, `signal` says that it is for the MSH itself:
        then only parties and CPAId count, and a leg of the other direction serves as well.
        """
        business = message.collaboration_info
        # All that criteria look at: a partner's messages are alike in it.
        key = (
            message.from_party,
            message.to_party,
            business.service,
            business.action,
            business.agreement_ref,
            message.mpc,
            message.message_info.ref_to_message_id is None,
            protected if business.action == TEST_ACTION else None,
            ebxml,
            signal,
        )
        known = self._known.get(key)
        if known is None:
            known = self._find(message, protected, ebxml, signal)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def _find(
        self, message: UserMessage, protected: Protected | None, ebxml: str | None, signal: bool
    ) -> Match:
        matching = self._matching(message, ebxml, signal)
        against = False
        if not matching and signal:
            back = structs.replace(
                message, from_party=message.to_party, to_party=message.from_party
            )
            matching = self._matching(back, ebxml, signal)
            against = True
        if not matching:
            raise EbmsError(
                "EBMS:0010",
                self._no_match(message, ebxml, signal),
                location=LOCATION,
                ref=message.message_info.message_id,
            )
        test = ebxml is None and is_test(message)
        ref = message.collaboration_info.agreement_ref
        named = ref.pmode if ref is not None else None
        best = max(
            matching,
            key=lambda leg: (
                test and _names_test(leg),
                test and protected == _protection(leg.leg),
                # A ping has no business of its own that could tell P-Modes apart.
                test and named == leg.pmode.public_id,
                _specificity(leg),
                named == leg.pmode.public_id,
                # Only what refers to a request can be a reply; then it is one.
                leg.index,
            ),
        )
        return Match(best.pmode, best.leg, best.index + 1, test, against)

    def _matching(self, message: UserMessage, ebxml: str | None, signal: bool) -> list[Wanted]:
        return [
            leg
            for leg in self.candidates(message, ebxml=ebxml, signal=signal)
            if not differences(leg, message, ebxml=ebxml, signal=signal)
        ]

    def _no_match(self, message: UserMessage, ebxml: str | None, signal: bool) -> str:
        if not self.legs:
            return "no P-Mode is loaded"
        alike = [leg for leg in self.legs if leg.dialect == ebxml]
        if not alike:
            return f"no P-Mode is for {_tongue(ebxml)}"
        nearest = min(alike, key=lambda leg: _distance(leg, message, ebxml, signal))
        said = "; ".join(
            f"{name} is {_told(given)}, not {_told(wanted)}"
            for name, wanted, given in differences(nearest, message, ebxml=ebxml, signal=signal)
        )
        place = f"{nearest.pmode.id!r}, leg {nearest.index + 1}"
        return f"no P-Mode matches; nearest is {place}, where {said}"


def match(
    pmodes: PModes | Iterable[PMode],
    message: UserMessage,
    *,
    ebxml: str | None = None,
    signal: bool = False,
) -> Match:
    """The P-Mode and leg of a user message; EBMS:0010 is raised when there is none."""
    ready = pmodes if isinstance(pmodes, PModes) else PModes(pmodes)
    return ready.match(message, ebxml=ebxml, signal=signal)


def is_test(message: UserMessage) -> bool:
    """Whether a message is for the test service, which all P-Modes of a partner take."""
    info = message.collaboration_info
    return info.service == Service(TEST_SERVICE) and info.action == TEST_ACTION


def differences(
    leg: Wanted, message: UserMessage, *, ebxml: str | None = None, signal: bool = False
) -> list[tuple[str, Any, Any]]:
    """What keeps a message from a leg: criterion, the wanted value and the given one."""
    found: list[tuple[str, Any, Any]] = []
    if leg.dialect != ebxml:
        found.append(("protocol", _tongue(leg.dialect), _tongue(ebxml)))
    ref = message.collaboration_info.agreement_ref
    named = ref.pmode if ref is not None else None
    if leg.pmode.matches_pmode and named is not None and named != leg.pmode.public_id:
        found.append(("AgreementRef/@pmode", leg.pmode.public_id, named))
    test = ebxml is None and is_test(message)
    waived = _WAIVED_IN_SIGNALS if signal else _WAIVED_IN_TESTS if test else frozenset()
    for criterion, value in zip(CRITERIA, leg.criteria, strict=True):
        if value is None or criterion.name in waived:
            continue
        given = criterion.given(message)
        equal = _is_in(leg, given, value) if criterion.name == "mpc" else given == value
        if not equal:
            found.append((criterion.name, value, given))
    if leg.index == 1 and message.message_info.ref_to_message_id is None:
        found.append(("RefToMessageId", "that of the request", None))
    return found


def _is_in(leg: Wanted, given: Hashable, channels: frozenset[str]) -> bool:
    """Whether a message is of a leg's channel; one pulled from there may name the parent.

    [P2-2.5.4-09]
    """
    if given in channels:
        return True
    pulled = is_pulled(leg.pmode, leg.index)
    return pulled and any(is_below(one, str(given)) for one in channels)


def _protection(leg: Leg) -> Protected:
    terms = leg.security.x509 if leg.security else None
    encryption = terms.encryption if terms else None
    return Protected(
        bool(terms and terms.sign and terms.sign.enabled),
        bool(encryption and encryption.encrypt and encryption.encrypt.enabled),
    )


def _names_test(leg: Wanted) -> bool:
    return _service(leg.leg) == Service(TEST_SERVICE)


def _specificity(leg: Wanted) -> tuple[bool, ...]:
    return tuple(value is not None for value in leg.criteria)


def _tongue(dialect: str | None) -> str:
    return "ebMS 3.0" if dialect is None else f"ebXML {dialect}"


def _distance(
    leg: Wanted, message: UserMessage, ebxml: str | None, signal: bool
) -> tuple[int, tuple[bool, ...]]:
    wrong = {name for name, _, _ in differences(leg, message, ebxml=ebxml, signal=signal)}
    return len(wrong), tuple(
        c.name in wrong or v is None for c, v in zip(CRITERIA, leg.criteria, strict=True)
    )


def _told(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, frozenset):
        return " + ".join(sorted(_told(item) for item in value)) or "absent"
    if isinstance(value, tuple):
        return _told("::".join(filter(None, reversed(value))))
    text = str(value)
    return repr(text if len(text) <= 200 else text[:200] + "…")
