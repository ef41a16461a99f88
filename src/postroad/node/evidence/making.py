"""Evidence: what proves that a message was sent and received, in one zip, written as it is read.

Anybody can verify it offline, with `postroad inspect evidence.zip --trust authority.pem` or, since
all bytes in it are as they were signed, with other tools.
"""

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.capture import read_capture
from postroad.msh.ebxml_evidence import judge_ebxml
from postroad.msh.evidence import (
    ENVELOPE,
    Findings,
    Given,
    GivenSignal,
    judge,
    signed_part,
)
from postroad.msh.expectation import Material, Terms
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection, Lens
from postroad.node.base.context import Context
from postroad.node.evidence.archive import (
    EVENTS,
    FORMAT,
    MANIFEST,
    MESSAGE_SIGNER,
    README,
    TRUSTED,
    VERDICT,
    ListedFile,
    ListedPart,
    ListedSignal,
    Manifest,
    part_name,
    signal_name,
    signer_name,
)
from postroad.node.evidence.check import worth_facts
from postroad.node.service import Refused
from postroad.store.records import Message, Recorded, Side, Signal, State
from postroad.wire.content import CHUNK, BytesContent, Content, read_all

_OLDEST_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Before that the zip format has no time."""
_FILE_MODE: Final = 0o100644 << 16
_README: Final = """\
Evidence about the message {message_id}
made by the node {node} at {made_at}.

Verify it with Postroad, without a network:

    postroad inspect evidence.zip --trust CERTIFICATES

where CERTIFICATES are those that YOU trust: of the authorities or partners. Those in this
zip only tell who signed; that somebody put them there is no reason to believe them.

{files}events.json             what the node's journal says about the message
verdict.json            what the node found when it made this
evidence.json           what this is, and the SHA-256 of every other file
"""
_FILES: Final = """\
message/envelope.xml    the SOAP envelope, byte for byte as it was sent
message/parts/N         the payloads as they were signed: decrypted, still compressed
signals/N-receipt.xml   receipts, byte for byte as they came or went
signals/N-acknowledgment.xml
                        acknowledgments of WS-ReliableMessaging and WS-Reliability, likewise
signals/N-error.xml     errors, likewise
certificates/           message.pem and N-receipt.pem: who signed, with the chain that came along;
                        trusted.pem: whom the node trusted for it
"""
_EBXML_FILES: Final = """\
message/envelope.xml    the SOAP envelope, byte for byte as it was signed; a sender keeps it without
                        what is said to the next station alone (TraceHeaderList, Via)
message/parts/N         the payloads
signals/N-KIND.xml      what was said about it, byte for byte: acknowledgment; hop, that of the next
                        station; response, the application's answer, its envelope alone; error
certificates/           message.pem and N-KIND.pem: who signed, with the chain that came along;
                        trusted.pem: whom the node trusted for it
