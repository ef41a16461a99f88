"""The terms of ebXML reliable messaging: parameters, where they stand, what they may be.

A parameter stands in the CPA, in the header, or in both, where they must agree. (Draft 000, 1.2;
0.98b, 10.2.)
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct

from postroad.agreement.values import is_uri, parse_duration
from postroad.agreement.waiting import Policy, remaining
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.names import EBRM

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

METHOD: Final = EBRM
"""The name of this protocol. [RM000-1.2.9-02]"""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_CENTURY: Final = timedelta(days=36525)


class ErrorCode(StrEnum):
    VALUE_NOT_RECOGNIZED = "ValueNotRecognized"
    NOT_SUPPORTED = "NotSupported"
    INCONSISTENT = "Inconsistent"
    DELIVERY_FAILURE = "DeliveryFailure"
    TIME_TO_LIVE_EXPIRED = "TimeToLiveExpired"


class Severity(StrEnum):
    ERROR = "Error"
    WARNING = "Warning"


class Error(Struct, frozen=True):
    """One error as it is told to a partner."""

    code: ErrorCode
    detail: str
    severity: Severity = Severity.ERROR


class EbxmlError(Exception):
    """Something is wrong with a message or an agreement."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.value}: {detail}")
        self.error = Error(code, detail)


class DeliverySemantics(StrEnum):
    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce"
    BEST_EFFORT = "BestEffort"


class Method(StrEnum):
    EBXML = "ebXML"
    TRANSPORT = "Transport"


class AckRequested(StrEnum):
    SIGNED = "Signed"
    UNSIGNED = "Unsigned"
    NONE = "None"


class OrderSemantics(StrEnum):
    GUARANTEED = "Guaranteed"
    NOT_GUARANTEED = "NotGuaranteed"


class SyncReplyMode(StrEnum):
    NONE = "none"
    MSH_SIGNALS_ONLY = "mshSignalsOnly"
    SIGNALS_ONLY = "signalsOnly"
    RESPONSE_ONLY = "responseOnly"
    SIGNALS_AND_RESPONSE = "signalsAndResponse"


