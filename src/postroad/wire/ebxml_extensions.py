"""Foreign elements in ebXML elements: #wildcard (0.98b, 8.2.3)."""

from collections.abc import Iterable

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebxml import Dialect, Extension
from postroad.wire.ebxml_findings import understood
from postroad.wire.errors import EbmsError


def write_extensions(extensions: Iterable[Extension], dialect: Dialect) -> str:
    """The elements; ValueError for one that is not well-formed, not foreign or not qualified.

    [MS098-8.2.3-01] [MS098-8.2.3-02]
    """
    return "".join(_extension(one, dialect) for one in extensions)


def _extension(extension: Extension, dialect: Dialect) -> str:
    try:
        element = xml.parse(extension.xml.encode(), where=extension.name)
        text = xml.canonical(element).decode()
    except (EbmsError, UnicodeEncodeError) as error:
        detail = error.detail if isinstance(error, EbmsError) else str(error)
        raise ValueError(f"{extension.name} cannot be sent: {detail}") from None
    if next(element.iter(etree.PI), None) is not None:
        raise ValueError(f"{extension.name} holds a processing instruction; SOAP forbids it")
    if not xml.namespace(element) or next(element.iter(dialect.tag("*")), None) is not None:
        raise ValueError(f"{extension.name} is not in a foreign namespace, or not all of it")
    said = Extension(str(element.tag), extension.xml, understood(element))
    if said != extension:
        raise ValueError(f"{extension.name} is called otherwise, or its mustUnderstand is another")
    return text
