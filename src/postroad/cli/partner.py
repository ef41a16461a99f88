"""`postroad partner`: a new partner from its facts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from postroad.cli.node_options import ConfigFile, Json, config_path, read_config
from postroad.cli.own_key import own_keyring
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_facts, print_json
from postroad.node.first_steps.key_facts import fingerprint
from postroad.node.first_steps.key_store import KeyFileError
from postroad.node.first_steps.partner import (
    Facts,
    NewPartner,
    PartnerError,
    Protocol,
    plan_partner,
)
from postroad.node.settings.config import Config, ConfigError
from postroad.node.settings.config_groups import is_loopback, is_name
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE

_ROLES: Final = f"{INITIATOR_ROLE} when we send, {RESPONDER_ROLE} when we receive"

app = typer.Typer(help="Add a partner.", no_args_is_help=True)


@app.callback()
def _partner() -> None:
    """Add a partner."""


@app.command()
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A short name; files and P-Modes have it.")
    ],
    party: Annotated[
        list[str],
        typer.Option(metavar="[TYPE::]ID", help="A party id of the partner. Repeatable."),
    ],
    url: Annotated[str, typer.Option(metavar="URL", help="Where the partner receives messages.")],
    certificate: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The certificate that the partner signs and decrypts with."
        ),
    ],
    service: Annotated[str, typer.Option(metavar="[TYPE::]NAME", help="The service agreed on.")],
    send: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION", help="Messages that you send. Repeatable.", show_default=False
        ),
    ] = None,
    receive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION",
            help="Messages that the partner sends. Repeatable.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="The partner's role; for AS4 else the default role of its side.",
            show_default=False,
        ),
    ] = None,
    our_role: Annotated[
        str | None, typer.Option(help="Your own role, likewise.", show_default=False)
    ] = None,
    agreement: Annotated[
        str | None,
        typer.Option(
            metavar="[TYPE::]REF", help="The agreement; for ebXML the CPAId.", show_default=False
        ),
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="What the partner speaks.")] = Protocol.AS4,
    encryption: Annotated[
        bool,
        typer.Option("--encryption/--no-encryption", help="Whether AS4 payloads are encrypted."),
    ] = True,
    encryption_certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The certificate that it decrypts with, if that is another one.",
            show_default=False,
        ),
    ] = None,
    tls_authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificates that the partner's TLS server leads to; else public authorities.",
            show_default=False,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your key with the certificate that its TLS server wants to see.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print everything, write nothing.")
    ] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Write the P-Modes for a partner, pin its certificate, and print what it has to configure.

    The P-Modes are checked like postroad pmode check does. Nothing that is there is replaced. A
    node that runs takes them over within seconds.

    Examples:

      postroad partner add globex --party urn:example:globex --url https://msh.globex.example/as4
      --certificate globex.pem --service urn:example:orders --send NewOrder --receive OrderStatus

      postroad partner add globex --party urn:duns::123456789 --url https://globex.example/ebxml
      --certificate globex.pem --service Orders --send NewOrder --agreement cpa-17
      --protocol ebxml-2.0 --dry-run
    """
    if not is_name(name):
        fail(f"{name!r} is no name of a file. Take letters, digits, dots, dashes and underscores")
    if not send and not receive:
        fail("Nothing is exchanged. Name the actions of messages with --send, --receive, or both")
    file = config_path(config)
    node = read_config(file)
    facts = Facts(
        name,
        tuple(party),
        url,
        certificate,
        service,
        tuple(send or ()),
        tuple(receive or ()),
        role,
        our_role,
        agreement,
        protocol,
        encryption,
        encryption_certificate,
        tls_authority,
        tls_key,
    )
    try:
        planned = plan_partner(facts, node, own_keyring(node), now=datetime.now(UTC))
        if not dry_run:
            planned.write()
    except ConfigError as error:
        fail(plain(str(error).splitlines()[0]))
    except (KeyFileError, PartnerError) as error:
        fail(plain(str(error)), code=1)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}. Choose another folder", code=1)
    ours = _ours(node, facts, planned)
    if as_json:
        print_json(_report(planned, ours, dry_run))
        return
    for warning in (*planned.warnings, *map(str, planned.problems), *_url_warnings(node, facts)):
        typer.echo(f"warning: {plain(warning)}", err=True)
    for path in planned.files:
        typer.echo(f"{'would write' if dry_run else 'wrote'} {path}")
    typer.echo(
        f"\nCompare the fingerprint of {plain(name)}'s certificate with the partner, by phone:"
    )
    typer.echo(f"  SHA-256 {fingerprint(planned.certificate)}")
    typer.echo(f"\nWhat {plain(name)} has to configure:")
    print_facts([(f"  {title}", value) for title, value in ours.items()])
    if facts.sends:
        typer.echo("\nThen see whether it answers:")
        typer.echo(f"  postroad ping {planned.pmodes[0].id} -c {file}")


def _ours(node: Config, facts: Facts, planned: NewPartner) -> dict[str, str]:
    """What the partner has to know of us."""
    as4, own = facts.protocol is Protocol.AS4, planned.own_certificate
    parties = (f"{one.type}::{one.id}" if one.type else one.id for one in node.party)
    return {
        "protocol": "AS4, SOAP 1.2, push" if as4 else f"ebXML {facts.protocol.version}",
        "our URL": node.msh_url or "none: set listen[].public_url",
        "our party id": ", ".join(parties),
        "our role": facts.our_role or (_ROLES if as4 else ""),
        "service": facts.service,
        "it receives": ", ".join(facts.sends),
        "it sends": ", ".join(facts.receives),
        "agreement": facts.agreement or "",
        "our certificate": str(planned.own_file or own.subject.rfc4514_string()),
        "SHA-256": fingerprint(own),
        "signature": "required, SHA-256",
        "encryption": "required, AES-128-GCM" if as4 and facts.encrypts else "none",
        "receipts": "signed, with the HTTP response" if as4 else "signed, synchronous",
    }


def _url_warnings(node: Config, facts: Facts) -> list[str]:
    """What keeps a partner elsewhere from reaching us."""
    door = next((one for one in node.listen if "msh" in one.serve), None)
    if not facts.receives or (door is not None and door.public_url is not None):
        return []
    if door is None:
        return ["no listener serves msh, so the partner cannot send. Add one to listen"]
    if is_loopback(door.host) or door.host in ("0.0.0.0", "::"):
        return ["the partner needs the address of this node. Set listen[].public_url"]
    return []


def _report(planned: NewPartner, ours: dict[str, str], dry_run: bool) -> dict[str, object]:
    return {
        "written": [] if dry_run else [str(path) for path in planned.files],
        "files": [str(path) for path in planned.files],
        "pmodes": [one.id for one in planned.pmodes],
        "certificate_sha256": fingerprint(planned.certificate),
        "warnings": [*planned.warnings, *map(str, planned.problems)],
        "partner_configures": {key: value for key, value in ours.items() if value},
    }
