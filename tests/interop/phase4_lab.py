"""A Postroad node and phase4 in one place: their keys, their P-Modes, and how they send.

    lab.agree(Case("signed"))
    lab.send("signed", order)            # from Postroad to phase4
    lab.peer_send("signed", order)       # from phase4 to Postroad

Each case is an action of its own, agreed on in both directions. `POSTROAD` and `PHASE4` are the
two parties; every suite of algorithms has its own keys on both sides, made here.
"""

import hashlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.api.client import Client, Payload
from postroad.api.client_values import Message
from postroad.cli.demo.phase4 import FACTORIES
from postroad.security.keys import KeyPair
from tests import pki
from tests.e2e.nodes import Served
from tests.interop import java
from tests.ports import ABOVE, free_port

PEER: Final = "phase4 4.4.1"
"""The product and its version, as the matrix names them; interop/phase4/pom.xml has it too."""
POSTROAD: Final = "urn:example:postroad"
PHASE4: Final = "urn:example:phase4"
ROLES: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
SERVICE: Final = "urn:example:interoperability"
AGREEMENT: Final = "urn:example:agreement"
PASSWORD: Final = "a secret of the tests"
PATIENCE: Final = 60.0
_VALID: Final = {
    "not_before": datetime(2020, 1, 1, tzinfo=UTC),
    "not_after": datetime(2045, 1, 1, tzinfo=UTC),
}
AUTHORITY: Final = pki.authority("Interop authority", **_VALID)
STRANGERS: Final = pki.authority("Interop authority of strangers", **_VALID)


class Suite(NamedTuple):
    """Algorithms that belong together, as Postroad and as phase4 name them."""

    signing_key: str
    encryption_key: str
    signature: str
    peer_signature: str
    encryption: Mapping[str, str]
    peer_agreement: str = "none"


_TRANSPORT: Final = {"key_transport": "rsa-oaep", "digest": "sha256", "mgf": "mgf1sha256"}
_DERIVED: Final = {"key_derivation": "hkdf", "digest": "sha256", "key_wrap": "kw-aes128"}
_ECDH: Final = {"key_agreement": "ecdh-es", **_DERIVED}
SUITES: Final[Mapping[str, Suite]] = {
    "rsa": Suite("rsa", "rsa", "rsa-sha256", "rsa-sha-256", _TRANSPORT),
    "rsa-pss": Suite("rsa", "rsa", "rsa-pss-sha256", "rsa-sha-256-mgf1", _TRANSPORT),
    "p256": Suite("p256", "p256", "ecdsa-sha256", "ecdsa-sha-256", _ECDH, "ecdh-es"),
    "brainpool": Suite("brainpool", "brainpool", "ecdsa-sha256", "ecdsa-sha-256", _ECDH, "ecdh-es"),
    "ed25519": Suite(
        "ed25519",
        "x25519",
        "eddsa-ed25519",
        "eddsa-ed25519",
        {"key_agreement": "x25519", **_DERIVED},
        "x25519",
    ),
}
_UNUSED: Final = {
    "id": "unused",
    "initiator": {"party": PHASE4},
    "responder": {"party": POSTROAD},
    "legs": [{"business_info": {"service": SERVICE, "action": "unused"}}],
}
"""A node does not start without a P-Mode."""
TOKENS: Final = {
    "binary_security_token": "bst",
    "pki_path": "pkipath",
    "issuer_serial": "issuer-serial",
    "subject_key_identifier": "ski-key-id",
    "thumbprint": "thumbprint-id",
}
"""How a certificate is referred to, as Postroad and as phase4 name it."""


@dataclass(frozen=True, slots=True)
class Case:
    """What both sides agree on; the name is the action."""

    name: str
    suite: str = "rsa"
    sign: bool = True
    encrypt: bool = False
    compress: bool = False
    token: str = "binary_security_token"
    tls: bool = False
    address: str | None = None
    """Where Postroad sends to instead of phase4's own port."""
    peer_keys: str | None = None
    """The key set with which phase4 receives, if not that of the suite."""
    signer: str = POSTROAD
    """Whose key Postroad signs with."""
    recipient: str = PHASE4
    """For whom Postroad encrypts."""
    known_to_peer: bool = True
    retries: Mapping[str, Any] = field(default_factory=lambda: {"max_retries": 0})


