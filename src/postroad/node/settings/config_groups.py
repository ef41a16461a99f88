"""The groups of `postroad.yaml`: one class a group, each field with its meaning and default."""

import dataclasses
import re
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from postroad.agreement.groups import REQUIRED, Group
from postroad.agreement.values import Duration, Size, Texts, TlsVersion, one_or_many
from postroad.security.egress import EgressPolicy, Network
from postroad.wire.limits import DEFAULT, GIB, KIB, MIB, Limits
from postroad.wire.mail import is_address

FOLDER: Final = "folder"
"""The key of the validation context with the folder that paths are relative to."""
FOR_EVER: Final = "for ever"
"""Metadata of a field where `null` is a value: without end."""


def setting(meaning: str, default: Any = None, **constraints: Any) -> Any:
    """A field of the configuration and what it does, in one line."""
    return Field(default, description=meaning, **constraints)


class Settings(Group):
    """Settings that belong together."""

    model_config = ConfigDict(validate_default=True)


def _not_empty(value: object) -> object:
    if value == "":
        raise ValueError("the name of the file is empty")
    return value


def _from_folder(value: Path, info: ValidationInfo) -> Path:
    folder = info.context.get(FOLDER) if info.context else None
    return folder / value if folder else value


def _folder_or_url(value: str, info: ValidationInfo) -> str:
    return value if "://" in value else str(_from_folder(Path(value), info).resolve())


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets."""
    host, colon, port = address.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not plain or not 0 <= number <= 65535 or (":" in plain) != bracketed:
        raise ValueError(
            f"{address!r} is no address; write host:port, such as 127.0.0.1:8080 or [::1]:8080"
        )
    return plain, number


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and can be nothing else."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(value: str) -> str:
    split_address(value)
    return value


def _path(value: str) -> str:
    if not value.startswith("/") or (value != "/" and value.endswith("/")):
        raise ValueError(f"{value!r} is no path; begin it with / and end it without")
    return value


def _web_address(value: str) -> str:
    scheme, found, rest = value.partition("://")
    if not found or scheme.lower() not in ("http", "https") or not rest.strip("/"):
        raise ValueError(f"{value!r} is no URL; write it with http:// or https://")
    return value


def _mail_address(value: str) -> str:
    if not is_address(value):
        raise ValueError(f"{value!r} is no mail address; write name@host, without mailto:")
    return value


def _host(value: str) -> str:
    if re.fullmatch(r"[0-9A-Za-z.:_-]{1,253}", value) is None:
        raise ValueError(f"{value!r} is no host; write its name or IP address, the port apart")
    return value


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ip_network(value)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a network. Write it such as 10.1.0.0/16, fd00::/8 or 127.0.0.1"
        ) from None


def _positive(value: timedelta) -> timedelta:
    if not timedelta(0) < value <= timedelta(days=1):
        raise ValueError("it must be more than nothing and a day at most; write such as PT30S")
    return value


def _lifetime(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("it must be more than nothing; write such as P1D")
    return value


_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def is_name(text: str) -> bool:
    """Whether a text can be the name of a node."""
    return re.fullmatch(_NAME[1:-1], text) is not None


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError(
            f"{value!r} is no name; use up to 64 letters, digits, dots, dashes and underscores"
        )
    return value


FilePath = Annotated[
    Path,
    BeforeValidator(_not_empty),
    AfterValidator(_from_folder),
    WithJsonSchema({"type": "string", "format": "file", "minLength": 1}),
]
FilePaths = Annotated[tuple[FilePath, ...], one_or_many]
Address = Annotated[str, AfterValidator(_address)]
UrlPath = Annotated[
    str,
    StringConstraints(pattern=r"^[!-~]+$"),
    AfterValidator(_path),
    WithJsonSchema({"type": "string", "pattern": "^/"}),
]
Url = Annotated[
    str,
    AfterValidator(_web_address),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^https?://"}),
]
MailAddress = Annotated[
    str, AfterValidator(_mail_address), WithJsonSchema({"type": "string", "format": "email"})
]
MailAddresses = Annotated[tuple[MailAddress, ...], one_or_many]
Host = Annotated[str, AfterValidator(_host)]
IpNetwork = Annotated[
    Network, BeforeValidator(_network), WithJsonSchema({"type": "string", "format": "network"})
]
Networks = Annotated[tuple[IpNetwork, ...], one_or_many]
NodeName = Annotated[
    str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": _NAME})
]
Target = Annotated[
    str,
    BeforeValidator(_not_empty),
    AfterValidator(_folder_or_url),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
Timeout = Annotated[Duration, AfterValidator(_positive)]
Lifetime = Annotated[Duration, AfterValidator(_lifetime)]
Kept = Annotated[
    Duration | None,
    WithJsonSchema({"type": ["string", "null"], "format": "duration"}),
    FOR_EVER,
]
Part = Literal["msh", "api"]
WebhookEvent = Literal["received", "receipt", "failed", "in_doubt", "suspended", "settled"]


class Keys(Settings):
    """The node's own keys, in PEM, PKCS#12 or JKS files."""

    signing: FilePath | None = setting(
        "Key pair that signs where a P-Mode names none (Signature.Key); receipts and errors too."
    )
    signing_alias: str | None = setting("Which key of a store with several signs.")
    decryption: FilePaths | None = setting(
        "Key pairs that open what is encrypted for us; unset: the signing one."
    )
    password_file: FilePath | None = setting("File whose first line is the password of all keys.")
    password_env: str | None = setting(
        "Environment variable that holds the password, instead of a file.", min_length=1
    )


