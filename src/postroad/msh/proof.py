"""What a receipt is worth that was kept: its signature, its signer, the digests of what was sent.

The same questions as `msh.evidence` asks of one message, here of very many receipts one after the
other. So what is the same for many of them is found out once: who a certificate belongs to, and
whether it was to be trusted at a time.
"""

from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from msgspec import Struct

from postroad.msh.capture import Capture
from postroad.msh.ebxml_answers import SentEbxml
from postroad.msh.ebxml_evidence import is_by_receiver, judge_acknowledgment
from postroad.msh.evidence import GivenSignal, about, rides, signer_problems
from postroad.msh.inspection import Look
from postroad.msh.joined_receipts import received_references
from postroad.msh.lens import Inspection, Lens
from postroad.msh.usual_proof import UsualReceipt, UsualReceipts
from postroad.security.algorithms import RSA_SHA256, SIGNATURES
from postroad.security.certificates import is_authority
from postroad.security.rawsign import verify_bytes
from postroad.security.revocation import NO_REVOCATION, Revocation, revocation_dates
from postroad.security.tokens import certificate_of
from postroad.security.trust import Trust, check_subject
from postroad.wire.ebms3 import PartyId, Reference, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.receipts import check_receipt, references_about

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TOMORROW: Final = 86_400_000_000
_REMEMBERED: Final = 4096
_RSA_SHA256: Final = SIGNATURES[RSA_SHA256]
_PKCS1: Final = padding.PKCS1v15()
_SHA256: Final = hashes.SHA256()
NOT_KEPT: Final = "the message itself is gone: nothing is left to hold the receipt against"
NOT_SIGNED: Final = "neither message nor receipt is signed: they fit together, and prove nothing"
_BY_A_STATION: Final = "a station on the way acknowledged it, not the receiver"
_IN_FRAGMENTS: Final = (
    "it went in fragments: the receipt has the digests of its payloads, which its evidence proves"
)
_BY_ID_ONLY: Final = (
    "it is signed, and names the message: it does not repeat the digests of what was received"
)


class Proof(Struct, frozen=True):
    """What a receipt is worth."""

    valid: bool | None
    """All of it holds; None when nothing is signed, so that there is nothing to prove it by."""
    signature: bool | None
    """The receipt's signature holds; None when there is none to hold."""
    chain: bool | None
    """Who signed was trusted at that time; None when nobody did."""
    digests: bool | None
    """It is about exactly what was sent; None when that could not be looked at."""
    signer: str | None = None
    detail: str | None = None


_SEEN: Final = 3
"""Envelopes that are remembered: a receipt, the same again where it rides, and what was sent."""
_A_MOMENT: Final = 1_000_000
"""Microseconds within which the receipts of one envelope came."""


def trust_in(certificates: Sequence[x509.Certificate], *, legacy: bool = False) -> Trust:
    """Believe these certificates, and those that the authorities among them vouch for."""
    return Trust(
        anchors=tuple(one for one in certificates if is_authority(one)),
        pinned=tuple(certificates),
        min_rsa_bits=1024 if legacy else 2048,
        allow_sha1=legacy,
    )


class _Standing:
    """Whether a certificate is to be trusted, at any time.

    That changes only at the moments in which a certificate begins or ends, is revoked, or a list
    of revocations runs out. Between two of them the answer is the same, and is found once.
    """

    __slots__ = (
        "_companions", "_from", "_moments", "_refusals", "_revocation", "_trust", "_until",
        "certificate", "key", "name", "proof", "rsa",
    )  # fmt: skip

    def __init__(
        self,
        certificate: x509.Certificate,
        companions: tuple[x509.Certificate, ...],
        trust: Trust,
        revocation: Revocation,
    ) -> None:
        self.certificate = certificate
        self.key = certificate.public_key()
        self.rsa = self.key if isinstance(self.key, rsa.RSAPublicKey) else None
        self.name = certificate.subject.rfc4514_string()[:500]
        self.proof = Proof(True, True, True, True, self.name)
        """What a receipt that it signed is worth when all is well."""
        self._companions = companions
        self._trust = trust
        self._revocation = revocation
        self._moments = _moments((certificate, *companions, *trust.anchors), revocation)
        self._refusals: dict[tuple[int, int], str | None] = {}
        self._from = self._until = 0
        """Between these two moments, themselves excluded, it was trusted when last asked."""

    def refusal(self, at: int) -> str | None:
        """Why it was not to be trusted at a time, in microseconds; None when it was."""
        if self._from < at < self._until:
            return None
        place = left, right = bisect_left(self._moments, at), bisect_right(self._moments, at)
        if place not in self._refusals:
            self._refusals[place] = self._asked(at)
        refusal = self._refusals[place]
        if refusal is None and left == right and 0 < left < len(self._moments):
            self._from, self._until = self._moments[left - 1], self._moments[left]
        return refusal

    def _asked(self, at: int) -> str | None:
        moment = EPOCH + at * _MICROSECOND
        try:
            verdict = self._trust.verify(
                self.certificate, self._companions, moment, revocation=self._revocation
            )
        except EbmsError as refused:
            return refused.detail
        # Who gives a list wants to know: one that does not tell is refused, unlike in a node.
        return next((one.detail for one in verdict.revocation if one.stale), None)


