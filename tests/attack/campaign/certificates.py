"""Certificates that are somebody else's, out of time, for another purpose, or revoked.

The P-Modes of the target pin the partner's certificate. Paths to authorities are attacked on a node
of their own, `guard`, whose P-Modes trust authorities that are made here.
"""

import base64
import contextlib
import json
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from postroad.security.algorithms import RSA_SHA256
from postroad.security.keys import KeyPair
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from tests import pki
from tests.attack.campaign import probes
from tests.attack.campaign.forged import (
    BUYER,
    accepted,
    from_buyer,
    inbox_end,
    key_pair,
    order,
    refused,
    request,
    signing,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import ATTACKER, HOST, PATIENCE, Canary, Target, head, read_answer
from tests.attack.forging import resigned
from tests.attack.messages import Package
from tests.e2e.nodes import Pair, Served
from tests.ports import free_port

_NO_PROOF: Final = "EBMS:0101"
_NOW: Final = datetime.now(UTC).replace(microsecond=0)
_DAY: Final = timedelta(days=1)
_VALID: Final[dict[str, Any]] = {
    "not_before": _NOW - 10 * _DAY,
    "not_after": _NOW + 30 * _DAY,
}
_AUTHORITY: Final[dict[str, Any]] = {
    "not_before": _NOW - 100 * _DAY,
    "not_after": _NOW + 100 * _DAY,
}
_MALLORY: Final = "urn:example:mallory"


def _issue(issuer: KeyPair | None, name: str = "buyer", **terms: Any) -> KeyPair:
    return pki.issue(issuer, name, **{**_VALID, "label": f"campaign {name}", **terms})


def _authority(name: str, **terms: Any) -> KeyPair:
    return pki.authority(name, **{**_AUTHORITY, "label": f"campaign {name}", **terms})


_ROOT: Final = _authority("Campaign Root")
_RSA_ROOT: Final = _authority("Campaign RSA Root", key="rsa")
_BETWEEN: Final = _authority("Campaign Between", issuer=_ROOT)
_NAMES: Final = x509.NameConstraints(
    permitted_subtrees=[x509.DirectoryName(pki.distinguished_name("buyer"))],
    excluded_subtrees=None,
)
_NARROW: Final = _authority("Campaign Narrow Root", extensions=((_NAMES, True),))
_REVOKED: Final = _issue(_ROOT, serial=4711, label="campaign revoked")


def _purpose(*purposes: x509.ObjectIdentifier) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    return ((x509.ExtendedKeyUsage(purposes), False),)


# A node that trusts authorities


def _pmode(name: str, party: str, anchors: list[str]) -> dict[str, Any]:
    signature = {"trust_anchors": anchors, "subjects": [party.rpartition(":")[2]]}
    leg = {
        "business_info": {"service": "urn:example:trade", "action": name},
        "security": {
            "x509": {"sign": True, "signature": signature},
            "send_receipt": {"reply_pattern": "response", "non_repudiation": True},
        },
    }
    return {
        "id": name,
        "agreement": "urn:example:agreed",
        "mep_binding": "push",
        "initiator": {"party": party},
        "responder": {"party": "urn:example:seller"},
        "legs": [leg],
    }


@contextlib.contextmanager
def _guard(target: Target) -> Iterator[Target]:
    """Start a node that trusts the authorities, in the place of the seller."""
    folder = target.folder / "guard"
    shutil.copytree(target.pair.seller.folder / "keys", folder / "keys")
    anchors = {"root": _ROOT, "rsa": _RSA_ROOT, "narrow": _NARROW}
    for name, one in anchors.items():
        (folder / "keys" / f"{name}.pem").write_bytes(pki.pem_certificates(one.certificate))
    revoked = pki.revocation_list(
        _ROOT,
        [_REVOKED.certificate],
        on=_NOW - _DAY,
        this_update=_NOW - _DAY,
        next_update=_NOW + 30 * _DAY,
    )
    (folder / "keys" / "revoked.pem").write_bytes(revoked.public_bytes(Encoding.PEM))
    config: dict[str, Any] = yaml.safe_load(target.pair.seller.config.read_text())
    listen = [{"address": f"{HOST}:{free_port()}", "serve": ["msh", "api"]}]
    config |= {"node": "guard", "listen": listen, "data": "data"}
    config["security"] |= {
        "revocation": {"crl_files": ["keys/revoked.pem"], "fetch": ["crl", "ocsp"], "wait": "PT1S"}
    }
    config["security"]["egress"]["revocation_networks"] = ["127.0.0.0/8"]
    for name in ("mail", "journal"):
        config.pop(name, None)
    (folder / "postroad.yaml").write_text(yaml.safe_dump(config))
    (folder / "pmodes").mkdir()
    some = ["../keys/root.pem", "../keys/rsa.pem"]
    agreed = [
        _pmode("anchored", BUYER, some),
        _pmode("other", _MALLORY, some),
        _pmode("narrow", BUYER, ["../keys/narrow.pem"]),
    ]
    (folder / "pmodes" / "all.yaml").write_text(json.dumps({"pmodes": agreed}))
    guard = Served("guard", folder)
    pmodes = {str(one["id"]): one for one in agreed}
    try:
        guard.start()
        yield replace(target, pair=Pair(target.pair.buyer, guard), pmodes=pmodes, requests=0)
    finally:
        if guard.process is not None:
            guard.process.kill()
            guard.ended()


def _at(guard: Target, attack: Callable[[Target], None]) -> Callable[[Target], None]:
    """Attack the guard; what must hold of the target must hold of it too."""

    def attack_guard(target: Target) -> None:
        before = guard.requests
        try:
            attack(guard)
            guard.check()
        finally:
            target.requests += guard.requests - before

    return attack_guard


# Paths


def _signed_by(
    pair: KeyPair,
    pmode: str = "anchored",
    form: TokenReference = TokenReference.BINARY_SECURITY_TOKEN,
    sender: str = BUYER,
) -> Package:
    return order(signing(pair, reference=form), pmode, sender=sender)


_PATH: Final = TokenReference.PKI_PATH


_REASONS: Final = {
    "self-signed, all names copied": "its signature was not made by",
    "self-signed": "it is self-signed",
    "an authority of the same name, PKI_PATH": "its signature was not made by",
    "an authority of the same name, BINARY_SECURITY_TOKEN": "its signature was not made by",
    "partner mallory signs as buyer": "does not name 'buyer'",
    "buyer signs as partner mallory": "does not name 'mallory'",
    "a name that begins as the partner's": "does not name 'buyer'",
    "the name in another attribute": "does not name 'buyer'",
    "expired": "it expired on",
    "not yet valid": "it is not valid before",
    "for serverAuth only": "its extended key usage (serverAuth)",
    "for OCSPSigning only": "its extended key usage (OCSPSigning)",
    "for timeStamping only": "its extended key usage (timeStamping)",
    "for codeSigning only": "its extended key usage (codeSigning)",
    "for encryption only": "its key usage (keyEncipherment)",
    "an authority that signs": "its key usage (cRLSign, keyCertSign)",
    "the anchor that signs": "its key usage (cRLSign, keyCertSign)",
    "an unknown critical extension": "its critical extension 1.3.6.1.4.1.99999.1",
    "a key of 1024 bits": "its key has 1024 bits",
    "a curve of 192 bits": "its key is on a curve of 192 bits",
    "signed with sha1": "its signature is made with SHA-1",
    "signed with md5": "its signature is made with MD5",
    "the authority in between is missing": "it is untrusted",
    "another authority in between": "it is untrusted",
    "authorities that issued each other": "it is untrusted",
    "issued by the partner, who is no authority": "its issuer CN=buyer",
    "a path that is too long": "its issuer CN=Campaign Short",
    "an issuer that may not": "its issuer CN=Campaign No Usage",
    "an authority for servers in between": "its issuer CN=Campaign Servers",
    "an expired authority in between": "its issuer CN=Campaign Old",
    "a name outside of the constraints": "its name directoryName:",
    "an alternative name outside of the constraints": "its name directoryName:",
    "an authority of another P-Mode": "it is untrusted",
    "revoked": "was revoked",
}
"""What the refusal of each must say, so that none is refused for another reason."""


def _bad() -> Iterator[tuple[str, Package]]:
    yield from _impostors()
    yield from _unfit()
    yield from _broken_paths()
    outside = _issue(_NARROW, "mallory")
    yield "a name outside of the constraints", _signed_by(outside, "narrow")
    named = x509.SubjectAlternativeName([x509.DirectoryName(pki.distinguished_name("mallory"))])
    two_faced = _issue(_NARROW, extensions=((named, False),), label="campaign two-faced")
    yield "an alternative name outside of the constraints", _signed_by(two_faced, "narrow")
    yield "an authority of another P-Mode", _signed_by(_issue(_ROOT), "narrow")
    yield "revoked", _signed_by(_REVOKED)


def _impostors() -> Iterator[tuple[str, Package]]:
    real = _issue(_ROOT).certificate
    identifier = real.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    copy: dict[str, Any] = {
        "subject": real.subject,
        "issuer_name": real.issuer,
        "serial": real.serial_number,
        "key_identifier": False,
        "extensions": ((identifier, False),),
        "label": "campaign impostor",
    }
    yield "self-signed, all names copied", _signed_by(_issue(None, **copy))
    yield "self-signed", _signed_by(_issue(None, label="campaign self-signed"))
    twin = _authority("Campaign Root", label="campaign twin of the root")
    theirs = _issue(twin, label="campaign of the twin")
    for form in (_PATH, TokenReference.BINARY_SECURITY_TOKEN):
        yield f"an authority of the same name, {form.name}", _signed_by(theirs, form=form)
    mallory = _issue(_ROOT, "mallory")
    yield "partner mallory signs as buyer", _signed_by(mallory)
    yield "buyer signs as partner mallory", _signed_by(_issue(_ROOT), "other", sender=_MALLORY)
    half = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "buyer.mallory")])
    yield "a name that begins as the partner's", _signed_by(_issue(_ROOT, subject=half))
    two = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "buyer")])
    yield "the name in another attribute", _signed_by(_issue(_ROOT, subject=two))


