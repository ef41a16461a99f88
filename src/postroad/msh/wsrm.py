"""Messages of WS-ReliableMessaging: written, signed as the P-Mode signs, and what is believed.

They hold no eb:Messaging. Their WS-Addressing headers say what they are and, where intermediaries
route, whither they go (Part 2, 2.6.1 and 2.8).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives import hashes
from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.agreement.places import is_pulled
from postroad.agreement.reliable import reliable_of
from postroad.msh.answers import error_problems
from postroad.msh.lens import Inspection
from postroad.msh.outbound import secured_at
from postroad.msh.securing import signs
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.soap import (
    SoapVersion,
    read_envelope,
    value_namespaces,
)
from postroad.wire.soap_faults import Fault, FaultMessage, write_fault
from postroad.wire.wsa import (
    ANONYMOUS,
    Addressing,
    EndpointReference,
    RelatesTo,
    write_addressing,
    write_reference_parameters,
    wsa_id,
)
from postroad.wire.wsrm import (
    ACK_ACTION,
    Lifecycle,
    SequenceAcknowledgement,
    action_of,
    write_ack_requested,
    write_acknowledgement,
    write_lifecycle,
    write_sequence,
)
from postroad.wire.wsrm import (
    Sequence as RmSequence,
)
from postroad.wire.wsrm_faults import FAULT_ACTION, RmFault, written_fault
from postroad.wire.wsrm_reader import read_rm_headers
from postroad.wire.xml import parse

_SEQUENCE_ID: Final = "_sequence"
_ASKING_ID: Final = "_ackrequested"
_ACK_ID: Final = "_acknowledgement"
_FAULT_ID: Final = "_sequencefault"
_ADDRESSING_ID: Final = "_addressing"
_ROUTING_ID: Final = "_routing"
_BACK: Final = EndpointReference(ANONYMOUS)


def sequence_blocks(sequence: RmSequence, version: SoapVersion) -> list[Block]:
    """The headers of a message in a sequence. Each asks for an acknowledgement, so that its copy,
    which is the same byte for byte, does so too."""
    return [
        Block(_SEQUENCE_ID, write_sequence(sequence, version, id=_SEQUENCE_ID)),
        Block(_ASKING_ID, write_ack_requested(sequence.identifier, version, id=_ASKING_ID)),
    ]


def ack_blocks(acks: Sequence[SequenceAcknowledgement], version: SoapVersion) -> list[Block]:
    """Acknowledgements as headers of any message."""
    return [
        Block(id, write_acknowledgement(ack, version, id=id))
        for id, ack in ((f"{_ACK_ID}-{n}", one) for n, one in enumerate(acks, 1))
    ]


class Written(Struct, frozen=True):
    """A protocol message as it is sent."""

    message_id: str
    version: SoapVersion
    envelope: bytes
    action: str

    @property
    def content_type(self) -> str:
        return f"{self.version.media_type}; charset=UTF-8"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """HTTP headers: SOAP 1.1 says its action there."""
        if self.version is SoapVersion.SOAP_12:
            return ()
        return (("SOAPAction", f'"{self.action}"'),)


def write_message(
    body: Lifecycle | None,
    version: SoapVersion,
    *,
    message_id: str,
    now: datetime,
    how: Signing | None,
    to: EndpointReference = _BACK,
    relates_to: str | None = None,
    acks: Sequence[SequenceAcknowledgement] = (),
) -> Written:
    """A life-cycle message, or acknowledgements alone; all its headers are signed with it.

    [P2-2.6.1-07] [P2-2.8.1-02] [P2-2.6.3.2-08]
    """
    action = ACK_ACTION if body is None else action_of(body)
    blocks = _addressed(to, action, message_id, relates_to, version)
    blocks += ack_blocks(acks, version)
    secured = secure(
        version,
        blocks,
        [],
        signing=how,
        lifetime=secured_at(now) if how else None,
        body_content="" if body is None else write_lifecycle(body, version),
    )
    return Written(message_id, version, secured.envelope, action)


def _addressed(
    to: EndpointReference,
    action: str,
    message_id: str,
    relates_to: str | None,
    version: SoapVersion,
) -> list[Block]:
    related = () if relates_to is None else (RelatesTo(relates_to),)
    routed = to.routing_input is not None
    said = Addressing(to.address, action, wsa_id(message_id), related, to_must_understand=routed)
    headers = write_addressing(said, version, id_prefix=_ADDRESSING_ID)
    parameters = write_reference_parameters(to, version, id_prefix=_ROUTING_ID)
    return [
        Block(f"{prefix}-{n}", one)
        for prefix, written in ((_ADDRESSING_ID, headers), (_ROUTING_ID, parameters))
        for n, one in enumerate(written, 1)
    ]


def write_rm_fault(
    fault: RmFault | str,
    version: SoapVersion,
    *,
    message_id: str,
    to: EndpointReference = _BACK,
    relates_to: str | None = None,
    final: SequenceAcknowledgement | None = None,
    now: datetime,
    how: Signing | None = None,
) -> Written:
    """A fault, and with SequenceClosed what the sequence came to; a sentence alone where the
    protocol has none for it.

    As a response it is not signed: who says that a sequence is gone may have lost more than that.
    [P2-2.4.5-02]
    """
    if isinstance(fault, str):
        written = FaultMessage(Fault(version.sender, fault))
    else:
        written = written_fault(fault, version, id=_FAULT_ID)
    blocks = _addressed(to, FAULT_ACTION, message_id, relates_to, version)
    blocks += [Block(_FAULT_ID, one) for one in written.header_blocks]
    if final is not None:
        blocks += ack_blocks((final,), version)
    content = write_fault(version, written.fault)
    secured = secure(
        version,
        blocks,
        [],
        signing=how,
        lifetime=secured_at(now) if how else None,
        body_content=content,
        namespaces=value_namespaces(content),
    )
    return Written(message_id, version, secured.envelope, FAULT_ACTION)


def sent_sequence(envelope: bytes, limits: Limits = DEFAULT) -> RmSequence | None:
    """Where a message that was sent is, from the envelope that was kept."""
    headers, _ = read_rm_headers(read_envelope(parse(envelope, limits)))
    return headers.sequence if headers is not None else None


def rm_problems(found: Inspection, match: Match, *, faulty: bool = False) -> list[EbmsError]:
    """Why what a partner says about a sequence is not believed.

    A `faulty` response is believed unsigned, as an error is.
    """
    return error_problems(found, match, on_response=faulty)


def way_problems(match: Match, *, in_request: bool) -> list[EbmsError]:
    """Why what is said about sequences, or messages, is not believed for the way it came.

    What is unsigned is believed only for the connection that brought it: in the response to what
    this node sent, when pulled, or in a request where Callback is agreed on. What is said about a
    message that the partner pulled cannot be its response.
    """
    agreed = reliable_of(match.leg)
    if not in_request or signs(match.leg) or agreed is None or agreed.pattern == "Callback":
        return []
    if is_pulled(match.pmode, match.number - 1):
        return []
    said = f"it is unsigned and came in a request, and the reply pattern is {agreed.pattern}"
    return [EbmsError("EBMS:0010", said, location="PMode")]


def signer_of(found: Inspection) -> str:
    """Who signed, as far as that is proven: the certificate's fingerprint; nobody: empty."""
    check = found.verification
    if check is None or check.certificate is None or not (check.valid and found.trusted):
        return ""
    return check.certificate.fingerprint(hashes.SHA256()).hex()
