"""What a P-Mode says about reliability, as the machines take it."""

from msgspec.structs import asdict

from postroad.agreement.awareness import ReceptionAwareness
from postroad.agreement.pmode import Leg
from postroad.agreement.retrying import retry_of
from postroad.reliability.schedule import ONCE, Policy


def policy_of(leg: Leg) -> Policy:
    """When messages of a leg are sent again."""
    retrying = retry_of(leg)
    return ONCE if retrying is None else Policy(**asdict(retrying))


def awareness_of(leg: Leg) -> ReceptionAwareness | None:
    """The reception awareness of a leg, where it is switched on."""
    aware = leg.reception_awareness
    return aware if aware is not None and aware.enabled else None
