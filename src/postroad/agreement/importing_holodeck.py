"""P-Modes of Holodeck B2B. One file is one P-Mode, as one of its two parties has it."""

from typing import Final

from postroad.agreement.importing_source import (
    Element,
    Imported,
    Plain,
    Refusal,
    Source,
    line_of,
    party_id,
    pruned,
    typed,
)
from postroad.wire.names import PULL, PULL_AND_PULL, PULL_AND_PUSH
from postroad.wire.xml import text

NAMESPACE: Final = "http://holodeck-b2b.org/schemas/2014/10/pmode"
WHAT: Final = "Holodeck B2B P-Mode"
_KEY_REFERENCES: Final = {
    "BSTReference": "binary_security_token",
    "KeyIdentifier": "subject_key_identifier",
    "IssuerSerial": "issuer_serial",
}
_REASONS: Final = {
    "DefaultDelivery": "applications fetch messages from the inbox, or a webhook tells them",
    "ReceiptDelivery": "a webhook tells applications",
    "ErrorDelivery": "a webhook tells applications",
    "EventHandlers": "a webhook tells applications",
    "PullRequestFlow": "messages are not pulled in this version",
    "UseChunking": "HTTP is chunked where it must be",
    "UseHTTPCompression": "payloads are compressed instead, with payload_service",
}


def import_holodeck(data: bytes, name: str, *, me: str | None = None) -> Imported:
    """The P-Mode of a file; `me` must be one of its parties, where both are named."""
    source = Source(data, name)
    root = source.root
    identifier = source.child(root, "id")
    if identifier is None or not text(identifier):
        raise Refusal(line_of(root), "the P-Mode has no id")
    included = source.attribute(identifier, "include") in ("true", "1")
    sides = {side: source.child(root, side) for side in ("Initiator", "Responder")}
    _known(source, me, sides)
    binding = source.text(root, "mepBinding") or ""
    agreement = source.child(root, "Agreement")
    agreed = source.text(agreement, "name")
    if included and not agreed:
        source.note(identifier, "include is left out: without an Agreement no message has the id")
    legs = source.children(root, "Leg")
    if not legs:
        raise Refusal(line_of(root), "the P-Mode has no Leg")
    pulled = binding in (PULL, PULL_AND_PUSH, PULL_AND_PULL)
    pmode: Plain = pruned(
        {
            "id": text(identifier),
            "agreement": _agreement(agreed, source.text(agreement, "type"), included),
            "mep": source.text(root, "mep"),
            "mep_binding": binding or None,
            "initiator": _partner(source, sides["Initiator"]),
            "responder": _partner(source, sides["Responder"]),
        }
    )
    both = (sides["Initiator"], sides["Responder"])
    pmode["legs"] = [
        _leg(source, leg, *(both[::-1] if pulled == (index == 0) else both))
        for index, leg in enumerate(legs)
    ]
    source.lines[text(identifier)] = line_of(identifier)
    return source.result(WHAT, [pmode], _REASONS)


def _agreement(value: str | None, type_: str | None, included: bool) -> str | Plain | None:
    """The agreement; Holodeck writes the P-Mode's id beside it where `id/@include` says so."""
    if not value:
        return None
    if not included:
        return typed(value, type_)
    found: Plain = pruned({"value": value, "type": type_, "include_pmode": True})
    return found


def _known(source: Source, me: str | None, sides: dict[str, Element | None]) -> None:
    named = [
        text(found)
        for side in sides.values()
        if side is not None
        for found in source.children(side, "PartyId")
    ]
    if me is not None and None not in sides.values() and me not in named:
        known = ", ".join(named)
        raise Refusal(line_of(source.root), f"{me!r} is no party of this P-Mode; parties: {known}")


def _partner(source: Source, element: Element | None) -> Plain | None:
    if element is None:
        return None
    ids = source.children(element, "PartyId")
    return {
        "party": [party_id(text(found), source.attribute(found, "type")) for found in ids],
        "role": source.text(element, "Role"),
    }


def _leg(
    source: Source, element: Element, sender: Element | None, receiver: Element | None
) -> Plain:
    protocol = source.child(element, "Protocol")
    flow = source.child(element, "UserMessageFlow")
    receipt = source.child(element, "Receipt")
    compressed = source.text(flow, "PayloadProfile", "UseAS4Compression")
    found: Plain = pruned(
        {
            "protocol": {
                "address": source.text(protocol, "Address"),
                "soap_version": source.text(protocol, "SoapVersion"),
            },
            "business_info": _business(source, flow),
            "error_handling": {"report": _report(source, flow, receipt)},
            "security": {
                "x509": _x509(source, sender, receiver),
                "username_token": _token(source, sender),
                "send_receipt": _receipt(source, receipt),
            },
            "payload_service": {"compression_type": "gzip" if _is_true(compressed) else None},
            "reception_awareness": _awareness(source, element, receipt),
        }
    )
    if receipt is not None:
        found.setdefault("security", {}).setdefault("send_receipt", True)
    return found


def _is_true(value: str | None) -> bool:
    return value in ("true", "1")


def _flag(value: str | None) -> bool | None:
    return None if value is None else _is_true(value)