def pair_of(party: str, suite: str, use: str = "signing") -> KeyPair:
    """A party's key pair of a suite, to sign or to decrypt with."""
    names = SUITES[suite]
    kind = names.signing_key if use == "signing" else names.encryption_key
    name = party.rpartition(":")[2]
    authority = STRANGERS if name == "stranger" else AUTHORITY
    cn = f"{name} {suite}" if kind == names.signing_key else f"{name} {suite} encryption"
    usage = ("key_agreement",) if kind == "x25519" else None
    return pki.issue(authority, cn, key=kind, label=cn, usage=usage, **_VALID)  # type: ignore[arg-type]


def _kind(pair: KeyPair) -> str:
    """Return how a key pair is stored: `cryptography` writes no X25519 keys into PKCS#12."""
    return "pem" if isinstance(pair.private_key, X25519PrivateKey) else "p12"


def tls_pair(name: str) -> KeyPair:
    usages = x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    hosts = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    )
    extensions = ((usages, False), (hosts, False))
    return pki.issue(AUTHORITY, f"{name} tls", extensions=extensions, **_VALID)  # type: ignore[arg-type]


@dataclass
class Lab:
    """A running node and a running phase4."""

    folder: Path
    node: Served
    peer: java.Peer
    http: int
    https: int
    cases: dict[str, Case] = field(default_factory=dict)
    pmodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    def url(self, *, tls: bool = False) -> str:
        """Where Postroad receives."""
        doors = [one for one in self.node.serving.doors if "msh" in one.serve]
        [door] = [one for one in doors if one.url.startswith("https" if tls else "http:")]
        return door.url + door.path

    def peer_url(self, keys: str, *, tls: bool = False) -> str:
        """Where phase4 receives with one of its key sets."""
        scheme, port = ("https", self.https) if tls else ("http", self.http)
        return f"{scheme}://127.0.0.1:{port}/as4/{keys}"

    def agree(self, *cases: Case) -> None:
        """Make P-Modes of cases on both sides, in both directions."""
        for case in cases:
            self.cases[case.name] = case
            self.pmodes[f"to-{case.name}"] = self._pmode(case, "to")
            self.pmodes[f"from-{case.name}"] = self._pmode(case, "from")
            if case.known_to_peer:
                self.peer.call("pmode", **self.peer_mode(case))
        self.reload()

    def add(self, pmode: dict[str, Any], peer_mode: dict[str, Any]) -> None:
        """Make a P-Mode of another kind on both sides."""
        self.pmodes[pmode["id"]] = pmode
        self.peer.call("pmode", **peer_mode)
        self.reload()

    def reload(self) -> None:
        """Bring the P-Modes into force."""
        text = json.dumps({"pmodes": list(self.pmodes.values())}, indent=1)
        (self.folder / "pmodes" / "all.yaml").write_text(text)
        with self.node.client() as client:
            client.reload()

    def peer_mode(self, case: Case) -> dict[str, Any]:
        """Return what phase4 is told about a case."""
        suite = SUITES[case.suite]
        mode: dict[str, Any] = {
            "id": case.name,
            "service": SERVICE,
            "action": case.name,
            "agreement": AGREEMENT,
            "from": POSTROAD,
            "fromRole": f"{ROLES}initiator",
            "to": PHASE4,
            "toRole": f"{ROLES}responder",
            "url": self.peer_url(case.suite),
        }
        if case.sign:
            mode["sign"] = suite.peer_signature
        if case.encrypt:
            mode["encrypt"] = "aes128-gcm"
        return mode

    def _pmode(self, case: Case, way: str) -> dict[str, Any]:
        sender, receiver = (POSTROAD, PHASE4) if way == "to" else (PHASE4, POSTROAD)
        address = case.address or (
            self.peer_url(case.peer_keys or case.suite, tls=case.tls)
            if way == "to"
            else self.url(tls=case.tls)
        )
        protocol: dict[str, Any] = {"address": address, "soap_version": "1.2"}
        if case.tls:
            anchors = {"anchor_certificates": ["../keys/authority.pem"]}
            own = {"certificate": "../keys/tls.p12"} if way == "to" else {}
            protocol["security"] = {"protocol": "TLS", "server": anchors, "client": anchors | own}
        leg: dict[str, Any] = {
            "protocol": protocol,
            "business_info": {"service": SERVICE, "action": case.name},
            "error_handling": {"report": {"as_response": True}},
            "security": self.security(case, sender, receiver),
            "reception_awareness": {"retry": {"parameters": dict(case.retries)}},
        }
        if case.compress:
            leg["payload_service"] = {"compression_type": "gzip"}
        return {
            "id": f"{way}-{case.name}",
            "agreement": AGREEMENT,
            "mep_binding": "push",
            "initiator": {"party": sender, "role": f"{ROLES}initiator"},
            "responder": {"party": receiver, "role": f"{ROLES}responder"},
            "legs": [leg],
        }

    def security(self, case: Case, sender: str, receiver: str) -> dict[str, Any]:
        receipt: dict[str, Any] = {"reply_pattern": "response"}
        if not case.sign:
            return {"send_receipt": receipt}
        suite = SUITES[case.suite]
        signer = case.signer if sender == POSTROAD else sender
        signature = {
            "certificate": self.certificate(signer, case.suite, "signing"),
            "algorithm": suite.signature,
            "hash_function": "sha256",
            "key_reference": case.token,
        }
        if sender == POSTROAD:
            signature["key"] = self._key(signer, case.suite, "signing")
        x509s: dict[str, Any] = {"sign": True, "signature": signature}
        if case.encrypt:
            recipient = case.recipient if receiver == PHASE4 else receiver
            encryption = {
                "encrypt": True,
                "certificate": self.certificate(recipient, case.suite, "encryption"),
                "algorithm": "aes128-gcm",
                **suite.encryption,
            }
            if receiver == POSTROAD:
                encryption["key"] = self._key(receiver, case.suite, "encryption")
            x509s["encryption"] = encryption
        receipt |= {
            "non_repudiation": True,
            "certificate": self.certificate(receiver, case.suite, "signing"),
        }
        return {"wss_version": "1.1", "x509": x509s, "send_receipt": receipt}

    def certificate(self, party: str, suite: str, use: str) -> str:
        """Write a certificate and return its path, as a P-Mode names it."""
        path = self.keys / f"{party.rpartition(':')[2]}-{suite}-{use}-certificate.pem"
        path.write_bytes(pki.pem_certificates(pair_of(party, suite, use).certificate))
        return f"../keys/{path.name}"

    def _key(self, party: str, suite: str, use: str) -> str:
        """Write a private key with its certificates and return its path, as a P-Mode names it."""
        pair = pair_of(party, suite, use)
        path = self.keys / f"{party.rpartition(':')[2]}-{suite}-{use}.{_kind(pair)}"
        path.touch(mode=0o600)
        path.write_bytes(pki.pem(pair) if path.suffix == ".pem" else pki.p12(pair))
        return f"../keys/{path.name}"

    def give_keys(
        self, suite: str, *, name: str | None = None, signer: str = PHASE4, reader: str = PHASE4
    ) -> None:
        """Give phase4 a key set: whose key signs and whose decrypts, and whom it trusts."""
        partner = [pair_of(POSTROAD, suite, use).certificate for use in ("signing", "encryption")]
        trust = self.keys / f"trust-{suite}.pem"
        trust.write_bytes(pki.pem_certificates(AUTHORITY.certificate, *dict.fromkeys(partner)))
        files = {"provider": "BC"} if suite == "brainpool" else {}
        for role, use, owner in (
            ("sign", "signing", signer),
            ("decrypt", "encryption", reader),
        ):
            pair = pair_of(owner, suite, use)
            path = self.keys / f"java-{owner.rpartition(':')[2]}-{suite}-{use}.{_kind(pair)}"
            is_pem = path.suffix == ".pem"
            path.write_bytes(pki.pem(pair) if is_pem else pki.p12(pair, PASSWORD.encode(), use))
            files[role] = str(path)
        self.peer.call("keys", name=name or suite, password=PASSWORD, trust=str(trust), **files)

    def sign_receipts_with(self, suite: str) -> None:
        """Change the node's own key: receipts and errors are signed with it in every P-Mode."""
        (self.keys / "node.p12").write_bytes(pki.p12(pair_of(POSTROAD, suite)))
        with self.client() as client:
            client.reload()

    def client(self) -> Client:
        return self.node.client()

    def send(
        self, case: str, *payloads: bytes | Path, media_type: str = "application/xml"
    ) -> Message:
        """Send from Postroad to phase4 and wait until the message is settled."""
        parts = [Payload(one, media_type=media_type) for one in payloads]
        with self.client() as client:
            return client.send(pmode=f"to-{case}", payloads=parts, wait=PATIENCE).message

    def peer_send(
        self,
        case: str,
        *payloads: bytes | Path,
        media_type: str = "application/xml",
        **changes: Any,
    ) -> dict[str, Any]:
        """Send from phase4 to Postroad and return what phase4 reports."""
        agreed = self.cases[case]
        suite = SUITES[agreed.suite]
        request: dict[str, Any] = {
            "keys": agreed.suite,
            "url": self.url(tls=agreed.tls),
            "agreement": AGREEMENT,
            "service": SERVICE,
            "action": case,
            "from": PHASE4,
            "fromRole": f"{ROLES}initiator",
            "to": POSTROAD,
            "toRole": f"{ROLES}responder",
            "payloads": [
                {
                    "file": str(self.payload_file(one)),
                    "compress": agreed.compress,
                    "mimeType": media_type,
                }
                for one in payloads
            ],
        }
        if agreed.sign:
            request |= {"sign": suite.peer_signature, "token": TOKENS[agreed.token]}
        if agreed.encrypt:
            certificate = self.certificate(POSTROAD, agreed.suite, "encryption")
            request |= {
                "encrypt": "aes128-gcm",
                "encryptFor": str(self.folder / "pmodes" / certificate),
                "keyAgreement": suite.peer_agreement,
            }
        if agreed.tls:
            request["tls"] = self.peer_tls()
        return self.peer.call("send", **(request | changes))

    def peer_tls(self) -> dict[str, str]:
        return {
            "key": str(self.keys / "java-tls.p12"),
            "password": PASSWORD,
            "trust": str(self.keys / "authority.pem"),
        }

    def payload_file(self, payload: bytes | Path) -> Path:
        if isinstance(payload, Path):
            return payload
        path = self.folder / "payloads" / hashlib.sha256(payload).hexdigest()
        path.write_bytes(payload)
        return path

    def peer_received(self, message_id: str) -> dict[str, Any]:
        """Return what phase4's application got under a message id."""
        answer = self.peer.call("received", messageId=message_id)
        [found] = answer["messages"]
        received: dict[str, Any] = found
        return received


