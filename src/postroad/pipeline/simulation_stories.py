"""What can happen to a message, as stories: each step, and what must be found out about it.

A story tells what both sides do. What of it a lake can know depends on whose journal there is, so
each story names its class for both journals, for the sender's alone and for the receiver's alone.
"""

from dataclasses import dataclass, replace
from typing import Final

from postroad.store.journal_columns import FORWARDING, RECEIVING, SENDING

MINUTES: Final = 60.0
HOURS: Final = 3600.0
DAYS: Final = 86400.0
OTHER, OPERATOR = "other", "operator"


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a story."""

    side: str
    event: str
    after: float = 0.0
    """Seconds after the step that it follows; the median, since none is like the other."""
    follows: int = -1
    """The step that it follows; -1 is the one before."""
    spread: float = 0.4
    over: str = ""
    """`road`: the message crosses the network; `back`: a signal does; `astray`: only to a relay."""
    attempt: int | None = None
    peer: str = OTHER
    detail: str | None = None
    error_code: str | None = None
    severity: str | None = None
    share: float = 1.0
    """How many of these messages have it."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is found out, with whose word settled it: other, operator, journal, or nobody."""

    named: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    weight: float
    steps: tuple[Step, ...]
    sender: str
    receiver: str | None
    both: Known
    alone: Known
    heard: Known | None
    deliveries: int = 0


def _s(event: str, after: float = 0.0, **more: object) -> Step:
    return replace(Step(SENDING, event, after), **more)  # type: ignore[arg-type]


def _r(event: str, after: float = 0.0, **more: object) -> Step:
    return replace(Step(RECEIVING, event, after), **more)  # type: ignore[arg-type]


SUBMITTED: Final = _s("submitted", peer="")
SENT: Final = _s("sent", 0.4, attempt=1)
RECEIVED: Final = _r("received", 0.6, over="road")
DELIVERED: Final = _r("delivered", 0.2, peer="")
RECEIPT_SENT: Final = _r("receipt_sent", 0.02)
RECEIPT: Final = _s("receipt_received", 0.3, over="back")
PURGED_THERE: Final = _r("purged", 2.5 * DAYS, spread=0.05, share=0.3, peer="")
PURGED_HERE: Final = _s("purged", HOURS, spread=0.05, share=0.3, peer="")
ACKNOWLEDGMENTS: Final = {"receipt_sent": "acked", "receipt_received": "ack_received"}
"""What they are called where a protocol acknowledges instead of signing receipts."""
_DUPLICATE: Final = _r("duplicate", 0.6, over="road")
_DOUBT: Final = _s("in_doubt", 10 * MINUTES, peer="", detail="transmitted, and no answer came")
_SIGNED_AGAIN: Final = _s("signed_again", 4 * MINUTES, peer="", share=0.1, spread=0.05,
                          detail="keys or P-Mode changed since it was signed")  # fmt: skip
_ASTRAY: Final = replace(Step(FORWARDING, "received"), over="astray")


def _resent(attempt: int, after: float = 5 * MINUTES, follows: int = -1) -> Step:
    return _s("resent", after, attempt=attempt, follows=follows, spread=0.05)


def _unreached(attempt: int) -> Step:
    after = 0.4 if attempt == 1 else 5 * MINUTES * 2 ** (attempt - 2)
    return _s("send_failed", after, attempt=attempt, spread=0.05,
              detail="the partner could not be reached")  # fmt: skip


def _settled(answer: str, after: float, peer: str = OTHER) -> Step:
    return _s("settled", after, detail=answer, peer=peer)


def _error(event: str, code: str, severity: str = "failure") -> Step:
    side = SENDING if event == "error_received" else RECEIVING
    over = "back" if side == SENDING else ""
    return Step(side, event, 0.3, over=over, error_code=code, severity=severity,
                detail="the payload is not what was agreed on")  # fmt: skip


_CONFIRMED: Final = Known("confirmed")
_BY_JOURNAL: Final = Known("confirmed", "journal")
_PENDING: Final = Known("pending")
_DOUBTFUL: Final = Known("in_doubt")
_GOOD: Final = {
    "sender": "acknowledged", "receiver": "delivered", "deliveries": 1, "both": _CONFIRMED,
    "alone": _CONFIRMED, "heard": _BY_JOURNAL,
}  # fmt: skip


def _good(name: str, weight: float, *steps: Step) -> Story:
    return Story(name, weight, steps, **_GOOD)  # type: ignore[arg-type]