def _business(source: Source, flow: Element | None) -> Plain:
    info = source.child(flow, "BusinessInfo")
    service = source.child(info, "Service")
    value = source.text(service, "name")
    properties = source.children(info, "Property") if info is not None else []
    for item in properties:
        if source.text(item, "value"):
            message = "the value of a Property is not carried over: submissions give it"
            source.note(item, message)
    return {
        "service": typed(value, source.text(service, "type")) if value else None,
        "action": source.text(info, "Action"),
        "mpc": source.text(info, "Mpc"),
        "properties": [{"name": source.text(item, "name") or ""} for item in properties],
    }


def _report(source: Source, flow: Element | None, receipt: Element | None) -> Plain:
    errors = source.child(flow, "ErrorHandling")
    pattern = source.text(errors, "ReplyPattern")
    return {
        "receiver_errors_to": source.text(errors, "ReceiverErrorsTo"),
        "as_response": None if pattern is None else pattern.upper() == "RESPONSE",
        "process_error_notify_producer": _flag(
            source.text(errors, "NotifyErrorToBusinessApplication")
        ),
        "missing_receipt_notify_producer": _flag(
            source.text(receipt, "NotifyReceiptToBusinessApplication")
        ),
    }


def _receipt(source: Source, receipt: Element | None) -> Plain | None:
    pattern = source.text(receipt, "ReplyPattern")
    return {
        "reply_pattern": pattern.lower() if pattern else None,
        "reply_to": source.text(receipt, "To"),
    }


def _awareness(source: Source, leg: Element, receipt: Element | None) -> Plain | bool | None:
    element = source.child(leg, "ReceptionAwareness")
    if element is None:
        return None
    if receipt is None:
        source.note(element, "ReceptionAwareness is left out: there is no Receipt to wait for")
        source.skip(element)
        return None
    if source.text(element, "UseDuplicateElimination") in ("false", "0"):
        source.note(element, "UseDuplicateElimination: duplicates are always recognised")
    retries, interval = source.text(element, "MaxRetries"), source.text(element, "RetryInterval")
    if retries is None:
        return True
    if not (retries.isdigit() and (interval or "0").isdigit()):
        raise Refusal(line_of(element), "MaxRetries and RetryInterval are whole numbers")
    if int(retries) == 0:
        return True
    period = f"PT{interval}S" if int(interval or 0) else None
    return {"retry": {"parameters": {"max_retries": int(retries), "period": period}}}


def _x509(source: Source, sender: Element | None, receiver: Element | None) -> Plain:
    """The sender signs with its own key, and encrypts with the receiver's certificate."""
    answering = source.child(receiver, "SecurityConfiguration", "Signing")
    if answering is not None:
        alias = source.text(answering, "KeystoreAlias")
        message = f"receipts are signed with {alias!r} of a Java keystore: name the certificate in "
        source.note(answering, message + "security.send_receipt.certificate")
        source.skip(answering)
    return {
        **_signature(source, source.child(sender, "SecurityConfiguration", "Signing")),
        "encryption": _encryption(
            source, source.child(receiver, "SecurityConfiguration", "Encryption")
        ),
    }


def _signature(source: Source, element: Element | None) -> Plain:
    if element is None:
        return {}
    _alias(source, element, "x509.signature.key, and for the receiver in signature.pins")
    return {
        "sign": True,
        "signature": {
            "algorithm": source.text(element, "Algorithm"),
            "hash_function": source.text(element, "HashFunction"),
            "key_reference": _reference(source, element),
        },
    }


def _encryption(source: Source, element: Element | None) -> Plain | None:
    if element is None:
        return None
    _alias(source, element, "x509.encryption.certificate, and for the receiver encryption.key")
    transport = source.child(element, "KeyTransport")
    return {
        "encrypt": True,
        "algorithm": source.text(element, "Algorithm"),
        "key_transport": source.text(transport, "Algorithm"),
        "digest": source.text(transport, "DigestAlgorithm"),
        "mgf": source.text(transport, "MGFAlgorithm"),
        "key_reference": _reference(source, transport),
    }


def _alias(source: Source, element: Element, where: str) -> None:
    """A key of a Java keystore is named by its alias; the password is not told."""
    alias = source.child(element, "KeystoreAlias")
    if alias is not None:
        source.attribute(alias, "password")
        message = f"{text(alias)!r} is in a Java keystore: export it, and name the file in "
        source.note(alias, message + where)


def _reference(source: Source, element: Element | None) -> str | None:
    named = source.text(element, "KeyReferenceMethod")
    if element is None or named is None:
        return None
    if named not in _KEY_REFERENCES:
        source.note(element, f"KeyReferenceMethod {named!r} is not known here")
    return _KEY_REFERENCES.get(named)


def _token(source: Source, sender: Element | None) -> Plain | None:
    configuration = source.child(sender, "SecurityConfiguration")
    for element in (
        source.children(configuration, "UsernameToken") if configuration is not None else ()
    ):
        if source.attribute(element, "target") == "ebms":
            message = "a UsernameToken for ebms is the authorization of the P-Mode, which this "
            source.note(element, message + "version does not check")
            source.skip(element)
            continue
        password = source.child(element, "password")
        kind = source.attribute(password, "type") if password is not None else None
        return {
            "username": source.text(element, "username"),
            "password": source.text(element, "password"),
            "digest": None if kind is None else kind == "Digest",
            "nonce": _flag(source.text(element, "includeNonce")),
            "created": _flag(source.text(element, "includeCreated")),
        }
    return None
