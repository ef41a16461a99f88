"""What may be sent as an ebXML message: the rules for values, elements and their combinations."""

from collections.abc import Sequence
from typing import Final

from postroad.wire.ebms3 import Description, Party
from postroad.wire.ebms3_user_messages import is_message_id, is_uri
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    ERROR,
    GUARANTEED,
    MOST_LINK_NUMBER,
    MOST_SEQUENCE_NUMBER,
    NOT_RECOGNIZED,
    RELIABLE,
    RESET,
    UNAUTHORIZED,
    Dialect,
    EbxmlMessage,
    Error,
    MessageHeader,
    Via,
    is_reserved,
    kind_of,
)
from postroad.wire.ebxml_errors import is_short_description
from postroad.wire.ebxml_findings import BLANK, is_language, is_xml_name
from postroad.wire.names import EB2_NEXT_MSH, EB2_TO_PARTY_MSH
from postroad.wire.xml import escape, is_xml_text

_ABOUT_OTHERS: Final = ("acknowledgment", "error", "pong", "status_response")
_WITHOUT_PAYLOAD: Final = ("ping", "pong", "status_request", "status_response")


def text(given: str, what: str) -> str:
    """A value that a reader gets back as it is."""
    if not given:
        raise ValueError(f"{what} is empty")
    if given != given.strip(BLANK):
        raise ValueError(f"{what} has white space around it, which readers drop: {given!r}")
    if not is_xml_text(given):
        raise ValueError(f"{what} holds a character that XML forbids: {given!r}")
    return given


def value(given: str, what: str) -> str:
    """The same, as it is written between tags."""
    return escape(text(given, what))


def uri(given: str, what: str) -> str:
    if not is_uri(text(given, what)):
        raise ValueError(f"{what} must be a URI, not {given!r}")
    return given


def one_of(given: str, words: Sequence[str], what: str) -> str:
    if given not in words:
        raise ValueError(f"{what} is one of {', '.join(words)}, not {given!r}")
    return given


def language(given: str) -> str:
    if not is_language(given):
        raise ValueError(f"xml:lang names a language, not {given!r}")
    return given


def xml_id(given: str) -> str:
    if not is_xml_name(given):
        raise ValueError(f"an XML id must be a name without a colon, not {given!r}")
    return given


def check_sendable(message: EbxmlMessage) -> None:
    """ValueError for a message that breaks a rule between its elements."""
    _elements_of_the_version(message)
    _check_header(message.header, message.dialect)
    _check_references(message)
    _check_combinations(message)
    _check_ids(message)


def _elements_of_the_version(message: EbxmlMessage) -> None:
    """Each version has elements that the others have not."""
    dialect, header, receipt = message.dialect, message.header, message.acknowledgment
    qualities = (
        header.delivery_semantics,
        header.message_order_semantics,
        header.delivery_receipt_requested,
    )
    parties = (header.from_party, header.to_party)
    absent = {
        "QualityOfServiceInfo": not dialect.has_quality_of_service and any(qualities),
        "DuplicateElimination": dialect.has_quality_of_service and header.duplicate_elimination,
        "TraceHeaderList": not dialect.has_trace and bool(message.trace),
        "SyncReply": dialect.has_trace and message.sync_reply,
        "AckRequested": dialect.has_trace and bool(message.ack_requested),
        "StatusRequest": not dialect.has_status_request and message.status_request is not None,
        "Role": not dialect.has_role and any(party.role for party in parties),
        "a second PartyId": not dialect.many_party_ids
        and any(len(party.party_ids) > 1 for party in parties),
        "MessageType": not dialect.has_trace and header.message_type is not None,
        "a foreign element in the MessageHeader": not dialect.open_header
        and bool(header.extensions),
    }
    if receipt is not None:
        absent |= {
            "an actor of the Acknowledgment": dialect.has_trace and receipt.actor is not None,
            "RefToMessageId in the Acknowledgment": not dialect.acknowledgment_refers
            and receipt.ref_to_message_id is not None,
            "ds:Reference in the Acknowledgment": not dialect.acknowledgment_references
            and bool(receipt.references),
        }
    for what, given in absent.items():
        if given:
            raise ValueError(f"version {dialect.name} has no {what.removeprefix('a ')}")


def _check_header(header: MessageHeader, dialect: Dialect) -> None:
    for what, party in (("From", header.from_party), ("To", header.to_party)):
        _check_party(party, what)
    if not is_message_id(text(header.message_id, "MessageId")):
        raise ValueError(f"MessageId has the form left@right, not {header.message_id!r}")
    reliable = header.delivery_semantics in RELIABLE or header.duplicate_elimination
    if header.message_order_semantics == GUARANTEED and not reliable:
        raise ValueError("only OnceAndOnlyOnce guarantees order")
    number = header.sequence_number
    if number is not None:
        if not reliable:
            needed = "OnceAndOnlyOnce" if dialect.has_quality_of_service else "DuplicateElimination"
            raise ValueError(f"a SequenceNumber needs {needed}")
        if not 0 <= number.value <= MOST_SEQUENCE_NUMBER:
            raise ValueError(f"a SequenceNumber is one of 0 to {MOST_SEQUENCE_NUMBER}")
        if number.status == RESET and number.value:
            raise ValueError(f"after a Reset the SequenceNumber is 0, not {number.value}")
    _check_languages(header.descriptions)


def _check_party(party: Party, what: str) -> None:
    if not party.party_ids:
        raise ValueError(f"{what} needs a PartyId")


