"""`postroad status` and `postroad trace`: where a message or the node is, a message's history."""

import itertools
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from postroad.api.client import ApiError, Client, Event, Message, Notice, Partner
from postroad.cli.node_options import (
    ConfigFile,
    Cursor,
    Json,
    MessageId,
    SideName,
    Token,
    Url,
    node,
)
from postroad.cli.node_status import show_node
from postroad.cli.problems import fail
from postroad.cli.showing import (
    as_data,
    moment,
    plain,
    print_facts,
    print_json,
    print_table,
    size,
    state,
)
from postroad.cli.standing import (
    notice_in_words,
    outlook,
    partner_in_words,
    partner_of,
    shown_state,
    to_do,
    why,
)

_TOLD: Final = {"delivery_failed", "expired", "in_doubt", "settled"}
"""Events of which the application is told by a notice."""
_UNKNOWN: Final = 404
_NOTICES: Final = 1000
"""So many that wait are looked through for those about a message."""

Also = Annotated[
    list[Path] | None,
    typer.Option(
        "--also",
        metavar="FILE",
        help="The file of another node that it passed. Repeatable.",
        show_default=False,
    ),
]


def status(
    message_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="The message id; without one: the node.", show_default=False
        ),
    ] = None,
    side: SideName = None,
    cursor: Cursor = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Tell where a message is: its state, what follows by itself, and what is to be done.

    Without an id: the node at a glance. Messages by state and partner, what has waited longest,
    partners, certificates and when they expire, the disk, and settings that are not in force.

    Examples:

      postroad status

      postroad status order-4711@buyer.example
    """
    if message_id is None and (side or cursor):
        fail("--side and --cursor choose a message: write its id, too")
    with node(config, url, token) as client:
        if message_id is None:
            show_node(client.node(), as_json)
            return
        message = client.status(message_id, side=side, cursor=cursor)
        partner = partner_of(client, message)
    if as_json:
        print_json({**as_data(message), "partner": as_data(partner) if partner else None})
    else:
        _show(message, partner)


def trace(
    message_id: MessageId,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="Also a line for each fragment of a large message.")
    ] = False,
    as_json: Json = False,
    also: Also = None,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Tell all that happened to a message, as the journal has it, and what is to follow.

    With the files of other nodes it is the whole road, over all stations.

    Example: postroad trace order-4711@buyer.example
    """
    elsewhere = _elsewhere(also or [], message_id)
    with node(config, url, token) as client:
        events = client.events(message_id) + elsewhere
        message = _outgoing(client, message_id)
        partner = partner_of(client, message) if message else None
        notices = _notices_about(client, message, events) if message else []
        pieces = list(client.fragments(message_id)) if fragments and message else []
    if as_json:
        told = {
            "message_id": message_id,
            "events": [as_data(one) for one in events],
            "message": as_data(message) if message else None,
            "partner": as_data(partner) if partner else None,
            "notices": [as_data(one) for one in notices],
        }
        if fragments:
            told["fragments"] = [as_data(one) for one in pieces]
        print_json(told)
        return
    typer.echo(plain(message_id))
    heads = ("time", "after", *(("node",) if also else ()), "side", "event", "what")
    print_table(heads, list(_timeline(events, stations=bool(also))))
    if message is not None:
        first = ("reply", message.reply_message_id), ("fragments", _fragments(message))
        print_facts([*first, *_future(message, partner, notices)])
    if pieces:
        names = ("fragment", "state", "attempts", "size", "last sent", "id", "why")
        print_table(names, [_piece(one) for one in pieces])


def _show(message: Message, partner: Partner | None) -> None:
    facts: tuple[tuple[str, str | Text | None], ...] = (
        ("message", message.message_id),
        ("side", message.side),
        ("state", shown_state(message)),
        ("why", why(message)),
        *_future(message, partner, ()),
        ("P-Mode", message.pmode),
        ("from", message.from_party),
        ("to", message.to_party),
        ("service", message.service),
        ("action", message.action),
        ("conversation", message.conversation_id),
        ("refers to", message.ref_to_message_id),
        ("reply", message.reply_message_id),
        ("fragment", _number(message)),
        ("fragments", _fragments(message)),
        ("attempts", _attempts(message)),
        ("first sent", _at(message.first_sent_at)),
        ("last sent", _at(message.last_sent_at)),
        ("peer", message.peer),
        ("created", moment(message.created_at)),
        ("updated", moment(message.updated_at)),
        *((f"property {one.name}", one.value) for one in message.properties),
        *(
            (f"payload {one.number}", f"{size(one.size)}, {one.media_type} {one.file_name or ''}")
            for one in message.parts
        ),
    )
    print_facts(facts)