class Tls(Settings):
    """TLS of a door."""

    certificate: FilePath = setting(
        "The server's certificate: PKCS#12 or JKS with its key, or PEM with its chain.", REQUIRED
    )
    key: FilePath | None = setting("The private key, where the certificate's file has none.")
    client_certificates: Literal["none", "optional", "required"] = setting(
        "Whether clients show a certificate.", "none"
    )
    client_authorities: FilePaths = setting("Who issues the certificates of clients.", ())
    minimum: TlsVersion = setting("The least version of TLS.", "1.2")
    ciphers: Texts | None = setting(
        "Cipher suites of TLS 1.2, by OpenSSL's names; unset: those that are safe."
    )


class Listen(Settings):
    """A door: an address that the node listens on."""

    address: Address = setting("host:port; port 0 takes any free one.", "127.0.0.1:8080")
    serve: Annotated[tuple[Part, ...], one_or_many, Field(min_length=1)] = setting(
        "What is behind the door: the protocol endpoint, the REST interface, or both.",
        ("msh", "api"),
    )
    path: UrlPath = setting("Path of the protocol endpoint.", "/msh")
    public_url: Url | None = setting(
        "The URL by which partners reach the protocol endpoint, where that is another one."
    )
    tls: Tls | None = setting("TLS; unset: plain HTTP.")

    @property
    def host(self) -> str:
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        return split_address(self.address)[1]


class Api(Settings):
    """The REST interface."""

    token_file: FilePath | None = setting(
        "File with the token that callers show; unset: keys/api.token."
    )
    open_metrics: bool = setting("Whether /metrics needs no token.", False)


class Egress(Settings):
    """Which hosts and networks the node contacts."""

    deny: Networks = setting("Networks that are never contacted, for whatever purpose.", ())
    partner_networks: Networks | None = setting(
        "The only networks in which addresses of P-Modes and routing rules are contacted; "
        "unset: any."
    )
    webhook_networks: Networks | None = setting(
        "The only networks in which the webhook is called; unset: any."
    )
    callback_hosts: Texts = setting(
        "Hosts, such as *.seller.example, that answers may be sent to where a message names the "
        "address, beside the hosts that P-Modes name for its sender.",
        (),
    )
    callback_networks: Networks = setting(
        "Networks that are not public, such as 10.1.0.0/16, to which such answers may go.", ()
    )
    revocation_networks: Networks = setting(
        "Networks that are not public in which revocation lists and OCSP responders are contacted.",
        (),
    )

    @property
    def policy(self) -> EgressPolicy:
        """The policy as the transport takes it, without the listeners of the node."""
        return EgressPolicy(
            self.deny,
            self.callback_hosts,
            self.callback_networks,
            self.partner_networks,
            self.webhook_networks,
            self.revocation_networks,
        )


class RevocationSettings(Settings):
    """How the node learns of revoked certificates, and what it does while it does not know."""

    mode: Literal["soft", "hard"] = setting(
        "While it is not known whether a certificate was revoked: soft accepts it with a warning, "
        "hard refuses the message for now.",
        "soft",
    )
    crl_files: FilePaths = setting(
        "Revocation lists, PEM or DER: files, or folders of such files.", ()
    )
    fetch: Annotated[tuple[Literal["crl", "ocsp"], ...], one_or_many] = setting(
        "What is fetched from the addresses that certificates name; with both, a list is fetched "
        "where OCSP does not tell.",
        (),
    )
    wait: Timeout = setting("How long a message waits for what is being fetched.", "PT3S")
    timeout: Timeout = setting("For a server to send a list or an answer.", "PT10S")
    refresh: Timeout = setting(
        "After how long a list or an answer is fetched again, where it does not run out before.",
        "PT1H",
    )
    retry: Timeout = setting("How long an address that failed is left alone.", "PT1M")
    list_bytes: Size = setting("Size of a revocation list.", 32 * MIB, gt=0)
    total_bytes: Size = setting("Size of all fetched lists together.", 256 * MIB, gt=0)
    entries: int = setting("Fetched lists and answers that are kept.", 1000, ge=1, le=100_000)


