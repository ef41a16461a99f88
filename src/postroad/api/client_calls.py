"""The calls of the clients: what is asked, and how the answer is read. No I/O here.

`Client` and `AsyncClient` differ only in how they carry a call out.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, Final, Generic, TypedDict, TypeVar
from urllib.parse import urlencode

import httpx

from postroad.api import client_values as values
from postroad.api.client_status import Status
from postroad.api.client_status import status as status_of
from postroad.api.client_upload import new_message_id, plain_properties
from postroad.api.client_values import (
    ApiError,
    Arriving,
    Content,
    Event,
    Extent,
    Health,
    Message,
    Notice,
    Page,
    Partner,
    Payload,
    PingAnswer,
    PMode,
    Properties,
    Pulled,
    QueryAnswer,
    Route,
    SentMessage,
    Signal,
    Total,
    Unit,
)
from postroad.api.segments import segment_of

T = TypeVar("T")

API: Final = "/api/v1"
LONGEST_WAIT: Final = 30.0
"""Seconds that one request waits for a message; longer waits are several requests."""
PULLING: Final = 600.0
"""Seconds that pulling many messages may take."""
NEVER_ARRIVED: Final = ("failed", "expired")
"""States of a request to which no reply comes."""
_AGAIN: Final = (502, 503, 504)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    json: Any = None
    repeatable: bool = True
    """Whether doing it twice is the same as doing it once."""
    extra_time: float = 0.0
    """Seconds that the node may take beyond the usual timeout."""
    accepted: frozenset[int] = field(default=frozenset({200, 202}))


class Fitting(TypedDict, total=False):
    """What messages are chosen by."""

    pmode: str
    from_party: str
    to_party: str
    service: str
    action: str
    conversation_id: str
    since: datetime | str
    until: datetime | str
    cursor: str
    """Begin after this one."""


class Selected(TypedDict, total=False):
    """What pulled messages must have, exactly: each as the REST interface takes it."""

    ref_to_message_id: str
    conversation_id: str
    agreement: Mapping[str, Any]
    service: Mapping[str, Any]
    action: str
    from_party: Mapping[str, Any]
    to_party: Mapping[str, Any]
    properties: Iterable[Mapping[str, Any]]


class Filters(Fitting, total=False):
    """What lists of messages are filtered by."""

    limit: int
    """Messages per request; all pages are shown, one after the other."""


class MessageFilters(Filters, total=False):
    side: str
    state: str | Iterable[str]
    partner: str
    """To whom it goes, or from whom it comes."""
    error_code: str
    order: str
    """newest (first) or oldest"""


class InboxFilters(Filters, total=False):
    consumed: bool
    """Also those that were acknowledged already."""
    through: str
    """No message beyond this cursor."""


def submission(
    *,
    pmode: str | None,
    message_id: str,
    conversation_id: str | None = None,
    ref_to_message_id: str | None = None,
    service: str | None,
    action: str | None,
    properties: Properties,
    test: bool = False,
) -> dict[str, Any]:
    """The metadata of a message, without what is left out."""
    told = {
        "pmode": pmode,
        "message_id": message_id,
        "conversation_id": conversation_id,
        "ref_to_message_id": ref_to_message_id,
        "service": service,
        "action": action,
        "properties": plain_properties(properties),
        "test": test,
    }
    return {key: value for key, value in told.items() if value is not None}


def send() -> Call[SentMessage]:
    return Call("POST", f"{API}/messages", _sent)


def unit(given: Unit) -> tuple[dict[str, Any], Sequence[Content | Payload]]:
    """Metadata and payloads of a unit of a bundle."""
    metadata = submission(
        pmode=given.pmode,
        message_id=given.message_id or new_message_id(),
        conversation_id=given.conversation_id,
        ref_to_message_id=given.ref_to_message_id,
        service=given.service,
        action=given.action,
        properties=given.properties,
    )
    return metadata, given.payloads


def send_bundle() -> Call[tuple[SentMessage, ...]]:
    return Call("POST", f"{API}/bundles", _many("messages", _sent_message))


def reply(message_id: str, cursor: str | None = None) -> Call[SentMessage]:
    return Call("POST", _received(message_id, "/reply", cursor), _sent)


def _sent(answer: httpx.Response) -> SentMessage:
    return _sent_message(answer.json())


def _sent_message(data: Mapping[str, Any]) -> SentMessage:
    return SentMessage(values.message(data), bool(data["repeated"]))


def status(
    message_id: str,
    side: str | None = None,
    wait: float = 0.0,
    wait_reply: float = 0.0,
    cursor: str | None = None,
) -> Call[Message]:
    query = {"side": side, "wait": wait or None, "wait_reply": wait_reply or None}
    query |= {"cursor": cursor}
    return Call("GET", _message(message_id, "", query), _message_of, extra_time=wait + wait_reply)


def events(message_id: str) -> Call[tuple[Event, ...]]:
    return Call("GET", _message(message_id, "/events"), _many("events", values.event))


def route(message_id: str, side: str | None = None) -> Call[Route]:
    path = _message(message_id, "/route", {"side": side})
    return Call("GET", path, lambda answer: values.route(answer.json()))


def signals(
    message_id: str, side: str | None = None, cursor: str | None = None
) -> Call[tuple[Signal, ...]]:
    path = _message(message_id, "/signals", {"side": side, "cursor": cursor})
    return Call("GET", path, _many("signals", values.signal))


def signal(
    message_id: str, signal_id: str, side: str | None = None, cursor: str | None = None
) -> Call[None]:
    query = {"side": side, "cursor": cursor}
    path = _message(message_id, f"/signals/{segment_of(signal_id)}", query)
    return Call("GET", path, _nothing)


def evidence(message_id: str, side: str | None = None, cursor: str | None = None) -> Call[None]:
    query = {"side": side, "cursor": cursor}
    return Call("GET", _message(message_id, "/evidence", query), _nothing)


def resend(message_id: str) -> Call[Message]:
    return Call("POST", _message(message_id, "/resend"), _message_of, repeatable=False)


def settle(message_id: str, answer: str, who: str | None) -> Call[Message]:
    body = {"answer": answer} | ({} if who is None else {"who": who})
    return Call("POST", _message(message_id, "/settle"), _message_of, json=body)


def query(message_id: str, wait: float, settle: bool) -> Call[QueryAnswer]:
    path = _message(message_id, "/query", {"wait": wait, "settle": "true" if settle else None})
    return Call("POST", path, lambda answer: values.query_answer(answer.json()), extra_time=wait)


def fragments(message_id: str, cursor: str | None) -> Call[Page[Message]]:
    path = _message(message_id, "/fragments", {"cursor": cursor})
    return Call("GET", path, _page("messages", values.message))


def messages(filters: MessageFilters, cursor: str | None) -> Call[Page[Message]]:
    return _list("/messages", filters, cursor)


def total(filters: MessageFilters) -> Call[Total]:
    query = _query(_told(filters) | {"limit": 1, "total": "true"})
    return Call("GET", f"{API}/messages{query}", lambda answer: values.total(answer.json()))


def inbox(filters: InboxFilters, cursor: str | None) -> Call[Page[Message]]:
    return _list("/inbox", filters, cursor)


def notices(limit: int, cursor: str | None) -> Call[Page[Notice]]:
    path = f"{API}/inbox/notices{_query({'limit': limit, 'cursor': cursor})}"
    return Call("GET", path, _page("notices", values.notice))


def ack_notice(id: int) -> Call[None]:
    return Call(
        "POST",
        f"{API}/inbox/notices/{id}/ack",
        _nothing,
        repeatable=False,
        accepted=frozenset({204}),
    )


def partners() -> Call[tuple[Partner, ...]]:
    return Call("GET", f"{API}/partners", _many("partners", values.partner))


def suspend(partner: str, reason: str | None) -> Call[Partner]:
    path = f"{API}/partners/{segment_of(partner)}/suspend"
    body = {} if reason is None else {"reason": reason}
    return Call("POST", path, lambda answer: values.partner(answer.json()), json=body)


def resume(partner: str) -> Call[int]:
    path = f"{API}/partners/{segment_of(partner)}/resume"
    return Call("POST", path, _number_of("messages"), repeatable=False)


def received(message_id: str, cursor: str | None = None) -> Call[Message]:
    return Call("GET", _received(message_id, "", cursor), _message_of)


def part(message_id: str, number: int, cursor: str | None = None) -> Call[None]:
    return Call("GET", _received(message_id, f"/parts/{number}", cursor), _nothing)


def ack(message_id: str, cursor: str | None = None) -> Call[Message]:
    return Call("POST", _received(message_id, "/ack", cursor), _message_of)


def release(message_id: str, cursor: str | None = None) -> Call[Message]:
    path = _received(message_id, "/release", cursor)
    return Call("POST", path, _message_of, repeatable=False)


def ack_all(through: str, filters: Fitting) -> Call[int]:
    path = f"{API}/inbox/ack{_query(_told(filters) | {'through': through})}"
    return Call("POST", path, _number_of("acknowledged"))


def arriving(limit: int) -> Call[list[Arriving]]:
    return Call(
        "GET",
        f"{API}/inbox/fragments?limit={limit}",
        lambda answer: [values.arriving(one) for one in answer.json()["arriving"]],
    )


def inbox_extent() -> Call[Extent]:
    return Call("GET", f"{API}/inbox/extent", lambda answer: values.extent(answer.json()))


def reload() -> Call[int]:
    return Call("POST", f"{API}/admin/reload", _number_of("pmodes"))


def purge(days: float | None) -> Call[int]:
    body = {} if days is None else {"days": days}
    return Call("POST", f"{API}/admin/purge", _number_of("purged"), json=body)


def pmodes() -> Call[tuple[PMode, ...]]:
    return Call("GET", f"{API}/admin/pmodes", _many("pmodes", values.pmode))


def ping(pmode: str, wait: float) -> Call[PingAnswer]:
    return Call(
        "POST",
        f"{API}/admin/pmodes/{segment_of(pmode)}/ping{_query({'wait': wait})}",
        lambda answer: values.ping_answer(answer.json()),
        repeatable=False,
        extra_time=wait,
    )


def pull(pmode: str, most: int, selection: Mapping[str, Any]) -> Call[Pulled]:
    return Call(
        "POST",
        f"{API}/admin/pmodes/{segment_of(pmode)}/pull{_query({'most': most})}",
        lambda answer: values.pulled(answer.json()),
        json=dict(selection) or None,
        repeatable=False,
        extra_time=PULLING,
    )


def node_status() -> Call[Status]:
    return Call("GET", f"{API}/admin/status", lambda answer: status_of(answer.json()))


def health() -> Call[Health]:
    def read(answer: httpx.Response) -> Health:
        data = answer.json()
        return Health(bool(data["ready"]), tuple(data["problems"]))

    return Call("GET", "/readyz", read, accepted=frozenset({200, 503}))


def is_to_be_repeated(call: Call[Any], answer: httpx.Response) -> bool:
    """Whether the answer says: not now."""
    again = answer.status_code in _AGAIN and answer.status_code not in call.accepted
    return again and call.repeatable


def read_answer(call: Call[T], answer: httpx.Response) -> T:
    """What a call gives; `ApiError` when the node refused it or what answers is no node."""
    if answer.status_code not in call.accepted:
        raise error_of(answer)
    try:
        return call.read(answer)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ApiError(
            answer.status_code, f"What answers at {answer.url} is no Postroad; check the URL."
        ) from None


def error_of(answer: httpx.Response) -> ApiError:
    """The error that an answer tells."""
    try:
        told = answer.json()
        detail = str(told["detail"])
    except (ValueError, KeyError, TypeError):
        return ApiError(answer.status_code, f"{answer.reason_phrase} ({answer.url})")
    errors = tuple(
        (str(one.get("path")), str(one.get("message"))) for one in told.get("errors") or ()
    )
    return ApiError(answer.status_code, detail, told.get("code"), errors)


def pause(attempt: int, backoff: float, answer: httpx.Response | None) -> float:
    """Seconds before the next attempt: what the node asks for, or twice as long each time."""
    asked = answer.headers.get("retry-after", "") if answer is not None else ""
    wait: float = backoff * 2**attempt
    return min(30.0, max(wait, float(asked)) if asked.isdecimal() and backoff else wait)


class Received:
    """A download on its way into a file, checked against the digest that the node sent ahead."""

    def __init__(self, answer: httpx.Response, file: IO[bytes]) -> None:
        """From its beginning: an attempt before may have written some of it."""
        self._file = file
        self._expected = answer.headers.get("etag", "").strip('"')
        self._digest = hashlib.sha256()
        file.seek(0)
        file.truncate()

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._file.write(piece)

    def check(self) -> None:
        if self._expected and self._expected != self._digest.hexdigest():
            raise ApiError(0, "The content is not what its digest says; get it again.")


def _message(message_id: str, rest: str = "", query: Mapping[str, Any] | None = None) -> str:
    return f"{API}/messages/{segment_of(message_id)}{rest}{_query(query or {})}"


def _received(message_id: str, rest: str, cursor: str | None) -> str:
    return f"{API}/inbox/{segment_of(message_id)}{rest}{_query({'cursor': cursor})}"


def _query(query: Mapping[str, Any]) -> str:
    told = {key: value for key, value in query.items() if value is not None}
    return f"?{urlencode(told)}" if told else ""


def _list(path: str, filters: Mapping[str, Any], cursor: str | None) -> Call[Page[Message]]:
    query = _told(filters) | ({"cursor": cursor} if cursor else {})
    return Call("GET", f"{API}{path}{_query(query)}", _page("messages", values.message))


def _told(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Filters as a query says them."""
    query: dict[str, Any] = {}
    for name, value in filters.items():
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, bool):
            value = str(value).lower()
        elif name == "state" and not isinstance(value, str):
            value = ",".join(value)
        query[name.removesuffix("_party")] = value
    return query


def _page(
    name: str, value: Callable[[Mapping[str, Any]], T]
) -> Callable[[httpx.Response], Page[T]]:
    def read(answer: httpx.Response) -> Page[T]:
        data = answer.json()
        return Page(tuple(value(one) for one in data[name]), data["next"])

    return read


def _message_of(answer: httpx.Response) -> Message:
    return values.message(answer.json())


def _many(name: str, value: Callable[[Mapping[str, Any]], T]) -> Callable[..., tuple[T, ...]]:
    return lambda answer: tuple(value(one) for one in answer.json()[name])


def _number_of(name: str) -> Callable[[httpx.Response], int]:
    return lambda answer: int(answer.json()[name])


def _nothing(answer: httpx.Response) -> None:
    """The answer is read as it comes."""
