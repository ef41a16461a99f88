"""Name constraints: in which names an authority may vouch for others (RFC 5280, 4.2.1.10).

Honoured in anchors as well as in the certificates below them. Beyond the alternative names, these
count as RFC 5280 and OpenSSL have it: the subject as a directory name, and e-mail addresses in it.
So does a common name that looks like a host name or an e-mail address: for OpenSSL only where there
is no alternative name of that kind, here always, since a party is known by its common name too.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID

from postroad.security.certificates import CertificateFacts
from postroad.security.distinguished import NameKey, name_key, relative_names

_Kind = type[x509.GeneralName]

_KINDS: Final[dict[_Kind, str]] = {
    x509.DirectoryName: "directoryName",
    x509.DNSName: "DNS",
    x509.RFC822Name: "email",
    x509.UniformResourceIdentifier: "URI",
    x509.IPAddress: "IP",
}
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?\.)+[A-Za-z0-9-]+\.?")
_MOST_COMPARED: Final = 100_000
"""Names times subtrees: more would be an attack on the one who compares."""


def name_violation(path: Sequence[CertificateFacts]) -> str | None:
    """Say which name breaks a constraint above it; None if none does.

    `path` leads from the certificate up to the anchor. A certificate in between that an authority
    issued to itself is not bound by what is above it. [RFC 5280, 6.1.3]
    """
    compared = 0
    for place, issuer in enumerate(path):
        if issuer.constraints is None:
            continue
        for number, below in enumerate(path[:place]):
            if number and below.self_issued:
                continue
            compared += (len(below.names) + 3) * _size(issuer.constraints)
            if compared > _MOST_COMPARED:
                return f"the name constraints of {issuer.subject_text} are too many to check"
            wrong = _broken(below, issuer.constraints, leaf=number == 0)
            if wrong is not None:
                whose = "its" if number == 0 else f"the {below.subject_text}'s"
                return f"{whose} name {wrong} by the name constraints of {issuer.subject_text}"
    return None


def _size(constraints: x509.NameConstraints) -> int:
    return len(constraints.permitted_subtrees or ()) + len(constraints.excluded_subtrees or ())


def _broken(
    below: CertificateFacts, constraints: x509.NameConstraints, *, leaf: bool
) -> str | None:
    permitted = constraints.permitted_subtrees or []
    excluded = constraints.excluded_subtrees or []
    for kind, value in _names(below, leaf=leaf):
        outside = [one.value for one in excluded if _is_of(kind, value, one)]
        if any(_is_within(kind, value, base, unsure=True) for base in outside):
            return f"{_shown(kind, value)} is excluded"
        inside = [one.value for one in permitted if _is_of(kind, value, one)]
        if inside and not any(_is_within(kind, value, base, unsure=False) for base in inside):
            return f"{_shown(kind, value)} is not permitted"
    return None


def _names(facts: CertificateFacts, *, leaf: bool) -> Iterator[tuple[_Kind, object]]:
    """All names that constraints apply to."""
    for name in facts.names:
        value = name.value
        if isinstance(name, x509.DirectoryName):
            value = _directory(name.value)
        yield type(name), name if isinstance(name, x509.OtherName) else value
    if facts.subject:
        yield x509.DirectoryName, facts.subject
    attributes = [attribute for rdn in facts.subject for attribute in rdn]
    for oid, text in attributes:
        if oid == NameOID.EMAIL_ADDRESS.dotted_string:
            yield x509.RFC822Name, text
    for oid, text in attributes if leaf else ():
        if oid == NameOID.COMMON_NAME.dotted_string:
            if _HOST.fullmatch(text):
                yield x509.DNSName, text
            elif "@" in text:
                yield x509.RFC822Name, text


def _is_of(kind: _Kind, value: object, subtree: x509.GeneralName) -> bool:
    """Whether a subtree is about names of a kind."""
    if isinstance(value, x509.OtherName) and isinstance(subtree, x509.OtherName):
        return value.type_id == subtree.type_id
    return kind is type(subtree)


def _is_within(kind: _Kind, value: object, base: object, *, unsure: bool) -> bool:
    """Whether a name is in a subtree; `unsure` is the answer where that cannot be told."""
    if isinstance(value, tuple) and isinstance(base, x509.Name):
        bound = _directory(base)
        return value[: len(bound)] == bound
    if kind is x509.DNSName:
        return _is_below(str(value), str(base))
    if kind is x509.RFC822Name:
        return _is_mailbox_within(str(value), str(base), unsure=unsure)
    if kind is x509.UniformResourceIdentifier:
        host = _uri_host(str(value))
        return unsure if host is None else _is_host_within(host, str(base))
    if kind is x509.IPAddress:
        return _is_address_within(value, base, unsure=unsure)
    return unsure


def _directory(name: x509.Name) -> NameKey:
    return name_key(relative_names(name.public_bytes()))


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _is_below(host: str, base: str) -> bool:
    """Whether a DNS name is the base or below it; with a dot before the base, only below it."""
    host, base = _plain(host), _plain(base)
    return not base or host == base or host.endswith(f".{base.lstrip('.')}")


def _is_host_within(host: str, base: str) -> bool:
    """Whether a host is the one that is named, or below the domain that begins with a dot."""
    if base.startswith("."):
        return _plain(host).endswith(_plain(base))
    return not base or _plain(host) == _plain(base)


def _is_mailbox_within(address: str, base: str, *, unsure: bool) -> bool:
    local, _, host = address.rpartition("@")
    if not local or not host:
        return unsure
    mailbox, at, domain = base.rpartition("@")
    if at:
        return local.lower() == mailbox.lower() and _plain(host) == _plain(domain)
    return _is_host_within(host, domain)


def _uri_host(uri: str) -> str | None:
    """The host of a URI; None where it has none, or an address instead of a name."""
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return None
    try:
        ip_address(host)
    except ValueError:
        return host or None
    return None


def _is_address_within(value: object, base: object, *, unsure: bool) -> bool:
    if not isinstance(base, IPv4Network | IPv6Network):
        return unsure
    if not isinstance(value, IPv4Address | IPv6Address):
        return unsure
    return value.version == base.version and value in base


def _shown(kind: _Kind, value: object) -> str:
    text = value if isinstance(value, str) else _text(value)
    printable = "".join(one if one.isprintable() else "?" for one in text)
    return f"{_KINDS.get(kind, kind.__name__)}:{printable[:200]}"


def _text(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return ",".join(text for rdn in reversed(value) for _, text in sorted(rdn))