def _number(message: Message) -> str:
    """Of a fragment: which one, and of what."""
    if message.fragment is None:
        return ""
    count = f" of {message.fragments}" if message.fragments else ""
    return f"{message.fragment}{count}, part of {message.part_of}"


def _fragments(message: Message) -> str:
    """How far a message is that goes in fragments."""
    done = message.transfer
    if done is None:
        return ""
    said = f"{done.arrived} of {done.fragments or '?'} arrived, {done.sent} sent"
    return f"{said}; {size(done.arrived_bytes)} of {size(done.bytes)}"


def _piece(fragment: Message) -> tuple[str | Text, ...]:
    return (
        str(fragment.fragment),
        state(fragment.state),
        str(fragment.attempts),
        size(fragment.bytes),
        _at(fragment.last_sent_at),
        fragment.message_id,
        why(fragment),
    )


def _at(time: datetime | None) -> str:
    return moment(time) if time is not None else ""


def _attempts(message: Message) -> str:
    """How many, how many of them since somebody began anew, and how many are in doubt."""
    if not message.attempts:
        return ""
    anew = 0 < message.tries < message.attempts
    words = (
        str(message.attempts),
        f"{message.tries} since it was sent anew" if anew else None,
        f"{message.unanswered} unanswered" if message.unanswered else None,
    )
    return ", ".join(filter(None, words))


def _future(
    message: Message, partner: Partner | None, notices: Iterable[Notice]
) -> list[tuple[str, str]]:
    """What follows, what hinders it, who is to know, and what is to be done."""
    return [
        ("outlook", outlook(message, partner)),
        ("partner", partner_in_words(partner)),
        *((f"notice {one.id}", notice_in_words(one)) for one in notices),
        ("to do", to_do(message, partner)),
    ]


def _elsewhere(files: Iterable[Path], message_id: str) -> tuple[Event, ...]:
    """What other nodes tell of a message; nothing where it did not come."""
    told: tuple[Event, ...] = ()
    for file in files:
        with node(file, None, None) as client:
            try:
                told += client.events(message_id)
            except ApiError as error:
                if error.status != _UNKNOWN:
                    raise
    return told


def _timeline(events: tuple[Event, ...], *, stations: bool = False) -> Iterator[tuple[str, ...]]:
    """Each event with the time since the one before; two sides may tell in any order."""
    before = None
    for one in sorted(events, key=lambda one: one.at):
        after = "" if before is None else f"+{(one.at - before).total_seconds():.3f} s"
        before = one.at
        time = f"{one.at.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
        where = (one.node,) if stations else ()
        yield time, after, *where, one.side or "", one.event, _about(one)


def _about(event: Event) -> str:
    words = (
        f"attempt {event.attempt}" if event.attempt else None,
        _piece_of(event),
        size(event.bytes) if event.bytes else None,
        f"{size(event.wire_bytes)} on the wire" if event.wire_bytes else None,
        event.peer,
        event.error_code,
        event.detail,
    )
    return ", ".join(filter(None, words))


def _piece_of(event: Event) -> str | None:
    if event.fragment is not None:
        return f"fragment {event.fragment}" + (f" of {event.fragments}" if event.fragments else "")
    return f"{event.fragments} fragments" if event.fragments else None


def _outgoing(client: Client, message_id: str) -> Message | None:
    """The message on the sending side, if it was sent from here and is not past its retention."""
    try:
        return client.status(message_id, side="sending")
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _notices_about(client: Client, message: Message, events: Iterable[Event]) -> list[Notice]:
    """What the application was told about it and has not acknowledged, if it was told anything."""
    if message.state != "suspended" and _TOLD.isdisjoint(one.event for one in events):
        return []
    found = itertools.islice(client.notices(limit=_NOTICES), _NOTICES)
    return [one for one in found if one.message_id == message.message_id]
