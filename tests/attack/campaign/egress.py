"""Addresses in messages: a node must contact nobody because a stranger wrote his address into one.

Each place where an address can stand is combined with addresses of the canary, of the seller's own
REST interface, and of networks that only the node reaches. Nothing leaves this machine: what is no
loopback address must be refused before a connection is opened, which log and figures show.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import THIRD, Answer, Target, judge
from tests.attack.campaign.target import head as head_of
from tests.fuzz.stateful_nodes import Sent

_WSA: Final = "http://www.w3.org/2005/08/addressing"
_TRACE: Final = re.compile(rb"(<eb:Sender>.*?<eb:Location>)[^<]*(?=</eb:Location>)", re.DOTALL)
_URI: Final = re.compile(rb"(<eb:SenderURI>)[^<]*")


def _addresses(target: Target) -> dict[str, str]:
    """Return addresses that a node must not contact because a message names them."""
    port, own = target.canary.port, target.port()
    hosts = {
        "127.0.0.1": "127.0.0.1",
        "localhost": "localhost",
        "127.1": "127.1",
        "a decimal number": "2130706433",
        "a hexadecimal number": "0x7f000001",
        "an octal number": "0177.0.0.1",
        "0.0.0.0": "0.0.0.0",
        "127.0.0.66": "127.0.0.66",
        "[::1]": "[::1]",
        "an IPv4 address mapped into IPv6": "[::ffff:127.0.0.1]",
        "NAT64": "[64:ff9b::7f00:1]",
        "a user before the host": "seller.example@127.0.0.1",
        "other digits": "１２７.0.0.1",
    }
    found = {name: f"http://{host}:{port}/canary" for name, host in hosts.items()}
    found["the own REST interface"] = f"http://127.0.0.1:{own}/api/v1/inbox/ack?through=999999"
    found["the own protocol endpoint"] = f"http://localhost:{own}/msh"
    found["the metadata service of a cloud"] = "http://169.254.169.254/latest/meta-data/"
    found["https"] = f"https://127.0.0.1:{port}/canary"
    for scheme in (
        "file:///etc/passwd",
        "ftp://127.0.0.1:%d/x",
        "gopher://127.0.0.1:%d/x",
        "//127.0.0.1:%d/x",
        "mailto:victim@example.com",
        "jar:http://127.0.0.1:%d/!/x",
        "javascript:x",
        "data:,x",
        "",
    ):
        found[scheme.partition("127")[0] or "nothing"] = scheme.replace("%d", str(port))
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address stands: `write` makes a request with it, under a new message id."""

    name: str
    write: Callable[[Target, str, str], Sent]
    codes: tuple[str, ...] = ()
    """The ebMS codes of which one must be told; empty: it may be taken."""


def _escaped(address: str) -> bytes:
    return address.replace("&", "&amp;").encode()


def _first(target: Target, pmode: str, *marks: bytes) -> Sent:
    [request, *_] = target.recorded(pmode, *marks)
    return request


def _sub(request: Sent, pattern: re.Pattern[bytes], address: str) -> Sent:
    body, count = pattern.subn(lambda found: found[1] + _escaped(address), request.body)
    assert count, f"{pattern.pattern!r} does not occur"
    return Sent(request.to, request.headers, body)


def _trace(pmode: str, pattern: re.Pattern[bytes], target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, pmode, b"TraceHeader"), name)
    return _sub(request, pattern, address)


def _third(target: Target, address: str, name: str) -> Sent:
    """Return a message of a party whose address only its TraceHeader tells."""
    request = _trace("ebxml-1.0", _TRACE, target, address, name)
    body = request.body.replace(b">ebxml-1.0<", b">third<")
    body = body.replace(
        b"<eb:From><eb:PartyId>urn:example:buyer", f"<eb:From><eb:PartyId>{THIRD}".encode()
    )
    return Sent(request.to, request.headers, body)


def _third_wrong(target: Target, address: str, name: str) -> Sent:
    """Return such a message that must be refused: somebody is to be told of the error."""
    request = _third(target, address, name)
    return Sent(request.to, request.headers, request.body.replace(b">third<", b">no such action<"))


def _addressing(
    block: str, pmode: str, keep_id: bool, target: Target, address: str, name: str
) -> Sent:
    """Return a message with a WS-Addressing header that names the address."""
    request = _first(target, pmode)
    if not keep_id:
        request = probes.renamed(request, name)
    text = f'<a:{block} xmlns:a="{_WSA}"><a:Address>'.encode()
    text += _escaped(address) + f"</a:Address></a:{block}>".encode()
    prefix = b"S12" if b"</S12:Header>" in request.body else b"SOAP-ENV"
    end = b"</" + prefix + b":Header>"
    return Sent(request.to, request.headers, request.body.replace(end, text + end, 1))


