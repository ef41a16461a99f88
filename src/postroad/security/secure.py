"""The way out: sign, then encrypt, then one Security header around it all, in this order."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType

from cryptography import x509
from msgspec import Struct

from postroad.security.algorithms import Digest, SignatureAlgorithm
from postroad.security.attachments import Attachment
from postroad.security.coverage import (
    AS4_COVERAGE,
    BINARY_SECURITY_TOKEN,
    USERNAME_TOKEN,
    Coverage,
    matches,
)
from postroad.security.encrypt import KEY_ID, Seal, encrypt
from postroad.security.keyestablishment import Encryption, Entropy
from postroad.security.sign import (
    SIGNATURE_ID,
    TOKEN_ID,
    Block,
    Signing,
    block_reference,
    sign,
    write_security,
    write_security_timestamp,
    write_signature,
    write_signed_info,
)
from postroad.security.tokens import (
    TokenReference,
    write_signer_reference,
    write_token_reference,
)
from postroad.wire import xml
from postroad.wire.ebms3 import Reference
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.soap import SoapVersion, write_body, write_envelope

BODY_ID = "_body"
_TIMESTAMP_ID = "_timestamp"


class Lifetime(Struct, frozen=True):
    """When a message was secured and how long it is good for."""

    created: datetime
    validity: timedelta | None = None


class Secured(Struct, frozen=True):
    envelope: bytes
    attachments: tuple[Attachment, ...]
    """As they are sent: encrypted where encryption was asked for."""
    references: tuple[Reference, ...]
    """What was signed: a receipt must name these."""
    seal: Seal | None = None


def secure(
    version: SoapVersion,
    headers: Sequence[Block],
    attachments: Sequence[Attachment],
    *,
    signing: Signing | None = None,
    encryption: Encryption | None = None,
    entropy: Entropy | None = None,
    lifetime: Lifetime | None = None,
    body_content: str = "",
    namespaces: Mapping[str, str] = MappingProxyType({}),
    tokens: Sequence[Block] = (),
    signed: Coverage = AS4_COVERAGE,
    encrypted: Coverage = AS4_COVERAGE,
    limits: Limits = DEFAULT,
) -> Secured:
    """An envelope with the headers and the Body, signed and encrypted as asked.

    `headers` are header blocks in canonical form; each with an id is signed, as are the Body and
    all attachments; where there is neither attachment nor Body content, nothing is encrypted.
    `namespaces` are those that only values in the Body use, declared on the Envelope.
    `tokens` are further pieces of the Security header (a username token), signed if they have an
    id. `signed` and `encrypted` list what else is covered, or leave out what AS4 covers.
    ValueError when keys and algorithms do not fit, encryption lacks entropy, or the message has
    no element that is listed.
    """
    body = _empty_body(version)
    if body_content:
        written = write_body(
            version, body_content, id=BODY_ID, namespaces=namespaces, limits=limits
        )
        body = Block(BODY_ID, written)
    references: tuple[Reference, ...] = ()
    sent = tuple(attachments)
    seal = None
    blocks = [block for block in headers if block.id]
    if signed.covers_body(version.body_tag):
        blocks.append(body)
    pieces: list[str] = []
    if lifetime is not None:
        expires = lifetime.created + lifetime.validity if lifetime.validity else None
        timestamp = write_security_timestamp(lifetime.created, expires, id=_TIMESTAMP_ID)
        pieces.append(timestamp.xml)
        blocks.append(timestamp)
    hidden = list(tokens) if encryption is not None and encrypted.names(USERNAME_TOKEN) else []
    open_tokens = [] if hidden else [token.xml for token in tokens]
    encrypts = encryption is not None and bool(
        [one for one in attachments if encrypted.covers_attachment(one.content_id)]
        or (body_content and encrypted.covers_body(version.body_tag))
        or hidden
    )
    signature: list[str] = []
    signer_token = ""
    if signing is not None:
        blocks += [token for token in tokens if token.id]
        if signed.names(BINARY_SECURITY_TOKEN):
            blocks += _token_blocks(signing, encryption if encrypts else None)
        _refuse_absent(signed, blocks)
        covered = [one for one in attachments if signed.covers_attachment(one.content_id)]
        made = sign(blocks, covered, signing, limits=limits)
        references = made.references
        signer_token = made.token
        signature = [made.signature]
    body_xml = body.xml
    sealed: tuple[str, ...] = ()
    if encryption is not None and encrypts:
        if entropy is None:
            raise ValueError("encryption needs a source of entropy")
        inner_start = body.xml.index(">") + 1
        inner_end = body.xml.rindex("</")
        inner = body.xml[inner_start:inner_end]
        result = encrypt(
            attachments,
            encryption,
            entropy=entropy,
            body_content=inner if inner and encrypted.covers_body(version.body_tag) else None,
            tokens=[token.xml for token in hidden],
            coverage=encrypted,
        )
        sealed = (*result.pieces, *result.tokens)
        sent = result.attachments
        seal = result.seal
        if result.body_content is not None:
            body_xml = body.xml[:inner_start] + result.body_content + body.xml[inner_end:]
    pieces += [*open_tokens, signer_token, *sealed]
    pieces += signature
    security = [write_security(version, pieces)] if any(pieces) else []
    blocks_xml = [*security, *(block.xml for block in headers)]
    envelope = write_envelope(version, blocks_xml, body_xml, namespaces=namespaces)
    return Secured(envelope, sent, references, seal)


def _token_blocks(signing: Signing, encryption: Encryption | None) -> list[Block]:
    """The binary security tokens that stand in the Security header."""
    written = [(TOKEN_ID, write_signer_reference(signing.reference, signing.key, TOKEN_ID)[0])]
    if encryption is not None:
        id = f"{KEY_ID}-token"
        written.append(
            (id, write_token_reference(encryption.reference, encryption.certificate, (), id)[0])
        )
    return [Block(id, token) for id, token in written if token]


def _refuse_absent(signed: Coverage, blocks: Sequence[Block]) -> None:
    """ValueError where something is listed that the message has not."""
    if not signed.elements:
        return
    tags = [str(xml.parse(block.xml.encode()).tag) for block in blocks]
    for name in signed.elements:
        if not any(matches(name, tag) for tag in tags):
            raise ValueError(
                f"the P-Mode lists {name.rpartition('}')[2]} to be signed, and the message has none"
            )


@lru_cache(maxsize=2)
def _empty_body(version: SoapVersion) -> Block:
    return Block(BODY_ID, write_body(version, id=BODY_ID))


class Stamp(Struct, frozen=True):
    """All of somebody's signature that cannot be written again without his key."""

    created: datetime
    certificate: x509.Certificate
    algorithm: SignatureAlgorithm
    digest: Digest
    value: bytes


def secured_by(version: SoapVersion, headers: Sequence[Block], stamp: Stamp) -> tuple[bytes, bytes]:
    """The envelope that `secure` makes of these headers with such a signature; what that signs."""
    body = _empty_body(version)
    timestamp = write_security_timestamp(stamp.created, None, id=_TIMESTAMP_ID)
    blocks = [*headers, body, timestamp]
    references = [block_reference(block, stamp.digest) for block in blocks]
    signed_info = write_signed_info(stamp.algorithm, references)
    form = TokenReference.BINARY_SECURITY_TOKEN
    token, key_info = write_token_reference(form, stamp.certificate, (), TOKEN_ID)
    signature = write_signature(SIGNATURE_ID, signed_info, stamp.value, key_info)
    security = write_security(version, [timestamp.xml, token, signature])
    envelope = write_envelope(version, [security, *[one.xml for one in headers]], body.xml)
    return envelope, signed_info.encode()
