"""A node and Apache CXF side by side: what they agree on, and the messages that CXF sends."""

import base64
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from tests.e2e.nodes import Pair, Served, until
from tests.interop.java import Peer
from tests.interop.recordings import Recorder
from tests.interop.relay import Exchange, Relay, relay
from tests.ports import free_port

EB: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
SOAP: Final = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
SERVICE: Final = "urn:example:sequences"
PASSWORD: Final = "throw-away"
PATIENCE: Final = 20.0
_MESSAGE_ID: Final = re.compile(r"<eb:MessageId>([^<]+)</eb:MessageId>")
_KIND: Final = re.compile(rb"<(?:\w+:)?(CreateSequence|CloseSequence|TerminateSequence)[ >]")
_NUMBER: Final = re.compile(rb"<wsrm:MessageNumber>(\d+)</wsrm:MessageNumber>")
_ORDER: Final = '<o:order xmlns:o="urn:example:orders">2</o:order>'
_ALONE: Final = re.compile(rb"<(?:\w+:)?(SequenceAcknowledgement)[ >]")


def kind(body: bytes) -> str:
    """Return what a request is: the number of a message, or the name of a protocol message."""
    for pattern in (_KIND, _NUMBER, _ALONE):
        found = pattern.search(body)
        if found is not None:
            return found.group(1).decode()
    return "other"


def is_kind(name: str) -> Any:
    """Return a condition for `Relay.lose`."""
    return lambda body: kind(body) == name


@dataclass
class World:
    """The node is the buyer; CXF has the name and the keys of the seller."""

    pair: Pair
    peer: Peer
    recorder: Recorder

    @property
    def node(self) -> Served:
        return self.pair.buyer

    @property
    def url(self) -> str:
        """Where the node receives."""
        own = next(one for one in self.node.serving.doors if "msh" in one.serve)
        return own.url + own.path

    @property
    def security(self) -> dict[str, str]:
        """The key store of CXF, and its trust store with the authority of both parties."""
        folder = self.pair.seller.folder / "keys"
        store, trust = folder / "store.p12", folder / "trust.p12"
        if not store.exists():
            found = pkcs12.load_pkcs12((folder / "seller.p12").read_bytes(), None)
            assert found.cert is not None
            protection = BestAvailableEncryption(PASSWORD.encode())
            store.write_bytes(
                pkcs12.serialize_key_and_certificates(
                    b"seller",
                    found.key,  # type: ignore[arg-type]
                    found.cert.certificate,
                    [one.certificate for one in found.additional_certs],
                    protection,
                )
            )
            authority = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
            trusted = pkcs12.PKCS12Certificate(authority, b"authority")
            trust.write_bytes(pkcs12.serialize_java_truststore([trusted], protection))
        return {
            "keystore": str(store),
            "truststore": str(trust),
            "password": PASSWORD,
            "alias": "seller",
        }

    def agree(
        self,
        name: str,
        sender: str,
        address: str,
        *,
        soap: str = "1.2",
        signed: bool = False,
        receipt: bool = False,
        reliable: bool = True,
        acks_to: str | None = None,
        in_order: bool = True,
        max_idle: str = "PT1H",
        max_retries: int = 20,
    ) -> None:
        """Put a P-Mode into force. Its name is the action of its messages."""
        receiver = "seller" if sender == "buyer" else "buyer"
        security: dict[str, Any] = {
            "send_receipt": {"enabled": receipt, "certificate": f"../keys/{receiver}.pem"}
        }
        if receipt:
            security["send_receipt"] |= {"reply_pattern": "response", "non_repudiation": True}
        if signed:
            security["x509"] = {
                "sign": True,
                "signature": {"certificate": f"../keys/{sender}.pem"},
            }
        leg: dict[str, Any] = {
            "protocol": {"address": address, "soap_version": soap},
            "business_info": {"service": SERVICE, "action": name},
            "security": security,
        }
        if reliable:
            contract: dict[str, Any] = {"enabled": True}
            if acks_to is not None:
                contract["acks_to"] = acks_to
            pattern = "Response" if acks_to is None else "Callback"
            leg["reliability"] = {
                "protocol": "wsrm",
                "at_least_once": {"contract": contract, "reply_pattern": pattern},
                "at_most_once": True,
                "in_order": in_order,
                "max_idle": max_idle,
                "retry": {"max_retries": max_retries, "timeout": "PT0.5S", "period": "PT0.5S"},
            }
        text = yaml.safe_dump(
            {
                "id": name,
                "initiator": {"party": f"urn:example:{sender}"},
                "responder": {"party": f"urn:example:{receiver}"},
                "legs": [leg],
            }
        )
        (self.node.folder / "pmodes" / f"{name}.yaml").write_text(text)
        with self.node.client() as client:
            client.reload()

    def receiver(self, name: str, url: str | None = None, **options: Any) -> str:
        """Let CXF receive, and return its URL."""
        url = url or f"http://127.0.0.1:{free_port()}/{name}"
        found: str = self.peer.call("receiver", **{"name": name, "url": url, **options})["url"]
        return found

    def received(self, name: str) -> list[dict[str, Any]]:
        """Return what reached the application behind CXF, in that order."""
        found: list[dict[str, Any]] = self.peer.call("received", name=name)["messages"]
        for one in found:
            one["message_id"] = _found(_MESSAGE_ID, one["envelope"])
        return found

    @contextmanager
    def sender(self, name: str, relay: Relay, **options: Any) -> Iterator[None]:
        """Let CXF send through a relay until the end of the block."""
        self.peer.call("sender", **{"name": name, "address": relay.url, **options})
        try:
            yield
        finally:
            self.peer.call("stop", name=name)

    def relay(self, target: str) -> AbstractContextManager[Relay]:
        return relay(target)

    def submit(self, name: str, count: int, payload: Path) -> list[str]:
        """Submit messages to the node, and return their ids."""
        payload.write_bytes(b"<order>1</order>")
        ids = [f"{number}.{name}@buyer.example" for number in range(1, count + 1)]
        with self.node.client() as client:
            for message_id in ids:
                client.send(pmode=name, payloads=[payload], message_id=message_id)
        return ids

    def states(self, ids: list[str]) -> set[str]:
        with self.node.client() as client:
            return {str(client.status(one).state) for one in ids}

    def acknowledged(self, ids: list[str]) -> None:
        """Wait until the node knows that CXF has all messages."""
        until(lambda: self.states(ids) == {"acknowledged"}, "all are acknowledged", PATIENCE)

    def inbox(self, name: str) -> list[str]:
        """Return what reached the application behind the node, in that order."""
        with self.node.client() as client:
            return [one.message_id for one in client.inbox(pmode=name)]

    def send(
        self, sender: str, name: str, count: int, *, body: bool = False, soap: str = "1.2"
    ) -> list[str]:
        """Let CXF send messages in one sequence, and return their ids; the last one ends it."""
        ids = [f"{number}.{name}@seller.example" for number in range(1, count + 1)]
        for message_id in ids:
            last = message_id == ids[-1]
            self.send_one(sender, name, message_id, body=body, soap=soap, last=last)
        return ids

    def send_one(
        self,
        sender: str,
        name: str,
        message_id: str,
        *,
        body: bool = False,
        soap: str = "1.2",
        last: bool = False,
    ) -> dict[str, Any]:
        attachment = {
            "id": "order@seller.example",
            "type": "application/xml",
            "content": base64.b64encode(b"<order>2</order>").decode(),
        }
        return self.peer.call(
            "send",
            name=sender,
            envelope=envelope(message_id, name, soap=soap, body=body),
            attachments=[] if body else [attachment],
            last=last,
        )

    def finished(self, sender: str) -> None:
        """Wait until CXF has no open sequence left to send in."""
        until(
            lambda: not self.peer.call("sequences", name=sender)["source"],
            "the sequence is over",
            PATIENCE,
        )

    def record(self, name: str, writer: str, exchange: Exchange, *, response: bool = False) -> None:
        """Keep a message of an exchange for machines without Java."""
        keys = self.pair.seller.folder / "keys"
        found = pkcs12.load_pkcs12((keys / "seller.p12").read_bytes(), None)
        assert found.key is not None
        self.recorder.keep(
            "cxf",
            name,
            writer,
            exchange.as_response() if response else exchange.as_request(),
            trust=(keys / "authority.pem").read_bytes(),
            key=found.key.private_bytes(  # type: ignore[union-attr]
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ),
            at=exchange.at,
        )


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    assert found is not None, text
    return found.group(1)


