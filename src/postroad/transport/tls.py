"""TLS for both ends: from what a P-Mode or the node's config says to a context of the ssl module.

Never below TLS 1.2, and for 1.2 suites with forward secrecy unless others are asked for by name.
What OpenSSL cannot be told beforehand (the suites of TLS 1.3, a pinned certificate) is checked
once hands are shaken: `refusal` says what is wrong with a connection.
"""

import re
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from postroad.agreement.pmode import TransportSecurity
from postroad.security.certificates import UNREADABLE, read_certificate, signed_by
from postroad.security.keys import KeyPair, KeyStoreError, load_key_pair, load_trusted
from postroad.security.revocation import Revocation

Version = Literal["1.2", "1.3"]
ClientCertificates = Literal["none", "optional", "required"]

FORWARD_SECRET: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"
TLS13_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_IANA: Final = re.compile(r"TLS_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")

_T = TypeVar("_T")


class TlsError(Exception):
    """TLS cannot be set up as it is asked for; the sentence names the file or the word."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a listener speaks TLS."""

    key_file: Path
    """Key, certificate and chain: PEM, PKCS#12 or JKS."""
    key_password: str | None = field(default=None, repr=False)
    client_certificates: ClientCertificates = "none"
    authorities: tuple[Path, ...] = ()
    """Who vouches for client certificates."""
    version: Version = "1.2"
    """The least version."""
    suites: tuple[str, ...] = ()
    """OpenSSL or IANA names; none: those with forward secrecy."""
    minimum_key_size: int = 0


@dataclass(frozen=True, slots=True)
class TlsProfile:
    """How a client speaks TLS to one partner; connections are shared by equal profiles."""

    authorities: tuple[Path, ...] = ()
    """Who vouches for the server; none: the authorities of the system."""
    pins: tuple[Path, ...] = ()
    """The server has one of these very certificates."""
    key_file: Path | None = None
    """The client's own key, certificate and chain."""
    key_password: str | None = field(default=None, repr=False)
    version: Version = "1.2"
    suites: tuple[str, ...] = ()
    minimum_key_size: int = 0


class TlsContext(ssl.SSLContext):
    """An SSL context that also remembers what can be checked only after the handshake."""

    allowed: frozenset[str] = frozenset()
    """OpenSSL names of the suites; empty: any that the context offers."""
    minimum_bits: int = 0
    pinned: frozenset[bytes] = frozenset()
    revocation: Callable[[], Revocation] | None = None
    """What is known about revoked certificates when a connection is made; None: not asked."""


def profile_from_pmode(
    security: TransportSecurity | None, folder: Path, *, key_password: str | None = None
) -> TlsProfile | None:
    """The client's side of `PMode[].Protocol.Security`, where that asks for TLS.

    File names are relative to `folder`. [P2-6.4.1-01]
    """
    if security is None or security.protocol is None:
        return None
    server, client = security.server, security.client
    return TlsProfile(
        authorities=tuple(folder / name for name in server.anchor_certificates) if server else (),
        pins=(folder / server.certificate,) if server and server.certificate else (),
        key_file=folder / client.certificate if client and client.certificate else None,
        key_password=key_password,
        version=security.protocol_version or "1.2",
        suites=security.security_algorithm or (),
        minimum_key_size=security.minimum_key_size or 0,
    )


def server_context(
    tls: ServerTls,
    pair: KeyPair | None = None,
    authorities: Sequence[x509.Certificate] | None = None,
) -> TlsContext:
    """The context of a listener; `pair` and `authorities` where their files were read already."""
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    _agree(context, tls.version, tls.suites, tls.minimum_key_size)
    _present(context, tls.key_file, pair or _key_pair(tls.key_file, tls.key_password))
    if tls.client_certificates == "none":
        return context
    if not tls.authorities:
        raise TlsError(
            "client certificates are asked for, but no authority is given that vouches for them; "
            "name the file with its certificate"
        )
    if authorities is None:
        authorities = _certificates(tls.authorities, tls.key_password)
    _trust(context, authorities)
    context.verify_mode = (
        ssl.CERT_REQUIRED if tls.client_certificates == "required" else ssl.CERT_OPTIONAL
    )
    return context


