"""The options of the data source: what there is, and what of it somebody gave."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError

from postroad.api.client_values import ApiError

if TYPE_CHECKING:
    from postroad.api.client import Client

READ: Final = "read"
READ_STREAM: Final = "readStream"
WRITE: Final = "write"
WRITE_STREAM: Final = "writeStream"
_READING: Final = (READ, READ_STREAM)
_WRITING: Final = (WRITE, WRITE_STREAM)
_ALL: Final = (*_READING, *_WRITING)
_OF_SPARK: Final = frozenset({"path", "checkpointlocation"})
"""What Spark puts among the options of a source or sink by itself."""
_MIB: Final = 1024 * 1024
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    ways: tuple[str, ...]
    default: str
    meaning: str


OPTIONS: Final = (
    Option("url", _ALL, "`POSTROAD_URL`", "the node's REST interface; `load(url)` is the same"),
    Option("token", _ALL, "`POSTROAD_TOKEN`", "the node's token; never shown"),
    Option("tokenFile", _ALL, "", "a file whose first line is the token, on the driver's machine"),
    Option("caFile", _ALL, "", "the authority that vouches for the node's certificate"),
    Option("timeout", _ALL, "60", "seconds for one request"),
    Option("retries", _ALL, "6", "how often a request is repeated after a lost connection or 503"),
    Option("concurrency", _ALL, "4", "requests that one task has under way at a time"),
    Option("startingOffsets", _READING, "`earliest`; of a stream `latest`",
           "where a first run begins: `earliest`, `latest` (streams), or after `{\"cursor\": n}`"),
    Option("startingTimestamp", _READING, "", "instead: with the first message received then or "
           "later (ISO 8601)"),
    Option("endingOffsets", (READ,), "`latest`", "`latest`, or `{\"cursor\": n}`, up to it"),
    Option("maxMessagesPerTrigger", (READ_STREAM,), "", "at most so many messages in a batch"),
    Option("maxBytesPerTrigger", (READ_STREAM,), "", "about so many payload bytes in a batch, and "
           "always one message"),
    Option("failOnDataLoss", _READING, "`true`", "fail when messages were removed before they were "
           "read; `false`: go on with what is there"),
    Option("acknowledge", (READ_STREAM,), "`true`", "acknowledge messages in the inbox once their "
           "batch is committed"),
    Option("includeAcknowledged", (READ,), "`true`", "also what was acknowledged already"),
    Option("payload", _READING, "`none`", "payloads of the parts: `none`, `binary`, `text`"),
    Option("maxPayloadBytes", _READING, "67108864", "a payload that is larger is not read into "
           "memory"),
    Option("largePayload", _READING, "`error`", "such a payload is an `error`, or `null`"),
    Option("binaryPayload", _READING, "`null`", "with `payload=text`, a payload that is no text is "
           "`null`, with the reason in `payload_error`, or an `error` that fails the job"),
    Option("includeMetadata", _READING, "`false`", "the column `source`"),
    Option("minPartitions", _READING, "1", "at least so many partitions"),
    Option("pushFilters", (READ,), "`false`", "let the node filter where it can; needs "
           "`spark.sql.python.filterPushdown.enabled`"),
    Option("pmode", _ALL, "", "reading: only messages of this P-Mode; writing: all rows with it, "
           "instead of a column"),
    Option("from", _READING, "", "only from this party"),
    Option("to", _READING, "", "only to this party"),
    Option("service", _READING, "", "only of this service"),
    Option("action", _READING, "", "only of this action"),
    Option("conversationId", _READING, "", "only of this conversation"),
    Option("keyColumns", _WRITING, "", "columns, separated by commas, from which message ids are "
           "made, instead of a column `message_id`"),
    Option("idDomain", _WRITING, "`spark.postroad`", "what stands behind the @ of such an id"),
    Option("contentType", _WRITING, "", "media type of payloads, where there is no column "
           "`media_type`"),
    Option("messagePer", _WRITING, "`row`", "`row`: each row is a message; `partition`: each "
           "partition is one"),
    Option("payloadFormat", _WRITING, "`json`", "how rows are written when a partition is a "
           "message: `json` lines, or `csv` with a header"),
)  # fmt: skip
_NAMES: Final = {option.name.lower(): option for option in OPTIONS}


def wrong(said: str, condition: str = "POSTROAD_OPTION") -> PySparkValueError:
    """What is told of an option that is wrong."""
    return PySparkValueError(message=said, errorClass=condition, messageParameters={})


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show errors that have a name as their sentence alone.

    Spark puts the traceback of a Python worker before the sentence unless its environment says
    otherwise. A worker ends after an error, so nothing else is hidden.
    """
    try:
        yield
    except PySparkException:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
    except ApiError as refused:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise PySparkRuntimeError(
            message=str(refused), errorClass="POSTROAD_NODE", messageParameters={}
        ) from None


@dataclass(frozen=True, slots=True)
class Connection:
    """How a node is reached; travels to the executors, a client does not."""

    url: str
    token: str | None = field(repr=False)
    ca_file: str | None
    timeout: float
    retries: int
    concurrency: int

    @contextmanager
    def client(self) -> "Iterator[Client]":
        # Spark starts a new Python for each step of planning, and most of them ask no node.
        from postroad.api.client import Client

        verify = self.ca_file or True
        with (
            plain_errors(),
            Client(
                self.url,
                token=self.token,
                timeout=self.timeout,
                verify=verify,
                retries=self.retries,
            ) as client,
        ):
            yield client


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read, and how."""

    connection: Connection
    starting: str | int
    """earliest, latest, or a cursor."""
    since: datetime | None
    ending: int | None
    """None: the latest."""
    most_messages: int | None
    most_bytes: int | None
    fail_on_data_loss: bool
    acknowledge: bool
    acknowledged_too: bool
    payload: str
    largest_payload: int
    large_is_error: bool
    binary_is_error: bool
    metadata: bool
    partitions: int
    push: bool
    filters: dict[str, str]
    """As the client names them."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How rows become messages."""

    connection: Connection
    pmode: str | None
    key_columns: tuple[str, ...]
    domain: str
    content_type: str | None
    per_partition: bool
    csv: bool


