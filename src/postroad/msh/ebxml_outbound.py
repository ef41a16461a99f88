"""The walk out for ebXML messages: what the application gave becomes a message (0.98b, 7 and 8).

A package is made once. What belongs to one transmission, a TraceHeader and Via, is spliced into
its bytes by `hop` each time, so that the signature holds and the rest stays as it is.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from postroad.agreement.matching import Header, Match, header
from postroad.agreement.pmode import Leg
from postroad.agreement.pmode_ebxml import Ebxml
from postroad.msh.ebxml_inbound import DESCRIPTION, ROLE, SCHEMA, user_message
from postroad.msh.expectation import Material
from postroad.msh.outbound import Draft, DraftPayload, Named, PackedPart, draft_problems
from postroad.msh.securing import signing
from postroad.reliability import order
from postroad.reliability.ebxml_terms import OrderSemantics, Terms
from postroad.security.attachments import Attachment
from postroad.security.ebxml_signature import sign_ebxml
from postroad.security.encrypt import Seal
from postroad.security.sign import Signing
from postroad.wire.ebms3 import (
    MIME_TYPE,
    Description,
    Party,
    Property,
    Reference,
    Schema,
    Service,
    UserMessage,
)
from postroad.wire.ebxml import (
    AT_MOST_ONCE,
    DIALECTS,
    GUARANTEED,
    NONE,
    ONCE_AND_ONLY_ONCE,
    SIGNED,
    UNSPECIFIED,
    Acknowledgment,
    AckRequested,
    Dialect,
    EbxmlMessage,
    ErrorList,
    Manifest,
    ManifestReference,
    MessageHeader,
    SequenceNumber,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml_hops import add_trace, insert_signature, renew_trace, renew_via
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import cid_url
from postroad.wire.soap import SoapVersion

_LANGUAGE: Final = "en"


class EbxmlPackage(Struct, frozen=True):
    """A message ready to be sent, but for what each transmission adds. Like `outbound.Package`."""

    user_message: UserMessage
    version: SoapVersion
    envelope: bytes
    parts: tuple[PackedPart, ...]
    references: tuple[Reference, ...]
    seal: Seal | None
    message: EbxmlMessage


def check_ebxml_draft(
    draft: Draft, match: Match, now: datetime, agreed: Header | None = None
) -> list[EbmsError]:
    """In what a draft breaks its P-Mode, before it is packaged; ValueError if it cannot be sent."""
    message = _message(draft, match, now, agreed, Terms())
    write_ebxml(message)
    return draft_problems(draft, match, _shared(message, draft))


def package_ebxml(
    draft: Draft,
    match: Match,
    material: Material,
    *,
    now: datetime,
    terms: Terms,
    agreed: Header | None = None,
    sequence_number: order.SequenceNumber | None = None,
    time_to_live: datetime | None = None,
    acknowledgment: Acknowledgment | None = None,
    warnings: ErrorList | None = None,
    limits: Limits = DEFAULT,
) -> EbxmlPackage:
    """The message as it goes over the wire, without TraceHeaderList and Via.

    `terms` are the agreed ones; `time_to_live` goes before theirs. `acknowledgment` and `warnings`
    ride on it (`ebxml_answers.ride`). ValueError when it cannot be written, or keys do not fit.
    """
    message = _message(
        draft,
        match,
        now,
        agreed,
        terms,
        sequence_number=sequence_number,
        time_to_live=time_to_live,
        acknowledgment=acknowledgment,
        warnings=warnings,
    )
    attachments = [
        Attachment(one.content_id, one.content, one.media_type, one.sha256)
        for one in draft.payloads
    ]
    how = signing(match.leg, material.signing)
    envelope, references = write_signed(message, how, attachments, limits)
    return EbxmlPackage(
        _shared(message, draft),
        SoapVersion.SOAP_11,
        envelope,
        tuple(map(_part, draft.payloads)),
        references,
        None,
        message,
    )


def write_signed(
    message: EbxmlMessage,
    how: Signing | None,
    attachments: Sequence[Attachment] = (),
    limits: Limits = DEFAULT,
) -> tuple[bytes, tuple[Reference, ...]]:
    """The envelope of a message, with the signature of the From Party where there is one."""
    envelope = write_ebxml(message)
    if how is None:
        return envelope, ()
    signature, references = sign_ebxml(envelope, message.dialect, attachments, how, limits=limits)
    return insert_signature(envelope, signature), references


def _message(
    draft: Draft,
    match: Match,
    now: datetime,
    agreed: Header | None,
    terms: Terms,
    *,
    sequence_number: order.SequenceNumber | None = None,
    time_to_live: datetime | None = None,
    acknowledgment: Acknowledgment | None = None,
    warnings: ErrorList | None = None,
) -> EbxmlMessage:
    leg = match.leg
    own = _ebxml(leg)
    dialect = DIALECTS[own.version]
    _refuse_unsayable(draft)
    said = agreed or header(match.pmode, match.number)
    _refuse_conflicts(draft, said)
    reliable, older = terms.is_reliable, dialect.has_quality_of_service
    ordered = terms.message_order_semantics is OrderSemantics.GUARANTEED
    receipt = own.delivery_receipt if older and own.delivery_receipt != NONE else None
    number = sequence_number
    return EbxmlMessage(
        dialect=dialect,
        header=MessageHeader(
            from_party=_party(said.from_party, dialect),
            to_party=_party(said.to_party, dialect),
            cpa_id=said.agreement_ref.value if said.agreement_ref else "",
            conversation_id=draft.conversation_id,
            service=said.service,
            action=said.action,
            message_id=draft.message_id,
            timestamp=now,
            ref_to_message_id=draft.ref_to_message_id,
            time_to_live=time_to_live or terms.time_to_live,
            delivery_semantics=_semantics(own, reliable) if older else None,
            message_order_semantics=GUARANTEED if ordered and older else None,
            delivery_receipt_requested=receipt,
            sequence_number=SequenceNumber(number.value, str(number.status)) if number else None,
            duplicate_elimination=reliable and not older,
            descriptions=_descriptions(draft.properties),
        ),
        ack_requested=_ack_requested(own, terms, dialect),
        sync_reply=not older and own.sync_reply != "none",
        error_list=warnings,
        acknowledgment=acknowledgment,
        manifest=_manifest(draft.payloads),
    )


def _semantics(own: Ebxml, reliable: bool) -> str | None:
    """The deliverySemantics of the header; None: it is not said.

    Draft 001 has words of its own, and says both. [RM001-2.1-02] [RM001-2.2.2-03]
    """
    if own.profile == "rm001":
        return AT_MOST_ONCE if reliable else UNSPECIFIED
    return ONCE_AND_ONLY_ONCE if reliable else None


def _refuse_unsayable(draft: Draft) -> None:
    if draft.test:
        raise ValueError("ebXML has no test service: ping the partner instead (postroad ping)")
    if names := ", ".join(one[0] for one in draft.properties if one[0] != DESCRIPTION):
        raise ValueError(
            f"an ebXML message has no message property but {DESCRIPTION!r}, leave these out: "
            f"{names}"
        )
    for payload in draft.payloads:
        if names := ", ".join(one[0] for one in payload.properties if one[0] not in _KNOWN):
            raise ValueError(
                f"a payload of an ebXML message has no property but {ROLE!r}, {SCHEMA!r} and "
                f"{DESCRIPTION!r}, leave these out: {names}"
            )
        if payload.compress:
            raise ValueError("ebXML has no compression: leave it out, or compress the file itself")


_KNOWN = frozenset((ROLE, SCHEMA, MIME_TYPE, DESCRIPTION))


def _descriptions(properties: Sequence[Named]) -> tuple[Description, ...]:
    """What a message or a payload is about, for people; a property's type is the language.

    [MS098-8.4.9-01] [MS098-8.10.5.2-02]
    """
    return tuple(
        Description(value, lang or _LANGUAGE)
        for name, value, lang in properties
        if name == DESCRIPTION
    )


def _refuse_conflicts(draft: Draft, agreed: Header) -> None:
    """Refuse another Service or Action than the CPA has. [MS098-8.4.2-07]"""
    for name, given, wanted in (
        ("Service", draft.service, agreed.service.value),
        ("Action", draft.action, agreed.action),
    ):
        if given and given != wanted:
            raise ValueError(f"the P-Mode has the {name} {wanted!r}, not {given!r}")


def _schemas(properties: Sequence[Named]) -> tuple[Schema, ...]:
    """The schemas of a payload; a property's type is the version. [MS098-8.10.5.1-01]"""
    return tuple(Schema(value, version=type) for name, value, type in properties if name == SCHEMA)


