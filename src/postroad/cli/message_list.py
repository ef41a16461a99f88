"""`postroad messages`: a list of messages, with the reasons and how many there are."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from postroad.api.client import Client, Message, Partner, Total
from postroad.cli.node_options import ConfigFile, Json, SideName, Token, Url, node
from postroad.cli.showing import as_data, moment, print_json, print_table, size, state
from postroad.cli.standing import partner_for, partner_in_words, why

_OUTGOING: Final = (
    "submitted, ready, waiting, suspended, sent, acknowledged, failed, expired, in_doubt, settled"
)
_INCOMING: Final = "received, held, delivered, consumed, rejected"


def messages(
    side: SideName = None,
    state_: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only in this state. Repeatable. Outgoing: {_OUTGOING}. Incoming: {_INCOMING}.",
        ),
    ] = None,
    pmode: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those of this P-Mode.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="PARTY", help="Only from this party.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="PARTY", help="Only to this party.")] = None,
    partner: Annotated[
        str | None,
        typer.Option(metavar="PARTY", help="Only those that this party gets, or sent to us."),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Only those with this error code, such as EBMS:0301."),
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List messages, the newest first, with the reason for their state and how many there are.

    Examples:

      postroad messages --side sending --state failed --state in_doubt

      postroad messages --partner urn:example:seller --error EBMS:0301
    """
    asked: dict[str, Any] = {
        "side": side,
        "state": state_,
        "pmode": pmode,
        "from_party": from_,
        "to_party": to,
        "conversation_id": conversation,
        "partner": partner,
        "error_code": error,
    }
    wanted = {name: value for name, value in asked.items() if value}
    with node(config, url, token) as client:
        found = first(client.messages(**wanted), limit)
        if as_json:
            print_json([as_data(one) for one in found])
            return
        # A list that is not full has no more to count.
        total = client.total(**wanted) if len(found) == limit else Total(len(found), more=False)
        partners = _stopped(client, found)
    heads = ("time", "side", "state", "from", "to", "action", "payloads", "id", "why")
    print_table(heads, [_row_with_reason(one, partners) for one in found])
    typer.echo(_of(len(found), total))


def _of(shown: int, total: Total) -> str:
    """How many messages of how many are shown."""
    if not total.more and shown >= total.count:
        return f"{shown:,} message{'' if shown == 1 else 's'}"
    return f"{shown:,} of {'more than ' if total.more else ''}{total.count:,} messages"


def _stopped(client: Client, found: list[Message]) -> Mapping[str, Partner]:
    """The partners that are not served, where one of the messages may wait for them."""
    if not any(_waits(one) for one in found):
        return {}
    return {one.name: one for one in client.partners() if one.gate != "flowing"}


def _waits(message: Message) -> bool:
    return message.side == "sending" and not message.settled


def _row_with_reason(message: Message, partners: Mapping[str, Partner]) -> tuple[Any, ...]:
    time, *rest = _row(message)
    return time, message.side, *rest, _reason(message, partners)


def _reason(message: Message, partners: Mapping[str, Partner]) -> str:
    """Why a message failed, was refused, or waits."""
    found = partners.get(message.to_party or "") if _waits(message) else None
    partner = None if found is None else partner_for(found, message)
    if partner is not None and partner.gate != "flowing":
        return f"the partner is {partner_in_words(partner)}"
    return why(message)


def show_messages(found: list[Message], as_json: bool) -> None:
    """A list of messages."""
    if as_json:
        print_json([as_data(one) for one in found])
        return
    heads = ("time", "state", "from", "to", "action", "payloads", "id")
    print_table(heads, [_row(one) for one in found])


def first(found: Iterator[Message], limit: int) -> list[Message]:
    """Not more than so many, and no page more than is needed for them."""
    return [one for one, _ in zip(found, range(limit), strict=False)]


def _row(message: Message) -> tuple[Any, ...]:
    many = len(message.parts)
    return (
        moment(message.created_at),
        state(message.state),
        _short(message.from_party),
        _short(message.to_party),
        message.action or "",
        f"{many} ({size(message.bytes)})",
        message.message_id,
    )


def _short(party: str | None) -> str:
    return (party or "").rpartition("::")[2]
