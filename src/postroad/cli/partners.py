"""Partners on the command line: partners, suspend, resume."""

import shlex
from typing import Annotated

import typer
from rich.text import Text

from postroad.api.client import ApiError, Partner
from postroad.api.client_values import PartnerAddress
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
    """List partners with whom not all is well, by address: paused, suspended, or not reached.

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
    heads = ("partner", "address", "gate", "failures", "since", "tried again", "why")
    print_table(heads, [row for one in found for row in _rows(one)])


def _rows(partner: Partner) -> list[tuple[str | Text, ...]]:
    """A row for each address, and one for the party where it is stopped as a whole."""
    rows = [_row(partner.name, one.address, one) for one in partner.addresses]
    if partner.gate == "suspended" or not rows:
        rows.insert(0, _row(partner.name, "", partner))
    return rows


def _row(name: str, address: str, standing: Partner | PartnerAddress) -> tuple[str | Text, ...]:
    return (
        name,
        address,
        state(standing.gate),
        str(standing.failures),
        moment(standing.since) if standing.since else "",
        moment(standing.until) if standing.until else "",
        standing.detail or "",
    )


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
