"""The good message that every attack begins with, ways to write it down, and the look at it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from postroad.msh.report import report
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.security.algorithms import ECDSA_SHA256, RSA_OAEP, RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.coverage import AS4_COVERAGE, Coverage
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import BytesContent, read_all
from postroad.wire.ebms3 import (
    COMPRESSION_TYPE,
    GZIP,
    MIME_TYPE,
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    Reference,
    Service,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import cid_url
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.changing import replace

Report = dict[str, Any]

NOW: Final = pki.NOW
VERSION: Final = SoapVersion.SOAP_12
BOUNDARY: Final = "attack-boundary-1"
ROOT_ID: Final = "root@buyer.example"
ACTION: Final = "NewOrder"
FORGED_ACTION: Final = "SendMoney"
BODY: Final = '<o:Order xmlns:o="urn:example:order"><o:Pay>100</o:Pay></o:Order>'


@cache
def ca() -> KeyPair:
    return pki.authority("Attack CA")


@cache
def buyer(kind: str = "ec") -> KeyPair:
    """The rightful signer."""
    return pki.issue(ca(), "buyer", key=kind, label=f"attack buyer {kind}")


@cache
def seller() -> KeyPair:
    """The rightful recipient."""
    return pki.issue(ca(), "seller", key="rsa", label="attack seller")


def entropy() -> Any:
    """Bytes that look random and are the same in every run."""
    count = 0

    def give(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"entropy {count}".encode()).digest(size)

    return give


@dataclass(frozen=True, slots=True)
class Part:
    """A MIME part as it is written, however wrong."""

    content_id: str | None
    content_type: str
    content: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Transfer-Encoding", "binary"),)

    def write(self) -> bytes:
        lines = [f"Content-Type: {self.content_type}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.content_id is not None:
            lines.append(f"Content-ID: <{self.content_id}>")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + self.content


@dataclass(frozen=True, slots=True)
class Package:
    """A message that can be taken apart and put together again in other ways."""

    envelope: bytes
    parts: tuple[Part, ...] = ()
    references: tuple[Reference, ...] = ()
    user_message: UserMessage | None = None

    def wire(self, *, start: str | None = ROOT_ID, head: str = "") -> bytes:
        """The message as one HTTP request."""
        root = Part(ROOT_ID, f"{VERSION.media_type}; charset=UTF-8", self.envelope)
        return write_mime([root, *self.parts], start=start, head=head)

    def replaced(self, old: str | bytes, new: str | bytes, count: int = -1) -> "Package":
        """With other text in the envelope; it must have been there."""
        before = old.encode() if isinstance(old, str) else old
        after = new.encode() if isinstance(new, str) else new
        assert before in self.envelope, f"{old!r} is not in the envelope"
        return replace(self, envelope=self.envelope.replace(before, after, count))

    def with_parts(self, *parts: Part) -> "Package":
        return replace(self, parts=parts)


def write_mime(parts: Sequence[Part], *, start: str | None = ROOT_ID, head: str = "") -> bytes:
    begun = f'; start="<{start}>"' if start is not None else ""
    line = f"--{BOUNDARY}".encode()
    body = b"".join(line + b"\r\n" + part.write() + b"\r\n" for part in parts) + line + b"--\r\n"
    return http(
        f'multipart/related; type="{VERSION.media_type}"; boundary="{BOUNDARY}"{begun}',
        body,
        head=head,
    )


def http(content_type: str, body: bytes, *, head: str = "") -> bytes:
    return (
        f"POST /msh HTTP/1.1\r\nHost: seller.example\r\n{head}"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def soap(envelope: bytes) -> bytes:
    """An envelope without attachments as one HTTP request."""
    return http(f"{VERSION.media_type}; charset=UTF-8", envelope)


def payload(name: str, content: bytes, media_type: str = "application/octet-stream") -> Attachment:
    return Attachment(f"{name}@buyer.example", BytesContent(content), media_type)


def part_info(attachment: Attachment) -> PartInfo:
    """Tells of the attachment, and that it is compressed where it is."""
    if attachment.media_type == GZIP:
        packed = (Property(MIME_TYPE, "text/plain"), Property(COMPRESSION_TYPE, GZIP))
        return PartInfo(cid_url(attachment.content_id), packed)
    return PartInfo(cid_url(attachment.content_id), (Property(MIME_TYPE, attachment.media_type),))


def user_message(
    part_infos: Sequence[PartInfo] = (), *, id: str = "order-1@buyer.example"
) -> UserMessage:
    return UserMessage(
        MessageInfo(NOW, id),
        Party((PartyId("urn:example:buyer"),), INITIATOR_ROLE),
        Party((PartyId("urn:example:seller"),), RESPONDER_ROLE),
        CollaborationInfo(Service("urn:example:purchasing"), ACTION, "conversation-1"),
        (Property("originalSender", "urn:example:buyer"),),
        tuple(part_infos),
    )


TWO: Final = (payload("one", b"pay 100 to Alice"), payload("two", b"pay 200 to Bob  "))


def make(
    attachments: Sequence[Attachment] = (),
    *,
    body: str = "",
    signer: KeyPair | None = None,
    signing: Signing | None = None,
    unsigned: bool = False,
    encryption: Encryption | None = None,
    lifetime: timedelta | None = timedelta(hours=1),
    created: datetime = NOW,
    listed: Sequence[PartInfo] | None = None,
    id: str = "order-1@buyer.example",
    encrypted: Coverage = AS4_COVERAGE,
) -> Package:
    """A message that holds in every way, unless it is told otherwise."""
    infos = list(listed) if listed is not None else [part_info(one) for one in attachments]
    if listed is None and body:
        infos.append(PartInfo(None, (Property(MIME_TYPE, "application/xml"),)))
    message = user_message(infos, id=id)
    made = secure(
        VERSION,
        [Block("_messaging", write_messaging(Messaging((message,), id="_messaging"), VERSION))],
        attachments,
        signing=None if unsigned else (signing or Signing(signer or buyer(), ECDSA_SHA256)),
        encryption=encryption,
        entropy=entropy(),
        lifetime=Lifetime(created, lifetime) if lifetime is not None else None,
        body_content=body,
        encrypted=encrypted,
    )
    parts = tuple(
        Part(one.content_id, one.media_type, read_all(one.content, 1 << 30))
        for one in made.attachments
    )
    return Package(made.envelope, parts, made.references, message)


def for_seller(**terms: Any) -> Encryption:
    return Encryption(seller().certificate, key=terms.pop("key", RSA_OAEP), **terms)


def rsa_signing(**terms: Any) -> Signing:
    return Signing(buyer("rsa"), terms.pop("algorithm", RSA_SHA256), **terms)


PMODE: Final = """\
id: attacked
mep: oneWay
mep_binding: push
initiator: {party: "urn:example:buyer"}
responder: {party: "urn:example:seller"}
legs:
  - protocol: {soap_version: 1.2}
    security:
      wss_version: 1.1
      x509:
        sign: true
