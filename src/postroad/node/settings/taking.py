"""What a leg of a P-Mode says about messages that come in, found out once for each leg.

Nothing of a P-Mode changes once it is in force, and every message asks for the same.
"""

from msgspec import Struct

from postroad.agreement.awareness import ReceptionAwareness
from postroad.agreement.matching import Match
from postroad.agreement.places import is_pulled, is_response, sides
from postroad.agreement.pmode import Leg
from postroad.agreement.reliable import reliable_of
from postroad.agreement.reply_patterns import receipt_addressing
from postroad.msh.answers import receipt_is_response, wants_receipt
from postroad.msh.expectation import Material
from postroad.msh.securing import answer_signing, signs
from postroad.reliability.agreed import awareness_of
from postroad.security.keys import KeyPair
from postroad.security.sign import Signing


class Taking(Struct, frozen=True):
    """How messages of a leg are taken and answered."""

    leg: Leg
    ours: bool
    """This node's party is the receiver."""
    usual: bool
    """They are pushed, by whoever can connect, in no sequence, and answered without waiting."""
    wants_receipt: bool
    responds: bool
    """Receipts are the response."""
    routed: bool
    """The P-Mode says where receipts are routed to."""
    aware: ReceptionAwareness | None
    signing: Signing | None
    """How answers are signed; None also where there is no key."""
    proves: bool
    """A message proves who sent it: by its signature, a user name or a TLS client certificate."""
    names_sender: bool
    """Only one party can be in From of such a message: the P-Mode names it, or the certificate
    has to. Else its sender may call itself like another partner."""


def taking_of(match: Match, ours: bool, material: Material, key: KeyPair | None) -> Taking:
    """The same in words of the P-Mode; `key` is the one that this node signs answers with."""
    pmode, leg, index = match.pmode, match.leg, match.number - 1
    sender = sides(pmode, index)[0]
    return Taking(
        leg,
        ours,
        usual=not (
            is_pulled(pmode, index)
            or is_response(pmode, index)
            or is_response(pmode, match.number)
            or reliable_of(leg)
            or material.tls_clients
            or material.tls_anchors
        ),
        wants_receipt=wants_receipt(leg),
        responds=receipt_is_response(leg),
        routed=bool(receipt_addressing(leg) or (sender and sender.addressing)),
        aware=awareness_of(leg),
        signing=answer_signing(leg, key) if key is not None else None,
        proves=bool(
            signs(leg)
            or (leg.security and leg.security.username_token)
            or material.tls_clients
            or material.tls_anchors
        ),
        names_sender=bool(
            (sender and sender.party)
            or (signs(leg) and not material.pins and not material.subjects)
        ),
    )
