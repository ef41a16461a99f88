"""The files that a configuration names: keys, trust, tokens and secrets, TLS identities."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509

from postroad.agreement.loading import Problem
from postroad.agreement.parameters import Path as Place
from postroad.node.settings.config import Config, ConfigError
from postroad.node.settings.config_groups import Tls
from postroad.security.keys import (
    BareKey,
    KeyPair,
    KeyStoreError,
    load_key_pair,
    load_opening_keys,
    load_trusted,
)
from postroad.security.revocation import RevocationError, RevocationList, load_lists

_T = TypeVar("_T")

SHORT_TOKEN: Final = 16
_OTHERS: Final = 0o077
_MAKE_ONE: Final = "make one with: openssl rand -hex 32"


@dataclass(frozen=True, slots=True)
class Keyring:
    """What the node proves itself with, opens messages with, and whom it trusts."""

    signing: KeyPair | None = None
    opening: tuple[KeyPair | BareKey, ...] = ()
    trust: tuple[x509.Certificate, ...] = ()
    revocation_lists: tuple[RevocationList, ...] = ()
    api_token: str | None = field(default=None, repr=False)
    webhook_secret: bytes | None = field(default=None, repr=False)
    password: bytes | None = field(default=None, repr=False)
    """Of all key files, those that P-Modes name too."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """With what a door shows who it is, and who vouches for its clients."""

    pair: KeyPair
    client_authorities: tuple[x509.Certificate, ...] = ()


def load_keyring(config: Config) -> Keyring:
    """Read what the settings name; `ConfigError` tells of every file that cannot be used."""
    reading = _Reading(config)
    keys = config.keys
    password = reading.password()
    signing = reading.signing(password) if keys.signing else None
    opening: list[KeyPair | BareKey] = [signing] if signing and keys.decryption is None else []
    for index, file in enumerate(keys.decryption or ()):
        found = reading.use(
            ("keys", "decryption", index), file, lambda data: load_opening_keys(data, password)
        )
        opening += found or ()
        reading.private(("keys", "decryption", index), file)
    reading.warnings += stale(signing, "keys.signing") if signing else ()
    keyring = Keyring(
        signing,
        tuple(opening),
        reading.certificates(("trust",), config.trust, password),
        reading.revocation_lists(),
        reading.token(),
        reading.secret(),
        password,
        tuple(dict.fromkeys(reading.warnings)),
    )
    reading.end()
    return keyring


def key_password(config: Config) -> bytes | None:
    """Read the password of the key files; None where they have none. `ConfigError` as above."""
    reading = _Reading(config)
    password = reading.password()
    reading.end()
    return password


def door_tls(config: Config) -> tuple[tuple[Place, Tls | None], ...]:
    """The TLS settings of the doors with their places, last that of mail where there is one."""
    doors: list[tuple[Place, Tls | None]] = [
        (("listen", number, "tls"), door.tls) for number, door in enumerate(config.listen)
    ]
    if config.mail is not None:
        doors.append((("mail", "tls"), config.mail.tls))
    return tuple(doors)


def load_tls(config: Config) -> tuple[TlsIdentity | None, ...]:
    """The TLS identity of each door, None where it has no TLS; `ConfigError` as above."""
    reading = _Reading(config)
    password = reading.password()
    found = tuple(
        reading.tls(place, tls, password) if tls else None for place, tls in door_tls(config)
    )
    reading.end()
    return found


def tls_warnings(config: Config) -> tuple[str, ...]:
    """What partners will say against the certificates of the doors."""
    named = zip(door_tls(config), load_tls(config), strict=True)
    return tuple(
        warning
        for (place, _), identity in named
        if identity is not None
        for warning in stale(identity.pair, config.problem(place, "", "").message.rstrip(": "))
    )


def stale(pair: KeyPair, name: str, now: datetime | None = None) -> tuple[str, ...]:
    """What is to be said of a certificate that holds no more, or not yet."""
    certificate, now = pair.certificate, now or datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begin <= now <= end:
        return ()
    when = f"expired on {end:%Y-%m-%d}" if now > end else f"is not valid before {begin:%Y-%m-%d}"
    who = certificate.subject.rfc4514_string() or "without a name"
    said = f"the certificate {who} of {name} {when}, and partners refuse it"
    return (f"{said}; get a new one, and put it in its place",)


def check_files(config: Config) -> None:
    """What a setting names is there; `ConfigError` if not. Without the setting it need not be."""
    advice = {
        "pmodes": "make the folder and put P-Modes there, or remove the setting",
        "routes": "write the rules, or remove the setting: then nothing is passed on",
    }
    problems = [
        config.problem((name,), f"{path} is not there", said)
        for name, said in advice.items()
        if name in config.model_fields_set and not (path := getattr(config, name)).exists()
    ]
    if problems:
        raise ConfigError(problems)


def keyring_files(config: Config) -> set[Path]:
    """The files that `load_keyring` reads."""
    keys = config.keys
    named = (
        keys.signing,
        *(keys.decryption or ()),
        keys.password_file,
        *config.trust,
        config.token_file,
        config.webhook.secret_file if config.webhook else None,
        *config.security.revocation.crl_files,
        *crl_files(config.security.revocation.crl_files),
    )
    return {file for file in named if file is not None}


def crl_files(paths: Iterable[Path]) -> list[Path]:
    """Return the named files, and the files in named folders."""
    found: list[Path] = []
    for path in paths:
        try:
            found += sorted(filter(_is_list, path.iterdir())) if path.is_dir() else [path]
        except OSError:
            # Who reads it says what is wrong.
            found.append(path)
    return found


def _is_list(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def tls_files(config: Config) -> set[Path]:
    """The files that `load_tls` reads."""
    named: list[Path | None] = [config.keys.password_file]
    for _, tls in door_tls(config):
        if tls is not None:
            named += [tls.certificate, tls.key, *tls.client_authorities]
    return {file for file in named if file is not None}


class _Reading:
    """Reads files and collects what is wrong with them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._problems: list[Problem] = []
        self.warnings: list[str] = []

    def end(self) -> None:
        if self._problems:
            raise ConfigError(sorted(self._problems, key=lambda one: (one.line, one.column)))

    def _problem(self, place: Place, message: str, advice: str) -> None:
        self._problems.append(self._config.problem(place, message, advice))

    def use(self, place: Place, file: Path, load: Callable[[bytes], _T]) -> _T | None:
        """What a file holds; None after its problem was noted."""
        try:
            return load(file.read_bytes())
        except OSError as error:
            reason = error.strerror or str(error)
            self._problem(place, f"{file} cannot be read: {reason}", "correct the name or the file")
        except RevocationError as error:
            self._problem(place, f"{file} cannot be used", str(error))
        except KeyStoreError as error:
            advice = str(error)
            if "password" in advice:
                advice += "; its password belongs into keys.password_file or keys.password_env"
            self._problem(place, f"{file} cannot be used", advice)
        return None

    def private(self, place: Place, file: Path) -> None:
        """Warn of a secret that others on the machine can read."""
        try:
            open_to_others = file.stat().st_mode & _OTHERS
        except OSError:
            return
        if os.name == "posix" and open_to_others:
            name = self._config.problem(place, "", "").message.rstrip(": ")
            self.warnings.append(
                f"{file} ({name}) can be read by others on this machine; run: chmod 600 {file}"
            )

    def certificates(
        self, place: Place, files: Iterable[Path], password: bytes | None
    ) -> tuple[x509.Certificate, ...]:
        """The certificates of several files, each once."""
        found: dict[x509.Certificate, None] = {}
        for index, file in enumerate(files):
            read = self.use((*place, index), file, lambda data: load_trusted(data, password))
            found.update(dict.fromkeys(read or ()))
        return tuple(found)

    def password(self) -> bytes | None:
        keys = self._config.keys
        if keys.password_env is not None:
            value = os.environ.get(keys.password_env)
            if value is None:
                place = ("keys", "password_env")
                self._problem(
                    place,
                    f"the environment has no variable {keys.password_env}",
                    "set it before the node starts",
                )
            return value.encode() if value is not None else None
        return self._line(("keys", "password_file"), keys.password_file)

    def _line(self, place: Place, file: Path | None) -> bytes | None:
        """The first line of a secret file."""
        if file is None:
            return None
        self.private(place, file)
        data = self.use(place, file, lambda data: data)
        if data is None:
            return None
        line = data.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].removesuffix(b"\r")
        if not line:
            self._problem(place, f"{file} is empty", "write the secret into its first line")
        return line

    def signing(self, password: bytes | None) -> KeyPair | None:
        keys = self._config.keys
        assert keys.signing is not None
        place = ("keys", "signing")
        self.private(place, keys.signing)
        return self.use(
            place, keys.signing, lambda data: load_key_pair(data, password, keys.signing_alias)
        )

    def token(self) -> str | None:
        """The token of the REST interface, which is served to nobody without one."""
        place, file = ("api", "token_file"), self._config.token_file
        if file is not None and not file.exists():
            self._problem(
                place,
                f"the REST interface needs a token, and {file} is not there",
                f"make one with: openssl rand -hex 32 > {file}; or write serve: [msh] in listen",
            )
            return None
        line = self._line(place, file)
        if not line:
            return None
        token = line.strip()
        if not token:
            self._problem(place, f"the token in {file} is empty", _MAKE_ONE)
            return None
        if not (token.isascii() and all(0x21 <= byte <= 0x7E for byte in token)):
            self._problem(
                place, f"the token in {file} has characters that HTTP cannot carry", _MAKE_ONE
            )
            return None
        if len(token) < SHORT_TOKEN:
            self.warnings.append(f"the token in {file} is short and could be guessed; {_MAKE_ONE}")
        return token.decode()

    def revocation_lists(self) -> tuple[RevocationList, ...]:
        """The lists of all files; one that ran out is worth a warning."""
        settings = self._config.security.revocation
        found: list[RevocationList] = []
        for index, path in enumerate(settings.crl_files):
            place = ("security", "revocation", "crl_files", index)
            for file in crl_files([path]):
                found += self._lists(place, file, settings.list_bytes)
        return tuple(found)

    def _lists(self, place: Place, file: Path, most: int) -> tuple[RevocationList, ...]:
        try:
            size = file.stat().st_size
        except OSError:
            size = 0
        if size > most:
            self._problem(place, f"{file} is larger than {most:,} bytes", "raise list_bytes")
            return ()
        read = self.use(place, file, load_lists)
        now = datetime.now(UTC)
        for one in read or ():
            if one.next_update is not None and one.next_update < now:
                self.warnings.append(
                    f"the revocation list in {file} ran out on {one.next_update:%Y-%m-%d}, "
                    "and proves nothing any more; get the new one"
                )
        return read or ()

    def secret(self) -> bytes | None:
        webhook = self._config.webhook
        return self._line(("webhook", "secret_file"), webhook.secret_file if webhook else None)

    def tls(self, place: Place, tls: Tls, password: bytes | None) -> TlsIdentity | None:
        self.private((*place, "key" if tls.key else "certificate"), tls.key or tls.certificate)
        named = (*place, "client_authorities")
        authorities = self.certificates(named, tls.client_authorities, password)
        if tls.key is None:
            pair = self.use(
                (*place, "certificate"),
                tls.certificate,
                lambda data: load_key_pair(data, password),
            )
            return TlsIdentity(pair, authorities) if pair else None
        chain = self.use(
            (*place, "certificate"), tls.certificate, lambda data: load_trusted(data, password)
        )
        if chain is None:
            return None
        pair = self.use((*place, "key"), tls.key, lambda data: _pair(chain, data, password))
        return TlsIdentity(pair, authorities) if pair else None


def _pair(chain: tuple[x509.Certificate, ...], key: bytes, password: bytes | None) -> KeyPair:
    """A key from one file with its certificate from another, which stands first there."""
    private_key = load_opening_keys(key, password)[0].private_key
    return KeyPair(private_key, chain[0], chain[1:])
