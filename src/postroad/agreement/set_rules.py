"""The rules that the P-Modes of one node keep together, across all its files."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from postroad.agreement.breach import Breach, warning
from postroad.agreement.bundling_rules import BUNDLING_SET_RULES
from postroad.agreement.matching import wanted
from postroad.agreement.parameters import Setting, settings
from postroad.agreement.places import addressings
from postroad.agreement.pmode import INIT, RESP, PMode

Found = tuple[int, Breach]
"""The position of the P-Mode in the set, and what is wrong with it."""
SetRule = Callable[[Sequence[PMode]], Iterator[Found]]

COMMON: Final = (
    "PMode.MEP",
    "PMode.Initiator",
    "PMode.Responder",
    "PMode[1].Protocol.SOAPVersion",
    "PMode[1].Protocol.AddActorOrRoleAttribute",
    "PMode[1].BusinessInfo",
    "PMode[1].Reliability",
    "PMode[1].Security",
    "PMode[2].Protocol.SOAPVersion",
    "PMode[2].Protocol.AddActorOrRoleAttribute",
    "PMode[2].BusinessInfo",
    "PMode[2].Reliability",
    "PMode[2].Security",
)
"""What the two units of a multi-hop P-Mode share, with all that is below."""
OWN: Final = (
    "Reliability.AtLeastOnce.ReplyPattern",
    "Reliability.AtLeastOnce.Contract.AcksTo",
    "Security.SendReceipt.ReplyPattern",
    "Security.SendReceipt.ReplyTo",
    "Security.X509.Signature.Key",
    "Security.X509.Encryption.Key",
)
"""What may differ all the same: how answers come back, and the files of one's own keys."""


def ids_are_unique(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """PMode.ID names one P-Mode (Core D.3.1)."""
    seen: set[str] = set()
    for index, pmode in enumerate(pmodes):
        if pmode.id in seen:
            breach = Breach(("id",), f"another P-Mode has the id {pmode.id!r} too", "rename one")
            yield index, breach
        seen.add(pmode.id)


def units_are_aligned(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """The `.init` and `.resp` units of one multi-hop P-Mode agree on what they share.

    [P2-2.7.2-04] [P2-2.7.2-06] [P2-2.7.2-07] [P2-2.7.2-08] [P2-2.7.2-09] [P2-2.7.2-10]
    [P2-2.7.2-11] [P2-2.7.2-12] [P2-6.4.2-01]
    """
    inits = {pmode.public_id: pmode for pmode in pmodes if pmode.id.endswith(INIT)}
    for index, resp in enumerate(pmodes):
        init = inits.get(resp.public_id)
        if init is None or not resp.id.endswith(RESP):
            continue
        here, there = _shared(resp), _shared(init)
        for name in dict.fromkeys((*here, *there)):
            one, other = here.get(name), there.get(name)
            if one is None or other is None or one.value != other.value:
                yield index, _unlike(name, one, other, init.id)


def _shared(pmode: PMode) -> dict[str, Setting]:
    return {
        setting.name: setting
        for setting in settings(pmode, reveal_passwords=True)
        if _below(setting.name, COMMON) and not _below(setting.name.partition("].")[2], OWN)
    }


def _below(name: str, tops: Sequence[str]) -> bool:
    return any(name == top or name.startswith((f"{top}.", f"{top}[")) for top in tops)


def _unlike(name: str, one: Setting | None, other: Setting | None, other_id: str) -> Breach:
    secret = name.endswith("password")
    there = "unset" if other is None else "another" if secret else repr(other.value)
    here = "unset" if one is None else "set" if secret else repr(one.value)
    path = one.path if one else other.path if other else ()
    return Breach(
        path,
        f"it is {here} here and {there} in {other_id!r}",
        "both units of a multi-hop P-Mode share it",
    )


def one_destination_is_routed_one_way(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """P-Modes with one destination route to it by the same BusinessInfo (Part 2, 2.7.1.2).

    A warning: only where routing knows one instance of it do they have to be the same.
    """
    first: dict[object, tuple[PMode, object]] = {}
    for index, pmode in enumerate(pmodes):
        for path, addressing in addressings(pmode):
            side = path[0]
            partner = pmode.initiator if side == "initiator" else pmode.responder
            if len(path) != 2 or partner is None or partner.party is None or not addressing.epr:
                continue
            routed = addressing.epr.routing_input.business_info
            key = frozenset((item.id, item.type) for item in partner.party)
            other, business = first.setdefault(key, (pmode, routed))
            if business != routed:
                place = (*path, "epr", "routing_input", "business_info")
                message = f"{other.id!r} routes to the same party by other values"
                yield index, warning(place, message, "make them equal, unless routing knows both")


def matches_are_unambiguous(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """No two P-Modes ask exactly the same of a message: matching could not tell them apart.

    Where the messages of both name their P-Mode, that tells them apart.
    """
    first: dict[object, PMode] = {}
    unnamed: dict[object, PMode] = {}
    for index, pmode in enumerate(pmodes):
        for position in range(len(pmode.legs)):
            asked = wanted(pmode, position)
            key = (position, asked.criteria, asked.dialect)
            others = unnamed if pmode.includes_pmode else first
            other = others.get(key, pmode)
            if other.public_id != pmode.public_id:
                message = f"a message that matches {other.id!r} matches this P-Mode just as well"
                hint = (
                    "set something that tells them apart, such as action or agreement, "
                    "or agreement.include_pmode: true in both"
                )
                yield index, warning(("legs", position), message, hint)
            first.setdefault(key, pmode)
            if not pmode.includes_pmode:
                unnamed.setdefault(key, pmode)


SET_RULES: Final[tuple[SetRule, ...]] = (
    ids_are_unique,
    units_are_aligned,
    *BUNDLING_SET_RULES,
    one_destination_is_routed_one_way,
    matches_are_unambiguous,
)
