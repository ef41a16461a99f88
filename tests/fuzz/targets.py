"""The doors that strangers' bytes come through, each as a function that takes any bytes.

A target returns whatever the bytes are; an exception that leaves it is a bug. What a reader may
raise by its contract (EbmsError, KeyStoreError) is caught here, right where it may come from.
"""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

import postroad
from postroad.agreement.loading import load_pmodes
from postroad.cli.inspection_tree import inspection_tree
from postroad.msh.report import report
from postroad.msh.unbundling import unbundle, unit_failures
from postroad.node.evidence.inspecting import inspect_source
from postroad.security.keys import KeyStoreError, load_certificates, load_key_pairs
from postroad.wire import xml
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebxml import DIALECTS, TraceHeader
from postroad.wire.ebxml_errors import to_wire
from postroad.wire.ebxml_hops import add_trace, renew_via
from postroad.wire.ebxml_packaging import packaging_problems
from postroad.wire.ebxml_reader import dialect_of, must_understand_problems, read_ebxml
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import read_message_fragment
from postroad.wire.http import body_chunks, read_head
from postroad.wire.mime import MultipartReader
from postroad.wire.mime_headers import parse_content_type
from postroad.wire.multihop import read_routing_input
from postroad.wire.soap import read_envelope
from postroad.wire.soap_faults import read_fault
from postroad.wire.wsa import read_addressing
from tests.fuzz.seeds import (
    BUYER,
    CA,
    NOW,
    PMODE,
    SELLER,
    ebxml_messages,
    messages,
    stores,
    tools,
)

KINDS: Final = frozenset(
    (
        *("user_message", "receipt", "error", "pull_request", "signal", "fragment", "fault"),
        *("soap", "wsrm", "wsreliability", "wstrust", "unreadable"),
        *("ebxml_message", "ebxml_acknowledgment", "ebxml_error", "ebxml_ping", "ebxml_pong"),
        *("ebxml_status_request", "ebxml_status_response"),
    )
)
_OUTER: Final = parse_content_type('multipart/related; type="text/xml"; boundary="b"')


def inspect(data: bytes) -> dict[str, Any]:
    """`postroad.inspect`, with keys and without: always an object that JSON can hold."""
    facts = postroad.inspect(
        data, trust=(CA.certificate, BUYER.certificate), key=SELLER, at=NOW, allow_legacy=True
    )
    json.dumps(facts)
    assert facts["kind"] in KINDS
    assert facts["holds"] == (
        facts["kind"] != "unreadable"
        and not any(problem["severity"] == "failure" for problem in facts["errors"])
    )
    return facts


def inspect_strictly(data: bytes) -> None:
    """The same against a P-Mode, and shown to people: nothing that moves their cursor."""
    found = inspect_source(data, tools(agreed=True))
    facts = report(found)
    taken = unbundle(found)
    assert found.holds or taken.failures or unit_failures(taken) or not taken.units
    shown = io.StringIO()
    Console(file=shown, width=200).print(inspection_tree({"file": "fuzz", **facts}))
    unseen = [c for c in shown.getvalue() if not c.isprintable() and c != "\n"]
    assert not unseen, unseen


def envelope(data: bytes) -> None:
    """The XML readers, from the parser down to each header that is known."""
    try:
        read = read_envelope(xml.parse(data))
    except EbmsError:
        return
    with suppress(EbmsError):
        messaging = find_messaging(read)
        if messaging is not None:
            read_messaging(messaging, read.version)
    read_addressing(read)
    read_fault(read)
    for block in read.blocks:
        read_messaging(block.element, read.version)
        read_routing_input(block)
        read_message_fragment(block)


def ebxml(data: bytes) -> None:
    """The reader of the older tongue, in each of its versions; what it reads can be relayed."""
    try:
        read = read_envelope(xml.parse(data))
    except EbmsError:
        return
    dialect_of(read)
    for dialect in DIALECTS.values():
        must_understand_problems(read, dialect)
        found = read_ebxml(read, dialect)
        packaging_problems(None, _OUTER, data, (), found.message and found.message.manifest)
        if found.problems:
            to_wire(found.problems, dialect)
        if found.message is not None and not found.failures and dialect.has_trace:
            trace = TraceHeader("urn:a", "urn:b", NOW)
            relayed = renew_via(add_trace(data, dialect, trace), dialect, None)
            again = read_ebxml(read_envelope(xml.parse(relayed)), dialect).message
            assert again is not None
            assert again.header == found.message.header
            assert again.trace == (*found.message.trace, *again.trace[-1:])


def multipart(data: bytes) -> None:
    """The MIME reader, fed whole and in small pieces: both come to the same."""
    found = []
    for outer in (None, _OUTER):
        for size in (len(data) or 1, len(data) // 97 + 1):
            reader = MultipartReader(outer)
            try:
                for at in range(0, len(data), size):
                    reader.feed(data[at : at + size])
                package = reader.close()
                found.append([(part.content_id, part.sha256) for part in package.parts])
            except EbmsError as error:
                found.append([(error.code, None)])
    assert found[0] == found[1]
    assert found[2] == found[3]


def http(data: bytes) -> None:
    """The head of a capture, and its body out of chunks and compression."""
    with suppress(EbmsError):
        head = read_head(data)
        if head is not None:
            assert head.body_offset <= len(data)
            _ = head.status
            _ = head.content_type
            for _ in body_chunks(head, [data[head.body_offset :]]):
                pass


def keystore(data: bytes) -> None:
    """Key and trust stores of any kind: what is wrong is always a KeyStoreError."""
    for password in (None, b"secret"):
        with suppress(KeyStoreError):
            load_certificates(data, password)
        with suppress(KeyStoreError):
            load_key_pairs(data, password)


def pmodes(data: bytes) -> None:
    """P-Mode files: whatever is wrong is told by line."""
    result = load_pmodes(data, "fuzz.yaml")
    for problem in result.problems:
        assert "\n" not in str(problem)


Target = Callable[[bytes], object]

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "inspect": inspect,
        "inspect_strictly": inspect_strictly,
        "envelope": envelope,
        "ebxml": ebxml,
        "multipart": multipart,
        "http": http,
        "keystore": keystore,
        "pmodes": pmodes,
    }
)


def seeds(target: str) -> dict[str, bytes]:
    """Valid inputs for a target, by name."""
    if target == "keystore":
        return stores()
    if target == "pmodes":
        return {"orders": PMODE.encode()}
    if target == "ebxml":
        return ebxml_messages()
    if target == "envelope":
        return {name: _envelope_of(data) for name, data in messages().items()}
    return messages()


def _envelope_of(data: bytes) -> bytes:
    """The envelope alone, where it stands in the message as it is."""
    end = data.rfind(b"Envelope>")
    begin = data.find(b"<?xml")
    return data[begin : end + len(b"Envelope>")] if 0 <= begin < end else data
