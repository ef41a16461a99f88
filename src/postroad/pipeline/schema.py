"""The tables of a lake, column by column."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

DATE: Final = "date"
"""Every table lies in daily partitions; the day of each row, in UTC, is its last column."""


@dataclass(frozen=True, slots=True)
class Table:
    """What one row of a table is, which day it lies under, and its columns with their meaning."""

    name: str
    row: str
    dated_by: str
    columns: tuple[tuple[str, str, str], ...]
    """Name, Spark type, meaning."""

    @property
    def schema(self) -> StructType:
        """Without the day."""
        parsed = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind, _ in self.columns))
        assert isinstance(parsed, StructType)
        return parsed

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.columns]


EVENTS: Final = Table(
    "events",
    "journal event",
    "at",
    (
        ("node", "string", "the stable name of the node that wrote it"),
        ("epoch", "int", "grows by one when the node's database was restored or made anew"),
        ("seq", "bigint", "its number in the epoch; node, epoch and seq are its identity"),
        ("at", "timestamp", "when, by the node's clock"),
        ("party", "string", "on whose behalf the node acted; for a relay its own name"),
        ("event", "string", "what happened"),
        ("side", "string", "sending, receiving or forwarding; null for events about no message"),
        ("message_id", "string", "the user message it is about, also for signals"),
        ("signal_id", "string", "the id of the receipt, acknowledgment or error itself"),
        ("kind", "string", "message or fragment"),
        ("ref_to_message_id", "string", "the message that this one answers"),
        ("conversation_id", "string", "the conversation of the user message"),
        ("group_id", "string", "for fragments: the id of the source message"),
        ("envelope", "string", "the first unit in the wire envelope: the same for all in it"),
        ("from_party", "string", "who sends the user message"),
        ("to_party", "string", "for whom the user message is"),
        ("service", "string", "of the user message"),
        ("action", "string", "of the user message"),
        ("mpc", "string", "the channel of the user message"),
        ("pmode", "string", "the agreement of the user message"),
        ("protocol", "string", "as4, ebms3, ebxml-0.98b, ebxml-2.0, wsrm or wsreliability"),
        ("attempt", "int", "1, 2, … of sent, resent and send_failed"),
        ("sequence_number", "bigint", "its place among the sender's messages"),
        ("fragment", "int", "the number of the fragment"),
        ("fragments", "int", "how many fragments there are"),
        ("bytes", "bigint", "payload bytes as submitted"),
        ("wire_bytes", "bigint", "what went over the wire"),
        ("payload_digests", "array<string>", "sha256:hex of each payload"),
        ("peer", "string", "address or party at the other end of this step"),
        ("error_code", "string", "the code of the error"),
        ("severity", "string", "failure or warning"),
        ("detail", "string", "a sentence, or the answer of settled"),
        ("evidence", "string", "where the signed bytes lie"),
    ),
)

MESSAGES: Final = Table(
    "messages",
    "message and side",
    "the first event of the message",
    (
        ("message_id", "string", "the message"),
        ("side", "string", "sending or receiving"),
        ("kind", "string", "message or fragment"),
        ("party", "string", "on whose behalf"),
        ("from_party", "string", "who sends it"),
        ("to_party", "string", "for whom it is"),
        ("service", "string", "of the message"),
        ("action", "string", "of the message"),
        ("conversation_id", "string", "of the message"),
        ("pmode", "string", "the agreement"),
        ("protocol", "string", "as4, ebms3, ebxml-0.98b, …"),
        ("bytes", "bigint", "payload bytes as submitted"),
        ("submitted_at", "timestamp", "accepted from the application"),
        ("first_sent_at", "timestamp", "the first attempt that may have left"),
        ("last_sent_at", "timestamp", "the last attempt that may have left"),
        ("received_at", "timestamp", "it came"),
        ("delivered_at", "timestamp", "made available to the application"),
        ("acknowledged_at", "timestamp", "sending: a valid acknowledgment came; receiving: went"),
        ("failed_at", "timestamp", "sending: delivery_failed or expired; receiving: rejected"),
        ("attempts", "bigint", "sent, resent and send_failed"),
        ("duplicates", "bigint", "copies that came"),
        ("deliveries", "bigint", "how often it was delivered"),
        ("errors", "bigint", "error_raised and error_received on this side"),
        ("outcome", "string", "acknowledged, failed, expired, in_doubt, pending; delivered, "
         "rejected, received, pending"),
        ("latency_ms", "double", "sending: submitted to acknowledged; receiving: received to "
         "delivered"),
    ),
)  # fmt: skip

RECONCILIATION: Final = Table(
    "reconciliation",
    "message",
    "first_at",
    (
        ("message_id", "string", "the message"),
        ("class", "string", "twice, lost, confirmed, ghost, refused, failed, in_doubt, pending"),
        ("sender_outcome", "string", "outcome of the sending side; null without its journal"),
        ("receiver_outcome", "string", "outcome of the receiving side; null without its journal"),
        ("deliveries", "bigint", "how often it was delivered"),
        ("settled_by", "string", "who settled it: a peer, or the receiver's journal"),
        ("first_at", "timestamp", "its first event, relays included"),
        ("last_at", "timestamp", "its last event, relays included, purged excluded"),
        ("detail", "string", "why it is of this class"),
    ),
)

PARTNERS: Final = Table(
    "partners",
    "partner and hour",
    "hour",
    (
        ("partner", "string", "to_party when sending, from_party when receiving"),
        ("hour", "timestamp", "UTC"),
        ("sent", "bigint", "messages first sent in that hour"),
        ("acknowledged", "bigint", "of these, as they stand now"),
        ("failed", "bigint", "of these, with expired"),
        ("in_doubt", "bigint", "of these"),
        ("retries", "bigint", "attempts of these beyond the first"),
        ("duplicates", "bigint", "copies that came in that hour"),
        ("errors", "bigint", "errors in that hour"),
        ("p50_ms", "double", "half of these were acknowledged sooner"),
        ("p95_ms", "double", "95 of 100 were"),
        ("p99_ms", "double", "99 of 100 were"),
    ),
)

HOPS: Final = Table(
    "hops",
    "message and relay",
    "the first event of the message",
    (
        ("message_id", "string", "the message or fragment"),
        ("node", "string", "the relay's node"),
        ("party", "string", "the relay"),
        ("arrived_at", "timestamp", "first received"),
        ("left_at", "timestamp", "first forwarded"),
        ("dwell_ms", "double", "between the two"),
        ("next", "string", "to whom it was forwarded"),
    ),
)

CONVERSATIONS: Final = Table(
    "conversations",
    "conversation",
    "started_at",
    (
        ("conversation_id", "string", "the conversation"),
        ("parties", "array<string>", "all senders and receivers, sorted"),
        ("messages", "bigint", "how many"),
        ("started_at", "timestamp", "its first event"),
        ("last_at", "timestamp", "its last event"),
        ("requests", "bigint", "messages that answer none"),
        ("replies", "bigint", "messages that answer one"),
        ("unanswered", "bigint", "requests that no message refers to"),
        ("gaps", "bigint", "sequence numbers missing between the first and last, per sender"),
        ("out_of_order", "bigint", "events of that name"),
    ),
)

PACKING: Final = Table(
    "packing",
    "P-Mode and hour",
    "hour",
    (
        ("pmode", "string", "the agreement"),
        ("hour", "timestamp", "UTC, in which they were first sent"),
        ("messages", "bigint", "messages"),
        ("envelopes", "bigint", "distinct wire envelopes, those of fragments too"),
        ("fragments", "bigint", "fragments"),
        ("payload_bytes", "bigint", "of messages, as submitted"),
        ("wire_bytes", "bigint", "of all attempts that may have left, fragments included"),
    ),
)

EVIDENCE: Final = Table(
    "evidence",
    "receipt",
    "checked_at",
    (
        ("message_id", "string", "the message"),
        ("receipt_id", "string", "the receipt's own id"),
        ("valid", "boolean", "all of it holds; null where nothing is signed"),
        ("signature", "boolean", "the receipt's signature holds"),
        ("chain", "boolean", "the signer was trusted at that time"),
        ("digests", "boolean", "the receipt is about exactly what was sent"),
        ("signer", "string", "the subject of the certificate"),
        ("checked_at", "timestamp", "when it was verified"),
        ("detail", "string", "what does not hold"),
    ),
)

FINDINGS: Final = Table(
    "findings",
    "finding",
    "at",
    (
        ("at", "timestamp", "when it happened, as far as that is known"),
        ("kind", "string", "chain, gap, identity, quarantine, clock, two_senders, two_receivers, "
         "unknown_event, foreign_file, totals"),
        ("subject", "string", "the file, node or message that it is about"),
        ("detail", "string", "a sentence"),
    ),
)  # fmt: skip

TABLES: Final = {
    table.name: table
    for table in (
        EVENTS, MESSAGES, RECONCILIATION, PARTNERS, HOPS, CONVERSATIONS, PACKING, EVIDENCE, FINDINGS
    )
}  # fmt: skip
