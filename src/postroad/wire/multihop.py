"""Routing input of multi-hop messages: ebint:RoutingInput both ways, and inferring it (Part 2, 2.5
and 2.6).

What an intermediary routes by is an eb:UserMessage, or an ebint:RoutingInput that looks like one
and that signals carry, or the MPC of a PullRequest. Of several the RoutingInput wins.
"""

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

from lxml import etree
from msgspec import structs

from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    Property,
    PullRequest,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import read_user_message
from postroad.wire.ebms3_writer import write_user_message_parts
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import (
    DEFAULT_MPC,
    EB3,
    EBINT,
    NEXT_MSH,
    S11_NEXT,
    S12_NEXT,
    WSA,
    WSU,
)
from postroad.wire.soap import Envelope, HeaderBlock, SoapVersion
from postroad.wire.xml import elements, escape_attribute, is_xml_text, path

RESPONSE: Final = ".response"
RECEIPT: Final = ".receipt"
ERROR: Final = ".error"
PULL: Final = ".pull"

INTERMEDIARY_ROLES: Final = frozenset((NEXT_MSH, S12_NEXT, S11_NEXT))

_SAMPLE_NAMESPACE: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/multihop/200902/"
"""The AS4 committee's own samples have this in place of the schema's namespace."""
_NAMESPACES: Final = (EBINT, _SAMPLE_NAMESPACE)
ROUTING_INPUT_TAGS: Final = frozenset(f"{{{namespace}}}RoutingInput" for namespace in _NAMESPACES)
IS_REFERENCE_PARAMETER: Final = f"{{{WSA}}}IsReferenceParameter"
_USER_MESSAGE_TAGS: Final = frozenset(f"{{{namespace}}}UserMessage" for namespace in _NAMESPACES)


@dataclass(frozen=True, slots=True)
class RoutingUserMessage:
    """The content of ebint:UserMessage: a user message for routing, perhaps without an id."""

    from_party: Party
    to_party: Party
    collaboration_info: CollaborationInfo
    message_info: MessageInfo | None = None
    properties: tuple[Property, ...] = ()
    part_infos: tuple[PartInfo, ...] = ()
    mpc: str | None = None
    """None when the attribute is absent, which means the default MPC."""

    @property
    def effective_mpc(self) -> str:
        return self.mpc or DEFAULT_MPC

    def property(self, name: str) -> str | None:
        return next((p.value for p in self.properties if p.name == name), None)


@dataclass(frozen=True, slots=True)
class RoutingInput:
    """The ebint:RoutingInput header block. [P2-2.5.5-10]"""

    user_message: RoutingUserMessage
    id: str | None = None
    """The value of `@id` or `@wsu:Id`, by which a signature refers to it."""
    role: str | None = NEXT_MSH
    must_understand: bool = True
    is_reference_parameter: bool = True


def routing_user_message(message: UserMessage) -> RoutingUserMessage:
    """A user message as routing input. [P2-2.5.5-13]"""
    return RoutingUserMessage(
        message.from_party,
        message.to_party,
        message.collaboration_info,
        message.message_info,
        message.properties,
        message.part_infos,
        message.mpc,
    )


def effective_routing_input(
    routing_input: RoutingInput | None,
    messaging: Messaging | None,
    *,
    roles: Container[str | None] = INTERMEDIARY_ROLES,
) -> RoutingUserMessage | PullRequest | None:
    """What a message is routed by, of the headers that are for one of these roles.

    RoutingInput, then the first user message, then the PullRequest. [P2-2.5.5-13..16]
    """
    if routing_input is not None and routing_input.role in roles:
        return routing_input.user_message
    if messaging is None or messaging.role not in roles:
        return None
    for message in messaging.user_messages:
        return routing_user_message(message)
    for signal in messaging.signals:
        if signal.pull_request is not None:
            return signal.pull_request
    return None


def infer_reverse(
    message: UserMessage | RoutingUserMessage,
    suffix: str = RESPONSE,
    *,
    default_mpc: bool = False,
) -> RoutingInput:
    """The routing input of a response, from the message it responds to. [P2-2.6.2-08..11]

    An MPC that is not mentioned stays so; AS4 asks for the default MPC with the suffix then:
    `default_mpc`. Message info and payloads are those of the message, so they are left out.
    """
    mpc = message.effective_mpc if default_mpc else message.mpc
    return RoutingInput(
        replace(_swapped(message, suffix), mpc=None if mpc is None else mpc + suffix)
    )


def infer_pull(message: UserMessage | RoutingUserMessage) -> tuple[RoutingInput, PullRequest]:
    """The routing input of a request to pull messages like this one, and the request.

    The MPC is in the PullRequest and not in the routing input. [P2-2.6.1-04..06]
    """
    return RoutingInput(_swapped(message, PULL)), PullRequest(message.mpc)


