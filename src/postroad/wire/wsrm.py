"""WS-ReliableMessaging 1.1 and 1.2 as values, both ways: header blocks and life-cycle messages.

Both versions have one namespace and one form; 1.0 has others, and is told by name
(`wsrm_reader`). What cannot be read is EBMS:0201.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from postroad.wire.names import WSRM, WSU
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import (
    EndpointReference,
    write_endpoint_reference,
)
from postroad.wire.xml import (
    escape,
    escape_attribute,
    is_xml_text,
)

WSRMP: Final = "http://docs.oasis-open.org/ws-rx/wsrmp/200702"
BROKEN: Final = "EBMS:0201"
MOST_NUMBER: Final = 9_223_372_036_854_775_807
MOST_RANGES: Final = 1000
"""Of one acknowledgement; with more holes its first ones are told, which is still true."""
MOST_HEADERS: Final = 20
"""Acknowledgements, or requests for them, on one message."""
LONGEST_IDENTIFIER: Final = 1000


class Behavior(StrEnum):
    """IncompleteSequenceBehavior: what becomes of a sequence with holes when it ends."""

    NO_DISCARD = "NoDiscard"
    DISCARD_ENTIRE_SEQUENCE = "DiscardEntireSequence"
    DISCARD_FOLLOWING_FIRST_GAP = "DiscardFollowingFirstGap"


class Assurance(Struct, frozen=True):
    """wsrmp:DeliveryAssurance, as CreateSequence may name it (Part 2, F.1)."""

    at_least_once: bool = False
    at_most_once: bool = False
    in_order: bool = False


class Sequence(Struct, frozen=True):
    """The wsrm:Sequence header: of which sequence a message is, and its number there."""

    identifier: str
    message_number: int


class SequenceAcknowledgement(Struct, frozen=True):
    """What of a sequence has come; without ranges and Nacks nothing has (wsrm:None)."""

    identifier: str
    ranges: tuple[tuple[int, int], ...] = ()
    """Lower and upper, ascending, each apart from the next."""
    nacks: tuple[int, ...] = ()
    final: bool = False


class RmHeaders(Struct, frozen=True):
    """All header blocks of WS-ReliableMessaging on one message."""

    sequence: Sequence | None = None
    ack_requested: tuple[str, ...] = ()
    """Identifiers of the sequences that are asked about."""
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A sequence for the other direction."""

    identifier: str
    endpoint: EndpointReference
    expires: timedelta | None = None
    behavior: Behavior = Behavior.NO_DISCARD


@dataclass(frozen=True, slots=True)
class CreateSequence:
    acks_to: EndpointReference
    expires: timedelta | None = None
    """None: never."""
    offer: Offer | None = None
    assurance: Assurance | None = None
    secured: bool = False
    """It names a security token to which the sequence is bound; read only."""


@dataclass(frozen=True, slots=True)
class CreateSequenceResponse:
    identifier: str
    expires: timedelta | None = None
    behavior: Behavior = Behavior.NO_DISCARD
    accept: EndpointReference | None = None
    """AcksTo of the offered sequence; None: the offer was not taken."""


@dataclass(frozen=True, slots=True)
class CloseSequence:
    identifier: str
    last: int | None = None
    """LastMsgNumber; 0: nothing was ever sent."""


@dataclass(frozen=True, slots=True)
class CloseSequenceResponse:
    identifier: str
    """Empty if the partner sent no Identifier; responses of our own always have one."""


@dataclass(frozen=True, slots=True)
class TerminateSequence:
    identifier: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class TerminateSequenceResponse:
    identifier: str


Lifecycle = (
    CreateSequence
    | CreateSequenceResponse
    | CloseSequence
    | CloseSequenceResponse
    | TerminateSequence
    | TerminateSequenceResponse
)
"""What stands in a Body."""

ACK_ACTION: Final = WSRM + "/SequenceAcknowledgement"


def action_of(message: Lifecycle) -> str:
    """The wsa:Action that the specification fixes. [P2-2.6.3.2-08]"""
    return f"{WSRM}/{type(message).__name__}"


LONGEST: Final = timedelta(days=36_525)
"""That a sequence lives, where it does not live for ever."""
ASSURANCES: Final = {
    "AtLeastOnce": Assurance(at_least_once=True),
    "AtMostOnce": Assurance(at_most_once=True),
    "ExactlyOnce": Assurance(at_least_once=True, at_most_once=True),
}


def ordered(assurance: Assurance, in_order: bool) -> Assurance:
    return Assurance(assurance.at_least_once, assurance.at_most_once, in_order)


def is_identifier(value: str) -> bool:
    short = 0 < len(value) <= LONGEST_IDENTIFIER
    return short and not re.search(r"\s", value) and is_xml_text(value)


def _checked(identifier: str) -> str:
    if not is_identifier(identifier):
        raise ValueError(f"{identifier[:80]!r} cannot be the identifier of a sequence")
    return escape(identifier)


def _checked_number(number: int, least: int = 1) -> int:
    if not least <= number <= MOST_NUMBER:
        raise ValueError(f"{number} is no message number")
    return number