"""


def evidence_zip(
    context: Context, message: Message, signals: Sequence[Signal], events: Sequence[Recorded]
) -> Iterator[bytes]:
    """The zip in pieces; `Refused` when there is nothing yet that could prove anything.

    Parts are read from the store while the zip is, so that one of any size needs no memory.
    """
    if message.unproven and message.state is State.REJECTED:
        kept = f"the first {message.beginning} of {message.envelope_bytes} bytes of its envelope"
        raise Refused(
            409,
            f"{message.message_id} was rejected and its sender proved nothing, so only {kept} "
            "were kept, which prove nothing. Read them with GET /api/v1/messages/ID/beginning.",
        )
    if message.envelope is None and message.side is Side.FORWARDING:
        raise Refused(
            409,
            f"{message.message_id} was carried for others and is {message.state.value}: its "
            "contents are not kept. Set quotas.keep_passed in routes.yaml to keep those of later "
            "messages.",
        )
    if message.envelope is None:
        raise Refused(
            409, f"{message.wire_id} is {message.state.value}: it was never packaged, "
            "so there is no evidence of it",
        )  # fmt: skip
    return _Exhibit(context, message, signals, events, context.clock()).pieces()


@dataclass(frozen=True, slots=True)
class _Exhibit:
    """Everything that goes into the zip."""

    context: Context
    message: Message
    signals: Sequence[Signal]
    events: Sequence[Recorded]
    now: datetime

    def pieces(self) -> Iterator[bytes]:
        given = self._given()
        findings = self._findings(given)
        zipping = _Zipping(self.now)
        yield from zipping.add(README, BytesContent(self._readme()))
        yield from zipping.add(ENVELOPE, BytesContent(given.envelope))
        for number, part in enumerate(self.message.parts, 1):
            yield from zipping.add(part_name(number), self.context.store.content(part.stored))
        for signal in given.signals:
            yield from zipping.add(signal.file, BytesContent(signal.envelope))
        for name, certificates in _certificates(findings).items():
            yield from zipping.add(name, BytesContent(_pem(certificates)))
        yield from zipping.add(EVENTS, BytesContent(_json([_row(one) for one in self.events])))
        verdict = {"made_at": self.now, **worth_facts(findings)}
        yield from zipping.add(VERDICT, BytesContent(_json(verdict)))
        manifest = _json(self._manifest(given, zipping.listed))
        yield from zipping.add(MANIFEST, BytesContent(manifest))
        yield from zipping.end()

    def _given(self) -> Given:
        store = self.context.store
        assert self.message.envelope is not None
        envelope = read_all(store.content(self.message.envelope), self.message.envelope.size)
        parts = []
        for index, part in enumerate(self.message.parts, 1):
            if part.content_id is not None:
                content = store.content(part.stored)
                digest = _digest(content)
                parts.append(signed_part(index, part.content_id, part.wire_type, content, digest))
        signals = [
            GivenSignal(signal_name(number, one.kind), one.kind, self._said(one), one.valid)
            for number, one in enumerate(self.signals, 1)
        ]
        name = self.message.wire_id if self.message.bundle is not None else None
        return Given(envelope, tuple(parts), tuple(signals), name)

    def _said(self, signal: Signal) -> bytes:
        """The envelope of a signal; an application's answer was kept with its payloads."""
        content = self.context.store.content(signal.envelope)
        if signal.kind != "response":
            return read_all(content, content.size)
        limits = self.context.limits
        return read_capture(content.chunks(), new_sink=_Forgetting, limits=limits).envelope

    def _findings(self, given: Given) -> Findings:
        """What this node holds of it now, by the agreement and the trust that are in force."""
        in_force = self.context.in_force
        match = in_force.match(self.message.pmode, self.message.leg)
        lens = Lens(
            at=self.now,
            trusted=in_force.keyring.trust,
            new_sink=_Forgetting,
            limits=self.context.limits,
        )
        if self._is_ebxml:
            return self._ebxml_findings(given, lens, match)

        def ours(look: Look) -> Terms:
            return self._our_terms(match)

        def theirs(look: Look) -> Terms:
            messages = look.found.messaging.user_messages if look.found.messaging else ()
            if messages:
                return in_force.expectation.terms(messages[0])
            return in_force.answer_terms(match)

        sent = self.message.side is Side.SENDING
        return judge(
            given, lens, of_message=ours if sent else theirs, of_signals=theirs if sent else ours
        )

    @property
    def _is_ebxml(self) -> bool:
        return self.message.is_ebxml

    def _ebxml_findings(self, given: Given, lens: Lens, match: Match | None) -> Findings:
        """Who carries a message has signals that came and signals that went."""
        in_force = self.context.in_force
        of_partner, of_us = in_force.answer_terms(match), self._our_terms(match)
        material = in_force.expectation.material(match) if match else Material()
        of_sender = replace(of_partner, material=material)
        sent = self.message.side is Side.SENDING
        pairs = zip(given.signals, self.signals, strict=True)
        went = {file.file for file, one in pairs if not one.incoming}
        return judge_ebxml(
            given,
            lens,
            of_message=lambda look: of_us if sent else of_sender,
            of_signal=lambda signal, look: of_us if signal.file in went else of_partner,
        )

    def _our_terms(self, match: Match | None) -> Terms:
        """By what is judged that this node signed itself."""
        in_force = self.context.in_force
        material = in_force.expectation.material(match) if match else Material()
        pairs = (material.signing, in_force.keyring.signing)
        own = tuple(pair.certificate for pair in pairs if pair is not None)
        trust = Material(pins=own, anchors=in_force.keyring.trust)
        return replace(in_force.answer_terms(match), material=trust)

    def _readme(self) -> bytes:
        made_at = self.now.isoformat(timespec="seconds")
        message_id, node = self.message.wire_id, self.context.config.node
        files = _EBXML_FILES if self._is_ebxml else _FILES
        text = _README.format(message_id=message_id, node=node, made_at=made_at, files=files)
        return text.encode()

    def _manifest(self, given: Given, files: Iterable[ListedFile]) -> Manifest:
        message = self.message
        return Manifest(
            FORMAT,
            message.wire_id,
            message.side.value,
            self.context.config.node,
            message.party,
            message.state.value,
            message.created_at,
            message.updated_at,
            self.now,
            message.from_party,
            message.to_party,
            message.service,
            message.action,
            message.conversation_id,
            message.pmode,
            message.error_code,
            message.detail,
            tuple(
                ListedPart(
                    part_name(number),
                    part.content_id,
                    part.wire_type,
                    part.compressed,
                    part.file_name,
                )
                for number, part in enumerate(message.parts, 1)
            ),
            tuple(
                ListedSignal(
                    file.file, one.signal_id, one.kind, one.at, one.incoming, one.valid
                )
                for one, file in zip(self.signals, given.signals, strict=True)
            ),
            tuple(files),
            message.bundle is not None,
        )  # fmt: skip


