"""`postroad pipeline reconcile`: what both sides' journals say, and the end of doubt."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroad.api.client import Client
from postroad.cli.lake_options import Format, LakeUrl, Master, Memory, Remote, opened_lake
from postroad.cli.node_options import ConfigFile, Token, node
from postroad.cli.problems import fail
from postroad.cli.showing import moment, print_table

if TYPE_CHECKING:
    from postroad.pipeline.reconciling import Reconciled
    from postroad.pipeline.settling import Plan, Question, Said, Settlement

_TROUBLE = ("twice", "lost", "ghost", "in_doubt")


def reconcile(
    lake: LakeUrl = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="CLASS",
            help="Show messages of this class: twice, lost, ghost, in_doubt, refused, "
            "failed, pending, confirmed; else the first four. Repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=100_000, help="How many messages to show, or to settle.")
    ] = 100,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="Find out what became of messages in doubt, and tell the node."
        ),
    ] = False,
    partner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY=URL",
            help="Where to ask a partner: the REST interface of its node. Repeatable.",
        ),
    ] = None,
    partner_token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PARTY=]TOKEN",
            envvar="POSTROAD_PARTNER_TOKEN",
            help="A partner's token, or that of all; better in $POSTROAD_PARTNER_TOKEN, with "
            "blanks between several.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    url: Annotated[
        str | None,
        typer.Option("--node", metavar="URL", help="The own node's REST interface, for --settle."),
    ] = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    format: Format = "parquet",
    master: Master = None,
    remote: Remote = None,
    memory: Memory = None,
) -> None:
    """Tell what became of every message, by the journals of both sides.

    With --settle: what the receiver's journal tells, else what the partner says when asked, is
    written down at the sender's node. Exit code 1 when some doubt is left then.
    """
    if lake is None:
        fail("say with --lake where the tables are")
    wanted = _wanted(classes)
    partners = _partners(partner or [])
    from postroad.pipeline.reconciling import counts, questions, rows

    with opened_lake(lake, format, master, remote, memory) as opened:
        found = counts(opened)
        if not any(found.values()):
            fail(f"there is no reconciliation in {lake} yet: run postroad pipeline run first")
        shown = rows(opened, wanted, limit) if limit else []
        asked = questions(opened, limit) if settle and limit else []
    plan: Plan | None = None
    refused: dict[str, str] = {}
    if settle:
        with node(config, url, token) as own:
            plan, refused = _settled(own, asked, partners, partner_token or [])
    if as_json:
        typer.echo(json.dumps(_facts(found, shown, plan, refused), indent=2))
    else:
        _show(found, shown, wanted)
        if plan is not None:
            _show_plan(plan, refused)
    raise typer.Exit(1 if plan is not None and plan.open else 0)


def _wanted(classes: list[str] | None) -> Sequence[str]:
    from postroad.pipeline.reconciling import CLASSES

    for name in classes or ():
        if name not in CLASSES:
            fail(f"there is no class {name}: take of {', '.join(CLASSES)}")
    return classes or _TROUBLE


def _partners(given: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in given:
        party, _, url = one.rpartition("=http")
        if not party:
            fail(f"{one!r} is not of the form PARTY=URL")
        found.setdefault(party, []).append(f"http{url}")
    return found


def _settled(
    own: Client,
    asked: "Sequence[Question]",
    partners: dict[str, list[str]],
    tokens: list[str],
) -> "tuple[Plan, dict[str, str]]":
    """Ask, decide, write down; what the node did not take, and why."""
    from postroad.pipeline.asking import tell
    from postroad.pipeline.settling import settle

    party = own.node().party
    ours = [one for one in asked if one.party == party]
    plan = settle(ours, _said(own, ours, partners, tokens))
    refused = {}
    for settlement in plan.settlements:
        why = tell(own, settlement)
        if why is not None:
            refused[settlement.message_id] = why
    return plan, refused


def _said(
    own: Client, asked: "Sequence[Question]", partners: dict[str, list[str]], tokens: list[str]
) -> "dict[str, list[Said]]":
    """What partners say of those that no journal settles: over REST, else by their protocol."""
    from postroad.pipeline.asking import ask
    from postroad.pipeline.asking_protocol import ask_by_protocol
    from postroad.pipeline.settling import by_journal

    now, said = datetime.now(UTC), {}
    with ExitStack() as opened:
        clients = {
            party: [
                opened.enter_context(Client(url, token=_token(party, tokens), retries=1))
                for url in urls
            ]
            for party, urls in partners.items()
        }
        for one in asked:
            if by_journal(one) is None and one.partner is not None:
                those = clients.get(one.partner, [])
                said[one.message_id] = [ask(client, one.partner, one, now) for client in those]
                if not those and (told := ask_by_protocol(own, one.partner, one, now)):
                    said[one.message_id] = [told]
    return said


def _token(party: str, tokens: list[str]) -> str | None:
    """The token for a partner: the one that names it, else one that names nobody."""
    own = [one.removeprefix(f"{party}=") for one in tokens if one.startswith(f"{party}=")]
    common = [one for one in tokens if "=" not in one.rstrip("=")]
    return next(iter(own + common), None)


def _facts(
    found: dict[str, int],
    shown: "Sequence[Reconciled]",
    plan: "Plan | None",
    refused: dict[str, str],
) -> dict[str, Any]:
    messages = []
    for one in shown:
        facts = msgspec.to_builtins(one)
        messages.append({name.rstrip("_"): value for name, value in facts.items()})
    told: dict[str, Any] = {"classes": found, "messages": messages}
    if plan is not None:
        told["settled"] = [
            msgspec.to_builtins(one) for one in plan.settlements if one.message_id not in refused
        ]
        told["refused"] = refused
        told["open"] = [msgspec.to_builtins(one) for one in plan.open]
    return told


def _show(found: dict[str, int], shown: "Sequence[Reconciled]", wanted: Sequence[str]) -> None:
    print_table(("class", "messages"), [(name, str(count)) for name, count in found.items()])
    if shown:
        heads = ("message", "class", "sender", "receiver", "since", "why")
        print_table(heads, [_row(one) for one in shown])
    rest = sum(found[name] for name in wanted) - len(shown)
    if rest > 0:
        typer.echo(f"and {rest} more; say --limit to see them")


def _row(one: "Reconciled") -> tuple[str, ...]:
    sender, receiver = one.sender_outcome or "", one.receiver_outcome or ""
    return one.message_id, one.class_, sender, receiver, moment(one.first_at), one.detail or ""


def _show_plan(plan: "Plan", refused: dict[str, str]) -> None:
    for one in plan.settlements:
        typer.echo(_line(one, refused.get(one.message_id)))
    for left in plan.open:
        typer.echo(f"{left.message_id} is still open: {left.why}")
    if not plan.settlements and not plan.open:
        typer.echo("there is nothing to settle")


def _line(one: "Settlement", refused: str | None) -> str:
    if refused is not None:
        return f"{one.message_id} is not settled: {refused}"
    return f"{one.message_id} is settled as {one.answer}, by {one.who}: {one.why}"
