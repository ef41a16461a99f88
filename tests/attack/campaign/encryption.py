"""Ciphertext that is cut, changed, wrapped or aimed elsewhere, and answers that could tell of it.

An attacker has the recipient's certificate and messages that were caught on their way. Where
decryption fails, one and the same answer must come whatever failed, or it could be used to decrypt
(padding and format oracles). How long it takes is not measured here.
"""

import gzip
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Final

from lxml import etree

from postroad.security.algorithms import RSA_1_5, RSA_OAEP, RSA_SHA256
from postroad.security.keyestablishment import Encryption
from postroad.wire.names import S12, WSSE, XENC, XENC11
from tests import pki
from tests.attack.campaign.forged import (
    accepted,
    delivered,
    for_seller,
    from_buyer,
    inbox_end,
    key_pair,
    order,
    refused,
    signing,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Answer, Target
from tests.attack.forging import resigned, with_ref
from tests.attack.messages import Package, payload
from tests.attack.sealing import (
    DATA,
    KEY,
    body_value,
    changed,
    encryption_wrappings,
    failing,
    flip,
    key_value,
    with_part,
)
from tests.attack.wrapping import FORGED_CONTENT
from tests.changing import replace

_FAILED: Final = "EBMS:0102"
_NO_PROOF: Final = "EBMS:0101"
_POLICY: Final = "EBMS:0103"
_OWN: Final = re.compile(rb"<eb:MessageId>[^<]+|<eb:Timestamp>[^<]+|<ds:\w+Value>[^<]+")
"""What differs between any two answers."""
_OPENED: Final = b"pay 100 to Alice"


def _message(target: Target, **terms: str) -> Package:
    return from_buyer(target, "encrypted", encryption=for_seller(target, **terms))


def _told(answer: Answer) -> tuple[int, bytes]:
    return answer.status, _OWN.sub(b"", answer.body)


def _same_answer(
    first: Package, code: str, *attacks: tuple[str, Package]
) -> Callable[[Target], None]:
    """All are answered as the first is: status, codes and words."""

    def attack(target: Target) -> None:
        expected = _told(refused(target, first, code))
        for name, message in attacks:
            if (told := _told(refused(target, message, code))) != expected:
                raise Breach(f"{name} is answered {told}, another one {expected}")

    return attack


def _oracles(target: Target) -> Iterator[Case]:
    before = inbox_end(target)
    message = _message(target)
    cases = failing(message)
    for kind in _FAILING:
        some = [(name, one) for name, one in cases.items() if _kind(name) == kind]
        yield Case(f"whatever fails in the {kind}", _same_answer(some[0][1], _FAILED, *some))
    flips = [(f"byte {at} changed", with_part(message, flip(at))) for at in range(0, 40, 3)]
    yield Case("each byte of a ciphertext", _same_answer(flips[0][1], _FAILED, *flips))
    keys = [(f"key byte {at}", changed(message, key_value(flip(at)))) for at in range(0, 256, 16)]
    yield Case("each byte of a key", _same_answer(keys[0][1], _FAILED, *keys))
    for name, forged in cases.items():
        yield Case(
            f"{name}, over TLS", partial(_refuse, message=forged, codes=(_FAILED,), tls=True)
        )
    yield from _weak(target)
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    yield Case("control: the message opens", partial(_opens, message=message))


_FAILING: Final = ("key", "body", "attachment")


def _kind(name: str) -> str:
    """Return what fails to open; the place in the answer is that of what was changed."""
    if "key" in name or "OAEP" in name:
        return "key"
    return "body" if "body" in name else "attachment"


def _refuse(target: Target, message: Package, codes: tuple[str, ...], tls: bool = False) -> None:
    refused(target, message, *codes, tls=tls)


def _opens(target: Target, message: Package) -> None:
    accepted(target, message, "encrypted")
    if (content := delivered(target, message)) != _OPENED:
        raise Breach(f"delivered was {content!r}")


def _weak(target: Target) -> Iterator[Case]:
    """Algorithms with an oracle by nature: refused by name, and still no word about paddings."""
    for cipher in ("aes128-cbc", "aes192-cbc", "aes256-cbc", "tripledes-cbc"):
        sealed = _message(target, data=XENC + cipher)
        changes = [(f"{cipher} {at}", with_part(sealed, flip(at))) for at in range(-20, 0)]
        changes += [
            (f"{cipher} cut", with_part(sealed, lambda data: data[:-1])),
            (f"{cipher} empty", with_part(sealed, lambda data: b"")),
            (f"{cipher} key", changed(sealed, key_value(flip(9)))),
        ]
        yield Case(f"{cipher} is refused", partial(_refuse, message=sealed, codes=(_POLICY,)))
        yield Case(f"{cipher} is no oracle", _same_answer(changes[0][1], _POLICY, *changes))
    sealed = _message(target, key=RSA_1_5)
    guesses = [
        (f"RSA 1.5 {at}", changed(sealed, key_value(flip(at)))) for at in (*range(0, 256, 16), -1)
    ]
    guesses += [
        ("RSA 1.5 zero", changed(sealed, key_value(lambda value: b"\0" * len(value)))),
        ("RSA 1.5 too large", changed(sealed, key_value(lambda value: b"\xff" * len(value)))),
        ("RSA 1.5 short", changed(sealed, key_value(lambda value: value[:-1]))),
    ]
    yield Case("RSA 1.5 is refused", partial(_refuse, message=sealed, codes=(_POLICY,)))
    yield Case("RSA 1.5 is no oracle", _same_answer(guesses[0][1], _POLICY, *guesses))
    weak = _message(target, key=RSA_1_5, data=XENC + "aes128-cbc")
    both = [(f"both {at}", changed(weak, key_value(flip(at)))) for at in range(0, 256, 16)]
    both += [(f"both, data {at}", with_part(weak, flip(at))) for at in range(-20, 0)]
    yield Case("RSA 1.5 with CBC is no oracle", _same_answer(both[0][1], _POLICY, *both))


def _wrapping(target: Target) -> Iterator[Case]:
    before = inbox_end(target)
    message = _message(target)
    passed_over = []
    for name, forged in encryption_wrappings(message, for_seller(target)):
        if _is_passed_over(name):
            passed_over.append(forged)
            continue
        yield Case(name, partial(_refuse, message=forged, codes=(_FAILED, _NO_PROOF, "EBMS:0009")))
    for name, forged, codes in (*_aimed(target, message), *_of_others(target, message)):
        yield Case(name, partial(_refuse, message=forged, codes=codes))
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    for number, forged in enumerate((message, *passed_over)):
        yield Case(f"control: the message opens, {number}", partial(_opens, message=forged))


def _is_passed_over(name: str) -> bool:
    """Tell whether the forged pieces stand within the EncryptedData of the Body, unused.

    That element makes way for what it holds, so they are gone once it was opened.
    """
    mode, weakness, place, ciphertext = name.split("; ")
    return (place, ciphertext) == ("EncryptedData", "own ciphertext") and (
        (mode == "both wrapped apart" and weakness != "same Id")
        or (mode == "key kept, data wrapped" and weakness == "same Id")
    )


def _aimed(target: Target, message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    """References to something else than a part of this message, and other algorithms."""
    reference = '<xenc:CipherReference URI="{}"'
    own = reference.format("cid:one@buyer.example")
    for uri in (
        target.canary.url,
        target.canary.url.replace("http:", "https:"),
        "file:///etc/passwd",
        "",
        "#_body",
        "cid:",
        "cid:nobody@buyer.example",
        "cid:two@buyer.example",
    ):
        yield f"CipherReference {uri!r}", message.replaced(own, reference.format(uri)), (_FAILED,)
    for algorithm in ("", "none", "urn:x", XENC + "kw-aes128", XENC + "aes128"):
        for agreed in (XENC11 + "aes128-gcm", RSA_OAEP):
            told = f"{agreed.rpartition('#')[2]} as {algorithm!r}"
            other = message.replaced(f'Algorithm="{agreed}"', f'Algorithm="{algorithm}"')
            yield told, other, (_FAILED,)
    for count in (17, 1000):
        yield f"{count} keys", changed(message, partial(_more_keys, count=count)), (_FAILED,)
    for tag in (KEY, DATA):
        yield f"two {tag}", changed(message, partial(_twice, tag=tag)), (_FAILED,)
    one, two = message.parts
    swapped = message.with_parts(
        replace(one, content=two.content), replace(two, content=one.content)
    )
    yield "ciphertexts swapped", swapped, (_NO_PROOF,)
    for place in ("Messaging", "Header", "Body", "Signature"):
        odd = changed(message, partial(_elsewhere, place=place))
        yield f"EncryptedData in {place}", odd, (_FAILED, _NO_PROOF, "EBMS:0009")
    empty = changed(message, body_value(lambda value: b""))
    yield "empty body", empty, (_FAILED,)


def _more_keys(root: etree._Element, count: int) -> None:
    key, data = root.find(f".//{KEY}"), root.find(f".//{DATA}")
    for number in range(count):
        extra_key, extra_data = deepcopy(key), deepcopy(data)
        extra_key.set("Id", f"k{number}")
        extra_data.set("Id", f"d{number}")
        extra_data.find(f".//{{{WSSE}}}Reference").set("URI", f"#k{number}")
        key.addnext(extra_key)
        data.addnext(extra_data)


def _twice(root: etree._Element, tag: str) -> None:
    own = root.find(f".//{tag}")
    own.addnext(deepcopy(own))


def _elsewhere(root: etree._Element, place: str) -> None:
    data = deepcopy(root.find(f".//{DATA}"))
    data.set("Id", "odd")
    if place == "Body":
        etree.SubElement(root.find(f"{{{S12}}}Body"), "{urn:example:w}Wrapper").append(data)
    else:
        next(root.iter(f"{{*}}{place}")).append(data)


def _of_others(target: Target, message: Package) -> Iterator[tuple[str, Package, tuple[str, ...]]]:
    """Encrypting is not signing: everybody has the recipient's certificate."""
    sealed = for_seller(target)
    stranger = pki.issue(None, "buyer", key="rsa", label="a stranger who encrypts")
    forged = payload("one", FORGED_CONTENT)
    bare = order(None, "encrypted", [forged], encryption=sealed)
    yield "encrypted by a stranger, unsigned", bare, (_POLICY,)
    theirs = order(signing(stranger), "encrypted", [forged], encryption=sealed)
    yield "encrypted by a stranger, signed by it", theirs, (_NO_PROOF,)
    other = from_buyer(target, "encrypted", [forged], encryption=sealed)
    moved = message.with_parts(other.parts[0], message.parts[1])
    yield "a ciphertext of another message", moved, (_FAILED,)
    own, another = (etree.fromstring(one.envelope) for one in (message, other))
    for tag in (KEY, f"{{{S12}}}Body"):
        old, new = next(own.iter(tag)), next(another.iter(tag))
        old.getparent().replace(old, new)
    grafted = replace(message, envelope=etree.tostring(own))
    yield "key and Body of another message", grafted, (_FAILED, _NO_PROOF)
    left_out = resigned(
        message,
        with_ref(message, "cid:two@buyer.example", None),
        signer=key_pair(target),
        method=RSA_SHA256,
    )
    yield "an encrypted part that is not signed", left_out, (_POLICY,)
    elsewhere = Encryption(stranger.certificate)
    yield "for another", from_buyer(target, "encrypted", encryption=elsewhere), (_FAILED,)
    plain = [payload("one", gzip.compress(b"in the clear", mtime=0), "application/gzip")]
    yield "not encrypted at all", from_buyer(target, "encrypted", plain, body=""), (_POLICY,)


CLASSES: Final = (
    AttackClass("encryption: oracles and weak algorithms", _oracles),
    AttackClass("encryption: wrapping and strangers", _wrapping),
)
