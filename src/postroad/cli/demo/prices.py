"""The demo's price request: asked and answered in one exchange, or later where that takes long."""

from pathlib import Path
from typing import Final

PRICES: Final = "buyer-asks-for-prices"


def hurry(seller: Path) -> None:
    """The seller's application has a second to answer, so that nobody waits long for the scene."""
    with (seller / "postroad.yaml").open("a") as file:
        file.write(
            "\nhttp: {reply_timeout: PT1S}   # then the reply goes by the alternate binding\n"
        )


def agree(folders: dict[str, Path], address: str) -> None:
    """Write the P-Mode of the first of two companies, who asks the second."""
    asks, answers = folders
    for at, folder in folders.items():
        (folder / "pmodes" / f"{PRICES}.yaml").write_text(_pmode(asks, answers, address, at))


def _pmode(asks: str, answers: str, address: str, at: str) -> str:
    return f"""\
# {asks} asks for a price and waits for it; what {answers} says later is fetched.
id: {PRICES}
mep: twoWay
mep_binding: {{value: sync, alternate: pushAndPull}}
initiator:
  party: urn:example:{asks}
  role: {asks}
  authorization: {{username: {asks}, password: a secret of the demo}}
responder: {{party: urn:example:{answers}, role: {answers}}}
legs:
  - protocol: {{address: "{address}"}}
    business_info: {{service: urn:example:prices, action: AskPrice}}
    security:
      {_signature(asks, at)}
      send_receipt: {{non_repudiation: true, certificate: ../keys/{answers}.pem}}
  - business_info:
      service: urn:example:prices
      action: TellPrice
      mpc_alternate: http://{answers}.example/channels/late
    security:
      {_signature(answers, at)}
      send_receipt:
        non_repudiation: true
        certificate: ../keys/{asks}.pem
        reply_pattern: callback
    pulling: {{interval: PT1S}}
"""


def _signature(signer: str, at: str) -> str:
    key = f", key: ../keys/{signer}.p12" if at == signer else ""
    return f"x509: {{sign: true, signature: {{certificate: ../keys/{signer}.pem{key}}}}}"
