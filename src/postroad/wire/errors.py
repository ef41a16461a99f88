"""The ebMS error table (Core 6.7, AS4, Part 2; ebXML MS) as data, and the one family of exceptions.

Whatever is wrong with a message is an `EbmsError`: raised where work cannot go on, collected in
a list where a reader wants to tell everything it found. One place turns it into wire errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Severity(StrEnum):
    FAILURE = "failure"
    WARNING = "warning"


class Category(StrEnum):
    CONTENT = "Content"
    COMMUNICATION = "Communication"
    UNPACKAGING = "Unpackaging"
    PROCESSING = "Processing"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the table: what a code means wherever it is used."""

    code: str
    short_description: str
    severity: Severity
    category: Category
    origin: str
    meaning: str


_TABLE = """
0001 ValueNotRecognized           failure Content       ebMS        an element holds a value that this receiver does not know
0002 FeatureNotSupported          warning Content       ebMS        a value asks for a feature that is not supported
0003 ValueInconsistent            failure Content       ebMS        a value contradicts another value, the agreement or its own type
0004 Other                        failure Content       ebMS        an error that no other code describes
0005 ConnectionFailure            failure Communication ebMS        no connection to the next MSH could be made
0006 EmptyMessagePartitionChannel warning Communication ebMS        no message waits in the channel that is pulled from
0007 MimeInconsistency            failure Unpackaging   ebMS        the MIME packaging is not as it must be
0008 FeatureNotSupported          failure Unpackaging   ebMS        the packaging uses a feature that is not supported
0009 InvalidHeader                failure Unpackaging   ebMS        the ebMS header is not well-formed or breaks its schema
0010 ProcessingModeMismatch       failure Processing    ebMS        no P-Mode fits, or the message breaks the one that does
0011 ExternalPayloadError         failure Content       ebMS        a payload outside the message cannot be resolved
0020 RoutingFailure               failure Processing    ebMS        no routing entry matches the message
0021 MPCCapacityExceeded          failure Processing    ebMS        the channel's store is full
0022 MessagePersistenceTimeout    failure Processing    ebMS        the message waited in its channel beyond the time limit
0023 MessageExpired               warning Processing    ebMS        the message expired before it could be forwarded
0030 BundlingError                failure Content       ebMS        the bundle breaks the agreed bundling parameters
0031 RelatedMessageFailed         failure Processing    ebMS        a related unit of the same bundle failed before this one
0040 BadFragmentGroup             failure Content       ebMS        the fragment belongs to a group that was rejected
0041 DuplicateMessageSize         failure Content       ebMS        the message size was given more than once in the group
0042 DuplicateFragmentCount       failure Content       ebMS        the fragment count was given more than once in the group
0043 DuplicateMessageHeader       failure Content       ebMS        the message header was given more than once in the group
0044 DuplicateAction              failure Content       ebMS        the action was given more than once in the group
0045 DuplicateCompressionInfo     failure Content       ebMS        compression data was given more than once in the group
0046 DuplicateFragment            failure Content       ebMS        a fragment with this number was received before
0047 BadFragmentStructure         failure Unpackaging   ebMS        the fragment's href, parts or body are not as they must be
0048 BadFragmentNum               failure Content       ebMS        the fragment number is above the known fragment count
0049 BadFragmentCount             failure Content       ebMS        the fragment count is below a fragment number already seen
0050 FragmentSizeExceeded         warning Unpackaging   ebMS        the fragment is larger than agreed
0051 ReceiveIntervalExceeded      failure Unpackaging   ebMS        the fragments did not all arrive within the join interval
0052 BadProperties                warning Unpackaging   ebMS        the fragment carries a property that was not agreed for routing
0053 HeaderMismatch               failure Unpackaging   ebMS        the headers of fragment and joined message differ
0054 OutOfStorageSpace            failure Unpackaging   ebMS        there is no room to store the group of fragments
0055 DecompressionError           failure Processing    ebMS        the joined message could not be decompressed
0060 ResponseUsingAlternateMEP    warning Processing    ebMS        the response will be sent over the alternate MEP
0101 FailedAuthentication         failure Processing    security    the signature, certificate or token does not hold
0102 FailedDecryption             failure Processing    security    the message could not be decrypted
0103 PolicyNoncompliance          failure Processing    security    the message breaks the security policy of the agreement
0201 DysfunctionalReliability     failure Processing    reliability the reliability module does not work for this message
0202 DeliveryFailure              failure Communication reliability the message could not be delivered reliably
0301 MissingReceipt               failure Communication ebMS        no receipt came in time
0302 InvalidReceipt               failure Communication ebMS        the receipt does not fit the message it is for
0303 DecompressionFailure         failure Communication ebMS        a compressed payload could not be decompressed
"""  # noqa: E501

