"""Paths to what is trusted, of which there are many."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from postroad.security.distinguished import issuer_matches
from postroad.security.trust import Trust
from postroad.wire.errors import EbmsError
from tests.pki import NOW, authority, distinguished_name, issue
from tests.unit.trusting import BOB, MIDDLE, ROOT, TRUST, refusal


def test_two_authorities_of_one_name_are_both_tried() -> None:
    second = authority("Root", label="renewed")
    trust = Trust(anchors=(second.certificate, ROOT.certificate))
    assert trust.verify(BOB.certificate, (), NOW).chain[-1] == ROOT.certificate
    leaf = issue(second, "of the second")
    assert trust.verify(leaf.certificate, (), NOW).chain[-1] == second.certificate


def test_a_cross_certificate_leads_to_the_anchor_that_is_trusted() -> None:
    ours = authority("Ours")
    theirs = authority("Theirs")
    cross = authority("Theirs", issuer=ours)
    leaf = issue(theirs, "partner")
    trust = Trust(anchors=(ours.certificate,))
    pile = (theirs.certificate, cross.certificate)
    chain = trust.verify(leaf.certificate, pile, NOW).chain
    assert chain == (leaf.certificate, cross.certificate, ours.certificate)


def test_an_expired_path_does_not_hide_a_good_one() -> None:
    good = authority("Renewed", issuer=ROOT)
    old = authority("Renewed", issuer=ROOT, not_after=NOW - timedelta(days=1))
    leaf = issue(good, "after renewal")
    chain = TRUST.verify(leaf.certificate, (old.certificate, good.certificate), NOW).chain
    assert chain[1] == good.certificate


def test_authorities_that_certify_each_other_end_the_search() -> None:
    one, two = authority("One"), authority("Two")
    ring = (authority("One", issuer=two), authority("Two", issuer=one))
    assert "untrusted" in refusal(TRUST, issue(one, "in the ring"), extra=ring)


def test_the_search_is_bounded() -> None:
    keys = [authority("Tangle", label=f"tangle {n}") for n in range(6)]
    tangle = [
        authority("Tangle", label=f"tangle {n}", issuer=above)
        for n in range(len(keys))
        for above in keys
        if above is not keys[n]
    ]
    leaf = issue(keys[0], "in the tangle")
    pile = tuple(item.certificate for item in tangle)
    with pytest.raises(EbmsError, match="too many candidate issuers"):
        TRUST.verify(leaf.certificate, pile, NOW)


def test_a_pile_of_intermediates_is_refused() -> None:
    with pytest.raises(EbmsError, match="more than 32 certificates"):
        TRUST.verify(BOB.certificate, (MIDDLE.certificate,) * 33, NOW)


def test_a_certificate_that_cannot_be_read_is_refused() -> None:
    data = BOB.certificate.public_bytes(Encoding.DER)
    constraints = bytes.fromhex("0603551d13")
    at = data.index(constraints) + len(constraints)
    broken = data[:at] + data[at:].replace(b"\x30\x00", b"\x05\x00", 1)
    certificate = x509.load_der_x509_certificate(broken)
    with pytest.raises(EbmsError, match="cannot be read") as caught:
        TRUST.verify(certificate, (), NOW)
    assert caught.value.code == "EBMS:0101"
    assert "was not made" in refusal(TRUST, issue(authority("Root", label="forger"), "x"), extra=())
    assert TRUST.verify(BOB.certificate, (certificate,), NOW)


def test_a_certificate_of_absurd_size_is_refused() -> None:
    padding = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), bytes(20_000))
    large = issue(ROOT, "large", extensions=((padding, False),))
    assert "larger than 16384 bytes" in refusal(TRUST, large)
    assert not issuer_matches(large.certificate, "CN=Root,O=Postroad Tests,C=NL", 1)


def test_names_chain_in_spite_of_case_spaces_and_string_types() -> None:
    odd = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "POSTROAD  tests"),
            x509.NameAttribute(
                NameOID.COMMON_NAME, "root", _type=x509.name._ASN1Type.PrintableString
            ),
        ]
    )
    leaf = issue(ROOT, "loosely named", issuer_name=odd)
    assert TRUST.verify(leaf.certificate, (), NOW)


def test_the_issuer_name_must_chain_even_where_the_key_would_fit() -> None:
    leaf = issue(ROOT, "misnamed", issuer_name=distinguished_name("Somebody"))
    assert "no certificate of the issuer CN=Somebody" in refusal(TRUST, leaf)


def test_a_hostile_name_stays_readable() -> None:
    filler = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60)] * 40
    name = x509.Name([*filler, x509.NameAttribute(NameOID.COMMON_NAME, "a\nEBMS:0000\x07")])
    sentence = refusal(TRUST, issue(None, "hostile", subject=name))
    assert "CN=a\\0AEBMS:0000\\07,OU=xxx" in sentence
    assert len(sentence) < 1000
