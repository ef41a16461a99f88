"""The journal on the command line: ship, verify, export, retire."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from postroad.cli.node_options import ConfigFile, Json, config_path, read_config
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_json, size
from postroad.node.settings.can_ship import can_ship
from postroad.node.settings.config import Config

if TYPE_CHECKING:
    from postroad.store.chain import Finding, Verified
    from postroad.store.interface import Store
    from postroad.store.records import Recorded
    from postroad.store.segments import WrittenSegment
    from postroad.store.shipping import Shipper

app = typer.Typer(
    name="journal",
    help="The journal as Parquet segments: ship it, verify it, export it for a partner.",
    no_args_is_help=True,
)

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder or URL of the segments.")]
Time = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"],
        help="A time, UTC.",
        show_default=False,
    ),
]


@app.command()
def ship(
    config: ConfigFile = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Folder or URL; else journal.ship_to.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Ship what is in the journal and was not shipped yet, also while the node runs.

    Each place has the whole journal, in a chain of its own. Nothing is shipped twice to one place.

    Examples:

      postroad journal ship -c buyer/postroad.yaml

      postroad journal ship --to s3://lake/journal
    """
    _require_libraries()
    node = _node(config)
    target = _target(to) if to is not None else node.journal.ship_to
    if target is None:
        fail(
            f"{plain(str(config_path(config)))} does not set journal.ship_to. Set it to a folder"
            " or URL, for example journal: {ship_to: journal}, or name one with --to"
        )
    _tell(all_shipped(node, target), as_json, target, "shipped")


@app.command()
def export(
    partner: Annotated[
        str, typer.Option(metavar="PARTY", help="The partner, as messages have it: type::value.")
    ],
    to: Annotated[str, typer.Option(metavar="FOLDER", help="Folder or URL for the export.")],
    config: ConfigFile = None,
    since: Time = None,
    until: Time = None,
    as_json: Json = False,
) -> None:
    """Write the journal as a partner may see it, so that the partner can reconcile with it.

    Messages from and for the partner are told. All other events are there as heartbeats, which say
    nothing but that no event is missing. Again into the same folder adds what is new.

    Example: postroad journal export --partner urn:example:seller --to for-seller
    """
    _require_libraries()
    node = _node(config)
    target = _target(to)
    messages = 0

    def made(store: "Store") -> "Shipper":
        from postroad.store.exporting import seen_by
        from postroad.store.shipping import Shipper

        seen = seen_by(partner)

        def view(one: "Recorded") -> "Recorded":
            nonlocal messages
            shown = seen(one)
            messages += shown.event.message_id is not None
            return shown

        return Shipper(
            store,
            target,
            size=node.journal.segment_size,
            folder=node.data,
            key=f"{target} for {partner}",
            view=view,
            until=_utc(until),
        )

    segments = _shipped(node, made, since=_utc(since))
    if segments and not messages:
        typer.echo(f"postroad: none of these events is about {plain(partner)}", err=True)
    _tell(segments, as_json, target, "exported")