class Security(Settings):
    """Security of the node as a whole."""

    egress: Egress = setting("Which hosts and networks the node contacts.", Egress())
    exempt_networks: Networks = setting(
        "Networks whose addresses are not limited one by one: a proxy or load balancer, behind "
        "which all clients have one address.",
        ("127.0.0.0/8", "::1/128"),
    )
    ipv6_prefix: int = setting(
        "IPv6 addresses that have so many leading bits in common count as one address.",
        64,
        ge=16,
        le=128,
    )
    revocation: RevocationSettings = setting("Revoked certificates.", RevocationSettings())


class Webhook(Settings):
    """Whom the node calls when something happened."""

    url: Url = setting("Where events are posted to.", REQUIRED)
    secret_file: FilePath | None = setting("File with the secret that signs the calls.")
    events: Annotated[tuple[WebhookEvent, ...], one_or_many, Field(min_length=1)] = setting(
        "What is told: a message came in, a receipt came back, a message failed, is in doubt, "
        "waits until its partner is resumed, or was answered after it was given up.",
        ("received", "receipt", "failed", "in_doubt", "suspended", "settled"),
    )
    attempts: int = setting("How often a call is tried.", 20, ge=1, le=1000)
    first_interval: Timeout = setting("The wait after the first failure; it doubles.", "PT5S")
    longest_interval: Timeout = setting("The longest wait.", "PT1H")


class RefusedLimits(Settings):
    """What is kept of refused messages and requests whose senders proved nothing."""

    message_bytes: Size = setting(
        "What is kept of the envelope of such a message, from its beginning.", 8 * KIB, ge=0
    )
    total_bytes: Size = setting(
        "Room in the database for all such messages together; beyond it the oldest are removed.",
        16 * MIB,
        ge=0,
    )
    retention: Lifetime = setting("How long such a message is kept.", "P1D")
    events: int = setting(
        "Refusals that have journal events of their own, for each reason and P-Mode within an "
        "interval; the others are counted.",
        10,
        ge=0,
        le=1_000_000,
    )
    signals: int = setting(
        "Receipts and errors about one message that are kept: of those that are believed and of "
        "those that are not.",
        10,
        ge=0,
        le=10_000,
    )
    interval: Timeout = setting(
        "How often one event tells how many others were refused, for each reason and P-Mode.",
        "PT1H",
    )


class LimitSettings(Settings):
    """What a message may cost before it is refused."""

    envelope_bytes: Size = setting("Size of the SOAP envelope.", DEFAULT.envelope_bytes, gt=0)
    xml_depth: int = setting("Nesting of XML elements.", DEFAULT.xml_depth, gt=0)
    xml_elements: int = setting("XML elements of an envelope.", DEFAULT.xml_elements, gt=0)
    xml_attributes: int = setting("Attributes of one element.", DEFAULT.xml_attributes, gt=0)
    parts: int = setting("MIME parts of a message.", DEFAULT.parts, gt=0)
    part_headers: int = setting("Header fields of a MIME part.", DEFAULT.part_headers, gt=0)
    part_header_bytes: Size = setting(
        "Size of a MIME part's header.", DEFAULT.part_header_bytes, gt=0
    )
    part_bytes: Size = setting("Size of a MIME part.", DEFAULT.part_bytes, gt=0)
    message_bytes: Size = setting("Size of a whole message.", DEFAULT.message_bytes, gt=0)
    memory_bytes: Size = setting(
        "A part above this size goes to disk instead of memory.", DEFAULT.memory_bytes, gt=0
    )
    units: int = setting("User messages and signals of one message.", DEFAULT.units, gt=0)
    references: int = setting("References of a signature.", DEFAULT.references, gt=0)
    encrypted_keys: int = setting("Encrypted keys of a message.", DEFAULT.encrypted_keys, gt=0)
    decompressed_bytes: Size = setting(
        "Size of a payload after decompression.", DEFAULT.decompressed_bytes, gt=0
    )
    decompression_ratio: int = setting(
        "How many times larger a payload may become by decompression.",
        DEFAULT.decompression_ratio,
        gt=0,
    )
    decompression_floor: Size = setting(
        "Up to this size the ratio does not matter.", DEFAULT.decompression_floor, ge=0
    )
    canonical_xml_bytes: Size = setting(
        "Size of an XML attachment that is canonicalised.", DEFAULT.canonical_xml_bytes, gt=0
    )
    canonical_xml_elements: int = setting(
        "Elements of an XML attachment that is canonicalised.",
        DEFAULT.canonical_xml_elements,
        gt=0,
    )

    out_of_order: int = setting(
        "Messages of a conversation that are held until those before them come (ebXML).",
        1000,
        ge=0,
        le=100_000,
    )
    refused: RefusedLimits = setting(
        "What is kept of refused messages and requests whose senders proved nothing.",
        RefusedLimits(),
    )
    disk_reserve: Size = setting(
        "Room on the disk that is set aside for purging and acknowledging; 0: none.",
        16 * MIB,
        ge=0,
    )
    disk_warning: Size = setting(
        "The node warns when less than this is free on the disk; 0: never.", 256 * MIB, ge=0
    )

    @property
    def wire(self) -> Limits:
        """The same as the readers take it."""
        named = {one.name for one in dataclasses.fields(Limits)}
        return Limits(**{name: getattr(self, name) for name in named})


