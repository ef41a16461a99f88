"""When a partner is left alone: a circuit breaker for each address, and suspension by name.

A party may have several addresses, and one of them may be down while others answer. So each has a
breaker of its own, under a name that has the party and the address (`address_name`). That of the
party itself holds for all its addresses: somebody suspended it, or it asked to be left alone. That
of an address without a party (`receiver_name`) holds for everything that goes there: a Receiver of
draft 001 is suspended as a whole, whoever its messages are for in the end.

An address that could not be reached several times in a row is paused: nothing is attempted, so no
retry is used up and nobody else is held up. When the pause is over a single message probes; if it
gets through everything flows again, else the next pause is longer. A sign of life, such as a
message from the partner, ends a pause early, once in each. A partner who is suspended waits for an
administrator. Whatever waits meanwhile keeps its place.

Two rules for who edits this file: all that affects the machine stands here; what is not in the
table changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict
from msgspec.structs import replace as changed

_MOST_DOUBLINGS: Final = 20
_SEPARATOR: Final = "\x1f"
"""Between party and address: XML has no such character, so no name of a party has."""
_SOONEST: Final = timedelta(seconds=5)
"""After a failure, until a sign of life lets a message probe."""


class Gate(StrEnum):
    FLOWING = "flowing"
    PAUSED = "paused"
    PROBING = "probing"
    SUSPENDED = "suspended"


_SEVERITY: Final = {
    gate: number
    for number, gate in enumerate((Gate.FLOWING, Gate.PROBING, Gate.PAUSED, Gate.SUSPENDED))
}
"""Of several breakers, the one that tells most comes first."""


class Input(StrEnum):
    REACHED = "an attempt reached the partner"
    FAILED = "an attempt did not reach the partner"
    FAILED_TOO_OFTEN = "one attempt too many did not reach the partner"
    ASKED = "the partner asks to be left alone for a time"
    HEARD_FROM = "the partner shows a sign of life"
    PAUSE_OVER = "the pause is over"
    HALTED = "sending is to stop until somebody resumes"
    RESUMED = "an administrator resumes"


_G, _I = Gate, Input

TABLE: Final[Mapping[Gate, Mapping[Input, Gate]]] = {
    _G.FLOWING: {
        _I.REACHED: _G.FLOWING,
        _I.FAILED: _G.FLOWING,
        _I.FAILED_TOO_OFTEN: _G.PAUSED,
        _I.ASKED: _G.PAUSED,
        _I.HALTED: _G.SUSPENDED,
    },
    _G.PAUSED: {
        _I.REACHED: _G.FLOWING,
        _I.ASKED: _G.PAUSED,
        _I.HEARD_FROM: _G.PAUSED,
        _I.PAUSE_OVER: _G.PROBING,
        _I.HALTED: _G.SUSPENDED,
        _I.RESUMED: _G.FLOWING,
    },
    _G.PROBING: {
        _I.REACHED: _G.FLOWING,
        _I.FAILED: _G.PAUSED,
        _I.FAILED_TOO_OFTEN: _G.PAUSED,
        _I.ASKED: _G.PAUSED,
        _I.PAUSE_OVER: _G.PROBING,
        _I.HALTED: _G.SUSPENDED,
        _I.RESUMED: _G.FLOWING,
    },
    _G.SUSPENDED: {
        _I.RESUMED: _G.FLOWING,
    },
}


class Breaker(Struct, frozen=True):
    """How patient a node is with a partner."""

    failures: int = 5
    """In a row, until the partner is paused; 0: never."""
    pause: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(minutes=10)


class Partner(Struct, frozen=True):
    """A partner with whom not all is well; of all others nothing is kept."""

    name: str
    gate: Gate = Gate.FLOWING
    failures: int = 0
    """In a row."""
    pauses: int = 0
    """In a row."""
    until: datetime | None = None
    """Of a pause: when a message may probe. Of a probe: when another may, if nothing was heard."""
    since: datetime | None = None
    """When it was paused or suspended."""
    detail: str | None = None
    heard: bool = False
    """A sign of life made this pause shorter."""

    @property
    def is_well(self) -> bool:
        return self.gate is Gate.FLOWING and not self.failures


class Party(Partner, frozen=True):
    """How it stands with a party and its addresses, as an operator sees it."""

    addresses: tuple[Partner, ...] = ()
    """Those with which not all is well, by address; `name` is the address."""


def address_name(party: str, address: str) -> str:
    """Return the name of the breaker of one address of a party."""
    return f"{party}{_SEPARATOR}{address}"


def receiver_name(address: str) -> str:
    """Return the name of the breaker of an address, for all parties that are reached there."""
    return address_name("", address)


def party_of(name: str) -> str:
    """Return the party of a breaker's name."""
    return name.partition(_SEPARATOR)[0]