class Terms(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is agreed about a message. Where the specifications have defaults, these are they."""

    delivery_semantics: DeliverySemantics = DeliverySemantics.BEST_EFFORT
    message_order_semantics: OrderSemantics = OrderSemantics.NOT_GUARANTEED
    reliable_messaging_method: Method = Method.EBXML
    ack_requested: AckRequested = AckRequested.NONE
    sync_reply: bool = False
    sync_reply_mode: SyncReplyMode = SyncReplyMode.NONE
    time_to_live: datetime | None = None
    timeout: timedelta = timedelta(minutes=1)
    """For one hop. [OV004-2-01]"""
    retries: int | None = 10
    """None: for ever."""
    retry_interval: timedelta = timedelta(minutes=1)
    persist_duration: timedelta | None = None
    reliable_messaging_supported: tuple[str, ...] = (METHOD,)
    msh_time_accuracy: timedelta = timedelta(0)
    protocols: tuple[str, ...] = ()
    """Over which a message may go, one after the other; empty: the only one there is."""
    hops: int = 0
    """MSHs on the way to the To Party."""

    @property
    def is_reliable(self) -> bool:
        return self.delivery_semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE

    @property
    def is_protocol_followed(self) -> bool:
        """[RM000-1.3.1-01] [MS098-10.3-01]"""
        return self.is_reliable and self.reliable_messaging_method is Method.EBXML

    @property
    def is_acknowledged(self) -> bool:
        """Whether an acknowledgment is due. [MS098-10.3.1.3-01] [RM000-1.3.2.1-01]"""
        return self.is_protocol_followed or self.ack_requested is not AckRequested.NONE

    @property
    def is_response_awaited(self) -> bool:
        """Whether the acknowledgment comes with the response of the application."""
        modes = (SyncReplyMode.RESPONSE_ONLY, SyncReplyMode.SIGNALS_AND_RESPONSE)
        return self.sync_reply and self.sync_reply_mode in modes


class Source(StrEnum):
    CPA = "CPA"
    HEADER = "header"


class Parameter(Struct, frozen=True):
    """Where a parameter may stand, and how it is read (ValueError: not at all)."""

    sources: frozenset[Source]
    read: Callable[[str], Any]
    unreadable: ErrorCode = ErrorCode.VALUE_NOT_RECOGNIZED


def _words(values: type[E]) -> Mapping[str, E]:
    return {value.value: value for value in values}


def _word(words: Mapping[str, T], text: str) -> T:
    if text not in words:
        raise ValueError(f"{text!r} is none of {', '.join(words)}")
    return words[text]


def _folded(words: Mapping[str, T], text: str) -> T:
    """A word whatever its case: the specification itself has Unsigned and UnSigned."""
    return _word({word.lower(): value for word, value in words.items()}, text.lower())


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _retries(text: str) -> int | None:
    return None if text == "unlimited" else _whole(text)


def _duration(text: str) -> timedelta:
    """Seconds, or a duration of XML Schema."""
    found = parse_duration(f"PT{text}S" if _SECONDS.fullmatch(text) else text)
    if not isinstance(found, timedelta) or found > _CENTURY:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return found


def _time_to_live(text: str) -> datetime | timedelta:
    if text.startswith("P") or _SECONDS.fullmatch(text):
        return _duration(text)
    return parse_timestamp(text)[0]


def _accuracy(text: str) -> timedelta:
    """[MS098-10.2.2-01]"""
    found = re.fullmatch(r"([0-9]{2}):([0-5][0-9])", text)
    if found is None:
        raise ValueError(f"{text!r} is not written as mm:ss")
    return timedelta(minutes=int(found[1]), seconds=int(found[2]))


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _uris(text: str) -> tuple[str, ...]:
    """[RM000-1.2.9-01]"""
    if wrong := [item for item in _list(text) if not is_uri(item)]:
        raise ValueError(f"{wrong[0]!r} is not a URI")
    return _list(text)


_SEMANTICS: Final = {
    **_words(DeliverySemantics),
    "AtMostOnce": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    "Unspecified": DeliverySemantics.BEST_EFFORT,
}
"""With the words of the older draft."""
_BOOLEAN: Final = {"true": True, "false": False, "1": True, "0": False}

_BOTH: Final = frozenset(Source)
_CPA: Final = frozenset((Source.CPA,))
_HEADER: Final = frozenset((Source.HEADER,))

PARAMETERS: Final[Mapping[str, Parameter]] = {
    "deliverySemantics": Parameter(_BOTH, partial(_word, _SEMANTICS), ErrorCode.NOT_SUPPORTED),
    "syncReplyMode": Parameter(_BOTH, partial(_word, _words(SyncReplyMode))),
    "timeToLive": Parameter(_BOTH, _time_to_live),
    "reliableMessagingMethod": Parameter(_HEADER, partial(_word, _words(Method))),
    "ackRequested": Parameter(_HEADER, partial(_folded, _words(AckRequested))),
    "timeout": Parameter(_CPA, _duration),
    "retries": Parameter(_CPA, _retries),
    "retryInterval": Parameter(_CPA, _duration),
    "reliableMessagingSupported": Parameter(_CPA, _uris),
    "persistDuration": Parameter(_CPA, _duration),
    "messageOrderSemantics": Parameter(
        _BOTH, partial(_word, _words(OrderSemantics)), ErrorCode.NOT_SUPPORTED
    ),
    "syncReply": Parameter(_HEADER, partial(_folded, _BOOLEAN)),
    "mshTimeAccuracy": Parameter(_CPA, _accuracy),
    "protocols": Parameter(_CPA, _list),
    "hops": Parameter(_CPA, _whole),
}
"""The table of 000, 1.2, then what 0.98b and 004 add. [RM000-1.2-02] [RM000-1.2-04]
[RM000-1.2-05]"""

_ALIASES: Final = {
    "intermediateAckRequested": "ackRequested",
    "reliableMessagingMethodsSupported": "reliableMessagingSupported",
}
_FIELDS: Final = dict(zip(Terms.__struct_encode_fields__, Terms.__struct_fields__, strict=True))


def agree(
    cpa: Mapping[str, str],
    header: Mapping[str, str],
    *,
    timestamp: datetime,
) -> Terms:
    """The terms of a message, by the specification's names; EbxmlError when there are none.

    What the CPA says holds, and a header that says something else is inconsistent; where the CPA
    is silent the header counts. `timestamp` is the message's own: a TimeToLive that is a duration
    counts from it. [RM000-1.2-01] [RM000-1.2.1-01]
    """
    values: dict[str, Any] = {}
    for source, given in ((Source.CPA, cpa), (Source.HEADER, header)):
        for name, text in given.items():
            name = _ALIASES.get(name, name)
            value = _read(source, name, text)
            if name == "timeToLive" and isinstance(value, timedelta):
                value = timestamp + value
            if values.setdefault(_FIELDS[name], value) != value:
                raise EbxmlError(
                    ErrorCode.INCONSISTENT, f"{name} is {text!r} here and something else in the CPA"
                )
    if "syncReplyMode" in header and "syncReply" not in header:
        values["sync_reply"] = values["sync_reply_mode"] is not SyncReplyMode.NONE
    terms = Terms(**values)
    _check(terms)
    return terms


def _read(source: Source, name: str, text: str) -> Any:
    if name not in PARAMETERS:
        raise EbxmlError(ErrorCode.VALUE_NOT_RECOGNIZED, f"{name!r} is no parameter")
    parameter = PARAMETERS[name]
    if source not in parameter.sources:
        raise EbxmlError(ErrorCode.INCONSISTENT, f"{name} never stands in the {source.value}")
    try:
        return parameter.read(text)
    except ValueError as wrong:
        raise EbxmlError(parameter.unreadable, f"{name}: {wrong}") from None


def _check(terms: Terms) -> None:
    """What goes together. With BestEffort the method is ignored. [MS098-10.2.1-03]"""
    if (span := span_of(terms)) is not None and span > _CENTURY:
        raise EbxmlError(ErrorCode.VALUE_NOT_RECOGNIZED, "the retries take over a hundred years")
    if not terms.is_reliable:
        if terms.message_order_semantics is OrderSemantics.GUARANTEED:
            raise EbxmlError(ErrorCode.INCONSISTENT, "only OnceAndOnlyOnce guarantees order")
    elif terms.reliable_messaging_method is Method.TRANSPORT:
        raise EbxmlError(ErrorCode.NOT_SUPPORTED, "there is no reliable transport")
    elif METHOD not in terms.reliable_messaging_supported:
        raise EbxmlError(ErrorCode.NOT_SUPPORTED, f"the CPA does not have {METHOD}")


def retrying(terms: Terms) -> Policy:
    """When a message is sent again: with BestEffort never. [MS098-10.2.1-06] [OV004-2-02]"""
    if not terms.is_protocol_followed:
        return Policy()
    return Policy(
        timeout=terms.timeout * (terms.hops + 1),
        interval=terms.retry_interval,
        retries=terms.retries,
        persist_duration=terms.persist_duration,
    )


def span_of(terms: Terms) -> timedelta | None:
    """From the first sending to giving up over the last protocol; None: there is no end."""
    one = remaining(retrying(terms), 1)
    return None if one is None else one * max(len(terms.protocols), 1)


def advice(terms: Terms) -> str | None:
    """What is unwise about the terms."""
    span = span_of(terms)
    if terms.persist_duration is None or span is None or terms.persist_duration >= span:
        return None
    return f"persistDuration {terms.persist_duration} is shorter than all retries take, {span}"