_EBXML_TABLE = """
ValueNotRecognized | Content       | Element content or attribute value not recognized.                    | an element or attribute holds a value that is not known here
NotSupported       | Content       | Element or attribute not supported                                    | an element or attribute asks for what is not supported here
Inconsistent       | Content       | Element content or attribute value inconsistent with other elements or attributes. | a value contradicts another value or the agreement
OtherXml           | Content       | Other error in an element content or attribute value.                 | an ebXML element breaks a rule that no other code is about
DeliveryFailure    | Communication | Message Delivery Failure                                              | the message could not, or probably not, be sent on to where it goes
TimeToLiveExpired  | Processing    | Message Time To Live Expired                                          | the message came after the time in its TimeToLive
SecurityFailure    | Processing    | Message Security Checks Failed                                        | the signature does not hold, or the sender is not who it says, or may not
MimeProblem        | Unpackaging   | URI resolve error                                                     | the MIME packaging is not as it must be, or a part is missing
Unknown            | Processing    | Unknown Error                                                         | an error that no other code describes
"""  # noqa: E501


def _rows(table: str) -> dict[str, ErrorKind]:
    kinds = {}
    for line in table.strip().splitlines():
        number, short, severity, category, origin, meaning = line.split(maxsplit=5)
        code = f"EBMS:{number}"
        kinds[code] = ErrorKind(
            code, short, Severity(severity), Category(category), origin, meaning
        )
    return kinds


def _ebxml_rows(table: str) -> dict[str, ErrorKind]:
    """The codes of the older tongue; as a rule they are failures."""
    kinds = {}
    for line in table.strip().splitlines():
        code, category, short, meaning = map(str.strip, line.split("|"))
        kinds[code] = ErrorKind(code, short, Severity.FAILURE, Category(category), EBXML, meaning)
    return kinds


EBXML = "ebXML"
"""The origin of the codes of ebXML MS 0.98b, 1.0 and 2.0."""
EBXML_CODES: tuple[str, ...] = tuple(_ebxml_rows(_EBXML_TABLE))
ERRORS: Mapping[str, ErrorKind] = MappingProxyType(_rows(_TABLE) | _ebxml_rows(_EBXML_TABLE))


def canonical_code(code: str) -> str:
    """Bring the spellings that occur in the field and in print to the form `EBMS:nnnn`."""
    digits = "".join(c for c in code if c.isascii() and c.isdigit())
    if len(digits) == 4 and code.upper().startswith(("EBMS", "EBSMS")):
        return f"EBMS:{digits}"
    return code


class EbmsError(Exception):
    """Something is wrong with a message: the code, a sentence that tells what, and the place.

    `location` is a path into the message (`eb:Messaging/eb:UserMessage[1]/…`, `cid:…`, `MIME`),
    `ref` the id of the message in error where it is known.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        location: str | None = None,
        ref: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.kind = ERRORS[code]
        self.detail = detail
        self.location = location
        self.ref = ref
        self.severity = severity or self.kind.severity

    @property
    def code(self) -> str:
        return self.kind.code

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        name = f" {self.kind.short_description}" if self.kind.origin != EBXML else ""
        return f"{self.code}{name}{place}: {self.detail}"

    def __repr__(self) -> str:
        return f"EbmsError({str(self)!r})"
