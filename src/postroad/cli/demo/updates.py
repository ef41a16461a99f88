"""The demo's catalogue updates: a thousand messages that the buyer sends in three envelopes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postroad.api.client import Client
from postroad.api.client_values import Payload, Unit

UPDATES: Final = "buyer-tells-updates"
MANY: Final = 1000
_ENVELOPES: Final = 3


def agree(folders: dict[str, Path], address: str) -> None:
    """Write the P-Mode of the first of two companies, who bundles what it tells the second."""
    tells, hears = folders
    for at, folder in folders.items():
        (folder / "pmodes" / f"{UPDATES}.yaml").write_text(_pmode(tells, hears, address, at))


def _pmode(tells: str, hears: str, address: str, at: str) -> str:
    key = f", key: ../keys/{tells}.p12" if at == tells else ""
    return f"""\
# {tells} tells {hears} many small things, and puts as many as it likes into one envelope.
id: {UPDATES}
initiator: {{party: urn:example:{tells}, role: {tells}}}
responder: {{party: urn:example:{hears}, role: {hears}}}
legs:
  - protocol: {{address: "{address}"}}
    business_info: {{service: urn:example:catalogue, action: Update}}
    security:
      x509: {{sign: true, signature: {{certificate: ../keys/{tells}.pem{key}}}}}
      send_receipt:
        non_repudiation: true
        certificate: ../keys/{hears}.pem
        reply_pattern: response
    bundling:
      policy: optional
      compatibility: {{pmode_list: [{UPDATES}]}}
      max_size: 2 MiB
      max_delay: PT1S
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the updates."""

    bundles: tuple[tuple[str, ...], ...]
    """The ids of the units, the primary first."""
    together: bool
    """Whether the journal has each bundle in one envelope."""
    acknowledged: int
    """How many have a receipt of their own."""
    delivered: int


def tell_updates(sender: Client, receiver: Client, patience: float) -> Told:
    """Submit the updates as bundles, and wait until they are answered."""
    bundles = []
    for first in range(_ENVELOPES):
        units = [_update(number) for number in range(first, MANY, _ENVELOPES)]
        bundles.append(tuple([one.message_id for one in sender.send_bundle(units)]))
    for _, *_, last in bundles:
        sender.wait(last, patience)
    return Told(
        tuple(bundles),
        all(_went_with(sender, one[-1], one[0]) for one in bundles),
        _count(sender, "acknowledged"),
        _count(receiver, "delivered"),
    )


def _update(number: int) -> Unit:
    text = f"<Update><Item>{number:04}</Item><Price>{number % 97}.50</Price></Update>"
    return Unit(UPDATES, [Payload(text.encode(), media_type="application/xml")])


def _went_with(sender: Client, message_id: str, primary: str) -> bool:
    told = sender.events(message_id)
    return any(one.event == "sent" and one.envelope == primary for one in told)


def _count(client: Client, state: str) -> int:
    return sum(1 for _ in client.messages(pmode=UPDATES, state=state, limit=MANY))
