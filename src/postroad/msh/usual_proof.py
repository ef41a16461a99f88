"""Signed receipts in the form in which Postroad writes them, taken apart without a tree.

What Postroad writes is in canonical form from the start. Of such a receipt everything but a few
values is known beforehand, so it is not parsed: it is written once more, from those values and
from what was sent, and compared. If the two are the same bytes, then the receipt is about exactly
the message that was sent, its digests hold, and what remains is its signature's value.

Whatever else there is, good or bad, is unusual and gives None: it is then looked at as a whole, as
every message is. So nothing is ever refused here. One thing is not looked at that a whole look
sees: what stands in the Security header of the sent message beside the signature and is not
signed, its encryption. That is no part of what a receipt is about.
"""

import string
from binascii import a2b_base64, b2a_base64
from collections import deque
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from struct import Struct as Cutting
from typing import Final, NamedTuple

from msgspec import Struct

from postroad.msh.outbound import MESSAGING_ID
from postroad.security.algorithms import SHA256, SIGNATURES, STRONG, SignatureAlgorithm
from postroad.security.attachments import CONTENT_TRANSFORM
from postroad.security.secure import BODY_ID
from postroad.security.tokens import X509_V3
from postroad.wire.names import BASE64_BINARY, DS, EB3, EBBP, EXC_C14N, WSSE, WSU
from postroad.wire.soap import SoapVersion, write_body

_LARGEST: Final = 256 * 1024
_DIGEST: Final = 44
"""Characters of a SHA-256 digest in base64."""
_LARGEST_TOKEN: Final = 16 * 1024
_REMEMBERED: Final = 1024
"""So many parties, each with a token no larger than that."""
_WAYS: Final = 4
"""In which one party begins: with more attachments, or without any."""
_MOST_PIECES: Final = 100
_PLAIN: Final = 5
"""Pieces of a beginning that may differ, where there are no attachments."""
_LETTERS: Final = string.ascii_letters.encode()
_BASE64: Final = _LETTERS + b"0123456789+/"
_IN_IDS: Final = bytes(set(range(0x21, 0x7F)) - set(b'"&<>@'))
_IN_NAMES: Final = bytes(set(range(0x21, 0x7F)) - set(b'"&<>%'))
_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_TIMES: Final = frozenset((b"0000-00-00T00:00:00.000Z", b"0000-00-00T00:00:00.000000Z"))
"""How times are written, all digits taken for 0."""
_METHODS: Final = {
    uri.encode(): one for uri, one in SIGNATURES.items() if STRONG.refuse(uri) is None
}

_STAMP: Final = (
    f'<wsu:Timestamp xmlns:wsu="{WSU}" wsu:Id="_timestamp"><wsu:Created>'.encode()
)  # fmt: skip
_STAMP_END: Final = b"</wsu:Timestamp>"
_CREATED_END: Final = b"</wsu:Created>"
_CREATED: Final = b"0000-00-00T00:00:00.000Z" + _CREATED_END
"""The end of wsu:Created with each digit as 0; `write_security_time` writes milliseconds."""
_TOKEN: Final = (
    f'<wsse:BinarySecurityToken xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" '
    f'EncodingType="{BASE64_BINARY}" ValueType="{X509_V3}" wsu:Id="_signature-token">'
).encode()
_TOKEN_END: Final = b"</wsse:BinarySecurityToken>"
_SIGNATURE: Final = f'<ds:Signature xmlns:ds="{DS}" Id="_signature">'.encode()
_SIGNED_INFO: Final = (
    f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm="{EXC_C14N}">'
    '</ds:CanonicalizationMethod><ds:SignatureMethod Algorithm="'
).encode()
_SIGNING: Final = _SIGNATURE + _SIGNED_INFO
_METHOD_END: Final = b'"></ds:SignatureMethod>'
_SIGNED_INFO_END: Final = b"</ds:SignedInfo>"
_VALUE: Final = b"<ds:SignatureValue>"
_INFO_END_VALUE: Final = _SIGNED_INFO_END + _VALUE
_SIGNATURE_END: Final = (
    f'</ds:SignatureValue><ds:KeyInfo><wsse:SecurityTokenReference xmlns:wsse="{WSSE}">'
    f'<wsse:Reference URI="#_signature-token" ValueType="{X509_V3}"/>'
    "</wsse:SecurityTokenReference></ds:KeyInfo></ds:Signature></wsse:Security>"
).encode()
_USER_MESSAGE: Final = b"<eb:UserMessage"
_SIGNAL: Final = b"<eb:SignalMessage><eb:MessageInfo><eb:Timestamp>"
_INFO_ID: Final = b"</eb:Timestamp><eb:MessageId>"
_ID_END: Final = b"</eb:MessageId>"
_REF: Final = b"</eb:MessageId><eb:RefToMessageId>"
_RECEIPT: Final = (
    "</eb:RefToMessageId></eb:MessageInfo><eb:Receipt>"
    f'<ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">'
).encode()
_RECEIPT_END: Final = (
    b"</ebbp:NonRepudiationInformation></eb:Receipt></eb:SignalMessage></eb:Messaging>"
)