def header_block(name: str, content: str, version: SoapVersion, id: str | None, must: bool) -> str:
    """Write a header block in canonical form."""
    soap = f' xmlns:{version.prefix}="{version.namespace}"' if must else ""
    wsu = f' xmlns:wsu="{WSU}"' if id is not None else ""
    named = f' wsu:Id="{escape_attribute(id)}"' if id is not None else ""
    target = f' {version.prefix}:mustUnderstand="{version.must_understand}"' if must else ""
    start = f'<wsrm:{name}{soap} xmlns:wsrm="{WSRM}"{wsu}{named}{target}>'
    return f"{start}{content}</wsrm:{name}>"


def _named(identifier: str) -> str:
    return f"<wsrm:Identifier>{_checked(identifier)}</wsrm:Identifier>"


def write_sequence(sequence: Sequence, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form; it must be understood."""
    number = _checked_number(sequence.message_number)
    content = f"{_named(sequence.identifier)}<wsrm:MessageNumber>{number}</wsrm:MessageNumber>"
    return header_block("Sequence", content, version, id, must=True)


def write_ack_requested(identifier: str, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form."""
    return header_block("AckRequested", _named(identifier), version, id, must=False)


def write_acknowledgement(
    ack: SequenceAcknowledgement, version: SoapVersion, *, id: str | None = None
) -> str:
    """The header block in canonical form; ValueError for ranges that cannot be."""
    content = _named(ack.identifier)
    if ack.nacks:
        if ack.ranges or ack.final:
            raise ValueError("Nacks stand alone")
        content += "".join(f"<wsrm:Nack>{_checked_number(one)}</wsrm:Nack>" for one in ack.nacks)
        return header_block("SequenceAcknowledgement", content, version, id, must=False)
    before = 0
    for lower, upper in ack.ranges[:MOST_RANGES]:
        if not before < _checked_number(lower) <= _checked_number(upper):
            raise ValueError("ranges ascend and do not overlap")
        before = upper
        attributes = f'Lower="{lower}" Upper="{upper}"'
        content += f"<wsrm:AcknowledgementRange {attributes}></wsrm:AcknowledgementRange>"
    if not ack.ranges:
        content += "<wsrm:None></wsrm:None>"
    if ack.final:
        content += "<wsrm:Final></wsrm:Final>"
    return header_block("SequenceAcknowledgement", content, version, id, must=False)


def write_lifecycle(message: Lifecycle, version: SoapVersion) -> str:
    """The message as content of a Body; ValueError when it cannot be sent."""
    match message:
        case CreateSequence():
            content = _acks_to(message.acks_to, version) + _duration(message.expires)
            if message.offer is not None:
                content += _offer(message.offer, version)
            if message.assurance is not None:
                content += _written_assurance(message.assurance)
        case CreateSequenceResponse():
            content = _named(message.identifier) + _duration(message.expires)
            if message.behavior is not Behavior.NO_DISCARD:
                content += _written_behavior(message.behavior)
            if message.accept is not None:
                content += f"<wsrm:Accept>{_acks_to(message.accept, version)}</wsrm:Accept>"
        case CloseSequence() | TerminateSequence():
            content = _named(message.identifier)
            if message.last is not None:
                last = _checked_number(message.last, 0)
                content += f"<wsrm:LastMsgNumber>{last}</wsrm:LastMsgNumber>"
        case CloseSequenceResponse() | TerminateSequenceResponse():
            content = _named(message.identifier)
    name = type(message).__name__
    return f'<wsrm:{name} xmlns:wsrm="{WSRM}">{content}</wsrm:{name}>'


def _acks_to(reference: EndpointReference, version: SoapVersion) -> str:
    return write_endpoint_reference(
        reference, version, name="AcksTo", prefix="wsrm", namespace=WSRM
    )


def _offer(offer: Offer, version: SoapVersion) -> str:
    endpoint = write_endpoint_reference(
        offer.endpoint, version, name="Endpoint", prefix="wsrm", namespace=WSRM
    )
    content = _named(offer.identifier) + endpoint + _duration(offer.expires)
    if offer.behavior is not Behavior.NO_DISCARD:
        content += _written_behavior(offer.behavior)
    return f"<wsrm:Offer>{content}</wsrm:Offer>"


def _written_behavior(behavior: Behavior) -> str:
    name = "IncompleteSequenceBehavior"
    return f"<wsrm:{name}>{behavior.value}</wsrm:{name}>"


def _duration(expires: timedelta | None) -> str:
    if expires is None:
        return ""
    if not timedelta(0) < expires < LONGEST:
        raise ValueError("a sequence expires within a hundred years, or never")
    seconds = expires.days * 86_400 + expires.seconds
    micros = f".{expires.microseconds:06d}" if expires.microseconds else ""
    return f"<wsrm:Expires>PT{seconds}{micros}S</wsrm:Expires>"


def _written_assurance(assurance: Assurance) -> str:
    name = next(
        (name for name, one in ASSURANCES.items() if ordered(one, assurance.in_order) == assurance),
        None,
    )
    if name is None:
        raise ValueError("an assurance is at least once, at most once, or both")
    order = "<wsrmp:InOrder/>" if assurance.in_order else ""
    return (
        f'<wsrmp:DeliveryAssurance xmlns:wsrmp="{WSRMP}"><wsrmp:{name}/>{order}'
        "</wsrmp:DeliveryAssurance>"
    )
