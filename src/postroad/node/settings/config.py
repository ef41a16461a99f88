"""`postroad.yaml`: the node's configuration, and everything that is wrong with it, by line."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from postroad.agreement.addressing import PartyIdentifiers
from postroad.agreement.breach import Breach, Level, warning
from postroad.agreement.explaining import explain, is_consequence
from postroad.agreement.groups import REQUIRED
from postroad.agreement.hints import field_at, hint
from postroad.agreement.loading import PRIVATE, Problem
from postroad.agreement.parameters import Path as Place
from postroad.agreement.source import (
    DEFAULT_LIMITS,
    Mapping,
    Mark,
    Node,
    Plain,
    Plainer,
    TooMuch,
    documents,
    locate,
)
from postroad.agreement.values import Duration, is_uri, one_or_many
from postroad.node.settings.config_groups import (
    FOLDER,
    FOR_EVER,
    Api,
    FilePath,
    FilePaths,
    Http,
    Joining,
    Journal,
    Keys,
    LimitSettings,
    Listen,
    Log,
    Mail,
    NodeName,
    Part,
    Restart,
    Retention,
    Security,
    Send,
    Settings,
    Tls,
    Url,
    Webhook,
    is_loopback,
    setting,
)

OWN_PATHS: Final = ("/api", "/console", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics")
"""What the REST interface answers itself, with all that is below."""


class ConfigError(Exception):
    """A configuration that cannot be used; the text has one `file:line: sentence` per problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(sentence, self.problems)))


def sentence(problem: Problem) -> str:
    """A problem in one line."""
    return f"{problem.file}:{problem.line}: {problem.message} ({problem.hint})"


@dataclass(frozen=True, slots=True)
class Source:
    """The file that a configuration was read from."""

    file: Path
    tree: Node = field(compare=False, repr=False)

    def problem(self, breach: Breach) -> Problem:
        """What is wrong at a place, with its line."""
        mark = locate(self.tree, breach.path)
        message = (
            f"{setting_name(breach.path)}: {breach.message}" if breach.path else breach.message
        )
        return Problem(str(self.file), mark.line, mark.column, breach.level, message, breach.hint)


def setting_name(path: Place) -> str:
    """A place as people write it: `listen[0].tls.key`; items count from zero."""
    name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return name.removeprefix(".")


class Config(Settings):
    """A node: who it is, where its files lie, what it listens on."""

    node: NodeName = setting("The node's stable name; it stands in the journal.", REQUIRED)
    party: PartyIdentifiers = setting("Who the node acts for: one or more party ids.", REQUIRED)
    data: FilePath = setting("Folder of database, payloads and journal.", "data")
    pmodes: FilePath = setting("Folder of the P-Modes, or a file of them.", "pmodes")
    routes: FilePath = setting(
        "The rules by which messages for others are passed on; without such a file none are.",
        "routes.yaml",
    )
    keys: Keys = setting("The node's own keys.", Keys())
    trust: FilePaths = setting(
        "Authorities, or certificates, to trust where a P-Mode names neither pins nor anchors.", ()
    )
    listen: Annotated[tuple[Listen, ...], one_or_many, Field(min_length=1)] = setting(
        "The doors of the node.", (Listen(),)
    )
    public_url: Url | None = setting(
        "Where commands reach the REST interface; unset: the first door that serves it."
    )
    api: Api = setting("The REST interface.", Api())
    security: Security = setting("Security of the node as a whole.", Security())
    webhook: Webhook | None = setting("Whom to call when something happened.")
    limits: LimitSettings = setting("What a message may cost.", LimitSettings())
    http: Http = setting("Patience and capacity of HTTP.", Http())
    restart: Restart = setting("Uploads that broke off and may go on.", Restart())
    mail: Mail | None = setting("Messages that travel by mail.")
    send: Send = setting("Sending.", Send())
    joining: Joining = setting("Large messages that come in fragments.", Joining())
    retention: Retention = setting("How long things are kept.", Retention())
    journal: Journal = setting("Shipping the journal.", Journal())
    clock_skew: Duration = setting("How far a partner's clock may be off.", "PT5M")
    log: Log = setting("The log.", Log())
    workers: int = setting("Processes that share the work.", 1, ge=1, le=256)

    _source: Source | None = PrivateAttr(None)
    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the file, and let through."""
        return self._warnings

    @property
    def file(self) -> Path | None:
        """The file that it was read from; None: it was made by a program."""
        return self._source.file if self._source is not None else None

    @property
    def party_name(self) -> str:
        """The party as the journal spells it: `type::value`, or the value alone."""
        first = self.party[0]
        return f"{first.type}::{first.id}" if first.type else first.id

    @property
    def api_url(self) -> str | None:
        """Where commands reach the REST interface; None without one, or with any free port."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return self._door_url("api")

    @property
    def token_file(self) -> Path | None:
        """The file with the token of the REST interface; None where no listener serves it."""
        if self.api.token_file is not None:
            return self.api.token_file
        if not any("api" in door.serve for door in self.listen):
            return None
        folder = self._source.file.parent if self._source is not None else Path()
        return folder / "keys" / "api.token"

    @property
    def msh_url(self) -> str | None:
        """Where partners reach the endpoint, as far as this file tells it."""
        return self._door_url("msh")

    def _door_url(self, part: Part) -> str | None:
        door = next((door for door in self.listen if part in door.serve), None)
        if door is not None and part == "msh" and door.public_url is not None:
            return door.public_url
        if door is None or door.port == 0:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(door.host, door.host)
        shown = f"[{host}]" if ":" in host else host
        path = door.path if part == "msh" else ""
        return f"{'https' if door.tls else 'http'}://{shown}:{door.port}{path}"

    def problem(self, path: Place, message: str, advice: str) -> Problem:
        """Something wrong with what a setting names, found after the file was read."""
        breach = Breach(path, message, advice)
        source = self._source or Source(Path("postroad.yaml"), Mapping(Mark()))
        return source.problem(breach)


