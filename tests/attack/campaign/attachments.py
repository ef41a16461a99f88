"""Attachments that are doubled, renamed, swapped, added, or packed so that they never end.

The messages are ones that were caught on their way; where a case says *by the partner* it is signed
with the partner's own key.
"""

import gzip
import zlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Final

from postroad.security.algorithms import RSA_SHA256
from postroad.wire.ebms3 import COMPRESSION_TYPE, GZIP, MIME_TYPE, PartInfo, Property
from tests.attack import wrapping
from tests.attack.campaign.forged import (
    TWO,
    accepted,
    delivered,
    for_seller,
    from_buyer,
    inbox_end,
    key_pair,
    order,
    refused,
    request,
    signing,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target
from tests.attack.forging import attachment_ref, refs, resigned, with_ref
from tests.attack.messages import (
    BOUNDARY,
    ROOT_ID,
    VERSION,
    Package,
    Part,
    part_info,
    payload,
    write_mime,
)
from tests.attack.wrapping import FORGED_CONTENT
from tests.changing import replace
from tests.fuzz.stateful_nodes import Sent

_PACKAGE: Final = "EBMS:0007"
_NO_PROOF: Final = "EBMS:0101"
_POLICY: Final = "EBMS:0103"
_COMPRESSION: Final = "EBMS:0303"
_Forged = tuple[str, Package | Sent, tuple[str, ...]]


def _refuse(
    target: Target, message: Package | Sent, codes: tuple[str, ...], by_partner: bool = False
) -> None:
    refused(target, message, *codes, by_partner=by_partner)


def _refused_cases(target: Target, *some: Iterator[_Forged]) -> Iterator[Case]:
    before = inbox_end(target)
    for forgeries in some:
        for name, message, codes in forgeries:
            by_partner = name.startswith("by the partner")
            attack = partial(_refuse, message=message, codes=codes, by_partner=by_partner)
            yield Case(name, attack)
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))


# What the signature says of them


def _signed(target: Target) -> Iterator[Case]:
    message = from_buyer(target, body="")
    yield from _refused_cases(
        target,
        _variants(message),
        _renamed(message),
        _changed(message),
        _by_partner(target, message),
        _headers(message),
        _starts(message),
    )
    shuffled = message.with_parts(*reversed(message.parts))
    yield Case("control: the order means nothing", lambda one: _take(one, shuffled))
    encoded = replace(message.parts[0], content_id="one%40buyer.example")
    spelled = message.with_parts(encoded, message.parts[1])
    yield Case("control: another spelling of the name", lambda one: _take(one, spelled))
    yield from _types(target)


def _take(target: Target, message: Package) -> None:
    accepted(target, message)
    if (content := delivered(target, message)) != b"pay 100 to Alice":
        raise Breach(f"delivered was {content[:100]!r}")


def _variants(message: Package) -> Iterator[_Forged]:
    for index in range(wrapping.n_part_variants(message)):
        name, forged = wrapping.part_variant(message, index)
        yield name, forged, (_PACKAGE, _NO_PROOF, _POLICY)


def _renamed(message: Package) -> Iterator[_Forged]:
    one, two = message.parts
    for name in (
        *("one@buyer.example", "one%40buyer.example", "one%2540buyer.example"),
        *("%6Fne@buyer.example", " one@buyer.example "),
    ):
        forged = replace(one, content_id=name, content=FORGED_CONTENT)
        for parts in ((forged, one, two), (one, forged, two)):
            yield f"two parts of one name, {name!r}", message.with_parts(*parts), (_PACKAGE,)
    for name in ("ONE@buyer.example", "one@BUYER.example", "one@buyer.example."):
        other = message.with_parts(replace(one, content_id=name), two)
        yield f"other letters, {name}", other, (_PACKAGE, _NO_PROOF)
    for at in range(3):
        for extra_name in ("extra@buyer.example", None, "part-2", "part-3", ROOT_ID):
            parts = list(message.parts)
            parts.insert(at, Part(extra_name, "text/plain", FORGED_CONTENT))
            yield f"unsigned part {extra_name} at {at}", message.with_parts(*parts), (_PACKAGE,)


def _changed(message: Package) -> Iterator[_Forged]:
    one, two = message.parts
    swapped = replace(one, content=two.content), replace(two, content=one.content)
    yield "swapped", message.with_parts(*swapped), (_NO_PROOF,)
    yield "one gone", message.with_parts(one), (_PACKAGE,)
    yield "all gone", message.with_parts(), (_PACKAGE,)
    for content in (
        *(one.content[:-1], one.content[1:], b"", one.content + b"\0", one.content + b"\r\n"),
        one.content.replace(b"100", b"900"),
    ):
        forged = message.with_parts(replace(one, content=content), two)
        yield f"content {content!r}", forged, (_NO_PROOF,)
    inner = b"\r\n--" + BOUNDARY.encode() + b"\r\nContent-ID: <in@buyer.example>\r\n\r\nx"
    inside = message.with_parts(replace(one, content=one.content + inner), two)
    yield "a boundary within the content", inside, (_PACKAGE,)
    ended = b"\r\n--" + BOUNDARY.encode() + b"--\r\n"
    early = message.with_parts(replace(one, content=one.content + ended), two)
    yield "the end within the content", early, (_PACKAGE,)


