"""Writing eb:Messaging by templates, in exclusive canonical form from the start.

The block declares every prefix it uses and has its attributes in canonical order, so its digest
is the digest of these bytes wherever they are embedded.

What cannot be sent faithfully is refused with a ValueError: characters that XML forbids, empty
values where one is required, white space that a reader would drop, times without a zone. Text
for people (eb:Description, eb:ErrorDetail) is never refused: there, what XML cannot hold is
replaced and white space is trimmed, as an error about an error would help nobody.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import is_
from typing import Final, Generic, ParamSpec

from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    Description,
    Error,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    Property,
    PullRequest,
    Receipt,
    Reference,
    Selection,
    Service,
    SignalMessage,
    Transform,
    Unit,
    UserMessage,
)
from postroad.wire.names import DS, EB3, EBBP, EXC_C14N, RECEIPT_COPY, WSU
from postroad.wire.soap import SoapVersion, legible
from postroad.wire.xml import escape, escape_attribute, is_xml_text

P = ParamSpec("P")

_BLANK: Final = " \t\r\n"
_SAFE: Final = "[!#-%'-;=?-~]"
_plain: Final = re.compile(f"{_SAFE}+").fullmatch
"""A value that stands in text and attributes as it is, as nearly all do."""
_dense: Final = re.compile(r"[!-;=?-~]++").fullmatch
_blanks: Final = re.compile(r"[ \t\r\n]+")
_id: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*").fullmatch


def write_messaging(
    messaging: Messaging,
    version: SoapVersion,
    *,
    keep_order: bool = False,
    written: Sequence[str] = (),
) -> str:
    """The eb:Messaging header block.

    Signals come before user messages, as the schema has it; `keep_order` writes the units as they
    stand, so that a user message leads a bundle that also holds signals. [P2-3.2.1-06] `written`
    are the user messages by `write_user_message`, where that was done before, or receipts by
    `write_receipt`, in the place of units.
    """
    if not messaging.units and not written:
        raise ValueError("eb:Messaging needs at least one user message or signal")
    units: tuple[Unit, ...] = messaging.units
    if not keep_order and len(units) > 1:
        units = (*messaging.signals, *messaging.user_messages)
    soap = version.prefix
    declared = wsu = attributes = ""
    if messaging.id is not None:
        # A signature refers to wsu:Id: many WS-Security stacks resolve no plain id attribute.
        wsu = f' xmlns:wsu="{WSU}"'
        attributes = f' wsu:Id="{_xml_id(messaging.id)}"'
    if messaging.must_understand:
        attributes += f' {soap}:mustUnderstand="{version.must_understand}"'
    if messaging.role is not None:
        role = _attribute(messaging.role, f"{soap}:{version.role_name}")
        if version is SoapVersion.SOAP_11:
            # "actor" sorts before "mustUnderstand", "role" after it.
            head, mark, tail = attributes.partition(f" {soap}:mustUnderstand")
            attributes = f'{head} {soap}:actor="{role}"{mark}{tail}'
        else:
            attributes += f' {soap}:role="{role}"'
    if messaging.must_understand or messaging.role is not None:
        declared = f' xmlns:{soap}="{version.namespace}"'
    if written:
        content = "".join([*map(_signal, messaging.signals), *written])
    else:
        content = "".join(map(_unit, units))
    return f'<eb:Messaging{declared} xmlns:eb="{EB3}"{wsu}{attributes}>{content}</eb:Messaging>'


def write_receipt(signal: SignalMessage, copy: str | None = None) -> str:
    """A receipt as it stands in eb:Messaging; `copy` is the user message in it, as it was written.

    For a user message that was written before, by `write_user_message`.
    """
    if copy is None or signal.receipt is None or signal.receipt.user_message is None:
        return _signal(signal)
    info = _message_info(signal.message_info)
    content = _copy(copy, core_element=signal.receipt.core_element)
    return f"<eb:SignalMessage>{info}<eb:Receipt>{content}</eb:Receipt></eb:SignalMessage>"


def _copy(message: str, *, core_element: bool) -> str:
    """A user message as it stands in a receipt, from what `write_user_message` wrote."""
    if core_element:
        return message
    content = message.removeprefix("<eb:UserMessage").removesuffix("</eb:UserMessage>")
    return f'<copy:UserMessage xmlns:copy="{RECEIPT_COPY}"{content}</copy:UserMessage>'


def _unit(unit: Unit) -> str:
    return write_user_message(unit) if isinstance(unit, UserMessage) else _signal(unit)


def write_user_message(message: UserMessage) -> str:
    """An eb:UserMessage as it stands in eb:Messaging, where its prefix is declared."""
    mpc = "" if message.mpc is None else f' mpc="{_attribute(message.mpc, "@mpc")}"'
    parts = write_user_message_parts(
        message.message_info,
        message.from_party,
        message.to_party,
        message.collaboration_info,
        message.properties,
        message.part_infos,
    )
    return f"<eb:UserMessage{mpc}>{''.join(parts)}</eb:UserMessage>"


def _message_info(info: MessageInfo) -> str:
    ref = info.ref_to_message_id
    return (
        f"<eb:MessageInfo><eb:Timestamp>{write_timestamp(info.timestamp)}</eb:Timestamp>"
        f"<eb:MessageId>{_message_id(info.message_id, 'eb:MessageId')}</eb:MessageId>"
        f"{'' if ref is None else _ref_to_message_id(ref)}</eb:MessageInfo>"
    )


@lru_cache(maxsize=64)
def write_timestamp(time: datetime) -> str:
    """UTC with a Z, in milliseconds where these suffice, else in microseconds. [P2-3.2.1-08]"""
    if time.tzinfo is not UTC:
        if time.utcoffset() is None:
            raise ValueError(f"the time {time.isoformat()} has no time zone")
        try:
            time = time.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"the time {time.isoformat()} has no form in UTC") from None
    fraction = time.microsecond
    form = "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ"
    if fraction % 1000 == 0:
        fraction //= 1000
        form = "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ"
    return form % (
        time.year,
        time.month,
        time.day,
        time.hour,
        time.minute,
        time.second,
        fraction,
    )


def _ref_to_message_id(ref: str) -> str:
    return f"<eb:RefToMessageId>{_message_id(ref, 'eb:RefToMessageId')}</eb:RefToMessageId>"


class _Last(Generic[P]):
    """Remembers what was written of the last values: those of one P-Mode are the same objects."""

    def __init__(self, write: Callable[P, str]) -> None:
        self._write = write
        self._known: tuple[tuple[object, ...], str] = ((), "")

    def of(self, *values: P.args, **_: P.kwargs) -> str:
        known, text = self._known
        if len(known) == len(values) and all(map(is_, known, values)):
            return text
        text = self._write(*values, **_)
        self._known = values, text
        return text


@_Last
def _party_info(sender: Party, receiver: Party) -> str:
    return (
        f"<eb:PartyInfo><eb:From>{_party(sender, 'eb:From')}</eb:From>"
        f"<eb:To>{_party(receiver, 'eb:To')}</eb:To></eb:PartyInfo>"
    )


@_Last
def _business(agreement_ref: AgreementRef | None, service: Service, action: str) -> str:
    agreement = "" if agreement_ref is None else _agreement_ref(agreement_ref)
    return f"{agreement}{_service(service)}<eb:Action>{_token(action, 'eb:Action')}</eb:Action>"


def _party(party: Party, what: str) -> str:
    if not party.party_ids:
        raise ValueError(f"{what} needs at least one eb:PartyId")
    return f"{_party_ids(party)}<eb:Role>{_text(party.role, 'eb:Role')}</eb:Role>"


def _party_ids(party: Party) -> str:
    written = ""
    for party_id in party.party_ids:
        value = _text(party_id.value, "eb:PartyId")
        written += f"<eb:PartyId{_type(party_id.type)}>{value}</eb:PartyId>"
    return written


def _service(service: Service) -> str:
    value = _text(service.value, "eb:Service")
    return f"<eb:Service{_type(service.type)}>{value}</eb:Service>"


def _agreement_ref(ref: AgreementRef) -> str:
    pmode = "" if ref.pmode is None else f' pmode="{_attribute(ref.pmode, "@pmode")}"'
    value = _text(ref.value, "eb:AgreementRef")
    return f"<eb:AgreementRef{pmode}{_type(ref.type)}>{value}</eb:AgreementRef>"


def _conversation_id(value: str) -> str:
    """May be empty: the field does send it so, and a receipt must be able to copy it."""
    written = _token(value, "eb:ConversationId") if value else ""
    return f"<eb:ConversationId>{written}</eb:ConversationId>"


def _properties(properties: tuple[Property, ...]) -> str:
    written = ""
    for item in properties:
        value = _text(item.value, "eb:Property") if item.value else ""
        name = _attribute(item.name, "eb:Property/@name")
        written += f'<eb:Property name="{name}"{_type(item.type)}>{value}</eb:Property>'
    return written


def _part_info(part: PartInfo) -> str:
    if part.href is None:
        href = ""
    elif _dense(part.href) and '"' not in part.href and "&" not in part.href:
        href = f' href="{part.href}"'
    else:
        href = f' href="{escape_attribute(_checked_token(part.href, "@href"))}"'
    inner = ""
    for schema in part.schemas:
        inner += f'<eb:Schema location="{_attribute(schema.location, "eb:Schema/@location")}"'
        if schema.namespace is not None:
            inner += f' namespace="{_attribute(schema.namespace, "eb:Schema/@namespace")}"'
        if schema.version is not None:
            inner += f' version="{_attribute(schema.version, "eb:Schema/@version")}"'
        inner += "></eb:Schema>"
    if part.description is not None:
        inner += _description(part.description)
    if part.properties:
        inner += f"<eb:PartProperties>{_properties(part.properties)}</eb:PartProperties>"
    return f"<eb:PartInfo{href}>{inner}</eb:PartInfo>"


def _description(description: Description) -> str:
    text = escape(legible(description.text).strip(_BLANK))
    lang = escape_attribute(_xml_text(description.lang, "@xml:lang"))
    return f'<eb:Description xml:lang="{lang}">{text}</eb:Description>'


def _signal(signal: SignalMessage) -> str:
    kinds = (signal.pull_request is not None) + (signal.receipt is not None) + bool(signal.errors)
    if kinds != 1:
        raise ValueError("a signal is either a pull request, or a receipt, or errors")
    if signal.pull_request is not None:
        content = _pull_request(signal.pull_request)
    elif signal.receipt is not None:
        content = _receipt(signal.receipt)
    else:
        content = "".join(map(_error, signal.errors))
    info = _message_info(signal.message_info)
    return f"<eb:SignalMessage>{info}{content}</eb:SignalMessage>"


def _pull_request(request: PullRequest) -> str:
    mpc = "" if request.mpc is None else f' mpc="{_attribute(request.mpc, "@mpc")}"'
    items = "" if request.selection is None else _selection(request.selection)
    return f"<eb:PullRequest{mpc}>{items}</eb:PullRequest>"


def _selection(selection: Selection) -> str:
    """The selection items, which are named after the header elements. [P2-5.1-01]"""
    items = ""
    if selection.ref_to_message_id is not None:
        items += _ref_to_message_id(selection.ref_to_message_id)
    if selection.conversation_id is not None:
        items += _conversation_id(selection.conversation_id)
    if selection.agreement_ref is not None:
        items += _agreement_ref(selection.agreement_ref)
    if selection.service is not None:
        items += _service(selection.service)
    if selection.action is not None:
        items += f"<eb:Action>{_token(selection.action, 'eb:Action')}</eb:Action>"
    if selection.from_party is not None:
        items += f"<eb:From>{_selected_party(selection.from_party, 'eb:From')}</eb:From>"
    if selection.to_party is not None:
        items += f"<eb:To>{_selected_party(selection.to_party, 'eb:To')}</eb:To>"
    if selection.properties:
        properties = _properties(selection.properties)
        items += f"<eb:MessageProperties>{properties}</eb:MessageProperties>"
    if not items:
        raise ValueError("a selection needs at least one item; without any, give no selection")
    return items


def _selected_party(party: Party, what: str) -> str:
    if not party.party_ids and not party.role:
        raise ValueError(f"{what} in a selection needs an eb:PartyId or an eb:Role")
    role = f"<eb:Role>{_text(party.role, 'eb:Role')}</eb:Role>" if party.role else ""
    return _party_ids(party) + role


def _receipt(receipt: Receipt) -> str:
    if (receipt.non_repudiation is None) == (receipt.user_message is None):
        raise ValueError(
            "a receipt holds either non-repudiation information or the copy of a user message"
        )
    if receipt.user_message is not None:
        written = write_user_message(receipt.user_message)
        return f"<eb:Receipt>{_copy(written, core_element=receipt.core_element)}</eb:Receipt>"
    information = receipt.non_repudiation
    assert information is not None
    if information.message_part_identifiers:
        raise ValueError("AS4 forbids ebbp:MessagePartIdentifier in a receipt")
    if not information.references:
        raise ValueError("non-repudiation information needs at least one reference")
    parts = "".join(map(_part_information, information.references))
    return (
        f'<eb:Receipt><ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">{parts}'
        "</ebbp:NonRepudiationInformation></eb:Receipt>"
    )


@lru_cache(maxsize=64)
def _part_information(reference: Reference) -> str:
    """Remembered for a while, as the receipts of a bundle have most references in common."""
    return (
        f"<ebbp:MessagePartNRInformation>{write_reference(reference)}"
        "</ebbp:MessagePartNRInformation>"
    )


def write_reference(reference: Reference) -> str:
    """A ds:Reference that declares its own prefix."""
    if not reference.digest_value:
        raise ValueError("ds:DigestValue is empty")
    uri = reference.uri
    if not _plain(uri):
        uri = escape_attribute(_xml_text(uri, "ds:Reference/@URI"))
    digest = b2a_base64(reference.digest_value, newline=False).decode()
    return (
        f'<ds:Reference xmlns:ds="{DS}" URI="{uri}">'
        f"{_digesting(reference.transforms, reference.digest_method)}"
        f"<ds:DigestValue>{digest}</ds:DigestValue>"
        "</ds:Reference>"
    )


@lru_cache(maxsize=64)
def _digesting(transforms: tuple[Transform, ...], digest_method: str) -> str:
    """How something is digested, which is the same in most references."""
    steps = "".join(map(_transform, transforms))
    method = _attribute(digest_method, "ds:DigestMethod/@Algorithm")
    return (
        f"{f'<ds:Transforms>{steps}</ds:Transforms>' if steps else ''}"
        f'<ds:DigestMethod Algorithm="{method}"></ds:DigestMethod>'
    )


def _transform(transform: Transform) -> str:
    algorithm = _attribute(transform.algorithm, "ds:Transform/@Algorithm")
    inclusive = ""
    if transform.prefixes:
        prefixes = _attribute(" ".join(transform.prefixes), "@PrefixList")
        inclusive = (
            f'<ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" PrefixList="{prefixes}">'
            "</ec:InclusiveNamespaces>"
        )
    return f'<ds:Transform Algorithm="{algorithm}">{inclusive}</ds:Transform>'


def _error(error: Error) -> str:
    attributes = "".join(
        f' {name}="{escape_attribute(_checked_token(value, f"eb:Error/@{name}"))}"'
        for name, value in (
            ("category", error.category),
            ("errorCode", error.error_code),
            ("origin", error.origin),
            ("refToMessageInError", error.ref_to_message_in_error),
            ("severity", error.severity),
            ("shortDescription", error.short_description),
        )
        if value is not None
    )
    description = "" if error.description is None else _description(error.description)
    detail = ""
    if error.error_detail is not None:
        text = escape(_blanks.sub(" ", legible(error.error_detail)).strip(" "))
        detail = f"<eb:ErrorDetail>{text}</eb:ErrorDetail>"
    return f"<eb:Error{attributes}>{description}{detail}</eb:Error>"


def _type(type: str | None) -> str:
    return "" if type is None else f' type="{_attribute(type, "@type")}"'


def _text(value: str, what: str) -> str:
    return value if _plain(value) else escape(_checked(value, what))


def _attribute(value: str, what: str) -> str:
    return value if _plain(value) else escape_attribute(_checked(value, what))


def _token(value: str, what: str) -> str:
    return value if _plain(value) else escape(_checked_token(value, what))


def _message_id(value: str, what: str) -> str:
    if _dense(value) and "&" not in value:
        return value
    value = _checked_token(value, what)
    if "<" in value or ">" in value or " " in value:
        raise ValueError(f"{what} must hold no angle brackets and no white space: {value!r}")
    return escape(value)


def can_be_message_id(value: str) -> bool:
    """Whether a value can be written as eb:MessageId or eb:RefToMessageId."""
    try:
        _message_id(value, "eb:MessageId")
    except ValueError:
        return False
    return True


def _xml_id(id: str) -> str:
    if not _id(id):
        raise ValueError(f"an XML id must be a plain name, not {id!r}")
    return id


def _checked(value: str, what: str) -> str:
    if not value:
        raise ValueError(f"{what} is empty")
    if value != value.strip(_BLANK):
        raise ValueError(f"{what} has white space around it, which readers drop: {value!r}")
    return _xml_text(value, what)


def _checked_token(value: str, what: str) -> str:
    if any(blank in value for blank in ("  ", "\t", "\n", "\r")):
        raise ValueError(f"{what} has white space inside that readers collapse: {value!r}")
    return _checked(value, what)


def _xml_text(value: str, what: str) -> str:
    if not is_xml_text(value):
        raise ValueError(f"{what} holds a character that XML forbids: {value!r}")
    return value


def write_user_message_parts(
    message_info: MessageInfo | None,
    from_party: Party,
    to_party: Party,
    collaboration_info: CollaborationInfo,
    properties: tuple[Property, ...],
    part_infos: tuple[PartInfo, ...],
) -> list[str]:
    """The children of a user message one by one, as ebint:UserMessage has them too."""
    info = collaboration_info
    parts = [] if message_info is None else [_message_info(message_info)]
    parts += (
        _party_info.of(from_party, to_party),
        f"<eb:CollaborationInfo>{_business.of(info.agreement_ref, info.service, info.action)}"
        f"{_conversation_id(info.conversation_id)}</eb:CollaborationInfo>",
    )
    if properties:
        parts.append(f"<eb:MessageProperties>{_properties(properties)}</eb:MessageProperties>")
    if part_infos:
        parts.append(f"<eb:PayloadInfo>{''.join(map(_part_info, part_infos))}</eb:PayloadInfo>")
    return parts
