"""What a P-Mode says about reliability, as the machines take it."""

from datetime import timedelta

from postroad.agreement.awareness import DetectionParameters, ReceptionAwareness
from postroad.agreement.pmode import Leg
from postroad.agreement.retrying import retry_of
from postroad.agreement.waiting import Policy
from postroad.reliability.schedule import ONCE


def policy_of(leg: Leg) -> Policy:
    """When messages of a leg are sent again."""
    return retry_of(leg) or ONCE


def awareness_of(leg: Leg) -> ReceptionAwareness | None:
    """The reception awareness of a leg, where it is switched on."""
    aware = leg.reception_awareness
    return aware if aware is not None and aware.enabled else None


def window_of(leg: Leg) -> timedelta:
    """How long ids are remembered at least."""
    parameters = _detection(leg)
    return (parameters.check_window if parameters is not None else None) or timedelta(0)


def largest_memory(leg: Leg) -> int | None:
    """How many bytes are kept for the ids of old messages at most; None: no limit."""
    parameters = _detection(leg)
    return parameters.max_size if parameters is not None else None


def _detection(leg: Leg) -> DetectionParameters | None:
    aware = awareness_of(leg)
    detection = aware.duplicate_detection if aware is not None else None
    return detection.parameters if detection is not None else None
