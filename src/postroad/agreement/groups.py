"""What all groups of P-Mode parameters share: how a field gets its name, and values alone."""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

REQUIRED: Final = ...


def parameter(name: str, meaning: str, default: Any = None, **constraints: Any) -> Any:
    """A field of a P-Mode: its name in the specification and what it does, in one line.

    An empty name stands for the group itself: its value is the group's own value.
    """
    return Field(default, title=name, description=meaning, **constraints)


class Group(BaseModel):
    """Parameters that belong together. Unset means: no constraint."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def or_alone(
    schema: CoreSchema,
    handler: GetJsonSchemaHandler,
    alone: Callable[[JsonSchemaValue], JsonSchemaValue],
) -> JsonSchemaValue:
    """The JSON Schema of a group in whose place something else may stand alone."""
    reference = handler(schema)
    full = handler.resolve_ref_schema(reference)
    if "anyOf" not in full:
        group = dict(full)
        full.clear()
        full["anyOf"] = [alone(group), group]
    return reference


class Valued(Group):
    """A group with a value of its own, which may stand alone where no other field is set."""

    own: ClassVar[str] = "value"

    @model_validator(mode="before")
    @classmethod
    def _value_alone(cls, data: object) -> object:
        return data if isinstance(data, dict | cls) else {cls.own: data}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return or_alone(schema, handler, lambda group: group["properties"][cls.own])


class Switch(Valued):
    """A feature that is on when its group is present, unless it says otherwise."""

    own: ClassVar[str] = "enabled"

    enabled: bool = parameter("", "Whether the feature is used.", True)