_HOW: Final = (
    '"><ds:Transforms><ds:Transform Algorithm="%s"></ds:Transform></ds:Transforms>'
    f'<ds:DigestMethod Algorithm="{SHA256}"></ds:DigestMethod><ds:DigestValue>'
)
_HOW_ELEMENT: Final = (_HOW % EXC_C14N).encode()
_HOW_ATTACHMENT: Final = (_HOW % CONTENT_TRANSFORM).encode()
_REFERENCE_END: Final = b"</ds:DigestValue></ds:Reference>"
_REFERENCE: Final = b'<ds:Reference URI="'
_PROOF: Final = f'<ebbp:MessagePartNRInformation><ds:Reference xmlns:ds="{DS}" URI="'.encode()
_PROOF_END: Final = _REFERENCE_END + b"</ebbp:MessagePartNRInformation>"
_REFERENCES_END: Final = _REFERENCE_END + _INFO_END_VALUE
_TO_ATTACHMENT: Final = _REFERENCE_END + _REFERENCE + b"cid:"
_PROOF_ATTACHMENT: Final = _PROOF_END + _PROOF + b"cid:"
_INFO_ID_SIZE: Final = len(_INFO_ID)


class _References(NamedTuple):
    """References to the elements of an envelope, as the signature or as a receipt lists them."""

    to_messaging: bytes
    to_body_and_stamp: bytes


def _references(start: bytes, end: bytes, body: bytes) -> _References:
    return _References(
        b"%b#%b%b" % (start, MESSAGING_ID.encode(), _HOW_ELEMENT),
        b"%b%b#%b%b%b%b%b#_timestamp%b"
        % (end, start, BODY_ID.encode(), _HOW_ELEMENT, body, end, start, _HOW_ELEMENT),
    )


class _Form(NamedTuple):
    """What stands in every envelope of a SOAP version."""

    opening: bytes
    messaging: bytes
    closing: bytes
    receipt_end: bytes
    """How an envelope ends that has a receipt."""
    signed: _References
    proven: _References


def _form(version: SoapVersion) -> _Form:
    soap, namespace = version.prefix, version.namespace
    body = write_body(version, id=BODY_ID).encode()
    digest = b2a_base64(sha256(body).digest(), newline=False)
    messaging = (
        f'<eb:Messaging xmlns:{soap}="{namespace}" xmlns:eb="{EB3}" xmlns:wsu="{WSU}"'
        f' wsu:Id="{MESSAGING_ID}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'
    ).encode()
    opening = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{soap}:Envelope xmlns:{soap}="{namespace}">'
        f'<{soap}:Header><wsse:Security xmlns:wsse="{WSSE}" xmlns:{soap}="{namespace}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'
    ).encode()
    closing = b"</%b:Header>%b</%b:Envelope>" % (soap.encode(), body, soap.encode())
    return _Form(
        opening,
        messaging,
        closing,
        _RECEIPT_END + closing,
        _references(_REFERENCE, _REFERENCE_END, digest),
        _references(_PROOF, _PROOF_END, digest),
    )


_FORMS: Final = tuple(_form(version) for version in reversed(SoapVersion))
_SERIAL: Final = len(_FORMS[0].opening + _STAMP + _CREATED + _STAMP_END + _TOKEN)
_TOLD_APART: Final = slice(_SERIAL, _SERIAL + 128)
"""Where the serial number of a certificate is."""


class UsualReceipt(Struct, frozen=True, gc=False):
    """A receipt for exactly what was sent; whether its signature's value holds is still open."""

    token: bytes
    """The signer's certificate, in base64."""
    method: SignatureAlgorithm
    value: bytes
    signed: bytes
    """What the value is the signature of."""
    time: datetime
    """When the receipt says that it was made."""
    sent_token: bytes
    """The certificate of who sent the message, in base64."""


