"""The first steps: a folder with configuration, development keys and sample P-Modes."""

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from postroad.node.first_steps.devpki import issue, issue_tls, make_authority
from postroad.node.first_steps.files import KEYS, PRIVATE, PUBLIC, write_file
from postroad.node.first_steps.key_store import pem_bytes, pkcs12_bytes
from postroad.node.first_steps.profiles import Profile, samples_of
from postroad.node.first_steps.samples import Sample, config_text, order_text, pmode_text
from postroad.node.settings.can_ship import can_ship
from postroad.node.settings.config_groups import is_name
from postroad.security.keys import KeyPair

VALID_DAYS: Final = 365
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
API_PORT_ABOVE: Final = 10
"""With TLS the REST interface has a door of its own, so many ports above the other one."""

_TAKEN: Final = frozenset({"authority", "tls", "null"})
"""Names whose files would be in the way of others, and the one that YAML reads as nothing."""


class InitError(Exception):
    """Nothing was made; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class Station:
    """A party to be, and where its folder goes."""

    name: str
    folder: Path
    port: int
    party_id: str | None = None
    """Its party id, `TYPE::ID` where it has a type; None: one for samples."""

    @property
    def party(self) -> str:
        return self.party_id or f"urn:example:{self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be made."""

    first: Station
    partner: Station | None = None
    """None: the samples go from the first party to itself."""
    tls: bool = False
    client_certificates: bool = False
    ships: bool = True
    """Whether the journal is shipped, where the libraries for it are there."""
    profile: Profile | None = None
    """A conformance profile of AS4; None: samples that are pushed, both ways."""
    unsigned: bool = False
    """Whether to write sample P-Modes without signatures too."""
    own_keys: bool = False
    """Whether the party makes its own keys: no development keys and no samples then."""
    public_url: str | None = None
    """Where partners reach the first party."""

    @property
    def stations(self) -> tuple[Station, ...]:
        return (self.first, self.partner) if self.partner else (self.first,)

    @property
    def samples(self) -> list[tuple[Sample, Station, Station]]:
        """What is agreed on, with sender and receiver."""
        if self.partner is None:
            alone = samples_of(None, back=False, unsigned=self.unsigned)
            return [(one, self.first, self.first) for one in alone]
        there, back = (
            samples_of(self.profile, back=back, unsigned=self.unsigned) for back in (False, True)
        )
        return [
            *((one, self.first, self.partner) for one in there),
            *((one, self.partner, self.first) for one in back),
        ]

    def calls_only(self, station: Station) -> bool:
        """Whether nobody need reach a party."""
        client = self.profile is not None and self.profile.is_client
        return client and station == self.first


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int = PUBLIC


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a party."""

    signing: KeyPair
    tls: KeyPair


@dataclass(frozen=True, slots=True)
class DevelopmentKeys:
    """An authority, and the keys of the parties that it vouches for, by their names."""

    authority: KeyPair
    parties: Mapping[str, _Keys]


def make_keys(names: Iterable[str], *, now: datetime) -> DevelopmentKeys:
    """Make keys for some parties."""
    begin, end = now - timedelta(days=1), now + timedelta(days=VALID_DAYS)
    authority = make_authority("Development authority", now=begin)
    parties = {
        name: _Keys(
            issue(authority, name, begin=begin, end=end),
            issue_tls(authority, f"{name} TLS", begin=begin, end=end, hosts=HOSTS),
        )
        for name in names
    }
    return DevelopmentKeys(authority, parties)


def initialize(
    plan: Plan, *, now: datetime, force: bool = False, keys: DevelopmentKeys | None = None
) -> list[Path]:
    """Make the folders; the files that were written. Nothing is overwritten without `force`.

    `keys` are those of parties that have some already.
    """
    _check(plan)
    names = () if plan.own_keys else [one.name for one in plan.stations]
    files = _files(plan, keys or make_keys(names, now=now))
    there = [path for path in files if os.path.lexists(path)]
    if there and not force:
        raise InitError(
            f"{there[0]} is there already; choose another folder, or replace it with --force"
        )
    try:
        for path, file in files.items():
            path.unlink(missing_ok=True)
            write_file(path, file.content, file.mode)
    except OSError as error:
        raise InitError(f"{error.filename}: {error.strerror}; choose another folder") from None
    return list(files)


def _check(plan: Plan) -> None:
    names = [station.name for station in plan.stations]
    ports = [station.port for station in plan.stations]
    if plan.tls:
        ports += [port + API_PORT_ABOVE for port in ports]
    for name in names:
        if not is_name(name) or name.lower() in _TAKEN:
            raise InitError(
                f"{name!r} cannot be the name of a party here; give another one, of letters, "
                "digits, dots, dashes and underscores, with --party or --partner"
            )
    if len(set(names)) < len(names):
        raise InitError(f"both parties are called {names[0]}; give the partner another name")
    if len({station.folder.resolve() for station in plan.stations}) < len(names):
        raise InitError(
            f"the partner's folder would be {plan.first.folder} too; give it another name"
        )
    if not all(0 < port <= 65535 for port in ports) or len(set(ports)) < len(ports):
        shown = ", ".join(map(str, ports))
        raise InitError(
            f"the ports {shown} cannot all be used; choose others with --port and --partner-port"
        )
    if plan.profile is not None and plan.partner is None:
        raise InitError(
            f"the profile {plan.profile} is about two parties; name the other one with --partner"
        )
    if plan.own_keys and (plan.partner or plan.profile or plan.unsigned):
        raise InitError(
            "with keys of your own there are no samples; leave out --partner, --profile and "
            "--unsigned, and add partners with postroad partner add"
        )
    if plan.client_certificates and not plan.tls:
        raise InitError("client certificates are shown over TLS only; add --with-tls")


def _files(plan: Plan, keys: DevelopmentKeys) -> dict[Path, _File]:
    """Everything that is to be written."""
    files: dict[Path, _File] = {}
    if plan.own_keys:
        folder = plan.first.folder
        return {
            folder / "postroad.yaml": _File(_config(plan, plan.first).encode()),
            folder / KEYS / "api.token": _token(),
        }
    passwords = {way: secrets.token_urlsafe(18) for way in plan.samples}
    for station in plan.stations:
        folder = station.folder
        files[folder / "postroad.yaml"] = _File(_config(plan, station).encode())
        files[folder / "order.xml"] = _File(order_text().encode())
        files |= _key_files(plan, station, keys)
        for way in plan.samples:
            sample, sender, receiver = way
            text = _pmode(plan, sample, sender, receiver, at=station, password=passwords[way])
            name = sample.pmode_id(sender.name, receiver.name)
            mode = PRIVATE if sample.shows_user else PUBLIC
            files[folder / "pmodes" / f"{name}.yaml"] = _File(text.encode(), mode)
    # Whoever has this key can issue certificates that both parties believe.
    first = plan.first.folder / KEYS / "authority.p12"
    files[first] = _File(pkcs12_bytes("authority", keys.authority), PRIVATE)
    return files


def _key_files(plan: Plan, own: Station, keys: DevelopmentKeys) -> dict[Path, _File]:
    folder, its = own.folder / KEYS, keys.parties[own.name]
    files = {
        folder / "authority.pem": _File(pem_bytes(keys.authority.certificate)),
        folder / f"{own.name}.p12": _File(pkcs12_bytes(own.name, its.signing), PRIVATE),
        folder / "api.token": _token(),
    }
    for name in (station.name for station in plan.stations):
        certificate = keys.parties[name].signing.certificate
        files[folder / f"{name}.pem"] = _File(pem_bytes(certificate))
    if plan.tls:
        files[folder / "tls.p12"] = _File(pkcs12_bytes("tls", its.tls), PRIVATE)
    return files


def _token() -> _File:
    return _File(f"{secrets.token_hex(32)}\n".encode(), PRIVATE)


def _config(plan: Plan, station: Station) -> str:
    return config_text(
        name=station.name,
        party=_party_text(station.party),
        port=station.port,
        api_port=station.port + API_PORT_ABOVE,
        tls=plan.tls,
        client_certificates=plan.client_certificates,
        ships=plan.ships and can_ship(),
        calls_only=plan.calls_only(station),
        own_keys=plan.own_keys,
        public_url=_yaml_text(plan.public_url) if plan.public_url else None,
    )


def _party_text(party: str) -> str:
    """A party id as YAML."""
    kind, separator, value = party.rpartition("::")
    if separator:
        return f"{{id: {json.dumps(value)}, type: {json.dumps(kind)}}}"
    return _yaml_text(party)


def _yaml_text(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z][\w.:/-]*\w", text) else json.dumps(text)


def _pmode(
    plan: Plan, sample: Sample, sender: Station, receiver: Station, at: Station, password: str
) -> str:
    called = sender if sample.pulled else receiver
    scheme, host = ("https", "localhost") if plan.tls else ("http", "127.0.0.1")
    return pmode_text(
        sample,
        sender=sender.name,
        sender_party=sender.party,
        receiver=receiver.name,
        receiver_party=receiver.party,
        address=f"{scheme}://{host}:{called.port}/msh",
        sends=sender == at,
        tls=plan.tls,
        client_certificates=plan.client_certificates,
        password=password,
    )
