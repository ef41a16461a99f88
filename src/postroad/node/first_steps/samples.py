"""The texts that `postroad init` writes: a configuration, P-Modes and an order, each explained."""

import re
from dataclasses import dataclass
from typing import Final

SERVICE: Final = "urn:example:purchasing"
_COLUMN: Final = 44
"""Where comments begin."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample P-Mode: how its messages are protected."""

    name: str
    action: str
    story: str
    signed: bool
    encrypted: bool
    pulled: bool = False
    """Who receives collects it."""
    bare: bool = False
    """Without receipts, retries and compression."""

    @property
    def shows_user(self) -> bool:
        """Whether who collects shows a user name; else it signs what it asks."""
        return self.pulled and not self.signed

    def pmode_id(self, sender: str, receiver: str) -> str:
        return f"{sender}-to-{receiver}-{self.name}"


SAMPLES: Final = (
    Sample("order", "NewOrder", "signed, encrypted and compressed", True, True),
    Sample("signed", "OrderStatus", "signed and compressed, but not encrypted", True, False),
    Sample("plain", "PriceList", "neither signed nor encrypted: anybody can send it", False, False),
)


def config_text(
    *,
    name: str,
    party: str,
    port: int,
    api_port: int,
    tls: bool,
    client_certificates: bool,
    ships: bool,
    calls_only: bool = False,
    own_keys: bool = False,
    public_url: str | None = None,
) -> str:
    """The text of `postroad.yaml`; who `calls_only` has no door for partners.

    `party` is written as YAML. With `own_keys` only certificates that P-Modes name are trusted.
    """
    journal = _SHIPPED if ships else _NOT_SHIPPED
    whose = "make them with: postroad key new" if own_keys else "development keys, not for business"
    url = f"    public_url: {public_url}  # where partners reach it\n" if public_url else ""
    doors = _plain_door(port, url)
    if tls:
        host = "0.0.0.0" if own_keys else "127.0.0.1"
        doors = _tls_doors(host, port, api_port, client_certificates, url)
    if calls_only:
        doors = _own_door(api_port if tls else port)
    return _aligned(f"""\
# A Postroad node. Everything that is not here has a default: see docs/configuration.md.
# Check it with: postroad config check postroad.yaml
# Paths are relative to this file.

node: {name}                          # the node's own name, in the journal
party: {party}           # who it acts for: From of what it sends, To of what it receives

data: data                            # database, payloads and journal
pmodes: pmodes                        # what was agreed on with partners, a file each

keys:                                 # {whose}
  signing: keys/{name}.p12            # signs messages, receipts and errors
  decryption: [keys/{name}.p12]       # opens what is encrypted for us
{"" if own_keys else _TRUST}
{doors}
api:
  token_file: keys/api.token          # whoever uses the REST interface shows this token

# webhook:                            # call an application when something happened
#   url: http://127.0.0.1:9000/events
#   events: [received, receipt, failed, in_doubt, suspended, settled]

retention:
  messages: P90D                      # payloads are removed after that; the journal stays

{journal}
log: {{format: text}}                   # json for machines
""")


_TRUST: Final = """\
trust: [keys/authority.pem]           # believed where a P-Mode names no certificate
"""
_SHIPPED: Final = """\
journal:
  ship_to: journal                    # all that happened, as Parquet: see docs/journal.md
"""
_NOT_SHIPPED: Final = """\
# journal:                            # needs: pip install 'postroad[lake]'
#   ship_to: journal
"""


def _plain_door(port: int, url: str) -> str:
    return f"""\
listen:
  - address: 127.0.0.1:{port}           # this machine only; partners need TLS
    path: /msh                        # where partners send to
{url}"""


def _own_door(port: int) -> str:
    return f"""\
listen:                               # no partner can reach it: it calls them
  - address: 127.0.0.1:{port}           # for applications on this machine
    serve: [api]
"""


def _tls_doors(host: str, port: int, api_port: int, client_certificates: bool, url: str) -> str:
    clients = """\
      client_certificates: required   # who connects shows a certificate
      client_authorities: [keys/authority.pem]
"""
    return f"""\
listen:
  - address: {host}:{port}           # for partners
    serve: [msh]
    path: /msh                        # where partners send to
{url}\
    tls:
      certificate: keys/tls.p12
{clients if client_certificates else ""}\
  - address: 127.0.0.1:{api_port}           # for applications on this machine
    serve: [api]
"""


