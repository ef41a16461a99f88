"""The kinds of value that a P-Mode parameter takes, and how each is written in YAML."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    SerializationInfo,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import core_schema

from postroad.agreement.algorithms import ALGORITHMS, algorithm_uri
from postroad.security.key_purposes import purpose_oid
from postroad.wire.ebms3 import GZIP
from postroad.wire.names import (
    DEFAULT_MPC,
    DS,
    EB3,
    EBINT,
    I_CLOUD,
    MF,
    ONE_WAY,
    PULL,
    PULL_AND_PULL,
    PULL_AND_PUSH,
    PUSH,
    PUSH_AND_PULL,
    PUSH_AND_PUSH,
    S11,
    S12,
    SYNC,
    TWO_WAY,
    WSA,
    WSR,
    WSRM,
    WSSE,
    WSU,
)

MASK: Final = "********"
REVEAL: Final = "reveal_passwords"
"""The key of the serialisation context that shows passwords instead of the mask."""

_AS4_FEATURES: Final = "http://www.oasis-open.org/committees/ebxml-msg/"
_ELEMENT_PREFIXES: Final = {
    "S11": S11,
    "S12": S12,
    "ds": DS,
    "eb": EB3,
    "eb3": EB3,
    "ebint": EBINT,
    "mf": MF,
    "wsa": WSA,
    "wsrm": WSRM,
    "wsse": WSSE,
    "wsu": WSU,
}
"""The prefixes that names of elements may have in a P-Mode."""
_ELEMENT_NAME: Final = re.compile(r"(?:(\{[^{}\s]+\})|([^\W\d][\w.-]*):)?([^\W\d][\w.-]*)")

MEPS: Mapping[str, str] = MappingProxyType({"oneWay": ONE_WAY, "twoWay": TWO_WAY})
BINDINGS: Mapping[str, str] = MappingProxyType(
    {
        "push": PUSH,
        "pull": PULL,
        "sync": SYNC,
        "pushAndPush": PUSH_AND_PUSH,
        "pushAndPull": PUSH_AND_PULL,
        "pullAndPush": PULL_AND_PUSH,
        "pullAndPull": PULL_AND_PULL,
    }
)
RELIABILITY_PROTOCOLS: Mapping[str, str] = MappingProxyType({"wsrm": WSRM, "ws-reliability": WSR})

LONGEST_WAIT: Final = timedelta(days=30)
"""Between two attempts to send a message."""
LONGEST_SPAN: Final = timedelta(days=3660)
"""That an id or a message is kept for; ten years."""
UNLIMITED: Final = "unlimited"
_MOST_RETRIES: Final = 1_000_000
_JSON: Final = "json"

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]{1,3})")
_UNITS: Final = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_PRINTED_UNITS: Final = (
    ("TiB", 1024**4),
    ("TB", 1000**4),
    ("GiB", 1024**3),
    ("GB", 1000**3),
    ("MiB", 1024**2),
    ("MB", 1000**2),
    ("KiB", 1024),
    ("kB", 1000),
)
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,6})W)?(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,6})?)S)?)?"
)


def is_uri(text: str) -> bool:
    """Whether a text has the form of an absolute URI."""
    if _URI.fullmatch(text) is None:
        return False
    try:
        urlsplit(text)
    except ValueError:  # Such as http://[ without the end of an IPv6 address.
        return False
    return True


def parse_uri(value: object) -> object:
    if isinstance(value, str) and not is_uri(value):
        raise ValueError(
            f"{value!r} is not a URI; write it with its scheme, such as urn: or https:"
        )
    return value


def parse_size(value: object) -> object:
    """Bytes from a text such as `10 MiB` or `4kB`; a number alone is taken only from code."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"{value!r} is not a size; write a number and a unit, such as 10 MiB")
    return int(Decimal(found[1]) * unit)


