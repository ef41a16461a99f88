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
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

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
_CREATED_END: Final = b"</wsu:Created></wsu:Timestamp>"
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
_INFO: Final = b"<eb:MessageInfo><eb:Timestamp>"
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
_TO_ATTACHMENT: Final = _REFERENCE + b"cid:"
_PROOF_ATTACHMENT: Final = _PROOF + b"cid:"


class _References(NamedTuple):
    """References to the elements of an envelope, as the signature or as a receipt lists them."""

    to_messaging: bytes
    to_body_and_stamp: bytes
    end: bytes


def _references(start: bytes, end: bytes, body: bytes) -> _References:
    return _References(
        b"%b#%b%b" % (start, MESSAGING_ID.encode(), _HOW_ELEMENT),
        b"%b%b#%b%b%b%b%b#_timestamp%b"
        % (end, start, BODY_ID.encode(), _HOW_ELEMENT, body, end, start, _HOW_ELEMENT),
        end,
    )


class _Form(NamedTuple):
    """What stands in every envelope of a SOAP version."""

    opening: bytes
    user_message: bytes
    """How the header block of a user message begins, that of a receipt likewise."""
    receipt: bytes
    closing: bytes
    signed: _References
    proven: _References
    size_of_signed: int
    """Characters of the references in the signature of a receipt."""


def _form(version: SoapVersion) -> _Form:
    soap, namespace = version.prefix, version.namespace
    body = write_body(version, id=BODY_ID).encode()
    digest = b2a_base64(sha256(body).digest(), newline=False)
    messaging = (
        f'<eb:Messaging xmlns:{soap}="{namespace}" xmlns:eb="{EB3}" id="{MESSAGING_ID}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'
    ).encode()
    signed = _references(_REFERENCE, _REFERENCE_END, digest)
    return _Form(
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{soap}:Envelope xmlns:{soap}="{namespace}">'
        f'<{soap}:Header><wsse:Security xmlns:wsse="{WSSE}" xmlns:{soap}="{namespace}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'.encode(),
        messaging + b"<eb:UserMessage",
        messaging + b"<eb:SignalMessage>" + _INFO,
        b"</%b:Header>%b</%b:Envelope>" % (soap.encode(), body, soap.encode()),
        signed,
        _references(_PROOF, _PROOF_END, digest),
        sum(map(len, signed)) + 2 * _DIGEST,
    )


_FORMS: Final = tuple(_form(version) for version in reversed(SoapVersion))


class UsualReceipt(NamedTuple):
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


def usual_receipt(
    receipt: bytes, sent: bytes, message_id: bytes, receipt_id: bytes
) -> UsualReceipt | None:
    """Hold a receipt against what was sent; None when anything about them is unusual."""
    for form in _FORMS:
        if sent.startswith(form.opening):
            break
    else:
        return None
    if len(receipt) + len(sent) > _LARGEST or not _is_id(message_id) or not _is_id(receipt_id):
        return None
    found = _sent(form, sent, message_id)
    return None if found is None else _receipt(form, receipt, found, message_id, receipt_id)


def _is_id(value: bytes) -> bool:
    """Whether it is left@right, and stands in XML as it is."""
    return value.translate(None, _IN_IDS) == b"@" and value[:1] != b"@" != value[-1:]


class _Sent(NamedTuple):
    token: bytes
    proofs: bytes
    """What a receipt must say of it."""


def _sent(form: _Form, sent: bytes, message_id: bytes) -> _Sent | None:
    """The signed parts of a message, each held against its digest."""
    start = len(form.opening)
    end = sent.find(_STAMP_END, start) + len(_STAMP_END)
    stamp = sent[start:end]
    if not stamp.startswith(_STAMP) or not sent.startswith(_TOKEN, end):
        return None
    start = end + len(_TOKEN)
    end = sent.find(b"<", start)
    token = sent[start:end]
    if not sent.startswith(_TOKEN_END, end):
        return None
    start = end + len(_TOKEN_END)
    if not sent.startswith(_SIGNING, start):
        start = _after_encryption(sent, start)
        if not sent.startswith(_SIGNING, start):
            return None
    start += len(_SIGNING)
    end = sent.find(b'"', start)
    if sent[start:end] not in _METHODS or not sent.startswith(_METHOD_END, end):
        return None
    elements = end + len(_METHOD_END)
    attached: list[bytes] = []
    start = _attachments(sent, elements + form.size_of_signed, attached)
    if not sent.startswith(_INFO_END_VALUE, start):
        return None
    start += len(_INFO_END_VALUE)
    end = sent.find(b"<", start)
    value = sent[start:end]
    if not sent.startswith(_SIGNATURE_END, end) or not _is_base64(value):
        return None
    messaging = sent[end + len(_SIGNATURE_END) : -len(form.closing)]
    if not sent.endswith(form.closing) or not _names(form, messaging, message_id):
        return None
    of_messaging = b2a_base64(sha256(messaging).digest(), newline=False)
    of_stamp = b2a_base64(sha256(stamp).digest(), newline=False)
    signed, proven = form.signed, form.proven
    expected = signed.to_messaging, of_messaging, signed.to_body_and_stamp, of_stamp, signed.end
    if not sent.startswith(b"".join(expected), elements):
        return None
    proofs = proven.to_messaging, of_messaging, proven.to_body_and_stamp, of_stamp, proven.end
    return _Sent(token, b"".join((*proofs, *attached)))