def pmode_text(
    sample: Sample,
    *,
    sender: str,
    sender_party: str,
    receiver: str,
    receiver_party: str,
    address: str,
    sends: bool,
    tls: bool,
    client_certificates: bool,
    password: str = "",
) -> str:
    """The text of a P-Mode; it differs between the parties in the files of the sender's keys.

    `password` is what who collects shows, where it shows a user name.
    """
    collects = sample.pulled
    sides = (receiver_party, sender_party) if collects else (sender_party, receiver_party)
    verb = "collects from" if collects else "sends to"
    first, second = (receiver, sender) if collects else (sender, receiver)
    user = f"""\
  authorization:                      # what it shows to be let in
    username: {receiver}
    password: "{password}"
"""
    parts = (
        f"""\
# {first} {verb} {second}: {sample.story}.
# Both parties have this file. Files of keys are named relative to it.

id: {sample.pmode_id(sender, receiver)}
mep: oneWay                           # one message, no business reply
{_PULL if collects else _PUSH}
initiator:                            # who {"receives" if collects else "sends"}
  party: {sides[0]}
  role: http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/initiator
{user if sample.shows_user else ""}\
responder:                            # who {"sends" if collects else "receives"}
  party: {sides[1]}
  role: http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/responder

legs:
  - protocol:
      address: {address}  # where the {"sender" if collects else "receiver"} listens
      soap_version: 1.2
""",
        _transport(sends != collects, second, client_certificates) if tls else "",
        f"""\
    business_info:                    # what it is about; a message is matched by this
      service: {SERVICE}
      action: {sample.action}
""",
        "" if collects else _ERRORS,
        "" if sample.bare else "    security:\n",
        _x509(sample, sender, receiver, sends) if sample.signed else "",
        "" if sample.bare else _receipt(sample, receiver),
        "" if sample.bare else _COMPRESSED + (_OFFERED_AGAIN if collects else _SENT_AGAIN),
        _COLLECTED if collects else "",
    )
    return _aligned("".join(parts))


_PUSH: Final = """\
mep_binding: push                     # the sender opens the connection
"""
_PULL: Final = """\
mep_binding: pull                     # the receiver opens the connection, and collects
"""
_ERRORS: Final = """\
    error_handling:
      report:
        as_response: true             # errors come back in the HTTP response
"""
_COMPRESSED: Final = """\
    payload_service:
      compression_type: gzip          # payloads are compressed on the way
"""
_SENT_AGAIN: Final = """\
    reception_awareness:              # the sender waits for the receipt
      retry:
        parameters:                   # sent again until it comes: for about 100 minutes
          max_retries: 8
          period: PT30S
          backoff: 2                  # each wait is twice as long as the one before,
          max_period: PT30M           # up to this
          jitter: 0.1                 # and up to a tenth longer, at random
"""
_OFFERED_AGAIN: Final = """\
    reception_awareness:              # the sender waits for the receipt
      retry:
        parameters:                   # offered again until it comes: for about an hour
          max_retries: 12
          timeout: PT1M
          period: PT5M
"""
_COLLECTED: Final = """\
    pulling:
      interval: PT30S                 # how often the receiver asks,
      longest: PT10M                  # less and less while nothing is there
      keep: P30D                      # how long the sender keeps what nobody collects
"""


def _transport(connects: bool, server: str, client_certificates: bool) -> str:
    shown = "          certificate: ../keys/tls.p12   # what who connects shows, with its key\n"
    client = f"""\
        client:
{shown if connects else ""}\
          anchor_certificates: [../keys/authority.pem]
"""
    return f"""\
      security:
        protocol: TLS
        protocol_version: 1.2         # at least
        server:                       # who vouches for the server of {server}
          anchor_certificates: [../keys/authority.pem]
{client if client_certificates else ""}"""


def _x509(sample: Sample, sender: str, receiver: str, sends: bool) -> str:
    key = f"          key: ../keys/{sender}.p12  # what the sender signs with\n"
    encryption = f"""\
        encryption:
          encrypt: true
          certificate: ../keys/{receiver}.pem  # the receiver's: only it can read the payloads
          algorithm: aes128-gcm
          key_transport: rsa-oaep
          digest: sha256
          mgf: mgf1sha256
"""
    return f"""\
      wss_version: 1.1
      x509:
        sign: true
        signature:
          certificate: ../keys/{sender}.pem  # the sender's: no other signature is taken
{key if sends else ""}\
          algorithm: rsa-sha256
          hash_function: sha256
          key_reference: binary_security_token
{encryption if sample.encrypted else ""}"""


def _receipt(sample: Sample, receiver: str) -> str:
    proof = f"""\
        non_repudiation: true         # it signs for exactly what was received
        certificate: ../keys/{receiver}.pem  # whose signature it must have
"""
    pattern = (
        "callback       # the receipt is a request of its own"
        if sample.pulled
        else "response       # the receipt comes back in the HTTP response"
    )
    return f"""\
      send_receipt:
        reply_pattern: {pattern}
{proof if sample.signed else ""}"""


def _aligned(text: str) -> str:
    """The text with its comments below each other."""
    return re.sub(
        r"^( *[^#\s].*?) +# ", lambda found: f"{found[1]:<{_COLUMN}}  # ", text, flags=re.MULTILINE
    )


def order_text() -> str:
    """A payload to send."""
    return """\
<?xml version="1.0" encoding="UTF-8"?>
<Order xmlns="urn:example:order">
  <ID>PO-1</ID>
  <Line><Item>Writing paper, 500 sheets</Item><Quantity>20</Quantity></Line>
  <Line><Item>Sealing wax, red</Item><Quantity>4</Quantity></Line>
</Order>
"""