def _unfit() -> Iterator[tuple[str, Package]]:
    """Certificates of the right authority and name that may not sign now."""
    past = {"not_before": _NOW - 60 * _DAY, "not_after": _NOW - _DAY}
    future = {"not_before": _NOW + _DAY, "not_after": _NOW + 60 * _DAY}
    yield "expired", _signed_by(_issue(_ROOT, **past))
    yield "not yet valid", _signed_by(_issue(_ROOT, **future))
    for name, purpose in (
        ("serverAuth", ExtendedKeyUsageOID.SERVER_AUTH),
        ("OCSPSigning", ExtendedKeyUsageOID.OCSP_SIGNING),
        ("timeStamping", ExtendedKeyUsageOID.TIME_STAMPING),
        ("codeSigning", ExtendedKeyUsageOID.CODE_SIGNING),
    ):
        yield f"for {name} only", _signed_by(_issue(_ROOT, extensions=_purpose(purpose)))
    yield "for encryption only", _signed_by(_issue(_ROOT, usage=("key_encipherment",)))
    yield (
        "an authority that signs",
        _signed_by(_issue(_ROOT, usage=("key_cert_sign", "crl_sign"), is_ca=True)),
    )
    yield "the anchor that signs", _signed_by(_ROOT)
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\5\0")
    yield "an unknown critical extension", _signed_by(_issue(_ROOT, extensions=((unknown, True),)))
    yield "a key of 1024 bits", _signed_by(_issue(_ROOT, key="rsa1024"))
    yield "a curve of 192 bits", _signed_by(_issue(_ROOT, key="p192"))
    for digest in ("sha1", "md5"):
        yield f"signed with {digest}", _signed_by(_issue(_RSA_ROOT, digest=digest))