def _moments(certificates: Sequence[x509.Certificate], revocation: Revocation) -> list[int]:
    moments = [one.not_valid_before_utc for one in certificates]
    moments += [one.not_valid_after_utc for one in certificates]
    moments += revocation_dates(revocation.lists, certificates)
    return sorted({(one - EPOCH) // _MICROSECOND for one in moments})


class _Seen(NamedTuple):
    """An envelope that was looked at, as of a time in microseconds."""

    envelope: bytes
    at: int
    whole: bool
    found: Inspection


class Prover:
    """Proves one receipt after the other, to those who trust the same."""

    def __init__(
        self,
        trust: Trust,
        *,
        revocation: Revocation = NO_REVOCATION,
        signers: Mapping[str, frozenset[str]] | None = None,
        legacy: bool = False,
        limits: Limits = DEFAULT,
    ) -> None:
        self._trust = trust
        self._revocation = revocation
        self._signers = signers or {}
        """The names that the certificate of a party must have, where it is not a trusted one."""
        self._legacy = legacy
        self._limits = limits
        self._by_token: dict[bytes, _Standing | None] = {}
        self._others: dict[tuple[x509.Certificate, ...], _Standing] = {}
        self._receipts = UsualReceipts()
        self._usual_signers: dict[tuple[bytes, bytes], _Standing] = {}
        """By the tokens of receipt and message; they have different keys."""
        self._seen: list[_Seen] = []

    def prove(
        self, receipt: bytes, sent: bytes | None, message_id: str, receipt_id: str, at: int
    ) -> Proof:
        """What a receipt is worth for a message; `sent` is the envelope that was kept of it.

        `at` is when the receipt came, in microseconds: as of then its signer must be trusted. That
        is not the time that the receipt says of itself, which who signs may choose.
        """
        if sent is not None:
            usual = self.usual(receipt, sent, message_id, receipt_id)
            proof = self.prove_usual(usual, at) if usual is not None else None
            if proof is not None:
                return proof
        return self._whole(receipt, sent, message_id, receipt_id, at)

    def usual(
        self, receipt: bytes, sent: bytes, message_id: str, receipt_id: str
    ) -> UsualReceipt | None:
        """A receipt as Postroad writes it, for exactly what was sent; None when it is unusual."""
        return self._receipts.take(receipt, sent, message_id.encode(), receipt_id.encode())

    def prove_usual(self, found: UsualReceipt, at: int) -> Proof | None:
        """That all holds; None when it does not, or is better looked at as a whole."""
        standing = self._usual_signers.get((found.token, found.sent_token))
        if standing is None:
            ours, standing = self._by(found.sent_token), self._by(found.token)
            if standing is None or ours is None or ours.key == standing.key:
                return None
            if len(self._usual_signers) >= _REMEMBERED:
                self._usual_signers.clear()
            self._usual_signers[found.token, found.sent_token] = standing
        if found.time.timestamp() * 1e6 - at > _TOMORROW:
            return None
        if self._signers and standing.certificate not in self._trust.pinned:
            return None
        if standing.refusal(at) is not None:
            return None
        try:
            if standing.rsa is not None and found.method is _RSA_SHA256:
                # What verify_bytes does for it, without looking up what is known here.
                standing.rsa.verify(found.value, found.signed, _PKCS1, _SHA256)
                return standing.proof
            if verify_bytes(standing.key, found.method, found.value, found.signed):
                return standing.proof
        except (InvalidSignature, ValueError):
            pass
        return None

    def _by(self, token: bytes) -> _Standing | None:
        if token not in self._by_token:
            if len(self._by_token) >= _REMEMBERED:
                self._by_token.clear()
            self._by_token[token] = self._read(token)
        return self._by_token[token]

    def _read(self, token: bytes) -> _Standing | None:
        """The certificate of a token, if it is as plain as most are."""
        try:
            der = a2b_base64(token, strict_mode=True)
            return _Standing(certificate_of(der), (), self._trust, self._revocation)
        except ValueError:
            return None

    def _whole(
        self, receipt: bytes, sent: bytes | None, message_id: str, receipt_id: str, at: int
    ) -> Proof:
        """Look at receipt and message as a node does that receives them."""
        lens = Lens(
            at=EPOCH + at * _MICROSECOND,
            known=self._trust.pinned,
            legacy=self._legacy,
            opened=True,
            unsigned_routing=True,
            limits=self._limits,
        )
        found = self._looked(receipt, lens, at, whole=True)
        if found.ebxml is not None:
            return self._acknowledgment(receipt, sent, message_id, receipt_id, at, lens)
        if rides(found):
            found = self._looked(receipt, lens, at, whole=False)
        wrong = _failures(found)
        if not found.readable:
            return Proof(False, False, None, None, None, _told(wrong))
        signal = about(found, message_id, "receipt")
        if signal is None or signal.message_info.message_id != receipt_id:
            said = f"these bytes are not the receipt {receipt_id} for {message_id}"
            wrong.append(EbmsError("EBMS:0302", said))
            return Proof(False, False, None, False, None, _told(wrong))
        verification = found.verification
        signature = None if verification is None else verification.valid is True and not wrong
        chain, signer, refused = self._signer(found, at)
        if sent is None:
            wrong += refused
            return Proof(False, signature, chain, None, signer, _told(wrong) or NOT_KEPT)
        message = self._looked(sent, lens, at, whole=False)
        different = _differences(signal, message, message_id)
        user_message = _user_message(message, message_id)
        if user_message is not None:
            refused += self._not_the_receiver(found, message, user_message)
        if refused:
            chain = False
        if verification is None and message.verification is not None:
            signature = False
        digests = not different and (signature is not None or not wrong)
        wrong += [*refused, *different]
        if wrong:
            return Proof(False, signature, chain, digests, signer, _told(wrong))
        if signature is None:
            return Proof(None, None, None, True, None, NOT_SIGNED)
        if _in_fragments(signal, message):
            return Proof(None, signature, chain, None, signer, _IN_FRAGMENTS)
        valid = signature and chain is True and digests
        return Proof(valid, signature, chain, digests, signer)

    def _looked(self, envelope: bytes, lens: Lens, at: int, *, whole: bool) -> Inspection:
        """What an envelope says, read once for all receipts of a bundle that follow each other."""
        for one in self._seen:
            if (one.whole, one.envelope) == (whole, envelope) and abs(one.at - at) < _A_MOMENT:
                return one.found
        found = _looked(envelope, lens, whole=whole)
        self._seen = [_Seen(envelope, at, whole, found), *self._seen[: _SEEN - 1]]
        return found

    def _acknowledgment(
        self,
        given: bytes,
        sent: bytes | None,
        message_id: str,
        signal_id: str,
        at: int,
        lens: Lens,
    ) -> Proof:
        """What an acknowledgment of ebXML is worth; it may ride on a reply whose parts are gone."""
        found = _looked(given, lens, whole=False)
        answer, wrong = found.ebxml, _failures(found)
        # Who answers a message has it: the reply counts without saying so.
        named = answer and (answer.acknowledged or answer.header.ref_to_message_id)
        if answer is None or (answer.message_id, named) != (signal_id, message_id):
            said = f"these bytes are not the acknowledgment {signal_id} of {message_id}"
            wrong.append(EbmsError("EBMS:0302", said))
            return Proof(False, False, None, False, None, _told(wrong))
        verification = found.verification
        signature = None if verification is None else verification.valid is True and not wrong
        chain, signer, refused = self._signer(found, at)
        if sent is None:
            wrong += refused
            return Proof(False, signature, chain, None, signer, _told(wrong) or NOT_KEPT)
        message = _looked(sent, lens, whole=False)
        if message.ebxml is None or message.ebxml.message_id != message_id:
            said = f"what was kept is not the message {message_id}"
            wrong.append(EbmsError("EBMS:0302", said))
            return Proof(False, signature, chain, False, signer, _told(wrong))
        of_message = message.verification
        kept = SentEbxml(message.ebxml, of_message.signed_references if of_message else ())
        finding = judge_acknowledgment(
            GivenSignal("", "acknowledgment", given), found, kept, message
        )
        different = [one for one in finding.problems if one.severity is Severity.FAILURE]
        different += _broken(message)
        if not is_by_receiver(finding, message):
            different.append(EbmsError("EBMS:0302", _BY_A_STATION))
        refused += self._not_named(found, message.ebxml.header.to_party.party_ids)
        chain = chain and not refused
        if wrong or refused or different:
            digests = False if different else bool(finding.digests) or None
            told = _told([*wrong, *refused, *different])
            return Proof(False, signature, chain, digests, signer, told)
        if signature is None:
            return Proof(None, None, None, None, None, NOT_SIGNED)
        if not finding.digests:
            return Proof(None, signature, chain, None, signer, _BY_ID_ONLY)
        return Proof(signature and chain is True, signature, chain, True, signer)

    def _signer(
        self, found: Inspection, at: int
    ) -> tuple[bool | None, str | None, list[EbmsError]]:
        """Whether who signed was trusted then, who that is, and why not."""
        verification = found.verification
        if verification is None:
            return None, None, []
        if verification.certificate is None:
            return False, None, []
        names = (verification.certificate, *verification.companions)
        standing = self._others.get(names)
        if standing is None:
            if len(self._others) >= _REMEMBERED:
                self._others.clear()
            standing = self._others[names] = _Standing(
                names[0], names[1:], self._trust, self._revocation
            )
        refusal = standing.refusal(at)
        if refusal is None:
            return True, standing.name, []
        return False, standing.name, [EbmsError("EBMS:0101", refusal)]

    def _not_the_receiver(
        self, found: Inspection, message: Inspection, user_message: UserMessage
    ) -> list[EbmsError]:
        """Why the receipt is not the word of who was to receive the message."""
        problems = signer_problems(found, message, user_message)
        refused = [one for one in problems if one.severity is Severity.FAILURE]
        return refused + self._not_named(found, user_message.to_party.party_ids)

    def _not_named(self, found: Inspection, to: Sequence[PartyId]) -> list[EbmsError]:
        """Why an authority's word is not enough: the signer has not the name of the receiver."""
        certificate = found.verification.certificate if found.verification else None
        if certificate is None or certificate in self._trust.pinned:
            return []
        refused = []
        for party in to:
            wanted = self._signers.get(str(party), self._signers.get(party.value))
            if wanted is not None:
                try:
                    check_subject(certificate, wanted)
                except EbmsError as other:
                    refused.append(other)
        return refused


def _failures(found: Inspection) -> list[EbmsError]:
    return [one for one in found.problems if one.severity is Severity.FAILURE]


def _looked(envelope: bytes, lens: Lens, *, whole: bool) -> Inspection:
    look = Look(Capture(None, None, None, envelope, (), False, (), whole), lens)
    if look.read():
        look.judge(None)
    return look.found


def _user_message(found: Inspection, message_id: str) -> UserMessage | None:
    messages = found.messaging.user_messages if found.messaging else ()
    return next((one for one in messages if one.message_info.message_id == message_id), None)


def _differences(signal: SignalMessage, message: Inspection, message_id: str) -> list[EbmsError]:
    """In what the receipt is about something else than the message that was kept."""
    user_message = _user_message(message, message_id)
    if user_message is None:
        wrong = _failures(message)
        why = f": {wrong[0].detail}" if wrong and not message.readable else ""
        said = f"what was kept is not the message {message_id}{why}"
        return [EbmsError("EBMS:0302", said)]
    different = _broken(message)
    known = received_references(message, signal)
    if _in_fragments(signal, message):
        # Its payloads are not with its envelope: their digests are for who has them.
        named = {one.href for one in user_message.part_infos}
        known += tuple(one for one in _references(signal) if one.uri in named)
    try:
        check_receipt(
            signal,
            sent_message_id=message_id,
            sent_references=references_about(known, user_message, message.messaging) or None,
            sent_user_message=user_message,
            also_sent=known,
        )
    except EbmsError as invalid:
        different.append(invalid)
    return different


def _in_fragments(signal: SignalMessage, message: Inspection) -> bool:
    """Whether the receipt has digests, and no signature of the message does."""
    return message.verification is None and bool(_references(signal))


def _references(signal: SignalMessage) -> tuple[Reference, ...]:
    proof = signal.receipt.non_repudiation if signal.receipt is not None else None
    return proof.references if proof is not None else ()


def _broken(message: Inspection) -> list[EbmsError]:
    """What was changed of a message since it was signed."""
    verification = message.verification
    return [
        EbmsError(
            "EBMS:0101",
            f"the message that was kept is not the one that was signed: {one.reference.uri} does "
            f"not hold, {one.reason}",
        )
        for one in (verification.references if verification else ())
        if one.valid is False
    ]


def _told(problems: Sequence[EbmsError]) -> str | None:
    """What is wrong, for people; the first few say it."""
    told = dict.fromkeys(one.detail for one in problems)
    return "; ".join(list(told)[:3])[:1000] or None
