"""Reading eb:Messaging: everything that can be read, and every deviation from the rules.

Deviations are collected, not raised: each is an `EbmsError` with its code, the place and a
sentence on what was expected and what was found. Those of severity failure forbid processing the
unit they are about (`ref` is its MessageId); warnings tell of what is let pass. Where a required
value is missing the unit is still given, with "" for text and `EPOCH` for a time.

Units without anything unusual are read by `ebms3_usual`, which is quicker and finds nothing.
"""

from dataclasses import dataclass
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import Messaging, Unit, UserMessage
from postroad.wire.ebms3_plain import plain_units
from postroad.wire.ebms3_signals import signal_message
from postroad.wire.ebms3_user_messages import (
    Findings,
    attributes,
    foreign,
    quoted,
    user_message,
)
from postroad.wire.ebms3_usual import usual_receipt, usual_user_message
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.names import EB3, WSU
from postroad.wire.soap import Envelope, SoapVersion

MESSAGING: Final = f"{{{EB3}}}Messaging"
USER_MESSAGE: Final = f"{{{EB3}}}UserMessage"
_SIGNAL: Final = f"{{{EB3}}}SignalMessage"
_WSU_ID: Final = f"{{{WSU}}}Id"
_BLANK: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from eb:Messaging; None when it holds no unit at all."""

    messaging: Messaging | None
    problems: tuple[EbmsError, ...]

    @property
    def failures(self) -> tuple[EbmsError, ...]:
        return tuple(p for p in self.problems if p.severity is Severity.FAILURE)


def find_messaging(envelope: Envelope) -> etree._Element | None:
    """The one eb:Messaging in the Header; EBMS:0009 for a second one, and for one elsewhere.

    An eb:Messaging that stands deeper than the Header's children is how a signed header is moved
    aside to put a forged one in its place.
    """
    found: etree._Element | None = None
    for element in envelope.root.iter(MESSAGING):
        if element.getparent() is not envelope.header:
            raise EbmsError(
                "EBMS:0009",
                "eb:Messaging must be a child of the SOAP Header and occur nowhere else",
                location=xml.path(element),
            )
        if found is not None:
            raise EbmsError(
                "EBMS:0009",
                "the Header holds more than one eb:Messaging",
                location=xml.path(element),
            )
        found = element
    return found


def read_messaging(
    element: etree._Element, version: SoapVersion, limits: Limits = DEFAULT
) -> Reading:
    """The header block with its units in document order, and all that is wrong with it.

    The order of units is that of the document, whatever the schema says: the first user message
    is the primary unit, or the first signal when there is none [P2-3.2.1-05]. Of more units than
    `limits` allow only that one is read, with EBMS:0008 [P2-7.2-09].
    """
    findings = Findings()
    if element.tag != MESSAGING:
        findings.add("EBMS:0009", element, f"expected eb:Messaging, found <{xml.local(element)}>")
        return Reading(None, findings.result())
    attributes(element, ("id",), findings)
    must_understand = _must_understand(element, version, findings)
    if _is_crowded(element, limits):
        units = _first_of_many(element, limits, findings)
    else:
        units = _plain(element) or _units(element, findings)
    if not units:
        findings.add(
            "EBMS:0009",
            element,
            "expected at least one eb:UserMessage or eb:SignalMessage, found none",
        )
        return Reading(None, findings.result())
    id = element.get("id")
    role = element.get(version.role_attribute)
    messaging = Messaging(
        units=tuple(units),
        id=element.get(_WSU_ID) if id is None else id,
        role=None if role is None else role.strip(_BLANK) or None,
        must_understand=must_understand,
    )
    return Reading(messaging, findings.result())


def _must_understand(element: etree._Element, version: SoapVersion, findings: Findings) -> bool:
    value = element.get(version.must_understand_attribute)
    if value is not None and value.strip(_BLANK) in ("1", "true"):
        return True
    found = "none" if value is None else quoted(value)
    findings.warn(
        "EBMS:0009",
        element,
        f"expected {version.prefix}:mustUnderstand={version.must_understand}, found {found}",
    )
    return False


def _is_crowded(element: etree._Element, limits: Limits) -> bool:
    most = limits.units
    return (
        len(element) > most and sum(1 for _ in element.iterchildren(USER_MESSAGE, _SIGNAL)) > most
    )


def _first_of_many(element: etree._Element, limits: Limits, findings: Findings) -> list[Unit]:
    """The primary unit, to which the error refers."""
    first = element.find(USER_MESSAGE)
    unit: Unit
    if first is not None:
        unit = user_message(first, findings)
    else:
        unit = signal_message(next(element.iterchildren(_SIGNAL)), findings)
    said = f"there are more than {limits.units} units in one message, which are not taken here"
    findings.add("EBMS:0008", element, said)
    for error in findings.errors:
        error.ref = error.ref or unit.message_info.message_id or None
    return [unit]


def _plain(element: etree._Element) -> list[Unit] | None:
    """The units, if each is written plainly and has an id of its own, signals first."""
    units = plain_units(element)
    if units is None or len({one.message_info.message_id for one in units}) < len(units):
        return None
    kinds = [isinstance(one, UserMessage) for one in units]
    return units if kinds == sorted(kinds) else None


def _units(element: etree._Element, findings: Findings) -> list[Unit]:
    units: list[Unit] = []
    ids: set[str] = set()
    pulls = 0
    users = False
    text = element.text
    if text is not None and text.strip(_BLANK):
        findings.add("EBMS:0009", element, "expected elements only, found text")
    for child in element:
        tag, tail = child.tag, child.tail
        if tail is not None and tail.strip(_BLANK):
            findings.add("EBMS:0009", element, "expected elements only, found text between them")
        if not isinstance(tag, str):
            continue
        before = len(findings.errors)
        unit: Unit
        if tag == USER_MESSAGE:
            users = True
            unit = usual_user_message(child) or user_message(child, findings)
        elif tag == _SIGNAL:
            if users:
                findings.warn("EBMS:0009", child, "the schema has signals before user messages")
            unit = usual_receipt(child) or signal_message(child, findings)
            pulls += unit.pull_request is not None
            if pulls > 1 and unit.pull_request is not None:
                findings.add("EBMS:0009", child, "a message holds at most one eb:PullRequest")
        else:
            if not foreign(tag):
                findings.add(
                    "EBMS:0009",
                    child,
                    f"expected eb:UserMessage or eb:SignalMessage, found <{xml.local(child)[:80]}>",
                )
            continue
        id = unit.message_info.message_id
        if id and id in ids:
            findings.add("EBMS:0009", child, f"two units have the MessageId {quoted(id)}")
        ids.add(id)
        for error in findings.errors[before:]:
            error.ref = error.ref or id or None
        units.append(unit)
    return units