_TAKEN: Final = (RECEIVED, DELIVERED, RECEIPT_SENT)
PLAIN: Final = _good(
    "plain", 0, SUBMITTED, SENT, *_TAKEN, RECEIPT, PURGED_THERE, PURGED_HERE
)  # fmt: skip
PULLED: Final = _good(
    "pulled", 0, SUBMITTED, _s("queued", 0.1, peer=""),
    _s("sent", 4 * MINUTES, attempt=1, spread=0.8), _r("pulled", 0.5),
    _r("received", 0.05), DELIVERED, RECEIPT_SENT, RECEIPT,
)  # fmt: skip
BUNDLED: Final = _good(
    "bundled", 0, SUBMITTED, _s("bundled", peer=""), SENT, *_TAKEN, RECEIPT
)  # fmt: skip
IN_ORDER: Final = _good(
    "in_order", 0, SUBMITTED, SENT, _resent(2), _r("received"), _r("out_of_order", peer=""),
    _r("held", peer=""), DELIVERED, RECEIPT_SENT, RECEIPT,
)  # fmt: skip
SPLIT: Final = _good(
    "split", 0, SUBMITTED, _s("split", 2.0, peer=""), SENT, _r("received"),
    _r("joined", 1.0, peer=""), DELIVERED, RECEIPT_SENT, RECEIPT,
)  # fmt: skip
FRAGMENT: Final = _good(
    "fragment", 0, SENT, RECEIVED, RECEIPT_SENT, RECEIPT,
    replace(_resent(2, MINUTES, follows=0), share=0.03), replace(_DUPLICATE, share=0.03),
)  # fmt: skip

