"""Which node a command talks to: the options for it, and the connection that comes of them."""

import os
import shlex
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.api.client import ApiError, Client
from postroad.api.serving import read_serving
from postroad.cli.problems import fail
from postroad.node.settings.config import Config, ConfigError, load_config
from postroad.node.settings.keyring import load_tls

DEFAULT_FILE: Final = Path("postroad.yaml")

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The node's file; else $POSTROAD_CONFIG or ./postroad.yaml.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The node's REST interface instead of a file; else $POSTROAD_URL.",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="Its token; better in $POSTROAD_TOKEN, where others cannot see it.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message id.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor",
        metavar="NUMBER",
        help="The cursor of the message, where several senders sent one under this id.",
        show_default=False,
    ),
]
SideName = Annotated[
    str | None,
    typer.Option(
        "--side",
        metavar="SIDE",
        help="sending, receiving or forwarding, where this node has several.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class _Where:
    """A node to be talked to."""

    url: str
    token: str | None
    verify: ssl.SSLContext | bool
    start: str
    """The command that starts it."""


@contextmanager
def node(config: Path | None, url: str | None, token: str | None) -> Iterator[Client]:
    """The node that the options name; what it refuses is told in one line."""
    where = _where(config, url, token)
    _check(where)
    with Client(where.url, token=where.token, verify=where.verify, retries=1) as client:
        try:
            yield client
        except ApiError as error:
            if is_away(error):
                fail(f"no node answers at {where.url}; start it with: {where.start}", code=1)
            fail(_told(error), code=1)


def config_path(file: Path | None) -> Path:
    """Return the node's file: what the option says, or the environment, or the usual name."""
    return file or Path(os.environ.get("POSTROAD_CONFIG") or DEFAULT_FILE)


def read_config(path: Path) -> Config:
    """Read the node's file; what is wrong with it ends the command, in one line for each."""
    try:
        return load_config(path)
    except ConfigError as error:
        for line in str(error).splitlines():
            typer.echo(f"postroad: {line}", err=True)
        raise typer.Exit(2) from None


def _check(where: _Where) -> None:
    """Refuse an address or a token that no request can hold."""
    try:
        httpx.URL(where.url)
    except (httpx.InvalidURL, UnicodeError) as error:
        fail(
            f"{where.url!r} is no address of a node ({error}). Write it like http://127.0.0.1:8080"
        )
    if where.token is not None and not (where.token.isascii() and where.token.isprintable()):
        fail("The token has characters that no HTTP header can hold. Check $POSTROAD_TOKEN.")


def is_away(error: ApiError) -> bool:
    """Whether nobody answers; who is not believed does answer."""
    cause = error.__cause__
    return isinstance(cause, httpx.TransportError) and "certificate" not in str(cause).lower()


def _told(error: ApiError) -> str:
    detail = " ".join(error.detail.split())
    if error.status == 401:
        return f"{detail} Give it with --token or $POSTROAD_TOKEN."
    return f"{error.code} {detail}" if error.code else detail


def _where(file: Path | None, url: str | None, token: str | None) -> _Where:
    """What is said on the command line counts more than the environment."""
    environment = os.environ
    token = token or environment.get("POSTROAD_TOKEN")
    if url is None and file is None:
        url = environment.get("POSTROAD_URL")
    if url is not None and file is None:
        return _Where(url, token, True, "postroad serve -c FILE")
    path = config_path(file)
    if file is None and not path.exists():
        fail(f"there is no {path}; name the node's file with -c FILE, or its address with --url")
    config = read_config(path)
    start = f"postroad serve -c {shlex.quote(str(path))}"
    found = url or _address(config)
    if found is None:
        fail(f"no node answers; start it with: {start}", code=1)
    return _Where(found, token or _token(config), _trust(config, found), start)


def _address(config: Config) -> str | None:
    if config.public_url is not None:
        return config.public_url
    told = read_serving(config.data)
    return (told and told.api_url) or config.api_url


def _token(config: Config) -> str | None:
    file = config.token_file
    if file is None or (config.api.token_file is None and not file.exists()):
        return None
    try:
        return file.read_text(encoding="utf-8-sig").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"the token in {file} cannot be read ({error}); give it with $POSTROAD_TOKEN")


def _trust(config: Config, url: str) -> ssl.SSLContext | bool:
    """Of the node's own door its very certificate is believed, of others the usual authorities."""
    if not url.startswith("https:") or config.public_url is not None:
        return True
    try:
        identities = load_tls(config)
    except ConfigError:
        return True
    # Behind those of the listeners there may be that of mail.
    doors = zip(config.listen, identities, strict=False)
    shown = [one.pair.certificate for door, one in doors if one and "api" in door.serve]
    if not shown:
        return True
    believed = b"".join(one.public_bytes(Encoding.PEM) for one in shown)
    context = ssl.create_default_context(cadata=believed.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