def _broken_paths() -> Iterator[tuple[str, Package]]:
    below = _issue(_BETWEEN, label="campaign below")
    yield "the authority in between is missing", _signed_by(below)
    other = _authority("Campaign Elsewhere")
    wrong = KeyPair(below.private_key, below.certificate, (other.certificate,))
    yield "another authority in between", _signed_by(wrong, form=_PATH)
    loop_a = _authority("Campaign Loop A")
    loop_b = _authority("Campaign Loop B", issuer=loop_a)
    back = _authority("Campaign Loop A", issuer=loop_b)
    leaf = _issue(back, label="campaign looped")
    chain = (back.certificate, loop_b.certificate)
    looped = KeyPair(leaf.private_key, leaf.certificate, chain)
    yield "authorities that issued each other", _signed_by(looped, form=_PATH)
    child = _issue(_issue(_ROOT), label="campaign child of a leaf")
    yield "issued by the partner, who is no authority", _signed_by(child, form=_PATH)
    short = _authority("Campaign Short", issuer=_ROOT, path_length=0)
    long = _authority("Campaign Long", issuer=short)
    yield "a path that is too long", _signed_by(_issue(long, label="campaign long"), form=_PATH)
    no_usage = _authority("Campaign No Usage", issuer=_ROOT, usage=("digital_signature",))
    yield "an issuer that may not", _signed_by(_issue(no_usage, label="campaign 1"), form=_PATH)
    server = _authority(
        "Campaign Servers",
        issuer=_ROOT,
        extensions=_purpose(ExtendedKeyUsageOID.SERVER_AUTH),
    )
    for_client = _issue(server, extensions=_purpose(ExtendedKeyUsageOID.CLIENT_AUTH))
    yield "an authority for servers in between", _signed_by(for_client, form=_PATH)
    old = _authority("Campaign Old", issuer=_ROOT, not_after=_NOW - _DAY)
    yield "an expired authority in between", _signed_by(_issue(old, label="campaign 2"), form=_PATH)