def _sequence(signed: bool, target: Target, address: str, _: str) -> Sent:
    marks = (b"<wsrm:CreateSequence",) + ((b"SignatureValue",) if signed else ())
    request = next(
        one
        for one in target.captured.all()
        if one.to == "seller"
        and all(mark in one.body for mark in marks)
        and (signed or b"SignatureValue" not in one.body)
    )
    pattern = re.compile(rb"(<wsrm:AcksTo>.*?<wsa:Address[^>]*>)[^<]*", re.DOTALL)
    return _sub(request, pattern, address)


def _offer(target: Target, address: str, name: str) -> Sent:
    """Return a CreateSequence with an Offer whose Endpoint is the address."""
    request = _sequence(False, target, f"{_WSA}/anonymous", name)
    offer = (
        f"<wsrm:Offer><wsrm:Identifier>urn:{name}</wsrm:Identifier><wsrm:Endpoint>"
        f'<wsa:Address xmlns:wsa="{_WSA}">'
    ).encode()
    offer += (
        _escaped(address) + b"</wsa:Address></wsrm:Endpoint></wsrm:Offer></wsrm:CreateSequence>"
    )
    body = request.body.replace(b"</wsrm:CreateSequence>", offer)
    return Sent(request.to, request.headers, body)


def _ws_reliability(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "wsreliability", b"<wsr:Request"), name)
    return _sub(request, re.compile(rb"(<wsrr:BareURI[^>]*>)[^<]*"), address)


def _include(target: Target, address: str, name: str) -> Sent:
    """Return a message whose Body refers to the address by xop:Include."""
    request = probes.renamed(_first(target, "plain"), name)
    text = (
        b'wsu:Id="_body"><x><xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include" href="'
    )
    text += _escaped(address) + b'"/></x></'
    return Sent(request.to, request.headers, request.body.replace(b'wsu:Id="_body"></', text))


def _part(target: Target, address: str, name: str) -> Sent:
    """Return a message whose payload is said to be at the address."""
    request = probes.renamed(_first(target, "plain"), name)
    return _sub(request, re.compile(rb'(<eb:PartInfo href=")[^"]*'), address)


def _manifest(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "ebxml-2.0"), name)
    return _sub(request, re.compile(rb'(xlink:href=")[^"]*'), address)


def _schema(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "plain"), name)
    text = b'<eb:UserMessage xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    text += b'xsi:schemaLocation="urn:x '
    text += (
        _escaped(address).replace(b" ", b"%20")
        + b'" xsi:noNamespaceSchemaLocation="'
        + _escaped(address)
        + b'">'
    )
    return Sent(request.to, request.headers, request.body.replace(b"<eb:UserMessage>", text))


def _doctype(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "plain"), name)
    text = b"<!DOCTYPE x SYSTEM '" + _escaped(address) + b"'><S12:Envelope "
    return Sent(request.to, request.headers, request.body.replace(b"<S12:Envelope ", text, 1))


def _inclusion(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "plain"), name)
    text = b'wsu:Id="_body"><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="'
    text += _escaped(address) + b'"/></'
    return Sent(request.to, request.headers, request.body.replace(b'wsu:Id="_body"></', text))


def _reference(target: Target, address: str, name: str) -> Sent:
    """Return a signed message whose first ds:Reference is the address."""
    request = probes.renamed(_first(target, "signed"), name)
    return _sub(request, re.compile(rb'(?s)(<ds:Reference URI=")#_messaging'), address)


def _retrieval(target: Target, address: str, name: str) -> Sent:
    """Return a signed message whose key is said to be at the address."""
    request = probes.renamed(_first(target, "signed"), name)
    kind = b"http://www.w3.org/2000/09/xmldsig#rawX509Certificate"
    text = b'<ds:KeyInfo><ds:RetrievalMethod Type="' + kind + b'" URI="'
    text += _escaped(address) + b'"/></ds:KeyInfo>'
    body, count = re.subn(
        rb"<ds:KeyInfo>.*?</ds:KeyInfo>", lambda _: text, request.body, flags=re.DOTALL
    )
    assert count
    return Sent(request.to, request.headers, body)


def _token_reference(target: Target, address: str, name: str) -> Sent:
    request = probes.renamed(_first(target, "signed"), name)
    return _sub(request, re.compile(rb'(<wsse:Reference URI=")[^"]*'), address)


def _error_url(target: Target, address: str, name: str) -> Sent:
    """Return an ebXML message with an address for errors in every attribute that could be one."""
    request = probes.renamed(_first(target, "ebxml-2.0"), name)
    text = b'<eb:Via eb:errorURL="%b" eb:ackURL="%b" SOAP-ENV:mustUnderstand="0" eb:version="2.0"/>'
    text += b"</SOAP-ENV:Header>"
    at = _escaped(address)
    return Sent(
        request.to, request.headers, request.body.replace(b"</SOAP-ENV:Header>", text % (at, at))
    )