TROUBLES: Final = (
    _good("sent_again", 24, SUBMITTED, SENT, _SIGNED_AGAIN, _resent(2, follows=1), *_TAKEN,
          RECEIPT),
    _good("receipt_lost", 20, SUBMITTED, SENT, *_TAKEN, _resent(2, follows=1), _DUPLICATE,
          RECEIPT_SENT, RECEIPT),
    _good("unreached_first", 16, SUBMITTED, _unreached(1), _unreached(2), _resent(3, 10 * MINUTES),
          *_TAKEN, RECEIPT),
    _good("copied_on_the_way", 8, SUBMITTED, SENT, *_TAKEN, RECEIPT, _r("duplicate", 2.0)),
    _good("receipt_invalid", 3, SUBMITTED, SENT, *_TAKEN,
          _s("error_raised", 0.3, over="back", error_code="EBMS:0101", severity="failure",
             detail="the receipt's signature does not hold"),
          _resent(2, follows=1), _DUPLICATE, RECEIPT_SENT, RECEIPT),
    _good("warned", 3, SUBMITTED, SENT, RECEIVED, _error("error_raised", "EBMS:0010", "warning"),
          _error("error_received", "EBMS:0010", "warning"), replace(DELIVERED, follows=3),
          RECEIPT_SENT, RECEIPT),
    _good("late_receipt", 4, SUBMITTED, SENT, *_TAKEN, _resent(2, follows=1), _DUPLICATE,
          replace(_DOUBT, follows=5), _s("receipt_received", 5 * HOURS, over="back", spread=0.9)),
    _good("late_receipt_expired", 2, SUBMITTED, SENT, *_TAKEN, _s("expired", HOURS, peer=""),
          _s("receipt_received", 9 * HOURS, over="back", spread=0.9)),
    Story("lost_inside", 3, (SUBMITTED, SENT, RECEIVED, RECEIPT_SENT, RECEIPT),
          "acknowledged", "received", Known("lost"), _CONFIRMED, _PENDING),
    Story("lost_unseen", 2, (SUBMITTED, SENT, _s("receipt_received", 2.0, over="back")),
          "acknowledged", None, Known("lost"), _CONFIRMED, None),
    Story("twice_soon", 2, (SUBMITTED, SENT, *_TAKEN, _resent(2, 2 * HOURS, follows=1), *_TAKEN,
                            RECEIPT),
          "acknowledged", "delivered", Known("twice"), _CONFIRMED, Known("twice"), 2),
    Story("twice_late", 3, (SUBMITTED, SENT, *_TAKEN, RECEIPT,
                            _s("resent", 2.2 * DAYS, attempt=2, spread=0.5), *_TAKEN, RECEIPT),
          "acknowledged", "delivered", Known("twice"), _CONFIRMED, Known("twice"), 2),
    Story("ghost_expired", 3, (SUBMITTED, SENT, *_TAKEN, _resent(2, follows=1),
                               _s("expired", HOURS, peer="")),
          "expired", "delivered", Known("ghost"), _DOUBTFUL, _BY_JOURNAL, 1),
    Story("ghost_failed", 2, (SUBMITTED, SENT, *_TAKEN, _s("delivery_failed", HOURS, peer="")),
          "failed", "delivered", Known("ghost"), _DOUBTFUL, _BY_JOURNAL, 1),
    Story("refused", 6, (SUBMITTED, SENT, RECEIVED, _error("error_raised", "EBMS:0004"),
                         _r("rejected", 0.02), _error("error_received", "EBMS:0004"),
                         _s("delivery_failed", 0.02, peer="")),
          "failed", "rejected", Known("refused"), Known("refused"), _PENDING),
    Story("refused_unheard", 2, (SUBMITTED, SENT, RECEIVED, _error("error_raised", "EBMS:0103"),
                                 _r("rejected", 0.02), replace(_DOUBT, follows=1)),
          "in_doubt", "rejected", Known("refused"), _DOUBTFUL, _PENDING),
    Story("refused_by_relay", 3, (SUBMITTED, SENT, _ASTRAY, _error("error_received", "EBMS:0020"),
                                  _s("delivery_failed", 0.02, peer="")),
          "failed", None, Known("failed", "journal"), Known("refused"), None),
    Story("never_left_expired", 3, (SUBMITTED, *map(_unreached, (1, 2, 3, 4)),
                                    _s("expired", HOURS, peer="")),
          "expired", None, Known("failed"), Known("failed"), None),
    Story("never_left_failed", 3, (SUBMITTED, *map(_unreached, (1, 2, 3)),
                                   _s("delivery_failed", 0.02, peer="")),
          "failed", None, Known("failed"), Known("failed"), None),
    Story("vanished", 5, (SUBMITTED, SENT, replace(_ASTRAY, share=0.6), _resent(2, follows=1),
                          _resent(3, 10 * MINUTES), _DOUBT),
          "in_doubt", None, Known("failed", "journal"), _DOUBTFUL, None),
    Story("vanished_expired", 2, (SUBMITTED, SENT, _resent(2), _s("expired", HOURS, peer="")),
          "expired", None, Known("failed", "journal"), _DOUBTFUL, None),
    Story("doubted", 5, (SUBMITTED, SENT, *_TAKEN, _resent(2, follows=1), _DUPLICATE,
                         replace(_DOUBT, follows=5)),
          "in_doubt", "delivered", _BY_JOURNAL, _DOUBTFUL, _BY_JOURNAL, 1),
    Story("stuck_inside", 2, (SUBMITTED, SENT, RECEIVED, _r("held", 0.02, peer=""),
                              replace(_DOUBT, follows=1)),
          "in_doubt", "received", Known("failed", "journal"), _DOUBTFUL, _PENDING),
    Story("settled_delivered", 3, (SUBMITTED, SENT, *_TAKEN, replace(_DOUBT, follows=1),
                                   _settled("delivered", 3 * HOURS)),
          "acknowledged", "delivered", Known("confirmed", OTHER), Known("confirmed", OTHER),
          _BY_JOURNAL, 1),
    Story("settled_received", 2, (SUBMITTED, SENT, RECEIVED, replace(_DOUBT, follows=1),
                                  _settled("received", 3 * HOURS)),
          "in_doubt", "received", Known("failed", OTHER), Known("in_doubt", OTHER), _PENDING),
    Story("settled_not_received", 3, (SUBMITTED, SENT, _DOUBT, _settled("not_received", 3 * HOURS)),
          "failed", None, Known("failed", OTHER), Known("failed", OTHER), None),
    Story("settled_again", 2, (SUBMITTED, SENT, *_TAKEN, replace(_DOUBT, follows=1),
                               _settled("not_received", 2 * HOURS),
                               _settled("delivered", 6 * HOURS, OPERATOR)),
          "acknowledged", "delivered", Known("confirmed", OPERATOR), Known("confirmed", OPERATOR),
          _BY_JOURNAL, 1),
    Story("settled_wrongly", 1, (SUBMITTED, SENT, *_TAKEN, replace(_DOUBT, follows=1),
                                 _settled("not_received", 2 * HOURS)),
          "failed", "delivered", Known("ghost", OTHER), Known("failed", OTHER), _BY_JOURNAL, 1),
    Story("waiting", 2, (SUBMITTED, _s("queued", 0.1, peer="")),
          "pending", None, _PENDING, _PENDING, None),
    Story("unanswered", 2, (SUBMITTED, SENT), "pending", None, _PENDING, _PENDING, None),
    Story("unanswered_delivered", 2, (SUBMITTED, SENT, *_TAKEN),
          "pending", "delivered", _BY_JOURNAL, _PENDING, _BY_JOURNAL, 1),
)  # fmt: skip
STORIES: Final = (PLAIN, PULLED, BUNDLED, IN_ORDER, SPLIT, FRAGMENT, *TROUBLES)
