"""What makes a message a duplicate, by the specification of each protocol.

| protocol | a duplicate is known by |
| --- | --- |
| ebMS 3.0, AS4 | MessageId (AS4 3.2) |
| ebXML 0.98b, 1.0, 2.0; draft 000 | MessageId [MS098-10.3.1.2-03] [RM000-1.3.1.2-01], if reliable |
| draft 001 | the number on its link [RM001-2.1-09] |
| WS-ReliableMessaging | sequence and number |
| WS-Reliability | group and number |

Where a number decides, a new number says that the message is a new one; if it comes under a known
MessageId all the same, its contents must be those of the first. So must those of an ebXML message
that is sent with best effort: the text has no duplicates there.
"""

from postroad.agreement.pmode import Leg
from postroad.agreement.reliable import reliable_of


def message_id_decides(leg: Leg, *, best_effort: bool = False) -> bool:
    """Whether a partner's message under a known MessageId is a duplicate, whatever it says.

    `best_effort` says that it is an ebXML message which is not sent reliably.
    """
    aware = leg.reception_awareness
    detection = aware.duplicate_detection if aware is not None and aware.enabled else None
    if detection is not None and detection.compare is not None:
        return detection.compare == "message_id"
    return not (best_effort or number_decides(leg) or is_relayed(leg))


def number_decides(leg: Leg) -> bool:
    """Whether the leg's protocol numbers its messages, and knows duplicates by that."""
    if leg.ebxml is not None:
        return leg.ebxml.profile == "rm001"
    return reliable_of(leg) is not None


def is_relayed(leg: Leg) -> bool:
    """Whether the leg only passes messages on: a relay cannot tell who really sent one."""
    return leg.ebxml is not None and leg.ebxml.relay
