"""Receipts: made from what was received, and checked against what was sent (AS4 3.2, 5.1.8).

A receipt for a signed message lists the ds:References of its signature (non-repudiation of
receipt); one for an unsigned message holds a copy of its eb:UserMessage (reception awareness).
AS4 5.1.8 wants that copy in eb:Receipt, where the schema of Core 3.0 allows only elements of other
namespaces. So products differ: Holodeck B2B, Domibus and AS4.NET write eb:UserMessage itself;
phase4 refuses that, and writes it within an element of its own. All of these are read. What is
written by default is an element of another namespace with the content of eb:UserMessage: it is
valid by the schema, so phase4 reads it, and so does Domibus, which looks at the content only.
Whoever sent the message holds the receipt against the message it kept: EBMS:0302 if it differs.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from msgspec.structs import replace

from postroad.wire.ebms3 import (
    MessageInfo,
    Messaging,
    NonRepudiationInformation,
    Receipt,
    Reference,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import content_id
from postroad.wire.errors import EbmsError


def nonrepudiation_receipt(
    references: Sequence[Reference], *, message_info: MessageInfo
) -> SignalMessage:
    """The receipt for a signed message, from the references of its signature. [P2-6.7.1-05]"""
    if not references:
        raise ValueError("a non-repudiation receipt needs the references of the received signature")
    information = NonRepudiationInformation(tuple(references))
    return SignalMessage(_referring(message_info), receipt=Receipt(non_repudiation=information))


def unit_references(
    references: Iterable[Reference], messages: Sequence[UserMessage], header: str | None
) -> list[tuple[Reference, ...]]:
    """What of a message's signature is about each of its units, of which the first is the primary.

    `header` is the id of eb:Messaging. About the primary is everything but the attachments of
    other units. About another unit are eb:Messaging and its own attachments; Body and time are
    not, unless it has a payload in the Body. [P2-3.2.2-05]
    """
    shared: list[Reference] = []
    attached: dict[str, Reference] = {}
    for reference in references:
        if reference.uri[:4].lower() == "cid:":
            attached[content_id(reference.uri)] = reference
        else:
            shared.append(reference)
    least = [one for one in shared if header is not None and one.uri == f"#{header}"] or shared
    found: list[tuple[Reference, ...]] = []
    for message in messages:
        own = [attached.get(content_id(part.href or "")) for part in message.part_infos]
        whole = not found or None in own
        found.append((*(shared if whole else least), *filter(None, own)))
    return found


def references_about(
    references: Sequence[Reference], message: UserMessage, messaging: Messaging | None
) -> Sequence[Reference]:
    """What of a signature a receipt about one of the messages must name: alone, all of it."""
    messages = messaging.user_messages if messaging is not None else ()
    if messaging is None or len(messages) == 1:
        return references
    return unit_references(references, messages, messaging.id)[messages.index(message)]


def awareness_receipt(
    user_message: UserMessage, *, message_info: MessageInfo, core_element: bool = False
) -> SignalMessage:
    """Make the receipt for an unsigned message: a copy of its eb:UserMessage.

    `core_element` makes the copy an eb:UserMessage itself, instead of an element of another
    namespace.
    """
    if _referring(message_info).ref_to_message_id != user_message.message_info.message_id:
        raise ValueError("the RefToMessageId of a receipt is the MessageId of what was received")
    return SignalMessage(message_info, receipt=Receipt(None, user_message, core_element))


def _referring(message_info: MessageInfo) -> MessageInfo:
    if not message_info.ref_to_message_id:
        raise ValueError("a receipt needs the RefToMessageId of the received message")
    return message_info


def check_receipt(
    receipt_signal: SignalMessage,
    *,
    sent_message_id: str,
    sent_references: Sequence[Reference] | None,
    sent_user_message: UserMessage | None = None,
    also_sent: Sequence[Reference] = (),
) -> None:
    """Hold a receipt against the message that was sent; EBMS:0302 tells all that differs.

    `sent_references` are those of the signature; None when the message was not signed. In a
    bundle they are those of the unit, and `also_sent` those of its neighbours, which the receipt
    may list too [P2-3.2.2-06]. Transforms are not compared: the digest already depends on them.
    """
    receipt = receipt_signal.receipt
    if receipt is None:
        _invalid("the signal holds no eb:Receipt", sent_message_id)
    ref = receipt_signal.message_info.ref_to_message_id
    if ref != sent_message_id:
        found = "none" if ref is None else repr(ref)
        _invalid(f"expected RefToMessageId {sent_message_id!r}, found {found}", sent_message_id)
    if sent_references is not None:
        differences = _reference_differences(receipt, sent_references, also_sent)
    else:
        differences = _copy_differences(receipt, sent_user_message)
    if differences:
        _invalid("; ".join(differences), sent_message_id)


def _invalid(detail: str, sent_message_id: str) -> NoReturn:
    raise EbmsError("EBMS:0302", detail, location="eb:Receipt", ref=sent_message_id)


def _reference_differences(
    receipt: Receipt, sent: Sequence[Reference], also_sent: Sequence[Reference]
) -> list[str]:
    information = receipt.non_repudiation
    if information is None:
        return ["the message was signed, but the receipt has no ebbp:NonRepudiationInformation"]
    if not information.message_part_identifiers and information.references == sent:
        return []
    differences = []
    if information.message_part_identifiers:
        differences.append("AS4 forbids ebbp:MessagePartIdentifier in a receipt")
    received: dict[str, list[Reference]] = {}
    for reference in information.references:
        received.setdefault(content_id(reference.uri), []).append(reference)
    for reference in sent:
        uri = content_id(reference.uri)
        if uri not in received:
            differences.append(f"the reference to {_shown(uri)} is missing")
    expected = {content_id(reference.uri): reference for reference in sent}
    if not received.keys() <= expected.keys():
        expected = {content_id(reference.uri): reference for reference in also_sent} | expected
    for uri, references in received.items():
        ours = expected.get(uri)
        if ours is None:
            differences.append(f"nothing was sent as {_shown(uri)}")
            continue
        for theirs in references:
            if theirs.digest_method != ours.digest_method:
                differences.append(
                    f"the digest of {_shown(uri)} was made with {ours.digest_method}, "
                    f"found {theirs.digest_method}"
                )
            elif theirs.digest_value != ours.digest_value:
                differences.append(
                    f"the digest of {_shown(uri)} is {ours.digest_value.hex()}, "
                    f"found {theirs.digest_value.hex()}"
                )
    return differences


def _shown(uri: str) -> str:
    return uri or "the whole document"


def _copy_differences(receipt: Receipt, sent: UserMessage | None) -> list[str]:
    copy = receipt.user_message
    if copy is None:
        if receipt.non_repudiation is not None:
            return ["the message was not signed, but the receipt lists references of a signature"]
        return ["the receipt holds no copy of the eb:UserMessage"]
    if sent is None or copy == sent:
        return []
    ours, theirs = _comparable(sent), _comparable(copy)
    if ours == theirs:
        return []
    mine, other = _named_values(ours), _named_values(theirs)
    return [
        f"{name} was {value}, found {other[name]}"
        for name, value in mine.items()
        if value != other[name]
    ]


def _named_values(message: UserMessage) -> dict[str, object]:
    info, business = message.message_info, message.collaboration_info
    return {
        "MessageId": info.message_id,
        "Timestamp": info.timestamp,
        "RefToMessageId": info.ref_to_message_id,
        "From": message.from_party.party_ids,
        "From/Role": message.from_party.role,
        "To": message.to_party.party_ids,
        "To/Role": message.to_party.role,
        "AgreementRef": business.agreement_ref,
        "Service": business.service,
        "Action": business.action,
        "ConversationId": business.conversation_id,
        "MessageProperties": message.properties,
        "PayloadInfo": message.part_infos,
        "@mpc": message.mpc,
    }


def _comparable(message: UserMessage) -> UserMessage:
    """The same message in the form in which a faithful copy is equal to it.

    A copy may name the default MPC or leave it out, encode a `cid:` differently, and hold its
    time in milliseconds.
    """
    time = message.message_info.timestamp
    time = time.replace(microsecond=time.microsecond // 1000 * 1000)
    return replace(
        message,
        message_info=replace(message.message_info, timestamp=time),
        mpc=message.effective_mpc,
        part_infos=tuple(
            replace(part, href=content_id(part.href)) if part.href else part
            for part in message.part_infos
        ),
    )