def load_config(path: Path) -> Config:
    """Read the node's file; `ConfigError` tells everything that is wrong with it."""
    tree = _tree(path)
    source = Source(path, tree)
    empty: list[Place] = []
    try:
        data = Plainer().plain(tree, empty)
    except TooMuch as error:
        raise ConfigError([_problem(path, error.mark, str(error), "write it out")]) from None
    assert isinstance(data, dict)
    data = {key: value for key, value in data.items() if not key.startswith(PRIVATE)}
    problems = [
        source.problem(Breach(place, "it has no value", "give it one, or remove the key"))
        for place in empty
        if not _taken_as_null(data, place)
    ]
    try:
        config = Config.model_validate(data, context={FOLDER: path.parent})
    except ValidationError as error:
        told = set(empty)
        for details in error.errors(include_url=False):
            if not is_consequence(details) and details["loc"] not in told:
                problems.append(source.problem(_explained(details)))
        raise ConfigError(_in_order(problems)) from None
    config._source = source
    breaches = [breach for rule in RULES for breach in rule(config)]
    problems += [source.problem(one) for one in breaches if one.level is Level.ERROR]
    config._warnings = tuple(
        f"{setting_name(one.path)}: {one.message} ({one.hint})"
        for one in breaches
        if one.level is Level.WARNING
    )
    if problems:
        raise ConfigError(_in_order(problems))
    return config


def _tree(path: Path) -> Mapping:
    """The one document of the file."""
    most = DEFAULT_LIMITS.characters * 4 + 1
    try:
        with path.open("rb") as stream:
            text = stream.read(most).decode("utf-8-sig")
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        advice = "name the node's file with -c FILE, or make one with postroad init DIR"
        raise ConfigError([_problem(path, Mark(), message, advice)]) from None
    except UnicodeDecodeError as error:
        mark = Mark(error.object.count(b"\n", 0, error.start) + 1)
        problem = _problem(path, mark, "this is no UTF-8 text", "save the file as UTF-8")
        raise ConfigError([problem]) from None
    nodes, faults = documents(text)
    if faults:
        raise ConfigError(_problem(path, one.mark, one.message, one.hint) for one in faults)
    if len(nodes) != 1 or not isinstance(nodes[0], Mapping):
        mark = nodes[1].mark if len(nodes) > 1 else Mark()
        message = "there is more than one document" if len(nodes) > 1 else "there are no settings"
        advice = "write `node:` and `party:` at least, in one document"
        raise ConfigError([_problem(path, mark, message, advice)])
    return nodes[0]


def _problem(path: Path, mark: Mark, message: str, advice: str) -> Problem:
    return Problem(str(path), mark.line, mark.column, Level.ERROR, message, advice)


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda one: (one.line, one.column))


def _taken_as_null(data: dict[str, Plain], place: Place) -> bool:
    """Put null where it is a value; elsewhere a key without one is a mistake."""
    found = field_at(Config, place)
    if found is None or FOR_EVER not in found.metadata:
        return isinstance(place[0], str) and place[0].startswith(PRIVATE)
    holder: object = data
    for key in place[:-1]:
        holder = holder[key] if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder[place[-1]] = None
    return True


def _explained(details: ErrorDetails) -> Breach:
    """What is wrong, in the words that P-Modes are explained with, and what to do here."""
    return Breach(details["loc"], explain(details).message, hint(Config, details))


# What a configuration keeps beyond its values: one function a rule, all of them in `RULES`.


def parties_are_named_clearly(config: Config) -> Iterator[Breach]:
    """A party id without a type is a URI, and there is one of each type (Core 5.2.2.4)."""
    types = [item.type for item in config.party]
    for index, item in enumerate(config.party):
        if item.type is None and not is_uri(item.id):
            yield warning(
                ("party", index),
                f"{item.id!r} has no type and is not a URI",
                "give it a type, or write it as a URI such as urn:example:buyer, "
                "unless your partners use this very value",
            )
        if item.type in types[:index]:
            yield Breach(
                ("party", index),
                f"{item.id!r} has the same type as another id",
                "a party has one identifier of each type",
            )


