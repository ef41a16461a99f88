"""Reception awareness: retries and duplicate detection (AS4 3.2), also in AS4's own strings.

AS4 writes `maxretries=10,period=3000` (milliseconds) and `maxsize=10Mb,checkwindow=7D`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from postroad.agreement.groups import Group, Switch, parameter
from postroad.agreement.values import Duration, Size

Field = tuple[str, Callable[[str], str]]


def _pairs(text: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The fields that an AS4 parameter string sets."""
    values: dict[str, Any] = {}
    for item in filter(None, (piece.strip() for piece in text.replace(";", ",").split(","))):
        name, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals or name.lower() not in fields:
            raise ValueError(f"{item!r} is not understood; write {', '.join(fields)} with =")
        field, convert = fields[name.lower()]
        if field in values:
            raise ValueError(f"{name!r} is given twice")
        values[field] = convert(value)
    return values


def _milliseconds(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ValueError(f"{text!r} is not a whole number of milliseconds")
    return f"PT{int(text) // 1000}.{int(text) % 1000:03d}S"


def _period(text: str) -> str:
    return text if text.upper().startswith("P") else f"P{text}"


class As4String(Group):
    """A group that AS4 writes as one string."""

    fields: ClassVar[Mapping[str, Field]]

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, data: object) -> object:
        return _pairs(data, cls.fields) if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        reference = handler(schema)
        full = handler.resolve_ref_schema(reference)
        if "anyOf" not in full:
            group = dict(full)
            full.clear()
            full["anyOf"] = [{"type": "string"}, group]
        return reference


class RetryParameters(As4String):
    """How often and how soon a message is sent again."""

    fields: ClassVar[Mapping[str, Field]] = {
        "maxretries": ("max_retries", str),
        "period": ("period", _milliseconds),
    }

    max_retries: int | None = parameter("maxretries", "How many times.", ge=0, le=1_000_000)
    period: Duration | None = parameter("period", "The time between two attempts.")


class Retry(Switch):
    """Sending again until a receipt comes."""

    parameters: RetryParameters | None = parameter("Parameters", "How often and how soon.")


class DetectionParameters(As4String):
    """How much and how long a receiver remembers."""

    fields: ClassVar[Mapping[str, Field]] = {
        "maxsize": ("max_size", str),
        "checkwindow": ("check_window", _period),
    }

    max_size: Size | None = parameter("maxsize", "The largest size of the memory of ids.")
    check_window: Duration | None = parameter("checkwindow", "How long ids are remembered.")


class DuplicateDetection(Switch):
    """Recognising a message that came before."""

    parameters: DetectionParameters | None = parameter(
        "Parameters", "How much and how long; DetectDuplicates.Parameters in AS4."
    )


class ReceptionAwareness(Switch):
    """The sender waits for a receipt, sends again, and the receiver drops duplicates."""

    retry: Retry | None = parameter("Retry", "Whether messages are sent again.")
    duplicate_detection: DuplicateDetection | None = parameter(
        "DuplicateDetection", "Whether duplicates are recognised."
    )
