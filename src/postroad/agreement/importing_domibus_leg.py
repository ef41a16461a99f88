"""A legConfiguration of Domibus: business, errors, security and delivery of one message."""

from typing import Final

from postroad.agreement.importing_domibus_parts import Parts
from postroad.agreement.importing_source import Element, Plain, Refusal, line_of, typed

_POLICIES: Final = {
    "edeliveryas4policy": (True, True),
    "signandencrypt": (True, True),
    "signonly": (True, False),
    "donothing": (False, False),
    "nosignoenc": (False, False),
}
"""What the policies that Domibus comes with do: sign, encrypt; by how their files begin."""
_EDELIVERY: Final = {
    "algorithm": "aes128-gcm",
    "key_transport": "rsa-oaep",
    "digest": "sha256",
    "mgf": "mgf1sha256",
}
"""What eDelivery AS4 encrypts with."""
_MOST_BYTES: Final = 10**15


def business(parts: Parts, leg: Element) -> Plain:
    """Service, action, channel, properties and payloads."""
    source = parts.source
    service, action = parts.referred(leg, "service"), parts.value(leg, "action")
    if service is None or action is None:
        raise Refusal(line_of(leg), "the legConfiguration lacks a service or an action")
    value = source.attribute(service, "value")
    mpc = parts.referred(leg, "defaultMpc", "mpc")
    if mpc is not None:
        for name in ("enabled", "default"):
            source.attribute(mpc, name)
    return {
        "service": typed(value, source.attribute(service, "type")) if value else None,
        "action": action,
        "mpc": source.attribute(mpc, "qualifiedName") if mpc is not None else None,
        "properties": _properties(parts, leg),
        "payload_profile": _payloads(parts, leg),
    }


def _properties(parts: Parts, leg: Element) -> list[Plain]:
    source = parts.source
    group = parts.referred(leg, "propertySet")
    found = []
    for reference in source.children(group, "propertyRef") if group is not None else ():
        item = parts.referred(reference, "property")
        if item is None:
            raise Refusal(line_of(reference), "a propertyRef names no property")
        if source.attribute(item, "value"):
            source.note(item, "the value of a property is not carried over: submissions give it")
        found.append(
            {
                "name": source.attribute(item, "key"),
                "type": source.attribute(item, "datatype"),
                "required": _flag(parts, item, "required"),
            }
        )
    return found


def _payloads(parts: Parts, leg: Element) -> Plain | None:
    source = parts.source
    profile = parts.referred(leg, "payloadProfile")
    if profile is None:
        return None
    payloads = []
    for reference in source.children(profile, "attachment"):
        item = parts.get("payload", source.attribute(reference, "name"), reference)
        cid = source.attribute(item, "cid")
        payloads.append(
            {
                "name": cid.removeprefix("cid:") if cid else None,
                "mime_type": source.attribute(item, "mimeType"),
                "xml_schema": source.attribute(item, "schemaFile"),
                "max_size": _size(parts, item),
                "required": _flag(parts, item, "required"),
            }
        )
    return {"max_size": _size(parts, profile), "payloads": payloads}


def _size(parts: Parts, element: Element) -> str | None:
    value = parts.source.attribute(element, "maxSize")
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and 0 < int(value[:40]) < _MOST_BYTES):
        raise Refusal(line_of(element), f"maxSize {value!r} is no number of bytes")
    return f"{value} B"


def _flag(parts: Parts, element: Element, name: str) -> bool | None:
    value = parts.source.attribute(element, name)
    if value not in (None, "true", "false", "1", "0"):
        raise Refusal(line_of(element), f"{name} {value!r} is neither true nor false")
    return None if value is None else value in ("true", "1")


def errors(parts: Parts, leg: Element) -> Plain:
    """How errors are reported."""
    element = parts.referred(leg, "errorHandling")
    if element is None:
        return {}
    report = {
        "as_response": _flag(parts, element, "errorAsResponse"),
        "process_error_notify_consumer": _flag(parts, element, "businessErrorNotifyConsumer"),
        "process_error_notify_producer": _flag(parts, element, "businessErrorNotifyProducer"),
        "delivery_failures_notify_producer": _flag(parts, element, "deliveryFailureNotifyProducer"),
    }
    return {"report": report}