class Http(Settings):
    """Patience and capacity of HTTP, in and out."""

    header_timeout: Timeout = setting("For the head of a request to come in.", "PT20S")
    body_timeout: Timeout = setting("Between two pieces of a request's body.", "PT60S")
    write_timeout: Timeout = setting("For the other end to take a piece that is sent.", "PT60S")
    idle_timeout: Timeout = setting("For the next request of a kept connection.", "PT75S")
    min_rate: Size = setting(
        "Bytes a second, on average over body_timeout, at which a request's body comes, and over "
        "write_timeout, at which a response is read; 0: one byte in that time is enough.",
        KIB,
        ge=0,
    )
    connections: int = setting(
        "Connections that are open at once, of each listener and process.", 2000, ge=1, le=1_000_000
    )
    connections_per_address: int = setting(
        "Those of one address (security.exempt_networks).", 256, ge=1, le=1_000_000
    )
    health_connections: int = setting(
        "Connections beyond these that are for /healthz and /readyz alone.", 32, ge=0, le=1000
    )
    requests: int = setting(
        "Messages that are processed at once, in each process; more are answered 503.",
        500,
        ge=1,
        le=100_000,
    )
    requests_per_address: int = setting("Those of one address.", 200, ge=1, le=100_000)
    unfinished_bytes: Size = setting(
        "What is held at once of messages that are still coming from senders without a TLS client "
        "certificate, in each process; a single one is never refused.",
        8 * GIB,
        ge=0,
    )
    unfinished_bytes_per_address: Size = setting("The same for one address.", GIB, ge=0)
    connect_timeout: Timeout = setting("For a partner to take a connection.", "PT10S")
    answer_timeout: Timeout = setting("For a partner to answer a message.", "PT60S")
    reply_timeout: Timeout = setting(
        "For the application to answer a message whose sender waits (Two-Way/Sync, ebXML "
        "syncReply).",
        "PT30S",
    )


class Restart(Settings):
    """What is kept of uploads that broke off, where a P-Mode lets them go on (Protocol.Restart)."""

    copies: int = setting("Incomplete uploads that are kept at once.", 1000, ge=0, le=100_000)
    copies_per_partner: int = setting("Those of one partner.", 16, ge=0, le=100_000)
    bytes: Size = setting("Room for all incomplete uploads together.", 64 * GIB, ge=0)
    bytes_per_partner: Size = setting("Room for those of one partner.", 16 * GIB, ge=0)
    longest_interval: Timeout = setting(
        "How long one is kept at most; a P-Mode's Restart.Interval may say less.", "P1D"
    )
    answers: int = setting(
        "Finished uploads whose answer is remembered, for who missed it.", 1000, ge=0, le=100_000
    )


