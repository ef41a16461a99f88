"""P-Modes from files, with the certificates and keys that they name beside them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509

from postroad.agreement.loading import load_sources
from postroad.agreement.matching import PModes
from postroad.agreement.pmode import Leg, TransportIdentity
from postroad.agreement.pmode_security import X509, Security
from postroad.msh.expectation import Expectation, Material
from postroad.security.key_purposes import encryption_remark, purpose_oid, signing_remark
from postroad.security.keys import (
    KeyStoreError,
    NamedKeyPair,
    load_key_pairs,
    load_trusted,
)

_T = TypeVar("_T")
_OPENED: Final = (
    "; what P-Modes name is opened with the password of the keys: keys.password_file or "
    "keys.password_env of the node, --password-env of a command"
)


class AgreementError(Exception):
    """P-Modes that cannot be used; the message has a line per problem."""


def pmode_files(path: Path) -> list[Path]:
    """The P-Mode files of a folder, or the file itself."""
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())


@dataclass(frozen=True, slots=True)
class Agreements:
    """P-Modes, and the folder that each one's file lies in."""

    expectation: Expectation
    folders: Mapping[str, Path]
    warnings: tuple[str, ...] = ()
    """What is odd about certificates that P-Modes name, and let through."""


def load_expectation(path: Path, *, password: bytes | None = None) -> Expectation:
    """Read P-Modes and what they name; `AgreementError` when anything is wrong with them."""
    return load_agreements(path, password=password).expectation


def load_agreements(path: Path, *, password: bytes | None = None) -> Agreements:
    """Read P-Modes, what they name and where they lie; `AgreementError` as above."""
    files = pmode_files(path)
    if not files:
        said = (
            "there is no P-Mode file (*.yaml) in this folder; put one there, or remove the folder"
        )
        raise AgreementError(f"{path}: {said}")
    try:
        sources = [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise AgreementError(f"{path}: {error.strerror or error}") from None
    result = load_sources(sources)
    if not result.ok:
        raise AgreementError("\n".join(map(str, result.errors)))
    loaded = [(Path(name), pmode) for name, pmode in zip(result.files, result.pmodes, strict=True)]
    read = _Reading(password)
    materials: dict[tuple[str, int], Material] = {}
    for file, pmode in loaded:
        for number, leg in enumerate(pmode.legs, 1):
            try:
                materials[pmode.id, number] = _material(file.parent, leg, read)
            except _Unusable as wrong:
                said = f"{file}: leg {number} of the P-Mode {pmode.id} names {wrong}"
                raise AgreementError(said) from None
    folders = {pmode.id: file.parent for file, pmode in loaded}
    expectation = Expectation(PModes(result.pmodes), materials)
    return Agreements(expectation, folders, tuple(_remarks(materials)))


def _remarks(materials: Mapping[tuple[str, int], Material]) -> Iterator[str]:
    for (name, _), material in materials.items():
        remarks = [
            *map(signing_remark, (*material.pins, *material.answering)),
            *map(encryption_remark, material.recipients),
        ]
        yield from (f"{name}: {one}" for one in dict.fromkeys(remarks) if one is not None)


def _material(folder: Path, leg: Leg, read: "_Reading") -> Material:
    """What a leg names, which lies relative to the folder of its file."""
    security = leg.security or Security()
    terms = security.x509 or X509()
    transport = leg.protocol.security if leg.protocol else None
    client = (transport.client if transport else None) or TransportIdentity()
    signature, encryption = terms.signature, terms.encryption
    pins: list[x509.Certificate] = []
    anchors: list[x509.Certificate] = []
    recipients: list[x509.Certificate] = []
    keys: list[NamedKeyPair] = []
    if signature is not None:
        named = [*([signature.certificate] if signature.certificate else ()), *signature.pins]
        pins = read.certificates(folder, named)
        anchors = read.certificates(folder, signature.trust_anchors)
    if encryption is not None and encryption.certificate:
        recipients = read.certificates(folder, [encryption.certificate])
    if encryption is not None and encryption.key:
        keys = read.keys(folder, [encryption.key])
    signing: list[NamedKeyPair] = []
    if signature is not None and signature.key:
        signing = read.keys(folder, [signature.key])
    receipt = security.send_receipt
    answering = [receipt.certificate] if receipt and receipt.certificate else []
    return Material(
        tuple(pins),
        tuple(anchors),
        tuple(recipients),
        tuple(named.pair for named in keys),
        signing[0].pair if signing else None,
        tuple(read.certificates(folder, answering)),
        frozenset((signature.subjects if signature else None) or ()),
        frozenset((signature.policies if signature else None) or ()),
        frozenset(map(purpose_oid, (signature.purposes if signature else None) or ())),
        tuple(read.certificates(folder, [client.certificate] if client.certificate else [])),
        tuple(read.certificates(folder, client.anchor_certificates)),
    )


class _Unusable(Exception):
    """A file that a P-Mode names: its name, why, and what to do."""


class _Reading:
    """Reads certificates and keys, each file once: opening a key store takes its time."""

    def __init__(self, password: bytes | None) -> None:
        self._certificates: dict[Path, tuple[x509.Certificate, ...]] = {}
        self._keys: dict[Path, tuple[NamedKeyPair, ...]] = {}
        self._password = password

    def certificates(self, folder: Path, names: Iterable[str]) -> list[x509.Certificate]:
        files = [folder / name for name in names]
        return [one for file in files for one in _once(file, self._certificates, self._trusted)]

    def keys(self, folder: Path, names: Iterable[str]) -> list[NamedKeyPair]:
        files = [folder / name for name in names]
        return [one for file in files for one in _once(file, self._keys, self._load_keys)]

    def _load_keys(self, data: bytes) -> tuple[NamedKeyPair, ...]:
        return load_key_pairs(data, self._password)

    def _trusted(self, data: bytes) -> tuple[x509.Certificate, ...]:
        return load_trusted(data, self._password)


def _once(
    file: Path, known: dict[Path, tuple[_T, ...]], load: Callable[[bytes], tuple[_T, ...]]
) -> tuple[_T, ...]:
    if file not in known:
        try:
            known[file] = load(file.read_bytes())
        except OSError as error:
            reason = error.strerror or error
            said = f"{file}, which cannot be read: {reason}; correct the name, or put it there"
            raise _Unusable(said) from None
        except KeyStoreError as error:
            said = f"{file}, which cannot be used: {error}"
            raise _Unusable(f"{said}{_OPENED}" if "password" in said else said) from None
    return known[file]
