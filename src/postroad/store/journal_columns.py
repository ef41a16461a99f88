"""What the journal's segments hold: columns, events, and what a file says of itself (JOURNAL)."""

from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = "1"
META_SCHEMA: Final = b"postroad.schema"
META_NODE: Final = b"postroad.node"
META_EPOCH: Final = b"postroad.epoch"
META_PREVIOUS: Final = b"postroad.previous"
"""SHA-256, in hex, of the segment file before this one; empty for the first of an epoch."""

COLUMNS: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("party", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("side", pa.string()),
        pa.field("message_id", pa.string()),
        pa.field("signal_id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("ref_to_message_id", pa.string()),
        pa.field("conversation_id", pa.string()),
        pa.field("group_id", pa.string()),
        pa.field("envelope", pa.string()),
        pa.field("from_party", pa.string()),
        pa.field("to_party", pa.string()),
        pa.field("service", pa.string()),
        pa.field("action", pa.string()),
        pa.field("mpc", pa.string()),
        pa.field("pmode", pa.string()),
        pa.field("protocol", pa.string()),
        pa.field("attempt", pa.int32()),
        pa.field("sequence_number", pa.int64()),
        pa.field("fragment", pa.int32()),
        pa.field("fragments", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("wire_bytes", pa.int64()),
        pa.field("payload_digests", pa.list_(pa.string())),
        pa.field("peer", pa.string()),
        pa.field("error_code", pa.string()),
        pa.field("severity", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("evidence", pa.string()),
    ]
)
"""Every column of a segment, in order."""

SENDING: Final = "sending"
RECEIVING: Final = "receiving"
FORWARDING: Final = "forwarding"
SIDES: Final = (SENDING, RECEIVING, FORWARDING)

_SENDER: Final = (SENDING,)
_RECEIVER: Final = (RECEIVING,)
_ANY: Final = (*SIDES, None)
EVENTS: Final[dict[str, tuple[str | None, ...]]] = {
    "submitted": _SENDER,
    "bundled": _SENDER,
    "split": _SENDER,
    "queued": (SENDING, FORWARDING),
    "sent": _SENDER,
    "resent": _SENDER,
    "send_failed": (SENDING, FORWARDING),
    "signed_again": (SENDING, RECEIVING),
    "hop_acked": (SENDING, FORWARDING),
    "ack_received": _SENDER,
    "receipt_received": _SENDER,
    "error_received": _SENDER,
    "expired": (SENDING, FORWARDING),
    "delivery_failed": (SENDING, FORWARDING),
    "in_doubt": _SENDER,
    "settled": _SENDER,
    "received": (RECEIVING, FORWARDING),
    "duplicate": (RECEIVING, FORWARDING),
    "out_of_order": _RECEIVER,
    "held": _RECEIVER,
    "joined": _RECEIVER,
    "rejected": (RECEIVING, FORWARDING),
    "delivered": _RECEIVER,
    "acked": _RECEIVER,
    "receipt_sent": _RECEIVER,
    "pulled": _RECEIVER,
    "forwarded": (FORWARDING,),
    "error_raised": _ANY,
    "suspended": _ANY,
    "resumed": _ANY,
    "purged": _ANY,
    "heartbeat": (None,),
}
"""Each event with the sides on which it may be written."""