def format_size(size: int) -> str:
    for unit, factor in _PRINTED_UNITS:
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def parse_duration(value: object) -> object:
    """A timedelta from ISO 8601; years and months have no fixed length and are refused."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip().upper())
    if found is None or not any(found.groups()):
        raise ValueError(
            f"{value!r} is not an ISO 8601 duration in weeks to seconds, such as PT30S"
        )
    return timedelta(**{unit: float(n) for unit, n in found.groupdict().items() if n})


def format_duration(value: timedelta) -> str:
    days, seconds = value.days, value.seconds
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    clock = "".join(
        f"{number}{letter}" for number, letter in ((hours, "H"), (minutes, "M")) if number
    )
    if seconds or fraction:
        clock += f"{seconds}{fraction}S"
    date = f"{days}D" if days else ""
    return "P" + date + ("T" + clock if clock else "") if date or clock else "PT0S"


def _up_to(longest: timedelta) -> AfterValidator:
    """A duration above nothing, and not above the longest."""

    def check(value: timedelta) -> timedelta:
        if not timedelta(0) < value <= longest:
            bounds = f"more than PT0S, at most {format_duration(longest)}"
            raise ValueError(f"{format_duration(value)} is out of bounds: {bounds}")
        return value

    return AfterValidator(check)


def _between(least: int, most: int) -> AfterValidator:
    """A number with bounds, whole or not."""

    def check(value: float) -> float:
        if not least <= value <= most:
            raise ValueError(f"{value:g} is not a number from {least} to {most}")
        return value

    return AfterValidator(check)


def _plain_number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def parse_retries(value: object) -> object:
    """A number of retries, or `unlimited`."""
    text = str(value).strip().lower()
    if text == UNLIMITED:
        return UNLIMITED
    if text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= _MOST_RETRIES:
        return int(text)
    raise ValueError(
        f"{value!r} is neither a whole number from 0 to {_MOST_RETRIES} nor {UNLIMITED}"
    )


def _fold(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "").replace("/", "")


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A value from a fixed set of URIs, which may be written by short name."""

    names: Mapping[str, str]
    expand: Callable[[str], str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: self.expand(value) if isinstance(value, str) else value, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.names, *self.names.values()]}


def _known(names: Mapping[str, str]) -> _Known:
    folded = {_fold(short): uri for short, uri in names.items()}

    def expand(value: str) -> str:
        if value in names.values():
            return value
        uri = folded.get(_fold(value.removeprefix(EB3).removeprefix(_AS4_FEATURES)))
        if uri is None:
            raise ValueError(f"{value!r} is not known; known: {', '.join(names)}")
        return uri

    return _Known(names, expand)


def _key_purpose(value: str) -> str:
    purpose_oid(value)
    return value


def _element_name(value: str) -> str:
    """An XML name with the namespace of its prefix, as `{namespace}name`."""
    found = _ELEMENT_NAME.fullmatch(value)
    if found is None:
        raise ValueError(
            f"{value!r} is no element name; write Timestamp, wsu:Timestamp or "
            "{namespace}Timestamp"
        )
    namespace, prefix, name = found.groups()
    if prefix is not None and prefix not in _ELEMENT_PREFIXES:
        raise ValueError(
            f"the prefix {prefix!r} is not known; write {{namespace}}{name}, or one of: "
            f"{', '.join(_ELEMENT_PREFIXES)}"
        )
    return f"{{{_ELEMENT_PREFIXES[prefix]}}}{name}" if prefix else f"{namespace or ''}{name}"


def _content_id(value: str) -> str:
    """A Content-ID without what stands around it in a MIME header or before it in a URL."""
    return value.removeprefix("cid:").removeprefix("<").removesuffix(">")


def _algorithm(kind: str) -> _Known:
    return _Known(ALGORITHMS[kind], partial(algorithm_uri, kind))


def _fixed_uri(**names: str) -> BeforeValidator:
    return BeforeValidator(
        lambda value: parse_uri(names.get(value, value) if isinstance(value, str) else value)
    )


@dataclass(frozen=True, slots=True)
class _Many:
    """A list that may be written as one item, or with a separator as one text."""

    separator: str | None = None

    def split(self, value: object) -> object:
        if isinstance(value, list | tuple):
            return value
        if self.separator is None or not isinstance(value, str):
            return [value]
        return [item.strip() for item in value.split(self.separator) if item.strip()]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.split, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _no_wildcard(value: object) -> object:
    if value == "*":
        raise ValueError("'*' is no wildcard; leave the parameter out to take any value")
    return value


def _gzip(value: object) -> object:
    return {"gzip": GZIP, "": None}.get(value, value) if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _capitalized(value: object) -> object:
    return value.capitalize() if isinstance(value, str) else value


def _password(value: SecretStr, info: SerializationInfo) -> str:
    reveal = isinstance(info.context, dict) and info.context.get(REVEAL)
    return value.get_secret_value() if reveal else MASK


def _version(*versions: str) -> WithJsonSchema:
    return WithJsonSchema({"enum": [*versions, *(float(v) for v in versions if v.count(".") == 1)]})


_URI_SCHEMA: Final = {"type": "string", "format": "uri"}

