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

import re
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
_LARGEST_TOKEN: Final = 16 * 1024
_REMEMBERED: Final = 1024
"""So many parties, each with a token no larger than that."""
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
_REFERENCES_END: Final = _REFERENCE_END + _INFO_END_VALUE
_TOKEN_SIZE: Final = len(_TOKEN)
_TOLD_APART: Final = _TOKEN_SIZE + 64
"""The serial number of a certificate stands in the first 48 bytes."""
_STAMP_SIZE: Final = len(_STAMP)
_STAMP_END_SIZE: Final = len(_STAMP_END)
_CREATED_END_SIZE: Final = len(_CREATED_END)
_VALUE_SIZE: Final = len(_VALUE)
_INFO_END_VALUE_SIZE: Final = len(_INFO_END_VALUE)
_SIGNATURE_END_SIZE: Final = len(_SIGNATURE_END)
_to_attachment: Final = re.compile(
    b"%bcid:([%b]*)%b([%b]{43}=)%b"
    % tuple(map(re.escape, (_REFERENCE, _IN_NAMES, _HOW_ATTACHMENT, _BASE64, _REFERENCE_END)))
).match
_PROOF_ATTACHMENT: Final = _PROOF + b"cid:"


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
    user_message: bytes
    """How the header block of a user message begins, that of a receipt likewise."""
    receipt: bytes
    closing: bytes
    signed: _References
    proven: _References
    start: int
    """Where the opening ends."""
    closing_size: int
    receipt_size: int
    digests_size: int
    """Characters of the references in a signature, from the first digest on."""


