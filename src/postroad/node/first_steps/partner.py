"""A partner's facts as files: P-Modes for both directions, and the certificate that they pin."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x448, x25519
from pydantic import ValidationError

from postroad.agreement.explaining import explain
from postroad.agreement.importing_source import file_safe
from postroad.agreement.loading import Problem, load_sources
from postroad.agreement.pmode import PMode
from postroad.agreement.writing import pmode_yaml
from postroad.node.first_steps.files import replace_file
from postroad.node.first_steps.key_store import pem_bytes
from postroad.node.settings.agreements import pmode_files
from postroad.node.settings.config import Config
from postroad.node.settings.keyring import Keyring
from postroad.security.key_purposes import encryption_remark, signing_remark
from postroad.security.keys import KeyStoreError, load_certificates, load_key_pair
from postroad.security.trust import Purpose, Trust
from postroad.wire.errors import EbmsError
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE

_T = TypeVar("_T")

_RETRY: Final = {
    "max_retries": 8,
    "period": "PT30S",
    "backoff": 2,
    "max_period": "PT30M",
    "jitter": 0.1,
}
"""A message is sent again for about 100 minutes."""
_SIGNATURES: Final = (
    (rsa.RSAPublicKey, "rsa-sha256"),
    (ec.EllipticCurvePublicKey, "ecdsa-sha256"),
    (ed25519.Ed25519PublicKey, "eddsa-ed25519"),
    (ed448.Ed448PublicKey, "eddsa-ed448"),
)
_RSA_OAEP: Final = {"key_transport": "rsa-oaep", "digest": "sha256", "mgf": "mgf1sha256"}
_KEY_METHODS: Final = (
    (rsa.RSAPublicKey, _RSA_OAEP),
    (ec.EllipticCurvePublicKey, {"key_agreement": "ecdh-es"}),
    (x25519.X25519PublicKey, {"key_agreement": "x25519"}),
    (x448.X448PublicKey, {"key_agreement": "x448"}),
)


class PartnerError(Exception):
    """Nothing was written; the sentence says why and what to do."""


class Protocol(StrEnum):
    """What a partner speaks: ebMS 3.0 as AS4, or ebXML Message Service (ebMS 2.0 and earlier)."""

    AS4 = "as4"
    EBXML_2 = "ebxml-2.0"
    EBXML_1 = "ebxml-1.0"
    EBXML_098 = "ebxml-0.98b"

    @property
    def version(self) -> str:
        """The dialect of ebXML."""
        return self.removeprefix("ebxml-")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a partner told about itself, and what was agreed on."""

    name: str
    parties: tuple[str, ...]
    """Its party ids, `TYPE::ID` where one has a type."""
    url: str
    certificate: Path
    service: str
    """`TYPE::NAME` where it has a type."""
    sends: tuple[str, ...] = ()
    """The actions of messages that we send."""
    receives: tuple[str, ...] = ()
    """The actions of messages that the partner sends."""
    role: str | None = None
    our_role: str | None = None
    agreement: str | None = None
    protocol: Protocol = Protocol.AS4
    encrypts: bool = True
    encryption_certificate: Path | None = None
    """The certificate that the partner decrypts with, where that is another one."""
    tls_authority: Path | None = None
    """Who vouches for the partner's server, where no public authority does."""
    tls_key: Path | None = None
    """Our key with the certificate that its server wants to see."""


@dataclass(frozen=True, slots=True)
class NewPartner:
    """The files to write for a partner, and what the checks say about them."""

    files: dict[Path, bytes]
    own_certificate: x509.Certificate
    own_file: Path | None
    """The file of our own certificate, for the partner; None where another one lies there."""
    pmodes: tuple[PMode, ...]
    certificate: x509.Certificate
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    def write(self) -> None:
        """Write the files; those that are there with the same content stay."""
        for path, content in self.files.items():
            if not path.exists():
                # A node that runs reads it whole, or not yet.
                replace_file(path, content)