def _check_languages(descriptions: Sequence[Description]) -> None:
    """[MS098-8.4.9-02] [MS098-8.10.5.2-03]"""
    if len({one.lang for one in descriptions}) < len(descriptions):
        raise ValueError("each Description is in another language")


def _check_references(message: EbxmlMessage) -> None:
    """A message about another one says which.

    [MS098-8.4.6.3-01] [MS098-8.4.6.3-03] [MS098-8.4.6.3-04]
    """
    dialect, kind = message.dialect, kind_of(message)
    receipt = message.acknowledgment
    if message.header.ref_to_message_id == message.header.message_id:
        raise ValueError("RefToMessageId names an earlier message, not the message itself")
    if message.header.ref_to_message_id is not None:
        return
    inside = receipt is not None and receipt.ref_to_message_id is not None
    if kind == "acknowledgment" and inside:
        return
    if kind in _ABOUT_OTHERS or (kind == "status_request" and not dialect.has_status_request):
        raise ValueError(f"the message needs a RefToMessageId: it is a {kind.replace('_', ' ')}")
    if message.error_list is not None or (receipt is not None and not inside):
        raise ValueError("a message with errors or an acknowledgment needs a RefToMessageId")


def _check_combinations(message: EbxmlMessage) -> None:
    """Section 8.13. [MS098-8.13.4-01] [MS098-8.13.4-02] [MS098-8.13.5-02]"""
    errors, status, kind = message.error_list, message.status_data, kind_of(message)
    header, manifest = message.header, message.manifest
    if is_reserved(header.service) and kind == "message":
        raise ValueError(f"the Service {header.service.value} is for MSHs; it has no such Action")
    if errors is not None:
        if not errors.errors:
            raise ValueError("an ErrorList needs at least one error")
        if errors.highest_severity == ERROR and (manifest is not None or status is not None):
            raise ValueError("an ErrorList of severity Error excludes a Manifest and a status")
    if manifest is not None and (
        status is not None or message.status_request is not None or kind in _WITHOUT_PAYLOAD
    ):
        raise ValueError("a message to or from an MSH itself has no Manifest")
    if manifest is not None and not manifest.references:
        raise ValueError("a Manifest needs at least one Reference")
    if status is not None:
        if message.status_request is not None:
            raise ValueError("a message asks for a status or tells one")
        if status.timestamp and status.message_status in (UNAUTHORIZED, NOT_RECOGNIZED):
            raise ValueError(f"with {status.message_status} there is no Timestamp")
    if header.sequence_number is not None and message.sync_reply:
        raise ValueError("MessageOrder and SyncReply exclude each other")
    _check_acknowledgments(message)


def _check_acknowledgments(message: EbxmlMessage) -> None:
    """[MS098-8.12.2-01]"""
    actors = [one.actor or EB2_TO_PARTY_MSH for one in message.ack_requested]
    receipt = message.acknowledgment
    if receipt is not None:
        one_of(receipt.type, (DELIVERY_RECEIPT, ACKNOWLEDGMENT), "the type of an Acknowledgment")
        if receipt.from_party is not None:
            raise ValueError("who acknowledges is the From of the message: leave the other one out")
    if len(set(actors)) < len(actors):
        raise ValueError("two AckRequested are for the same MSH")
    for actor in (*actors, (receipt.actor if receipt else None) or EB2_TO_PARTY_MSH):
        one_of(actor, (EB2_TO_PARTY_MSH, EB2_NEXT_MSH), "the actor")


def _check_ids(message: EbxmlMessage) -> None:
    """An id stands once in a document. [MS098-8.7.1-01] [MS098-8.10.5-02]"""
    ids = [] if message.error_list is None else [message.error_list.id]
    if message.manifest is not None:
        ids.append(message.manifest.id)
        for number, one in enumerate(message.manifest.references, 1):
            ids.append(one.id or f"payload-{number}")
            _check_languages(one.descriptions)
    given = [id for id in ids if id]
    if len(set(given)) < len(given):
        raise ValueError(f"an id stands twice in the message: {', '.join(sorted(given))}")


def check_via(via: Via, dialect: Dialect) -> None:
    """[MS098-8.6-04] [MS098-8.6.8-02]"""
    if not dialect.has_trace:
        raise ValueError(f"version {dialect.name} has no Via")
    said = (via.sync_reply, via.reliable_messaging_method, via.ack_requested, via.cpa_id)
    if all(one is None for one in said):
        raise ValueError("a Via has syncReply, reliableMessagingMethod, ackRequested or a CPAId")
    if (via.service is None) is not (via.action is None):
        raise ValueError("Service and Action stand in a Via both or not at all")


def check_link_number(number: int) -> None:
    """[RM001-2.2.3-05]"""
    if not 1 <= number <= MOST_LINK_NUMBER:
        raise ValueError(f"the number is one of 1 to {MOST_LINK_NUMBER}, not {number}")


def check_error(error: Error) -> None:
    """[MS098-8.7.5.4-01] [MS098-8.7.7-01]"""
    location = error.location
    if location is not None and not location.startswith(("#", "cid:")):
        raise ValueError(f"a location is an XPointer or a Content-ID, not {location!r}")
    if is_short_description(error.text):
        raise ValueError(f"{error.text!r} is no text for an Error: its code says as much")
    if error.min_retry_secs is not None and error.min_retry_secs < 0:
        raise ValueError("MinRetrySecs is a number of seconds")