def client_context(profile: TlsProfile) -> TlsContext:
    """The context for a profile, made once as long as its files stay as they are."""
    files = (*profile.authorities, *profile.pins, *filter(None, (profile.key_file,)))
    return _client_context(profile, tuple(map(_stamp, files)))


def refusal(connection: ssl.SSLObject, revocation: Revocation | None = None) -> str | None:
    """Why this connection breaks what its context demands, if it does.

    `revocation` is for contexts that are shared, and so know none.
    """
    context = connection.context
    if not isinstance(context, TlsContext):
        return None
    suite, _, bits = connection.cipher() or ("", "", 0)
    if context.allowed and suite not in context.allowed:
        return f"the cipher suite {suite} is not one of those agreed on"
    if bits < context.minimum_bits:
        return f"{suite} has keys of {bits} bits, and {context.minimum_bits} are demanded"
    if context.pinned and connection.getpeercert(binary_form=True) not in context.pinned:
        return "its certificate is not the one agreed on"
    if revocation is None and context.revocation is not None:
        revocation = context.revocation()
    if revocation is not None and not revocation.is_empty:
        return _revoked(connection, context, revocation)
    return None


def _revoked(
    connection: ssl.SSLObject, context: ssl.SSLContext, revocation: Revocation
) -> str | None:
    """That the other side's certificate was revoked, if that is known.

    The ssl module of Python 3.11 does not show the certificates between. So the list of an issuer
    counts where that is one of the authorities, and what is not known does not matter here.
    """
    shown = connection.getpeercert(binary_form=True)
    if shown is None:
        return None
    try:
        facts = read_certificate(x509.load_der_x509_certificate(shown))
        now = datetime.now(UTC)
        for der in context.get_ca_certs(binary_form=True):
            issuer = read_certificate(_certificate(der))
            if issuer.subject == facts.issuer and signed_by(facts, issuer):
                found = revocation.check(facts, issuer, now, allow_sha1=False)
                return found.detail if found.status == "revoked" else None
    except UNREADABLE:
        pass
    return None


_certificate = lru_cache(maxsize=1024)(x509.load_der_x509_certificate)


@lru_cache(maxsize=256)
def _client_context(profile: TlsProfile, stamps: tuple[tuple[int, int], ...]) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    _agree(context, profile.version, profile.suites, profile.minimum_key_size)
    pins = _certificates(profile.pins, profile.key_password)
    if profile.authorities:
        _trust(context, _certificates(profile.authorities, profile.key_password))
    elif pins:
        _trust(context, pins)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    else:
        context.load_default_certs()
    if pins:
        # The one certificate agreed on for this address says more than a name inside it.
        context.check_hostname = False
        context.pinned = frozenset(pin.public_bytes(Encoding.DER) for pin in pins)
    if profile.key_file is not None:
        _present(context, profile.key_file, _key_pair(profile.key_file, profile.key_password))
    return context


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror or error}") from None
    return status.st_mtime_ns, status.st_size


