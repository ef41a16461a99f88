"""Times in a Security header: write them, read the wsu:Timestamp and check it (WSS 1.1, 10)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lxml import etree

from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.ebms3_writer import write_timestamp
from postroad.wire.errors import EbmsError
from postroad.wire.names import WSU
from postroad.wire.xml import elements, local, path, text


@dataclass(frozen=True, slots=True)
class Timestamp:
    element: etree._Element
    created: datetime | None
    expires: datetime | None


def write_security_time(time: datetime) -> str:
    """Return a time for wsu:Created or wsu:Expires, cut to milliseconds.

    Basic Security Profile 1.1, R3220: a receiver need not read more digits, and WSS4J refuses them.
    """
    return write_timestamp(time.replace(microsecond=time.microsecond // 1000 * 1000))


def read_security_timestamp(security: etree._Element) -> tuple[Timestamp | None, list[EbmsError]]:
    """The wsu:Timestamp of a Security header and what is wrong with it (WSS 1.1, 10)."""
    found = [child for child in security if child.tag == f"{{{WSU}}}Timestamp"]
    if not found:
        return None, []
    problems = []
    if len(found) > 1:
        problems.append(_policy(found[1], "more than one wsu:Timestamp"))
    times: dict[str, datetime | None] = {"Created": None, "Expires": None}
    for child in elements(found[0]):
        name = local(child)
        if child.tag != f"{{{WSU}}}{name}" or name not in times:
            continue
        if times[name] is not None:
            problems.append(_policy(child, f"more than one wsu:{name}"))
        try:
            times[name] = parse_timestamp(text(child))[0]
        except ValueError as error:
            problems.append(_policy(child, str(error)))
        if problems:
            break
    created, expires = times["Created"], times["Expires"]
    if created and expires and expires <= created:
        problems.append(_policy(found[0], "it expires before it was created"))
    return Timestamp(found[0], created, expires), problems


def check_timestamp(
    timestamp: Timestamp, now: datetime, *, skew: timedelta = timedelta(minutes=5)
) -> list[EbmsError]:
    """Whether the time is right: not expired, not from the future."""
    problems = []
    if timestamp.expires and now - timestamp.expires > skew:
        problems.append(
            _policy(timestamp.element, f"the message expired at {timestamp.expires.isoformat()}")
        )
    if timestamp.created and timestamp.created - now > skew:
        problems.append(
            _policy(
                timestamp.element,
                f"the message was created in the future, at {timestamp.created.isoformat()}",
            )
        )
    return problems


def _policy(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0103", detail, location=path(element))
