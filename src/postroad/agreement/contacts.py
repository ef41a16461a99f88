"""The addresses that P-Modes name for a party: where it takes messages, receipts and errors."""

from collections.abc import Iterable, Iterator

from postroad.agreement.ebxml import addresses
from postroad.agreement.places import (
    addressings,
    contract_of,
    direct_address,
    is_pulled,
    report_of,
    sides,
)
from postroad.agreement.pmode import Partner, PMode
from postroad.wire.ebms3 import PartyId
from postroad.wire.names import I_CLOUD


class Contacts:
    """The addresses in P-Modes, by party. A P-Mode that names no party adds its own to all."""

    def __init__(self, pmodes: Iterable[PMode] = ()) -> None:
        self._by_party: dict[PartyId, dict[str, None]] = {}
        self._for_all: dict[str, None] = {}
        for pmode in pmodes:
            for index in range(len(pmode.legs)):
                sender, receiver = sides(pmode, index)
                holder = sender if is_pulled(pmode, index) else receiver
                self._add(holder, addresses(pmode.legs[index]))
                self._add(sender, _of_sender(pmode, index))

    def _add(self, partner: Partner | None, urls: Iterable[str]) -> None:
        named = (partner.party or ()) if partner is not None else ()
        ids = [PartyId(one.id, one.type) for one in named]
        for found in [self._by_party.setdefault(one, {}) for one in ids] or [self._for_all]:
            found.update(dict.fromkeys(urls))

    def of(self, ids: Iterable[PartyId]) -> tuple[str, ...]:
        """All addresses that P-Modes name for a party with one of these ids."""
        found: dict[str, None] = {}
        for one in ids:
            found.update(self._by_party.get(one, {}))
        return tuple(found | self._for_all)


def _of_sender(pmode: PMode, index: int) -> Iterator[str]:
    """Where the sender of a leg takes what is said about its messages."""
    leg = pmode.legs[index]
    receipt = leg.security.send_receipt if leg.security else None
    if receipt is not None and receipt.reply_to:
        yield receipt.reply_to
    errors_to = report_of(leg).receiver_errors_to
    yield from errors_to.value if errors_to is not None else ()
    contract = contract_of(leg)
    if contract is not None and contract.acks_to is not None and contract.acks_to.value:
        yield contract.acks_to.value
    if leg.ebxml is not None and leg.ebxml.reply_to:
        yield leg.ebxml.reply_to
    direct = direct_address(pmode, index)
    if direct is not None:
        yield direct
    for place, one in addressings(pmode):
        if place[:2] == ("legs", index) and one.address and one.address != I_CLOUD:
            yield one.address