def plan_partner(facts: Facts, config: Config, keyring: Keyring, *, now: datetime) -> NewPartner:
    """Make P-Modes of a partner's facts, and check them as `postroad pmode check` does.

    Certificates lie beside the key that signs. PartnerError where anything is in the way.
    """
    signing, store = keyring.signing, config.keys.signing
    if signing is None or store is None:
        raise PartnerError("keys.signing is not set. Make a key with: postroad key new")
    keys, own = store.parent, store.with_suffix(".pem")
    if config.pmodes.exists() and not config.pmodes.is_dir():
        raise PartnerError(f"{config.pmodes} is a file. Set pmodes in the node's file to a folder")
    if facts.agreement is None and facts.protocol is not Protocol.AS4:
        raise PartnerError("ebXML messages carry a CPAId. Name it with --agreement")
    certificate = _certificate(facts.certificate, now, "sign")
    recipient = certificate
    files = {keys / f"{facts.name}.pem": pem_bytes(certificate)}
    if facts.encryption_certificate is not None:
        recipient = _certificate(facts.encryption_certificate, now, "encrypt")
        files[keys / f"{facts.name}-encryption.pem"] = pem_bytes(recipient)
    if facts.tls_key is not None:
        _check_key(facts.tls_key, keyring.password)
    if facts.tls_authority is not None:
        files[keys / f"{facts.name}-tls.pem"] = b"".join(map(pem_bytes, _all(facts.tls_authority)))
    shown = own if own not in files and _holds(own, signing.certificate) else None
    if shown is not None and not own.exists():
        files[own] = pem_bytes(signing.certificate)
    writer = _Writer(facts, config, signing.certificate, shown, recipient, keys)
    pmodes = tuple(writer.pmodes())
    texts = {config.pmodes / f"{one.id}.yaml": writer.text(one).encode() for one in pmodes}
    _refuse_existing(files | texts)
    problems = _checked(config.pmodes, texts)
    remarks = [signing_remark(certificate) if facts.receives else None]
    if facts.sends and facts.encrypts and facts.protocol is Protocol.AS4:
        remarks.append(encryption_remark(recipient))
    warnings = tuple(one for one in remarks if one)
    return NewPartner(
        files | texts, signing.certificate, shown, pmodes, certificate, problems, warnings
    )


def _holds(file: Path, certificate: x509.Certificate) -> bool:
    """Whether a file is this certificate, or can become it."""
    return not file.exists() or _all(file) == (certificate,)


def _certificate(file: Path, now: datetime, purpose: Purpose) -> x509.Certificate:
    """The partner's certificate: the one of a file that issued none of the others."""
    found = _all(file)
    issuers = {one.issuer for one in found if one.issuer != one.subject}
    lowest = [one for one in found if one.subject not in issuers] or found
    if len(lowest) > 1:
        raise PartnerError(
            f"{file} has certificates of several owners. Give the one that the partner signs with"
        )
    try:
        Trust(pinned=(lowest[0],)).verify(lowest[0], (), now, purpose)
    except EbmsError as error:
        raise PartnerError(f"{error.detail}. Ask the partner for another one") from None
    return lowest[0]


def _all(file: Path) -> tuple[x509.Certificate, ...]:
    return _usable(file, load_certificates)


def _check_key(file: Path, password: bytes | None) -> None:
    _usable(file, lambda data: load_key_pair(data, password))


def _usable(file: Path, load: Callable[[bytes], _T]) -> _T:
    try:
        return load(file.read_bytes())
    except OSError as error:
        raise PartnerError(f"{file} cannot be read: {error.strerror}. Correct the name") from None
    except KeyStoreError as error:
        raise PartnerError(f"{file} cannot be used: {error}") from None


def _refuse_existing(files: dict[Path, bytes]) -> None:
    for path, content in files.items():
        if path.exists() and (path.suffix == ".yaml" or path.read_bytes() != content):
            raise PartnerError(f"{path} exists. Move it away, or give the partner another name")


