"""Pulling on the command line."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from postroad.api.client import Client, Pulled
from postroad.api.limits import PAGE
from postroad.cli.node_options import ConfigFile, Json, Token, Url, node
from postroad.cli.problems import fail
from postroad.cli.showing import as_data, plain, print_json


def _item(name: str, metavar: str, what: str) -> Any:
    return typer.Option(name, metavar=metavar, help=f"Only messages with this {what}.")


def pull(
    pmode: Annotated[
        str | None,
        typer.Argument(metavar="[PMODE]", help="The P-Mode to pull with; else all there are."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all/--once", help="All messages that are there, or one.")
    ] = True,
    ref_to: Annotated[str | None, _item("--ref-to", "ID", "RefToMessageId")] = None,
    conversation: Annotated[str | None, _item("--conversation", "ID", "ConversationId")] = None,
    agreement: Annotated[str | None, _item("--agreement", "[TYPE::]REF", "AgreementRef")] = None,
    agreement_pmode: Annotated[
        str | None, _item("--agreement-pmode", "ID", "P-Mode in their AgreementRef")
    ] = None,
    service: Annotated[str | None, _item("--service", "[TYPE::]SERVICE", "service")] = None,
    action: Annotated[str | None, _item("--action", "ACTION", "action")] = None,
    from_party: Annotated[str | None, _item("--from", "[TYPE::]PARTY", "sender")] = None,
    to_party: Annotated[str | None, _item("--to", "[TYPE::]PARTY", "receiver")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Only those with this property."),
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Pull messages from the channels of partners, now.

    They are in the inbox then; receipts and errors that are pulled are shown as the state of the
    message that they are about. What is selected must match exactly. The exit code is 0 also when
    nothing is there, and not 0 when a partner does not answer, or a message is not as agreed.

    Example: postroad pull seller-collects-orders --conversation 4711
    """
    if ref_to is not None and conversation is not None:
        fail("--ref-to and --conversation are not used together: name one of them")
    selection = {
        "ref_to_message_id": ref_to,
        "conversation_id": conversation,
        "agreement": _agreement(agreement, agreement_pmode),
        "service": _typed(service),
        "action": action,
        "from_party": _party(from_party),
        "to_party": _party(to_party),
        "properties": [_property(one) for one in properties or ()] or None,
    }
    named = {name: value for name, value in selection.items() if value is not None}
    with node(config, url, token) as client:
        names = [pmode] if pmode is not None else list(_pulled_here(client))
        if not names:
            fail("no P-Mode of this node pulls: write one with mep_binding: pull", code=1)
        told = [one for name in names for one in _rounds(client, name, everything, named)]
    if as_json:
        print_json([as_data(one) for one in told])
    else:
        _show(told)
    wrong = [f"{one.pmode}: {one.detail}" for one in told if one.detail is not None]
    wrong += [
        f"{each.message_id} was rejected: {each.detail}"
        for one in told
        for each in one.messages
        if each.state == "rejected"
    ]
    if wrong:
        fail(plain(wrong[0]), code=1)


def _rounds(
    client: Client, pmode: str, everything: bool, selection: dict[str, Any]
) -> Iterator[Pulled]:
    """One call, or as many as it takes to leave nothing."""
    most = PAGE if everything else 1
    while True:
        told = client.pull(pmode, most=most, **selection)
        yield told
        full = max(len(told.messages), len(told.answered)) >= most
        if not everything or told.detail is not None or not full:
            return


def _pulled_here(client: Client) -> Iterator[str]:
    for one in client.pmodes():
        if one.pulls:
            yield one.id


def _show(told: list[Pulled]) -> None:
    for one in told:
        for each in (*one.messages, *one.answered):
            typer.echo(f"{plain(each.message_id)} {plain(each.state)}")
    if not any(one.messages or one.answered or one.detail for one in told):
        typer.echo("nothing is there to be pulled", err=True)


def _typed(given: str | None) -> dict[str, str] | None:
    """A value as lists show it: with its type before it, where it has one."""
    if given is None:
        return None
    kind, _, value = given.rpartition("::")
    return {"value": value, "type": kind} if kind else {"value": value}


def _agreement(given: str | None, pmode: str | None) -> dict[str, str] | None:
    """Both, as they stand in the header: where one says its P-Mode, the other must too."""
    typed = _typed(given)
    if typed is None and pmode is not None:
        fail("--agreement-pmode goes with --agreement: name that too")
    return typed if typed is None or pmode is None else typed | {"pmode": pmode}


def _party(given: str | None) -> dict[str, Any] | None:
    typed = _typed(given)
    return None if typed is None else {"party": [typed]}


def _property(given: str) -> dict[str, str]:
    name, found, value = given.partition("=")
    if not (found and name and value):
        fail(f"--property {given!r} is not understood: write NAME=VALUE")
    return {"name": name, "value": value}
