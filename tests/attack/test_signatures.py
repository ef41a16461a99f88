"""Signatures that are missing, weak, out of time, or not built as they should be."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from lxml import etree

import postroad
from postroad.security.algorithms import RSA_SHA256, SHA1, SIGNATURES
from postroad.wire.names import C14N, DS, DSIG_MORE_2001, EXC_C14N, WSSE, XENC
from tests.attack.forging import Ref, cut, element, exclusive, resigned, sha256, with_ref
from tests.attack.messages import (
    ACTION,
    BODY,
    FORGED_ACTION,
    NOW,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    buyer,
    ca,
    failures,
    look,
    make,
    rsa_signing,
    write_pmode,
)
from tests.changing import replace

MD5 = DSIG_MORE_2001 + "md5"


# The signature is gone


def test_a_message_whose_signature_was_cut_out_breaks_a_pmode_that_asks_for_one(
    message: Package, tmp_path: Path
) -> None:
    bare = cut(message, "<ds:Signature ", "</ds:Signature>")
    trust = [ca().certificate]
    found = postroad.inspect(bare.wire(), trust=trust, at=NOW, pmode=write_pmode(tmp_path))
    assert_refused(found, "EBMS:0103")
    assert found["signature"]["present"] is False
    kept = postroad.inspect(message.wire(), trust=trust, at=NOW, pmode=write_pmode(tmp_path))
    assert_holds(kept)


@pytest.mark.parametrize("where", ["no Security header", "another role", "foreign namespace"])
def test_a_signature_that_is_not_found_breaks_a_pmode_that_asks_for_one(
    message: Package, tmp_path: Path, where: str
) -> None:
    if where == "no Security header":
        bare = cut(message, "<wsse:Security ", "</wsse:Security>")
    elif where == "another role":
        bare = message.replaced(
            'S12:mustUnderstand="true"><wsu:', 'S12:role="urn:example:nobody"><wsu:'
        )
    else:
        bare = message.replaced(
            f'<ds:Signature xmlns:ds="{DS}"', '<ds:Signature xmlns:ds="urn:example:ds"'
        )
    found = postroad.inspect(
        bare.wire(), trust=[ca().certificate], at=NOW, pmode=write_pmode(tmp_path)
    )
    assert_refused(found, "EBMS:0103")
    assert found["signature"]["present"] is False


def test_a_message_of_another_party_matches_no_pmode(message: Package, tmp_path: Path) -> None:
    other = message.replaced("<eb:PartyId>urn:example:buyer", "<eb:PartyId>urn:example:mouse")
    found = postroad.inspect(
        other.wire(), trust=[ca().certificate], at=NOW, pmode=write_pmode(tmp_path)
    )
    assert_refused(found, "EBMS:0010")
    assert_refused(found, "EBMS:0101")


@pytest.mark.parametrize(
    "role",
    [
        "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
        "http://www.w3.org/2003/05/soap-envelope/role/next",
        " ",
    ],
)
def test_a_security_header_that_is_for_us_by_name_is_looked_at(message: Package, role: str) -> None:
    named = message.replaced(
        'S12:mustUnderstand="true"><wsu:', f'S12:mustUnderstand="true" S12:role="{role}"><wsu:'
    )
    assert_holds(look(named))
    assert_refused(look(named.replaced(ACTION, FORGED_ACTION)), "EBMS:0101")


def test_a_foreign_role_attribute_does_not_hide_the_security_header(message: Package) -> None:
    hidden = message.replaced(
        'S12:mustUnderstand="true"><wsu:',
        'S12:mustUnderstand="true" xmlns:x="urn:example:x" x:role="urn:nobody" x:actor="n"><wsu:',
    )
    assert look(hidden)["signature"]["present"] is True
    assert_refused(look(hidden.replaced(ACTION, FORGED_ACTION)), "EBMS:0101")


@pytest.mark.parametrize(
    "role", ["", " ", "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver"]
)
def test_two_security_headers_for_us_are_refused_however_the_second_is_named(
    message: Package, role: str
) -> None:
    second = f'<wsse:Security xmlns:wsse="{WSSE}" S12:role="{role}"/></S12:Header>'
    assert_refused(look(message.replaced("</S12:Header>", second)), "EBMS:0101")


# Weak algorithms


def _weak_messages() -> dict[str, Package]:
    def by_rsa(message: Package, **terms: object) -> Package:
        return resigned(message, signer=buyer("rsa"), **terms)  # type: ignore[arg-type]

    plain = make(TWO, body=BODY)
    header = exclusive(element(plain, "_messaging"))
    return {
        "rsa-sha1": by_rsa(plain, method=DS + "rsa-sha1"),
        "sha1 digests": make(TWO, body=BODY, signing=rsa_signing(digest=SHA1)),
        "one sha1 digest": by_rsa(
            plain,
            references=with_ref(
                plain,
                "#_messaging",
                Ref("#_messaging", hashlib.sha1(header).digest(), (EXC_C14N,), SHA1),
            ),
            method=RSA_SHA256,
        ),
        "ecdsa-sha1": resigned(plain, method=DSIG_MORE_2001 + "ecdsa-sha1"),
    }


@pytest.mark.parametrize("name", ["rsa-sha1", "sha1 digests", "one sha1 digest", "ecdsa-sha1"])
def test_sha1_is_refused_unless_legacy_is_allowed(name: str) -> None:
    message = _weak_messages()[name]
    assert_refused(look(message), "EBMS:0103")
    assert_holds(look(message, allow_legacy=True))


def test_md5_is_refused() -> None:
    plain = make(TWO, body=BODY)
    digest = hashlib.md5(exclusive(element(plain, "_messaging"))).digest()
    weak = with_ref(plain, "#_messaging", Ref("#_messaging", digest, (EXC_C14N,), MD5))
    assert_refused(look(resigned(plain, weak)), "EBMS:0103")
    rsa_md5 = resigned(
        plain,
        signer=buyer("rsa"),
        method=DSIG_MORE_2001 + "rsa-md5",
        make_value=lambda _: b"0" * 256,
    )
    assert_refused(look(rsa_md5), "EBMS:0103")


@pytest.mark.parametrize("method", ["", "urn:example:digest", XENC + "sha1024", "identity"])
def test_an_unknown_digest_is_refused(message: Package, method: str) -> None:
    digest = exclusive(element(message, "_messaging"))[:32]
    other = with_ref(message, "#_messaging", Ref("#_messaging", digest, (EXC_C14N,), method))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


def test_all_algorithms_of_the_table_that_are_weak_are_refused_by_name(message: Package) -> None:
    """Whatever the value: the name alone is enough."""
    weak = [uri for uri, algorithm in SIGNATURES.items() if algorithm.weak]
    assert len(weak) >= 9
    for uri in weak:
        found = look(resigned(message, method=uri, make_value=lambda _: b"0" * 64))
        assert_refused(found, "EBMS:0103")


# Time


@pytest.mark.parametrize("late", [timedelta(hours=2), timedelta(days=400)])
def test_an_expired_message_is_refused(message: Package, late: timedelta) -> None:
    assert_refused(look(message, at=NOW + late), "EBMS:0103")


def test_a_message_from_the_future_is_refused(message: Package) -> None:
    assert_refused(look(message, at=NOW - timedelta(hours=1)), "EBMS:0103")


def test_a_timestamp_that_was_refreshed_is_refused(message: Package) -> None:
    fresh = message.replaced("2026-06-01T13:00:00.000Z", "2026-06-03T13:00:00.000Z")
    assert_refused(look(fresh, at=NOW + timedelta(days=1)), "EBMS:0101")


def test_an_unsigned_timestamp_added_to_a_signed_message_is_refused() -> None:
    without = make(TWO, body=BODY, lifetime=None)
    assert_holds(look(without))
    stamp = (
        '<wsu:Timestamp xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-'
        'wssecurity-utility-1.0.xsd"><wsu:Created>2026-06-01T12:00:00Z</wsu:Created></wsu:Timestamp>'
    )
    added = without.replaced("<ds:Signature ", stamp + "<ds:Signature ")
    assert_refused(look(added), "EBMS:0103")


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T24:00:00Z",
        "99999-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "",
        "soon",
        "2026-06-01",
        "1780315200",
    ],
)
@pytest.mark.parametrize("which", ["Created", "Expires"])
def test_an_odd_time_is_refused_or_read_and_never_more(
    message: Package, time: str, which: str
) -> None:
    own = {"Created": "2026-06-01T12:00:00.000Z", "Expires": "2026-06-01T13:00:00.000Z"}[which]
    odd = message.replaced(f"<wsu:{which}>{own}", f"<wsu:{which}>{time}")
    stamp = sha256(exclusive(element(odd, "_timestamp")))
    signed = resigned(odd, with_ref(message, "#_timestamp", Ref("#_timestamp", stamp)))
    found = look(signed)
    right = (which == "Expires" and time.startswith("9999-12-31T23")) or (
        which == "Created" and time == "0001-01-01T00:00:00Z"
    )
    if right:
        assert_holds(found)
    else:
        assert_refused(found, "EBMS:0103")


# The signature itself


def _doubled(name: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        node = next(root.iter(f"{{{DS}}}{name}"))
        node.addnext(etree.fromstring(etree.tostring(node, with_tail=False)))

    return change


@pytest.mark.parametrize(
    "name",
    [
        "Signature",
        "SignedInfo",
        "SignatureValue",
        "KeyInfo",
        "CanonicalizationMethod",
        "SignatureMethod",
        "Transforms",
        "Transform",
        "DigestMethod",
        "DigestValue",
    ],
)
def test_a_signature_with_something_twice_is_refused(message: Package, name: str) -> None:
    root = etree.fromstring(message.envelope)
    _doubled(name)(root)
    found = look(replace(message, envelope=etree.tostring(root)))
    assert_refused(found, "EBMS:0101", "EBMS:0103")


@pytest.mark.parametrize(
    "name", ["SignedInfo", "SignatureValue", "KeyInfo", "SignatureMethod", "DigestValue"]
)
def test_a_signature_with_something_missing_is_refused(message: Package, name: str) -> None:
    root = etree.fromstring(message.envelope)
    node = next(root.iter(f"{{{DS}}}{name}"))
    node.getparent().remove(node)
    assert_refused(look(replace(message, envelope=etree.tostring(root))), "EBMS:0101")


@pytest.mark.parametrize("place", ["S12:Body", "eb:Messaging", "wsse:Security"])
def test_a_stray_signature_never_vouches(message: Package, place: str) -> None:
    """A second, valid signature somewhere else, as an oracle or as a decoy."""
    start = message.envelope.index(b"<ds:Signature ")
    stop = message.envelope.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    copy = message.envelope[start:stop].replace(b'Id="_signature"', b'Id="_copy"')
    bare = cut(message, "<ds:Signature ", "</ds:Signature>")
    moved = bare.replaced(f"</{place}>", f"{copy.decode()}</{place}>")
    found = look(moved)
    if place == "wsse:Security":
        assert_holds(found)
    else:
        assert found["signature"]["present"] is False
        assert "S12:Body" in place or not found["holds"]


def _flipped(message: Package, begin: bytes, end: bytes, step: int) -> Iterator[Package]:
    start, stop = message.envelope.index(begin), message.envelope.index(end)
    for at in range(start, stop, step):
        changed = bytearray(message.envelope)
        changed[at] ^= 1
        yield replace(message, envelope=bytes(changed))


def test_every_bit_of_the_signature_counts(message: Package) -> None:
    """Only a name of a namespace that nothing uses can change, and then nothing else does."""
    units, signature = look(message)["units"], look(message)["signature"]
    for changed in _flipped(message, b"<ds:SignedInfo", b"</ds:SignatureValue>", 7):
        found = look(changed)
        if found["holds"]:
            assert found["units"] == units
            assert found["signature"] == signature


def test_every_bit_of_header_and_body_counts(message: Package) -> None:
    units = look(message)["units"]
    body = exclusive(element(message, "_body"))
    for changed in _flipped(message, b"<eb:Messaging", b"</S12:Body>", 5):
        found = look(changed)
        if found["holds"]:
            assert found["units"] == units
            assert exclusive(element(changed, "_body")) == body


def test_canonical_xml_without_transform_is_taken_for_what_it_is(message: Package) -> None:
    """No transform means inclusive canonical form, in which what stands above counts."""
    node = element(message, "_body")
    inclusive = etree.tostring(node, method="c14n", with_tail=False)
    for steps in ((), (C14N,)):
        signed = resigned(
            message, with_ref(message, "#_body", Ref("#_body", sha256(inclusive), steps))
        )
        assert_holds(look(signed))
        above = signed.replaced("<S12:Envelope ", '<S12:Envelope xmlns:up="urn:example:up" ')
        assert_refused(look(above), "EBMS:0101")


def test_problems_of_a_forged_message_do_not_say_that_it_is_fine(message: Package) -> None:
    found = look(message.replaced(ACTION, FORGED_ACTION))
    assert_refused(found, "EBMS:0101")
    assert [e["location"] for e in failures(found)] == ["#_messaging"]
    assert [one["valid"] for one in found["signature"]["references"]].count(False) == 1
