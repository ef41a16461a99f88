"""Partners on the command line: partners, suspend, resume."""

import shlex
from typing import Annotated

import typer

from postroad.api.client import ApiError
from postroad.cli.node_options import ConfigFile, Json, Token, Url, node
from postroad.cli.problems import fail
from postroad.cli.showing import as_data, moment, plain, print_json, print_table, state

PartnerName = Annotated[
    str, typer.Argument(metavar="PARTNER", help="The party, as a message's `to` has it.")
]


def partners(
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List partners with whom not all is well: paused, suspended, or not reached.

    Example: postroad partners
    """
    with node(config, url, token) as client:
        found = client.partners()
    if as_json:
        print_json([as_data(one) for one in found])
        return
    if not found:
        typer.echo("all partners are served")
        return
    heads = ("partner", "gate", "failures", "since", "tried again", "why")
    rows = [
        (
            one.name,
            state(one.gate),
            str(one.failures),
            moment(one.since) if one.since else "",
            moment(one.until) if one.until else "",
            one.detail or "",
        )
        for one in found
    ]
    print_table(heads, rows)


def suspend(
    partner: PartnerName,
    reason: Annotated[
        str | None, typer.Option(help="Why; it is told to whoever asks.", show_default=False)
    ] = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Send nothing to a partner until it is resumed; what is submitted meanwhile waits.

    Example: postroad suspend urn:example:seller --reason "maintenance until noon"
    """
    with node(config, url, token) as client:
        found = client.suspend(partner, reason)
    if as_json:
        print_json(as_data(found))
        return
    name = shlex.quote(plain(partner))
    typer.echo(f"{plain(partner)} is suspended; go on with: postroad resume {name}")


def resume(
    partner: PartnerName,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Serve a partner again that is paused or suspended; what waits for it and is due is sent.

    Example: postroad resume urn:example:seller
    """
    with node(config, url, token) as client:
        try:
            count = client.resume(partner)
        except ApiError as error:
            if error.status != 409:
                raise
            fail(f"{plain(error.detail)}; who is not served is told by: postroad partners", code=1)
    if as_json:
        print_json({"partner": partner, "messages": count})
        return
    more = f"; {count} suspended message{' goes' if count == 1 else 's go'} on" if count else ""
    typer.echo(f"{plain(partner)} is served again{more}")
