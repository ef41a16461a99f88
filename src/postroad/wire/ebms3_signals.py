"""Reading eb:SignalMessage: pull requests with selection items, receipts and errors."""

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Final, TypeVar

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import (
    Error,
    MessageInfo,
    NonRepudiationInformation,
    Party,
    PullRequest,
    Receipt,
    Reference,
    Selection,
    SignalMessage,
    Transform,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import (
    EPOCH,
    Findings,
    Model,
    agreement_ref,
    attributes,
    children,
    description,
    filled,
    leaf,
    message_id,
    message_info,
    message_properties,
    mpc,
    party_id,
    quoted,
    required_attribute,
    service,
    token,
    user_message,
)
from postroad.wire.errors import ERRORS, EbmsError, Severity, canonical_code
from postroad.wire.names import DS, EB3, EBBP, EXC_C14N

_T = TypeVar("_T")
_BLANK: Final = " \t\r\n"
_REFERENCE: Final = f"{{{DS}}}Reference"
_TRANSFORMS: Final = f"{{{DS}}}Transforms"
_TRANSFORM: Final = f"{{{DS}}}Transform"
_CANONICALIZATION_METHOD: Final = f"{{{DS}}}CanonicalizationMethod"
_DIGEST_METHOD: Final = f"{{{DS}}}DigestMethod"
_USER_MESSAGE: Final = f"{{{EB3}}}UserMessage"
_MESSAGE_INFO: Final = f"{{{EB3}}}MessageInfo"
_DIGEST_VALUE: Final = f"{{{DS}}}DigestValue"
_SIGNAL: Final = Model("MessageInfo PullRequest? Receipt? Error*", open=True)
_ERROR: Final = Model("Description? ErrorDetail?")
_SELECTED_PARTY: Final = Model("PartyId* Role?")
_ERROR_ATTRIBUTES: Final = (
    "category",
    "refToMessageInError",
    "errorCode",
    "origin",
    "severity",
    "shortDescription",
)
_SELECTION_ITEMS: Final = (
    "RefToMessageId",
    "ConversationId",
    "AgreementRef",
    "Service",
    "Action",
    "From",
    "To",
    "MessageProperties",
)


def signal_message(element: etree._Element, findings: Findings) -> SignalMessage:
    infos, pulls, receipts, errors = children(element, _SIGNAL, findings)
    attributes(element, (), findings)
    info = message_info(infos[0], findings) if infos else MessageInfo(EPOCH, "")
    kinds = [
        name
        for name, items in (("PullRequest", pulls), ("Receipt", receipts), ("Error", errors))
        if items
    ]
    if len(kinds) != 1:
        found = " and ".join(f"eb:{kind}" for kind in kinds) or "none"
        findings.add(
            "EBMS:0009",
            element,
            f"a signal is one of eb:PullRequest, eb:Receipt or eb:Error, found {found}",
        )
    if receipts and info.ref_to_message_id is None:
        findings.add(
            "EBMS:0009", element, "a receipt needs the RefToMessageId of the received message"
        )
    return SignalMessage(
        message_info=info,
        pull_request=_pull_request(pulls[0], findings) if pulls else None,
        receipt=_receipt(receipts[0], findings) if receipts else None,
        errors=tuple([_error(item, info, findings) for item in errors]),
    )


def _pull_request(element: etree._Element, findings: Findings) -> PullRequest:
    attributes(element, ("mpc",), findings)
    return PullRequest(mpc(element, findings), _selection(element, findings))


def _selection(element: etree._Element, findings: Findings) -> Selection | None:
    """The selection items in any order, each at most once, and nothing else. [P2-5.1-01]

    They are patterns, not values: the rule that an untyped Service or PartyId is a URI is not
    theirs (the example in Part 2 breaks it).
    """
    items: dict[str, etree._Element] = {}
    for child in xml.elements(element):
        name = xml.local(child)
        if child.tag != f"{{{EB3}}}{name}" or name not in _SELECTION_ITEMS:
            expected = ", ".join(f"eb:{item}" for item in _SELECTION_ITEMS)
            findings.add(
                "EBMS:0009",
                child,
                f"<{name[:80]}> is no selection item; expected {expected}",
            )
        elif name in items:
            findings.add("EBMS:0009", child, f"the selection item eb:{name} is given twice")
        else:
            items[name] = child
    if xml.text(element):
        findings.add("EBMS:0009", element, "expected selection items only, found text")
    if not items:
        return None

    def given(name: str, read: Callable[[etree._Element, Findings], _T]) -> _T | None:
        return read(items[name], findings) if name in items else None

    return Selection(
        ref_to_message_id=given("RefToMessageId", message_id),
        conversation_id=given("ConversationId", _token),
        agreement_ref=given("AgreementRef", agreement_ref),
        service=given("Service", service),
        action=given("Action", _filled_token),
        from_party=given("From", _selected_party),
        to_party=given("To", _selected_party),
        properties=given("MessageProperties", message_properties) or (),
    )


def _token(element: etree._Element, findings: Findings) -> str:
    return token(leaf(element, (), findings))


def _filled_token(element: etree._Element, findings: Findings) -> str:
    return token(filled(element, (), findings))


def _selected_party(element: etree._Element, findings: Findings) -> Party:
    ids, roles = children(element, _SELECTED_PARTY, findings)
    if not ids and not roles:
        findings.add(
            "EBMS:0009", element, f"eb:{xml.local(element)} as a selection item must not be empty"
        )
    return Party(
        tuple([party_id(item, findings) for item in ids]),
        filled(roles[0], (), findings) if roles else "",
    )


def _receipt(element: etree._Element, findings: Findings) -> Receipt:
    information: NonRepudiationInformation | None = None
    copy: UserMessage | None = None
    core_element = False
    attributes(element, (), findings)
    for child in xml.elements(element):
        if child.tag == f"{{{EBBP}}}NonRepudiationInformation" and information is None:
            information = _non_repudiation(child, findings)
        elif child.tag in (_USER_MESSAGE, "UserMessage") and copy is None:
            copy, core_element = _copied_user_message(child, findings), True
        elif copy is None and (enclosed := _enclosed_copy(child)) is not None:
            copy = _copied_user_message(enclosed, findings)
        elif child.tag == "UserMessage" or xml.namespace(child) in (EB3, EBBP):
            findings.warn(
                "EBMS:0302", child, f"<{xml.local(child)[:80]}> has no meaning in a receipt here"
            )
    if information is None and copy is None:
        findings.add(
            "EBMS:0302",
            element,
            "expected ebbp:NonRepudiationInformation or a copy of the eb:UserMessage, "
            "found neither",
        )
    elif information is not None and copy is not None:
        findings.warn(
            "EBMS:0302",
            element,
            "expected either ebbp:NonRepudiationInformation or a copy of the eb:UserMessage, "
            "found both",
        )
    return Receipt(information, copy, core_element)


def _enclosed_copy(element: etree._Element) -> etree._Element | None:
    """Find the copy of a user message in an element of another namespace.

    Either the element holds an eb:UserMessage, as phase4 writes it, or what an eb:UserMessage
    holds, as Postroad writes it. Others are extensions that the schema allows.
    """
    if xml.namespace(element) in (EB3, EBBP):
        return None
    held = xml.elements(element)
    copies = [one for one in held if one.tag == _USER_MESSAGE]
    if len(copies) == 1:
        return copies[0]
    return element if held and held[0].tag == _MESSAGE_INFO else None


def _copied_user_message(element: etree._Element, findings: Findings) -> UserMessage:
    """The copy; what is wrong in it was wrong in what we sent, so it is no failure of the receipt.

    A copy that lost its namespace is read as if it had it.
    """
    if element.tag == "UserMessage":
        findings.warn("EBMS:0302", element, "the copy of eb:UserMessage is in no namespace")
        element = deepcopy(element)
        for item in element.iter("*"):
            if isinstance(item.tag, str) and item.tag[0] != "{":
                item.tag = f"{{{EB3}}}{item.tag}"
    inner = Findings()
    message = user_message(element, inner)
    findings.take_as_warnings(inner.result())
    return message


def _non_repudiation(element: etree._Element, findings: Findings) -> NonRepudiationInformation:
    references: list[Reference] = []
    identifiers: list[str] = []
    parts = 0
    for part in xml.elements(element):
        if part.tag != f"{{{EBBP}}}MessagePartNRInformation":
            findings.add(
                "EBMS:0009",
                part,
                f"expected ebbp:MessagePartNRInformation, found <{xml.local(part)[:80]}>",
            )
            continue
        parts += 1
        inner = xml.elements(part)
        if not inner:
            findings.add("EBMS:0009", part, "expected a ds:Reference, found nothing")
        for item in inner:
            if item.tag == f"{{{DS}}}Reference":
                try:
                    references.append(read_reference(item))
                except EbmsError as error:
                    findings.add(error.code, item, error.detail)
            elif item.tag == f"{{{EBBP}}}MessagePartIdentifier":
                identifiers.append(xml.text(item))
            else:
                findings.add(
                    "EBMS:0009", item, f"expected a ds:Reference, found <{xml.local(item)[:80]}>"
                )
    if not parts:
        findings.add("EBMS:0009", element, "ebbp:MessagePartNRInformation is required")
    return NonRepudiationInformation(tuple(references), tuple(identifiers))


def read_reference(element: etree._Element, code: str = "EBMS:0009") -> Reference:
    """A ds:Reference as a value; an error with that code when it is not built as it must be."""
    children = list(element)
    transforms: tuple[Transform, ...] = ()
    if len(children) == 3 and children[0].tag == _TRANSFORMS:
        transforms = tuple([read_transform(one, code) for one in children.pop(0)])
    if (
        len(children) != 2
        or children[0].tag != _DIGEST_METHOD
        or children[1].tag != _DIGEST_VALUE
        or element.tag != _REFERENCE
    ):
        raise _broken(
            element,
            "a ds:Reference with one ds:DigestMethod and one ds:DigestValue is expected",
            code,
        )
    uri, method = element.get("URI"), children[0].get("Algorithm")
    digest = xml.octets(children[1], code)
    if uri is None:
        raise _broken(element, "ds:Reference has no URI", code)
    if not method:
        raise _broken(element, "ds:Reference names no digest method", code)
    if not digest:
        raise _broken(element, "ds:Reference has no digest value", code)
    return Reference(uri, transforms, method, digest)


def read_transform(element: etree._Element, code: str = "EBMS:0009") -> Transform:
    """A ds:Transform or ds:CanonicalizationMethod as a value."""
    algorithm = element.get("Algorithm")
    if element.tag not in (_TRANSFORM, _CANONICALIZATION_METHOD) or not algorithm:
        raise _broken(element, "expected a ds:Transform with an Algorithm", code)
    if len(element) == 0:
        return plain_transform(algorithm)
    inclusive = element.find(f"{{{EXC_C14N}}}InclusiveNamespaces")
    prefixes = "" if inclusive is None else inclusive.get("PrefixList", "")
    return Transform(algorithm, tuple(prefixes.split()))


@lru_cache(maxsize=64)
def plain_transform(algorithm: str) -> Transform:
    """A transform with nothing in it; few are used again and again."""
    return Transform(algorithm)


def _broken(element: etree._Element, detail: str, code: str) -> EbmsError:
    return EbmsError(code, detail, location=xml.path(element))


def _error(element: etree._Element, info: MessageInfo, findings: Findings) -> Error:
    descriptions, details = children(element, _ERROR, findings)
    attributes(element, _ERROR_ATTRIBUTES, findings)
    code = _error_code(element, findings)
    category = _optional_token(element, "category")
    origin = _optional_token(element, "origin")
    kind = ERRORS.get(code)
    if kind is not None:
        for name, value, expected in (
            ("category", category, kind.category.value),
            ("origin", origin, kind.origin),
        ):
            if value is not None and value.lower() != expected.lower():
                findings.warn(
                    "EBMS:0009",
                    element,
                    f"the {name} of {code} is {expected}, found {quoted(value)}",
                )
    ref = _optional_token(element, "refToMessageInError")
    if ref is not None and info.ref_to_message_id not in (None, ref):
        findings.add(
            "EBMS:0003",
            element,
            f"refToMessageInError {quoted(ref)} and RefToMessageId "
            f"{quoted(info.ref_to_message_id or '')} name two messages",
        )
    return Error(
        error_code=code,
        severity=_severity(element, findings),
        category=category,
        origin=origin,
        short_description=_optional_token(element, "shortDescription"),
        ref_to_message_in_error=ref,
        description=description(descriptions[0], findings) if descriptions else None,
        error_detail=(_token(details[0], findings) or None) if details else None,
    )


def _optional_token(element: etree._Element, name: str) -> str | None:
    """An attribute that may also be there and empty, which says as much as its absence."""
    value = element.get(name)
    return None if value is None else (token(value.strip(_BLANK)) or None)


def _error_code(element: etree._Element, findings: Findings) -> str:
    value = token(required_attribute(element, "errorCode", findings))
    code = canonical_code(value)
    if value and (code != value or not code.startswith("EBMS:")):
        findings.warn(
            "EBMS:0009", element, f"expected an error code like EBMS:0004, found {quoted(value)}"
        )
    return code


def _severity(element: etree._Element, findings: Findings) -> str:
    """`warning` or `failure`; the other words in use (`error`, `fatal`) mean failure (Core 6.2)."""
    value = required_attribute(element, "severity", findings)
    if value in ("failure", "warning"):
        return value
    if not value:
        return Severity.FAILURE.value
    mapped = Severity.WARNING if value.lower() == "warning" else Severity.FAILURE
    findings.warn(
        "EBMS:0009",
        element,
        f"the severity is warning or failure, found {quoted(value)}; taken as {mapped.value}",
    )
    return mapped.value