def _good() -> Iterator[tuple[str, Package, str]]:
    yield "anchored", _signed_by(_issue(_ROOT)), "anchored"
    yield "partner mallory", _signed_by(_issue(_ROOT, "mallory"), "other", sender=_MALLORY), "other"
    yield "within the constraints", _signed_by(_issue(_NARROW), "narrow"), "narrow"
    below = _issue(_BETWEEN, label="campaign below")
    yield "one in between", _signed_by(below, form=_PATH), "anchored"
    client = _purpose(ExtendedKeyUsageOID.CLIENT_AUTH)
    yield "for clientAuth", _signed_by(_issue(_ROOT, extensions=client)), "anchored"


def _paths(target: Target) -> Iterator[Case]:
    with _guard(target) as guard:
        before = inbox_end(guard)
        for name, message in _bad():
            attack = partial(_refuse, message=message, reason=_REASONS[name])
            yield Case(name, _at(guard, attack))
        yield Case("nothing of it was delivered", _at(guard, partial(undelivered, before=before)))
        for name, message, pmode in _good():
            attack = partial(_take, message=message, pmode=pmode)
            yield Case(f"control: {name}", _at(guard, attack))
        for name, message in _with_addresses(target.canary.url):
            yield Case(f"addresses in a certificate: {name}", _at(guard, _unheard(message)))
        yield Case("control: addresses in a trusted certificate", _at(guard, _fetched))
        yield Case("the other signature of ECDSA is a copy", _at(guard, _malleable))
        yield Case("all that was delivered was sent", _at(guard, Target.check_deliveries))


def _addresses(url: str) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    """Say where the lists, the responder and the issuer of a certificate are found."""
    at = x509.UniformResourceIdentifier(url)
    points = [x509.DistributionPoint([at], None, None, None)]
    found = [
        x509.AccessDescription(method, at)
        for method in (AuthorityInformationAccessOID.OCSP, AuthorityInformationAccessOID.CA_ISSUERS)
    ]
    return (
        (x509.CRLDistributionPoints(points), False),
        (x509.FreshestCRL(points), False),
        (x509.AuthorityInformationAccess(found), False),
    )