class _Head(NamedTuple):
    """How envelopes of one party begin, up to the first words of the header block.

    Every other piece is the same in all of them: the first, the third and so on. Between these
    stand times, encryption, the digests of the header block and of the timestamp, the name and the
    digest of each attachment, and the signature's value.
    """

    form: _Form
    cut: Callable[[bytes], tuple[bytes, ...]]
    same: tuple[bytes, ...]
    size: int
    stamp: slice
    signed: slice
    """Where the SignedInfo stands."""
    block: slice
    """Where the header block stands."""
    plain: bool
    """There is neither encryption nor an attachment."""
    token: bytes
    method: SignatureAlgorithm
    proofs: list[bytes]
    """What a receipt says of it, with gaps for digests and names."""


_Heads = dict[bytes, deque[_Head]]
"""By how the token begins: the ways in which who has that token was seen to begin."""


class UsualReceipts:
    """Receipts one after the other. How a party begins is remembered, so it is only compared."""

    __slots__ = ("_of_messages", "_of_receipts")

    def __init__(self) -> None:
        self._of_messages: _Heads = {}
        self._of_receipts: _Heads = {}

    def take(
        self, receipt: bytes, sent: bytes, message_id: bytes, receipt_id: bytes
    ) -> UsualReceipt | None:
        """Hold a receipt against what was sent; None when anything about them is unusual."""
        if len(receipt) + len(sent) > _LARGEST or not _is_id(message_id) or not _is_id(receipt_id):
            return None
        found = self._sent(sent, message_id)
        if found is None:
            return None
        return self._receipt(receipt, *found, message_id, receipt_id)

    def _sent(self, sent: bytes, message_id: bytes) -> tuple[_Head, list[bytes]] | None:
        """How it begins, and what a receipt says of its parts; each is held against its digest."""
        found = _cut(sent, self._of_messages, _USER_MESSAGE)
        if found is None:
            return None
        head, pieces = found
        if not sent.endswith(head.form.closing) or _STAMP_END in pieces[1]:
            return None
        start = sent.find(_INFO_ID, head.size) + _INFO_ID_SIZE
        if not sent.startswith(message_id + _ID_END, start) or not _is_base64(pieces[-2]):
            return None
        if not (head.plain or (_is_encryption(pieces[3]) and _are_attachments(pieces))):
            return None
        if _digest(sent[head.block]) != pieces[5] or _digest(sent[head.stamp]) != pieces[7]:
            return None
        proofs = head.proofs.copy()
        proofs[1::2] = pieces[5:-2:2]
        return head, proofs

    def _receipt(
        self,
        receipt: bytes,
        sent: _Head,
        proofs: list[bytes],
        message_id: bytes,
        receipt_id: bytes,
    ) -> UsualReceipt | None:
        """The values of a receipt; all between them is as to be expected, to the last byte."""
        found = _cut(receipt, self._of_receipts, _SIGNAL)
        if found is None:
            return None
        head, pieces = found
        if head.form is not sent.form or not head.plain:
            return None
        created = pieces[1]
        time = receipt[head.size : receipt.find(b"<", head.size)]
        if created.translate(_AS_ZERO) != _CREATED or time.translate(_AS_ZERO) not in _TIMES:
            return None
        ids = time, _INFO_ID, receipt_id, _REF, message_id, _RECEIPT
        if receipt[head.size :] != b"".join((*ids, *proofs, head.form.receipt_end)):
            return None
        if _digest(receipt[head.block]) != pieces[5] or _digest(receipt[head.stamp]) != pieces[7]:
            return None
        try:
            made = datetime.fromisoformat(time.decode())
            if created[:19] != time[:19]:
                datetime.fromisoformat(created.removesuffix(_CREATED_END).decode())
            value = a2b_base64(pieces[9], strict_mode=True)
        except ValueError:
            return None
        return UsualReceipt(head.token, head.method, value, receipt[head.signed], made, sent.token)


def _digest(data: bytes) -> bytes:
    return b2a_base64(sha256(data).digest(), newline=False)


def _cut(envelope: bytes, known: _Heads, block: bytes) -> tuple[_Head, tuple[bytes, ...]] | None:
    """How an envelope begins, with these words in its header block, and all pieces of that."""
    key = envelope[_TOLD_APART]
    heads = known.get(key, ())
    for head in heads:
        if len(envelope) >= head.size:
            pieces = head.cut(envelope)
            if pieces[::2] == head.same:
                return head, pieces
    read = _read_head(envelope, block)
    if read is None:
        return None
    if len(read.same) <= _MOST_PIECES:
        if not heads:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = deque(maxlen=_WAYS)
        known[key].appendleft(read)
    return read, read.cut(envelope)


