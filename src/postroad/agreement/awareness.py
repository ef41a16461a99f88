"""Reception awareness: retries and duplicate detection (AS4 3.2), also in AS4's own strings.

AS4 writes `maxretries=10,period=3000` (milliseconds) and `maxsize=10Mb,checkwindow=7D`. What it
leaves open about retries, order and acknowledgments is Postroad's own and says so.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from postroad.agreement.groups import Group, Switch, or_alone, parameter
from postroad.agreement.values import Factor, Retries, Share, Size, Span, Wait

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


def _time(text: str) -> str:
    """AS4's milliseconds, or a duration in full."""
    return text if text.upper().startswith("P") else _milliseconds(text)


def _window(text: str) -> str:
    return text if text.upper().startswith("P") else f"P{text}"


class As4String(Group):
    """A group that AS4 writes as one string."""

    fields: ClassVar[Mapping[str, Field]]

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, data: object) -> object:
        return _pairs(data, cls.fields) if isinstance(data, str) else data

    @classmethod
    def written(cls, text: str) -> dict[str, Any]:
        """The fields that a string sets, as they are written; none where it is not understood."""
        try:
            return _pairs(text, cls.fields)
        except ValueError:
            return {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return or_alone(schema, handler, lambda _: {"type": "string"})


class RetryParameters(As4String):
    """How often and how soon a message is sent again."""

    fields: ClassVar[Mapping[str, Field]] = {
        "maxretries": ("max_retries", str),
        "period": ("period", _time),
        "timeout": ("timeout", _time),
        "backoff": ("backoff", str),
        "maxperiod": ("max_period", _time),
        "jitter": ("jitter", str),
        "timetolive": ("time_to_live", _time),
        "persistduration": ("persist_duration", _time),
        "failfast": ("fail_fast", str),
        "then": ("then", str),
    }

    max_retries: Retries = parameter("maxretries", "How many times, or unlimited; unset: 10.", 10)
    period: Wait = parameter(
        "period", "The time between two retries; unset: a minute.", timedelta(minutes=1)
    )
    timeout: Wait | None = parameter(
        "timeout",
        "How long a receipt is waited for before the first retry; unset: the period. "
        "Postroad's own.",
    )
    backoff: Factor = parameter(
        "backoff",
        "How many times longer each period is than the one before; unset: 1. Postroad's own.",
        1.0,
    )
    max_period: Wait | None = parameter(
        "maxperiod", "How long a period gets at most; unset: 30 days. Postroad's own."
    )
    jitter: Share = parameter(
        "jitter",
        "The share of a wait that is added to it at most, at random; unset: 0. Postroad's own.",
        0.0,
    )
    time_to_live: Span | None = parameter(
        "timetolive",
        "How long after its submission a message is sent; unset: no end. Postroad's own.",
    )
    persist_duration: Span | None = parameter(
        "persistduration",
        "How long after its first sending a message is sent again; unset: no end. Postroad's own.",
    )
    fail_fast: bool = parameter(
        "failfast",
        "Whether a message fails at once when its partner cannot be reached. Postroad's own.",
        False,
    )
    then: Literal["give_up", "suspend"] = parameter(
        "then",
        "After the last retry: give up, or suspend the partner until somebody resumes it. "
        "Postroad's own.",
        "give_up",
    )


class Retry(Switch):
    """Sending again until a receipt comes."""

    parameters: RetryParameters | None = parameter("Parameters", "How often and how soon.")


class DetectionParameters(As4String):
    """How much and how long a receiver remembers."""

    fields: ClassVar[Mapping[str, Field]] = {
        "maxsize": ("max_size", str),
        "checkwindow": ("check_window", _window),
    }

    max_size: Size | None = parameter(
        "maxsize",
        "How much is kept of messages that are kept for their ids alone, past retention.messages; "
        "the oldest go first, before check_window ends.",
    )
    check_window: Span | None = parameter("checkwindow", "How long ids are remembered at least.")


class DuplicateDetection(Switch):
    """Recognising a message that came before."""

    parameters: DetectionParameters | None = parameter(
        "Parameters", "How much and how long; DetectDuplicates.Parameters in AS4."
    )
    compare: Literal["message_id", "contents"] | None = parameter(
        "Compare",
        "Whether MessageId alone makes a duplicate, or other contents under a known one are "
        "refused; unset: what the protocol says, which is message_id for AS4. Postroad's own.",
    )


class ReceptionAwareness(Switch):
    """The sender waits for a receipt, sends again, and the receiver drops duplicates."""

    retry: Retry | None = parameter("Retry", "Whether messages are sent again.")
    duplicate_detection: DuplicateDetection | None = parameter(
        "DuplicateDetection", "Whether duplicates are recognised; they always are."
    )
    in_order: Literal["conversation", "pmode"] | None = parameter(
        "InOrder",
        "Whether messages of a conversation, or all of the P-Mode, are sent one after the other; "
        "unset: neither. Postroad's own.",
    )
    strict_ack: bool = parameter(
        "StrictAck",
        "Whether a message is delivered only when its receipt was handed to the transport. "
        "Postroad's own.",
        False,
    )
    ack_after_delivery: bool = parameter(
        "AckAfterDelivery",
        "Whether the receipt is sent only when the application acknowledged the message. "
        "Postroad's own.",
        False,
    )
