"""What the applications of a seed want to send: drawn before anything happens."""

import hashlib
import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tests.sim.agreements import KINDS, pmode_id
from tests.sim.asked_agreements import ASKED_KINDS
from tests.sim.bundled_agreements import BUNDLED_KINDS, SEQUENCED_KINDS
from tests.sim.ebxml_agreements import EBXML_KINDS
from tests.sim.faults import dice
from tests.sim.kinds import PARTIES, SIGNERS, Kind
from tests.sim.pulled_agreements import PULLED_KINDS

SAFETY: Final = 150.0
"""Seconds in which messages are submitted and anything may fail."""
_SPEAK_EBXML: Final = 1 / 3
"""The share of seeds in which ebXML is spoken."""
_PULL: Final = 1 / 4
"""The share of the others in which messages are pulled."""
_ASK: Final = 1 / 4
"""The share of the rest in which messages are requests, and have replies."""
_BUNDLE: Final = 1 / 5
"""The share of what is left in which messages are bundled."""
_SEQUENCED: Final = 0.3
"""The share of these in which bundles go in sequences."""


@dataclass(frozen=True)
class Planned:
    """A message that an application wants to send."""

    number: int
    at: float
    sender: str
    receiver: str
    kind: Kind
    message_id: str
    conversation: str
    payload: bytes
    answers: "Planned | None" = None
    """The request whose reply it is: it is sent once that is there."""

    @property
    def pmode(self) -> str:
        if self.answers is not None:
            return self.answers.pmode
        return pmode_id(self.sender, self.receiver, self.kind)

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.payload).hexdigest()}"


def make_plan(seed: int, most: int | None = None, only: Collection[str] = ()) -> list[Planned]:
    """The messages of a seed; `most` and `only` make a smaller plan of it."""
    draw = dice(seed, "plan")
    kinds = _tongues(seed, _kinds(draw))
    parties = draw.choice((PARTIES, PARTIES, ("buyer", "seller")))
    count = draw.choice((4, 12, 25, 45))
    burst = draw.random() < 0.3
    plan = []
    for number in range(count):
        plan.append(_planned(draw, number, kinds, parties, burst))
    if draw.random() < 0.3:
        plan += _clashing(draw, plan)
    plan += _crowd(plan)
    if only:
        plan = [one for one in plan if one.message_id in only]
    plan = plan[:most]
    return plan + [reply for one in plan for reply in _replies(one)]


def _crowd(plan: list[Planned]) -> list[Planned]:
    """Where a channel holds few messages, more at once than it holds."""
    first = next((one for one in plan if one.kind.capacity is not None), None)
    if first is None or first.kind.capacity is None:
        return []
    return [
        replace(
            first,
            number=number,
            message_id=f"m{number}@{first.sender}",
            payload=f"{number} in a crowd".encode(),
        )
        for number in range(len(plan), len(plan) + first.kind.capacity)
    ]


def _replies(request: Planned) -> list[Planned]:
    """What is said to a request; to some of them somebody wants to say something else later."""
    if request.kind.reply is None:
        return []
    return [
        Planned(
            request.number,
            request.at,
            request.receiver,
            request.sender,
            request.kind.reply,
            f"r{number}-{request.message_id}-to-{request.sender}",
            request.conversation,
            f"reply {number} to ".encode() + request.payload,
            request,
        )
        for number in range(2 if request.number % 3 == 0 else 1)
    ]


def _kinds(draw: random.Random) -> list[Kind]:
    """A few kinds for a seed. Signatures cost a hundred times as much, so they are rare."""
    cheap = [kind for kind in KINDS if not kind.signed]
    kinds = draw.sample(cheap, draw.randint(1, 6))
    if draw.random() < 0.06:
        kinds += [kind for kind in KINDS if kind.signed]
    return kinds


def speaks_ebxml(seed: int) -> bool:
    """Whether ebXML is spoken in the world of a seed."""
    return dice(seed, "tongue").random() < _SPEAK_EBXML


def pulls(seed: int) -> bool:
    """Whether messages are pulled in the world of a seed."""
    return not speaks_ebxml(seed) and dice(seed, "pull").random() < _PULL