def _read_head(envelope: bytes, block: bytes) -> _Head | None:
    """How an envelope begins that is not known yet: where each piece would be, and if it is."""
    form = next((one for one in _FORMS if envelope.startswith(one.opening)), None)
    if form is None:
        return None
    stamp_at = len(form.opening)
    times_at = stamp_at + len(_STAMP)
    stamp_end = envelope.find(_STAMP_END, times_at)
    token_at = stamp_end + len(_STAMP_END + _TOKEN)
    token = _until(b"<", envelope, token_at)
    encryption_at = token_at + len(token + _TOKEN_END)
    signing_at = envelope.find(b"Signature", encryption_at) - len(b"<ds:")
    method = _until(b'"', envelope, signing_at + len(_SIGNING))
    algorithm = _METHODS.get(method)
    if algorithm is None or len(token) > _LARGEST_TOKEN:
        return None
    signing = b"".join((_SIGNING, method, _METHOD_END, form.signed.to_messaging))
    to_elements = form.signed.to_body_and_stamp
    same = [form.opening + _STAMP, _STAMP_END + _TOKEN + token + _TOKEN_END, signing, to_elements]
    between = [stamp_end - times_at, signing_at - encryption_at, _DIGEST, _DIGEST]
    proofs = [form.proven.to_messaging, b"", form.proven.to_body_and_stamp, b""]
    end = signing_at + len(signing) + _DIGEST + len(to_elements) + _DIGEST
    while envelope.startswith(_TO_ATTACHMENT, end):
        name = _until(b'"', envelope, end + len(_TO_ATTACHMENT))
        same += (_TO_ATTACHMENT, _HOW_ATTACHMENT)
        between += (len(name), _DIGEST)
        proofs += (_PROOF_ATTACHMENT, b"", _HOW_ATTACHMENT, b"")
        end += len(_TO_ATTACHMENT + name + _HOW_ATTACHMENT) + _DIGEST
    value = _until(b"<", envelope, end + len(_REFERENCES_END))
    same += (_REFERENCES_END, _SIGNATURE_END + form.messaging + block)
    between.append(len(value))
    cut = _cutting(same, between)
    if cut is None or len(envelope) < cut.size or cut.unpack_from(envelope)[::2] != tuple(same):
        return None
    return _Head(
        form,
        cut.unpack_from,
        tuple(same),
        cut.size,
        slice(stamp_at, stamp_end + len(_STAMP_END)),
        slice(signing_at + len(_SIGNATURE), end + len(_REFERENCE_END + _SIGNED_INFO_END)),
        slice(cut.size - len(form.messaging + block), -len(form.closing)),
        encryption_at == signing_at and len(between) == _PLAIN,
        token,
        algorithm,
        [*proofs, _PROOF_END],
    )


def _cutting(same: list[bytes], between: list[int]) -> Cutting | None:
    """How to cut something into these pieces with others of such sizes between them."""
    if min(between) < 0:
        return None
    sizes = [len(same[0])]
    for piece, size in zip(same[1:], between, strict=True):
        sizes += (size, len(piece))
    return Cutting("%ds" * len(sizes) % tuple(sizes))


def _until(end: bytes, envelope: bytes, start: int) -> bytes:
    return envelope[start : envelope.find(end, start)]


def _is_id(value: bytes) -> bool:
    """Whether it is left@right, and stands in XML as it is."""
    return value.translate(None, _IN_IDS) == b"@" and value[:1] != b"@" != value[-1:]


def _is_encryption(data: bytes) -> bool:
    """Whether nothing in it, if anything is there, may be taken for a signature, or hide one."""
    return not data or not (b"Signature" in data or b"!" in data or b"?" in data)


def _is_base64(value: bytes) -> bool:
    """Whether it is base64 without blanks."""
    padding = value.translate(None, _BASE64)
    whole = len(value) % 4 == 0 and value.endswith(padding)
    return whole and padding in (b"", b"=", b"==") and value != b""


def _are_attachments(pieces: tuple[bytes, ...]) -> bool:
    """Whether each has a name of its own that stands in XML as it is, and something as digest."""
    names, digests = pieces[9:-2:4], pieces[11:-2:4]
    for name in names:
        if name.translate(None, _IN_NAMES):
            return False
    for digest in digests:
        if digest.translate(None, _BASE64) != b"=" or digest[-1:] != b"=":
            return False
    return len(names) < 2 or len(set(names)) == len(names)