def _certificates(findings: Findings) -> dict[str, list[x509.Certificate]]:
    """Who signed what, with the chain that came along, and whom the node trusted for it."""
    found = {MESSAGE_SIGNER: _signers(findings.message)}
    anchors: dict[x509.Certificate, None] = {}
    for one in findings.signals:
        found[signer_name(one.given.file)] = _signers(one.found)
    for looked_at in (findings.message, *(one.found for one in findings.signals)):
        if looked_at.chain:
            anchors[list(looked_at.chain)[-1]] = None
    found[TRUSTED] = list(anchors)
    return {name: certificates for name, certificates in found.items() if certificates}


def _signers(found: Inspection) -> list[x509.Certificate]:
    verification = found.verification
    if verification is None or verification.certificate is None:
        return []
    return list(dict.fromkeys((verification.certificate, *verification.companions)))


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def _row(recorded: Recorded) -> dict[str, object]:
    """An event with the journal's names of columns."""
    identity = {"node": recorded.node, "epoch": recorded.epoch, "seq": recorded.seq}
    return {**identity, **msgspec.structs.asdict(recorded.event)}


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _digest(content: Content) -> bytes:
    digest = hashlib.sha256()
    for chunk in content.chunks():
        digest.update(chunk)
    return digest.digest()


class _Zipping:
    """A zip that is handed on while it is written, so nothing in it is ever gone back to."""

    def __init__(self, now: datetime) -> None:
        self._held = _Held()
        self._zip = zipfile.ZipFile(self._held, "w", zipfile.ZIP_STORED)
        self._date = max(_OLDEST_DATE, now.timetuple()[:6])
        self.listed: list[ListedFile] = []

    def add(self, name: str, content: Content) -> Iterator[bytes]:
        info = zipfile.ZipInfo(name, self._date)
        info.external_attr = _FILE_MODE
        info.file_size = content.size
        digest = hashlib.sha256()
        with self._zip.open(info, "w") as file:
            for chunk in content.chunks():
                digest.update(chunk)
                file.write(chunk)
                if self._held.size >= CHUNK:
                    yield self._held.take()
        self.listed.append(ListedFile(name, content.size, digest.hexdigest()))

    def end(self) -> Iterator[bytes]:
        self._zip.close()
        yield self._held.take()


class _Held:
    """What was written and not yet handed on."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes, /) -> int:
        self._pieces.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Everything is as far as it can get."""

    def close(self) -> None:
        """What is held is still to be taken."""

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        return taken


class _Forgetting:
    """A sink for payloads that are only digested: their bytes are needed by nobody."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self.size += len(data)

    def finish(self) -> Content:
        return self

    def discard(self) -> None:
        self.size = 0

    def chunks(self) -> Iterator[bytes]:
        raise NotImplementedError("the content was not kept")
