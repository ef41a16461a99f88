"""Whether a certificate may be believed.

A path is sought from the certificate to an anchor by RFC 5280, section 6: names chain, each
signature is made by the key above, each CA is a CA and stays within its path length, each
certificate is valid at the time asked for, name constraints are kept, extended key usages allow the
purpose, nothing was revoked. All candidates are tried, within bounds, so that cross-certificates
and two CAs of one name find their way. What a certificate says and who signed it does not change:
both are remembered, so that a partner's next message costs next to nothing.

The library has a path validation of its own (cryptography.x509.verification, looked at in 50.0).
It is made for the Web: it refuses authorities with Ed25519, Ed448, brainpool, DSA or short RSA keys
whatever is allowed, anchors without basic constraints, and every path with a directoryName or URI
constraint; it accepts an issuer without keyCertSign where extensions are not those of the Web, does
not check revocation or policies, and does not say which certificate it refuses. Hence our own.

Policy mappings are not understood: a path where they are critical is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final, Literal, NoReturn

from cryptography import x509

from postroad.security.certificates import (
    CertificateFacts,
    read_certificate,
    signed_by,
    stamp,
    subject_names,
)
from postroad.security.distinguished import REMEMBERED, NameKey
from postroad.security.key_purposes import ANY, SIGNING, purpose_names
from postroad.security.name_constraints import name_violation
from postroad.security.revocation import NO_REVOCATION, Checked, Revocation
from postroad.wire.errors import EbmsError

Chain = tuple[x509.Certificate, ...]
"""The certificate, those above it, and last the anchor; a pinned one stands alone."""

Purpose = Literal["sign", "encrypt"]

_MOST_INTERMEDIATES: Final = 32
_MOST_CANDIDATES: Final = 100
_ANY_POLICY: Final = "2.5.29.32.0"
_NEEDED: Final = {
    "sign": frozenset(("digitalSignature", "nonRepudiation")),
    "encrypt": frozenset(("keyEncipherment", "dataEncipherment", "keyAgreement")),
}


class _Refused(Exception):
    """Why one path does not hold; the better a path was, the higher the rank of its reason."""

    def __init__(self, rank: int, reason: str, *, for_now: bool = False) -> None:
        super().__init__(reason)
        self.rank = rank
        self.reason = reason
        self.for_now = for_now
        """It may hold later, when more is known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a certificate is believed: the path, what was checked on it, what is odd about it."""

    chain: Chain
    notes: tuple[str, ...] = ()
    revocation: tuple[Checked, ...] = ()


@dataclass(slots=True)
class _Search:
    """One search for a path: what is asked, what was tried, why it failed."""

    at: datetime
    revocation: Revocation
    pool: dict[NameKey, list[CertificateFacts]]
    tried: int = 0
    failures: list[_Refused] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A path and the time in which all its certificates are valid."""

    leaf: x509.Certificate
    intermediates: tuple[x509.Certificate, ...]
    path: tuple[CertificateFacts, ...]
    verdict: Verdict
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe: authorities, pinned partner certificates, and how strict to be.

    `policies` are certificate policy OIDs, one of which a path must carry. `purposes` are OIDs of
    extended key usages: where certificates of a path have that extension, all of them allow one of
    these; None: any will do. A pinned certificate needs no path, and may be for any purpose.
    """

    anchors: tuple[x509.Certificate, ...] = ()
    pinned: tuple[x509.Certificate, ...] = ()
    check_key_usage: bool = True
    max_chain: int = 8
    min_rsa_bits: int = 2048
    allow_sha1: bool = False
    policies: frozenset[str] = frozenset()
    purposes: frozenset[str] | None = SIGNING
    _anchors: dict[NameKey, list[CertificateFacts]] = field(init=False, repr=False, compare=False)
    _found: dict[tuple[int, str], "_Found"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Paths that were found, by the very certificate object: true while all of it is valid."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_anchors", _by_subject(self.anchors))

    def verify(
        self,
        certificate: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        at: datetime,
        purpose: Purpose = "sign",
        revocation: Revocation = NO_REVOCATION,
    ) -> Verdict:
        """Find the path from a certificate to an anchor, valid at a time; else EBMS:0101.

        EBMS:0202 where only the revocation status is not known, and must be.
        """
        known = self._found.get((id(certificate), purpose))
        if (
            known is not None
            and known.leaf is certificate
            and known.begin <= at <= known.end
            and known.intermediates == tuple(intermediates)
        ):
            if revocation.is_empty:
                return known.verdict
            checked = self._checked(known.path, revocation, at)
            if not any(_is_refused(one, revocation, len(known.path)) for one in checked):
                return replace(known.verdict, revocation=checked)
        path, verdict = self._verify(certificate, intermediates, at, purpose, revocation)
        if len(self._found) >= REMEMBERED:
            self._found.clear()
        self._found[id(certificate), purpose] = _Found(
            certificate,
            tuple(intermediates),
            path,
            replace(verdict, revocation=()),
            max(one.not_before for one in path),
            min(one.not_after for one in path),
        )
        return verdict

    def _verify(
        self,
        certificate: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        at: datetime,
        purpose: Purpose,
        revocation: Revocation,
    ) -> tuple[tuple[CertificateFacts, ...], Verdict]:
        try:
            leaf = read_certificate(certificate)
        except ValueError as error:
            raise EbmsError("EBMS:0101", f"the certificate cannot be read: {error}") from None
        try:
            self._check_use(leaf, at, purpose)
            if certificate in self.pinned:
                return (leaf,), self._pinned(leaf, revocation, at, purpose)
            if len(intermediates) > _MOST_INTERMEDIATES:
                raise _Refused(2, f"more than {_MOST_INTERMEDIATES} certificates came with it")
            search = _Search(at, revocation, _by_subject(intermediates))
            path = self._path((leaf,), search, purpose)
            if path is None:
                raise max(search.failures, key=lambda failure: failure.rank)
        except _Refused as refused:
            _refuse(leaf, refused)
        return path, self._verdict(path, revocation, at, purpose)

    def _pinned(
        self, leaf: CertificateFacts, revocation: Revocation, at: datetime, purpose: Purpose
    ) -> Verdict:
        verdict = self._verdict((leaf,), revocation, at, purpose)
        for one in verdict.revocation:
            if one.status == "revoked":
                raise _Refused(3, one.detail)
        return verdict

    def _verdict(
        self,
        path: tuple[CertificateFacts, ...],
        revocation: Revocation,
        at: datetime,
        purpose: Purpose,
    ) -> Verdict:
        leaf = path[0]
        notes: tuple[str, ...] = ()
        if len(path) == 1 and purpose == "sign" and not self._common_purposes((leaf,)):
            stated = purpose_names(leaf.purposes or ())
            notes = (
                f"its extended key usage ({stated}) is for another purpose; "
                "it is accepted because this very certificate is trusted",
            )
        checked = self._checked(path, revocation, at)
        return Verdict(tuple(step.certificate for step in path), notes, checked)

    def _checked(
        self, path: tuple[CertificateFacts, ...], revocation: Revocation, at: datetime
    ) -> tuple[Checked, ...]:
        """What is known about the revocation of each certificate below the anchor.

        Of one that is trusted itself it is known only where an anchor issued it.
        """
        if revocation.is_empty:
            return ()
        pairs = list(pairwise(path))
        if len(path) == 1 and not path[0].self_issued:
            issuers = self._anchors.get(path[0].issuer, ())
            pairs = [(path[0], one) for one in issuers if signed_by(path[0], one)][:1]
        return tuple(
            revocation.check(below, issuer, at, allow_sha1=self.allow_sha1)
            for below, issuer in pairs
        )

    def _check_use(self, leaf: CertificateFacts, at: datetime, purpose: Purpose) -> None:
        _check_time(leaf, at, "it")
        self._check_key(leaf, "its")
        if self.check_key_usage and leaf.usage is not None and not leaf.usage & _NEEDED[purpose]:
            stated = ", ".join(sorted(leaf.usage)) or "none"
            raise _Refused(2, f"its key usage ({stated}) does not allow it to {purpose}")

    def _check_key(self, facts: CertificateFacts, whose: str) -> None:
        if facts.weakness is not None:
            raise _Refused(2, f"{whose} {facts.weakness}")
        if facts.key_bits is not None and facts.key_bits < self.min_rsa_bits:
            raise _Refused(
                2,
                f"{whose} key has {facts.key_bits} bits, at least {self.min_rsa_bits} are needed",
            )

    def _path(
        self, path: tuple[CertificateFacts, ...], search: _Search, purpose: Purpose
    ) -> tuple[CertificateFacts, ...] | None:
        """Extend the path upward until it ends in an anchor; the first that holds is taken."""
        last = path[-1]
        try:
            if self._is_anchor(last):
                self._check_whole(path, search, purpose)
                return path
            self._check_below(path)
        except _Refused as refused:
            search.failures.append(refused)
            return None
        found = False
        for candidate in (*self._anchors.get(last.issuer, ()), *search.pool.get(last.issuer, ())):
            if any(
                candidate.public_key == step.public_key and candidate.subject == step.subject
                for step in path
            ):
                continue
            found = True
            search.tried += 1
            if search.tried > _MOST_CANDIDATES:
                search.failures.append(_Refused(2, "too many candidate issuers were tried"))
                return None
            try:
                self._check_issuer(path, candidate, search.at)
            except _Refused as refused:
                search.failures.append(refused)
                continue
            whole = self._path((*path, candidate), search, purpose)
            if whole is not None:
                return whole
        if not found:
            search.failures.append(_no_path(path))
        return None

    def _is_anchor(self, facts: CertificateFacts) -> bool:
        same_name = self._anchors.get(facts.subject, ())
        return facts in same_name or any(
            anchor.certificate == facts.certificate for anchor in same_name
        )

    def _check_below(self, path: tuple[CertificateFacts, ...]) -> None:
        """What is asked of a certificate that is not an anchor itself."""
        last = path[-1]
        whose = _whose(path)
        if last.not_understood:
            names = ", ".join(last.not_understood)
            raise _Refused(2, f"{whose} critical extension {names} is not understood")
        if self._too_weak(last.weak_digest):
            raise _Refused(2, f"{whose} signature is made with {last.weak_digest}")

    def _too_weak(self, digest: str | None) -> bool:
        return digest is not None and not (self.allow_sha1 and digest == "SHA-1")

    def _check_issuer(
        self, path: tuple[CertificateFacts, ...], issuer: CertificateFacts, at: datetime
    ) -> None:
        name = f"its issuer {issuer.subject_text}"
        if not signed_by(path[-1], issuer):
            whose = _whose(path)
            raise _Refused(1, f"{whose} signature was not made by the key of {issuer.subject_text}")
        if len(path) + 1 > self.max_chain:
            raise _Refused(2, f"the path is longer than {self.max_chain} certificates")
        if issuer.is_ca is False or (issuer.is_ca is None and not self._is_anchor(issuer)):
            raise _Refused(2, f"{name} is no certificate authority")
        if issuer.usage is not None and "keyCertSign" not in issuer.usage:
            raise _Refused(2, f"{name} may not sign certificates (key usage keyCertSign)")
        between = sum(1 for step in path[1:] if not step.self_issued)
        if issuer.path_length is not None and between > issuer.path_length:
            raise _Refused(
                2, f"{name} allows {issuer.path_length} authorities below it, there are {between}"
            )
        _check_time(issuer, at, name)
        self._check_key(issuer, f"{name}: its")

    def _check_whole(
        self, path: tuple[CertificateFacts, ...], search: _Search, purpose: Purpose
    ) -> None:
        """What is asked of a path from end to end."""
        self._check_policies(path)
        violation = name_violation(path)
        if violation is not None:
            raise _Refused(2, violation)
        if purpose == "sign" and len(path) > 1:
            self._check_purposes(path)
        for one in self._checked(path, search.revocation, search.at):
            if one.status == "revoked":
                raise _Refused(3, one.detail)
            if _is_refused(one, search.revocation, len(path)):
                raise _Refused(
                    2,
                    f"whether {one.subject} was revoked is not known: {one.detail}",
                    for_now=True,
                )

    def _check_purposes(self, path: tuple[CertificateFacts, ...]) -> None:
        """All certificates allow one of the purposes in common, as browsers and OpenSSL ask."""
        for place, step in enumerate(path):
            if self._common_purposes(path[: place + 1]):
                continue
            whose = _whose(path[: place + 1])
            allowed = purpose_names(self.purposes or ())
            raise _Refused(
                2,
                f"{whose} extended key usage ({purpose_names(step.purposes or ())}) is for another "
                f"purpose than signing messages ({allowed}). Add its purpose to "
                "signature.purposes of the P-Mode, or pin the certificate",
            )

    def _common_purposes(self, path: Sequence[CertificateFacts]) -> bool:
        if self.purposes is None:
            return True
        common = self.purposes
        for step in path:
            if step.purposes is not None and ANY not in step.purposes:
                common &= step.purposes
        return bool(common)

    def _check_policies(self, path: tuple[CertificateFacts, ...]) -> None:
        if not self.policies and not any(step.explicit_policy for step in path):
            return
        leaf, *above = path[:-1] or path
        any_counts = not any(step.inhibits_any_policy for step in path)
        carried = leaf.policies
        for step in above:
            if not (any_counts and _ANY_POLICY in step.policies):
                carried &= step.policies
        if not (carried & self.policies if self.policies else carried):
            asked = ", ".join(sorted(self.policies)) or "any"
            raise _Refused(2, f"it does not carry a certificate policy that is asked for ({asked})")


def _is_refused(checked: Checked, revocation: Revocation, length: int) -> bool:
    """Whether a path ends with this; one that is trusted itself must be known to be revoked."""
    if checked.status == "revoked":
        return True
    return checked.status == "unknown" and revocation.hard and length > 1


def _refuse(leaf: CertificateFacts, refused: _Refused) -> NoReturn:
    if refused.for_now:
        raise EbmsError(
            "EBMS:0202",
            f"the certificate {leaf.subject_text} cannot be checked at the moment: "
            f"{refused.reason}. Send the message again later",
        ) from None
    raise EbmsError(
        "EBMS:0101",
        f"the certificate {leaf.subject_text}, issued by {leaf.issuer_text}, is not accepted: "
        f"{refused.reason}",
    ) from None


def _whose(path: tuple[CertificateFacts, ...]) -> str:
    return "its" if len(path) == 1 else f"its issuer {path[-1].subject_text}: its"


def _no_path(path: tuple[CertificateFacts, ...]) -> _Refused:
    last = path[-1]
    if last.self_issued:
        who = "it" if len(path) == 1 else last.subject_text
        return _Refused(0, f"it is untrusted: {who} is self-signed and neither anchor nor pinned")
    return _Refused(0, f"it is untrusted: there is no certificate of the issuer {last.issuer_text}")


def _check_time(facts: CertificateFacts, at: datetime, name: str) -> None:
    if at > facts.not_after:
        raise _Refused(2, f"{name} expired on {stamp(facts.not_after)}")
    if at < facts.not_before:
        raise _Refused(2, f"{name} is not valid before {stamp(facts.not_before)}")


def _by_subject(certificates: Sequence[x509.Certificate]) -> dict[NameKey, list[CertificateFacts]]:
    found: dict[NameKey, list[CertificateFacts]] = {}
    for certificate in certificates:
        try:
            facts = read_certificate(certificate)
        except ValueError:
            continue
        found.setdefault(facts.subject, []).append(facts)
    return found


def check_subject(certificate: x509.Certificate, names: frozenset[str]) -> None:
    """An authority vouches for many: the certificate must name the very party, or EBMS:0101.

    A name is a common name, a whole distinguished name, or an alternative name of the subject.
    """
    if names & subject_names(certificate):
        return
    wanted = " or ".join(repr(name) for name in sorted(names)) or "nobody"
    raise EbmsError(
        "EBMS:0101",
        f"the certificate {certificate.subject.rfc4514_string()[:200]} is trusted, but does not "
        f"name {wanted}",
        location="certificate",
    )
