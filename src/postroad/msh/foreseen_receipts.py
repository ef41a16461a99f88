"""Receipts that can be foreseen: written once more and compared, instead of being read.

Who sent a message knows all of the receipt that a Postroad writes about it, but for a few values:
its id, its times, and the signature. These are taken out of the text; with them the receipt is
written by the writers that write every receipt. If that gives the very bytes that came, they say
what was written, and nothing remains to be looked at but the signature's value, who signed, and
when.

Whatever else there is, good or bad, gives None: it is then looked at as a whole, as every message
is. So nothing is ever refused here, and what is believed here a whole look believes as well.
"""

import re
from binascii import a2b_base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from postroad.agreement.matching import Match
from postroad.msh.answers import SentMessage, foreseen_receipt
from postroad.msh.capture import Capture
from postroad.msh.expectation import Terms
from postroad.msh.lens import Inspection, Lens
from postroad.msh.outbound import MESSAGING_ID, soap_version
from postroad.msh.securing import signs
from postroad.msh.vouching import Vouching
from postroad.security.algorithms import DIGESTS, SIGNATURES, Algorithms
from postroad.security.rawsign import verify_bytes
from postroad.security.secure import Stamp, secure, secured_by
from postroad.security.sign import TOKEN_ID, Block
from postroad.security.tokens import familiar_certificate
from postroad.security.verify import Verification
from postroad.wire.ebms3 import MessageInfo, Messaging
from postroad.wire.ebms3_user_messages import is_message_id
from postroad.wire.ebms3_writer import write_messaging, write_receipt
from postroad.wire.limits import Limits
from postroad.wire.mime_headers import ContentType
from postroad.wire.soap import SoapVersion

Sent = tuple[SentMessage, Match]
"""A message that was sent, and the leg that it was sent by."""
_TYPES: Final = {
    version: ContentType(version.media_type, (("charset", "UTF-8"),)) for version in SoapVersion
}
_EMPTY: Final = Messaging((), id=MESSAGING_ID)
_TOMORROW: Final = timedelta(days=1)
_SIGNED: Final = "<wsse:Security "
_infos: Final = re.compile(
    "<eb:SignalMessage><eb:MessageInfo><eb:Timestamp>([^<]*)</eb:Timestamp>"
    "<eb:MessageId>([^<]*)</eb:MessageId>"
).findall


class _Unforeseen(ValueError):
    """To be looked at as a whole."""


def foreseen_receipts(
    capture: Capture, lens: Lens, terms: Terms, sent: Sequence[Sent]
) -> list[str] | None:
    """The ids of the receipts for these messages, if they are all that an envelope holds.

    `lens` and `terms` are those by which it would be looked at.
    """
    try:
        return _ids(capture, lens, terms, sent)
    except ValueError:
        return None


def _ids(capture: Capture, lens: Lens, terms: Terms, sent: Sequence[Sent]) -> list[str]:
    version = soap_version(sent[0][1].leg)
    envelope = capture.envelope
    if capture.content_type != _TYPES[version] or not _is_bounded(envelope, lens.limits):
        raise _Unforeseen
    text = envelope.decode("ascii")
    ids, receipts = _receipts(text, sent, lens)
    if len(set(ids)) < len(ids):
        raise _Unforeseen
    messaging = write_messaging(_EMPTY, version, written=receipts)
    blocks = [Block(MESSAGING_ID, messaging)]
    if _SIGNED in text:
        stamp = _stamp(text, lens, terms)
        written, signed = secured_by(version, blocks, stamp)
        if written != envelope or not _holds(stamp, signed, capture, lens, terms):
            raise _Unforeseen
    elif secure(version, blocks, ()).envelope != envelope or _are_signed(sent):
        raise _Unforeseen
    return ids


def _are_signed(sent: Sequence[Sent]) -> bool:
    """Whether a P-Mode asks for signatures."""
    return any(signs(match.leg) for _, match in sent)


def _is_bounded(envelope: bytes, limits: Limits) -> bool:
    """Whether it may be so large; it has no more elements than marks."""
    return len(envelope) <= limits.envelope_bytes and envelope.count(b"<") <= limits.xml_elements


def _receipts(text: str, sent: Sequence[Sent], lens: Lens) -> tuple[list[str], list[str]]:
    """The ids that the text has, and the receipts as they must be with these ids and its times."""
    found = _infos(text)
    if len(found) != len(sent) or len(found) > lens.limits.units:
        raise _Unforeseen
    written = []
    for (time, id), (message, match) in zip(found, sent, strict=True):
        made = _time(time)
        if made - lens.at > _TOMORROW or not is_message_id(id):
            raise _Unforeseen
        ref = message.user_message.message_info.message_id
        receipt = foreseen_receipt(message, match, MessageInfo(made, id, ref))
        written.append(write_receipt(receipt, message.written))
    return [id for _, id in found], written


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is not UTC:
        raise _Unforeseen
    return time


def _stamp(text: str, lens: Lens, terms: Terms) -> Stamp:
    """What the text has of a signature; only algorithms that are taken."""
    created, at = _between(text, "<wsu:Created>", "<", 0)
    token, at = _between(text, f'wsu:Id="{TOKEN_ID}">', "<", at)
    method, at = _between(text, '<ds:SignatureMethod Algorithm="', '"', at)
    digest, at = _between(text, '<ds:DigestMethod Algorithm="', '"', at)
    value, at = _between(text, "<ds:SignatureValue>", "<", at)
    certificate = familiar_certificate(token)
    algorithms = Algorithms(terms.algorithms, legacy=lens.legacy)
    if certificate is None or method not in SIGNATURES or digest not in DIGESTS:
        raise _Unforeseen
    if algorithms.refuse(method) or algorithms.refuse(digest):
        raise _Unforeseen
    made = _time(created)
    if made - lens.at > lens.skew:
        raise _Unforeseen
    octets = a2b_base64(value, strict_mode=True)
    return Stamp(made, certificate, SIGNATURES[method], DIGESTS[digest], octets)


def _between(text: str, start: str, end: str, at: int) -> tuple[str, int]:
    begin = text.index(start, at) + len(start)
    until = text.index(end, begin)
    return text[begin:until], until


def _holds(stamp: Stamp, signed: bytes, capture: Capture, lens: Lens, terms: Terms) -> bool:
    """Whether the value is that of the signer's key, and the signer one to be believed."""
    certificate, method = stamp.certificate, stamp.algorithm
    if not verify_bytes(certificate.public_key(), method, stamp.value, signed):
        return False
    found = Inspection(capture=capture, match=terms.match)
    verification = Verification(method.uri, True, certificate, (), (), ())
    Vouching(found, lens, terms).judge(verification)
    return found.trusted is True and not found.problems