def envelope(message_id: str, action: str, *, soap: str = "1.2", body: bool = False) -> str:
    """Return a user message of the seller's, with its payload in the Body or in an attachment."""
    must = "1" if soap == "1.1" else "true"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    href = "" if body else ' href="cid:order@seller.example"'
    media = '<eb:Property name="MimeType">application/xml</eb:Property>'
    return (
        f'<S:Envelope xmlns:S="{SOAP[soap]}"><S:Header>'
        f'<eb:Messaging xmlns:eb="{EB}" S:mustUnderstand="{must}"><eb:UserMessage>'
        f"<eb:MessageInfo><eb:Timestamp>{now}</eb:Timestamp>"
        f"<eb:MessageId>{message_id}</eb:MessageId></eb:MessageInfo><eb:PartyInfo>"
        f"<eb:From><eb:PartyId>urn:example:seller</eb:PartyId>"
        f"<eb:Role>{EB}initiator</eb:Role></eb:From>"
        f"<eb:To><eb:PartyId>urn:example:buyer</eb:PartyId>"
        f"<eb:Role>{EB}responder</eb:Role></eb:To></eb:PartyInfo><eb:CollaborationInfo>"
        f"<eb:Service>{SERVICE}</eb:Service><eb:Action>{action}</eb:Action>"
        f"<eb:ConversationId>1</eb:ConversationId></eb:CollaborationInfo><eb:PayloadInfo>"
        f"<eb:PartInfo{href}><eb:PartProperties>{media}</eb:PartProperties></eb:PartInfo>"
        f"</eb:PayloadInfo></eb:UserMessage></eb:Messaging></S:Header>"
        f"<S:Body>{_ORDER if body else ''}</S:Body></S:Envelope>"
    )