def _party(party: Party, dialect: Dialect) -> Party:
    """A Party as far as the dialect can say it."""
    ids = party.party_ids if dialect.many_party_ids else party.party_ids[:1]
    return Party(ids, party.role if dialect.has_role else "")


def _ack_requested(own: Ebxml, terms: Terms, dialect: Dialect) -> tuple[AckRequested, ...]:
    """2.0 asks in the message itself; the others in Via."""
    if dialect.has_trace or (own.ack_requested == NONE and not terms.is_protocol_followed):
        return ()
    return (AckRequested(own.ack_requested == SIGNED),)


def _manifest(payloads: Sequence[DraftPayload]) -> Manifest | None:
    """Every payload is in the Manifest, and without payloads there is none. [MS098-8.13.1-01]"""
    if not payloads:
        return None
    return Manifest(
        tuple(
            ManifestReference(
                href=cid_url(one.content_id),
                id=f"payload-{number}",
                role=next((value for name, value, _ in one.properties if name == ROLE), None),
                schemas=_schemas(one.properties),
                descriptions=_descriptions(one.properties),
            )
            for number, one in enumerate(payloads, 1)
        )
    )


def _shared(message: EbxmlMessage, draft: Draft) -> UserMessage:
    return user_message(message, {one.content_id: one.media_type for one in draft.payloads})


