"""The readers of strangers' bytes, each as a function that takes any bytes.

A target returns whatever the bytes are; an exception that leaves it is a bug. What a reader may
raise by its contract (EbmsError, KeyStoreError, ApiProblem) is caught here, right where it may come
from. A new reader gets a function here, a line in `TARGETS` and one in `seeds`.
"""

import io
import json
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from rich.tree import Tree

import postroad
from postroad.agreement.importing import import_pmodes
from postroad.agreement.loading import load_pmodes
from postroad.agreement.route_loading import load_routes
from postroad.agreement.routing import RoutingTable
from postroad.api.limits import ApiLimits
from postroad.api.metadata import BundleMetadata, Metadata, read_metadata
from postroad.api.multipart import Cutter, PartBegins
from postroad.api.problems import ApiProblem
from postroad.cli.inspection_tree import inspection_tree
from postroad.msh.forwarding import read_routable, route_report, unknown_headers
from postroad.msh.report import report
from postroad.msh.unbundling import unbundle, unit_failures
from postroad.node.evidence.inspecting import facts_of, inspect_source, look_at
from postroad.security.keys import KeyStoreError, load_certificates, load_key_pairs
from postroad.transport.smtp_data import LAST, DataReader, stuffed
from postroad.wire import xml
from postroad.wire.codings import CODINGS, Damaged, decoded
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebxml import DIALECTS, TraceHeader
from postroad.wire.ebxml_errors import to_wire
from postroad.wire.ebxml_hops import add_trace, renew_via
from postroad.wire.ebxml_packaging import packaging_problems
from postroad.wire.ebxml_reader import dialect_of, must_understand_problems, read_ebxml
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import read_message_fragment
from postroad.wire.http import body_chunks, read_head
from postroad.wire.mail import MailReader, kind_of_mail
from postroad.wire.mime import MultipartReader
from postroad.wire.mime_headers import parse_content_type
from postroad.wire.multihop import read_routing_input
from postroad.wire.receipts import check_receipt
from postroad.wire.restart import read_content_range, read_transfer_id
from postroad.wire.soap import Envelope, read_envelope
from postroad.wire.soap_faults import read_fault
from postroad.wire.wsa import read_addressing
from postroad.wire.wsreliability import read_wsr_headers, stated_group
from postroad.wire.wsrm_faults import read_rm_fault
from postroad.wire.wsrm_reader import read_lifecycle, read_rm_headers
from tests.fuzz.samples import (
    PULL_PMODE,
    ROUTES,
    agreements,
    coded,
    evidence_files,
    mails,
    reliable_messages,
    submissions,
)
from tests.fuzz.seeds import (
    BUYER,
    CA,
    NOW,
    PMODE,
    SELLER,
    ebxml_messages,
    messages,
    order,
    stores,
    tools,
)

KINDS: Final = frozenset(
    (
        *("user_message", "receipt", "error", "pull_request", "signal", "fragment", "fault"),
        *("soap", "wsrm", "wsreliability", "wstrust", "unreadable"),
        *("ebxml_message", "ebxml_acknowledgment", "ebxml_error", "ebxml_ping", "ebxml_pong"),
        *("ebxml_status_request", "ebxml_status_response", "ebxml"),
    )
)
_OUTER: Final = parse_content_type('multipart/related; type="text/xml"; boundary="b"')
_ROUTES: Final = RoutingTable(load_routes(ROUTES, "routes.yaml").file.routes)
_LIMITS: Final = ApiLimits()
_MOST_DECODED: Final = 256 * 1024
_LINE: Final = 998
logging.getLogger("python_multipart").disabled = True
logging.getLogger("python_multipart.multipart").disabled = True
_FILE: Final = b"\n=== file "
"""Begins a file of an evidence, before its name."""


def _envelope(data: bytes) -> Envelope | None:
    try:
        return read_envelope(xml.parse(data))
    except EbmsError:
        return None