def _after_encryption(sent: bytes, start: int) -> int:
    """Where the signature begins: nothing before it may be taken for one, or hide one."""
    end = sent.find(b"Signature", start) - len(b"<ds:")
    between = sent[start:end]
    return -1 if b"!" in between or b"?" in between else end


def _names(form: _Form, messaging: bytes, message_id: bytes) -> bool:
    """Whether the header block begins with the user message of that id."""
    if not messaging.startswith(form.user_message):
        return False
    start = messaging.find(_INFO_ID, len(form.user_message)) + len(_INFO_ID)
    return messaging.startswith(message_id + _ID_END, start)


def _is_base64(value: bytes) -> bool:
    """Whether it is base64 without blanks."""
    padding = value.translate(None, _BASE64)
    whole = len(value) % 4 == 0 and value.endswith(padding)
    return whole and padding in (b"", b"=", b"==") and value != b""


def _attachments(sent: bytes, start: int, proofs: list[bytes]) -> int:
    """Where the references to attachments end, each to another; `proofs`: what a receipt says."""
    seen: list[bytes] = []
    while sent.startswith(_TO_ATTACHMENT, start):
        start += len(_TO_ATTACHMENT)
        end = sent.find(b'"', start)
        name = sent[start:end]
        start = end + len(_HOW_ATTACHMENT)
        digest = sent[start : start + _DIGEST]
        start += _DIGEST
        if (
            name.translate(None, _IN_NAMES)
            or digest.translate(None, _BASE64) != b"="
            or digest[-1:] != b"="
            or name in seen
            or not sent.startswith(_HOW_ATTACHMENT, end)
            or not sent.startswith(_REFERENCE_END, start)
        ):
            return -1
        seen.append(name)
        proofs += (_PROOF_ATTACHMENT, name, _HOW_ATTACHMENT, digest, _PROOF_END)
        start += len(_REFERENCE_END)
    return start


def _receipt(
    form: _Form, receipt: bytes, sent: _Sent, message_id: bytes, receipt_id: bytes
) -> UsualReceipt | None:
    """The values of a receipt; all between them is as it is to be expected, to the last byte."""
    start = len(form.opening) + len(_STAMP)
    end = receipt.find(b"<", start)
    created = receipt[start:end]
    start = end + len(_CREATED_END) + len(_TOKEN)
    end = receipt.find(b"<", start)
    token = receipt[start:end]
    begin = end + len(_TOKEN_END) + len(_SIGNATURE)
    start = begin + len(_SIGNED_INFO)
    end = receipt.find(b'"', start)
    method = receipt[start:end]
    start = end + len(_METHOD_END) + form.size_of_signed + len(_INFO_END_VALUE)
    signed = receipt[begin : start - len(_VALUE)]
    end = receipt.find(b"<", start)
    value = receipt[start:end]
    begin = end + len(_SIGNATURE_END)
    messaging = receipt[begin : -len(form.closing)]
    start = begin + len(form.receipt)
    end = receipt.find(b"<", start)
    time = receipt[start:end]
    algorithm = _METHODS.get(method)
    if (
        algorithm is None
        or created.translate(_AS_ZERO) not in _TIMES
        or time.translate(_AS_ZERO) not in _TIMES
    ):
        return None
    stamp = _STAMP + created + _CREATED_END
    said = _INFO_ID, receipt_id, _REF, message_id, _RECEIPT, sent.proofs, _RECEIPT_END
    references = form.signed
    signing = (
        _TOKEN,
        token,
        _TOKEN_END,
        _SIGNING,
        method,
        _METHOD_END,
        references.to_messaging,
        b2a_base64(sha256(messaging).digest(), newline=False),
        references.to_body_and_stamp,
        b2a_base64(sha256(stamp).digest(), newline=False),
        references.end,
        _INFO_END_VALUE,
        value,
        _SIGNATURE_END,
        form.receipt,
        time,
    )
    written = b"".join((form.opening, stamp, *signing, *said, form.closing))
    if written != receipt:
        return None
    try:
        made = datetime.fromisoformat(time.decode())
        if created[:19] != time[:19]:
            datetime.fromisoformat(created.decode())
        octets = a2b_base64(value, strict_mode=True)
    except ValueError:
        return None
    return UsualReceipt(token, algorithm, octets, signed, made, sent.token)