def _by_partner(target: Target, message: Package) -> Iterator[_Forged]:
    sign = partial(resigned, signer=key_pair(target), method=RSA_SHA256)
    left_out = sign(message, with_ref(message, "cid:two@buyer.example", None))
    yield "by the partner: listed and not signed", left_out, (_POLICY,)
    unlisted = from_buyer(target, "signed", TWO, body="", listed=[part_info(TWO[0])])
    yield "by the partner: signed and not listed", unlisted, (_PACKAGE,)
    extra = Part("extra@buyer.example", "text/plain", FORGED_CONTENT)
    more = attachment_ref("cid:extra@buyer.example", FORGED_CONTENT)
    both = sign(message, [*refs(message), more]).with_parts(*message.parts, extra)
    yield "by the partner: a reference to what is not listed", both, (_PACKAGE,)
    for href in (
        *(target.canary.url, "file:///etc/passwd", "#nobody", "//host/x", "cid:"),
        *("cid:nobody@buyer.example", f"cid:{ROOT_ID}", "../../../etc/passwd"),
    ):
        listed = [PartInfo(href, (Property(MIME_TYPE, "text/xml"),))]
        elsewhere = from_buyer(target, "signed", (), body="", listed=listed)
        codes = (_PACKAGE, "EBMS:0011", "EBMS:0009")
        yield f"by the partner: PartInfo {href}", elsewhere, codes


def _headers(message: Package) -> Iterator[_Forged]:
    one, two = message.parts
    for header in (
        ("X-Long", "x" * 20_000),
        ("X-Long", "x" * 2_000_000),
        ("X-Null", "a\0b"),
        ("X-Return", "a\rb"),
        ("X Space", "a"),
        ("", "a"),
        ("Content-Type", "text/html"),
        ("Content-ID", "<forged@buyer.example>"),
        ("content-transfer-encoding", "base64"),
    ):
        hostile = replace(one, headers=(*one.headers, header))
        told = f"part header {header[0]!r} of {len(header[1]):,} characters"
        yield told, message.with_parts(hostile, two), (_PACKAGE,)
    many = tuple((f"X-{number}", "x") for number in range(1000))
    yield "1,000 part headers", message.with_parts(replace(one, headers=many), two), (_PACKAGE,)
    for encoding in ("base64", "gzip", "x-uuencode", "binary, base64", "7bit;x"):
        other = replace(one, headers=(("Content-Transfer-Encoding", encoding),))
        yield f"coding {encoding}", message.with_parts(other, two), (_PACKAGE, _NO_PROOF)
    for count in (999, 1_001, 10_000):
        extra = [Part(f"p{n}@buyer.example", "text/plain", b"x") for n in range(count)]
        yield f"{count:,} more parts", message.with_parts(one, two, *extra), (_PACKAGE,)
    nested = one.write()
    for depth in range(100):
        edge = f"--n{depth}".encode()
        nested = b"".join(
            (
                f'Content-Type: multipart/related; boundary="n{depth}"\r\n\r\n'.encode(),
                *(edge, b"\r\n", nested, b"\r\n", edge, b"--\r\n"),
            )
        )
    inside = Part("nest@buyer.example", 'multipart/related; boundary="n99"', nested)
    yield "100 multiparts in each other", message.with_parts(inside, one, two), (_PACKAGE,)


