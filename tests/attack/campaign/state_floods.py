"""Floods of state: what strangers leave behind must be bounded, and nobody's place be taken."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import MIB, Target, head
from tests.fuzz.stateful_nodes import Sent, resources

_KIB: Final = 1024
_EVENTS: Final = 10
"""Refusals of one reason that have journal events of their own (limits.refused.events)."""
_GROUPS: Final = 60
"""joining.groups of the target."""


def _events(target: Target) -> float:
    return probes.total(probes.metrics(target), "postroad_journal_last_seq")


def _refusals(target: Target) -> float:
    return probes.total(probes.metrics(target), "postroad_unproven_refusals_total")


def _post(target: Target, request: Sent) -> tuple[int, bytes]:
    answer = target.exchange(head(request) + request.body, request.to)
    expect(answer is not None, "closed without an answer")
    assert answer
    return answer.status, answer.body


# Junk


def _junk(target: Target, kind: str) -> None:
    """Junk is counted one by one, and journaled ten times for each reason."""
    number = 150
    events, refusals = _events(target), _refusals(target)
    disk = resources(target.pair.seller).disk
    for at in range(number):
        status, body = _post(target, _junk_request(target, kind, at))
        expect(200 <= status < 600 and b"Traceback" not in body, f"answered {status}")
    more = _events(target) - events
    counted = _refusals(target) - refusals
    expect(more <= 3 * _EVENTS, f"{number} requests left {more:g} events in the journal")
    # A message of an unknown sequence is answered with a fault, and leaves nothing at all.
    least = 0 if kind == "an unknown sequence" else number - 3 * _EVENTS
    expect(counted >= least, f"of {number} refusals {counted:g} are counted")
    grown = resources(target.pair.seller).disk - disk
    expect(grown < 16 * MIB, f"the data folder grew by {grown / MIB:.1f} MiB")


def _junk_request(target: Target, kind: str, at: int) -> Sent:
    soap = ("Content-Type", "application/soap+xml; charset=UTF-8")
    if kind == "no XML":
        return Sent("seller", (soap,), b"junk %d" % at)
    if kind == "another media type":
        return Sent("seller", (("Content-Type", f"text/x-{at}"),), b"junk")
    if kind == "no ebMS":
        envelope = b'<S:Envelope xmlns:S="http://www.w3.org/2003/05/soap-envelope"><S:Header/>'
        return Sent("seller", (soap,), envelope + b"<S:Body><x%d/></S:Body></S:Envelope>" % at)
    if kind == "broken MIME":
        kind = 'multipart/related; type="application/soap+xml"; boundary=b'
        return Sent("seller", (("Content-Type", kind),), b"--x%d\r\n" % at)
    name = probes.new_id("junk")
    if kind == "an unknown agreement":
        [request, *_] = target.recorded("plain", b"<eb:UserMessage")
        return probes.renamed(request, name, (b">plain<", b">nothing-%d<" % at))
    if kind == "an unsigned message for a signed P-Mode":
        [request, *_] = target.recorded("plain", b"<eb:UserMessage")
        return probes.renamed(request, name, (b">plain<", b">signed<"))
    if kind == "a receipt for nothing":
        request = next(
            one
            for one in target.captured.all()
            if b"<eb:Receipt" in one.body and b"Signature" not in one.body
        )
        body = re.sub(rb"(?<=RefToMessageId>)[^<]+", b"nothing-%d@x" % at, request.body)
        return Sent("seller", request.headers, probes.renamed(Sent("", (), body), name).body)
    if kind == "the end of an unknown sequence":
        request = _create_sequence(target)
        body = re.sub(
            rb"(?s)<wsrm:CreateSequence .*</wsrm:CreateSequence>",
            b'<wsrm:TerminateSequence xmlns:wsrm="http://docs.oasis-open.org/ws-rx/wsrm/200702">'
            b"<wsrm:Identifier>urn:none:%d</wsrm:Identifier></wsrm:TerminateSequence>" % at,
            request.body.replace(b"200702/CreateSequence<", b"200702/TerminateSequence<"),
        )
        return Sent(request.to, request.headers, re.sub(rb"(?<=mid:)[^<]+", name.encode(), body))
    if kind == "an unknown sequence":
        [request, *_] = target.recorded("wsrm", b"<wsrm:Sequence")
        body = re.sub(
            rb"(<wsrm:Identifier[^>]*>)[^<]+",
            lambda found: found[1] + b"urn:none:%d" % at,
            request.body,
        )
        return probes.renamed(Sent(request.to, request.headers, body), name)
    assert kind == "a pull of an unknown channel", kind
    return _pull(f"urn:example:channel-{at}", name)


def _pull(channel: str, name: str) -> Sent:
    text = f"""<S:Envelope xmlns:S="http://www.w3.org/2003/05/soap-envelope"
 xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"><S:Header>
