"""The demo's ebXML: a mailbox for each company, and what they agreed on in the older tongue."""

from pathlib import Path
from typing import Final

from postroad.cli.demo.nodes import free_port

ORDER: Final = "buyer-to-seller-ebxml"
CONFIRMATION: Final = "seller-to-buyer-ebxml"


def add_mail(folders: dict[str, Path]) -> None:
    """Let two nodes take mail, each with the other's door as its mail server."""
    first, second = folders
    ports = {name: free_port() for name in folders}
    for name, other in ((first, second), (second, first)):
        with (folders[name] / "postroad.yaml").open("a") as file:
            file.write(f"""
mail:
  address: msh@{name}.example
  listen: 127.0.0.1:{ports[name]}
  relay: {{host: 127.0.0.1, port: {ports[other]}, starttls: never}}   # this machine only
""")


def agree(folders: dict[str, Path], order_address: str) -> None:
    """Write the P-Modes: orders go by HTTP, confirmations by mail, and so do their answers."""
    first, second = folders
    for at, folder in folders.items():
        pmodes = folder / "pmodes"
        (pmodes / f"{ORDER}.yaml").write_text(
            _pmode(ORDER, first, second, order_address, "NewOrder", at)
            + "      sync_reply: mshSignalsOnly   # the acknowledgment is the HTTP response\n"
        )
        (pmodes / f"{CONFIRMATION}.yaml").write_text(
            _pmode(
                CONFIRMATION,
                second,
                first,
                f"mailto:msh@{first}.example",
                "ConfirmOrder",
                at,
                reply_to=f"mailto:msh@{second}.example",
            )
        )


def _pmode(
    name: str,
    sender: str,
    receiver: str,
    address: str,
    action: str,
    at: str,
    reply_to: str | None = None,
) -> str:
    key = f", key: ../keys/{sender}.p12" if at == sender else ""
    way_back = f", reply_to: {reply_to}" if reply_to else ""
    return f"""\
# {sender} sends to {receiver} in ebXML 2.0, signed, and wants a signed acknowledgment.
id: {name}
agreement: urn:example:cpa:orders            # the CPAId
initiator: {{party: urn:example:{sender}, role: {sender}}}
responder: {{party: urn:example:{receiver}, role: {receiver}}}
legs:
  - protocol: {{address: "{address}"}}
    business_info: {{service: urn:example:purchasing, action: {action}}}
    security:
      x509:
        sign: true
        signature: {{certificate: ../keys/{sender}.pem{key}}}
      send_receipt: {{certificate: ../keys/{receiver}.pem{way_back}}}
    reception_awareness:
      retry: {{parameters: {{max_retries: 8, period: PT5S}}}}
    ebxml:
      version: 2.0
      delivery_semantics: OnceAndOnlyOnce
      ack_requested: Signed
"""
