"""XPath expressions over a user message, as P-Modes have them: what units have in common.

The expressions start at eb:UserMessage; `eb` and `eb3` are the prefixes of ebMS 3.0. They come
from our own P-Modes, never from a message.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import Messaging, UserMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import EB3
from postroad.wire.soap import SoapVersion

_PREFIXES: Final = {"eb": EB3, "eb3": EB3}


@lru_cache(maxsize=256)
def unit_path(expression: str) -> etree.XPath:
    """The expression, compiled; ValueError when it is none."""
    try:
        path = etree.XPath(expression, namespaces=_PREFIXES)
        # Unknown prefixes and functions are noticed only when it is used.
        path(xml.parse(b"<unit/>"))
        return path
    except etree.XPathError as error:
        raise ValueError(f"{expression!r} is no XPath: {error}") from None


def unit_values(
    units: Iterable[etree._Element], expressions: Sequence[str]
) -> list[tuple[str, ...]]:
    """What the expressions select in each eb:UserMessage, in a form that can be compared.

    Prefixes, comments and white space around values make no difference.
    """
    paths = [unit_path(expression) for expression in expressions]
    return [tuple([_selected(path, unit) for path in paths]) for unit in units]


def written_unit(message: UserMessage) -> etree._Element:
    """A user message that is going to be sent, as an element."""
    written = write_messaging(Messaging((message,)), SoapVersion.SOAP_12).encode()
    return xml.parse(written)[0]


def _selected(path: etree.XPath, unit: etree._Element) -> str:
    found = path(unit)
    if not isinstance(found, list):
        return str(found)
    return repr([_value(one) if isinstance(one, etree._Element) else str(one) for one in found])


def _value(element: etree._Element) -> tuple[object, ...]:
    attributes = tuple(sorted((str(name), value) for name, value in element.items()))
    return element.tag, attributes, xml.text(element), *map(_value, xml.elements(element))
