"""What an evidence proves: the message's signature, and receipts for exactly that message.

The same check is made by the node that puts an evidence together, of what it keeps, and by
`postroad inspect`, offline, of what is in the zip.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from postroad.msh.ebxml_evidence import (
    ACKNOWLEDGING,
    Worth,
    is_by_receiver,
    judge_ebxml,
    speaks_ebxml,
    worth_of,
)
from postroad.msh.evidence import (
    ENVELOPE,
    RECEIPTS,
    Findings,
    Given,
    GivenSignal,
    findings_facts,
    judge,
    signed_part,
)
from postroad.msh.lens import Inspection, Lens
from postroad.msh.report import certificate_facts, problem_facts
from postroad.node.evidence.archive import MANIFEST, TRUSTED, Archive, ListedPart, Manifest, wrong
from postroad.security.certificates import UNREADABLE
from postroad.security.tokens import certificate_of
from postroad.wire.ebms3_writer import write_timestamp
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.mime import Part

_MOST_CERTIFICATES: Final = 200
_NO_RECEIPT: Final = "there is no receipt here: nothing shows that the message was received"
_NO_ACKNOWLEDGMENT: Final = (
    "there is no acknowledgment of the receiver here: nothing shows that it has the message"
)
_NO_NEXT: Final = "no acknowledgment is here that shows who took the message over"


@dataclass(slots=True)
class Evidence:
    """An evidence that somebody gave us, and what it is worth."""

    manifest: Manifest | None = None
    message: Inspection = field(default_factory=Inspection)
    findings: Findings | None = None
    problems: list[EbmsError] = field(default_factory=list)
    certificates: dict[str, tuple[x509.Certificate, ...]] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return self.findings is not None

    @property
    def holds(self) -> bool:
        whole = self.findings is not None and self.findings.holds
        return whole and not any(one.severity is Severity.FAILURE for one in self.problems)


def check_evidence(file: IO[bytes], lens: Lens) -> Evidence:
    """Verify an evidence offline; whatever is in the file, the answer is an `Evidence`.

    The file must stay open as long as the contents of parts are read.
    """
    evidence = Evidence()
    try:
        archive = Archive(file, lens.limits)
        evidence.manifest = archive.manifest()
    except EbmsError as error:
        evidence.problems.append(error)
        return evidence
    manifest = evidence.manifest
    evidence.problems += archive.differences(manifest)
    try:
        evidence.certificates = _certificates(archive)
        given = _given(archive, manifest, evidence.problems)
    except EbmsError as error:
        evidence.problems.append(error)
        return evidence
    named = [one for some in evidence.certificates.values() for one in some]
    try:
        lens = replace(lens, known=tuple(dict.fromkeys(named)))
        is_ebxml = speaks_ebxml(given.envelope, lens)
        evidence.findings = judge_ebxml(given, lens) if is_ebxml else judge(given, lens)
    except EbmsError as error:
        evidence.problems.append(error)
        return evidence
    evidence.message = evidence.findings.message
    evidence.problems += _contradictions(manifest, evidence.findings)
    return evidence


def _certificates(archive: Archive) -> dict[str, tuple[x509.Certificate, ...]]:
    found: dict[str, tuple[x509.Certificate, ...]] = {}
    for name in archive.names:
        if not name.endswith(".pem"):
            continue
        try:
            read = x509.load_pem_x509_certificates(archive.read(name))
            found[name] = tuple(certificate_of(one.public_bytes(Encoding.DER)) for one in read)
        except UNREADABLE:
            raise wrong("it holds no certificates that can be read", name) from None
        if sum(map(len, found.values())) > _MOST_CERTIFICATES:
            raise wrong(f"there are more than {_MOST_CERTIFICATES} certificates", name)
    return found


def _given(archive: Archive, manifest: Manifest, problems: list[EbmsError]) -> Given:
    """What is there; a part or signal that is missing was told of already."""
    parts = []
    for index, part in enumerate(manifest.parts, 1):
        if part.content_id is not None and archive.content(part.file) is not None:
            try:
                parts.append(_part(archive, index, part))
            except EbmsError as error:
                problems.append(error)
    signals = [
        GivenSignal(one.file, one.kind, archive.read(one.file), one.believed)
        for one in manifest.signals
        if archive.content(one.file) is not None
    ]
    name = manifest.message_id if manifest.bundled else None
    return Given(archive.read(ENVELOPE), tuple(parts), tuple(signals), name)


def _part(archive: Archive, index: int, listed: ListedPart) -> Part:
    content = archive.content(listed.file)
    assert content is not None
    return signed_part(
        index, listed.content_id, listed.media_type, content, archive.sha256(listed.file)
    )


def _contradictions(manifest: Manifest, findings: Findings) -> list[EbmsError]:
    """In what the evidence says other than the message, and what it should have and has not."""
    found: list[EbmsError] = []
    messaging = findings.message.messaging
    messages = messaging.user_messages if messaging else ()
    meant = [one for one in messages if one.message_info.message_id == manifest.message_id]
    for message in (meant if manifest.bundled else messages)[:1]:
        said = (manifest.message_id, manifest.from_party, manifest.to_party)
        there = (message.message_info.message_id, str(message.from_party), str(message.to_party))
        for name, one, other in zip(("message_id", "from", "to"), said, there, strict=True):
            if one != other:
                detail = f"{name} is {one!r}, in the message it is {other!r}"
                found.append(wrong(detail[:500], MANIFEST, "EBMS:0003"))
    told = _unacknowledged(manifest, findings)
    if told is not None:
        severity = Severity.FAILURE if manifest.state == "acknowledged" else Severity.WARNING
        found.append(EbmsError("EBMS:0301", told, severity=severity))
    return found


def _unacknowledged(manifest: Manifest, findings: Findings) -> str | None:
    """That nobody says who has the message; to who carried it the next station is enough."""
    believed = [one for one in findings.signals if one.given.believed]
    if findings.message.ebxml is None:
        return None if any(one.given.kind in RECEIPTS for one in believed) else _NO_RECEIPT
    carried = manifest.side == "forwarding"
    came = {one.file for one in manifest.signals if one.incoming}
    for one in believed:
        says = one.given.kind in ACKNOWLEDGING
        by_next = carried and one.given.file in came
        if says and (by_next or is_by_receiver(one, findings.message)):
            return None
    return _NO_NEXT if carried else _NO_ACKNOWLEDGMENT


_PROVING: Final = (Worth.MESSAGE, Worth.MESSAGE_ID, Worth.STATION)


def worth_facts(findings: Findings) -> dict[str, Any]:
    """Findings as plain data; of ebXML, receipts are acknowledgments, and each has its worth."""
    facts = findings_facts(findings)
    message = findings.message
    if message.ebxml is None:
        return facts
    told = {one["file"]: one for one in (*facts["receipts"], *facts["error_signals"])}
    rooms: dict[str, list[dict[str, Any]]] = {"receipts": [], "hops": [], "error_signals": []}
    for one in findings.signals:
        shown = told[one.given.file]
        if one.given.kind not in ACKNOWLEDGING:
            rooms["error_signals"].append(shown)
            continue
        worth = worth_of(one, message)
        proves = worth.name.lower() if worth in _PROVING else None
        room = "receipts" if is_by_receiver(one, message) else "hops"
        rooms[room].append({**shown, "proves": proves, "worth": worth.value})
    return facts | rooms


def evidence_facts(evidence: Evidence) -> dict[str, Any]:
    """An evidence as plain data: what `postroad inspect --json` prints."""
    findings = evidence.findings or Findings(evidence.message)
    manifest = evidence.manifest
    return {
        "kind": "evidence",
        **worth_facts(findings),
        "holds": evidence.holds,
        **_said(manifest),
        "files": [
            {"name": one.name, "size": one.size, "sha256": one.sha256}
            for one in (manifest.files if manifest else ())
        ],
        "certificates": [
            {"file": name, "trusted_by_maker": name == TRUSTED, **certificate_facts(one)}
            for name, some in evidence.certificates.items()
            for one in some
        ],
        "errors": [
            problem_facts(one) for one in (*evidence.problems, *_told(evidence.findings))
        ],
    }  # fmt: skip


def _told(findings: Findings | None) -> Iterable[EbmsError]:
    return findings.all_problems() if findings is not None else ()


def _said(manifest: Manifest | None) -> dict[str, Any]:
    """What the evidence says of itself; nobody signed that."""
    if manifest is None:
        names = ("message_id", "side", "node", "party", "state", "from", "to")
        return dict.fromkeys((*names, "created_at", "made_at"))
    return {
        "message_id": manifest.message_id,
        "side": manifest.side,
        "node": manifest.node,
        "party": manifest.party,
        "state": manifest.state,
        "from": manifest.from_party,
        "to": manifest.to_party,
        "created_at": _time(manifest.created_at),
        "made_at": _time(manifest.made_at),
    }


def _time(value: datetime) -> str:
    return write_timestamp(value if value.tzinfo else value.replace(tzinfo=UTC))
