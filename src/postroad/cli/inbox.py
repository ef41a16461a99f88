"""`postroad inbox`: what was received, for an application without code."""

import itertools
from typing import Annotated

import typer

from postroad.api.client import ApiError, Client, Notice
from postroad.cli.message_list import first, show_messages
from postroad.cli.messages import (
    NoCompress,
    Payloads,
    PropertiesGiven,
    Wait,
    WaitsByDefault,
    submitted,
)
from postroad.cli.node_options import ConfigFile, Cursor, Json, MessageId, Token, Url, node
from postroad.cli.problems import fail
from postroad.cli.saving import save
from postroad.cli.showing import as_data, moment, plain, print_json, print_table, size, state

app = typer.Typer(
    help="What was received and is waiting to be taken, and what became of what was sent.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    everything: Annotated[
        bool, typer.Option("--all", help="Also what was acknowledged already.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List what waits in the inbox, the oldest first.

    Example: postroad inbox list --json
    """
    with node(config, url, token) as client:
        found = first(client.inbox(consumed=everything), limit)
    show_messages(found, as_json)


@app.command()
def get(
    message_id: MessageId,
    part: Annotated[
        int | None, typer.Option(min=1, help="Only this payload, counted from 1.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR/|FILE",
            help="A folder, a file for one payload, or - for standard output.",
        ),
    ] = ".",
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge it once it is saved.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    cursor: Cursor = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Save the payloads of a message, each checked against its digest.

    Payloads are named as the sender named them, cleaned; nothing is written outside of the folder,
    and no file is replaced without --force.

    Examples:

      postroad inbox get order-4711@buyer.example -o received/ --ack

      postroad inbox get order-4711@buyer.example --part 1 -o order.xml
    """
    with node(config, url, token) as client:
        message = client.received(message_id, cursor=cursor)
        saved = save(client, message, output, part=part, force=force)
        if ack:
            client.ack(message_id, cursor=message.cursor)
    if as_json and output != "-":
        files = [{"file": str(path), **as_data(one)} for path, one in saved]
        print_json({"message_id": message_id, "files": files})
    else:
        for path, _ in saved:
            typer.echo(path)


@app.command()
def ack(
    message_id: MessageId,
    cursor: Cursor = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Say that the application has a message: it leaves the inbox. Again is no error.

    Example: postroad inbox ack order-4711@buyer.example
    """
    with node(config, url, token) as client:
        message = client.ack(message_id, cursor=cursor)
    if as_json:
        print_json(as_data(message))
    else:
        typer.echo(f"{plain(message_id)} {message.state}")


@app.command(cls=WaitsByDefault)
def reply(
    message_id: MessageId,
    payload: Payloads = None,
    property_: PropertiesGiven = None,
    pmode: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The P-Mode of the reply, where the exchange is one-way."),
    ] = None,
    reply_id: Annotated[
        str | None,
        typer.Option(help="The reply's id: the same again with the same content is sent once."),
    ] = None,
    cursor: Cursor = None,
    no_compress: NoCompress = False,
    wait: Wait = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Answer a message and print the reply's id.

    The reply refers to the message, goes to its sender and is of its conversation. In a two-way
    exchange a message has one reply.

    Example: postroad inbox reply price-17@buyer.example --payload price.xml
    """
    with node(config, url, token) as client:
        submitted(
            client,
            lambda **given: client.reply(
                message_id, pmode=pmode, reply_id=reply_id, cursor=cursor, **given
            ),
            payload,
            property_,
            no_compress,
            wait,
            as_json,
        )


@app.command()
def release(
    message_id: MessageId,
    cursor: Cursor = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Deliver a message that is held until those before it in its conversation come.

    They are waited for no longer; what is held up by nothing else follows.

    Example: postroad inbox release order-4713@buyer.example
    """
    with node(config, url, token) as client:
        message = client.release(message_id, cursor=cursor)
    if as_json:
        print_json(as_data(message))
    else:
        typer.echo(f"{plain(message_id)} {message.state}")


@app.command()
def fragments(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the messages that come in fragments and are not whole yet: how far each is.

    Example: postroad inbox fragments
    """
    with node(config, url, token) as client:
        found = client.arriving(limit)
    if as_json:
        print_json([as_data(one) for one in found])
        return
    print_table(
        ("GROUP", "FROM", "FRAGMENTS", "HERE", "OF", "GIVEN UP"),
        [
            (
                one.group_id,
                one.from_party,
                f"{one.arrived} of {one.fragments or '?'}",
                size(one.arrived_bytes),
                "?" if one.bytes is None else size(one.bytes),
                "" if one.until is None else moment(one.until),
            )
            for one in found
        ],
    )


@app.command()
def notices(
    ack: Annotated[
        list[int] | None,
        typer.Option("--ack", metavar="ID", min=1, help="Say that this one is known. Repeatable."),
    ] = None,
    ack_all: Annotated[
        bool, typer.Option("--ack-all", help="Say that all are known that are listed.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="How many at most; 100, all with --ack-all.", show_default=False),
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List what became of messages that were sent: failed, in doubt, suspended, settled.

    For an application without a webhook. A notice stays until it is acknowledged.

    Examples:

      postroad inbox notices --json

      postroad inbox notices --ack 12 --ack 13
    """
    if ack and ack_all:
        fail("give either --ack or --ack-all")
    with node(config, url, token) as client:
        if ack:
            for number in ack:
                client.ack_notice(number)
                typer.echo(f"notice {number} acknowledged")
            return
        most = limit or (None if ack_all else 100)
        found = list(itertools.islice(client.notices(limit=min(most or 1000, 1000)), most))
        _show_notices(found, as_json)
        for notice in found if ack_all else ():
            _acknowledge(client, notice)


def _show_notices(found: list[Notice], as_json: bool) -> None:
    if as_json:
        print_json([as_data(one) for one in found])
        return
    rows = [
        (
            str(one.id),
            moment(one.at),
            state(one.state),
            one.severity or "",
            one.message_id,
            " ".join(filter(None, (one.error_code, one.detail))),
        )
        for one in found
    ]
    print_table(("notice", "time", "state", "kind", "message", "why"), rows)


def _acknowledge(client: Client, notice: Notice) -> None:
    """Somebody else may have been quicker."""
    try:
        client.ack_notice(notice.id)
    except ApiError as error:
        if error.status != 404:
            raise