def _swapped(message: UserMessage | RoutingUserMessage, suffix: str) -> RoutingUserMessage:
    info = message.collaboration_info
    return RoutingUserMessage(
        from_party=message.to_party,
        to_party=message.from_party,
        collaboration_info=structs.replace(info, action=info.action + suffix),
        properties=message.properties,
    )


def find_routing_input(envelope: Envelope) -> HeaderBlock | None:
    """The one ebint:RoutingInput among the header blocks; EBMS:0009 for a second one."""
    found = [block for block in envelope.blocks if block.element.tag in ROUTING_INPUT_TAGS]
    if len(found) > 1:
        sentence = "the Header holds more than one ebint:RoutingInput"
        raise EbmsError("EBMS:0009", sentence, location=path(found[1].element))
    return found[0] if found else None


def read_routing_input(block: HeaderBlock) -> tuple[RoutingInput | None, list[EbmsError]]:
    """Read an ebint:RoutingInput, and tell what is wrong; None when its structure is.

    Without eb:MessageInfo it is as good as with it. Values that an endpoint would refuse (a
    Service or MPC that is no URI) are warnings: they can be routed by. [P2-2.5.5-11, P2-2.5.5-12]
    """
    element = block.element
    messages = [child for child in elements(element) if child.tag in _USER_MESSAGE_TAGS]
    if len(messages) != 1:
        sentence = f"RoutingInput has exactly one ebint:UserMessage, here are {len(messages)}"
        return None, [EbmsError("EBMS:0009", sentence, location=path(element))]
    message, problems = read_user_message(messages[0], message_info_required=False)
    for problem in problems:
        if problem.code != "EBMS:0009":
            problem.severity = Severity.WARNING
    if any(problem.severity is Severity.FAILURE for problem in problems):
        return None, list(problems)
    routed = routing_user_message(message)
    if messages[0].find(f"{{{EB3}}}MessageInfo") is None:
        routed = replace(routed, message_info=None)
    value = RoutingInput(
        user_message=routed,
        id=element.get("id", element.get(f"{{{WSU}}}Id")),
        role=block.role,
        must_understand=block.must_understand,
        is_reference_parameter=is_reference_parameter(element),
    )
    return value, list(problems)


def is_reference_parameter(element: etree._Element) -> bool:
    """Whether a header block says that it is a WS-Addressing reference parameter."""
    return element.get(IS_REFERENCE_PARAMETER, "").strip() in ("true", "1")


def write_routing_input(routing_input: RoutingInput, version: SoapVersion) -> str:
    """The header block in canonical form; ValueError when it cannot be sent. [P2-2.7.1.2-01]"""
    message = routing_input.user_message
    parts = write_user_message_parts(
        message.message_info,
        message.from_party,
        message.to_party,
        message.collaboration_info,
        message.properties,
        message.part_infos,
    )
    content = "".join(part.replace(">", f' xmlns:eb="{EB3}">', 1) for part in parts)
    mpc = ""
    if message.mpc is not None:
        if not message.mpc.strip() or not is_xml_text(message.mpc):
            raise ValueError(f"{message.mpc!r} cannot be an MPC")
        mpc = f' mpc="{escape_attribute(message.mpc)}"'
    target = target_attributes(
        version, routing_input.role, must_understand=routing_input.must_understand
    )
    soap = f' xmlns:{version.prefix}="{version.namespace}"' if target else ""
    wsa = parameter = wsu = id = ""
    if routing_input.is_reference_parameter:
        wsa, parameter = f' xmlns:wsa="{WSA}"', ' wsa:IsReferenceParameter="true"'
    if routing_input.id is not None:
        wsu = f' xmlns:wsu="{WSU}"'
        id = f' wsu:Id="{escape_attribute(routing_input.id)}"'
    return (
        f'<ebint:RoutingInput{soap} xmlns:ebint="{EBINT}"{wsa}{wsu}{id}{target}{parameter}>'
        f"<ebint:UserMessage{mpc}>{content}</ebint:UserMessage></ebint:RoutingInput>"
    )


def target_attributes(
    version: SoapVersion, role: str | None, *, must_understand: bool = False
) -> str:
    """The attributes that tell who must understand a block, in canonical order. [P2-2.6.3.1-03]"""
    written = []
    if role is not None:
        written.append(f' {version.prefix}:{version.role_name}="{escape_attribute(role)}"')
    if must_understand:
        written.append(f' {version.prefix}:mustUnderstand="{version.must_understand}"')
    return "".join(sorted(written))