def passwords_have_one_source(config: Config) -> Iterator[Breach]:
    if config.keys.password_file is not None and config.keys.password_env is not None:
        yield Breach(("keys", "password_env"), "there is a password_file too", "remove one of them")
    if config.keys.signing_alias is not None and config.keys.signing is None:
        yield Breach(
            ("keys", "signing_alias"), "there is no store that it could be in", "add keys.signing"
        )


def doors_are_distinct(config: Config) -> Iterator[Breach]:
    seen: set[str] = set()
    for index, door in enumerate(config.listen):
        if door.port and door.address in seen:
            yield Breach(
                ("listen", index, "address"),
                f"another door listens on {door.address} too",
                "give each its own port, or one door both parts with serve: [msh, api]",
            )
        seen.add(door.address)
    if config.mail and config.mail.listen in seen and not config.mail.listen.endswith(":0"):
        yield Breach(
            ("mail", "listen"),
            f"a door for HTTP listens on {config.mail.listen} too",
            "give each its own port",
        )


def paths_do_not_collide(config: Config) -> Iterator[Breach]:
    for index, door in enumerate(config.listen):
        taken = [own for own in OWN_PATHS if f"{door.path}/".startswith(f"{own}/")]
        if "api" in door.serve and "msh" in door.serve and taken:
            yield Breach(
                ("listen", index, "path"),
                f"{door.path} belongs to the REST interface of the same door",
                "choose another, such as /msh",
            )


def client_certificates_have_an_authority(config: Config) -> Iterator[Breach]:
    doors: list[tuple[Place, Tls | None]] = [
        (("listen", index, "tls"), door.tls) for index, door in enumerate(config.listen)
    ]
    if config.mail:
        doors.append((("mail", "tls"), config.mail.tls))
    for place, tls in doors:
        if tls is None:
            continue
        asked = tls.client_certificates != "none"
        if asked and not tls.client_authorities:
            yield Breach(
                (*place, "client_certificates"),
                "nothing says who issues the certificates of clients",
                "add client_authorities",
            )
        if tls.client_authorities and not asked:
            yield Breach(
                (*place, "client_authorities"),
                "clients are asked for no certificate",
                "add client_certificates: optional or required",
            )


def limits_fit_together(config: Config) -> Iterator[Breach]:
    if config.limits.part_bytes > config.limits.message_bytes:
        yield Breach(
            ("limits", "part_bytes"),
            "a part may not be larger than message_bytes, the whole message",
            "lower it, or raise message_bytes",
        )


def revocation_can_be_known(config: Config) -> Iterator[Breach]:
    """Where the status of certificates must be known there is somebody who tells it."""
    wanted = config.security.revocation
    if wanted.mode == "hard" and not (wanted.crl_files or wanted.fetch):
        yield Breach(
            ("security", "revocation", "mode"),
            "with hard, and neither crl_files nor fetch, every message would be refused",
            "add crl_files, or fetch: [ocsp, crl]",
        )


def mail_that_is_taken_is_protected(config: Config) -> Iterator[Breach]:
    mail = config.mail
    if mail is None:
        return
    for name in ("recipients", "tls", "require_tls", "users_file"):
        if getattr(mail, name) and mail.listen is None:
            yield Breach(("mail", name), "no mail is taken that it could be for", "add mail.listen")
    if mail.require_tls and mail.tls is None:
        yield Breach(("mail", "require_tls"), "there is no TLS", "add mail.tls with a certificate")
    if mail.users_file is not None and mail.tls is None:
        yield Breach(
            ("mail", "users_file"),
            "without TLS a password could be read on its way",
            "add mail.tls with a certificate",
        )
    if mail.listen is None and mail.relay is None:
        yield Breach(
            ("mail",), "mail is neither taken nor sent", "add listen, or relay, or remove mail"
        )


def mail_that_is_sent_keeps_its_password(config: Config) -> Iterator[Breach]:
    relay = config.mail.relay if config.mail else None
    if relay is None:
        return
    place = ("mail", "relay")
    if relay.username is not None and relay.password_file is None:
        yield Breach((*place, "username"), "there is no password for it", "add password_file")
    if relay.password_file is not None and relay.username is None:
        yield Breach((*place, "password_file"), "nothing says whose it is", "add username")
    if relay.username and relay.starttls == "never" and not is_loopback(relay.host):
        yield Breach(
            (*place, "starttls"),
            "without TLS the password could be read on its way",
            "write starttls: required",
        )


RULES: Final[tuple[Callable[[Config], Iterator[Breach]], ...]] = (
    parties_are_named_clearly,
    passwords_have_one_source,
    doors_are_distinct,
    paths_do_not_collide,
    client_certificates_have_an_authority,
    limits_fit_together,
    revocation_can_be_known,
    mail_that_is_taken_is_protected,
    mail_that_is_sent_keeps_its_password,
)
