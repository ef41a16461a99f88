"""What a selective PullRequest asks for, and what a message has of it (Part 2, 5.1).

Both become items: texts that are equal where a header element matches a selection item exactly,
attributes included. A message fits when it has all items of the selection. [P2-5.1-02] [P2-5.1-05]
"""

from collections.abc import Iterator

import msgspec

from postroad.wire.ebms3 import AgreementRef, Party, Property, Selection, Service, UserMessage


def items_of(message: UserMessage) -> tuple[str, ...]:
    """All that a selection could ask of a message."""
    info, business = message.message_info, message.collaboration_info
    found = [
        _item("conversation", business.conversation_id),
        _service(business.service),
        _item("action", business.action),
        *_party("from", message.from_party),
        *_party("to", message.to_party),
    ]
    if info.ref_to_message_id is not None:
        found.append(_item("ref", info.ref_to_message_id))
    if business.agreement_ref is not None:
        found.append(_agreement(business.agreement_ref))
    for one in message.properties:
        found.append(_property(one))
        if one.type is not None:
            found.append(_property(Property(one.name, one.value)))
    return tuple(dict.fromkeys(found))


def signal_items(ref: str) -> tuple[str, ...]:
    """All that a selection could ask of a signal about a message."""
    return (_item("ref", ref),)


def items_asked(selection: Selection | None) -> tuple[str, ...]:
    """What a selection asks for; that first which few messages of a channel have. [P2-5.1-01]"""
    if selection is None:
        return ()
    asked: list[str] = []
    if selection.ref_to_message_id is not None:
        asked.append(_item("ref", selection.ref_to_message_id))
    if selection.conversation_id is not None:
        asked.append(_item("conversation", selection.conversation_id))
    # Name and value count; a type only where the selection gives one. [P2-5.1-04]
    asked += map(_property, selection.properties)
    for side, party in (("to", selection.to_party), ("from", selection.from_party)):
        if party is not None:
            asked += _party(side, party)
    if selection.agreement_ref is not None:
        asked.append(_agreement(selection.agreement_ref))
    if selection.action is not None:
        asked.append(_item("action", selection.action))
    if selection.service is not None:
        asked.append(_service(selection.service))
    return tuple(dict.fromkeys(asked))


def _party(side: str, party: Party) -> Iterator[str]:
    """Each child of eb:From or eb:To by itself: a message may have more of them. [P2-5.1-03]"""
    for one in party.party_ids:
        yield _item(side, one.value, one.type)
    if party.role:
        yield _item(f"{side} role", party.role)


def _service(service: Service) -> str:
    return _item("service", service.value, service.type)


def _agreement(ref: AgreementRef) -> str:
    return _item("agreement", ref.value, ref.type, ref.pmode)


def _property(one: Property) -> str:
    return _item("property", one.name, one.value, one.type)


def _item(*parts: str | None) -> str:
    return msgspec.json.encode(parts).decode()