def _with_addresses(url: str) -> Iterator[tuple[str, Package]]:
    """Certificates of strangers that name an address, which nobody may contact."""
    named = _addresses(url)
    yield "self-signed", _signed_by(_issue(None, extensions=named, label="campaign addressed"))
    twin = _authority("Campaign Root", extensions=named, label="campaign addressed twin")
    theirs = _issue(twin, extensions=named, label="campaign of the addressed twin")
    for form in (_PATH, TokenReference.BINARY_SECURITY_TOKEN):
        yield f"an authority of the same name, {form.name}", _signed_by(theirs, form=form)
    nobody = _authority("Campaign Nobody", extensions=named)
    below = _issue(nobody, extensions=named, label="campaign of nobody")
    yield "an unknown authority", _signed_by(below, form=_PATH)
    child = _issue(_issue(_ROOT), extensions=named, label="campaign addressed child")
    yield "issued by the partner, who is no authority", _signed_by(child, form=_PATH)


def _unheard(message: Package) -> Callable[[Target], None]:
    """Refuse a message; `check` sees whether the address was contacted meanwhile."""
    return lambda target: _refuse(target, message)


def _fetched(target: Target) -> None:
    """The addresses in a certificate of a trusted authority are contacted."""
    listener = Canary()
    try:
        named = _addresses(listener.url)
        _take(
            target,
            _signed_by(_issue(_RSA_ROOT, extensions=named, label="campaign addressed 2")),
            "anchored",
        )
        probes.until(lambda: listener.calls, "the responder of a trusted certificate is asked")
    finally:
        listener.close()


def _refuse(target: Target, message: Package, reason: str = "") -> None:
    answer = refused(target, message, _NO_PROOF)
    if reason.encode() not in answer.body:
        raise Breach(f"expected was {reason!r}, answered {answer.body[-500:]!r}")


def _take(target: Target, message: Package, pmode: str) -> None:
    accepted(target, message, pmode)


_ORDER_OF_P256: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _malleable(target: Target) -> None:
    """Anybody can make a second value from a signature by ECDSA; it is the same message."""
    message = _signed_by(_issue(_ROOT))
    first = accepted(target, message, "anchored")
    value = message.envelope.partition(b"<ds:SignatureValue>")[2].partition(b"<")[0]
    raw = base64.b64decode(value)
    half = len(raw) // 2
    r, s = int.from_bytes(raw[:half]), int.from_bytes(raw[half:])
    other = base64.b64encode(r.to_bytes(half) + (_ORDER_OF_P256 - s).to_bytes(half))
    before = inbox_end(target)
    again = accepted(target, message.replaced(value, other), "anchored")
    if again.body != first.body:
        raise Breach("another receipt for the same message")
    undelivered(target, before)


# Pins


def _pinned(target: Target) -> Iterator[Case]:
    before = inbox_end(target)
    own, authority = key_pair(target), key_pair(target, "authority")
    real = own.certificate
    message = from_buyer(target)
    stranger = _issue(None, key="rsa", label="campaign stranger")
    copied = _issue(
        None,
        key="rsa",
        subject=real.subject,
        issuer_name=real.issuer,
        serial=real.serial_number,
        label="campaign copy",
    )
    again = _issue(authority, key="rsa", subject=real.subject, label="campaign again", **_soon())
    mallory = _issue(authority, "mallory", key="rsa", label="campaign mallory", **_soon())
    for name, pair in (
        ("a stranger", stranger),
        ("a copy of all names", copied),
        ("another certificate of the same name and authority", again),
        ("another partner of the same authority", mallory),
        ("the recipient", key_pair(target, "seller", "seller")),
    ):
        for form in TokenReference:
            forged = order(Signing(pair, RSA_SHA256, reference=form))
            yield Case(f"{name}, {form.name}", partial(_refuse, message=forged))
    stolen = resigned(
        message, signer=stranger, method=RSA_SHA256, token=real.public_bytes(Encoding.DER)
    )
    yield Case("the certificate without its key", partial(_refuse, message=stolen))
    for fill in (b"", b"0", b"\x30\x82\xff\xff", b"\xff" * 64, b"\x30\x80" * 30):
        broken = resigned(message, signer=own, method=RSA_SHA256, token=fill)
        yield Case(f"a token {fill[:8].hex()}", partial(_refuse, message=broken))
    der = real.public_bytes(Encoding.DER)
    yield Case("each byte of the certificate", partial(_refuse_tokens, message=message, der=der))
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    yield Case("control: the pinned one", partial(_take, message=message, pmode="signed"))


