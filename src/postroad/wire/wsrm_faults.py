"""The faults of WS-ReliableMessaging: a SOAP fault with a code of its own, and the sequence.

SOAP 1.2 has the code as a Subcode and what it is about in the Detail; SOAP 1.1 has the code as
faultcode, and all that in a header block, wsrm:SequenceFault.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from lxml import etree
from msgspec import Struct

from postroad.wire.errors import EbmsError
from postroad.wire.names import WSRM
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.soap_faults import Fault, FaultMessage, read_fault
from postroad.wire.wsrm import LONGEST_IDENTIFIER, MOST_NUMBER, header_block
from postroad.wire.xml import elements, escape, parse, text

FAULT_ACTION: Final = WSRM + "/fault"


class Code(StrEnum):
    SEQUENCE_TERMINATED = "SequenceTerminated"
    UNKNOWN_SEQUENCE = "UnknownSequence"
    INVALID_ACKNOWLEDGEMENT = "InvalidAcknowledgement"
    MESSAGE_NUMBER_ROLLOVER = "MessageNumberRollover"
    CREATE_SEQUENCE_REFUSED = "CreateSequenceRefused"
    SEQUENCE_CLOSED = "SequenceClosed"
    WSRM_REQUIRED = "WSRMRequired"


class RmFault(Struct, frozen=True):
    code: Code
    reason: str
    identifier: str | None = None
    """The sequence that it is about."""


ESCALATED: Final[Mapping[Code, str]] = {
    Code.SEQUENCE_TERMINATED: "EBMS:0201",
    Code.UNKNOWN_SEQUENCE: "EBMS:0201",
    Code.INVALID_ACKNOWLEDGEMENT: "EBMS:0201",
    Code.MESSAGE_NUMBER_ROLLOVER: "EBMS:0201",
    Code.CREATE_SEQUENCE_REFUSED: "EBMS:0201",
    Code.SEQUENCE_CLOSED: "EBMS:0201",
    Code.WSRM_REQUIRED: "EBMS:0010",
}
"""What a fault is called by those who know only errors of ebMS (Core B.2)."""


def written_fault(fault: RmFault, version: SoapVersion, *, id: str | None = None) -> FaultMessage:
    """The SOAP fault, and the header block that goes with it in SOAP 1.1, in canonical form."""
    subcode = f"{{{WSRM}}}{fault.code.value}"
    if version is SoapVersion.SOAP_12:
        detail = tuple(_detail(fault, f' xmlns:wsrm="{WSRM}"'))
        return FaultMessage(Fault(version.sender, fault.reason, subcodes=(subcode,), detail=detail))
    told = "".join(_detail(fault))
    content = f"<wsrm:FaultCode>wsrm:{fault.code.value}</wsrm:FaultCode>"
    content += f"<wsrm:Detail>{told}</wsrm:Detail>" if told else ""
    block = header_block("SequenceFault", content, version, id, must=False)
    return FaultMessage(Fault(version.sender, fault.reason, subcodes=(subcode,)), (block,))


def _detail(fault: RmFault, declared: str = "") -> Iterator[str]:
    if fault.identifier is None:
        return
    yield f"<wsrm:Identifier{declared}>{escape(fault.identifier)}</wsrm:Identifier>"
    if fault.code is Code.MESSAGE_NUMBER_ROLLOVER:
        yield f"<wsrm:MaxMessageNumber{declared}>{MOST_NUMBER}</wsrm:MaxMessageNumber>"


def read_rm_fault(envelope: Envelope) -> RmFault | None:
    """The fault in a Body, if it is one of WS-ReliableMessaging."""
    fault = read_fault(envelope)
    if fault is None:
        return None
    code = next(
        (_CODES[one] for one in (*reversed(fault.subcodes), fault.code) if one in _CODES), None
    )
    if code is None:
        return None
    return RmFault(code, fault.reason[:2000], _identifier(envelope, fault))


_CODES: Final = {f"{{{WSRM}}}{one.value}": one for one in Code}


def _identifier(envelope: Envelope, fault: Fault) -> str | None:
    places: list[etree._Element] = []
    for piece in fault.detail:
        try:
            places.append(parse(piece.encode()))
        except EbmsError:
            continue
    for block in envelope.blocks:
        if block.element.tag == f"{{{WSRM}}}SequenceFault":
            places.append(block.element)
    for place in places:
        for one in place.iter(f"{{{WSRM}}}Identifier"):
            value = text(one)
            if 0 < len(value) <= LONGEST_IDENTIFIER and not elements(one):
                return value
    return None
