"""A small message must not ask for much work: floods cost what honest messages of that size cost.

Work is measured in processor time beside an honest message of the same size in the same run, so
that nothing here depends on how fast or how busy the machine is.
"""

import gzip
import time
from functools import cache
from pathlib import Path

import pytest

from postroad.node.settings.agreements import load_expectation
from postroad.wire.limits import Limits
from tests.attack.floods import HARMLESS, Floods
from tests.attack.forging import Ref, refs, resigned, sha256
from tests.attack.messages import (
    BODY,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    look,
    make,
    payload,
    seller,
    write_pmode,
)
from tests.changing import replace

FACTOR = 60
"""How many times an honest message of that size. Quadratic work would be thousands of times."""


def _cost(data: bytes) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        look(data, keys=(seller(),))
        best = min(best, time.process_time() - start)
    return best


@cache
def _message() -> Package:
    return make(TWO, body=BODY)


def _honest(size: int) -> bytes:
    """A message that holds, of about that size: elements, attributes and text."""
    line = '<o:Line n="1"><o:Item>Copper wire</o:Item><o:Quantity>2500</o:Quantity></o:Line>'
    lines = min(size // len(line) + 1, 12_000)
    body = f'<o:Order xmlns:o="urn:example:order">{line * lines}</o:Order>'
    return make(TWO, body=body).wire()


@cache
def _honest_cost(megabytes: int) -> float:
    """What an honest message costs, by the size rounded up."""
    return _cost(_honest(megabytes << 19))


_FLOODS = Floods(_message(), make, resigned).all()


@pytest.mark.parametrize("name", _FLOODS)
def test_a_flood_costs_no_more_than_an_honest_message_of_its_size(name: str) -> None:
    data = _FLOODS[name]().wire()
    found = look(data, keys=(seller(),))
    if name in HARMLESS:
        assert_holds(found)
    else:
        assert_refused(found)
    assert len(found["errors"]) <= 1001
    cost, honest = _cost(data), _honest_cost(max(len(data) >> 19, 1))
    assert cost < FACTOR * honest, f"{cost / honest:.0f} times an honest message"


@pytest.mark.parametrize("name", [name for name in _FLOODS if name.startswith("party ids")])
def test_party_ids_without_end_are_matched_like_few(name: str, tmp_path: Path) -> None:
    """Whose message it is is looked up among the P-Modes before anything is believed."""
    expectation = load_expectation(write_pmode(tmp_path))
    data, honest = _FLOODS[name]().wire(), _honest(1 << 20)
    costs = []
    for one in (honest, data):
        begin = time.process_time()
        found = look(one, expectation=expectation)
        costs.append(time.process_time() - begin)
    assert_refused(found, "EBMS:0010", "EBMS:0101")
    assert costs[1] < FACTOR * costs[0], f"{costs[1] / costs[0]:.0f} times an honest message"


@pytest.mark.parametrize("units", [False, True], ids=["in one unit", "in many units"])
def test_a_compressed_part_is_inflated_once_however_often_it_is_named(units: bool) -> None:
    """Else a header of some kilobytes could fill a disk."""
    message = make([payload("one", gzip.compress(bytes(5_000_000), mtime=0), "application/gzip")])
    start = message.envelope.index(b"<eb:UserMessage>" if units else b"<eb:PartInfo ")
    end = b"</eb:UserMessage>" if units else b"</eb:PartInfo>"
    stop = message.envelope.index(end) + len(end)
    named = message.envelope[start:stop]
    flood = replace(
        message, envelope=message.envelope[:stop] + named * 300 + message.envelope[stop:]
    )
    assert_refused(look(flood))
    limits = Limits(decompression_ratio=5000)
    costs = []
    for one in (message, flood):
        data = one.wire()
        begin = time.process_time()
        look(data, limits=limits)
        costs.append(time.process_time() - begin)
    assert costs[1] < FACTOR * costs[0]


def test_chunks_of_one_byte_cost_no_more_than_their_number() -> None:
    head, _, body = _message().wire().partition(b"\r\n\r\n")
    filled = body.replace(b"<o:Pay>", b"<o:Pay>" + b"x" * 200_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in filled) + b"0\r\n\r\n"
    flood = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    [flooded], [honest] = look(flood)["units"], look(_message())["units"]
    assert flooded["message_id"] == honest["message_id"]
    assert _cost(flood) < 4 * FACTOR * _honest_cost(len(flood) >> 19)


def test_a_flood_of_references_to_one_attachment_digests_it_once() -> None:
    message = make([payload("one", b"<r>" + b"<a/>" * 50_000 + b"</r>", "application/xml")])
    [own] = [one for one in refs(message) if one.uri.startswith("cid:")]
    flood = resigned(message, [*refs(message), *[own] * 1900])
    assert_refused(look(flood), "EBMS:0101")
    assert _cost(flood.wire()) < FACTOR * _cost(message.wire())


@pytest.mark.parametrize("namespaces", [120, 3000])
def test_namespaces_above_an_inclusively_signed_body_cost_no_square(namespaces: int) -> None:
    c14n = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
    message = make((), body=f'<o:Order xmlns:o="urn:o">{"<o:a/>" * 1000}</o:Order>')
    declared = " ".join(f'xmlns:n{n}="urn:{n}"' for n in range(namespaces))
    signed = resigned(message, [Ref("#_body", sha256(b"x"), (c14n,))])
    flood = signed.replaced("<S12:Envelope ", f"<S12:Envelope {declared} ")
    assert_refused(look(flood), "EBMS:0009", "EBMS:0101")
    assert _cost(flood.wire()) < 100 * _cost(message.wire())


@pytest.mark.parametrize("attributes", [500, 10_000])
def test_attributes_of_an_xml_attachment_cost_no_square(attributes: int) -> None:
    """Canonical form sorts them; in rising order that is what costs most."""
    message = make([payload("one", b"<r/>", "application/xml")])
    written = b" ".join(b'a%05d=""' % number for number in range(attributes))
    flood = b"<r>" + b"<e %s/>" % written * (1_000_000 // len(written)) + b"</r>"
    line = b'<Line n="1"><Item>Copper wire</Item><Quantity>2500</Quantity></Line>'
    honest = b"<r>" + line * (len(flood) // len(line)) + b"</r>"
    costs = []
    for content in (honest, flood):
        data = message.with_parts(replace(message.parts[0], content=content))
        assert_refused(look(data), "EBMS:0101")
        costs.append(_cost(data.wire()))
    assert costs[1] < FACTOR * costs[0]
