"""The rules about bundling: of one P-Mode, and of those that name each other as primaries."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from postroad.agreement.breach import Breach, warning
from postroad.agreement.bundling import UNDEFINED, BundlingTerms, bundling_terms, incompatible
from postroad.agreement.parameters import Path
from postroad.agreement.places import Rule, is_pulled, numbered, sides
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.reliable import reliable_of
from postroad.agreement.reply_patterns import receipt_pattern
from postroad.wire.names import SYNC
from postroad.wire.unit_paths import unit_path

Found = tuple[int, Breach]
Bundled = tuple[PMode, int]
"""A leg of a P-Mode, by its index."""


def bundling_parameters_agree(pmode: PMode) -> Iterator[Breach]:
    """Bundling parameters that rule each other out, or have no effect.

    [P2-3.3-05] [P2-3.10.1-01]
    """
    for path, leg in numbered(pmode):
        bundling = leg.bundling
        if bundling is None:
            continue
        place = (*path, "bundling")
        terms = bundling_terms(pmode, leg)
        if terms.bundled and bundling.max_delay is not None and not bundling.max_delay:
            yield Breach(
                (*place, "max_delay"), f"it is 0 with policy {terms.policy}", "write a longer one"
            )
        if terms.policy == "always" and bundling.max_delay is None:
            yield Breach(
                (*place, "policy"),
                "a unit that finds no company would wait for ever",
                "add max_delay: PT5S, or how long a unit may wait",
            )
        why = incompatible(terms, terms) if pmode.id in terms.primaries else None
        if terms.bundled and why is not None:
            hint = "write ordering.policy: documentorder or timestamp"
            yield Breach((*place, "compatibility"), why, hint)
        if not terms.bundled and terms.primaries:
            yield warning(
                (*place, "compatibility"),
                "it has no effect with policy never",
                "write policy: optional or always",
            )


def ordering_parameters_agree(pmode: PMode) -> Iterator[Breach]:
    """A scope is for an order, and is that of reliable messaging.

    [P2-3.10.1-07] [P2-3.10.1-09] [P2-3.10.1-10]
    """
    for path, leg in numbered(pmode):
        ordering = leg.bundling.ordering if leg.bundling else None
        if ordering is None:
            continue
        place = (*path, "bundling", "ordering")
        correlation = leg.reliability.correlation if leg.reliability else None
        if ordering.scope is not None and ordering.policy == UNDEFINED:
            yield Breach(
                (*place, "scope"),
                "it is only for an ordering policy other than undefined",
                "write policy: documentorder or timestamp beside it",
            )
        scope = ordering.scope
        if scope is not None and correlation is not None and set(scope) != set(correlation):
            yield Breach(
                (*place, "scope"),
                "it differs from Reliability.Correlation",
                "make the two lists equal",
            )
        for expression in ordering.scope or ():
            yield from _no_path((*place, "scope"), expression)
        if ordering.policy != UNDEFINED and not bundling_terms(pmode, leg).in_order:
            yield warning(
                (*place, "policy"),
                "bundles are ordered only within themselves without InOrder delivery",
                "add reception_awareness.in_order, or reliability.in_order: true",
            )


def _no_path(place: Path, expression: str) -> Iterator[Breach]:
    try:
        unit_path(expression)
    except ValueError as error:
        hint = "write a path from eb3:UserMessage, as eb3:CollaborationInfo/eb3:ConversationId"
        yield Breach(place, str(error), hint)


def synchronous_requests_are_not_bundled(pmode: PMode) -> Iterator[Breach]:
    """Who waits for the response does not wait for company first. [P2-3.8-01]"""
    if pmode.binding != SYNC or not bundling_terms(pmode, pmode.legs[0]).bundled:
        return
    yield warning(
        ("legs", 0, "bundling", "policy"),
        "a request whose response comes on the same connection should not wait for others",
        "write policy: never",
    )


def who_must_be_bundled_is_no_exchange_on_one_connection(pmode: PMode) -> Iterator[Breach]:
    """What asks and is answered on one connection goes alone here."""
    for index, leg in enumerate(pmode.legs):
        if pmode.binding == SYNC and bundling_terms(pmode, leg).policy == "always":
            yield Breach(
                ("legs", index, "bundling", "policy"),
                "messages that are exchanged on one connection go alone",
                "write policy: optional",
            )


BUNDLING_RULES: Final[tuple[Rule, ...]] = (
    who_must_be_bundled_is_no_exchange_on_one_connection,
    bundling_parameters_agree,
    ordering_parameters_agree,
    synchronous_requests_are_not_bundled,
)


def bundled_pmodes_are_bundled(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """P-Modes in compatibility.pmodelist are there, and do not have the policy never.

    [P2-3.3-07]
    """
    by_id = {pmode.id: pmode for pmode in pmodes}
    for index, pmode in enumerate(pmodes):
        for path, leg in numbered(pmode):
            for name in sorted(bundling_terms(pmode, leg).primaries):
                primary = by_id.get(name)
                place = _listed(path)
                if primary is None:
                    message = f"P-Mode {name!r} is not among those read"
                    yield index, warning(place, message, "check its name, or read its file too")
                elif _bundled_leg(primary, 0) is None:
                    message = f"P-Mode {name!r} is never bundled"
                    hint = "write bundling.policy: optional or always there"
                    yield index, Breach(place, message, hint)


def primaries_suit_their_secondaries(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """What a primary decides for a unit must not break what the unit's own P-Mode promises.

    [P2-3.2.2-07] [P2-3.6.2-01] [P2-3.6.3-01] [P2-3.6.3-02] [P2-3.6.3-03] [P2-3.6.3-04]
    [P2-3.10.1-01]
    """
    by_id = {pmode.id: pmode for pmode in pmodes}
    for position, pmode in enumerate(pmodes):
        for index, (path, leg) in enumerate(numbered(pmode)):
            terms = bundling_terms(pmode, leg)
            for name in sorted(terms.primaries - {pmode.id}) if terms.bundled else ():
                found = _bundled_leg(by_id[name], index) if name in by_id else None
                if found is not None:
                    place = _listed(path)
                    for breach in _unsuited(place, terms, (pmode, index), (by_id[name], found)):
                        yield position, breach


def who_must_be_bundled_has_company(pmodes: Sequence[PMode]) -> Iterator[Found]:
    """With policy always every unit fails that nobody can go with. [P2-3.5-06]"""
    named = {name for terms in _all_terms(pmodes) for name in terms.primaries if terms.bundled}
    for position, pmode in enumerate(pmodes):
        for path, leg in numbered(pmode):
            terms = bundling_terms(pmode, leg)
            if terms.policy == "always" and not terms.primaries and pmode.id not in named:
                yield (
                    position,
                    warning(
                        (*path, "bundling", "policy"),
                        "no unit can go with those of this P-Mode, so each of them fails",
                        f"add compatibility.pmode_list: [{pmode.id}]",
                    ),
                )


BUNDLING_SET_RULES: Final = (
    bundled_pmodes_are_bundled,
    primaries_suit_their_secondaries,
    who_must_be_bundled_has_company,
)


def _all_terms(pmodes: Sequence[PMode]) -> Iterator[BundlingTerms]:
    for pmode in pmodes:
        for leg in pmode.legs:
            yield bundling_terms(pmode, leg)


def _listed(path: Path) -> Path:
    return (*path, "bundling", "compatibility", "pmode_list")


def _bundled_leg(pmode: PMode, index: int) -> int | None:
    """The leg of a primary that a unit of that leg goes with: the same, else the other one."""
    legs = [one for one, leg in enumerate(pmode.legs) if bundling_terms(pmode, leg).bundled]
    return index if index in legs else next(iter(legs), None)


def _unsuited(
    place: Path, terms: BundlingTerms, unit: Bundled, primary: Bundled
) -> Iterator[Breach]:
    own, lead = _leg(unit), _leg(primary)
    name = primary[0].id
    why = incompatible(terms, bundling_terms(primary[0], lead))
    if why is not None:
        yield Breach(place, why, "make the two alike, or remove it from the list")
    if _destination(unit) != _destination(primary):
        yield warning(
            place,
            f"units of {name!r} go elsewhere, so they never meet",
            "list P-Modes with the same parties and channel",
        )
    if own.security and _proof(own) and not _signs(lead):
        yield warning(
            place,
            f"signed receipts are agreed here, and bundles of {name!r} are not signed",
            "sign there too, or remove it from the list",
        )
    if _answered(own) and _answered(lead) and _receipt_settings(own) != _receipt_settings(lead):
        yield Breach(
            place,
            f"receipts are signed in another way than those of {name!r}, and come in one message",
            "make the signature's algorithms and SendReceipt.Certificate equal",
        )
    if _is_resent(own) and not _is_resent(lead):
        yield warning(
            place,
            f"messages are sent again here, and bundles of {name!r} are not",
            "add reception_awareness.retry there too",
        )


def _leg(bundled: Bundled) -> Leg:
    pmode, index = bundled
    return pmode.legs[index]


def _destination(bundled: Bundled) -> object:
    pmode, index = bundled
    receiver = sides(pmode, index)[1]
    info = pmode.legs[index].business_info
    ids = frozenset((one.id, one.type) for one in (receiver and receiver.party) or ())
    pulled = is_pulled(pmode, index)
    return ids, pulled, info.mpc if info and pulled else None


def _signs(leg: Leg) -> bool:
    x509 = leg.security.x509 if leg.security else None
    return bool(x509 and x509.sign and x509.sign.enabled)


def _answered(leg: Leg) -> bool:
    """Whether its receipts are signed, and come on the response."""
    receipt = leg.security.send_receipt if leg.security else None
    if receipt is None or not receipt.enabled or not _signs(leg):
        return False
    return receipt_pattern(leg) == "response"


def _proof(leg: Leg) -> bool:
    receipt = leg.security.send_receipt if leg.security else None
    return bool(receipt and receipt.enabled and receipt.non_repudiation)


def _receipt_settings(leg: Leg) -> Mapping[str, object]:
    assert leg.security is not None
    receipt = leg.security.send_receipt
    signature = leg.security.x509.signature if leg.security.x509 else None
    return {
        "algorithm": signature.algorithm if signature else None,
        "hash": signature.hash_function if signature else None,
        "key_reference": signature.key_reference if signature else None,
        "certificate": receipt.certificate if receipt else None,
    }


def _is_resent(leg: Leg) -> bool:
    aware = leg.reception_awareness
    retried = bool(aware and aware.enabled and aware.retry and aware.retry.enabled)
    return retried or reliable_of(leg) is not None