def asks(seed: int) -> bool:
    """Whether messages of a seed are requests that have replies."""
    others = speaks_ebxml(seed) or pulls(seed)
    return not others and dice(seed, "ask").random() < _ASK


def _asked(seed: int, kinds: list[Kind]) -> list[Kind]:
    """Kinds that have replies, alone or beside others that have none."""
    draw = dice(seed, "asked")
    cheap = [kind for kind in ASKED_KINDS if not kind.signed]
    found = draw.sample(cheap, draw.randint(1, 4))
    if draw.random() < 0.06:
        found += [kind for kind in ASKED_KINDS if kind.signed]
    return found + kinds[:2] if draw.random() < 0.3 else found


def bundles(seed: int) -> bool:
    """Whether messages are bundled in the world of a seed."""
    alone = speaks_ebxml(seed) or pulls(seed) or asks(seed)
    return not alone and dice(seed, "bundle").random() < _BUNDLE


def _bundled(seed: int, kinds: list[Kind]) -> list[Kind]:
    """Kinds that are bundled, a few so that they meet; alone or beside others that are not."""
    draw = dice(seed, "bundled")
    cheap = [kind for kind in BUNDLED_KINDS if not kind.signed]
    found = draw.sample(cheap, draw.randint(1, 2))
    if draw.random() < 0.06:
        found += [kind for kind in BUNDLED_KINDS if kind.signed]
    sequenced = dice(seed, "bundled in sequences")
    if sequenced.random() < _SEQUENCED:
        found = [sequenced.choice(SEQUENCED_KINDS)]
    return found + kinds[:1] if draw.random() < 0.3 else found


def _pulled(seed: int, kinds: list[Kind]) -> list[Kind]:
    """Kinds that are pulled, alone or beside others that are pushed."""
    draw = dice(seed, "pulled")
    cheap = [kind for kind in PULLED_KINDS if not kind.signed]
    found = draw.sample(cheap, draw.randint(1, 4))
    if draw.random() < 0.06:
        found += [kind for kind in PULLED_KINDS if kind.signed]
    return found + kinds[:2] if draw.random() < 0.3 else found


def _tongues(seed: int, kinds: list[Kind]) -> list[Kind]:
    """In some seeds those that speak ebXML, are pulled or answered, alone or beside the others."""
    if pulls(seed):
        return _pulled(seed, kinds)
    if asks(seed):
        return _asked(seed, kinds)
    if bundles(seed):
        return _bundled(seed, kinds)
    if not speaks_ebxml(seed):
        return kinds
    draw = dice(seed, "ebxml")
    cheap = [kind for kind in EBXML_KINDS if not kind.signed]
    found = draw.sample(cheap, draw.randint(1, 6))
    if draw.random() < 0.06:
        found += [kind for kind in EBXML_KINDS if kind.signed]
    return found + kinds[:2] if draw.random() < 0.3 else found


def _planned(
    draw: random.Random,
    number: int,
    kinds: list[Kind],
    parties: Collection[str],
    burst: bool,
) -> Planned:
    kind = draw.choice(kinds)
    among = sorted(SIGNERS) if kind.only_two else list(parties)
    sender, receiver = draw.sample(among, 2)
    at = draw.uniform(0, 1) if burst else draw.uniform(0, SAFETY)
    return Planned(
        number,
        at,
        sender,
        receiver,
        kind,
        f"m{number}@{sender}",
        _conversation(draw.randrange(3), sender, receiver, kind),
        f"{number} ".encode() + draw.randbytes(draw.choice((0, 20, 300))),
    )


def _conversation(number: int, sender: str, receiver: str, kind: Kind) -> str:
    """One of ebXML is between two parties."""
    return f"c{number}@{sender}{'' if kind.ebxml is None else f'.{receiver}'}"


def _clashing(draw: random.Random, plan: list[Planned]) -> list[Planned]:
    """Messages under ids that others use too, for the same receiver."""
    first = draw.choice(plan)
    others = [one for one in PARTIES if one not in (first.sender, first.receiver)]
    if first.kind.only_two or not others:
        return []
    again = Planned(
        len(plan),
        draw.uniform(0, SAFETY),
        others[0],
        first.receiver,
        first.kind,
        first.message_id,
        first.conversation,
        b"something else",
    )
    return [again]