def _part(payload: DraftPayload) -> PackedPart:
    properties = [Property(*one) for one in payload.properties if one[0] != MIME_TYPE]
    properties.append(Property(MIME_TYPE, payload.media_type))
    return PackedPart(payload, payload.content, payload.media_type, False, tuple(properties))


def _ebxml(leg: Leg) -> Ebxml:
    if leg.ebxml is None:
        raise ValueError("the P-Mode's leg has no group ebxml")
    return leg.ebxml


def hop(
    envelope: bytes,
    dialect: Dialect,
    *,
    sender_uri: str,
    receiver_uri: str,
    now: datetime,
    via: Via | None = None,
    sequence_number: int | None = None,
    only: bool = False,
) -> bytes:
    """The envelope for one transmission: its TraceHeader added, Via renewed; all else untouched.

    `sequence_number` is that of the link (draft 001), whose Routers keep the TraceHeader of their
    hop `only`. 2.0 has neither: the envelope as it is.
    """
    if not dialect.has_trace:
        return envelope
    trace = TraceHeader(sender_uri, receiver_uri, now, sequence_number)
    traced = (renew_trace if only else add_trace)(envelope, dialect, trace)
    return renew_via(traced, dialect, via)


def via_of(leg: Leg) -> Via | None:
    """What the next MSH is told; None when there is nothing to tell it.

    The method is told where the P-Mode names it. [MS098-8.6-01] [MS098-8.6.5-01]
    """
    own = _ebxml(leg)
    if not DIALECTS[own.version].has_trace:
        return None
    via = Via(
        sync_reply=True if own.sync_reply != "none" else None,
        reliable_messaging_method=own.method if "method" in own.model_fields_set else None,
        ack_requested=own.ack_requested if own.ack_requested != NONE else None,
        cpa_id=own.via_cpa_id,
        service=Service(own.via_service) if own.via_service else None,
        action=own.via_action,
    )
    return None if via == Via() else via