def _form(version: SoapVersion) -> _Form:
    soap, namespace = version.prefix, version.namespace
    body = write_body(version, id=BODY_ID).encode()
    digest = b2a_base64(sha256(body).digest(), newline=False)
    messaging = (
        f'<eb:Messaging xmlns:{soap}="{namespace}" xmlns:eb="{EB3}" id="{MESSAGING_ID}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'
    ).encode()
    signed = _references(_REFERENCE, _REFERENCE_END, digest)
    opening = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{soap}:Envelope xmlns:{soap}="{namespace}">'
        f'<{soap}:Header><wsse:Security xmlns:wsse="{WSSE}" xmlns:{soap}="{namespace}"'
        f' {soap}:mustUnderstand="{version.must_understand}">'
    ).encode()
    receipt = messaging + b"<eb:SignalMessage>" + _INFO
    closing = b"</%b:Header>%b</%b:Envelope>" % (soap.encode(), body, soap.encode())
    return _Form(
        opening,
        messaging + b"<eb:UserMessage",
        receipt,
        closing,
        signed,
        _references(_PROOF, _PROOF_END, digest),
        len(opening),
        len(closing),
        len(receipt),
        2 * _DIGEST + len(signed.to_body_and_stamp) + len(_REFERENCE_END),
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


class _Sent(NamedTuple):
    token: bytes
    proofs: bytes
    """What a receipt must say of it."""


class _Signer(NamedTuple):
    """What stands before the first digest in all that one party signs."""

    heading: bytes
    """From the token on."""
    info: int
    """Where in it the SignedInfo begins."""
    token: bytes
    method: SignatureAlgorithm


class UsualReceipts:
    """Receipts one after the other. How a party signs is remembered, so it is only compared."""

    __slots__ = ("_signers",)

    def __init__(self) -> None:
        self._signers: dict[bytes, _Signer] = {}
        """By how their tokens begin. Two that begin alike take turns."""

    def take(
        self, receipt: bytes, sent: bytes, message_id: bytes, receipt_id: bytes
    ) -> UsualReceipt | None:
        """Hold a receipt against what was sent; None when anything about them is unusual."""
        for form in _FORMS:
            if sent.startswith(form.opening):
                break
        else:
            return None
        if len(receipt) + len(sent) > _LARGEST or not _is_id(message_id) or not _is_id(receipt_id):
            return None
        found = self._sent(form, sent, message_id)
        if found is None:
            return None
        return self._receipt(form, receipt, found, message_id, receipt_id)

    def _signer(self, envelope: bytes, start: int, form: _Form) -> _Signer | None:
        """Whose token stands there, with the beginning of the signature right behind it."""
        key = envelope[start + _TOKEN_SIZE : start + _TOLD_APART]
        known = self._signers.get(key)
        if known is not None and envelope.startswith(known.heading, start):
            return known
        read = _read_signer(envelope, start, form)
        if read is not None:
            if len(self._signers) >= _REMEMBERED:
                self._signers.clear()
            self._signers[key] = read
        return read

    def _sent(self, form: _Form, sent: bytes, message_id: bytes) -> _Sent | None:
        """The signed parts of a message, each held against its digest."""
        start = form.start
        end = sent.find(_STAMP_END, start) + _STAMP_END_SIZE
        stamp = sent[start:end]
        if not stamp.startswith(_STAMP):
            return None
        signer = self._signer(sent, end, form)
        if signer is not None:
            token, elements = signer.token, end + len(signer.heading)
        elif (read := _read_encrypted(sent, end, form)) is not None:
            token, elements = read
        else:
            return None
        attached: list[bytes] = []
        start = _attachments(sent, elements + form.digests_size, attached)
        if not sent.startswith(_INFO_END_VALUE, start):
            return None
        start += _INFO_END_VALUE_SIZE
        end = sent.find(b"<", start)
        if not sent.startswith(_SIGNATURE_END, end) or not _is_base64(sent[start:end]):
            return None
        messaging = sent[end + _SIGNATURE_END_SIZE : -form.closing_size]
        if not sent.endswith(form.closing) or not _names(form, messaging, message_id):
            return None
        of_messaging = b2a_base64(sha256(messaging).digest(), newline=False)
        of_stamp = b2a_base64(sha256(stamp).digest(), newline=False)
        said = b"".join((of_messaging, form.signed.to_body_and_stamp, of_stamp, _REFERENCE_END))
        if not sent.startswith(said, elements):
            return None
        proven = form.proven
        proofs = proven.to_messaging, of_messaging, proven.to_body_and_stamp, of_stamp, _PROOF_END
        return _Sent(token, b"".join((*proofs, *attached)))

    def _receipt(
        self, form: _Form, receipt: bytes, sent: _Sent, message_id: bytes, receipt_id: bytes
    ) -> UsualReceipt | None:
        """The values of a receipt; all between them is as to be expected, to the last byte."""
        start = form.start + _STAMP_SIZE
        end = receipt.find(b"<", start)
        created = receipt[start:end]
        heading = end + _CREATED_END_SIZE
        signer = self._signer(receipt, heading, form)
        if signer is None:
            return None
        start = heading + len(signer.heading) + form.digests_size + _INFO_END_VALUE_SIZE
        signed = receipt[heading + signer.info : start - _VALUE_SIZE]
        end = receipt.find(b"<", start)
        value = receipt[start:end]
        begin = end + _SIGNATURE_END_SIZE
        messaging = receipt[begin : -form.closing_size]
        start = begin + form.receipt_size
        time = receipt[start : receipt.find(b"<", start)]
        if created.translate(_AS_ZERO) not in _TIMES or time.translate(_AS_ZERO) not in _TIMES:
            return None
        stamp = b"".join((_STAMP, created, _CREATED_END))
        written = (
            form.opening,
            stamp,
            signer.heading,
            b2a_base64(sha256(messaging).digest(), newline=False),
            form.signed.to_body_and_stamp,
            b2a_base64(sha256(stamp).digest(), newline=False),
            _REFERENCES_END,
            value,
            _SIGNATURE_END,
            form.receipt,
            time,
            _INFO_ID,
            receipt_id,
            _REF,
            message_id,
            _RECEIPT,
            sent.proofs,
            _RECEIPT_END,
            form.closing,
        )
        if b"".join(written) != receipt:
            return None
        try:
            made = datetime.fromisoformat(time.decode())
            if created[:19] != time[:19]:
                datetime.fromisoformat(created.decode())
            octets = a2b_base64(value, strict_mode=True)
        except ValueError:
            return None
        return UsualReceipt(signer.token, signer.method, octets, signed, made, sent.token)


def _read_signer(envelope: bytes, start: int, form: _Form) -> _Signer | None:
    token_at = start + len(_TOKEN)
    end = envelope.find(b"<", token_at)
    token = envelope[token_at:end]
    info = len(_TOKEN) + len(token) + len(_TOKEN_END) + len(_SIGNATURE)
    method_at = start + info + len(_SIGNED_INFO)
    method = envelope[method_at : envelope.find(b'"', method_at)]
    algorithm = _METHODS.get(method)
    if algorithm is None or len(token) > _LARGEST_TOKEN:
        return None
    signing = _SIGNING, method, _METHOD_END, form.signed.to_messaging
    heading = b"".join((_TOKEN, token, _TOKEN_END, *signing))
    if not envelope.startswith(heading, start):
        return None
    return _Signer(heading, info, token, algorithm)


def _read_encrypted(sent: bytes, start: int, form: _Form) -> tuple[bytes, int] | None:
    """The token of a message with encryption behind it, and where its first digest begins."""
    if not sent.startswith(_TOKEN, start):
        return None
    start += len(_TOKEN)
    end = sent.find(b"<", start)
    token = sent[start:end]
    if not sent.startswith(_TOKEN_END, end) or len(token) > _LARGEST_TOKEN:
        return None
    start = _after_encryption(sent, end + len(_TOKEN_END))
    if not sent.startswith(_SIGNING, start):
        return None
    start += len(_SIGNING)
    end = sent.find(b'"', start)
    rest = _METHOD_END + form.signed.to_messaging
    if sent[start:end] not in _METHODS or not sent.startswith(rest, end):
        return None
    return token, end + len(rest)


def _is_id(value: bytes) -> bool:
    """Whether it is left@right, and stands in XML as it is."""
    return value.translate(None, _IN_IDS) == b"@" and value[:1] != b"@" != value[-1:]


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
    while (found := _to_attachment(sent, start)) is not None:
        name, digest = found.groups()
        if name in seen:
            return -1
        seen.append(name)
        proofs += (_PROOF_ATTACHMENT, name, _HOW_ATTACHMENT, digest, _PROOF_END)
        start = found.end()
    return start
