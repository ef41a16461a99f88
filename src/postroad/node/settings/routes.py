"""The rules of an intermediary from their file, and all that they name beside it."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from postroad.agreement.pmode import Authorization
from postroad.agreement.retrying import retries_by
from postroad.agreement.route_loading import RoutesResult, load_routes
from postroad.agreement.routes import Route, RoutesFile
from postroad.agreement.routing import RoutingTable
from postroad.agreement.waiting import Policy
from postroad.node.settings.agreements import AgreementError
from postroad.node.settings.reloading import Watched
from postroad.reliability.schedule import SIGNALS
from postroad.security.egress import host_of, same_address
from postroad.transport.tls import TlsProfile, profile_from_pmode

_NONE = RoutesFile(routes=())


@dataclass(frozen=True)
class Routing:
    """The rules in force."""

    file: RoutesFile = _NONE
    table: RoutingTable = field(default_factory=RoutingTable)
    folder: Path = Path()
    """What rules name lies relative to it."""

    def may_be_told(self, url: str) -> bool:
        """Whether errors are sent to an address that a message names: not to any host at all."""
        host = host_of(url)
        known = {host_of(one) for one in self._pushed} | {
            one.lower() for one in self.file.reachable
        }
        return bool(host) and host in known

    def pushes_to(self, url: str) -> bool:
        """Whether a rule itself names the address."""
        return any(same_address(url, one) for one in self._pushed)

    @cached_property
    def _pushed(self) -> tuple[str, ...]:
        return tuple(one for rule in self.file.routes for one in rule.to.push or ())

    @cached_property
    def streams(self) -> bool:
        """Whether some rule passes messages on while they come."""
        rules = (one.to for one in self.file.routes)
        return any(to.forward != "store" or to.relay is not None for to in rules)

    def pulled_by(self, username: str) -> tuple["Puller", ...]:
        """The rules whose messages wait for somebody to pull them."""
        return self._pullers.get(username, ())

    @cached_property
    def _pullers(self) -> dict[str, tuple["Puller", ...]]:
        found: dict[str, tuple[Puller, ...]] = {}
        for one in self.file.routes:
            to = one.to.channel
            if to is None:
                continue
            may = [Puller(one, to.authorization)]
            if to.parent is not None:
                may.append(Puller(one, to.parent, from_parent=True))
            for puller in may:
                name = puller.authorization.username
                found[name] = (*found.get(name, ()), puller)
        return found


@dataclass(frozen=True, slots=True)
class Puller:
    """Who may pull messages of a rule."""

    route: Route
    authorization: Authorization
    from_parent: bool = False
    """From the message's own channel instead of its sub-channel. [P2-2.5.4-03]"""

    def place(self, mpc: str) -> str:
        """The channel in which messages wait for a PullRequest that names this one."""
        to = self.route.to.channel
        return to.of(mpc) if self.from_parent and to is not None else mpc


@dataclass(frozen=True, slots=True)
class Road:
    """How messages of a rule go on."""

    addresses: tuple[str, ...]
    """Of the next MSH, in the order in which they are tried."""
    tls: TlsProfile | None
    policy: Policy


def road(route: Route, folder: Path, key_password: str | None = None) -> Road:
    """What is needed to pass messages on by a rule."""
    to = route.to
    policy = SIGNALS if to.retry is None else retries_by(to.retry)
    if to.channel is not None:
        policy = Policy(retries=None, time_to_live=to.channel.keep)
    return Road(
        to.push or to.relay or (),
        profile_from_pmode(to.tls, folder, key_password=key_password),
        policy,
    )


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
