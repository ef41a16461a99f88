"""SOAP Faults: what is answered to an ebXML message before ebXML itself can (0.98b, 7.6 and 11).

A Fault says that a message could not be processed at all. A warning never becomes one.
[MS098-11-04]
"""

from collections.abc import Sequence
from typing import Final

from postroad.wire.ebxml import EbxmlMessage
from postroad.wire.errors import EbmsError
from postroad.wire.names import S11
from postroad.wire.soap import SoapVersion, value_namespaces, write_body, write_envelope
from postroad.wire.soap_faults import Fault, write_fault

_MOST: Final = 10


def fault(what: Fault) -> bytes:
    """A SOAP 1.1 envelope with the Fault. [MS098-11-03]"""
    version = SoapVersion.SOAP_11
    content = write_fault(version, what)
    namespaces = value_namespaces(content)
    body = write_body(version, content, namespaces=namespaces)
    return write_envelope(version, (), body, namespaces=namespaces)


def client_fault(problems: Sequence[EbmsError]) -> Fault:
    """The Fault that says what is wrong with what was sent: its MIME package, its XML."""
    told = "; ".join(
        f"{one.location}: {one.detail}" if one.location else one.detail for one in problems[:_MOST]
    )
    return Fault(f"{{{S11}}}Client", told[:2000])


def unsupported_service(message: EbxmlMessage) -> Fault:
    """The Fault for a service of the MSH that is not offered. [MS098-9-02]"""
    said = f"the service {message.header.action[:80]!r} is not offered here"
    return Fault(f"{{{S11}}}MustUnderstand", said)
