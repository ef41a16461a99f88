"""The rules of an intermediary from their file, and all that they name beside it."""

from dataclasses import dataclass, field
from pathlib import Path

from postroad.agreement.route_loading import RoutesResult, load_routes
from postroad.agreement.routes import RoutesFile
from postroad.agreement.routing import RoutingTable
from postroad.node.agreements import AgreementError
from postroad.node.reloading import Watched

_NONE = RoutesFile(routes=())


@dataclass(frozen=True, slots=True)
class Routing:
    """The rules in force."""

    file: RoutesFile = _NONE
    table: RoutingTable = field(default_factory=RoutingTable)
    folder: Path = Path()
    """What rules name lies relative to it."""


def read_routes(path: Path) -> RoutesResult:
    """Read a file of rules with everything that is wrong; `AgreementError` when there is none."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise AgreementError(f"{path}: {error.strerror or error}") from None
    return load_routes(text, str(path))


def load_routing(path: Path) -> Routing:
    """Rules ready for use; `AgreementError` has a line for each thing that is wrong."""
    found = read_routes(path)
    if not found.ok:
        raise AgreementError("\n".join(map(str, found.errors)))
    table = RoutingTable(found.file.routes, found.file.namespaces)
    return Routing(found.file, table, path.parent)


def watch_routes(path: Path) -> Watched[Routing]:
    """The rules of a file; without it there are none, and the node is no intermediary."""
    return Watched(lambda: (load_routing(path) if path.exists() else Routing(), {path}))
