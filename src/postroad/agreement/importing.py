"""Agreements of other products as P-Modes: ebXML CPAs, P-Modes of Holodeck B2B and of Domibus.

What comes out has been checked: a P-Mode that `postroad pmode check` would refuse is left out,
with the reason.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

import yaml

from postroad.agreement import importing_cpa, importing_domibus, importing_holodeck
from postroad.agreement.importing_source import (
    Imported,
    Kind,
    Plain,
    Refusal,
    Remark,
    Source,
    one_line,
)
from postroad.agreement.loading import LIST_KEY, load_pmodes
from postroad.wire.xml import local, namespace

_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def import_pmodes(
    data: bytes, name: str, *, me: str | None = None, now: datetime | None = None
) -> Imported:
    """All P-Modes that can be made of a file, whatever product it is for.

    `me` is an id, or the name, of this node's party. `now` tells whether a CPA is over.
    """
    what = "unknown"
    try:
        what, found = _import(data, name, me, now)
    except Refusal as refusal:
        remark = Remark(name, refusal.line, Kind.REFUSED, one_line(str(refusal)))
        return Imported(what, problems=(remark,))
    return _checked(found, name)


def _import(data: bytes, name: str, me: str | None, now: datetime | None) -> tuple[str, Imported]:
    root = Source(data, name).root
    match namespace(root), local(root):
        case importing_cpa.NAMESPACE, "CollaborationProtocolAgreement":
            found = importing_cpa.import_cpa(data, name, me=me, now=now)
        case importing_cpa.NAMESPACE, "CollaborationProtocolProfile":
            raise Refusal(1, "this is the profile of one party (CPP); a CPA of both is needed")
        case importing_holodeck.NAMESPACE, "PMode":
            found = importing_holodeck.import_holodeck(data, name, me=me)
        case importing_domibus.NAMESPACE, "configuration":
            found = importing_domibus.import_domibus(data, name, me=me)
        case other, called:
            message = f"{called} of the namespace {other or 'none'!r} is not known: neither an "
            known = "ebXML CPA 2.0, nor a P-Mode of Holodeck B2B or Domibus"
            raise Refusal(1, message + known)
    return found.what, found


def _checked(found: Imported, name: str) -> Imported:
    """Without the P-Modes that break a rule."""
    kept: list[Plain] = []
    broken: dict[str, list[str]] = {}
    for pmode in found.pmodes:
        errors = load_pmodes(_dumped(pmode), name).errors
        if not errors:
            kept.append(pmode)
        for error in errors:
            broken.setdefault(f"{error.message} ({error.hint})", []).append(str(pmode["id"]))
    refused = [
        Remark(
            name,
            found.lines.get(ids[0], 1),
            Kind.REFUSED,
            one_line(f"P-Mode {_named(ids)}: {message}"),
        )
        for message, ids in broken.items()
    ]
    used = "\n".join(map(_dumped, kept))
    return replace(
        found,
        pmodes=tuple(kept),
        certificates={file: pem for file, pem in found.certificates.items() if file in used},
        problems=tuple(sorted((*found.problems, *refused), key=lambda remark: remark.line)),
    )


def _named(ids: list[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


def imported_yaml(found: Imported, name: str) -> str:
    """The file of P-Modes, with what was not carried over as its first comment."""
    head = [f"Imported from {one_line(name)} ({found.what})."]
    remarks = sorted((*found.problems, *found.notes), key=lambda remark: remark.line)
    if remarks:
        head.append("What was not carried over, or not as it stood:")
    lines = [*head, *(f"line {remark.line}: {remark.text}" for remark in remarks)]
    return "".join(f"# {line}\n" for line in lines) + _dumped({LIST_KEY: [*found.pmodes]})


def _dumped(data: object) -> str:
    text: str = yaml.dump(data, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=100)
    return text
