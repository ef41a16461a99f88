"""The places of a P-Mode that rules look at, with their paths, and who sends in which leg."""

from collections.abc import Callable, Iterator
from typing import Final

from postroad.agreement.addressing import Addressing
from postroad.agreement.breach import Breach
from postroad.agreement.parameters import Path
from postroad.agreement.pmode import AtLeastOnceContract, Leg, Partner, PMode, Report
from postroad.wire.names import (
    I_CLOUD,
    PULL,
    PULL_AND_PULL,
    PULL_AND_PUSH,
    PUSH,
    PUSH_AND_PULL,
    SYNC,
)

Rule = Callable[[PMode], Iterator[Breach]]

ONE_WAY_BINDINGS: Final = frozenset({PUSH, PULL})
PULLED_FIRST: Final = frozenset({PULL, PULL_AND_PUSH, PULL_AND_PULL})
"""The bindings whose first message is pulled, so that the Responder sends it."""
PULLED_SECOND: Final = frozenset({PUSH_AND_PULL, PULL_AND_PULL})


def numbered(pmode: PMode) -> Iterator[tuple[Path, Leg]]:
    """The legs with their paths."""
    for index, leg in enumerate(pmode.legs):
        yield ("legs", index), leg


def alternate_of(pmode: PMode) -> str | None:
    """The binding of a reply that is late; unset: it has none."""
    return pmode.mep_binding.alternate if pmode.mep_binding else None


def is_pulled(pmode: PMode, index: int, *, late: bool = False) -> bool:
    """Whether the message of a leg is pulled by its receiver; `late`: by the alternate binding."""
    binding = alternate_of(pmode) if late else pmode.binding
    return binding in (PULLED_SECOND if index else PULLED_FIRST)


def is_response(pmode: PMode, index: int) -> bool:
    """Whether the message of a leg is the response to the one before it."""
    return pmode.binding == SYNC and index == 1


def initiator_sends(pmode: PMode, index: int) -> bool:
    """Whether the Initiator sends in a leg; when it pulls, it receives (Core 2.2).

    Over hubs each end has a binding of its own, and both have the same Initiator: when the
    Responder pulls from its hub, the Initiator sends all the same. [P2-2.7.2-06]
    """
    return (pmode.binding in PULLED_FIRST and not responder_pulls(pmode)) == (index == 1)


def responder_pulls(pmode: PMode) -> bool:
    """Whether it is the Responder's side that pulls the first message."""
    return pmode.mep_binding is not None and pmode.mep_binding.pulled_by == "responder"


def sender_pulls(pmode: PMode, index: int) -> bool:
    """Whether who pushes the messages of a leg can pull what is said about them."""
    may = initiator_sends(pmode, index) or responder_pulls(pmode)
    return may and not is_pulled(pmode, index)


def sides(pmode: PMode, index: int) -> tuple[Partner | None, Partner | None]:
    """Sender and receiver of a leg."""
    both = (pmode.initiator, pmode.responder)
    return both if initiator_sends(pmode, index) else both[::-1]


def direct_address(pmode: PMode, index: int) -> str | None:
    """Where signals to the sender of a leg go without any routing. [P2-2.7.1.4-01]"""
    sender = sides(pmode, index)[0]
    agreed = sender.addressing if sender else None
    if agreed is None or agreed.epr is not None or agreed.address == I_CLOUD:
        return None
    return agreed.address


def partners(pmode: PMode) -> Iterator[tuple[str, Partner]]:
    """The parties that are set, with their keys."""
    if pmode.initiator:
        yield "initiator", pmode.initiator
    if pmode.responder:
        yield "responder", pmode.responder


def addressings(pmode: PMode) -> Iterator[tuple[Path, Addressing]]:
    """Every Addressing of a P-Mode, in all the places of Part 2, 2.7.1.4."""
    for side, partner in partners(pmode):
        if partner.addressing:
            yield (side, "addressing"), partner.addressing
    for path, leg in numbered(pmode):
        report = report_of(leg)
        contract = contract_of(leg)
        receipt = leg.security.send_receipt if leg.security else None
        found: tuple[tuple[Path, Addressing | None], ...] = (
            (("addressing",), leg.addressing),
            (
                ("error_handling", "report", "sender_errors_to", "addressing"),
                report.sender_errors_to.addressing if report.sender_errors_to else None,
            ),
            (
                ("error_handling", "report", "receiver_errors_to", "addressing"),
                report.receiver_errors_to.addressing if report.receiver_errors_to else None,
            ),
            (
                ("reliability", "at_least_once", "contract", "acks_to", "addressing"),
                contract.acks_to.addressing if contract and contract.acks_to else None,
            ),
            (
                ("security", "send_receipt", "addressing"),
                receipt.addressing if receipt else None,
            ),
        )
        for place, addressing in found:
            if addressing:
                yield (*path, *place), addressing


def report_of(leg: Leg) -> Report:
    """How a leg reports errors; all unset where it says nothing."""
    return (leg.error_handling and leg.error_handling.report) or Report()


def contract_of(leg: Leg) -> AtLeastOnceContract | None:
    """The leg's contract of delivery at least once."""
    at_least_once = leg.reliability.at_least_once if leg.reliability else None
    return at_least_once.contract if at_least_once else None


def short_uri(uri: str | None) -> str:
    """The last word of a URI that the specification fixes."""
    return uri.rpartition("/")[2] if uri else "unset"