def security(parts: Parts, leg: Element, *, pulled: bool) -> Plain:
    """Signature, encryption and receipts."""
    source = parts.source
    element = parts.referred(leg, "security")
    if element is None:
        raise Refusal(line_of(leg), "the legConfiguration has no security")
    policy = source.attribute(element, "policy") or ""
    stem = policy.lower().removesuffix(".xml")
    known = next((does for name, does in _POLICIES.items() if stem.startswith(name)), None)
    if known is None:
        message = f"policy {policy!r} is not one of those that Domibus comes with: what it asks for"
        raise Refusal(line_of(element), f"{message} is not known here")
    signs, encrypts = known
    method = (source.attribute(element, "signatureMethod") or "").lower().replace("_", "-")
    x509: Plain = {}
    if signs:
        message = "keys and certificates are in Java keystores, by the parties' names: export "
        source.note(element, message + "them, and name the files in security.x509")
        digest = method.rpartition("-")[2] if method else None
        x509 = {"sign": True, "signature": {"algorithm": method or None, "hash_function": digest}}
    if encrypts:
        x509["encryption"] = {"encrypt": True, **_EDELIVERY}
    return {"x509": x509, "send_receipt": _receipt(parts, leg, signs, pulled)}


def _receipt(parts: Parts, leg: Element, signs: bool, pulled: bool) -> Plain | bool:
    element = parts.referred(leg, "reliability")
    if element is None:
        return True
    proof = _flag(parts, element, "nonRepudiation")
    if proof and not signs:
        parts.source.note(element, "nonRepudiation needs a signature, and the policy has none")
        proof = None
    pattern = (parts.source.attribute(element, "replyPattern") or "").lower()
    return {
        "reply_pattern": "callback" if pulled else pattern or None,
        "non_repudiation": proof,
    }


def delivery(parts: Parts, leg: Element) -> Plain:
    """Compression, retries, duplicates, splitting."""
    source = parts.source
    if source.attribute(leg, "splitting"):
        message = "splitting is not carried over: add it to the leg, with receipts that call back"
        source.note(leg, message)
    compressed = _flag(parts, leg, "compressPayloads")
    awareness: Plain | bool | None = None
    element = parts.referred(leg, "receptionAwareness")
    if element is not None:
        if _flag(parts, element, "duplicateDetection") is False:
            source.note(element, "duplicateDetection: duplicates are always recognised")
        awareness = _retries(element, source.attribute(element, "retry"))
    return {
        "payload_service": {"compression_type": "gzip" if compressed else None},
        "reception_awareness": awareness,
    }


def _retries(element: Element, text: str | None) -> Plain | bool:
    """`minutes;times;CONSTANT`: so many times within so many minutes; or PROGRESSIVE, SEND_ONCE."""
    words = [word.strip() for word in (text or "0;0;SEND_ONCE").split(";")]
    numbers, strategy = words[:-1], words[-1].upper()
    if strategy not in ("CONSTANT", "PROGRESSIVE", "SEND_ONCE") or not all(
        number.isascii() and number.isdigit() and len(number) <= 6 for number in numbers
    ):
        raise Refusal(line_of(element), f"retry {text!r} is not understood")
    minutes, *more = [int(number) for number in numbers] or [0]
    if strategy == "SEND_ONCE" or minutes == 0 or not more or more[0] == 0:
        return True
    if strategy == "CONSTANT":
        seconds = max(minutes * 60 // more[0], 1)
        return {"retry": {"parameters": {"max_retries": more[0], "period": f"PT{seconds}S"}}}
    return {
        "retry": {
            "parameters": {
                "max_retries": "unlimited",
                "period": f"PT{more[0]}M",
                "backoff": more[1] if len(more) > 1 and more[1] > 1 else None,
                "persist_duration": f"PT{minutes}M",
            }
        }
    }
