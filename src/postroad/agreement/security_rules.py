"""The rules about security and receipts that a P-Mode keeps by itself."""

from collections.abc import Iterator
from typing import Final

from postroad.agreement.algorithms import WEAK, short_name, strength
from postroad.agreement.breach import Breach, warning
from postroad.agreement.parameters import Path, settings
from postroad.agreement.places import (
    Rule,
    direct_address,
    is_pulled,
    is_response,
    numbered,
    sender_pulls,
)
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.pmode_security import X509, Covered, SendReceipt, Signature
from postroad.agreement.reply_patterns import receipt_pattern, routed_mpc
from postroad.wire.names import XENC11

_RSA_OAEP: Final = XENC11 + "rsa-oaep"


def _receipts(pmode: PMode) -> Iterator[tuple[Path, Leg, SendReceipt]]:
    for path, leg in numbered(pmode):
        if leg.security and leg.security.send_receipt:
            yield (*path, "security", "send_receipt"), leg, leg.security.send_receipt


def _x509(pmode: PMode) -> Iterator[tuple[Path, X509]]:
    for path, leg in numbered(pmode):
        if leg.security and leg.security.x509:
            yield (*path, "security", "x509"), leg.security.x509


def _on(covered: Covered | None) -> bool:
    return covered is not None and covered.enabled


def non_repudiation_needs_a_signature(pmode: PMode) -> Iterator[Breach]:
    """A non-repudiation receipt repeats the digests of the signed message (AS4 5.1.8)."""
    for path, leg, receipt in _receipts(pmode):
        x509 = leg.security.x509 if leg.security else None
        if receipt.non_repudiation and not (x509 and _on(x509.sign)):
            yield Breach(
                (*path, "non_repudiation"),
                "it needs signed messages, but X509.Sign is not true",
                "add x509.sign: true",
            )


def pulled_receipts_have_an_epr(pmode: PMode) -> Iterator[Breach]:
    """ReplyPattern pull needs SendReceipt.Addressing.EPR, and its MPC. [P2-6.7.1-02]"""
    for path, _, receipt in _receipts(pmode):
        if receipt.reply_pattern == "pull" and routed_mpc(receipt.addressing) is None:
            yield Breach(
                (*path, "reply_pattern"),
                "pull needs SendReceipt.Addressing.EPR with the channel to pull receipts from",
                "add addressing.epr.routing_input.business_info.mpc",
            )


def receipts_for_pulled_messages_are_called_back(pmode: PMode) -> Iterator[Breach]:
    """A pulled message is the response itself: its receipt needs a new request (AS4 5.1.8)."""
    for path, _, receipt in _receipts(pmode):
        index = path[1]
        assert isinstance(index, int)
        fetched = is_pulled(pmode, index) or is_response(pmode, index)
        if receipt.reply_pattern == "response" and fetched:
            how = "a response itself" if is_response(pmode, index) else "pulled"
            yield Breach(
                (*path, "reply_pattern"),
                f"the message is {how}: there is no response that could carry its receipt",
                "use callback",
            )
        if receipt.reply_pattern == "pull" and not sender_pulls(pmode, index):
            yield Breach(
                (*path, "reply_pattern"),
                "only the Initiator pulls, so only receipts of what it pushes can be pulled",
                "use callback",
            )


def called_back_receipts_have_an_address(pmode: PMode) -> Iterator[Breach]:
    """ReplyTo is where a receipt goes that is not the response.

    The receipt of a message that was fetched goes where that was. [P2-6.7.1-04]
    """
    for path, leg, receipt in _receipts(pmode):
        index = path[1]
        assert isinstance(index, int)
        fetched = is_pulled(pmode, index) or is_response(pmode, index)
        named = receipt.reply_to or fetched or direct_address(pmode, index)
        if receipt.enabled and receipt_pattern(leg) == "callback" and not named:
            splits = receipt.reply_pattern is None
            yield Breach(
                path if splits else (*path, "reply_pattern"),
                "receipts of messages that are split call back, which needs SendReceipt.ReplyTo"
                if splits
                else "callback needs SendReceipt.ReplyTo",
                "add reply_to with the URL that the sender takes receipts at",
            )


def reply_to_is_for_other_patterns(pmode: PMode) -> Iterator[Breach]:
    """ReplyTo is where receipts go when they are not the response (Part 2, 6.7.1)."""
    for path, _, receipt in _receipts(pmode):
        if receipt.reply_to and receipt.reply_pattern == "response":
            yield warning(
                (*path, "reply_to"), "it has no effect with ReplyPattern response", "remove it"
            )


def details_need_their_switch(pmode: PMode) -> Iterator[Breach]:
    """Signature and Encryption parameters say how, Sign and Encrypt whether."""
    for path, x509 in _x509(pmode):
        if x509.signature and not _on(x509.sign):
            yield Breach(
                (*path, "signature"), "Sign is not true: nothing is signed", "add sign: true"
            )
        if x509.encryption and not _on(x509.encryption.encrypt):
            yield Breach(
                (*path, "encryption"),
                "Encrypt is not true: nothing is encrypted",
                "add encrypt: true in it",
            )


