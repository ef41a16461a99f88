"""P-Modes of Domibus: one file for all processes of a party, its parts referred to by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from postroad.agreement.importing_domibus_leg import business, delivery, errors, security
from postroad.agreement.importing_domibus_parts import Parts
from postroad.agreement.importing_source import (
    Element,
    Imported,
    Plain,
    Refusal,
    Source,
    file_safe,
    line_of,
    party_id,
    pruned,
    typed,
    unique,
)
from postroad.wire.names import ONE_WAY, PULL, PULL_AND_PUSH

NAMESPACE: Final = "http://domibus.eu/configuration"
WHAT: Final = "Domibus P-Modes"
_REASONS: Final = {
    "mpc": "no process uses it",
    "role": "no process uses it",
    "party": "no process of this party uses it",
    "legConfiguration": "no process of this party uses it",
}


def import_domibus(data: bytes, name: str, *, me: str | None = None) -> Imported:
    """A P-Mode for each process, leg and partner of a party: `me`, else the file's own."""
    source = Source(data, name)
    parts = Parts(source)
    mine = _own(source, parts, me)
    pmodes: dict[str, Plain] = {}
    processes = source.children(parts.business, "process")
    if not processes:
        raise Refusal(line_of(source.root), "there is no process in it")
    for element in processes:
        try:
            for identifier, pmode in _process(parts, element, mine):
                taken = unique(file_safe(identifier), pmodes)
                source.lines[taken] = line_of(element)
                pmodes[taken] = {"id": taken, **pmode}
        except Refusal as refusal:
            called = source.attribute(element, "name") or "without a name"
            source.refuse(refusal.line, f"process {called}: {refusal}")
            source.skip(element)
    parts.tick_groups()
    return source.result(WHAT, [*pmodes.values()], _REASONS)


@dataclass(frozen=True, slots=True, eq=False)
class Partner:
    """A party of the file."""

    name: str
    element: Element
    ids: tuple[tuple[str, str | None], ...]
    endpoint: str | None


def _partner(parts: Parts, element: Element) -> Partner:
    source = parts.source
    source.attribute(element, "allowChunking")
    ids = []
    for found in source.children(element, "identifier"):
        identifier = source.attribute(found, "partyId")
        if identifier:
            ids.append((identifier, parts.value(found, "partyIdType")))
    name = source.attribute(element, "name") or ""
    if not ids:
        raise Refusal(line_of(element), f"party {name!r} has no identifier")
    return Partner(name, element, tuple(ids), source.attribute(element, "endpoint"))


def _own(source: Source, parts: Parts, me: str | None) -> str:
    """The name of this node's party."""
    said = source.attribute(source.root, "party")
    wanted = me or said
    group = source.child(parts.business, "parties")
    listed = group.iterchildren("party") if group is not None else ()
    names = {(found.get("name") or "").strip(): found for found in listed}
    for name, found in names.items():
        ids = [str(item.get("partyId")).strip() for item in found.iterchildren("identifier")]
        if wanted is not None and wanted in (name, *ids):
            return name
    raise Refusal(
        line_of(source.root),
        f"{wanted or 'nobody'!r} is no party of this file; parties: {', '.join(names)}",
    )


def _process(parts: Parts, process: Element, mine: str) -> Iterator[tuple[str, Plain]]:
    source = parts.source
    name = source.attribute(process, "name") or "process"
    mep = parts.value(process, "mep")
    binding = parts.value(process, "binding")
    legs = [
        parts.get("legConfiguration", source.attribute(found, "name"), found)
        for found in _listed(source, process, "legs", "leg")
    ]
    if not legs:
        raise Refusal(line_of(process), "it has no legs")
    agreement = parts.referred(process, "agreement")
    common = {
        "agreement": _agreement(source, agreement) if agreement is not None else None,
        "mep": mep,
        "mep_binding": binding,
    }
    roles = (
        parts.value(process, "initiatorRole", "role"),
        parts.value(process, "responderRole", "role"),
    )
    one_way = mep == ONE_WAY
    if not one_way and len(legs) != 2:
        raise Refusal(line_of(process), f"a two-way process has two legs, not {len(legs)}")
    for pair in _pairs(parts, process, mine):
        initiator, responder = pair
        sides = [_side(found, role) for found, role in zip(pair, roles, strict=True)]
        whole = {**common, "initiator": sides[0], "responder": sides[1]}
        called = "-".join(found.name for found in pair if found)
        if one_way:
            for leg in legs:
                found = _leg(parts, leg, responder, binding)
                identifier = f"{name}-{source.attribute(leg, 'name')}-{called}"
                yield identifier, pruned({**whole, "legs": [found]})
        else:
            first = _leg(parts, legs[0], responder, binding)
            second = _leg(parts, legs[1], initiator, binding)
            yield f"{name}-{called}", pruned({**whole, "legs": [first, second]})


def _listed(source: Source, process: Element, group: str, name: str) -> list[Element]:
    found = source.child(process, group)
    return source.children(found, name) if found is not None else []


def _pairs(
    parts: Parts, process: Element, mine: str
) -> Iterator[tuple[Partner | None, Partner | None]]:
    """Initiator and responder, one of them this party; an open initiator is anybody."""
    source = parts.source
    sides: list[list[Partner | None]] = []
    for side in ("initiator", "responder"):
        names = [
            source.attribute(found, "name")
            for found in _listed(source, process, f"{side}Parties", f"{side}Party")
        ]
        sides.append([_partner(parts, parts.get("party", name, process)) for name in names])
    if not sides[1]:
        message = "it names no responder: partners are not looked up in registries"
        raise Refusal(line_of(process), message)
    sides[0] = sides[0] or [None]
    found = False
    for one, other in product(*sides):
        named = [item.name for item in (one, other) if item]
        if mine in named and len(set(named)) == len(named):
            found = True
            yield one, other
    if not found:
        raise Refusal(line_of(process), f"{mine} has no partner in it")


def _side(found: Partner | None, role: str | None) -> Plain:
    party = [party_id(*identifier) for identifier in found.ids] if found else None
    return {"party": party, "role": role}


def _agreement(source: Source, element: Element) -> str | Plain | None:
    value, type_ = source.attribute(element, "value"), source.attribute(element, "type")
    return typed(value, type_) if value else None


def _leg(parts: Parts, leg: Element, receiver: Partner | None, binding: str | None) -> Plain:
    """What a legConfiguration says, with the address that its message goes to."""
    pulled = binding in (PULL, PULL_AND_PUSH)
    address = receiver.endpoint if receiver else None
    if address is None and not pulled and receiver is not None:
        message = f"party {receiver.name!r} has no endpoint"
        raise Refusal(line_of(receiver.element), message)
    found: Plain = {
        "protocol": {"address": address},
        "business_info": business(parts, leg),
        "error_handling": errors(parts, leg),
        "security": security(parts, leg, pulled=pulled),
        **delivery(parts, leg),
    }
    return found
