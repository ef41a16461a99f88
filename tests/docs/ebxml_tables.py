"""The tables of docs/ebxml.md, drawn from the code.

`python -m tests.docs.ebxml_tables` writes them into the page; a test compares.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from postroad.wire.ebxml import DELIVERY_RECEIPT, DIALECTS, Dialect
from postroad.wire.errors import EBXML_CODES, ERRORS
from tests.conftest import PROJECT
from tests.docs.reliability_tables import rows

PAGE: Final = PROJECT / "docs" / "ebxml.md"
_TABLE: Final = re.compile(r"(?<=<!-- table: )(\w+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)

Telling = Callable[[Dialect], str]


def _yes(field: str) -> Telling:
    return lambda dialect: "yes" if getattr(dialect, field) else "no"


def _code(text: str) -> str:
    return f"`{text}`"


def _parties(dialect: Dialect) -> str:
    ids = "PartyId, one or more" if dialect.many_party_ids else "one PartyId"
    return f"{ids}; Role" if dialect.has_role else ids


def _trace(dialect: Dialect) -> str:
    if not dialect.has_trace:
        return "no"
    ends = "Sender, Receiver" if dialect.trace_by_party else "SenderURI, ReceiverURI"
    return f"TraceHeaderList: {ends}"


def _receipt(dialect: Dialect) -> str:
    if not dialect.has_quality_of_service:
        return "no: the acknowledgment is the To Party's"
    if dialect.has_delivery_receipt:
        return "DeliveryReceipt, in the Body"
    return f"Acknowledgment of type {DELIVERY_RECEIPT}"


def _versions(dialect: Dialect) -> str:
    first, *others = map(_code, dialect.versions)
    return f"{first}; {', '.join(others)} is read too" if others else first


ROWS: Final[Mapping[str, tuple[tuple[str, ...], Telling]]] = {
    "namespace": (("namespace",), lambda one: _code(one.namespace)),
    "eb:version": (("versions",), _versions),
    "Service of the MSHs": (("msh_service",), lambda one: _code(one.msh_service)),
    "From and To": (("many_party_ids", "has_role"), _parties),
    "reliable delivery is asked for by": (
        ("has_quality_of_service",),
        lambda one: (
            "QualityOfServiceInfo" if one.has_quality_of_service else "DuplicateElimination"
        ),
    ),
    "SequenceNumber": (
        ("has_quality_of_service",),
        lambda one: f"in {'MessageHeader' if one.has_quality_of_service else 'MessageOrder'}",
    ),
    "the way so far": (("has_trace", "trace_by_party"), _trace),
    "for the next MSH": (
        ("has_trace",),
        lambda one: "Via" if one.has_trace else "SyncReply, AckRequested",
    ),
    "an acknowledgment is asked for by": (
        ("has_trace",),
        lambda one: "Via, of the next MSH" if one.has_trace else "AckRequested, of the To Party",
    ),
    "Acknowledgment": (
        ("acknowledgment_in_header",),
        lambda one: f"in the {'Header' if one.acknowledgment_in_header else 'Body'}",
    ),
    "it names the message by": (
        ("acknowledgment_refers",),
        lambda one: (
            "its own RefToMessageId"
            if one.acknowledgment_refers
            else "RefToMessageId of the MessageHeader"
        ),
    ),
    "it repeats the message's digests, if signed": (
        ("acknowledgment_references",),
        _yes("acknowledgment_references"),
    ),
    "delivery receipt": (("has_quality_of_service", "has_delivery_receipt"), _receipt),
    "status is asked for by": (
        ("has_status_request",),
        lambda one: (
            "StatusRequest" if one.has_status_request else "RefToMessageId of the MessageHeader"
        ),
    ),
    "and told by": (("status_data",), lambda one: one.status_data),
    "statuses": (("message_statuses",), lambda one: ", ".join(one.message_statuses)),
    "codeContext of errors": (("error_code_context",), lambda one: _code(one.error_code_context)),
    "text of an Error": (
        ("error_has_description",),
        lambda one: "in its Description" if one.error_has_description else "in itself",
    ),
    "mustUnderstand in the Body": (("body_must_understand",), _yes("body_must_understand")),
    "id attribute": (("id_attribute",), lambda one: _code(one.id_attribute)),
    "Manifest and Reference need one": (("ids_required",), _yes("ids_required")),
    "foreign elements in the MessageHeader": (("open_header",), _yes("open_header")),
    "left out of the signature": (
        ("hop_xpath", "hop_namespaces"),
        lambda one: (
            "TraceHeaderList, Via" if one.has_trace else "what has actor nextMSH, or SOAP's next"
        ),
    ),
}
"""For each row the fields of a Dialect that it tells, and how."""


def _dialects() -> str:
    found = DIALECTS.values()
    return rows(
        ("", *(one.name for one in found)),
        ((name, *map(tell, found)) for name, (_, tell) in ROWS.items()),
    )


EXAMPLES: Final[Mapping[str, str]] = {
    "ValueNotRecognized": "no P-Mode has this CPAId; it is for another party",
    "NotSupported": "a signed acknowledgment is asked for, and there is no key for it",
    "Inconsistent": "the header says BestEffort, the P-Mode OnceAndOnlyOnce; another message "
    "under a known id; a SequenceNumber that was used before",
    "OtherXml": "an element is missing, stands twice or in the wrong place",
    "DeliveryFailure": "a relay could not pass it on: Error if it surely did not leave, else "
    "Warning; there is no room to hold messages that come too early",
    "TimeToLiveExpired": "it came too late, by the clock of the receiver",
    "SecurityFailure": "there is no signature, it does not hold, or nobody vouches for the signer",
    "MimeProblem": "the Manifest names a part that is not there",
    "Unknown": "whatever has no code of its own",
}


def _errors() -> str:
    return rows(
        ("code", "when", "for example"),
        ((_code(code), ERRORS[code].meaning or "", EXAMPLES[code]) for code in EBXML_CODES),
    )


TABLES: Final[Mapping[str, Callable[[], str]]] = {"dialects": _dialects, "errors": _errors}


def drawn(page: str) -> str:
    """The page with its tables as the code has them."""
    return _TABLE.sub(lambda one: f"{one[1]}{one[2]}{TABLES[one[1]]()}\n", page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