@app.command()
def forget(
    to: Annotated[str, typer.Option(metavar="URL", help="Folder or URL that was shipped to.")],
    partner: Annotated[
        str | None,
        typer.Option(metavar="PARTY", help="Of an export: the partner.", show_default=False),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Give up a place that was shipped or exported to: old events are kept for it no longer.

    The files there stay. Shipping to it again begins with the oldest event that there still is.

    Example: postroad journal forget --to s3://old-lake/journal
    """
    node = _node(config)
    target = _target(to)
    key = target if partner is None else f"{target} for {partner}"

    async def step(store: "Store") -> tuple[bool, list[str]]:
        gone = await store.run(lambda tx: tx.forget_shipped(key))
        known = await store.look(lambda reader: reader.shipped_positions())
        return gone, [one.target for one in known]

    gone, known = _with_store(node, step)
    if not gone:
        there = "; ".join(map(plain, known)) or "none"
        fail(f"nothing was shipped to {plain(key)}. The places that are known: {there}", code=1)
    typer.echo(f"{plain(key)} is forgotten")


@app.command()
def verify(
    folder: Folder,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Read all segments below a folder and follow their chain.

    A segment that is missing, was altered or cut off, or does not belong there is found, and the
    exit code is 1. Of the last segment of a chain only the node knows whether it is the right one:
    with -c FILE it is asked.

    Example: postroad journal verify journal
    """
    _require_libraries()
    from postroad.store.chain import verify as verified

    target = _target(folder)
    with _progress("verifying") as moved, _target_problems(target):
        noted = None
        if config is not None:
            node = _node(config)
            noted = _with_store(node, lambda store: store.look(lambda one: one.shipped(target)))
        found = verified(target, shipped=noted, told=moved)
    if not found.segments and not found.findings:
        fail(f"there are no segments below {plain(target)}", code=2)
    if as_json:
        print_json({**asdict(found), "findings": [asdict(one) for one in found.findings]})
    else:
        _show(found)
    raise typer.Exit(1 if found.findings else 0)


@app.command()
def retire(
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Take a node out of service for good: its journal says that nothing more will come.

    Stop the node first, and do not start it again. What is left of its journal is shipped where
    the file says where to.

    Example: postroad journal retire -c old/postroad.yaml
    """
    from postroad.api.serving import ServeError, only_one
    from postroad.store.records import Event

    node = _node(config)
    if node.journal.ship_to is not None:
        _require_libraries()
    try:
        lock = only_one(node)
    except ServeError as error:
        fail(f"the node runs: {error}", code=1)
    event = Event(datetime.now(UTC), node.party_name, "heartbeat", detail="retired")

    async def step(store: "Store") -> int:
        await store.run(lambda tx: tx.record((event,)))
        await store.mark()
        return (await store.look(lambda reader: reader.figures())).last_seq

    try:
        last = _with_store(node, step)
        if node.journal.ship_to is not None:
            all_shipped(node, node.journal.ship_to)
    finally:
        lock.close()
    if as_json:
        print_json({"node": node.node, "last_seq": last, "shipped_to": node.journal.ship_to})
    else:
        typer.echo(f"{node.node} is retired; the last event of its journal is {last}")


def _node(file: Path | None) -> Config:
    config = read_config(config_path(file))
    if not (config.data / "postroad.db").exists():
        fail(f"there is no journal in {config.data} yet; start the node first", code=1)
    return config


def _target(text: str) -> str:
    return text.rstrip("/") if "://" in text else str(Path(text).resolve())


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)


def _with_store(config: Config, ask: "Callable[[Store], Any]") -> Any:
    """What comes of something that is done with the node's store."""
    from postroad.store.interface import StoreError
    from postroad.store.sqlite import open_sqlite

    async def main() -> Any:
        store = await open_sqlite(config.data, config.node)
        try:
            return await ask(store)
        finally:
            await store.close()

    try:
        return asyncio.run(main())
    except StoreError as error:
        fail(str(error), code=1)


def all_shipped(config: Config, target: str) -> "list[WrittenSegment]":
    """Ship what was not shipped to a place yet."""

    def made(store: "Store") -> "Shipper":
        from postroad.store.shipping import Shipper

        return Shipper(store, target, size=config.journal.segment_size, folder=config.data)

    return _shipped(config, made)


def _require_libraries() -> None:
    """End the command with one sentence where the libraries for segments are missing."""
    if not can_ship():
        fail("pyarrow and fsspec are missing. Install them with: pip install 'postroad[lake]'")


def _shipped(
    config: Config, made: "Callable[[Store], Shipper]", since: datetime | None = None
) -> "list[WrittenSegment]":
    """Ship everything, with a progress display; the segments."""
    from postroad.store.shipping import ShippingError

    segments: list[WrittenSegment] = []

    async def step(store: "Store") -> None:
        shipper = made(store)
        try:
            if since is not None:
                await shipper.begin_at(since)
            total, done = await shipper.waiting(), 0

            def told(segment: "WrittenSegment") -> None:
                nonlocal done
                segments.append(segment)
                done += segment.rows
                moved(done, max(total, done))

            moved(0, total)
            await shipper.ship(everything=True, told=told)
        finally:
            shipper.close()

    try:
        with _progress("events") as moved:
            _with_store(config, step)
    except ShippingError as error:
        fail(str(error), code=1)
    return segments


def _tell(segments: "list[WrittenSegment]", as_json: bool, target: str, done: str) -> None:
    events = sum(one.rows for one in segments)
    if as_json:
        shown = [asdict(one) for one in segments]
        print_json({"to": target, "events": events, "segments": shown})
    elif not segments:
        typer.echo(f"nothing is new since it was {done} to {plain(target)}")
    else:
        count = f"{len(segments)} segment{'' if len(segments) == 1 else 's'}"
        weight = size(sum(one.bytes for one in segments))
        typer.echo(f"{events} events {done} to {plain(target)}: {count}, {weight}")


def _show(found: "Verified") -> None:
    for one in found.findings:
        typer.echo(_line(one))
    count = f"{found.segments} segment{'' if found.segments == 1 else 's'}"
    nodes = f"{found.nodes} node{'' if found.nodes == 1 else 's'}"
    told = len(found.findings)
    end = f"{told} finding{'' if told == 1 else 's'}" if told else "the chain is whole"
    typer.echo(f"{count} of {nodes}, {found.events} events: {end}")


def _line(one: "Finding") -> str:
    return f"{one.kind}: {plain(one.subject)}: {plain(one.detail)}"


@contextmanager
def _target_problems(target: str) -> Iterator[None]:
    """What a place says that cannot be read, in one line."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        said = " ".join(str(getattr(error, "strerror", None) or error).split())
        fail(f"{plain(target)} cannot be read: {plain(said)}", code=2)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for people; what calls it says how much is done, of how much."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
