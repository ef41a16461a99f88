"""Messages on the command line: send, messages, resend, settle, evidence, purge."""

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from typer.core import TyperCommand

from postroad.api.client import Client, Message, Payload, Property, SentMessage, Unit
from postroad.cli.file_names import safe_name
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
from postroad.cli.problems import fail
from postroad.cli.saving import save, writing
from postroad.cli.showing import as_data, plain, print_json
from postroad.cli.standing import has_arrived, in_words, outlook, partner_of, to_do, why
from postroad.cli.waiting import patiently, settled
from postroad.wire.limits import MIB

PATIENCE: Final = 300.0
"""Seconds that --wait waits without a number."""
_OUTGOING: Final = (
    "submitted, ready, waiting, suspended, sent, acknowledged, failed, expired, in_doubt, settled"
)
_INCOMING: Final = "received, held, delivered, consumed, rejected"
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_PART: Final = re.compile(r";(type|name)=([^;]*)$")
_LARGE: Final = 8 * MIB


class Answer(StrEnum):
    """What is said of a message that was given up."""

    DELIVERED = "delivered"
    RECEIVED = "received"
    NOT_RECEIVED = "not_received"


class WaitsByDefault(TyperCommand):
    """`--wait` and `--wait-reply` may stand without their number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        for index, word in enumerate(args):
            given.append(word)
            number = args[index + 1] if index + 1 < len(args) else ""
            if word in ("--wait", "--wait-reply") and not _NUMBER.fullmatch(number):
                given.append(f"{PATIENCE:g}")
        return super().parse_args(ctx, given)


Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="[SECONDS]",
        min=0,
        help=f"Wait until it is acknowledged or given up, {PATIENCE:g} s without a number.",
        show_default=False,
    ),
]


Payloads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE[;type=…][;name=…]",
        help="A payload with its media type and name; - is standard input. Repeatable.",
    ),
]
PropertiesGiven = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="A message property. Repeatable."),
]
NoCompress = Annotated[bool, typer.Option("--no-compress", help="Send payloads uncompressed.")]


def send(
    pmode: Annotated[str, typer.Option(metavar="ID", help="The P-Mode to send with.")],
    payload: Payloads = None,
    property_: PropertiesGiven = None,
    message_id: Annotated[
        str | None,
        typer.Option(help="The message's id: the same again with the same content is sent once."),
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="The conversation's id.")] = None,
    ref_to: Annotated[
        str | None, typer.Option(metavar="ID", help="The message that this one refers to.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="Where the P-Mode leaves it open.")] = None,
    action: Annotated[str | None, typer.Option(help="Where the P-Mode leaves it open.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="To the test service: acknowledged, not delivered.")
    ] = False,
    no_compress: NoCompress = False,
    bundle: Annotated[
        bool,
        typer.Option("--bundle", help="Each payload is a message of its own, all in one envelope."),
    ] = False,
    wait: Wait = None,
    wait_reply: Annotated[
        float | None,
        typer.Option(
            "--wait-reply",
            metavar="[SECONDS]",
            min=0,
            help=f"Wait for the reply and print its id, {PATIENCE:g} s without a number.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR/|FILE", help="Save the reply's payloads."),
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Send a message and print its id; with --bundle several at once, all of them or none.

    With --wait the exit code is 0 only when it has arrived: acknowledged, settled as delivered, or
    sent where no receipt was agreed on. Else one line tells how it stands and what to do next.
    With --wait-reply it is 0 only when the reply is there.

    Examples:

      postroad send --pmode buyer-to-seller-order --payload order.xml --wait

      postroad send --pmode p --payload "a.bin;type=application/pdf;name=a.pdf" --property k=v

      postroad send --pmode prices --payload question.xml --wait-reply 30 -o answers/

      postroad send --pmode catalogue-updates --bundle --payload 1.xml --payload 2.xml --wait
    """
    if output is not None and wait_reply is None:
        fail("-o is for the payloads of the reply: add --wait-reply")
    if bundle and (test or any((message_id, ref_to, wait_reply is not None))):
        fail("--message-id, --ref-to, --test and --wait-reply are of one message: no --bundle then")
    with node(config, url, token) as client:
        if bundle:
            given = {"conversation_id": conversation, "service": service, "action": action}
            sent_bundle(client, pmode, given, payload, property_, no_compress, wait, as_json)
            return
        sent = submitted(
            client,
            lambda **given: client.send(
                pmode=pmode,
                message_id=message_id,
                conversation_id=conversation,
                ref_to_message_id=ref_to,
                service=service,
                action=action,
                test=test,
                **given,
            ),
            payload,
            property_,
            no_compress,
            wait,
            as_json,
        )
        if wait_reply is not None:
            _show_reply(client, sent, wait_reply, output, as_json)


