"""The demo's partner that does not run Postroad: phase4, where Java and Maven are found.

It is fetched and started beside the first scenes, since Maven may take a while the first time.
"""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    pkcs12,
)

from postroad.cli import java_peer
from postroad.cli.java_peer import Peer
from postroad.security.keys import KeyPair

NAME: Final = "phase4"
ORDER: Final = "buyer-to-phase4-order"
CONFIRMATION: Final = "phase4-to-buyer-confirmation"
_PARTY: Final = f"urn:example:{NAME}"
_BUYER: Final = "urn:example:buyer"
_SERVICE: Final = "urn:example:purchasing"
_AGREEMENT: Final = "urn:example:agreement:phase4"
_PASSWORD: Final = "a secret of the demo"
FACTORIES: Final = {
    "javax.xml.transform.TransformerFactory": (
        "com.sun.org.apache.xalan.internal.xsltc.trax.TransformerFactoryImpl"
    ),
    "javax.xml.parsers.DocumentBuilderFactory": (
        "com.sun.org.apache.xerces.internal.jaxp.DocumentBuilderFactoryImpl"
    ),
}
"""phase4 looks these up on the class path for every message otherwise."""


@dataclass(frozen=True, slots=True)
class Partner:
    """A running phase4 with keys of its own, and the buyer's node."""

    peer: Peer
    folder: Path
    address: str
    version: str

    def received(self, message_id: str) -> dict[str, Any]:
        """Return what phase4's application got under a message id."""
        [found] = self.peer.call("received", messageId=message_id)["messages"]
        return dict(found)

    def confirm(self, order_id: str, content: bytes, buyer: str, buyer_pem: Path) -> dict[str, Any]:
        """Let phase4 send a signed and encrypted confirmation; return what it reports."""
        file = self.folder / "confirmation.xml"
        file.write_bytes(content)
        return self.peer.call(
            "send",
            **_header(CONFIRMATION, _PARTY, _BUYER),
            url=buyer,
            keys=NAME,
            refToMessageId=order_id,
            sign="rsa-sha-256",
            encrypt="aes128-gcm",
            encryptFor=str(buyer_pem),
            payloads=[{"file": str(file), "compress": True}],
        )


def begin(folder: Path, keys: KeyPair, trust: Path, stack: ExitStack) -> Future[Partner]:
    """Start phase4 aside, with its keys and the certificates that it trusts."""
    folder.mkdir(parents=True)
    with_one = ThreadPoolExecutor(1)
    started = with_one.submit(_started, folder, keys, trust)
    with_one.shutdown(wait=False)
    stack.callback(_stop, started)
    return started


def _started(folder: Path, keys: KeyPair, trust: Path) -> Partner:
    store = folder / "keys.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            NAME.encode(),
            keys.private_key,  # type: ignore[arg-type]
            keys.certificate,
            None,
            BestAvailableEncryption(_PASSWORD.encode()),
        )
    )
    data = folder / "data"
    data.mkdir()
    peer = java_peer.start(
        NAME, "Main", data.resolve(), log=folder / "peer.log", properties=FACTORIES
    )
    info = peer.call("info")
    files = {"sign": str(store.resolve()), "decrypt": str(store.resolve())}
    peer.call("keys", name=NAME, password=_PASSWORD, trust=str(trust.resolve()), **files)
    address = f"http://127.0.0.1:{info['port']}/as4/{NAME}"
    for mode in (_header(ORDER, _BUYER, _PARTY), _header(CONFIRMATION, _PARTY, _BUYER)):
        peer.call(
            "pmode",
            **mode,
            id=mode["action"],
            url=address,
            sign="rsa-sha-256",
            encrypt="aes128-gcm",
        )
    return Partner(peer, folder.resolve(), address, str(info["version"]))


def _stop(started: Future[Partner]) -> None:
    if started.cancel() or started.exception() is not None:
        return
    started.result().peer.stop()


def agree(pmodes: Path, partner: Partner, certificate: KeyPair, own_address: str) -> None:
    """Write the buyer's two P-Modes: orders to phase4, confirmations from it."""
    pem = pmodes.parent / "keys" / f"{NAME}.pem"
    pem.write_bytes(certificate.certificate.public_bytes(Encoding.PEM))
    (pmodes / f"{ORDER}.yaml").write_text(_pmode(ORDER, "buyer", NAME, partner.address))
    (pmodes / f"{CONFIRMATION}.yaml").write_text(_pmode(CONFIRMATION, NAME, "buyer", own_address))


def digest(content: bytes) -> str:
    """Return the SHA-256 digest of a payload in hex, the form in which phase4 reports it."""
    return hashlib.sha256(content).hexdigest()


def _header(action: str, sender: str, receiver: str) -> dict[str, str]:
    return {
        "agreement": _AGREEMENT,
        "service": _SERVICE,
        "action": action,
        "from": sender,
        "fromRole": sender.rpartition(":")[2],
        "to": receiver,
        "toRole": receiver.rpartition(":")[2],
    }


def _pmode(action: str, sender: str, receiver: str, address: str) -> str:
    def key(party: str) -> str:
        return f", key: ../keys/{party}.p12" if party == "buyer" else ""

    return f"""\
# {sender} sends to {receiver}: signed, encrypted and compressed, with a signed receipt.
id: {action}
agreement: {_AGREEMENT}
initiator: {{party: "urn:example:{sender}", role: {sender}}}
responder: {{party: "urn:example:{receiver}", role: {receiver}}}
legs:
  - protocol: {{address: "{address}"}}
    business_info: {{service: {_SERVICE}, action: {action}}}
    payload_service: {{compression_type: gzip}}
    security:
      x509:
        sign: true
        signature: {{certificate: ../keys/{sender}.pem{key(sender)}}}
        encryption: {{encrypt: true, certificate: ../keys/{receiver}.pem{key(receiver)}}}
      send_receipt: {{non_repudiation: true, certificate: ../keys/{receiver}.pem}}
"""