def address_of(name: str) -> str | None:
    """Return the address of a breaker's name; None where it is that of a party."""
    return name.partition(_SEPARATOR)[2] or None


def is_of(name: str, other: str) -> bool:
    """Whether a breaker is that of the other name, which is a breaker's, a party or an address."""
    return other in (name, party_of(name), address_of(name), _receiver(name))


def is_served(name: str, stopped: Collection[str]) -> bool:
    """Whether neither a breaker's name nor its party or address is among those that are stopped."""
    return not any(one in stopped for one in (name, party_of(name), _receiver(name)))


def _receiver(name: str) -> str:
    """Return the name of the breaker of the address that a name has; its own where it has none."""
    address = address_of(name)
    return name if address is None else receiver_name(address)


def by_party(breakers: Iterable[Partner]) -> list[Party]:
    """Return the parties with whom not all is well, each with its addresses.

    A party is as it is itself, or else as the address that is worst off. An address that is stopped
    for all parties goes by the address.
    """
    found: dict[str, list[Partner]] = {}
    for one in breakers:
        found.setdefault(party_of(one.name) or address_of(one.name) or "", []).append(one)
    return [_party(name, found[name]) for name in sorted(found)]


def _party(name: str, breakers: Sequence[Partner]) -> Party:
    worst = max(breakers, key=lambda one: (_SEVERITY[one.gate], one.name == name, one.failures))
    addresses = [
        changed(one, name=address)
        for one in breakers
        if party_of(one.name) and (address := address_of(one.name)) is not None
    ]
    told = asdict(worst) | {"name": name}
    return Party(**told, addresses=tuple(sorted(addresses, key=lambda one: one.name)))


def failed(partner: Partner, breaker: Breaker, now: datetime, why: str) -> Partner:
    """An attempt did not reach the partner."""
    failures = partner.failures + 1
    too_often = 0 < breaker.failures <= failures
    gate = TABLE[partner.gate].get(Input.FAILED_TOO_OFTEN if too_often else Input.FAILED)
    if gate is None:
        return partner
    if gate is not Gate.PAUSED:
        return changed(partner, gate=gate, failures=failures, detail=why)
    return changed(
        partner,
        gate=gate,
        failures=failures,
        pauses=partner.pauses + 1,
        until=now + _pause(breaker, partner.pauses),
        since=partner.since or now,
        detail=why,
        heard=False,
    )


def _pause(breaker: Breaker, before: int) -> timedelta:
    """How long a pause is after so many."""
    doubled: int = 2 ** min(max(before, 0), _MOST_DOUBLINGS)
    return min(breaker.pause * doubled, breaker.longest)


def heard_from(partner: Partner, breaker: Breaker, now: datetime) -> Partner:
    """The partner shows a sign of life: a message may probe now, or some seconds after the last.

    Once in each pause: a partner may well send and not be reached. One that asked to be left alone
    is left alone.
    """
    gate = TABLE[partner.gate].get(Input.HEARD_FROM)
    if gate is None or partner.until is None or partner.heard or not partner.failures:
        return partner
    began = partner.until - _pause(breaker, partner.pauses - 1)
    soonest = min(partner.until, max(now, began + _SOONEST))
    return changed(partner, gate=gate, until=soonest, heard=True)


def reached(partner: Partner) -> Partner:
    """An attempt reached the partner: all is well, unless somebody suspended it."""
    gate = TABLE[partner.gate].get(Input.REACHED)
    return partner if gate is None else Partner(partner.name, gate)


def asked(partner: Partner, now: datetime, wait: timedelta, why: str) -> Partner:
    """The partner is there, and wants nothing for a time. [RM001-2.6.6-01]"""
    gate = TABLE[partner.gate].get(Input.ASKED)
    if gate is None:
        return partner
    until = now + wait if partner.until is None else max(partner.until, now + wait)
    return changed(partner, gate=gate, until=until, since=partner.since or now, detail=why)


def probed(partner: Partner, now: datetime, patience: timedelta) -> Partner | None:
    """The partner while a message probes; None when none may now."""
    gate = TABLE[partner.gate].get(Input.PAUSE_OVER)
    if gate is None or partner.until is None or now < partner.until:
        return None
    return changed(partner, gate=gate, until=now + patience)


def halted(partner: Partner, now: datetime, why: str) -> Partner:
    """Nothing is sent until somebody resumes. [RM001-2.6.8-01]"""
    gate = TABLE[partner.gate].get(Input.HALTED)
    if gate is None:
        return partner
    return changed(partner, gate=gate, until=None, since=now, detail=why)


def resumed(partner: Partner) -> Partner | None:
    """All is well again; None when it was. [RM001-2.6.8-03]"""
    gate = TABLE[partner.gate].get(Input.RESUMED)
    return None if gate is None else Partner(partner.name, gate)