class MailRelay(Settings):
    """The mail server that takes what the node sends."""

    host: Host = setting("Name or IP address of the mail server.", REQUIRED)
    port: int = setting("Its port: 587 or 25, and 465 for implicit TLS.", 587, ge=1, le=65535)
    starttls: Literal["required", "opportunistic", "never", "implicit"] = setting(
        "TLS: demanded, used where it is offered, never used, or from the first byte.", "required"
    )
    authorities: FilePaths = setting(
        "Who issues the certificate of the mail server; unset: the authorities of the system.", ()
    )
    username: str | None = setting("Name to log in with; unset: no login.", min_length=1)
    password_file: FilePath | None = setting("File whose first line is the password for that.")
    parallel: int = setting("Mails on their way out at once.", 4, ge=1, le=1000)
    connect_timeout: Timeout = setting("For the mail server to take a connection.", "PT30S")
    answer_timeout: Timeout = setting(
        "For each of its answers, and for each piece that it takes.", "PT5M"
    )


class Mail(Settings):
    """Messages that travel by mail (SMTP)."""

    address: MailAddress = setting(
        "The node's own mail address: what it sends comes from there, bounces go there.", REQUIRED
    )
    recipients: MailAddresses = setting("Further addresses that mail is taken for.", ())
    listen: Address | None = setting(
        "host:port where mail is taken; port 0 takes any free one; unset: none is taken."
    )
    name: Host | None = setting(
        "What the node calls itself to mail servers; unset: the host of its address."
    )
    tls: Tls | None = setting("TLS, by STARTTLS; unset: none.")
    require_tls: bool = setting("Whether mail is taken over TLS only.", False)
    users_file: FilePath | None = setting(
        "File with a line name:password for each who may hand in mail; unset: nobody logs in."
    )
    max_size: Size = setting("Size of a mail that is taken, as it comes.", 64 * MIB, gt=0)
    connections: int = setting("Connections that are open at once.", 100, ge=1, le=100_000)
    connections_per_address: int = setting(
        "Those of one address (security.exempt_networks).", 20, ge=1, le=100_000
    )
    timeout: Timeout = setting("For the next command, and for each 64 KiB of a mail.", "PT5M")
    relay: MailRelay | None = setting("The mail server that takes what is sent; unset: none is.")

    @property
    def taken_for(self) -> tuple[str, ...]:
        """All addresses that mail is taken for."""
        return (self.address, *self.recipients)

    @property
    def hello(self) -> str:
        """What the node calls itself to mail servers."""
        return self.name or self.address.rpartition("@")[2]


class Breaker(Settings):
    """When a partner is left alone."""

    failures: int = setting(
        "Attempts in a row that did not reach an address until it is paused; 0: never.",
        5,
        ge=0,
        le=1_000_000,
    )
    pause: Timeout = setting(
        "How long the first pause is; each further one is twice as long.", "PT30S"
    )
    longest_pause: Timeout = setting("How long a pause is at most.", "PT10M")


class Send(Settings):
    """Sending."""

    parallel: int = setting(
        "Messages on their way out to an address at once.", 128, ge=1, le=10_000
    )
    lease: Timeout = setting(
        "How long a process that is silent keeps what it has claimed; then another takes it over.",
        "PT1M",
    )
    breaker: Breaker = setting("When a partner who cannot be reached is left alone.", Breaker())


class Joining(Settings):
    """Fragments of large messages that come in, until all of a message are there."""

    quota: Size | None = setting(
        "What messages of one partner by one P-Mode that are not whole yet may take of the disk; "
        "unset: as much as there is.",
        gt=0,
    )
    reserve: Size = setting("What is left free of the disk.", 256 * MIB, ge=0)
    groups: int = setting(
        "Messages of one partner by one P-Mode that are not whole yet.", 1000, ge=1, le=10_000
    )
    fragments: int = setting("Fragments of one message.", 100_000, ge=1, le=2**31 - 1)


class Retention(Settings):
    """How long things are kept; `null`: for ever."""

    messages: Kept = setting("Messages and payloads, from their last event.", "P90D")


class Journal(Settings):
    """Shipping the journal, as Parquet segments."""

    ship_to: Target | None = setting(
        "Folder or URL, such as s3://bucket/journal, where the journal is shipped to; unset: none."
    )
    segment_size: Size = setting("How large a segment becomes, about.", 32 * 1024 * 1024, gt=0)
    segment_age: Timeout = setting(
        "How long an event waits to be shipped when too few come for a whole segment.", "PT5M"
    )
    retention: Kept = setting(
        "How long events stay in the database that were shipped to every place; what was not "
        "shipped stays.",
        "P90D",
    )


class Log(Settings):
    """The log, on standard error."""

    format: Literal["json", "text"] = setting("JSON lines, or text for people.", "json")
    level: Literal["debug", "info", "warning", "error"] = setting("The least that is told.", "info")