def _soon() -> dict[str, datetime]:
    """A time within that of an authority that was made a moment ago."""
    return {"not_before": _NOW - timedelta(hours=1), "not_after": _NOW + 30 * _DAY}


def _refuse_tokens(target: Target, message: Package, der: bytes) -> None:
    own = key_pair(target)
    for at in range(0, len(der), 11):
        other = bytearray(der)
        other[at] ^= 0x80
        forged = resigned(message, signer=own, method=RSA_SHA256, token=bytes(other))
        try:
            refused(target, forged, _NO_PROOF)
        except Breach as breach:
            raise Breach(f"byte {at}: {breach}") from None


# TLS


def _clients(target: Target) -> Iterator[Case]:
    authority = key_pair(target, "authority")
    issue = partial(_issue, authority, key="ec", **_soon())
    past = {"not_before": _NOW - 60 * _DAY, "not_after": _NOW - _DAY}
    twin = pki.issue(
        None,
        "authority",
        subject=authority.certificate.subject,
        is_ca=True,
        usage=("key_cert_sign",),
        label="campaign TLS twin",
        **_AUTHORITY,
    )
    bad = {
        "none": None,
        "self-signed": _issue(None, label="campaign TLS self-signed"),
        "of another authority": _issue(_ROOT, label="campaign TLS other"),
        "of an authority of the same name": _issue(twin, label="campaign TLS of the twin"),
        "expired": issue(label="campaign TLS expired", **past),
        "not yet valid": issue(label="campaign TLS early", not_before=_NOW + _DAY),
        "for servers only": issue(
            label="campaign TLS server", extensions=_purpose(ExtendedKeyUsageOID.SERVER_AUTH)
        ),
        "issued by a client": _issue(issue(label="campaign TLS leaf"), label="campaign TLS child"),
    }
    before = inbox_end(target)
    for name, pair in bad.items():
        yield Case(name, partial(_no_handshake, pair=pair, message=from_buyer(target)))
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    right = issue(label="campaign TLS right", extensions=_purpose(ExtendedKeyUsageOID.CLIENT_AUTH))
    yield Case("control: the right one", partial(_handshake, pair=right))
    stranger = order(signing(_issue(None, key="rsa", label="campaign stranger")))
    yield Case("the right one, a wrong signature", partial(_only_door, pair=right, forged=stranger))


def _post_as(target: Target, pair: KeyPair | None, message: Package) -> bytes | None:
    """Send a message with a client certificate; None if there was no answer."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        path = target.folder / "client.pem"
        path.write_bytes(pki.pem(pair))
        context.load_cert_chain(path)
        path.unlink()
    sent = request(message)
    target.requests += 1
    try:
        plain = socket.create_connection((HOST, target.client_tls_port), PATIENCE, (ATTACKER, 0))
        with plain, context.wrap_socket(plain) as connection:
            connection.sendall(head(sent) + sent.body)
            answer = read_answer(connection)
    except (ssl.SSLError, ConnectionError):
        return None
    return None if answer is None else answer.body


def _no_handshake(target: Target, pair: KeyPair | None, message: Package) -> None:
    if (said := _post_as(target, pair, message)) is not None:
        raise Breach(f"such a client was answered {said[:200]!r}")


def _handshake(target: Target, pair: KeyPair) -> None:
    message = from_buyer(target)
    assert message.user_message is not None
    target.sent[message.user_message.message_info.message_id] = "signed"
    said = _post_as(target, pair, message)
    if said is None or b":Receipt" not in said:
        raise Breach(f"the right client was answered {said!r}")


def _only_door(target: Target, pair: KeyPair, forged: Package) -> None:
    said = _post_as(target, pair, forged)
    if said is None or _NO_PROOF.encode() not in said or b":Receipt" in said:
        raise Breach(f"a certificate of TLS stood for a signature: {said!r}")


CLASSES: Final = (
    AttackClass("certificates: pinned", _pinned),
    AttackClass("certificates: paths, names, purposes, revocation", _paths),
    AttackClass("certificates: TLS clients", _clients),
)
