"""The files of one of the node's own keys, from the private key to the certificate.

`NAME.key` is a private key that waits for its certificate, `NAME.csr` the request for that. With
the certificate both end in `NAME.p12`, which the node reads, and `NAME.pem` is the certificate
alone, for partners. Nothing that is there is replaced unasked.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from postroad.node.first_steps.files import PRIVATE, replace_file, write_file
from postroad.node.first_steps.key_requests import (
    KeyKind,
    KeyUse,
    RequestedCertificate,
    SigningKey,
    can_decrypt,
    generate_key,
    make_request,
    self_sign,
)
from postroad.security.certificates import read_certificate
from postroad.security.key_purposes import NAMES, SIGNING, encryption_remark
from postroad.security.keys import (
    KeyPair,
    KeyStoreError,
    load_certificates,
    load_key_pair,
    load_key_pairs,
    load_opening_keys,
)
from postroad.security.trust import Purpose, Trust
from postroad.wire.errors import EbmsError

_TLS_PURPOSES: Final = frozenset((NAMES["serverAuth"], NAMES["clientAuth"]))


class KeyFileError(Exception):
    """Nothing was changed; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Where the files of a key lie."""

    folder: Path
    name: str

    @property
    def private_key(self) -> Path:
        """The private key, as long as there is no certificate."""
        return self.folder / f"{self.name}.key"

    @property
    def request(self) -> Path:
        return self.folder / f"{self.name}.csr"

    @property
    def store(self) -> Path:
        """The private key with certificate and chain."""
        return self.folder / f"{self.name}.p12"

    @property
    def certificate(self) -> Path:
        """The certificate alone: no secret."""
        return self.folder / f"{self.name}.pem"


@dataclass(frozen=True, slots=True)
class ImportedKey:
    """A key pair that was imported, what is odd about it, and the store that it replaced."""

    pair: KeyPair
    warnings: tuple[str, ...] = ()
    former: Path | None = None


def create_key(files: KeyFiles, kind: KeyKind, use: KeyUse, password: bytes | None) -> None:
    """Generate a private key that waits for its certificate."""
    key = _generated(files, kind, use)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))
    _write(files.private_key, pem, PRIVATE)


def create_self_signed(
    files: KeyFiles,
    kind: KeyKind,
    requested: RequestedCertificate,
    password: bytes | None,
    *,
    now: datetime,
    days: int,
) -> KeyPair:
    """Generate a private key with a certificate that no authority vouches for."""
    pair = self_sign(_generated(files, kind, requested.use), requested, now=now, days=days)
    _write(files.store, pkcs12_bytes(files.name, pair, password), PRIVATE)
    _write(files.certificate, pem_bytes(pair.certificate))
    return pair


def _generated(files: KeyFiles, kind: KeyKind, use: KeyUse) -> SigningKey:
    for path in (files.private_key, files.store, files.certificate):
        if path.exists():
            raise KeyFileError(f"{path} exists. Choose another name with --name")
    key = generate_key(kind)
    if use is KeyUse.ENCRYPTION and not can_decrypt(key):
        raise KeyFileError(
            f"A key of {kind} cannot decrypt. Choose rsa-3072 or ec-p256 with --kind"
        )
    return key


def create_request(
    files: KeyFiles, requested: RequestedCertificate, password: bytes | None, *, force: bool = False
) -> x509.CertificateSigningRequest:
    """Write the request for a certificate of the key that waits for one, or of the one in use."""
    request = make_request(_private_key(files, password), requested)
    content = request.public_bytes(Encoding.PEM)
    if force:
        replace_file(files.request, content)
    elif files.request.exists():
        raise KeyFileError(f"{files.request} exists. Replace it with --force")
    else:
        _write(files.request, content)
    return request


def _private_key(files: KeyFiles, password: bytes | None) -> SigningKey:
    waiting = files.private_key.exists()
    path = files.private_key if waiting else files.store
    if not path.exists():
        raise KeyFileError(f"There is no {files.private_key}. Make a key with: postroad key new")
    try:
        data = path.read_bytes()
        key = (
            load_opening_keys(data, password)[0].private_key
            if waiting
            else load_key_pair(data, password).private_key
        )
    except (KeyStoreError, OSError) as error:
        raise KeyFileError(f"{path} cannot be used: {error}") from None
    if not isinstance(key, SigningKey):
        raise KeyFileError(
            f"The key in {path} cannot sign a request. Make another: postroad key new"
        )
    return key


def import_key(
    files: KeyFiles,
    given: Sequence[Path],
    use: KeyUse,
    password: bytes | None,
    *,
    now: datetime,
    given_password: bytes | None = None,
    trusted: Sequence[x509.Certificate] = (),
    needs_chain: bool = True,
    replace: bool = False,
) -> ImportedKey:
    """Put a certificate with its private key into the store that the node reads.

    `given` has the certificate that an authority returned, and those above it, or a private key
    with its certificate from elsewhere. `trusted` are further certificates that a chain may end in.
    """
    if files.store.exists() and not replace:
        raise KeyFileError(
            f"{files.store} exists. Replace it with --replace, or choose another name with --name"
        )
    pair = _given_pair(given, given_password)
    certificates = _given_certificates(given, given_password)
    if pair is None:
        pair = _fitting(_private_key(files, password), certificates, files)
    elif files.private_key.exists():
        raise KeyFileError(
            f"{given[0]} has a private key of its own, and {files.private_key} waits for a"
            " certificate. Choose another name with --name"
        )
    above = tuple(dict.fromkeys((*pair.chain, *certificates, *trusted)))
    pair = KeyPair(pair.private_key, pair.certificate, _chain(pair, above, use, now, needs_chain))
    former = _kept_aside(files, pair, password) if files.store.exists() else None
    replace_file(files.store, pkcs12_bytes(files.name, pair, password), PRIVATE)
    replace_file(files.certificate, pem_bytes(pair.certificate))
    files.private_key.unlink(missing_ok=True)
    return ImportedKey(pair, tuple(_warnings(pair, use)), former)


def _kept_aside(files: KeyFiles, pair: KeyPair, password: bytes | None) -> Path | None:
    """Copy the store of another key: what was encrypted for that may still come in."""
    try:
        KeyPair(_private_key(files, password), pair.certificate)
        return None
    except (KeyFileError, KeyStoreError):
        number = 1
    while (former := files.folder / f"{files.name}-former-{number}.p12").exists():
        number += 1
    write_file(former, b"", PRIVATE)
    shutil.copyfile(files.store, former)
    return former


def _given_pair(given: Sequence[Path], password: bytes | None) -> KeyPair | None:
    """The key pair of the files together; None where there is no private key in them."""
    contents = [_read(path) for path in given]
    if len(given) > 1 and all(b"-----BEGIN " in one for one in contents):
        contents = [b"\n".join(contents)]
    for path, data in zip(given, contents, strict=False):
        if b"-----BEGIN " in data and b"PRIVATE KEY-----" not in data:
            continue
        try:
            pairs = load_key_pairs(data, password)
        except KeyStoreError as error:
            if "no private key inside" in str(error):
                continue
            raise KeyFileError(f"{path} cannot be used: {error}{_password_advice(error)}") from None
        if len(pairs) > 1:
            raise KeyFileError(f"{path} has {len(pairs)} private keys. Export the one to import")
        return pairs[0].pair
    return None


def _password_advice(error: KeyStoreError) -> str:
    return (
        ". Name the variable that holds it with --password-env" if "password" in str(error) else ""
    )


def _given_certificates(
    given: Sequence[Path], password: bytes | None
) -> tuple[x509.Certificate, ...]:
    found: list[x509.Certificate] = []
    for path in given:
        try:
            found += load_certificates(_read(path), password)
        except KeyStoreError as error:
            if "no certificate inside" not in str(error):
                raise KeyFileError(f"{path} cannot be used: {error}") from None
    return tuple(dict.fromkeys(found))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KeyFileError(
            f"{path} cannot be read: {error.strerror or error}. Correct the name"
        ) from None


def _fitting(key: SigningKey, certificates: Sequence[x509.Certificate], files: KeyFiles) -> KeyPair:
    """The private key with the certificate that is its own, and those above that."""
    for one in certificates:
        try:
            return KeyPair(key, one)
        except KeyStoreError:
            continue
    subjects = "; ".join(one.subject.rfc4514_string() for one in certificates[:3]) or "nobody"
    raise KeyFileError(
        f"No certificate fits the private key of {files.name}; those given are for {subjects}."
        f" Import the one that was issued for {files.request}"
    )


def _chain(
    pair: KeyPair,
    above: tuple[x509.Certificate, ...],
    use: KeyUse,
    now: datetime,
    needs_chain: bool,
) -> tuple[x509.Certificate, ...]:
    """Return the certificates above; KeyFileError where partners would not accept the lowest.

    It is in date, has a usable key usage, and its chain ends in a root.
    """
    leaf = read_certificate(pair.certificate)
    roots = tuple(one for one in above if one.subject == one.issuer)
    alone = leaf.self_issued or not needs_chain
    if not alone and not any(one.subject == pair.certificate.issuer for one in above):
        raise KeyFileError(
            f"The certificate of the issuer, {leaf.issuer_text}, is missing. Name its file beside"
            " the other one, or import without it with --without-chain"
        )
    if not alone and not roots:
        raise KeyFileError(
            f"The chain above {leaf.subject_text} ends without a root. Name the file of the root"
            " beside the others, or import without it with --without-chain"
        )
    purposes = {KeyUse.TLS: _TLS_PURPOSES, KeyUse.ENCRYPTION: None}.get(use, SIGNING)
    pinned, anchors = ((pair.certificate,), ()) if alone else ((), roots)
    trust = Trust(anchors=anchors, pinned=pinned, purposes=purposes)
    purpose: Purpose = "encrypt" if use is KeyUse.ENCRYPTION else "sign"
    try:
        found = trust.verify(pair.certificate, above, now, purpose)
    except EbmsError as error:
        raise KeyFileError(f"{error.detail}. Ask the authority for another certificate") from None
    return pair.chain if alone else found.chain[1:]


def _warnings(pair: KeyPair, use: KeyUse) -> list[str]:
    remark = encryption_remark(pair.certificate) if use is KeyUse.MESSAGES else None
    return [remark] if remark else []


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    try:
        write_file(path, content, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} exists. Choose another name with --name") from None


def _encryption(password: bytes | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password) if password else NoEncryption()


def pem_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def pkcs12_bytes(alias: str, pair: KeyPair, password: bytes | None = None) -> bytes:
    """A PKCS#12 store with one key pair and its chain."""
    return pkcs12.serialize_key_and_certificates(
        alias.encode(),
        pair.private_key,  # type: ignore[arg-type]
        pair.certificate,
        pair.chain,
        _encryption(password),
    )