def _cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes as one piece and as about a hundred; a reader makes the same of both."""
    for size in (len(data) or 1, len(data) // 97 + 1):
        yield [data[at : at + size] for at in range(0, len(data), size)]


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
    for label in _labels(inspection_tree({"file": "fuzz", **facts})):
        unseen = [c for c in label if not c.isprintable()]
        assert not unseen, unseen


def _labels(tree: Tree) -> Iterator[str]:
    """Yield what stands in a tree; to lay it out takes longer than all that was read."""
    yield str(tree.label)
    for child in tree.children:
        yield from _labels(child)


def envelope(data: bytes) -> None:
    """The XML readers, from the parser down to each header that is known."""
    read = _envelope(data)
    if read is None:
        return
    with suppress(EbmsError):
        messaging = find_messaging(read)
        if messaging is not None:
            found = read_messaging(messaging, read.version).messaging
            for signal in found.signals if found else ():
                with suppress(EbmsError):
                    sent = order()
                    check_receipt(
                        signal,
                        sent_message_id=sent.message_info.message_id,
                        sent_references=None,
                        sent_user_message=sent,
                    )
    read_addressing(read)
    read_fault(read)
    for block in read.blocks:
        read_messaging(block.element, read.version)
        read_routing_input(block)
        read_message_fragment(block)


def ebxml(data: bytes) -> None:
    """The reader of the older tongue, in each of its versions; what it reads can be relayed."""
    read = _envelope(data)
    if read is None:
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
        for pieces in _cuts(data):
            reader = MultipartReader(outer)
            try:
                for piece in pieces:
                    reader.feed(piece)
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
            for _, value in head.headers:
                if (span := read_content_range(value)) is not None:
                    assert read_content_range(str(span)) == span
                read_transfer_id(value)
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


def reliability(data: bytes) -> None:
    """The headers and messages of WS-ReliableMessaging and WS-Reliability."""
    read = _envelope(data)
    if read is None:
        return
    read_rm_headers(read)
    read_lifecycle(read)
    read_rm_fault(read)
    read_wsr_headers(read)
    stated_group(read)


def routing(data: bytes) -> None:
    """What a hub reads of a message, and where its rules lead it."""
    with suppress(EbmsError):
        found = read_routable(data)
        unknown_headers(found)
        route_report(found, _ROUTES)


def mail(data: bytes) -> None:
    """A mail and the content of DATA, whole and in pieces."""
    found = []
    for pieces in _cuts(data):
        reader = MailReader()
        try:
            body = b"".join([*map(reader.feed, pieces), reader.close()])
        except EbmsError as error:
            found.append(error.code.encode())
            continue
        found.append(body)
        assert reader.head is not None
        kind_of_mail(reader.head, "msh@buyer.example")
        for name in ("subject", "from", "message-id"):
            reader.head.text(name)
    assert found[0] == found[1]
    sent = b"".join(stuffed([data]))
    for pieces in _cuts(sent + LAST + b"QUIT"):
        content = DataReader(line_bytes=_LINE)
        taken = b""
        while pieces and not content.ended:
            taken += content.feed(pieces.pop(0))
        assert content.ended
        assert content.rest + b"".join(pieces) == b"QUIT"
        assert taken in (data, data + b"\r\n")


def decompression(data: bytes) -> None:
    """Each content coding, whole and in pieces; reading ends when enough has come out."""
    for name in CODINGS:
        found = []
        for pieces in _cuts(data):
            out = b""
            try:
                for piece in decoded(name, pieces):
                    out += piece
                    if len(out) > _MOST_DECODED:
                        break
            except Damaged:
                out = b"damaged"
            found.append(out[:_MOST_DECODED])
        assert found[0] == found[1]


def submission(data: bytes) -> None:
    """A REST submission: Content-Type in the first line, then the multipart body."""
    content_type, _, body = data.partition(b"\n")
    found = []
    for pieces in _cuts(body):
        with suppress(ApiProblem):
            cutter = Cutter(content_type.decode("latin-1"), _LIMITS)
            parts: list[tuple[PartBegins, bytearray]] = []
            for chunk in pieces:
                for piece in cutter.cut(chunk):
                    if isinstance(piece, PartBegins):
                        parts.append((piece, bytearray()))
                    elif isinstance(piece, memoryview):
                        parts[-1][1].extend(piece)
            found.append(parts)
    assert not found or found[0] == found[-1]
    for head, content in found[0] if found else ():
        if head.name == "metadata":
            with suppress(ApiProblem):
                read_metadata(bytes(content), Metadata)
            with suppress(ApiProblem):
                read_metadata(bytes(content), BundleMetadata)


def agreement(data: bytes) -> None:
    """CPAs, and P-Modes of other products."""
    found = import_pmodes(data, "fuzz.xml", now=NOW)
    for remark in (*found.problems, *found.notes):
        assert "\n" not in remark.text


def evidence(data: bytes) -> None:
    """The zip of an evidence. The input lists its files, so that checksums need not be guessed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings(action="ignore"):
        for entry in data.split(_FILE)[1:]:
            name, _, content = entry.partition(b"\n")
            info = zipfile.ZipInfo(name.decode("latin-1"))
            archive.writestr(info, content)
    with look_at(file.getvalue(), tools()) as found:
        json.dumps(facts_of(found))


Target = Callable[[bytes], object]

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "inspect": inspect,
        "inspect_strictly": inspect_strictly,
        "envelope": envelope,
        "ebxml": ebxml,
        "multipart": multipart,
        "http": http,
        "reliability": reliability,
        "routing": routing,
        "mail": mail,
        "decompression": decompression,
        "submission": submission,
        "evidence": evidence,
        "keystore": keystore,
        "pmodes": pmodes,
        "agreement": agreement,
    }
)


@cache
def seeds(target: str) -> Mapping[str, bytes]:
    """Return valid inputs for a target, by name."""
    envelopes = {name: _envelope_of(data) for name, data in messages().items()}
    own: dict[str, Callable[[], Mapping[str, bytes]]] = {
        "inspect": lambda: {**messages(), **ebxml_messages(), **reliable_messages()},
        "envelope": lambda: envelopes,
        "ebxml": ebxml_messages,
        "reliability": reliable_messages,
        "routing": lambda: envelopes,
        "mail": mails,
        "decompression": coded,
        "submission": submissions,
        "evidence": lambda: {
            "evidence": b"".join(
                _FILE + name.encode() + b"\n" + content
                for name, content in evidence_files().items()
            )
        },
        "keystore": stores,
        "pmodes": lambda: {"orders": PMODE.encode(), "pull": PULL_PMODE.encode()},
        "agreement": agreements,
    }
    return own.get(target, messages)()


def _envelope_of(data: bytes) -> bytes:
    """The envelope alone, where it stands in the message as it is."""
    end = data.rfind(b"Envelope>")
    begin = data.find(b"<?xml")
    return data[begin : end + len(b"Envelope>")] if 0 <= begin < end else data
