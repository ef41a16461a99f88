"""Signatures that are missing, moved, doubled, weak, over something else, or by something else.

The messages are ones that were caught on their way. Where a case says *by the partner* it is signed
with the partner's own key, so that nothing but what the case is about can be the reason for the
refusal; whoever has no such key is refused for that alone (see `certificates`).
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security.algorithms import (
    ECDSA_SHA256,
    ED25519,
    RSA_PSS_SHA256,
    RSA_SHA256,
    SHA1,
    SIGNATURES,
)
from postroad.security.attachments import COMPLETE_TRANSFORM, CONTENT_TRANSFORM
from postroad.security.ebxml_signature import ENVELOPED
from postroad.security.rawsign import sign_bytes
from postroad.wire.ebxml import MS20
from postroad.wire.names import (
    C14N,
    DS,
    DSIG_MORE_2001,
    EB2_NEXT_MSH,
    EXC_C14N,
    S11_NEXT,
    WSSE,
)
from tests.attack import ebxml_forging as ebxml
from tests.attack import wrapping
from tests.attack.campaign.forged import (
    accepted,
    check_refused,
    from_buyer,
    inbox_end,
    key_pair,
    post,
    received,
    refused,
    rewritten,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target
from tests.attack.forging import (
    STRANGE_KEY_INFOS,
    STRANGE_TRANSFORMS,
    STRANGE_URIS,
    Ref,
    cut,
    element,
    exclusive,
    public_forms,
    refs,
    resigned,
    sha256,
    with_ref,
)
from tests.attack.messages import Package
from tests.attack.wrapping import Ids, Moved, Place, Signature
from tests.changing import replace
from tests.fuzz.stateful_nodes import Sent

_NO_PROOF: Final = "EBMS:0101"
_POLICY: Final = "EBMS:0103"
_OTHER_ACTION: Final = "bundled"
"""The action of another P-Mode for which the same partner signs: a forged header that asks for it
would be delivered if it were believed."""
_MD5: Final = DSIG_MORE_2001 + "md5"


# Wrapping


def _is_harmless(how: wrapping.Variant) -> bool:
    """Tell whether nothing that is read or signed was touched.

    The forged copy is gone, or it is a timestamp of its own id in a header that nobody reads.
    """
    if how.moved is not Moved.FORGED or how.signature is not Signature.KEPT:
        return False
    outside = (Place.HEADER_FIRST, Place.HEADER_LAST, Place.IN_WRAPPER, Place.OTHER_SECURITY)
    other_id = (Ids.NEW, Ids.NONE, Ids.OTHER_CASE, Ids.PADDED)
    return how.place is Place.REMOVED or (
        how.target is wrapping.Target.TIMESTAMP and how.place in outside and how.ids in other_id
    )


def _wrap_all(message: Package, hows: list[wrapping.Variant]) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        for how in hows:
            answer = post(target, wrapping.wrap(message, how, _OTHER_ACTION))
            try:
                check_refused(answer, "EBMS:0009", _NO_PROOF, _POLICY)
            except Breach as breach:
                raise Breach(f"{how}: {breach}") from None

    return attack


def _wrapping(target: Target) -> Iterator[Case]:
    message = from_buyer(target)
    groups: dict[str, list[wrapping.Variant]] = {}
    harmless = []
    for how in map(wrapping.variant, range(wrapping.n_variants())):
        if _is_harmless(how):
            harmless.append(how)
        else:
            name = f"{how.target.name}: {how.moved.value}, {how.place.value}"
            groups.setdefault(name, []).append(how)
    before = inbox_end(target)
    for name, hows in groups.items():
        yield Case(name, _wrap_all(message, hows))
    for name in wrapping.XSW:
        forged = wrapping.wrap(message, wrapping.named(name), _OTHER_ACTION)
        yield Case(f"{name} over TLS", _refuse(forged, "EBMS:0009", _NO_PROOF, _POLICY, tls=True))
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    yield Case("control: the original, and it with what nobody reads", _take_all(message, harmless))


def _take_all(message: Package, hows: list[wrapping.Variant]) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        first = accepted(target, message)
        before = inbox_end(target)
        for how in hows:
            if accepted(target, wrapping.wrap(message, how, _OTHER_ACTION)).body != first.body:
                raise Breach(f"{how}: another receipt than that of the original")
        undelivered(target, before)

    return attack


def _refuse(message: Package | Sent, *codes: str, tls: bool = False) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        refused(target, message, *codes, tls=tls)

    return attack


def _all_refused(
    cases: Iterator[tuple[str, Package | Sent, tuple[str, ...]]], target: Target
) -> Iterator[Case]:
    """Cases that must each be refused with one of their codes, and a look at the inbox."""
    before = inbox_end(target)
    for name, message, codes in cases:
        yield Case(name, _refuse(message, *codes))
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))


# What the signature is made of


def _forgeries(target: Target, message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    yield from _excluded(message)
    yield from _doubled(message)
    sign = partial(resigned, message, signer=key_pair(target), method=RSA_SHA256)
    yield from _references(message, sign)
    yield from _algorithms(target, message)
    for number, key_info in enumerate(STRANGE_KEY_INFOS):
        written = key_info.replace("http://attacker.example/", target.canary.url)
        yield f"by the partner: KeyInfo {number}", sign(key_info=written), (_NO_PROOF,)
    yield from _namespaces(message)


def _excluded(message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    only = (_POLICY,)
    yield "no Signature", cut(message, "<ds:Signature ", "</ds:Signature>"), only
    yield "no Security", cut(message, "<wsse:Security ", "</wsse:Security>"), only
    role = 'S12:mustUnderstand="true"><wsu:', 'S12:role="urn:example:nobody"><wsu:'
    yield "Security for another role", message.replaced(*role), only
    foreign = f'<ds:Signature xmlns:ds="{DS}"', '<ds:Signature xmlns:ds="urn:example:ds"'
    yield "Signature of another namespace", message.replaced(*foreign), only
    for place in ("S12:Body", "eb:Messaging"):
        start = message.envelope.index(b"<ds:Signature ")
        stop = message.envelope.index(b"</ds:Signature>") + len(b"</ds:Signature>")
        signature = message.envelope[start:stop].decode()
        bare = cut(message, "<ds:Signature ", "</ds:Signature>")
        moved = bare.replaced(f"</{place}>", f"{signature}</{place}>")
        yield f"Signature in {place}", moved, (_POLICY, _NO_PROOF, "EBMS:0009")
    second = f'<wsse:Security xmlns:wsse="{WSSE}"/></S12:Header>'
    yield "two Security headers", message.replaced("</S12:Header>", second), (_NO_PROOF,)


_PIECES: Final = (
    *("Signature", "SignedInfo", "SignatureValue", "KeyInfo", "CanonicalizationMethod"),
    *("SignatureMethod", "Reference", "Transforms", "Transform", "DigestMethod", "DigestValue"),
)


def _doubled(message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    for name, is_gone in product(_PIECES, (False, True)):
        root = etree.fromstring(message.envelope)
        node = next(root.iter(f"{{{DS}}}{name}"))
        if is_gone:
            node.getparent().remove(node)
        else:
            node.addnext(etree.fromstring(etree.tostring(node, with_tail=False)))
        told = f"{name} {'missing' if is_gone else 'twice'}"
        yield told, replace(message, envelope=etree.tostring(root)), (_NO_PROOF, _POLICY)
    token = cut(message, "<wsse:BinarySecurityToken ", "</wsse:BinarySecurityToken>")
    at = message.envelope.index(b"<wsse:BinarySecurityToken ")
    size = len(message.envelope) - len(token.envelope)
    twice = message.envelope[: at + size] + message.envelope[at:]
    yield "two tokens with one id", replace(message, envelope=twice), (_NO_PROOF,)


_LAST: Final = "cid:two@buyer.example"


def _references(
    message: Package, sign: Callable[..., Package]
) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    own = sha256(exclusive(element(message, "_messaging")))
    only = (_NO_PROOF,)
    for uri, extra, digest in product(STRANGE_URIS, (False, True), (own, sha256(b""))):
        strange = Ref(uri, digest)
        listed = [*refs(message), strange] if extra else with_ref(message, "#_messaging", strange)
        yield f"by the partner: reference to {uri!r}", sign(listed), only
    for (name, steps), digest in product(STRANGE_TRANSFORMS.items(), (own, sha256(b""))):
        listed = with_ref(message, "#_messaging", Ref("#_messaging", digest, steps))
        yield f"by the partner: transform {name}", sign(listed), only
    content = sha256(message.parts[1].content)
    for part_steps in ((), (EXC_C14N,), (COMPLETE_TRANSFORM,), (CONTENT_TRANSFORM, EXC_C14N)):
        listed = with_ref(message, _LAST, Ref(_LAST, content, part_steps))
        yield f"by the partner: attachment by {part_steps}", sign(listed), only
    for uri in ("#_messaging", "#_body", "#_timestamp", _LAST):
        [honest] = [one for one in refs(message) if one.uri == uri]
        for nothing in (b"", sha256(b""), b"\0" * 32, sha256(b"")[:16]):
            listed = with_ref(message, uri, replace(honest, digest=nothing))
            yield f"by the partner: {uri} digested to nothing", sign(listed), only
        yield f"by the partner: {uri} left out", sign(with_ref(message, uri, None)), (_POLICY,)
        yield f"by the partner: {uri} twice", sign([*refs(message), honest]), only
    yield "by the partner: no references", sign([]), only
    for method in ("", "urn:x", DS + "base64", "http://www.w3.org/TR/1999/REC-xslt-19991116"):
        yield f"by the partner: SignedInfo by {method!r}", sign(canonicalization=method), only
    inner = message.replaced("<eb:UserMessage>", '<eb:UserMessage xml:id="_inner">')
    part = Ref("#_inner", sha256(exclusive(element(inner, "_inner"))))
    half = resigned(inner, with_ref(message, "#_messaging", part))
    yield "a part of the header for the whole", half, (_NO_PROOF, _POLICY)


def _algorithms(target: Target, message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    pair = key_pair(target)
    sign = partial(resigned, message, signer=pair)
    for number, secret in enumerate(public_forms(pair.certificate)):
        for method in (DSIG_MORE_2001 + "hmac-sha256", DS + "hmac-sha1"):
            made = partial(hmac.digest, secret, digest=method.rpartition("-")[2])
            forged = sign(method=method, make_value=made)
            yield f"HMAC by public bytes {number}, {method[-11:]}", forged, (_NO_PROOF,)
    for uri, algorithm in SIGNATURES.items():
        if algorithm.weak:
            weak = sign(method=uri, make_value=lambda _: b"0" * 256)
            yield f"weak: {uri}", weak, (_POLICY,)
    yield "by the partner: rsa-sha1", sign(method=DS + "rsa-sha1"), (_POLICY,)
    header = exclusive(element(message, "_messaging"))
    for name, uri in (("sha1", SHA1), ("md5", _MD5)):
        ref = Ref("#_messaging", hashlib.new(name, header).digest(), (EXC_C14N,), uri)
        listed = with_ref(message, "#_messaging", ref)
        yield f"by the partner: {name} digest", sign(listed, method=RSA_SHA256), (_POLICY,)
    for claimed in (RSA_PSS_SHA256, ECDSA_SHA256, ED25519, DSIG_MORE_2001 + "rsa-sha512"):
        value = partial(sign_bytes, pair.private_key, SIGNATURES[RSA_SHA256])
        yield f"RSA as {claimed}", sign(method=claimed, make_value=value), (_NO_PROOF,)
    for method in ("", "none", DS + "none", "urn:x" * 1000):
        yield f"method {method[:30]!r}", sign(method=method, make_value=lambda _: b""), (_NO_PROOF,)
    for nothing in (b"", b"\0" * 256, b"\0" * 255 + b"\1", b"\xff" * 256, b"\0" * 4096):
        forged = sign(method=RSA_SHA256, make_value=partial(_constant, nothing))
        yield f"value {nothing[:4].hex()} of {len(nothing)} bytes", forged, (_NO_PROOF,)
    short = "<ds:HMACOutputLength>8</ds:HMACOutputLength>"
    yield "HMACOutputLength", sign(method=RSA_SHA256, method_content=short), (_NO_PROOF,)


def _constant(value: bytes, _: bytes) -> bytes:
    return value


def _namespaces(message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    polluted = (
        'wsu:Id="_messaging" wsu:Id="_forged"',
        'xmlns:a="urn:x" xmlns:b="urn:x" a:i="1" b:i="2" wsu:Id="_messaging"',
        'xmlns:eb2="urn:y" xmlns:eb2="urn:x" wsu:Id="_messaging"',
        'und:Id="_messaging"',
    )
    for attributes, noise in product(polluted, (0, 300)):
        odd = "".join(f'<x:x xmlns:x="no uri {number}"/>' for number in range(noise))
        written = message.replaced('wsu:Id="_messaging"', attributes)
        written = written.replaced("<S12:Header>", f'<S12:Header><w:w xmlns:w="urn:w">{odd}</w:w>')
        yield f"attributes {attributes} behind {noise} namespaces", written, ("EBMS:0009",)
    for void in ('xmlns:v="1"', 'xmlns:v="relative/name"', 'xmlns:v="http://[bad"'):
        broken = message.replaced("<o:Order ", f"<o:Order {void} v:a='1' ")
        forged = resigned(broken, with_ref(message, "#_body", Ref("#_body", sha256(b""))))
        yield f"void canonical form by {void}", forged, (_NO_PROOF, "EBMS:0009")
    for old, new in (
        ("</wsu:Created>", "</wsu:Created><wsu:Expires>2999-01-01T00:00:00Z</wsu:Expires>"),
        ("<wsu:Created>2", "<wsu:Created>3"),
        ("<wsu:Expires>2", "<wsu:Expires>3"),
        ("<eb:Action>signed", f"<eb:Action>{_OTHER_ACTION}"),
        ("<eb:Action>signed", f"<eb:Action>signed<!-- --></eb:Action><eb:Action>{_OTHER_ACTION}"),
        ("<eb:Action>signed", f"<eb:Action><![CDATA[{_OTHER_ACTION}]]>"),
        ("<eb:Action>", "<eb:Action extra='1'>"),
        ("<o:Pay>100", "<o:Pay>900"),
        ("<o:Pay>100", "<o:Pay>100<o:Pay>900</o:Pay>"),
        ("<S12:Envelope ", '<S12:Envelope xml:lang="en"><S12:Body/></S12:Envelope><S12:Envelope '),
    ):
        codes = (_NO_PROOF, _POLICY, "EBMS:0009")
        yield f"{old} changed into {new}", message.replaced(old, new), codes


def _structure(target: Target) -> Iterator[Case]:
    message = from_buyer(target)
    yield from _all_refused(_forgeries(target, message), target)
    again = resigned(message, signer=key_pair(target), method=RSA_SHA256)
    yield Case("control: the forger can sign rightly", lambda one: _take(one, again))


def _take(target: Target, message: Package) -> None:
    accepted(target, message)


# Older protocols


def _recorded_wsrm(target: Target) -> Iterator[tuple[str, Sent, tuple[str, ...]]]:
    codes = ("EBMS:0009", _NO_PROOF, _POLICY)
    for name in ("wsrm-signed", "split-signed"):
        sent = target.recorded(name, b"SignatureValue")[-1]
        own = received(sent)
        for how in map(wrapping.variant, range(wrapping.n_variants())):
            if how.target is not wrapping.Target.MESSAGING or _is_harmless(how):
                continue
            if how.known_as or how.index % 31 == 0:
                forged = rewritten(sent, wrapping.wrap(own, how, _OTHER_ACTION))
                yield f"{name}: {how}", forged, codes
        for told, forged_package, _ in (*_excluded_older(own), *_doubled(own)):
            yield f"{name}: {told}", rewritten(sent, forged_package), codes
    sent = target.recorded("wsrm-signed", b"SignatureValue")[-1]
    own = received(sent)
    [number] = re.findall(r"<wsrm:MessageNumber>\d+<", own.envelope.decode())
    other = number.replace("<", "9<").replace("9<", "<", 1)
    yield "another number", rewritten(sent, own.replaced(number, other)), codes
    start = own.envelope.index(b"<wsrm:Sequence ")
    stop = own.envelope.index(b"</wsrm:Sequence>") + len(b"</wsrm:Sequence>")
    block = own.envelope[start:stop]
    for id in (b"_sequence", b"_forged"):
        second = block.replace(b'"_sequence"', b'"' + id + b'"').replace(b">1<", b">2<")
        for twice in (block + second, second + block):
            envelope = own.envelope[:start] + twice + own.envelope[stop:]
            told = f"two Sequence headers, {id.decode()}"
            yield told, rewritten(sent, replace(own, envelope=envelope)), codes
    sequence = next(
        one
        for one in target.captured.all()
        if b":CreateSequence" in one.body and b"SignatureValue" in one.body
    )
    acks_to = target.taps["buyer"].url.encode()
    for old, new in ((acks_to, target.canary.url.encode()), (b"ExactlyOnce", b"AtLeastOnce")):
        changed = replace(sequence, body=sequence.body.replace(old, new))
        yield f"CreateSequence with {new.decode()}", changed, ("wsrm:CreateSequenceRefused",)


def _excluded_older(message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    yield "no Signature", cut(message, "<ds:Signature ", "</ds:Signature>"), ()
    yield "no Security", cut(message, "<wsse:Security ", "</wsse:Security>"), ()


def _reliable(target: Target) -> Iterator[Case]:
    yield from _all_refused(_recorded_wsrm(target), target)
    # Earlier attacks may have ended the sequence of older messages.
    fresh = target.honest("wsrm-signed").encode()
    for name, marks in (("wsrm-signed", [fresh]), ("split-signed", [])):
        sent = target.recorded(name, b"SignatureValue", *marks)[-1]
        yield Case(f"control: {name} as it was", partial(_is_taken, sent=sent))


def _is_taken(target: Target, sent: Sent) -> None:
    answer = post(target, sent)
    if answer.status != 202 or answer.body:
        raise Breach(f"a copy was answered {answer.status} {answer.body[:300]!r}")


def _ebxml(target: Target) -> Iterator[Case]:
    sent = target.recorded("ebxml-signed", b"SignatureValue")[-1]
    yield from _all_refused(_recorded_ebxml(target, sent), target)
    yield Case("control: it as it was", lambda one: _answered(one, sent))
    again = rewritten(sent, _signed_ebxml(target, sent))
    yield Case("control: the forger can sign rightly", lambda one: _answered(one, again))


def _answered(target: Target, sent: Sent) -> None:
    accepted(target, sent)


_HOP: Final = '<eb:{0} xmlns:eb="{1}" SOAP-ENV:actor="{2}">{3}</eb:{0}>'


def _signed_ebxml(
    target: Target, sent: Sent, transforms: tuple[str, ...] | None = None, **terms: str
) -> Package:
    """Return the recorded message with a signature of the partner over its document."""
    own = cut(received(sent), "<ds:Signature ", "</ds:Signature>")
    steps = transforms or (ENVELOPED, ebxml.xpath_step(MS20), C14N)
    return _put(own, _written(target, own, [ebxml.whole(own.envelope, steps)], **terms))


def _written(target: Target, own: Package, first: list[ebxml.Ref], **terms: str) -> str:
    listed = [*first, *(ebxml.Ref(f"cid:{one.content_id}", one.content) for one in own.parts)]
    return ebxml.write_signature(listed, signer=key_pair(target), **{"method": RSA_SHA256, **terms})


def _put(own: Package, xml: str, before: str = "</SOAP-ENV:Header>") -> Package:
    return own.replaced(before, xml + before)


def _recorded_ebxml(target: Target, sent: Sent) -> Iterator[tuple[str, Sent, tuple[str, ...]]]:
    codes = ("SecurityFailure", "MimeProblem", "Client")
    own = received(sent)
    for told, message in _moved_ebxml(own):
        yield told, rewritten(sent, message), codes
    for number, steps in enumerate(ebxml.FOREIGN_TRANSFORMS):
        forged = _signed_ebxml(target, sent, steps or (C14N,))
        yield f"by the partner: transforms {number}", rewritten(sent, forged), codes
    for number, expression in enumerate(ebxml.FOREIGN_XPATHS):
        step = ebxml.xpath_step(
            MS20, expression.replace("http://attacker.example/", target.canary.url)
        )
        forged = _signed_ebxml(target, sent, (ENVELOPED, step, C14N))
        yield f"by the partner: XPath {number}", rewritten(sent, forged), codes
    der = base64.b64encode(key_pair(target).certificate.public_bytes(Encoding.DER)).decode()
    for key_info in (
        f'<ds:RetrievalMethod URI="{target.canary.url}"/>',
        "<ds:PGPData/>",
        "<ds:X509Data><ds:X509Certificate>AAAA</ds:X509Certificate></ds:X509Data>",
        f"<ds:X509Data>{f'<ds:X509Certificate>{der}</ds:X509Certificate>' * 17}</ds:X509Data>",
    ):
        forged = _signed_ebxml(target, sent, key_info=key_info)
        yield f"by the partner: {key_info[:40]}", rewritten(sent, forged), codes
    for name, forged in _by_other_methods(target, sent):
        yield name, rewritten(sent, forged), codes


def _by_other_methods(target: Target, sent: Sent) -> Iterator[tuple[str, Package]]:
    yield "by the partner: SHA-1", _signed_ebxml(target, sent, method=DS + "rsa-sha1")
    bare = cut(received(sent), "<ds:Signature ", "</ds:Signature>")
    sha1 = replace(ebxml.whole(bare.envelope), digest_method=SHA1)
    yield "by the partner: SHA-1 digest", _put(bare, _written(target, bare, [sha1]))
    yield "by the partner: no document", _put(bare, _written(target, bare, []))
    twice = [ebxml.whole(bare.envelope)] * 2
    yield "by the partner: document twice", _put(bare, _written(target, bare, twice))
    for uri in ("#m", target.canary.url, "file:///etc/passwd", "cid:nobody@a.example"):
        listed = [ebxml.whole(bare.envelope), ebxml.Ref(uri, b"")]
        yield f"by the partner: reference to {uri}", _put(bare, _written(target, bare, listed))
    der = key_pair(target).certificate.public_bytes(Encoding.DER)
    value = hashlib.sha256(der).digest()
    signature = ebxml.write_signature(
        [ebxml.whole(bare.envelope)],
        signer=key_pair(target),
        method=DSIG_MORE_2001 + "hmac-sha256",
        value=value,
    )
    yield "HMAC by the certificate", _put(bare, signature)


def _moved_ebxml(own: Package) -> Iterator[tuple[str, Package]]:
    bare = cut(own, "<ds:Signature ", "</ds:Signature>")
    start = own.envelope.index(b"<ds:Signature ")
    stop = own.envelope.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    signature = own.envelope[start:stop].decode()
    yield "no Signature", bare
    yield "two Signatures", _put(own, signature)
    for place in ("SOAP-ENV:Body", "eb:MessageHeader", "SOAP-ENV:Envelope"):
        yield f"Signature in {place}", _put(bare, signature, f"</{place}>")
    for actor in (S11_NEXT, EB2_NEXT_MSH):
        for name in ("MessageHeader", "Manifest", "ErrorList", "MessageOrder"):
            hidden = _HOP.format(name, MS20.namespace, actor, "<eb:Action>plain</eb:Action>")
            yield f"{name} for {actor}", _put(own, hidden)
        for place in ("<SOAP-ENV:Envelope", "<SOAP-ENV:Header", "<SOAP-ENV:Body", "<eb:CPAId"):
            actor_of = own.replaced(place, f'{place} SOAP-ENV:actor="{actor}"', 1)
            yield f"actor {actor} in {place}", actor_of
        header = own.envelope[own.envelope.index(b"<eb:MessageHeader") :]
        header = header[: header.index(b"</eb:MessageHeader>") + len(b"</eb:MessageHeader>")]
        forged = header.decode().replace(">ebxml-signed<", ">ebxml-2.0<")
        aside = _HOP.format("SyncReply", MS20.namespace, actor, header.decode())
        yield f"header moved aside for {actor}", own.replaced(header, forged + aside)
    for old, new in ((">ebxml-signed<", ">ebxml-2.0<"), ("@postroad<", "@evil<")):
        yield f"{old} changed", own.replaced(old, new)
    forged_part = replace(own.parts[0], content=b"pay 900 to Eve")
    yield "payload changed", own.with_parts(forged_part)
    yield "payload gone", own.with_parts()
    yield "payload twice", own.with_parts(forged_part, own.parts[0])
    yield "unsigned payload", own.with_parts(own.parts[0], replace(forged_part, content_id="x@y"))


CLASSES: Final = (
    AttackClass("signatures: wrapping", _wrapping),
    AttackClass("signatures: exclusion, structure and algorithms", _structure),
    AttackClass("signatures: WS-RM and fragments", _reliable),
    AttackClass("signatures: ebXML", _ebxml),
)
