"""Problems as an ErrorList, and back (0.98b, 8.7).

A problem's code may be one of the older tongue or of ebMS 3.0, where code that both share found
it. Its place becomes a location: an XPointer for an element, the Content-ID of a MIME part, and
nothing for what is inside a payload.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from postroad.wire.ebxml import ERROR, WARNING, Dialect, Error, ErrorList
from postroad.wire.errors import EBXML, EBXML_CODES, ERRORS, EbmsError, Severity

MOST_ERRORS: Final = 50
SHORT_DESCRIPTIONS: Final = frozenset(
    ERRORS[code].short_description.rstrip(".").lower() for code in EBXML_CODES
)
"""What must not be the text of an Error. [MS098-8.7.7-01]"""
_EBMS_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "EBMS:0001": "ValueNotRecognized",
        "EBMS:0002": "NotSupported",
        "EBMS:0003": "Inconsistent",
        "EBMS:0007": "MimeProblem",
        "EBMS:0008": "NotSupported",
        "EBMS:0009": "OtherXml",
        "EBMS:0010": "Inconsistent",
        "EBMS:0011": "MimeProblem",
        "EBMS:0101": "SecurityFailure",
        "EBMS:0102": "SecurityFailure",
        "EBMS:0103": "SecurityFailure",
        "EBMS:0202": "DeliveryFailure",
    }
)
_path: Final = re.compile(r"/?(?:[\w.\-]+:)?[\w.\-]+(?:\[\d+\])?(?:/.*)?").fullmatch
_soap: Final = re.compile(r"(?<![\w.\-])S1[12]:").sub


def ebxml_code(problem: EbmsError) -> str:
    """The ebXML code of a problem, whichever tongue it was found in."""
    if problem.kind.origin == EBXML:
        return problem.code
    return _EBMS_CODES.get(problem.code, "Unknown")


def to_wire(
    problems: Iterable[EbmsError], dialect: Dialect, *, min_retry_secs: int | None = None
) -> ErrorList:
    """The problems as they are told to a partner; ValueError when there are none.

    [MS098-8.7-01]
    """
    found = list(problems)
    if not found:
        raise ValueError("an ErrorList needs at least one error")
    failures = [one for one in found if one.severity is Severity.FAILURE]
    told = (failures + [one for one in found if one.severity is not Severity.FAILURE])[:MOST_ERRORS]
    return ErrorList(tuple(_error(one, dialect, min_retry_secs) for one in told))


def _error(problem: EbmsError, dialect: Dialect, min_retry_secs: int | None) -> Error:
    code = ebxml_code(problem)
    return Error(
        error_code=code,
        severity=ERROR if problem.severity is Severity.FAILURE else WARNING,
        code_context=dialect.error_code_context,
        location=_location(problem.location, code),
        text="" if is_short_description(problem.detail) else problem.detail,
        min_retry_secs=min_retry_secs,
    )


def is_short_description(text: str) -> bool:
    return text.strip().rstrip(".").lower() in SHORT_DESCRIPTIONS


def _location(place: str | None, code: str) -> str | None:
    """[MS098-8.7.5.4-01] [MS098-8.7.5.4-02] [MS098-8.7.5.4-03]"""
    if place is None:
        return None
    if place.startswith("cid:"):
        return place if code == "MimeProblem" else None
    if "…" in place or ":" not in place or not _path(place):
        return None
    return f"#xpointer(/{_soap('SOAP-ENV:', place.removeprefix('/'))})"
