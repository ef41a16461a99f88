"""An inspection as plain data: what `postroad inspect --json` prints."""

from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

from postroad.msh.ebxml_report import ebxml_facts
from postroad.msh.inspection import signal_kind
from postroad.msh.lens import Inspection
from postroad.msh.payloads import Payload
from postroad.wire.ebms3 import (
    Error,
    MessageInfo,
    PartInfo,
    Property,
    Receipt,
    SignalMessage,
    Unit,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_timestamp
from postroad.wire.errors import EbmsError
from postroad.wire.mime import Part
from postroad.wire.multihop import RoutingInput
from postroad.wire.names import DEFAULT_MPC
from postroad.wire.wsa import Addressing, EndpointReference
from postroad.wire.wsrm import RmHeaders, SequenceAcknowledgement

Json = dict[str, Any]


def report(found: Inspection) -> Json:
    """The whole truth about a message as one JSON object."""
    capture, envelope, messaging = found.capture, found.envelope, found.messaging
    return {
        "kind": found.kind,
        "holds": found.holds,
        "soap": envelope.version.number if envelope else None,
        "http": _http(found),
        "multipart": capture.multipart if capture else None,
        "units": [
            _unit(unit, found.payloads.get(place, ()), found)
            for place, unit in enumerate(messaging.units if messaging else ())
        ],
        "ebxml": ebxml_facts(found.ebxml) if found.ebxml else None,
        "parts": [_part(part, found) for part in (capture.attachments if capture else ())],
        "signature": _signature(found),
        "encryption": _encryption(found),
        "timestamp": _timestamp(found),
        "username_tokens": [
            {
                "username": token.username,
                "password": token.password_type.name.lower() if token.password else None,
                "nonce": token.nonce is not None,
                "created": token.created,
            }
            for token in found.username_tokens
        ],
        "role": messaging.role if messaging else None,
        "addressing": _addressing(found.addressing),
        "routing": _routing(found.routing),
        "fragment": _fragment(found),
        "reliability": _reliability(found.rm),
        "fault": _fault(found),
        "pmode": found.pmode,
        "errors": [problem_facts(problem) for problem in found.problems],
    }


def _http(found: Inspection) -> Json | None:
    head = found.capture.http if found.capture else None
    if head is None:
        return None
    return {
        "start_line": head.start_line,
        "status": head.status,
        "headers": [[name, value] for name, value in head.headers],
    }


def problem_facts(problem: EbmsError) -> Json:
    return {
        "code": problem.code,
        "short_description": problem.kind.short_description,
        "severity": problem.severity.value,
        "detail": problem.detail,
        "location": problem.location,
    }


def _unit(unit: Unit, payloads: Sequence[Payload], found: Inspection) -> Json:
    if not isinstance(unit, UserMessage):
        return _signal(unit)
    facts = _user_message(unit, payloads)
    # What ebXML does not have is not told, though the value has it.
    return {**facts, "kind": found.kind, "mpc": None} if found.ebxml else facts


def _info(info: MessageInfo) -> Json:
    return {
        "message_id": info.message_id,
        "ref_to_message_id": info.ref_to_message_id,
        "timestamp": write_timestamp(info.timestamp),
    }


def _user_message(message: UserMessage, payloads: Sequence[Payload]) -> Json:
    about = message.collaboration_info
    agreement = about.agreement_ref
    return {
        "kind": "user_message",
        **_info(message.message_info),
        "from": str(message.from_party),
        "from_role": message.from_party.role or None,
        "to": str(message.to_party),
        "to_role": message.to_party.role or None,
        "agreement": {"ref": agreement.value, "type": agreement.type, "pmode": agreement.pmode}
        if agreement
        else None,
        "service": about.service.value,
        "service_type": about.service.type,
        "action": about.action,
        "conversation_id": about.conversation_id,
        "mpc": message.effective_mpc,
        "properties": _properties(message.properties),
        "payloads": [_payload(payload) for payload in payloads],
    }


def _properties(properties: Sequence[Property]) -> Json:
    """Name to value; a name that occurs more than once has a list of values."""
    found: dict[str, list[str]] = {}
    for one in properties:
        found.setdefault(one.name, []).append(one.value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _payload(payload: Payload) -> Json:
    info: PartInfo = payload.part_info
    return {
        "href": info.href,
        "content_type": payload.media_type,
        "compressed": payload.compressed,
        "size": payload.content.size if payload.content is not None else None,
        "sha256": payload.sha256.hex() if payload.sha256 is not None else None,
        "unpacked": {
            "size": payload.unpacked.content.size,
            "sha256": payload.unpacked.sha256.hex(),
        }
        if payload.unpacked
        else None,
        "properties": _properties(info.properties),
        "description": info.description.text if info.description else None,
        "schemas": [schema.location for schema in info.schemas],
    }


def _signal(signal: SignalMessage) -> Json:
    request = signal.pull_request
    return {
        "kind": signal_kind(signal),
        **_info(signal.message_info),
        "from": None,
        "to": None,
        "service": None,
        "action": None,
        "mpc": request.effective_mpc if request else None,
        "properties": {},
        "selection": _selection(signal),
        "receipt": _receipt(signal.receipt),
        "errors": [_error(error) for error in signal.errors],
    }


def _selection(signal: SignalMessage) -> Json | None:
    selection = signal.pull_request.selection if signal.pull_request else None
    if selection is None:
        return None
    items: Json = {
        "ref_to_message_id": selection.ref_to_message_id,
        "conversation_id": selection.conversation_id,
        "agreement_ref": selection.agreement_ref.value if selection.agreement_ref else None,
        "service": str(selection.service) if selection.service else None,
        "action": selection.action,
        "from": str(selection.from_party) if selection.from_party else None,
        "to": str(selection.to_party) if selection.to_party else None,
        "properties": _properties(selection.properties) or None,
    }
    return {name: value for name, value in items.items() if value is not None}


def _receipt(receipt: Receipt | None) -> Json | None:
    if receipt is None:
        return None
    proof = receipt.non_repudiation
    return {
        "non_repudiation": proof is not None,
        "references": [
            {
                "uri": reference.uri,
                "digest_method": reference.digest_method,
                "digest": reference.digest_value.hex(),
            }
            for reference in (proof.references if proof else ())
        ],
        "user_message": receipt.user_message.message_info.message_id
        if receipt.user_message
        else None,
    }


def _error(error: Error) -> Json:
    return {
        "code": error.error_code,
        "severity": error.severity,
        "category": error.category,
        "origin": error.origin,
        "short_description": error.short_description,
        "ref_to_message_in_error": error.ref_to_message_in_error,
        "description": error.description.text if error.description else None,
        "detail": error.error_detail,
    }


def _part(part: Part, found: Inspection) -> Json:
    name = part.content_id or ""
    attachment = found.attachments.get(name)
    sealed = found.decryption is not None and name in found.decryption.content_ids
    opened = sealed and attachment is not None and attachment.content is not part.content
    shown = attachment if opened and attachment is not None else None
    digest = shown.sha256 if shown is not None else part.sha256
    return {
        "cid": part.content_id,
        "content_type": shown.media_type if shown else part.content_type.media_type,
        "size": shown.content.size if shown else part.content.size,
        "sha256": digest.hex() if digest is not None else None,
        "transfer_encoding": part.transfer_encoding,
        "encrypted": sealed,
        "signed": found.verification is not None
        and found.verification.covers_attachment(name)
        and attachment is not None
        and (sealed or attachment.content is part.content),
    }


def _signature(found: Inspection) -> Json:
    check = found.verification
    if check is None:
        return {
            "present": False, "valid": None, "algorithm": None, "signer": None, "trusted": None,
            "certificate": None, "chain": [], "trust_notes": [], "revocation": [], "references": [],
            "unsigned_routing": [],
        }  # fmt: skip
    certificate = check.certificate
    return {
        "present": True,
        "valid": check.valid,
        "algorithm": check.algorithm,
        "signer": certificate.subject.rfc4514_string() if certificate else None,
        "trusted": found.trusted,
        "certificate": certificate_facts(certificate) if certificate else None,
        "chain": [one.subject.rfc4514_string() for one in found.chain or ()],
        "trust_notes": list(found.trust_notes),
        "revocation": [
            {"subject": one.subject, "status": one.status, "detail": one.detail}
            for one in found.revocation
        ],
        "references": [
            {
                "uri": one.reference.uri,
                "valid": one.valid,
                "digest_method": one.reference.digest_method,
                "digest": one.reference.digest_value.hex(),
                "transforms": [transform.algorithm for transform in one.reference.transforms],
                "reason": one.reason,
            }
            for one in check.references
        ],
        "unsigned_routing": list(found.unsigned_routing),
    }


def certificate_facts(certificate: x509.Certificate) -> Json:
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "serial": str(certificate.serial_number),
        "not_before": write_timestamp(certificate.not_valid_before_utc),
        "not_after": write_timestamp(certificate.not_valid_after_utc),
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
        "key": _key(certificate),
    }


def _key(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey):
        return f"{'RSA' if isinstance(key, rsa.RSAPublicKey) else 'DSA'} {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    return type(key).__name__.removesuffix("PublicKey")


def _encryption(found: Inspection) -> Json:
    result = found.decryption
    if result is None or not result.present:
        return {
            "present": False, "decrypted": None, "algorithms": [], "recipients": [],
            "parts": [], "body": False,
        }  # fmt: skip
    return {
        "present": True,
        "decrypted": result.decrypted,
        "algorithms": list(result.algorithms),
        "recipients": [one.subject.rfc4514_string() for one in result.recipients],
        "parts": list(result.content_ids),
        "body": result.body,
    }


def _timestamp(found: Inspection) -> Json | None:
    timestamp = found.timestamp
    if timestamp is None:
        return None
    return {
        "created": write_timestamp(timestamp.created) if timestamp.created else None,
        "expires": write_timestamp(timestamp.expires) if timestamp.expires else None,
    }


def _addressing(addressing: Addressing | None) -> Json | None:
    if addressing is None:
        return None
    return {
        "to": addressing.to,
        "action": addressing.action,
        "message_id": addressing.message_id,
        "relates_to": [related.uri for related in addressing.relates_to],
        "reply_to": _endpoint(addressing.reply_to),
        "fault_to": _endpoint(addressing.fault_to),
        "from": _endpoint(addressing.from_),
    }


def _endpoint(endpoint: EndpointReference | None) -> str | None:
    return endpoint.address if endpoint else None


def _routing(routing: RoutingInput | None) -> Json | None:
    if routing is None:
        return None
    message = routing.user_message
    return {
        "from": str(message.from_party),
        "to": str(message.to_party),
        "service": message.collaboration_info.service.value,
        "action": message.collaboration_info.action,
        "mpc": message.mpc or DEFAULT_MPC,
        "message_id": message.message_info.message_id if message.message_info else None,
        "role": routing.role,
    }


def _fragment(found: Inspection) -> Json | None:
    fragment = found.fragment
    if fragment is None:
        return None
    return {
        "group_id": fragment.group_id,
        "number": fragment.fragment_num,
        "count": fragment.fragment_count,
        "message_size": fragment.message_size,
        "compression": fragment.compression_algorithm,
        "href": fragment.href,
    }


def _reliability(rm: RmHeaders | None) -> Json | None:
    """What the headers of WS-ReliableMessaging say."""
    if rm is None:
        return None
    sequence = rm.sequence
    return {
        "sequence": sequence.identifier if sequence else None,
        "number": sequence.message_number if sequence else None,
        "ack_requested": ", ".join(rm.ack_requested) or None,
        "acknowledged": "; ".join(_acknowledged(one) for one in rm.acknowledgements) or None,
    }


def _acknowledged(ack: SequenceAcknowledgement) -> str:
    ranges = ", ".join(f"{lower}-{upper}" for lower, upper in ack.ranges) or "nothing"
    missed = f", not {', '.join(map(str, ack.nacks))}" if ack.nacks else ""
    return f"{ack.identifier}: {ranges}{missed}{', final' if ack.final else ''}"


def _fault(found: Inspection) -> Json | None:
    fault = found.fault
    if fault is None:
        return None
    return {"code": fault.code, "subcodes": list(fault.subcodes), "reason": fault.reason}
