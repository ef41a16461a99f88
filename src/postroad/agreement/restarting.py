"""What a P-Mode leg says about broken uploads that go on (Part 2, 6.4.3)."""

from collections.abc import Iterator

from postroad.agreement.breach import Breach
from postroad.agreement.places import numbered
from postroad.agreement.pmode import Leg, PMode, Restart
from postroad.wire.names import PUSH


def restart_of(leg: Leg) -> Restart | None:
    """None where broken uploads do not go on. [P2-6.4.3-01]"""
    agreed = leg.protocol.restart if leg.protocol else None
    return agreed if agreed is not None and agreed.enabled else None


def restart_needs_a_signature(pmode: PMode) -> Iterator[Breach]:
    """What came of an upload is kept for those only who signed it."""
    for path, leg in numbered(pmode):
        x509 = leg.security.x509 if leg.security else None
        signed = x509 is not None and x509.sign is not None and x509.sign.enabled
        if restart_of(leg) is not None and not signed and pmode.binding == PUSH:
            yield Breach(
                (*path, "protocol", "restart"),
                "a broken upload goes on only where messages are signed",
                "add security.x509.sign: true, or remove it",
            )