def _starts(message: Package) -> Iterator[_Forged]:
    """Another part passes for the envelope, or another package is opened."""
    root = Part(ROOT_ID, f"{VERSION.media_type}; charset=UTF-8", message.envelope)
    evil = Part("evil@buyer.example", VERSION.media_type, order(None, "signed", ()).envelope)
    for start in ("evil@buyer.example", "one@buyer.example", "nobody@buyer.example"):
        wire = write_mime([root, *message.parts, evil], start=start)
        yield f"start is {start}", request(wire), (_PACKAGE, _POLICY, "EBMS:0009")
    for number, parts in enumerate(([evil, root, *message.parts], [root, evil, *message.parts])):
        yield f"a second envelope, {number}", request(write_mime(parts)), (_PACKAGE,)
    first = write_mime([evil, root, *message.parts], start=None)
    yield "no start, another first", request(first), (_PACKAGE, _POLICY)
    body = message.wire().partition(b"\r\n\r\n")[2]
    for kind in (
        *("multipart/related", "multipart/related; boundary=", "multipart/", "multipart"),
        *('multipart/related; boundary="other"', f'multipart/related; boundary="{"x" * 71}"'),
        *(f"multipart/mixed; boundary={BOUNDARY}", f"multipart/related; boundary={'x' * 7000}"),
        f'multipart/related; boundary="{BOUNDARY}"; start="<nobody@buyer.example>"',
        f'multipart/related; boundary="{BOUNDARY}"; type="text/html"',
    ):
        yield f"type {kind[:60]}", Sent("seller", (("Content-Type", kind),), body), (_PACKAGE,)
    for size in (len(body) // 4, len(body) // 2, len(body) - 30, len(body) - 3):
        kind = f'multipart/related; type="{VERSION.media_type}"; boundary="{BOUNDARY}"'
        cut = Sent("seller", (("Content-Type", kind),), body[:size])
        yield f"cut to {size} of {len(body)} bytes", cut, (_PACKAGE, "EBMS:0009", _NO_PROOF)


_XML: Final = b'<o:Order xmlns:o="urn:example:order"><o:Pay>100</o:Pay></o:Order>'


def _types(target: Target) -> Iterator[Case]:
    """The MIME type chooses how a part is digested, and nobody signs it."""
    before = inbox_end(target)
    for media_type in ("application/octet-stream", "application/xml"):
        message = from_buyer(target, "signed", [payload("one", _XML, media_type)], body="")
        [part] = message.parts
        for new_type in (
            *("application/octet-stream", "text/plain", "text/xml", "application/x+xml"),
            *("application/gzip", "multipart/mixed; boundary=x", "message/rfc822"),
        ):
            content = _XML.replace(b"<o:Pay>100", b"\n<o:Pay>900")
            forged = message.with_parts(replace(part, content_type=new_type, content=content))
            attack = partial(_refuse, message=forged, codes=(_NO_PROOF, _PACKAGE))
            yield Case(f"{media_type} as {new_type}, changed", attack)
    yield Case("nothing of it was delivered, types", lambda one: undelivered(one, before))
    honest = from_buyer(target, "signed", [payload("one", _XML, "application/xml")], body="")
    retyped = honest.with_parts(replace(honest.parts[0], content_type="text/xml"))
    yield Case("control: another type of the same bytes", partial(_keeps_type, message=retyped))


def _keeps_type(target: Target, message: Package) -> None:
    accepted(target, message)
    assert message.user_message is not None
    with target.client("seller") as seller:
        [part] = seller.received(message.user_message.message_info.message_id).parts
    if part.media_type != "application/xml":
        raise Breach(f"the unsigned type {part.media_type} was believed")


# What they unpack to


@cache
def _bomb(megabytes: int, members: int = 1) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    block = bytes(2**20)
    one = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return one * members


def _bombs(target: Target) -> Iterator[Case]:
    """The first of them are the partner's own: nobody else's compressed part is unpacked at all."""
    yield from _refused_cases(target, _gzip_bombs(target))
    yield from _encoded(target)
    good = gzip.compress(b"pay 100 to Alice", mtime=0)
    message = from_buyer(target, "signed", [payload("one", good, GZIP)], body="")
    yield Case("control: a compressed payload", lambda one: _take(one, message))
    inner = from_buyer(
        target, "signed", [payload("one", gzip.compress(_bomb(100), mtime=0), GZIP)], body=""
    )
    yield Case("a bomb in a payload stays packed", partial(_stays_packed, message=inner))


def _stays_packed(target: Target, message: Package) -> None:
    accepted(target, message)
    if delivered(target, message) != _bomb(100):
        raise Breach("what is packed in a payload was unpacked")


def _gzip_bombs(target: Target) -> Iterator[_Forged]:
    small = gzip.compress(b"small", mtime=0)
    for name, content in (
        ("100 MB in one member", _bomb(100)),
        ("100 members", _bomb(1, 100)),
        ("2,000 empty members", gzip.compress(b"", mtime=0) * 2000),
        ("a bomb behind a small member", small + _bomb(100)),
        ("not gzip", b"not gzip"),
        ("cut", small[:-3]),
        ("followed by something", small + b"tail"),
    ):
        one = payload("one", content, GZIP)
        made = from_buyer(target, "signed", [one], body="")
        yield f"by the partner: {name}", made, (_COMPRESSION,)
        sealed = from_buyer(target, "encrypted", [one], body="", encryption=for_seller(target))
        yield f"by the partner, encrypted: {name}", sealed, (_COMPRESSION,)
        unsigned = order(None, "plain", [one], body="")
        yield f"unsigned: {name}", unsigned, (_COMPRESSION,)
    many = [payload(f"p{number}", _bomb(40), GZIP) for number in range(20)]
    yield "unsigned: 20 bombs", order(None, "plain", many, body=""), (_COMPRESSION,)
    for kind in ("application/zip", "GZIP", ""):
        properties = (Property(MIME_TYPE, "text/plain"), Property(COMPRESSION_TYPE, kind))
        listed = [PartInfo("cid:one@buyer.example", properties)]
        one = payload("one", small, GZIP)
        odd = order(None, "plain", [one], body="", listed=listed)
        yield f"compressed by {kind!r}", odd, (_COMPRESSION, "EBMS:0009")


def _encoded(target: Target) -> Iterator[Case]:
    """A node takes no encoded body, so there is nothing that it could unpack."""
    whole = request(from_buyer(target, body=""))
    soap = (("Content-Type", VERSION.media_type),)
    for coding in ("gzip", "x-gzip", "deflate", "gzip, gzip", "br", "zstd", "gzip, " * 20, "x"):
        bomb = zlib.compress(bytes(50 << 20), 9) if coding == "deflate" else _bomb(100)
        honest = gzip.compress(whole.body, mtime=0)
        for kind, body in ((soap, bomb), (whole.headers, bomb), (whole.headers, honest)):
            sent = Sent("seller", (*kind, ("Content-Encoding", coding)), body)
            yield Case(f"Content-Encoding {coding[:20]}", partial(_is_unsupported, sent=sent))


def _is_unsupported(target: Target, sent: Sent) -> None:
    answer = target.post(sent)
    if answer.status != 415 or b"Content-Encoding" not in answer.body:
        raise Breach(f"answered {answer.status} {answer.body[:200]!r}, expected 415")


# What they are called


_PATHS: Final = (
    "../../../../../../tmp/postroad-campaign-evil",
    "/tmp/postroad-campaign-evil",
    "..\\..\\postroad-campaign-evil",
    "file:///tmp/postroad-campaign-evil",
    "C:\\postroad-campaign-evil",
    "~/postroad-campaign-evil",
    "%2e%2e%2f%2e%2e%2fpostroad-campaign-evil",
    "postroad-campaign-evil\0.txt",
    "x" * 300 + "-postroad-campaign-evil",
    "$(touch postroad-campaign-evil)",
    "autorun/postroad-campaign-evil.exe",
)


def _names(target: Target) -> Iterator[Case]:
    """Names that say where a file is to be written: they are never used as such."""
    for path in _PATHS:
        yield Case(f"named {path[:40]!r}", partial(_writes_nothing, path=path))
        yield Case(f"message id {path[:40]!r}", partial(_id_writes_nothing, path=path))


def _writes_nothing(target: Target, path: str) -> None:
    for how in (None, signing(key_pair(target))):
        pmode = "plain" if how is None else "signed"
        named = Property("Filename", path.replace("\0", "")), Property(MIME_TYPE, "text/plain")
        one = payload("one", b"pay 100 to Alice")
        listed = [PartInfo("cid:one@buyer.example", named)]
        message = order(how, pmode, [one], body="", listed=listed)
        disposition = ("Content-Disposition", f'attachment; filename="{path}"')
        [part] = message.parts
        typed = replace(part, content_type=f'text/plain; name="{path}"')
        _post_quietly(target, message.with_parts(replace(part, headers=(disposition,))), pmode)
        _post_quietly(target, message.with_parts(typed), pmode)
    _nothing_written(target)


def _post_quietly(target: Target, message: Package, pmode: str) -> None:
    """Send what may be taken or refused, as long as nothing else happens."""
    assert message.user_message is not None
    target.sent[message.user_message.message_info.message_id] = pmode
    target.post(request(message))


def _id_writes_nothing(target: Target, path: str) -> None:
    written = path.replace("\0", "").replace("\\", "/")
    message = order(None, "plain", [payload("one", b"x")], body="")
    assert message.user_message is not None
    own = message.user_message.message_info.message_id
    target.post(request(message.replaced(own, f"{written}@buyer.example")))
    other = order(None, "plain", [payload("one", b"x")], body="")
    [part] = other.parts
    renamed = other.with_parts(replace(part, content_id=written))
    target.post(request(renamed.replaced("cid:one@buyer.example", f"cid:{written}")))
    _nothing_written(target)


def _nothing_written(target: Target) -> None:
    places = (target.folder, target.folder.parent, *(one.folder for one in target.nodes))
    for place in places:
        for found in place.glob("*postroad-campaign-evil*"):
            raise Breach(f"a node wrote {found}")
    for node in target.nodes:
        for found in node.folder.rglob("*postroad-campaign-evil*"):
            raise Breach(f"a node wrote {found}")


CLASSES: Final[tuple[AttackClass, ...]] = (
    AttackClass("attachments: signatures and packaging", _signed),
    AttackClass("attachments: compression", _bombs),
    AttackClass("attachments: names of files", _names),
)
