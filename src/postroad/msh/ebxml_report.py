"""What only ebXML messages say, as plain data: part of `postroad inspect --json`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from postroad.wire.ebms3 import Description
from postroad.wire.ebms3_writer import write_timestamp
from postroad.wire.ebxml import (
    Acknowledgment,
    EbxmlMessage,
    ErrorList,
    Manifest,
    StatusData,
    TraceHeader,
    Via,
)

Json = dict[str, Any]


def ebxml_facts(message: EbxmlMessage) -> Json:
    """All of it but what every user message has."""
    header = message.header
    number = header.sequence_number
    return {
        "version": message.dialect.name,
        "time_to_live": _time(header.time_to_live),
        "delivery_semantics": header.delivery_semantics,
        "message_order_semantics": header.message_order_semantics,
        "delivery_receipt_requested": header.delivery_receipt_requested,
        "duplicate_elimination": header.duplicate_elimination,
        "sequence_number": {"value": number.value, "status": number.status} if number else None,
        "descriptions": _texts(header.descriptions),
        "trace": [_trace(one) for one in message.trace],
        "via": _via(message.via),
        "ack_requested": [
            {"signed": one.signed, "actor": one.actor} for one in message.ack_requested
        ],
        "sync_reply": message.sync_reply,
        "manifest": _manifest(message.manifest),
        "acknowledgment": _acknowledgment(message.acknowledgment),
        "error_list": _errors(message.error_list),
        "status_request": message.status_request.ref_to_message_id
        if message.status_request
        else None,
        "status": _status(message.status_data),
    }


def _time(time: datetime | None) -> str | None:
    return write_timestamp(time) if time else None


def _texts(descriptions: Sequence[Description]) -> list[str]:
    return [one.text for one in descriptions]


def _trace(trace: TraceHeader) -> Json:
    return {
        "sender_uri": trace.sender_uri,
        "receiver_uri": trace.receiver_uri,
        "timestamp": _time(trace.timestamp),
        "sequence_number": trace.sequence_number,
    }


def _via(via: Via | None) -> Json | None:
    if via is None:
        return None
    return {
        "sync_reply": via.sync_reply,
        "reliable_messaging_method": via.reliable_messaging_method,
        "ack_requested": via.ack_requested,
        "cpa_id": via.cpa_id,
        "service": str(via.service) if via.service else None,
        "action": via.action,
    }


def _manifest(manifest: Manifest | None) -> list[Json]:
    return [
        {
            "id": one.id,
            "href": one.href,
            "role": one.role,
            "schemas": [schema.location for schema in one.schemas],
            "descriptions": _texts(one.descriptions),
        }
        for one in (manifest.references if manifest else ())
    ]


def _acknowledgment(said: Acknowledgment | None) -> Json | None:
    if said is None:
        return None
    return {
        "timestamp": _time(said.timestamp),
        "type": said.type,
        "signed": said.signed,
        "from": str(said.from_party) if said.from_party else None,
        "ref_to_message_id": said.ref_to_message_id,
        "actor": said.actor,
        "references": [
            {
                "uri": one.uri,
                "digest_method": one.digest_method,
                "digest": one.digest_value.hex(),
            }
            for one in said.references
        ],
    }


def _errors(errors: ErrorList | None) -> Json | None:
    if errors is None:
        return None
    return {
        "highest_severity": errors.highest_severity,
        "errors": [
            {
                "code": one.error_code,
                "severity": one.severity,
                "code_context": one.code_context,
                "location": one.location,
                "text": one.text,
                "min_retry_secs": one.min_retry_secs,
            }
            for one in errors.errors
        ],
    }


def _status(status: StatusData | None) -> Json | None:
    if status is None:
        return None
    return {
        "ref_to_message_id": status.ref_to_message_id,
        "message_status": status.message_status,
        "timestamp": _time(status.timestamp),
    }