def digests(payloads: Sequence[bytes]) -> list[str]:
    return [hashlib.sha256(one).hexdigest() for one in payloads]


@contextmanager
def laboratory(folder: Path, suites: Sequence[str]) -> Iterator[Lab]:
    """Start a node and phase4, both with keys for these suites."""
    java.build("phase4")
    for name in ("keys", "pmodes", "payloads", "phase4"):
        (folder / name).mkdir()
    keys = folder / "keys"
    (keys / "authority.pem").write_bytes(pki.pem_certificates(AUTHORITY.certificate))
    (keys / "tls.p12").write_bytes(pki.p12(tls_pair("postroad")))
    (keys / "java-tls.p12").write_bytes(pki.p12(tls_pair("phase4"), PASSWORD.encode(), "tls"))
    for name in ("node.p12", "reader.p12"):
        (keys / name).write_bytes(pki.p12(pair_of(POSTROAD, "rsa")))
    (keys / "api.token").write_text("token-of-the-tests")
    for secret in ("node.p12", "reader.p12", "api.token"):
        (keys / secret).chmod(0o600)
    (folder / "pmodes" / "all.yaml").write_text(json.dumps({"pmodes": [_UNUSED]}))
    node = Served("postroad", folder)
    node.config.write_text(json.dumps(_config(), indent=1))
    with ExitStack() as stack:
        node.begin()
        stack.callback(_end, node)
        peer = java.start(
            "phase4", "Main", folder / "phase4", log=folder / "phase4.log", properties=FACTORIES
        )
        stack.callback(peer.stop)
        info = peer.call("info")
        assert f"phase4 {info['version']}" == PEER
        lab = Lab(folder, node, peer, info["port"], 0)
        lab.https = peer.call("listen", **lab.peer_tls())["port"]
        for suite in suites:
            lab.give_keys(suite)
        node.ready()
        yield lab


def _end(node: Served) -> None:
    if node.process is not None:
        node.end(signal.SIGKILL)


def _config() -> dict[str, Any]:
    port, tls_port = free_port(), free_port()
    tls = {
        "certificate": "keys/tls.p12",
        "client_certificates": "required",
        "client_authorities": ["keys/authority.pem"],
    }
    return {
        "node": "postroad",
        "party": POSTROAD,
        "data": "data",
        "pmodes": "pmodes",
        "keys": {"signing": "keys/node.p12", "decryption": ["keys/reader.p12"]},
        "trust": ["keys/authority.pem"],
        "listen": [
            {"address": f"127.0.0.1:{port}", "serve": ["msh"], "path": "/msh"},
            {"address": f"127.0.0.1:{tls_port}", "serve": ["msh"], "path": "/msh", "tls": tls},
            {"address": f"127.0.0.1:{port + ABOVE}", "serve": ["api"]},
        ],
        "api": {"token_file": "keys/api.token"},
        "log": {"format": "text"},
    }
