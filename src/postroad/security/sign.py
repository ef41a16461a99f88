"""Signing: a detached XML signature over header blocks, Body and attachments (WSS 1.1, SwA).

The blocks arrive as text in exclusive canonical form (see `postroad.wire.xml`): their digest is
taken over the very bytes that are sent, with no tree and no canonicalisation in between.
"""

from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from postroad.security.algorithms import (
    DIGESTS,
    SHA256,
    SIGNATURES,
    Digest,
    SignatureAlgorithm,
)
from postroad.security.attachments import CONTENT_TRANSFORM, Attachment, content_digest
from postroad.security.keys import KeyPair
from postroad.security.rawsign import sign_bytes
from postroad.security.timestamps import write_security_time
from postroad.security.tokens import TokenReference, write_signer_reference
from postroad.wire.ebms3 import Reference, Transform
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import cid_url
from postroad.wire.names import DS, EXC_C14N, WSSE, WSU
from postroad.wire.soap import SoapVersion
from postroad.wire.xml import escape_attribute

SIGNATURE_ID = "_signature"
TOKEN_ID = f"{SIGNATURE_ID}-token"
_EXCLUSIVE = (Transform(EXC_C14N),)
_CONTENT = (Transform(CONTENT_TRANSFORM),)
_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Signing:
    """How to sign: with which key, and what of it goes into the message."""

    key: KeyPair
    algorithm: str
    digest: str = SHA256
    reference: TokenReference = TokenReference.BINARY_SECURITY_TOKEN
    raw_attachments: bool = False
    """Digest attachments as they are whatever their media type."""


class Block(Struct, frozen=True):
    """A header block or the Body, in canonical form, and the id by which it is referred to."""

    id: str
    xml: str


class Signed(Struct, frozen=True):
    token: str
    signature: str
    references: tuple[Reference, ...]


def sign(
    blocks: Sequence[Block],
    attachments: Sequence[Attachment],
    signing: Signing,
    *,
    id: str = SIGNATURE_ID,
    limits: Limits = DEFAULT,
) -> Signed:
    """Sign the blocks and the attachments; ValueError when key and algorithm do not fit."""
    digest, algorithm = DIGESTS[signing.digest], SIGNATURES[signing.algorithm]
    references = (
        *[block_reference(block, digest) for block in blocks],
        *[
            Reference(
                cid_url(attachment.content_id),
                _CONTENT,
                digest.uri,
                content_digest(attachment, digest, raw=signing.raw_attachments, limits=limits),
            )
            for attachment in attachments
        ],
    )
    signed_info = write_signed_info(algorithm, references)
    value = sign_bytes(signing.key.private_key, algorithm, signed_info.encode())
    token, reference = write_signer_reference(signing.reference, signing.key, f"{id}-token")
    return Signed(token, write_signature(id, signed_info, value, reference), references)


def block_reference(block: Block, digest: Digest) -> Reference:
    """What a signature says of a block that it covers."""
    value = digest.new(block.xml.encode()).digest()
    return Reference(f"#{block.id}", _EXCLUSIVE, digest.uri, value)


def write_signed_info(algorithm: SignatureAlgorithm, references: Sequence[Reference]) -> str:
    """What is signed, in canonical form."""
    return (
        f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm="{EXC_C14N}">'
        f'</ds:CanonicalizationMethod><ds:SignatureMethod Algorithm="{algorithm.uri}">'
        f"</ds:SignatureMethod>{''.join(map(write_reference, references))}</ds:SignedInfo>"
    )


def write_signature(id: str, signed_info: str, value: bytes, key_info: str) -> str:
    """The ds:Signature with its value, and how it names its signer."""
    return (
        f'<ds:Signature xmlns:ds="{DS}" Id="{id}">{signed_info}<ds:SignatureValue>'
        f"{b2a_base64(value, newline=False).decode()}</ds:SignatureValue><ds:KeyInfo>{key_info}"
        "</ds:KeyInfo></ds:Signature>"
    )


def write_reference(reference: Reference, parameters: Mapping[str, str] = _NO_PARAMETERS) -> str:
    """A ds:Reference; `parameters` is what stands in a transform, by the transform's algorithm."""
    inside = tuple(parameters.items()) if parameters else ()
    how = _digest_how(reference.transforms, reference.digest_method, inside)
    value = b2a_base64(reference.digest_value, newline=False).decode()
    return (
        f'<ds:Reference URI="{escape_attribute(reference.uri)}">{how}'
        f"<ds:DigestValue>{value}</ds:DigestValue></ds:Reference>"
    )


@lru_cache(maxsize=64)
def _digest_how(
    transforms: tuple[Transform, ...], method: str, parameters: tuple[tuple[str, str], ...]
) -> str:
    """How a digest is taken: the same for most that are written."""
    inside = dict(parameters)
    steps = "".join(
        f'<ds:Transform Algorithm="{one.algorithm}">{inside.get(one.algorithm, "")}</ds:Transform>'
        for one in transforms
    )
    applied = f"<ds:Transforms>{steps}</ds:Transforms>" if steps else ""
    return f'{applied}<ds:DigestMethod Algorithm="{method}"></ds:DigestMethod>'


def write_security_timestamp(created: datetime, expires: datetime | None, *, id: str) -> Block:
    """A wsu:Timestamp, to be put in the Security header and signed."""
    until = f"<wsu:Expires>{write_security_time(expires)}</wsu:Expires>" if expires else ""
    return Block(
        id,
        f'<wsu:Timestamp xmlns:wsu="{WSU}" wsu:Id="{escape_attribute(id)}">'
        f"<wsu:Created>{write_security_time(created)}</wsu:Created>{until}</wsu:Timestamp>",
    )


def write_security(version: SoapVersion, pieces: Sequence[str], *, role: str | None = None) -> str:
    """The wsse:Security header block around its pieces, in their order."""
    prefix = version.prefix
    target = f' {prefix}:{version.role_name}="{escape_attribute(role)}"' if role else ""
    return (
        f'<wsse:Security xmlns:wsse="{WSSE}" xmlns:{prefix}="{version.namespace}"'
        f' {prefix}:mustUnderstand="{version.must_understand}"{target}>'
        f"{''.join(pieces)}</wsse:Security>"
    )