"""


def write_pmode(folder: Path) -> Path:
    """A P-Mode that demands a signature, in a file."""
    path = folder / "attacked.yaml"
    path.write_text(PMODE)
    return path


def look(
    message: bytes | Package,
    *,
    keys: tuple[KeyPair, ...] = (),
    trust: tuple[KeyPair, ...] | None = None,
    at: datetime | None = NOW,
    limits: Limits = DEFAULT,
    allow_legacy: bool = False,
    **more: Any,
) -> Report:
    """What `postroad.inspect` tells of it, for one who trusts the authority."""
    data = message.wire() if isinstance(message, Package) else message
    trusted = (ca(),) if trust is None else trust
    tools = Tools(
        trust=tuple(one.certificate for one in trusted),
        keys=keys,
        at=at,
        allow_legacy=allow_legacy,
        limits=limits,
        **more,
    )
    return report(inspect_source(data, tools))


def failures(found: Report) -> list[dict[str, Any]]:
    return [error for error in found["errors"] if error["severity"] == "failure"]


def _told(found: Report) -> str:
    return "\n".join(
        f"  {e['severity']} {e['code']} {e['location']}: {e['detail']}" for e in found["errors"]
    )


def assert_refused(found: Report, *codes: str) -> None:
    """It does not hold, for one of these reasons, and each problem is told with its place."""
    told = _told(found)
    assert not found["holds"], f"it holds\n{told}"
    assert failures(found), "it does not hold and nothing says why"
    for error in found["errors"]:
        assert error["detail"], f"no sentence\n{told}"
        assert error["location"], f"no place\n{told}"
    if codes:
        assert {e["code"] for e in failures(found)} & set(codes), f"expected {codes}, found\n{told}"


def assert_holds(found: Report) -> None:
    told = _told(found)
    assert found["holds"], told
    assert found["signature"]["valid"] is True, told
    assert found["signature"]["trusted"] is True, told