class _Given:
    """The options of one way, each asked for by its name."""

    def __init__(self, options: Mapping[str, str], *ways: str) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        for name in self._options.keys() - _OF_SPARK:
            option = _NAMES.get(name)
            if option is None:
                known = ", ".join(one.name for one in OPTIONS if set(ways) & set(one.ways))
                raise wrong(f"there is no option {name}; there are {known}")
            if not set(ways) & set(option.ways):
                raise wrong(f"{option.name} is an option of {' and '.join(option.ways)} only")

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._options.get(name.lower()) or default

    def choice(self, name: str, *choices: str) -> str:
        given = (self.text(name) or choices[0]).lower()
        if given not in choices:
            raise wrong(f"{name} is {' or '.join(choices)}, not {given!r}")
        return given

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, *(("true", "false") if default else ("false", "true"))) == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        given = self.text(name)
        if given is None:
            return None
        if not given.isascii() or not given.isdigit() or int(given) < least:
            raise wrong(f"{name} is a whole number of at least {least}, not {given!r}")
        return int(given)

    def count(self, name: str, default: int, least: int = 1) -> int:
        given = self.number(name, least)
        return default if given is None else given

    def place(self, name: str, *words: str) -> str | int:
        """One of the words, the first by default, or the cursor in a piece of JSON."""
        given = self.text(name)
        if given is None or given.lower() in words:
            return words[0] if given is None else given.lower()
        try:
            cursor: Any = json.loads(given)["cursor"]
        except (ValueError, KeyError, TypeError):
            cursor = None
        if type(cursor) is not int or cursor < 0:
            told = " or ".join((*words, '{"cursor": 4711}'))
            raise wrong(f"{name} is {told}, not {given!r}")
        return cursor

    def time(self, name: str) -> datetime | None:
        given = self.text(name)
        try:
            found = datetime.fromisoformat(given) if given else None
        except ValueError:
            raise wrong(f"{name} is a time like 2026-03-01T12:00:00Z, not {given!r}") from None
        return found.replace(tzinfo=found.tzinfo or UTC) if found else None

    def alone(self, name: str, other: str) -> None:
        if self.text(name) and self.text(other):
            raise wrong(f"{name} and {other} exclude each other; give one of them")


def reading_of(options: Mapping[str, str], *ways: str) -> Reading:
    """The options for reading; the ways are both as long as it isn't known which it is."""
    given = _Given(options, *(ways or _READING))
    given.alone("startingOffsets", "startingTimestamp")
    words = ("earliest",) if ways == (READ,) else ("latest", "earliest")
    ending = given.place("endingOffsets", "latest")
    names = {"pmode": "pmode", "from": "from_party", "to": "to_party", "service": "service",
             "action": "action", "conversationId": "conversation_id"}  # fmt: skip
    return Reading(
        connection=_connection(given),
        starting=given.place("startingOffsets", *words),
        since=given.time("startingTimestamp"),
        ending=None if isinstance(ending, str) else ending,
        most_messages=given.number("maxMessagesPerTrigger"),
        most_bytes=given.number("maxBytesPerTrigger"),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        acknowledge=given.flag("acknowledge", True),
        acknowledged_too=given.flag("includeAcknowledged", True),
        payload=given.choice("payload", "none", "binary", "text"),
        largest_payload=given.count("maxPayloadBytes", 64 * _MIB),
        large_is_error=given.choice("largePayload", "error", "null") == "error",
        binary_is_error=given.choice("binaryPayload", "null", "error") == "error",
        metadata=given.flag("includeMetadata", False),
        partitions=given.count("minPartitions", 1),
        push=given.flag("pushFilters", False),
        filters={ours: told for name, ours in names.items() if (told := given.text(name))},
    )


def writing_of(options: Mapping[str, str], way: str) -> Writing:
    given = _Given(options, way)
    columns = (given.text("keyColumns") or "").split(",")
    return Writing(
        connection=_connection(given),
        pmode=given.text("pmode"),
        key_columns=tuple(name.strip() for name in columns if name.strip()),
        domain=given.text("idDomain") or "spark.postroad",
        content_type=given.text("contentType"),
        per_partition=given.choice("messagePer", "row", "partition") == "partition",
        csv=given.choice("payloadFormat", "json", "csv") == "csv",
    )


def _connection(given: _Given) -> Connection:
    given.alone("url", "path")
    given.alone("token", "tokenFile")
    url = given.text("url") or given.text("path") or os.environ.get("POSTROAD_URL")
    if not url or not url.startswith(("http://", "https://")):
        raise wrong(f"url is the address of a node, like http://127.0.0.1:8080, not {url!r}")
    return Connection(
        url=url,
        token=given.text("token") or _token_in(given.text("tokenFile")),
        ca_file=given.text("caFile"),
        timeout=float(given.count("timeout", 60)),
        retries=given.count("retries", 6, least=0),
        concurrency=given.count("concurrency", 4),
    )


def _token_in(file: str | None) -> str | None:
    if file is None:
        return os.environ.get("POSTROAD_TOKEN")
    try:
        return Path(file).read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except OSError as failure:
        raise wrong(f"tokenFile {file} cannot be read: {failure.strerror}") from None