<eb:Messaging S:mustUnderstand="true"><eb:SignalMessage><eb:MessageInfo>
<eb:Timestamp>2026-11-18T08:54:22Z</eb:Timestamp><eb:MessageId>{name}</eb:MessageId></eb:MessageInfo>
<eb:PullRequest mpc="{channel}"/></eb:SignalMessage></eb:Messaging>
</S:Header><S:Body/></S:Envelope>"""
    return Sent("seller", (("Content-Type", "application/soap+xml; charset=UTF-8"),), text.encode())


_KINDS: Final = (
    "no XML",
    "another media type",
    "no ebMS",
    "broken MIME",
    "an unknown agreement",
    "an unsigned message for a signed P-Mode",
    "a receipt for nothing",
    "an unknown sequence",
    "the end of an unknown sequence",
    "a pull of an unknown channel",
)


def _silent_channels(target: Target) -> None:
    """Who may not pull learns not even whether there is such a channel."""
    default = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/defaultMPC"
    told = []
    for channel in (default, "urn:example:none"):
        request = _pull(channel, "same@stranger.example")
        answer = target.exchange(head(request) + request.body, "buyer")
        expect(answer is not None, "closed without an answer")
        assert answer
        body = re.sub(rb"(?s)<eb:MessageInfo>.*?</eb:MessageInfo>", b"", answer.body)
        told.append((answer.status, body.replace(channel.encode(), b"")))
    expect(told[0] == told[1], f"a channel shows by its answer: {told}")


# Refused messages


def _large_refusals(target: Target) -> None:
    """Of 24 refused messages of 4 MB on one connection a few KiB each are kept."""
    disk, names = resources(target.pair.seller).disk, []
    [request, *_] = target.recorded("plain", b"<eb:UserMessage")
    with target.connect() as connection:
        for _ in range(24):
            names.append(probes.new_id("large"))
            changed = probes.renamed(request, names[-1], (b">plain<", b">signed<"))
            body = changed.body.replace(b"an honest payload", b"x" * 4_000_000)
            large = Sent("seller", request.headers, body)
            target.requests += 1
            connection.sendall(head(large).replace(b"Connection: close\r\n", b"") + body)
            told = _one(connection)
            expect(b"EBMS:" in told, f"answered {told[:300]!r}")
    grown = resources(target.pair.seller).disk - disk
    expect(grown < 4 * MIB, f"the data folder grew by {grown / MIB:.1f} MiB for 96 MB")
    for name in names:
        found = probes.message(target, name)
        expect(found and found["state"] == "rejected", f"{name} is {found}")
        kept = probes.call(target, "GET", f"/api/v1/messages/{name}/beginning")
        expect(
            kept.status == 200 and len(kept.body) <= 8 * _KIB, f"{len(kept.body)} bytes are kept"
        )


def _one(connection: object) -> bytes:
    """Read one answer of a connection that stays open."""
    import http.client

    response = http.client.HTTPResponse(connection)  # type: ignore[arg-type]
    response.begin()
    return response.read()


def _many_refusals(target: Target) -> None:
    """All refused messages of strangers together take a mebibyte here; the oldest go."""
    [request, *_] = target.recorded("plain", b"<eb:UserMessage")
    padding = b"<!--" + b"x" * 9000 + b"--></S12:Header>"
    names = []
    for _ in range(200):
        names.append(probes.new_id("many"))
        changed = probes.renamed(request, names[-1], (b">plain<", b">signed<"))
        status, _body = _post(
            target, Sent("seller", changed.headers, changed.body.replace(b"</S12:Header>", padding))
        )
        expect(status < 500, f"answered {status}")
    known = sum(1 for name in names if probes.message(target, name))
    expect(known <= 140, f"{known} refused messages of 8 KiB are kept in 1 MiB")
    expect(probes.message(target, names[-1]), "the newest refused message is not kept")


# Fragments


def _fragment(target: Target, group: str, name: str, *changes: tuple[bytes, bytes]) -> Sent:
    request = next(
        one
        for one in target.recorded("split", b"<mf:MessageFragment", b"<mf:FragmentNum>1<")
        if b"Signature" not in one.body
    )
    body = re.sub(rb"(?<=<mf:GroupId>)[^<]+", group.encode(), request.body)
    # Only the fragment's own id changes; that of the message in it is in its data.
    return probes.renamed(Sent(request.to, request.headers, body), name, *changes)


def _fragments(target: Target) -> None:
    """Groups that are never completed have a limit, and do not touch a signed P-Mode."""
    groups = [f"group-{number}-{probes.new_id()}" for number in range(_GROUPS + 40)]
    for group in groups:
        _post(target, _fragment(target, group, probes.new_id("fragment")))
    arriving = probes.ask(target, "/api/v1/inbox/fragments?limit=1000")
    count = len(next(value for value in arriving.values() if isinstance(value, list)))
    expect(count <= _GROUPS, f"{count} groups are kept, {_GROUPS} may be")
    expect(count > _GROUPS // 2, f"only {count} groups were taken: the attack does not work")
    target.honest("split-signed")
    for group in groups:  # A second number 1 ends a group.
        _post(target, _fragment(target, group, probes.new_id("fragment")))
    left = probes.ask(target, "/api/v1/inbox/fragments?limit=1000")
    count = len(next(value for value in left.values() if isinstance(value, list)))
    expect(count == 0, f"{count} groups are kept that were contradicted")
    target.honest("split")


def _huge_fragment(target: Target) -> None:
    """A message for which there is no room is refused with its first fragment."""
    for size in (b"999999999999999", b"9" * 30):
        name = probes.new_id("huge")
        change = (b"<mf:MessageSize>2105<", b"<mf:MessageSize>" + size + b"<")
        sizes = re.findall(rb"<mf:MessageSize>\d+<", _fragment(target, "x", name).body)
        request = _fragment(target, f"huge-{name}", name, (sizes[0], change[1]))
        _post(target, request)
        found = probes.ask(target, "/api/v1/inbox/fragments?limit=1000")
        expect("huge-" not in str(found), f"a message of {size!r} bytes is waited for")


# Sequences, uploads, ids


def _create_sequence(target: Target) -> Sent:
    return next(
        one
        for one in target.captured.all()
        if b"<wsrm:CreateSequence" in one.body and b"Signature" not in one.body
    )


def _sequences(target: Target) -> None:
    """250 sequences that nobody uses, and an honest one after them."""
    request = _create_sequence(target)
    before = resources(target.pair.seller)
    for _ in range(250):
        name = probes.new_id("sequence").encode()
        body = re.sub(rb"(?<=mid:)[^<]+", name, request.body)
        _post(target, Sent("seller", request.headers, body))
    grown = resources(target.pair.seller)
    expect(grown.disk - before.disk < 4 * MIB, f"grew from {before} to {grown}")
    target.honest("wsrm")
    target.honest("wsrm-signed")


def _uploads(target: Target) -> None:
    """What a stranger begins and breaks off is not kept, whatever he calls it."""
    disk = resources(target.pair.seller).disk
    [request, *_] = target.recorded("signed", b"<eb:UserMessage")
    for number in range(12):
        tag = f'"{number:064x}"'
        changed = probes.renamed(request, probes.new_id("upload"))
        headers = (*request.headers, ("ETag", tag))
        large = Sent("seller", headers, changed.body + bytes(MIB))
        data = head(large).replace(b"Content-Length: ", b"Content-Length: 9")
        target.requests += 1
        with target.connect() as connection:
            connection.sendall(data + large.body)
        target.requests += 1
        with target.connect() as connection:
            connection.sendall(probes.head("HEAD", "/msh", f"ETag: {tag}", "Connection: close"))
            told = probes.read_answers(probes.until_closed(connection), "HEAD")
        expect([one.status for one in told] == [405], f"asked for {tag}: {told}")
    probes.until(
        lambda: resources(target.pair.seller).disk - disk < 4 * MIB,
        "broken uploads are removed",
        20,
    )


def _occupied(target: Target, first: str) -> None:
    """An id that a stranger used first does not keep the partner's message out."""
    name = probes.new_id("occupied")
    [request, *_] = target.recorded("plain", b"<eb:UserMessage")
    changes = () if first == "plain" else ((b">plain<", f">{first}<".encode()),)
    _post(target, probes.renamed(request, name, *changes))
    with target.client("buyer") as buyer:
        buyer.send(pmode="signed", message_id=name, payloads=[b"the partner's own"])
        target.sent[name] = "signed"
        found = buyer.wait(name, 30)
    expect(found.state == "acknowledged", f"the partner's message is {found.state}: {found.detail}")
    with target.client() as seller:
        mine = [one for one in seller.inbox() if one.message_id == name and one.pmode == "signed"]
    expect(len(mine) == 1, f"it was delivered {len(mine)} times")