def _agree(context: TlsContext, version: Version, suites: Iterable[str], bits: int) -> None:
    """Set versions and suites; where suites are named, no other is used.

    The ssl module cannot choose among the suites of TLS 1.3. Where some of them are named beside
    older ones, 1.2 is spoken, which keeps to the list; where they stand alone, `refusal` does.
    """
    names = [_openssl_name(name.strip()) for name in suites]
    older = [name for name in names if name not in TLS13_SUITES]
    newer = [name for name in names if name in TLS13_SUITES]
    lowest = _VERSIONS["1.3"] if names and not older else _VERSIONS[version]
    highest = _VERSIONS["1.2"] if older and set(newer) != set(TLS13_SUITES) else _VERSIONS["1.3"]
    if version == "1.3" and newer:
        highest = _VERSIONS["1.3"]
    if lowest > highest:
        raise TlsError(
            f"the cipher suite {older[0]} is of TLS 1.2, and 1.3 is the least version; "
            f"name suites of 1.3: {', '.join(TLS13_SUITES)}"
        )
    context.minimum_version, context.maximum_version = lowest, highest
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.allowed = frozenset(names)
    context.minimum_bits = bits
    context.set_ciphers(":".join(older) or FORWARD_SECRET)
    strong = [item["name"] for item in context.get_ciphers() if item["strength_bits"] >= bits]
    strong_older = [name for name in strong if name not in TLS13_SUITES]
    if strong_older:
        context.set_ciphers(":".join(strong_older))
    elif not strong or highest < _VERSIONS["1.3"]:
        raise TlsError(
            f"no cipher suite that is allowed here has keys of {bits} bits; "
            "lower the minimum key size or name stronger suites"
        )


def _openssl_name(name: str) -> str:
    """The OpenSSL name of a suite that is given by it or by its IANA name."""
    if name in TLS13_SUITES:
        return name
    known = _translated(name)
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        probe.set_ciphers(f"{known}:@SECLEVEL=0")
    except ssl.SSLError:
        raise TlsError(_unknown_suite(name)) from None
    found = [item for item in probe.get_ciphers() if item["name"] == known]
    if not found:
        raise TlsError(_unknown_suite(name))
    if not found[0]["strength_bits"] or found[0]["auth"] == "auth-null":
        raise TlsError(
            f"the cipher suite {name} protects nothing (no encryption or no authentication); "
            "name another"
        )
    return known


def _unknown_suite(name: str) -> str:
    return (
        f"the cipher suite {name!r} is not known here; give its IANA name "
        "(TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) or one of those that openssl ciphers -s lists"
    )


def _translated(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 to OpenSSL."""
    parts = _IANA.fullmatch(name)
    if parts is None:
        return name
    cipher = re.sub(r"^(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", parts["cipher"])
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    cipher = cipher.replace("CCM_8", "CCM8").replace("_CBC", "")
    exchange = parts["exchange"]
    words = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return words.replace("_", "-")


def _key_pair(path: Path, password: str | None) -> KeyPair:
    secret = password.encode() if password is not None else None
    return _loaded(path, lambda data: load_key_pair(data, secret))


def _present(context: ssl.SSLContext, path: Path, pair: KeyPair) -> None:
    """Show this certificate to the other side."""
    # The ssl module reads keys from files only: this one is encrypted and gone at once.
    passing = secrets.token_urlsafe(32)
    try:
        key = pair.private_key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passing.encode())
        )
        with tempfile.NamedTemporaryFile(prefix="postroad-", suffix=".pem") as file:
            file.write(key + _pem([pair.certificate, *pair.chain]))
            file.flush()
            context.load_cert_chain(file.name, password=passing)
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise TlsError(
            f"{path}: this key or certificate cannot be used for TLS ({error}); "
            "use RSA of at least 2048 bits, EC or Ed25519"
        ) from None


def _trust(context: ssl.SSLContext, certificates: Iterable[x509.Certificate]) -> None:
    context.load_verify_locations(cadata=_pem(certificates).decode())


def _certificates(paths: Iterable[Path], password: str | None) -> list[x509.Certificate]:
    secret = password.encode() if password is not None else None
    return [
        item for path in paths for item in _loaded(path, lambda data: load_trusted(data, secret))
    ]


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(item.public_bytes(Encoding.PEM) for item in certificates)


def _loaded(path: Path, load: Callable[[bytes], _T]) -> _T:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror or error}") from None
    except KeyStoreError as error:
        raise TlsError(f"{path}: {error}") from None