_PLACES: Final = (
    Place("TraceHeader/Sender/Location of ebXML 1.0", partial(_trace, "ebxml-1.0", _TRACE)),
    Place("TraceHeader/SenderURI of ebXML 0.98b", partial(_trace, "ebxml-0.98b", _URI)),
    Place("TraceHeader of a party without an address", _third),
    Place("TraceHeader of a message that is refused", _third_wrong),
    *(
        Place(f"wsa:{block} of a {pmode} message", partial(_addressing, block, pmode, False), codes)
        for block in ("ReplyTo", "FaultTo", "From")
        for pmode, codes in (("plain", ()), ("signed", ("EBMS:",)), ("ebxml-2.0", ()))
    ),
    *(
        Place(
            f"wsa:{block} in a copy of a signed message",
            partial(_addressing, block, "signed", True),
            ("EBMS:",),
        )
        for block in ("ReplyTo", "FaultTo")
    ),
    Place("wsrm:AcksTo", partial(_sequence, False), (":Fault",)),
    Place(
        "wsrm:AcksTo in a copy of a signed request", partial(_sequence, True), (":Fault", "EBMS:")
    ),
    Place("wsrm:Offer/Endpoint", _offer),
    Place("ReplyTo of WS-Reliability", _ws_reliability, ("InvalidReplyPattern",)),
    Place("xop:Include", _include),
    Place("eb:PartInfo/@href", _part, ("EBMS:",)),
    Place("xlink:href of a Manifest", _manifest),
    Place("schemaLocation", _schema),
    Place("a document type", _doctype, ("EBMS:", ":Fault")),
    Place("XInclude", _inclusion),
    Place("ds:Reference", _reference, ("EBMS:",)),
    Place("ds:RetrievalMethod", _retrieval, ("EBMS:",)),
    Place("wsse:Reference", _token_reference, ("EBMS:",)),
    Place("ErrorURL in a Via of ebXML", _error_url),
)


def _attack(target: Target, place: Place, address: str) -> None:
    extent = probes.ask(target, "/api/v1/inbox?limit=1")
    name = probes.new_id("egress")
    request = place.write(target, address, name)
    answer = target.exchange(head_of(request) + request.body, request.to)
    expect(answer is not None, "closed without an answer")
    assert answer
    if answer.body:
        judge(answer)
    if place.codes and address != f"{_WSA}/anonymous":
        told = any(code.encode() in answer.body for code in place.codes)
        expect(told or answer.status in (400, 415), f"{answer.status}: {answer.body[-600:]!r}")
    _bounded(answer, address)
    expect(probes.ask(target, "/api/v1/inbox?limit=1") == extent, "the inbox was acknowledged")


def _bounded(answer: Answer, address: str) -> None:
    """What a node fetched would stand in its answer."""
    expect(b"root:x:" not in answer.body, f"the answer has the contents of {address}")


def _cases(target: Target) -> Iterator[Case]:
    addresses = _addresses(target)
    for place in _PLACES:
        for name, address in addresses.items():
            yield Case(f"{place.name}: {name}", partial(_attack, place=place, address=address))
    yield Case("callbacks to addresses of messages are refused by name", _told)
    yield Case("a copy does not move the answer", _copy)
    yield Case("nobody was called after all", _settled)


def _refusals(figures: dict[str, float], by: str) -> float:
    return probes.total(figures, "postroad_callbacks_refused_total", by)


def _told(target: Target) -> None:
    """Each refused callback is told in journal, log and figures; the message is delivered."""
    for address, by in (
        (target.canary.url, "network"),
        (f"http://localhost:{target.canary.port}/x", "network"),
        ("http://169.254.169.254/latest/meta-data/", "network"),
        (f"http://unlisted.invalid:{target.canary.port}/x", "host"),
    ):
        before = _refusals(probes.metrics(target), by)
        name = probes.new_id("callback")
        target.post(_third(target, address, name))
        found = probes.message(target, name)
        expect(found and found["state"] == "delivered", f"the message is {found}")
        probes.until(
            lambda by=by, before=before: _refusals(probes.metrics(target), by) == before + 1,
            f"{address}: a refusal by {by} is counted",
        )
        events = probes.ask(target, f"/api/v1/messages/{name}/events")
        told = [one for one in events["events"] if "callback refused" in (one["detail"] or "")]
        expect(len(told) == 1 and address in told[0]["detail"], f"the journal says {events}")
        log = [one for one in target.pair.seller.log.splitlines() if "callback refused" in one]
        expect(any(address in one for one in log), "the log does not name the address")


def _copy(target: Target) -> None:
    """A captured message with another address is answered where the first one was."""
    request = _first(target, "ebxml-1.0", b"TraceHeader")
    target.post(_sub(request, _TRACE, target.canary.url))
    target.honest("ebxml-1.0")


def _settled(target: Target) -> None:
    """What is to be sent is sent in its order, so that a late callback would have come by now."""
    before = _refusals(probes.metrics(target), "network")
    target.post(_third(target, target.canary.url, probes.new_id("last")))
    probes.until(
        lambda: _refusals(probes.metrics(target), "network") > before,
        "the last callback is refused",
    )
    target.honest("ebxml-1.0")
    target.honest("wsrm")
    target.honest("wsreliability")
    expect(not target.canary.calls, f"the canary was called: {target.canary.calls[:3]}")


CLASSES: Final = (AttackClass("addresses in messages", _cases),)
