"""`postroad init`: a folder with everything for a first exchange."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.problems import fail
from postroad.node.first_steps.initializing import InitError, Plan, Station, initialize
from postroad.node.first_steps.profiles import Profile
from postroad.node.settings.can_ship import can_ship


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    party: Annotated[
        str | None, typer.Option(metavar="NAME", help="The party's name; else the folder's.")
    ] = None,
    partner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Make a partner's folder beside it, ready to be talked to."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Where the party listens.")] = 8080,
    partner_port: Annotated[int, typer.Option(help="Where the partner listens.")] = 8081,
    tls: Annotated[
        bool, typer.Option("--with-tls/--no-tls", help="Whether they talk over TLS.")
    ] = False,
    client_certificates: Annotated[
        bool, typer.Option(help="Whether whoever connects over TLS shows a certificate.")
    ] = False,
    profile: Annotated[
        Profile | None,
        typer.Option(
            help="Samples for a conformance profile of AS4. ebhandler: both parties push, and both "
            "collect by pulling. light: the party is a client that only calls out; it pushes, and "
            "collects what is for it, with signatures and receipts. minimal: such a client without "
            "these; it shows a user name. Else signed P-Modes that are pushed, both ways."
        ),
    ] = None,
    unsigned: Annotated[
        bool,
        typer.Option(
            "--unsigned",
            help="Add P-Modes without signatures. Anybody who reaches the node can send what they "
            "take.",
        ),
    ] = False,
    own_keys: Annotated[
        bool,
        typer.Option(
            "--own-keys",
            help="Make only the configuration, for keys of your own (postroad key new) and real "
            "partners (postroad partner add): no development keys, no samples.",
        ),
    ] = False,
    party_id: Annotated[
        str | None,
        typer.Option(
            metavar="[TYPE::]ID",
            help="The party id in messages; else urn:example:NAME.",
            show_default=False,
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where partners reach the node, with its path.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Make a ready configuration, development keys and sample P-Modes.

    Examples:

      postroad init buyer --partner seller

      postroad init acme --own-keys --party-id https://acme.example/party --with-tls
    """
    whole = folder.resolve()
    first = Station(party or whole.name, folder, port, party_id)
    second = None
    if partner is not None:
        beside = folder.parent if folder.name else whole.parent
        second = Station(partner, beside / partner, partner_port)
    plan = Plan(
        first,
        second,
        tls,
        client_certificates,
        profile=profile,
        unsigned=unsigned,
        own_keys=own_keys,
        public_url=public_url,
    )
    try:
        initialize(plan, now=datetime.now(UTC), force=force)
    except InitError as error:
        fail(str(error), code=1)
    typer.echo(next_steps(plan))


def next_steps(plan: Plan) -> str:
    """What to do with the folders, as commands to copy."""
    if plan.own_keys:
        return _own_steps(plan)
    first, second = plan.first, plan.partner or plan.first
    made = " and ".join(str(station.folder) for station in plan.stations)
    here, there = (_quoted(station.folder / "postroad.yaml") for station in (first, second))
    serve = [f"  postroad serve -c {config}" for config in dict.fromkeys((here, there))]
    sample, *_ = plan.samples
    pmode = sample[0].pmode_id(first.name, second.name)
    receipt = "" if sample[0].bare else " and wait for the receipt"
    payload = _quoted(first.folder / "order.xml")
    return "\n".join(
        (
            f"Made {made}: configuration, development keys, sample P-Modes and an order.",
            "",
            "Start both, each in a terminal of its own:" if plan.partner else "Start it:",
            *serve,
            "",
            f"Send an order to {second.name}{receipt}:",
            f"  postroad send -c {here} --pmode {pmode} --payload {payload} --wait",
            "",
            f"See what {second.name} received:",
            f"  postroad inbox list -c {there}",
            *_collecting(plan, here, there),
            *_not_shipped(plan),
        )
    )


def _own_steps(plan: Plan) -> str:
    """What is to be done where a party makes its own keys."""
    config = _quoted(plan.first.folder / "postroad.yaml")
    tls = (
        f"  postroad key new -c {config} --use tls",
        f"  postroad key csr -c {config} --use tls --san HOST",
    )
    return "\n".join(
        (
            f"Made {plan.first.folder}: configuration and the token of the REST interface.",
            "",
            "Make a key, and request a certificate for it:",
            f"  postroad key new -c {config}",
            f'  postroad key csr -c {config} --subject "CN={plan.first.name}"',
            *(tls if plan.tls else ()),
            "",
            "Then add a partner:",
            f"  postroad partner add NAME -c {config} --party ID --url URL --certificate FILE …",
            *_not_shipped(plan),
        )
    )


def _collecting(plan: Plan, here: str, there: str) -> list[str]:
    """How the first party collects, where it does."""
    collected = [one for one in plan.samples if one[0].pulled and one[2] == plan.first]
    if not collected:
        return []
    sample, sender, receiver = collected[0]
    pmode, payload = sample.pmode_id(sender.name, receiver.name), sender.folder / "order.xml"
    return [
        "",
        f"Let {sender.name} put an order aside, and collect it:",
        f"  postroad send -c {there} --pmode {pmode} --payload {_quoted(payload)}",
        f"  postroad pull {pmode} -c {here}",
    ]


def _not_shipped(plan: Plan) -> list[str]:
    """What is missing for the journal to be shipped, where something is."""
    if not plan.ships or can_ship():
        return []
    return [
        "",
        "The journal is not shipped, because pyarrow and fsspec are missing. Install them with:",
        "  pip install 'postroad[lake]'",
        "and remove the # before journal and ship_to in postroad.yaml.",
    ]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