def key_parameters_fit_together(pmode: PMode) -> Iterator[Breach]:
    """A data key is transported by RSA or agreed on with EC keys, each with its own parameters."""
    for path, x509 in _x509(pmode):
        encryption = x509.encryption
        if encryption is None:
            continue
        place = (*path, "encryption")
        if encryption.key_transport and encryption.key_agreement:
            yield Breach(
                (*place, "key_agreement"),
                "there is a key transport too, and a key takes one way",
                "remove one of them",
            )
        for field in ("key_derivation", "key_wrap"):
            if getattr(encryption, field) and not encryption.key_agreement:
                yield Breach((*place, field), "it belongs to a key agreement", "add key_agreement")
        if encryption.mgf and encryption.key_transport not in (None, _RSA_OAEP):
            yield Breach((*place, "mgf"), "it belongs to key_transport: rsa-oaep", "remove it")
        if encryption.algorithm and encryption.minimum_strength is not None:
            bits = strength(encryption.algorithm)
            if bits < encryption.minimum_strength:
                yield Breach(
                    (*place, "algorithm"),
                    f"{short_name(encryption.algorithm)} has {bits} bits, "
                    f"below MinimumStrength {encryption.minimum_strength}",
                    "choose a stronger one",
                )


def weak_algorithms_are_told(pmode: PMode) -> Iterator[Breach]:
    """A weak algorithm is used because the P-Mode names it; that is worth a line."""
    for setting in settings(pmode):
        if setting.value in WEAK:
            yield warning(
                setting.path,
                f"{short_name(setting.value)} is weak and taken only because it is named here",
                "agree on a stronger one with your partner",
            )


def attachments_need_wss_1_1(pmode: PMode) -> Iterator[Breach]:
    """Attachments are secured by the SwA profile of WS-Security 1.1 (Core 7.4)."""
    for path, leg in numbered(pmode):
        security = leg.security
        x509 = security.x509 if security else None
        if security is None or x509 is None or security.wss_version != "1.0":
            continue
        encrypt = x509.encryption.encrypt if x509.encryption else None
        if any(covered and covered.attachment for covered in (x509.sign, encrypt)):
            yield Breach(
                (*path, "security", "wss_version"),
                "attachments are signed or encrypted, which needs WS-Security 1.1",
                "write wss_version: 1.1",
            )


def trust_is_stated(pmode: PMode) -> Iterator[Breach]:
    """A signature holds against a certificate, pins or anchors; without any, nothing vouches."""
    for path, x509 in _x509(pmode):
        signature = x509.signature or Signature()
        if _on(x509.sign) and not (
            signature.certificate or signature.pins or signature.trust_anchors
        ):
            yield warning(
                (*path, "sign"),
                "no certificate, pin or trust anchor says whose signature holds",
                "add signature.certificate, signature.pins or signature.trust_anchors",
            )


def passwords_are_protected(pmode: PMode) -> Iterator[Breach]:
    """A digest has nonce and creation time; a password in clear goes over TLS only."""
    for path, leg in numbered(pmode):
        token = leg.security.username_token if leg.security else None
        if token is None:
            continue
        place = (*path, "security", "username_token")
        if token.digest and not (token.nonce and token.created):
            yield warning(
                (*place, "digest"),
                "a digest without nonce and Created can be replayed",
                "leave nonce and created true",
            )
        address = (leg.protocol.address if leg.protocol else None) or ""
        if not token.digest and address.lower().startswith("http:"):
            yield warning(
                (*place, "digest"),
                "the password goes over http: in clear",
                "use https:, or digest: true",
            )


def authorization_has_something_to_check(pmode: PMode) -> Iterator[Breach]:
    """PModeAuthorize checks against the credentials of a party (Core 7.10)."""
    partners = (pmode.initiator, pmode.responder)
    if any(partner and partner.authorization for partner in partners):
        return
    for path, leg in numbered(pmode):
        if leg.security and leg.security.pmode_authorize:
            yield Breach(
                (*path, "security", "pmode_authorize"),
                "neither Initiator nor Responder has an Authorization to check against",
                "add initiator.authorization",
            )


SECURITY_RULES: Final[tuple[Rule, ...]] = (
    non_repudiation_needs_a_signature,
    pulled_receipts_have_an_epr,
    receipts_for_pulled_messages_are_called_back,
    called_back_receipts_have_an_address,
    reply_to_is_for_other_patterns,
    details_need_their_switch,
    key_parameters_fit_together,
    weak_algorithms_are_told,
    attachments_need_wss_1_1,
    trust_is_stated,
    passwords_are_protected,
    authorization_has_something_to_check,
)