def submitted(
    client: Client,
    submit: Callable[..., SentMessage],
    payload: list[str] | None,
    property_: list[str] | None,
    no_compress: bool,
    wait: float | None,
    as_json: bool,
) -> str:
    """Submit what the options say, show what was taken over, and with `wait` that it arrived.

    The message's id.
    """
    payloads = [_payload(one, False if no_compress else None) for one in payload or ()]
    properties = [_property(one) for one in property_ or ()]
    try:
        with _progress(payloads) as tell:
            sent = submit(payloads=payloads, properties=properties, progress=tell)
    except OSError as error:
        fail(f"{error.filename or 'a payload'}: {error.strerror or error}")
    if not as_json:
        typer.echo(sent.message_id)
    message = sent.message if wait is None else settled(client, sent.message_id, wait)
    if as_json:
        print_json({**as_data(message), "repeated": sent.repeated})
    if wait is not None:
        _must_have_arrived(client, message, wait)
    return sent.message_id


def sent_bundle(
    client: Client,
    pmode: str,
    given: dict[str, str | None],
    payload: list[str] | None,
    property_: list[str] | None,
    no_compress: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    """Submit each payload as a message, all in one envelope, and show what became of them."""
    payloads = [_payload(one, False if no_compress else None) for one in payload or ()]
    properties = [_property(one) for one in property_ or ()]
    if not payloads:
        fail("a bundle has a message for each payload: add --payload FILE")
    units = [Unit(pmode, (one,), properties=properties, **given) for one in payloads]
    try:
        with _progress(payloads) as tell:
            sent = client.send_bundle(units, progress=tell)
    except OSError as error:
        fail(f"{error.filename or 'a payload'}: {error.strerror or error}")
    if not as_json:
        for one in sent:
            typer.echo(one.message_id)
    shown = [one.message for one in sent]
    if wait is not None:
        end = time.monotonic() + wait
        shown = [settled(client, one.message_id, end - time.monotonic()) for one in sent]
    if as_json:
        print_json([as_data(one) for one in shown])
    if wait is not None:
        for message in shown:
            _must_have_arrived(client, message, wait)


def _show_reply(
    client: Client, message_id: str, wait: float, output: str | None, as_json: bool
) -> None:
    """Wait for the reply; its id, or its files."""
    reply = patiently(lambda left: client.wait_reply(message_id, left), wait)
    if reply is None:
        name = plain(message_id)
        message = client.status(message_id)
        if message.state in ("failed", "expired"):
            _must_have_arrived(client, message, wait)
        if message.no_reply is not None:
            fail(f"no reply to {name} will come: {plain(message.no_reply)}", code=1)
        look = f"look again with: postroad status {shlex.quote(name)}"
        fail(f"no reply to {name} came in {wait:g} s; {look}", code=1)
    saved = save(client, reply, output) if output is not None else []
    if as_json:
        print_json({**as_data(reply), "files": [str(path) for path, _ in saved]})
        return
    typer.echo(reply.message_id)
    for path, _ in saved:
        typer.echo(path)


def evidence(
    message_id: MessageId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else evidence-ID.zip."),
    ] = None,
    side: SideName = None,
    cursor: Cursor = None,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Save the proof of a message: a zip with message, receipt, certificates and verdict.

    Example: postroad evidence order-4711@buyer.example -o order-4711.zip
    """
    path = output or Path(safe_name(f"evidence-{message_id}.zip", "evidence.zip"))
    with node(config, url, token) as client, writing(path):
        client.evidence_to(message_id, path, side=side, cursor=cursor)
    typer.echo(path)


def resend(
    message_id: MessageId,
    wait: Wait = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Send a message again that failed, is in doubt or waits: under its id, with all its retries.

    Example: postroad resend order-4711@buyer.example --wait
    """
    with node(config, url, token) as client:
        message = client.resend(message_id)
        if wait is not None:
            message = settled(client, message_id, wait)
        if as_json:
            print_json(as_data(message))
        else:
            typer.echo(f"{plain(message_id)} {message.state}")
        if wait is not None:
            _must_have_arrived(client, message, wait)


def settle(
    message_id: MessageId,
    answer: Annotated[
        Answer,
        typer.Option(
            help="What became of it: the partner's application has it, the partner has it, or not."
        ),
    ],
    who: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who says so, for the journal; else operator."),
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Note what became of a message that failed, expired or is in doubt, so that the doubt ends.

    Example: postroad settle order-4711@buyer.example --answer delivered --who urn:example:seller
    """
    with node(config, url, token) as client:
        message = client.settle(message_id, answer.value, who)
    if as_json:
        print_json(as_data(message))
    else:
        typer.echo(f"{plain(message_id)} {message.state}: {in_words(message)}")


def purge(
    days: Annotated[
        float | None,
        typer.Option(
            min=0, max=36_500, help="What is settled for longer; else as the node's file says."
        ),
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove messages and payloads past their retention now; the journal stays.

    Example: postroad purge --days 30
    """
    with node(config, url, token) as client:
        count = client.purge(days)
    if as_json:
        print_json({"purged": count})
    else:
        typer.echo(f"{count} message{'' if count == 1 else 's'} removed")


def _must_have_arrived(client: Client, message: Message, wait: float) -> None:
    """Else one line: how it stands, why, and what is to be done."""
    if has_arrived(message):
        return
    name = plain(message.message_id)
    if not message.settled:
        partner = partner_of(client, message)
        coming = outlook(message, partner)
        said = f"{name} is {message.state} after {wait:g} s{f', {coming}' if coming else ''}"
        look = f"look again with: postroad status {shlex.quote(name)}"
        fail(f"{said}; {to_do(message, partner) or look}", code=1)
    kind = f" ({message.severity})" if message.severity else ""
    words = "; ".join(filter(None, (plain(why(message)) or in_words(message), to_do(message))))
    fail(f"{name} is {message.state.replace('_', ' ')}{kind}: {words}", code=1)


def _payload(given: str, compress: bool | None) -> Payload:
    options: dict[str, str] = {}
    while found := _PART.search(given):
        options[found[1]] = found[2]
        given = given[: found.start()]
    content: Any = sys.stdin.buffer if given == "-" else Path(given)
    if given != "-" and not content.is_file():
        fail(f"{given}: there is no such file")
    return Payload(content, options.get("type"), options.get("name"), compress=compress)


def _property(given: str) -> Property:
    name, equals, value = given.partition("=")
    if not equals or not name:
        fail(f"{given!r} is no property; write NAME=VALUE")
    return Property(name, value)


@contextmanager
def _progress(payloads: list[Payload]) -> Iterator[Callable[[int, int], None] | None]:
    """A bar with rate and time left, for large files and where somebody looks."""
    console = Console(stderr=True)
    files = [one.content for one in payloads if isinstance(one.content, Path)]
    if not console.is_terminal or sum(one.stat().st_size for one in files) < _LARGE:
        yield None
        return
    columns = (
        TextColumn("sending"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)
