"""What an application says about a message that it submits: the part `metadata`."""

import re
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)
from pydantic import ValidationError as Invalid

from postroad.api.problems import field_errors, field_problem

Triple = tuple[str, str, str | None]

_NOT_IN_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MEDIA_TYPE: Final = re.compile(
    r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}"
    r"""(\s*;\s*[\w!#$&^.+-]+=([\w!#$&^.+'*%{}|~:/-]+|"[^"\\\x00-\x1f\x7f]*"))*""",
    re.ASCII,
)
_OBJECT: Final = "{}"
_LIST: Final = "[]"


def is_media_type(text: str) -> bool:
    return len(text) <= 255 and bool(_MEDIA_TYPE.fullmatch(text))


def without_controls(text: str) -> str:
    """Text on one line, with only such characters as XML can hold."""
    return _NOT_IN_XML.sub("", _CONTROL.sub("", text))


def _in_xml(text: str) -> str:
    if found := _NOT_IN_XML.search(text):
        raise ValueError(f"the character U+{ord(found[0]):04X} cannot be sent in XML")
    return text


def _on_one_line(text: str) -> str:
    if found := _CONTROL.search(text):
        raise ValueError(f"the character U+{ord(found[0]):04X} is not allowed here")
    return _in_xml(text)


def _media_type(text: str) -> str:
    if not is_media_type(text):
        raise ValueError("this is no media type; write it like text/xml")
    return text


def _file_name(text: str) -> str:
    if re.search(r"[/\\]", text) or text in (".", ".."):
        raise ValueError("a file name has no folders; give its last part only")
    return text


Word = Annotated[
    str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_on_one_line)
]
"""An id or a name: one line."""
Conversation = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_on_one_line)]
Value = Annotated[str, StringConstraints(max_length=16_384), AfterValidator(_in_xml)]
"""The value of a property."""


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class GivenProperty(_Given):
    """A property with a type."""

    name: Word = Field(examples=["originalSender"])
    value: Value = Field(examples=["urn:oasis:names:tc:ebcore:partyid-type:unregistered:C1"])
    type: Word | None = None


def _way(properties: Any) -> str:
    return _LIST if isinstance(properties, list) else _OBJECT


Properties = Annotated[
    Annotated[dict[Word, Value], Field(max_length=200), Tag(_OBJECT)]
    | Annotated[list[GivenProperty], Field(max_length=200), Tag(_LIST)],
    Discriminator(_way),
]


class GivenPayload(_Given):
    """What is said about one uploaded part. What is left out comes from the part's own headers."""

    part: Word = Field(description="The name of the part in the upload.", examples=["order"])
    media_type: Annotated[str, AfterValidator(_media_type)] | None = Field(
        default=None, examples=["application/xml"]
    )
    content_id: Word | None = Field(
        default=None,
        description="Made by the node where none is given.",
        examples=["order@buyer.example"],
    )
    file_name: (
        Annotated[Word, StringConstraints(max_length=255), AfterValidator(_file_name)] | None
    ) = Field(default=None, examples=["order.xml"])
    properties: Properties = Field(
        default_factory=dict, description="Part properties.", examples=[{"language": "en"}]
    )
    compress: bool | None = Field(
        default=None, description="As the P-Mode says where it is left out."
    )


class Metadata(_Given):
    """A message to be sent. What is left out is taken from the P-Mode."""

    pmode: Word = Field(description="The id of the P-Mode.", examples=["orders"])
    message_id: Word | None = Field(
        default=None,
        description="Your own id. The same message submitted again gets the same answer, so a "
        "lost reply does no harm; other content under this id is a conflict (409).",
        examples=["order-4711@buyer.example"],
    )
    conversation_id: Conversation | None = Field(
        default=None,
        description="Left out: the message id. Empty where the partner asks for that.",
        examples=["2026-4711"],
    )
    ref_to_message_id: Word | None = Field(
        default=None, description="The message that this one answers."
    )
    service: Word | None = None
    action: Word | None = None
    properties: Properties = Field(
        default_factory=dict,
        description="Message properties: an object, or a list where a property has a type.",
        examples=[{"originalSender": "C1", "finalRecipient": "C4"}],
    )
    test: bool = Field(
        default=False,
        description="To the partner's test service: checked and acknowledged, not delivered.",
    )
    payloads: list[GivenPayload] = Field(
        default_factory=list,
        max_length=1000,
        description="About the uploaded parts, in the order in which the payloads stand in the "
        "message. Parts that are not described follow as they were uploaded.",
    )


class ReplyMetadata(Metadata):
    """A reply to a message of the inbox. What is left out is taken from that and its P-Mode."""

    pmode: Annotated[str, AfterValidator(_on_one_line), StringConstraints(max_length=1024)] = Field(
        default="",
        description="Left out: that of the message, whose exchange must be two-way.",
    )
    ref_to_message_id: Word | None = Field(default=None, description="Always that message.")


class BundleMetadata(_Given):
    """Messages that go in one envelope, as a bundle."""

    messages: list[Metadata] = Field(
        min_length=1,
        max_length=10_000,
        description="The first is the primary unit, whose P-Mode rules the bundle. Each names the "
        "uploaded parts that are its payloads; no part is left over.",
    )


G = TypeVar("G", Metadata, BundleMetadata)


def read_metadata(data: bytes, kind: type[G]) -> G:
    """The metadata from their JSON; 422 with the path of each field that is wrong."""
    try:
        return kind.model_validate_json(data)
    except Invalid as invalid:
        raise field_problem(
            field_errors([_said(error) for error in invalid.errors()], "metadata")
        ) from None


def triples(properties: dict[str, str] | list[GivenProperty]) -> tuple[Triple, ...]:
    """Properties as name, value and type, whichever way they were given."""
    if isinstance(properties, dict):
        return tuple((name, value, None) for name, value in properties.items())
    return tuple((one.name, one.value, one.type) for one in properties)


def _said(error: Any) -> dict[str, Any]:
    """An error without the steps that pydantic adds for the two ways of writing properties."""
    loc = [step for step in error["loc"] if step not in (_OBJECT, _LIST, "[key]")]
    return {**error, "loc": loc}