def _signals(target: Target) -> None:
    """Of 60 receipts that nobody believes ten are kept."""
    name = target.honest("signed")
    receipt = next(one for one in target.captured.all() if b"<eb:Receipt" in one.body)
    for _ in range(60):
        body = re.sub(rb"(?<=RefToMessageId>)[^<]+", name.encode(), receipt.body)
        changed = probes.renamed(Sent("buyer", receipt.headers, body), probes.new_id("receipt"))
        _post(target, changed)
    found = probes.ask(target, f"/api/v1/messages/{name}/signals", "buyer")
    kept = next(value for value in found.values() if isinstance(value, list))
    expect(len(kept) <= 12, f"{len(kept)} signals are kept")
    with target.client("buyer") as buyer:
        state = buyer.status(name).state
    expect(state == "acknowledged", f"the message is {state}")


def _cases(_: Target) -> Iterator[Case]:
    for kind in _KINDS:
        yield Case(f"150 requests with {kind}", partial(_junk, kind=kind))
    yield Case("pull requests do not tell which channels there are", _silent_channels)
    yield Case("24 refused messages of 4 MB on one connection", _large_refusals)
    yield Case("200 refused messages", _many_refusals)
    yield Case("fragments of groups that are never completed", _fragments)
    yield Case("fragments of messages that are larger than the disk", _huge_fragment)
    yield Case("250 sequences", _sequences)
    yield Case("uploads that break off", _uploads)
    for first in ("plain", "signed", "nothing"):
        yield Case(f"an id that was used first with {first}", partial(_occupied, first=first))
    yield Case("60 receipts for one message", _signals)


CLASSES: Final = (AttackClass("floods of state", _cases),)
