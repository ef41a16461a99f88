"""Who vouches for the signer of a message: those whom its P-Mode names, or those at hand."""

from functools import lru_cache

from cryptography import x509

from postroad.msh.expectation import NOTHING, Terms
from postroad.msh.lens import Inspection, Lens
from postroad.security.certificates import is_authority
from postroad.security.key_purposes import SIGNING
from postroad.security.keys import KeyPair
from postroad.security.trust import Trust, check_subject
from postroad.security.verify import Verification
from postroad.wire.errors import EbmsError, Severity


@lru_cache(maxsize=1024)
def _trust_in(
    pins: tuple[x509.Certificate, ...],
    anchors: tuple[x509.Certificate, ...],
    policies: frozenset[str],
    purposes: frozenset[str],
    legacy: bool,
) -> Trust:
    """Made once: it remembers the paths that it found."""
    return Trust(
        anchors=tuple(one for one in anchors if is_authority(one)),
        pinned=pins,
        min_rsa_bits=1024 if legacy else 2048,
        allow_sha1=legacy,
        policies=policies,
        purposes=purposes or SIGNING,
    )


class Vouching:
    """Whether the signer of one message is trusted, under the lens."""

    def __init__(self, found: Inspection, lens: Lens, terms: Terms | None) -> None:
        self._found = found
        self._lens = lens
        self._material = terms.material if terms else NOTHING
        self._signers = terms.signers if terms else frozenset()
        """Names of the party that should have signed."""

    def known(self) -> list[x509.Certificate]:
        """Certificates that a message can name without holding them."""
        own = self._material
        pairs = [key for key in self._lens.keys + own.keys if isinstance(key, KeyPair)]
        return [
            *own.pins,
            *own.anchors,
            *self._lens.trusted,
            *(one.certificate for one in pairs),
            *self._lens.known,
        ]

    def judge(self, verification: Verification) -> None:
        """Note in the inspection whether the signer is trusted, and why not."""
        certificate = verification.certificate
        if certificate is None:
            return
        trust = self._trust()
        if trust is None:
            self._note_validity(certificate)
            return
        try:
            companions = verification.companions or self._lens.known
            verdict = trust.verify(
                certificate, companions, self._lens.at, revocation=self._lens.revocation
            )
            self._found.chain, self._found.trust_notes = verdict.chain, verdict.notes
            self._found.revocation = verdict.revocation
            self._note_unknown()
            # Without a P-Mode nobody is expected to have signed, and the message is refused for it.
            expected = self._lens.receiving and self._found.match is not None
            if expected and certificate not in self._material.pins:
                check_subject(certificate, self._signers)
            # Trust is in who signed, and a signature that is not valid shows nothing of that.
            self._found.trusted = bool(verification.valid)
        except EbmsError as error:
            error.location = error.location or "certificate"
            self._found.trusted = False
            self._found.problems.append(error)

    def _trust(self) -> Trust | None:
        """Whom to trust for this message: those that its P-Mode names, else those at hand."""
        own = self._material
        pins, anchors = own.pins, own.anchors
        if not (pins or anchors):
            pins = anchors = self._lens.trusted
        if not (pins or anchors):
            return None
        return _trust_in(pins, anchors, own.policies, own.purposes, self._lens.legacy)

    def _note_unknown(self) -> None:
        """That it is not known whether a certificate was revoked is a warning for who inspects."""
        if self._lens.receiving:
            return
        self._found.problems += [
            EbmsError(
                "EBMS:0101",
                f"whether {one.subject} was revoked is not known: {one.detail}",
                location="certificate",
                severity=Severity.WARNING,
            )
            for one in self._found.revocation
            if one.status == "unknown"
        ]

    def _note_validity(self, certificate: x509.Certificate) -> None:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if begin <= self._lens.at <= end:
            return
        when = f"expired on {end:%Y-%m-%d}" if self._lens.at > end else f"starts {begin:%Y-%m-%d}"
        self._found.problems.append(
            EbmsError(
                "EBMS:0101",
                f"the signer's certificate is not valid at {self._lens.at:%Y-%m-%d} ({when})",
                location="certificate",
                severity=Severity.FAILURE if self._lens.time_counts else Severity.WARNING,
            )
        )
