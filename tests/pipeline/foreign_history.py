"""Histories of small networks with a known class for each message.

Written from the journal's contract alone, so that it shares no mistake with the pipeline: do not
import postroad here. Each network has names of its own, so that many fit into one lake.

acme sends. globex receives and retires at the end, so that its journal is final. umbrella
receives and stays in service. initech has no journal. hub is a relay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

REQUIRED: Final = ("node", "epoch", "seq", "at", "party", "event")
OPTIONAL: Final = (
    "side",
    "message_id",
    "signal_id",
    "kind",
    "ref_to_message_id",
    "conversation_id",
    "group_id",
    "envelope",
    "from_party",
    "to_party",
    "service",
    "action",
    "mpc",
    "pmode",
    "protocol",
    "attempt",
    "sequence_number",
    "fragment",
    "fragments",
    "bytes",
    "wire_bytes",
    "payload_digests",
    "peer",
    "error_code",
    "severity",
    "detail",
    "evidence",
)

Row = dict[str, Any]

_START: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)
_BUSY: Final = 10  # the minute in which messages are exchanged
_END: Final = 30
_WRITERS: Final = ("acme", "globex", "umbrella", "hub")
_BY_JOURNAL: Final = "journal"
_SETTLING: Final = "initech"  # replaced by the name of the network's own initech


@dataclass(frozen=True)
class Verdict:
    """The class of a message, and who settled it."""

    class_: str
    settled_by: str | None = None


_DOUBT: Final = Verdict("in_doubt")

VERDICTS: Final[Mapping[str, Verdict]] = {
    "receipt": Verdict("confirmed"),
    "warned": Verdict("confirmed"),
    "relayed": Verdict("confirmed"),
    "large": Verdict("confirmed"),
    "acked-without-journal": Verdict("confirmed"),
    "acked-before-grace": Verdict("confirmed"),
    "delivered-in-doubt": Verdict("confirmed", _BY_JOURNAL),
    "delivered-pending": Verdict("confirmed", _BY_JOURNAL),
    "from-a-stranger": Verdict("confirmed", _BY_JOURNAL),
    "settled-delivered": Verdict("confirmed", _SETTLING),
    "twice": Verdict("twice"),
    "lost": Verdict("lost"),
    "ghost": Verdict("ghost"),
    "ghost-expired": Verdict("ghost"),
    "refused": Verdict("refused"),
    "refused-pending": Verdict("refused"),
    "refused-without-journal": Verdict("refused"),
    "refused-unread": Verdict("refused"),
    "rejected-in-doubt": Verdict("refused"),
    "never-sent": Verdict("failed"),
    "expired-unsent": Verdict("failed"),
    "failed-by-journal": Verdict("failed", _BY_JOURNAL),
    "settled-not-received": Verdict("failed", _SETTLING),
    "in-doubt": _DOUBT,
    "expired-sent": _DOUBT,
    "queued": Verdict("pending"),
    "before-grace": Verdict("pending"),
}

WITHOUT: Final[Mapping[str, Mapping[str, Verdict | None]]] = {
    # What a network's verdicts become when a column is null throughout. None: no row.
    "side": dict.fromkeys(VERDICTS),
    "message_id": dict.fromkeys(VERDICTS),
    "kind": dict.fromkeys(VERDICTS),
    "to_party": {
        # Nothing names the receiver, so none of its journals can cover the message.
        "lost": Verdict("confirmed"),
        "failed-by-journal": _DOUBT,
        "before-grace": _DOUBT,
    },
    "peer": {
        "settled-delivered": Verdict("confirmed"),
        "settled-not-received": Verdict("failed"),
    },
    "severity": {
        "refused-pending": Verdict("pending"),
        "refused-without-journal": _DOUBT,
        "refused-unread": Verdict("pending"),
    },
    "detail": {
        # Neither the retirement of globex nor what a partner answered is known.
        "lost": Verdict("confirmed"),
        "failed-by-journal": Verdict("pending"),
        "settled-delivered": Verdict("in_doubt", _SETTLING),
        "settled-not-received": Verdict("in_doubt", _SETTLING),
    },
}


@dataclass
class Network:
    """The history of one network: the events of each node, in the order of seq."""

    name: str
    start: datetime = _START
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        told: list[tuple[str, datetime, Row]] = []
        for minute in range(_END + 1):
            for writer in _WRITERS:
                told.append((writer, self._minute(minute), {"event": "heartbeat"}))
            if minute == _BUSY:
                told.extend(_Exchange(self, self._minute(minute)).told)
        told.append(("globex", self._minute(_END), {"event": "heartbeat", "detail": "retired"}))
        for writer, at, told_row in told:
            rows = self.rows.setdefault(self.party(writer), [])
            empty: Row = dict.fromkeys((*REQUIRED, *OPTIONAL))
            identity = {"node": self.party(writer), "epoch": 1, "seq": len(rows) + 1}
            rows.append(empty | identity | {"at": at, "party": self.party(writer)} | told_row)

    def party(self, name: str) -> str:
        return f"{name}.{self.name}"

    def message_id(self, case: str) -> str:
        return f"{case}@{self.name}.example"

    def verdicts(self, without: str | None = None) -> dict[str, Verdict]:
        """Return what becomes of each message, also when a column is null throughout."""
        changed = VERDICTS | WITHOUT.get(without or "", {})
        return {
            self.message_id(case): (
                Verdict(verdict.class_, self.party(_SETTLING))
                if verdict.settled_by == _SETTLING
                else verdict
            )
            for case, verdict in changed.items()
            if verdict is not None
        }

    def _minute(self, minute: int) -> datetime:
        return self.start + timedelta(minutes=minute)


class _Exchange:
    """The messages of a network, one per verdict."""

    def __init__(self, network: Network, at: datetime) -> None:
        self._network = network
        self._at = at
        self.told: list[tuple[str, datetime, Row]] = []
        self._confirmed()
        self._wrong()
        self._refused()
        self._failed()
        self._open()

    def _confirmed(self) -> None:
        self._send("receipt")
        self._receive("receipt")
        self._tell("acme", "receipt_received", "receipt", signal_id="r1", evidence="r1.xml")
        self._send("warned")
        self._tell("acme", "error_received", "warned", severity="warning", error_code="EBMS:0303")
        self._receive("warned")
        self._tell("acme", "ack_received", "warned", signal_id="a1")
        self._send("relayed")
        self._tell("hub", "received", "relayed", side="forwarding", peer="acme")
        self._tell("acme", "hop_acked", "relayed")
        self._tell("hub", "forwarded", "relayed", side="forwarding", wire_bytes=900, peer="globex")
        self._receive("relayed")
        self._tell("acme", "receipt_received", "relayed", signal_id="r2")
        self._tell("hub", "received", "only-the-relay-saw-it", side="forwarding")
        self._large()
        self._send("acked-without-journal", to="initech")
        self._tell("acme", "ack_received", "acked-without-journal", to="initech")
        self._send("acked-before-grace", to="umbrella")
        self._tell("acme", "ack_received", "acked-before-grace", to="umbrella")
        self._send("delivered-in-doubt")
        self._receive("delivered-in-doubt")
        self._tell("acme", "in_doubt", "delivered-in-doubt")
        self._send("delivered-pending")
        self._receive("delivered-pending")
        stranger = self._network.party("stranger")
        self._receive("from-a-stranger", from_party=stranger, sequence_number=7)
        self._send("settled-delivered", to="initech")
        self._tell("acme", "in_doubt", "settled-delivered", to="initech")
        self._settle("settled-delivered", "delivered")

    def _large(self) -> None:
        self._tell("acme", "submitted", "large")
        self._tell("acme", "split", "large", fragments=2)
        self._tell("acme", "sent", "large", attempt=1)
        self._tell("globex", "received", "large")
        for fragment in (1, 2):
            part: Row = {
                "kind": "fragment",
                "group_id": self._network.message_id("large"),
                "fragment": fragment,
                "fragments": 2,
            }
            self._tell("acme", "sent", f"large-{fragment}", attempt=1, wire_bytes=500, **part)
            self._tell("globex", "received", f"large-{fragment}", wire_bytes=500, **part)
        self._tell("globex", "joined", "large")
        self._tell("globex", "delivered", "large")
        self._tell("acme", "receipt_received", "large", signal_id="r3")

    def _wrong(self) -> None:
        self._send("twice")
        self._receive("twice")
        self._tell("globex", "delivered", "twice")
        self._tell("acme", "receipt_received", "twice")
        self._send("lost")
        self._tell("acme", "receipt_received", "lost")
        self._send("ghost")
        self._tell("acme", "delivery_failed", "ghost")
        self._receive("ghost")
        self._send("ghost-expired")
        self._tell("acme", "expired", "ghost-expired")
        self._receive("ghost-expired")

    def _refused(self) -> None:
        error: Row = {"severity": "failure", "error_code": "EBMS:0004", "signal_id": "e1"}
        self._send("refused")
        self._reject("refused")
        self._tell("acme", "error_received", "refused", **error)
        self._tell("acme", "delivery_failed", "refused")
        self._send("refused-pending")
        self._reject("refused-pending")
        self._tell("acme", "error_received", "refused-pending", **error)
        self._send("refused-without-journal", to="initech")
        self._tell("acme", "error_received", "refused-without-journal", to="initech", **error)
        self._tell("acme", "delivery_failed", "refused-without-journal", to="initech")
        self._send("refused-unread", to="umbrella")  # whose journal could not tell what it was
        self._tell("acme", "error_received", "refused-unread", to="umbrella", **error)
        self._tell("acme", "delivery_failed", "refused-unread", to="umbrella")
        self._send("rejected-in-doubt")
        self._reject("rejected-in-doubt")
        self._tell("acme", "in_doubt", "rejected-in-doubt")

    def _failed(self) -> None:
        for case, end in (("never-sent", "delivery_failed"), ("expired-unsent", "expired")):
            self._tell("acme", "submitted", case, to="initech")
            self._tell("acme", "send_failed", case, to="initech", attempt=1)
            self._tell("acme", "send_failed", case, to="initech", attempt=2)
            self._tell("acme", end, case, to="initech", detail="connection refused")
        self._send("failed-by-journal")
        self._tell("acme", "in_doubt", "failed-by-journal")
        self._send("settled-not-received", to="initech")
        self._tell("acme", "in_doubt", "settled-not-received", to="initech")
        self._settle("settled-not-received", "not_received")

    def _open(self) -> None:
        for case, end in (("in-doubt", "in_doubt"), ("expired-sent", "expired")):
            self._send(case, to="initech")
            self._tell("acme", "resent", case, to="initech", attempt=2, wire_bytes=900)
            self._tell("acme", end, case, to="initech")
        self._tell("acme", "submitted", "queued")
        self._tell("acme", "queued", "queued")
        self._send("before-grace", to="umbrella")
        self._tell("acme", "in_doubt", "before-grace", to="umbrella")

    def _send(self, case: str, to: str = "globex") -> None:
        self._tell("acme", "submitted", case, to=to)
        self._tell("acme", "sent", case, to=to, attempt=1, wire_bytes=900, envelope=case)

    def _receive(self, case: str, **fields: Any) -> None:
        self._tell("globex", "received", case, wire_bytes=900, envelope=case, **fields)
        self._tell("globex", "delivered", case, **fields)
        self._tell("globex", "receipt_sent", case, signal_id=f"receipt-{case}", **fields)

    def _reject(self, case: str) -> None:
        self._tell("globex", "received", case, wire_bytes=900, envelope=case)
        self._tell("globex", "rejected", case, error_code="EBMS:0004", severity="failure")

    def _settle(self, case: str, answer: str) -> None:
        peer = self._network.party(_SETTLING)
        self._tell("acme", "settled", case, to="initech", detail=answer, peer=peer)

    def _tell(self, writer: str, event: str, case: str, to: str = "globex", **fields: Any) -> None:
        self._at += timedelta(milliseconds=100)
        row: Row = {
            "event": event,
            "side": "sending" if writer == "acme" else "receiving",
            "kind": "message",
            "message_id": self._network.message_id(case),
            "conversation_id": self._network.message_id("conversation"),
            "from_party": self._network.party("acme"),
            "to_party": self._network.party(to),
            "service": "orders",
            "action": "submit",
            "mpc": "default",
            "pmode": "orders-push",
            "protocol": "as4",
            "bytes": 700,
            "payload_digests": ["sha256:" + "0" * 64, "sha256:" + "1" * 64],
        }
        self.told.append((writer, self._at, row | fields))