def _checked(folder: Path, texts: dict[Path, bytes]) -> tuple[Problem, ...]:
    """What `postroad pmode check` says about the new files, beside those that are there."""
    there = pmode_files(folder) if folder.exists() else []
    sources = [(str(path), path.read_bytes()) for path in there]
    result = load_sources([*sources, *((str(path), text) for path, text in texts.items())])
    new = {str(path) for path in texts}
    problems = tuple(one for one in result.problems if one.file in new)
    errors = [one for one in result.errors if one.file in new]
    if errors:
        raise PartnerError(f"The P-Mode would not hold: {errors[0].message} ({errors[0].hint})")
    return problems


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the P-Modes of a partner."""

    facts: Facts
    config: Config
    own: x509.Certificate
    own_file: Path | None
    recipient: x509.Certificate
    """What the partner decrypts with."""
    keys: Path

    def pmodes(self) -> Iterator[PMode]:
        facts, us = self.facts, self.config.node
        for action in facts.sends:
            yield self._pmode(_pmode_id(us, facts.name, action), action, sends=True)
        for action in facts.receives:
            yield self._pmode(_pmode_id(facts.name, us, action), action, sends=False)

    def text(self, pmode: PMode) -> str:
        sender = self.config.node if self._sends(pmode) else self.facts.name
        receiver = self.facts.name if self._sends(pmode) else self.config.node
        action = pmode.legs[0].business_info
        what = action.action if action else ""
        return f"# {sender} sends {what} to {receiver}.\n{pmode_yaml(pmode)}"

    def _sends(self, pmode: PMode) -> bool:
        return pmode.legs[0].protocol is not None and pmode.legs[0].protocol.address is not None

    def _pmode(self, name: str, action: str, *, sends: bool) -> PMode:
        facts, as4 = self.facts, self.facts.protocol is Protocol.AS4
        us: dict[str, Any] = {
            "party": [one.model_dump(exclude_none=True) for one in self.config.party]
        }
        them: dict[str, Any] = {"party": [_typed(one, "id") for one in facts.parties]}
        for side, role, first in ((us, facts.our_role, sends), (them, facts.role, not sends)):
            usual = (INITIATOR_ROLE if first else RESPONDER_ROLE) if as4 else None
            if role or usual:
                side["role"] = role or usual
        leg = self._as4(sends) if as4 else self._ebxml(sends)
        leg["business_info"] = {"service": _typed(facts.service, "value"), "action": action}
        data: dict[str, Any] = {"id": name}
        if facts.agreement is not None:
            data["agreement"] = _typed(facts.agreement, "value")
        data |= {
            "initiator": us if sends else them,
            "responder": them if sends else us,
            "legs": [leg],
        }
        try:
            return PMode.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            raise PartnerError(f"{explain(details).message}. Correct the option") from None

    def _as4(self, sends: bool) -> dict[str, Any]:
        signature = self._signature(sends)
        x509_terms: dict[str, Any] = {"sign": True, "signature": signature}
        if self.facts.encrypts:
            x509_terms["encryption"] = self._encryption() if sends else {"encrypt": True}
        receipt: dict[str, Any] = {"reply_pattern": "response", "non_repudiation": True}
        if sends:
            receipt["certificate"] = self._file(f"{self.facts.name}.pem")
        leg: dict[str, Any] = {
            "protocol": {"soap_version": "1.2"},
            "error_handling": {"report": {"as_response": True}},
            "security": {"wss_version": "1.1", "x509": x509_terms, "send_receipt": receipt},
            "payload_service": {"compression_type": "gzip"},
        }
        if sends:
            leg["protocol"] |= self._transport()
            leg["reception_awareness"] = {"retry": {"parameters": _RETRY}}
        return leg

    def _ebxml(self, sends: bool) -> dict[str, Any]:
        receipt = {"certificate": self._file(f"{self.facts.name}.pem")} if sends else True
        leg: dict[str, Any] = {
            "security": {
                "x509": {"sign": True, "signature": self._signature(sends)},
                "send_receipt": receipt,
            },
            "ebxml": {
                "version": self.facts.protocol.version,
                "delivery_semantics": "OnceAndOnlyOnce",
                "ack_requested": "Signed",
                "sync_reply": "mshSignalsOnly",
            },
        }
        if sends:
            leg["protocol"] = self._transport()
            leg["reception_awareness"] = {"retry": {"parameters": _RETRY}}
        return leg

    def _transport(self) -> dict[str, Any]:
        transport: dict[str, Any] = {"address": self.facts.url}
        security: dict[str, Any] = {}
        if self.facts.tls_authority is not None:
            anchor = self._file(f"{self.facts.name}-tls.pem")
            security["server"] = {"anchor_certificates": [anchor]}
        if self.facts.tls_key is not None:
            key = os.path.relpath(self.facts.tls_key, self.config.pmodes)
            security["client"] = {"certificate": key}
        if security:
            transport["security"] = {"protocol": "TLS", "protocol_version": "1.2", **security}
        return transport

    def _signature(self, sends: bool) -> dict[str, Any]:
        if not sends:
            return {"pins": [self._file(f"{self.facts.name}.pem")]}
        named = {"certificate": self._file(self.own_file.name)} if self.own_file else {}
        return {**named, "algorithm": _by_key(self.own, _SIGNATURES), "hash_function": "sha256"}

    def _encryption(self) -> dict[str, Any]:
        method = _by_key(self.recipient, _KEY_METHODS)
        if method is None:
            raise PartnerError(
                "Nothing can be encrypted for the key of the partner's certificate. Ask for one"
                " with an RSA or EC key for --encryption-certificate, or add --no-encryption"
            )
        other = "-encryption" if self.facts.encryption_certificate else ""
        certificate = self._file(f"{self.facts.name}{other}.pem")
        return {"encrypt": True, "certificate": certificate, "algorithm": "aes128-gcm", **method}

    def _file(self, name: str) -> str:
        """A file of keys as P-Modes name it: relative to themselves."""
        return os.path.relpath(self.keys / name, self.config.pmodes)


def _by_key(certificate: x509.Certificate, table: Sequence[tuple[type, Any]]) -> Any:
    key = certificate.public_key()
    return next((value for kind, value in table if isinstance(key, kind)), None)


def _pmode_id(sender: str, receiver: str, action: str) -> str:
    return file_safe(f"{sender}-to-{receiver}-{action}")


def _typed(text: str, own: str) -> dict[str, str]:
    """`TYPE::VALUE`, or a value alone, as P-Modes have it."""
    kind, separator, value = text.rpartition("::")
    return {own: value, "type": kind} if separator else {own: text}