Text = Annotated[
    str,
    BeforeValidator(_no_wildcard),
    StringConstraints(min_length=1, strip_whitespace=True),
    WithJsonSchema({"type": ["string", "number"], "minLength": 1}),
]
FileName = Annotated[str, StringConstraints(min_length=1)]
Uri = Annotated[str, BeforeValidator(parse_uri), WithJsonSchema(_URI_SCHEMA)]
Mpc = Annotated[
    str,
    _fixed_uri(default=DEFAULT_MPC, defaultMPC=DEFAULT_MPC),
    WithJsonSchema(_URI_SCHEMA),
]
EprAddress = Annotated[str, _fixed_uri(icloud=I_CLOUD), WithJsonSchema(_URI_SCHEMA)]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str, when_used=_JSON),
    WithJsonSchema({"type": "string", "format": "size", "examples": ["10 MiB", "4 kB"]}),
]
Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used=_JSON),
    WithJsonSchema({"type": "string", "format": "duration"}),
]
Wait = Annotated[Duration, _up_to(LONGEST_WAIT)]
Span = Annotated[Duration, _up_to(LONGEST_SPAN)]
Retries = Annotated[
    int | Literal["unlimited"],
    PlainValidator(parse_retries),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _MOST_RETRIES},
                {"const": UNLIMITED},
            ]
        }
    ),
]
_Number = Annotated[float, PlainSerializer(_plain_number, return_type=float | int, when_used=_JSON)]
Factor = Annotated[
    _Number, _between(1, 100), WithJsonSchema({"type": "number", "minimum": 1, "maximum": 100})
]
Share = Annotated[
    _Number, _between(0, 1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]
Password = Annotated[SecretStr, PlainSerializer(_password, return_type=str, when_used=_JSON)]
Texts = Annotated[tuple[Text, ...], _Many()]
CommaTexts = Annotated[tuple[Text, ...], _Many(",")]
CommaUris = Annotated[tuple[Uri, ...], _Many(",")]
Uris = Annotated[tuple[Uri, ...], _Many()]
FileNames = Annotated[tuple[FileName, ...], _Many()]
KeyPurposes = Annotated[tuple[Annotated[Text, AfterValidator(_key_purpose)], ...], _Many()]
ElementNames = Annotated[tuple[Annotated[Text, AfterValidator(_element_name)], ...], _Many()]
ContentIds = Annotated[tuple[Annotated[Text, AfterValidator(_content_id)], ...], _Many()]
one_or_many: Final = _Many()

Mep = Annotated[str, _known(MEPS)]
Binding = Annotated[str, _known(BINDINGS)]
ReliabilityProtocol = Annotated[str, _known(RELIABILITY_PROTOCOLS)]
SoapVersion = Annotated[Literal["1.1", "1.2"], _version("1.1", "1.2")]
WssVersion = Annotated[Literal["1.0", "1.1", "1.1.1"], _version("1.0", "1.1", "1.1.1")]
TlsVersion = Annotated[Literal["1.2", "1.3"], _version("1.2", "1.3")]
TransportProtocol = Annotated[Literal["TLS"], BeforeValidator(_upper)]
Compression = Annotated[
    Literal["application/gzip"] | None,
    BeforeValidator(_gzip),
    WithJsonSchema({"type": "string", "enum": ["gzip", GZIP, ""]}),
]
SignalReplyPattern = Annotated[Literal["response", "callback", "pull"], BeforeValidator(_lower)]
AckReplyPattern = Annotated[
    Literal["Response", "Callback", "Poll", "Pull"], BeforeValidator(_capitalized)
]
CopyElement = Literal["extension", "core"]
KeyReference = Literal[
    "binary_security_token",
    "pki_path",
    "issuer_serial",
    "subject_key_identifier",
    "thumbprint",
    "embedded",
]
SignatureAlgorithm = Annotated[str, _algorithm("signature")]
DigestAlgorithm = Annotated[str, _algorithm("digest")]
EncryptionAlgorithm = Annotated[str, _algorithm("encryption")]
KeyTransport = Annotated[str, _algorithm("key_transport")]
KeyAgreement = Annotated[str, _algorithm("key_agreement")]
KeyDerivation = Annotated[str, _algorithm("kdf")]
KeyWrap = Annotated[str, _algorithm("key_wrap")]
MaskGeneration = Annotated[str, _algorithm("mgf")]

PROPERTY_TYPES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "string": re.compile(r".*", re.DOTALL),
        "token": re.compile(r"\S+(?: \S+)*"),
        "boolean": re.compile(r"true|false|1|0"),
        "integer": re.compile(r"[+-]?[0-9]+"),
        "decimal": re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"),
        "date": re.compile(r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})?"),
        "dateTime": re.compile(
            r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
            r"(?:Z|[+-][0-9]{2}:[0-9]{2})?"
        ),
        "anyURI": re.compile(r"\S+"),
    }
)
"""The data types that a message property can be held to: the lexical forms of XML Schema."""


def _property_type(value: object) -> object:
    if not isinstance(value, str):
        return value
    local = value.rpartition(":")[2]
    name = {"int": "integer", "long": "integer"}.get(local, local)
    if name not in PROPERTY_TYPES:
        raise ValueError(f"{value!r} is no known data type; known: {', '.join(PROPERTY_TYPES)}")
    return name


PropertyType = Annotated[
    str,
    BeforeValidator(_property_type),
    WithJsonSchema({"type": "string", "enum": list(PROPERTY_TYPES)}),
]
