"""Whom to believe: certificates that are, and why others are not."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ObjectIdentifier

from postroad.security.keys import KeyPair
from postroad.security.trust import Trust
from postroad.wire.errors import EbmsError
from tests.pki import NOW, YEAR, authority, issue
from tests.unit.trusting import ALICE, BOB, MIDDLE, ROOT, TRUST, refusal

# what is believed


def test_a_certificate_of_an_anchor_is_believed() -> None:
    assert TRUST.verify(BOB.certificate, (), NOW).chain == (BOB.certificate, ROOT.certificate)


def test_the_path_goes_over_the_intermediates_that_came_along() -> None:
    chain = TRUST.verify(ALICE.certificate, (MIDDLE.certificate,), NOW).chain
    assert chain == (ALICE.certificate, MIDDLE.certificate, ROOT.certificate)


def test_intermediates_may_come_in_any_order_with_strangers_among_them() -> None:
    third = authority("Third", issuer=MIDDLE)
    leaf = issue(third, "deep")
    pile = (BOB.certificate, leaf.certificate, MIDDLE.certificate, third.certificate)
    assert len(TRUST.verify(leaf.certificate, pile, NOW).chain) == 4


def test_an_intermediate_may_be_the_anchor() -> None:
    trust = Trust(anchors=(MIDDLE.certificate,))
    assert trust.verify(ALICE.certificate, (), NOW).chain == (ALICE.certificate, MIDDLE.certificate)


def test_a_self_signed_anchor_is_believed_itself() -> None:
    alone = issue(None, "alone")
    trust = Trust(anchors=(alone.certificate,))
    assert trust.verify(alone.certificate, (), NOW).chain == (alone.certificate,)


@pytest.mark.parametrize("kind", ["rsa", "p384", "p521", "brainpool", "dsa", "ed25519", "ed448"])
def test_signatures_of_every_kind_are_checked(kind: str) -> None:
    ca = authority(f"CA with {kind}", key=kind)
    leaf = issue(ca, "leaf", key="ed25519")
    assert Trust((ca.certificate,)).verify(leaf.certificate, (), NOW)
    forged = issue(
        authority("other", key=kind), "leaf", issuer_name=ca.certificate.subject, key="ed25519"
    )
    assert "was not made by the key of" in refusal(Trust((ca.certificate,)), forged)


def test_a_pss_signature_is_checked() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by pss", pss=True)
    assert Trust((ca.certificate,)).verify(leaf.certificate, (), NOW)


def test_a_pinned_certificate_is_believed_without_its_issuer() -> None:
    trust = Trust(pinned=(issue(None, "old one").certificate, ALICE.certificate))
    assert trust.verify(ALICE.certificate, (), NOW).chain == (ALICE.certificate,)


def test_nothing_is_believed_by_default() -> None:
    assert "untrusted" in refusal(Trust(), ALICE)


# who is refused, and why


def test_a_refusal_names_subject_issuer_and_reason() -> None:
    sentence = refusal(Trust(), BOB)
    assert sentence.startswith(
        "the certificate CN=bob,O=Postroad Tests,C=NL, "
        "issued by CN=Root,O=Postroad Tests,C=NL, is not accepted: it is untrusted"
    )


def test_a_missing_intermediate_is_named() -> None:
    with pytest.raises(EbmsError, match="no certificate of the issuer CN=Middle"):
        TRUST.verify(ALICE.certificate, (), NOW)


def test_a_self_signed_certificate_is_refused() -> None:
    assert "it is self-signed and neither anchor nor pinned" in refusal(TRUST, issue(None, "self"))


def test_an_expired_certificate_is_refused_with_its_date() -> None:
    sentence = refusal(TRUST, ALICE, at=NOW + 3 * YEAR)
    assert "it expired on 2028-05-31T12:00:00Z" in sentence


def test_a_certificate_of_the_future_is_refused_with_its_date() -> None:
    assert "it is not valid before 2025-06-01" in refusal(TRUST, ALICE, at=NOW - 2 * YEAR)


def test_a_certificate_is_valid_to_the_last_second() -> None:
    end = ALICE.certificate.not_valid_after_utc
    assert TRUST.verify(ALICE.certificate, ALICE.chain, end)
    assert "expired" in refusal(TRUST, ALICE, at=end + timedelta(seconds=1))


def test_time_is_asked_for_not_read_from_a_clock() -> None:
    old = issue(ROOT, "old", not_before=NOW - 3 * YEAR, not_after=NOW - YEAR)
    assert TRUST.verify(old.certificate, (), NOW - 2 * YEAR)
    assert "expired" in refusal(TRUST, old)


def test_an_expired_pin_is_refused() -> None:
    assert "expired" in refusal(Trust(pinned=(ALICE.certificate,)), ALICE, at=NOW + 3 * YEAR)


def test_an_expired_intermediate_is_refused_by_name() -> None:
    tired = authority("Tired", issuer=ROOT, not_after=NOW - timedelta(days=1))
    sentence = refusal(TRUST, issue(tired, "under tired"))
    assert "its issuer CN=Tired,O=Postroad Tests,C=NL expired on 2026-05-31" in sentence


def test_an_expired_anchor_is_refused() -> None:
    tired = authority("Tired Root", not_after=NOW - timedelta(days=1))
    trust = Trust(anchors=(tired.certificate,))
    assert "CN=Tired Root" in refusal(trust, issue(tired, "under tired root"))


def test_a_certificate_that_only_has_the_names_of_a_trusted_one_is_refused() -> None:
    """Signature faking: same subject, issuer and serial number, the attacker's keys."""
    forger = authority("Root", label="forger")
    fake = issue(forger, "bob", label="forged", serial=BOB.certificate.serial_number)
    assert "was not made by the key of CN=Root" in refusal(TRUST, fake)
    assert "untrusted" in refusal(Trust(pinned=(BOB.certificate,)), fake)


def test_a_chain_that_brings_its_own_root_is_refused() -> None:
    forger = authority("Root", label="forger")
    middle = authority("Middle", label="forger", issuer=forger)
    assert refusal(TRUST, issue(middle, "alice", label="forged"))


def test_a_changed_certificate_is_refused() -> None:
    data = BOB.certificate.public_bytes(Encoding.DER).replace(b"bob", b"bop")
    changed = KeyPair(BOB.private_key, x509.load_der_x509_certificate(data))
    assert "was not made by the key" in refusal(TRUST, changed)
    assert "untrusted" in refusal(Trust(pinned=(BOB.certificate,)), changed)


def test_a_certificate_does_not_sign_for_its_neighbour() -> None:
    leaf = issue(BOB, "issued by bob")
    assert "CN=bob,O=Postroad Tests,C=NL is no certificate authority" in refusal(TRUST, leaf)


def test_of_several_issuers_of_one_name_the_one_that_came_nearest_is_told() -> None:
    vague = authority("Twin", issuer=ROOT, is_ca=None)
    twin = authority("Twin", label="another key", issuer=ROOT)
    said = refusal(TRUST, issue(vague, "under a twin"), extra=(twin,))
    assert "CN=Twin,O=Postroad Tests,C=NL is no certificate authority" in said


def test_an_intermediate_without_basic_constraints_is_no_authority() -> None:
    vague = authority("Vague", issuer=ROOT, is_ca=None)
    assert "is no certificate authority" in refusal(TRUST, issue(vague, "under vague"))


def test_an_old_root_without_basic_constraints_is_an_anchor() -> None:
    old = authority("Version 1 Root", is_ca=None, usage=None)
    leaf = issue(old, "under version 1")
    assert Trust(anchors=(old.certificate,)).verify(leaf.certificate, (), NOW)


def test_an_authority_that_may_not_sign_certificates_is_refused() -> None:
    tied = authority("Tied", issuer=ROOT, usage=("crl_sign",))
    assert "keyCertSign" in refusal(TRUST, issue(tied, "under tied"))


def test_a_path_length_is_kept() -> None:
    short = authority("Short", issuer=ROOT, path_length=0)
    assert TRUST.verify(issue(short, "right below").certificate, (short.certificate,), NOW)
    below = authority("Below", issuer=short)
    sentence = refusal(TRUST, issue(below, "too far"))
    assert "CN=Short,O=Postroad Tests,C=NL allows 0 authorities below it, there are 1" in sentence


def test_a_path_has_a_greatest_length() -> None:
    assert "longer than 2 certificates" in refusal(
        Trust(anchors=(ROOT.certificate,), max_chain=2), ALICE
    )
    assert Trust((ROOT.certificate,), max_chain=3).verify(ALICE.certificate, ALICE.chain, NOW)


# key usage


@pytest.mark.parametrize("usage", [("digital_signature",), ("content_commitment",), None])
def test_these_usages_may_sign(usage: tuple[str, ...] | None) -> None:
    leaf = issue(ROOT, f"uses {usage}", usage=usage)
    assert TRUST.verify(leaf.certificate, (), NOW)


def test_a_certificate_for_encryption_may_not_sign() -> None:
    leaf = issue(ROOT, "encrypts", usage=("key_encipherment",))
    assert "key usage (keyEncipherment) does not allow it to sign" in refusal(TRUST, leaf)
    assert TRUST.verify(leaf.certificate, (), NOW, "encrypt")


def test_a_certificate_for_signing_may_not_encrypt() -> None:
    leaf = issue(ROOT, "signs", usage=("digital_signature",))
    assert "does not allow it to encrypt" in refusal(TRUST, leaf, purpose="encrypt")


def test_a_pin_does_not_change_what_a_key_is_for() -> None:
    leaf = issue(ROOT, "encrypts", usage=("key_encipherment",))
    assert "key usage" in refusal(Trust(pinned=(leaf.certificate,)), leaf)


def test_key_usage_can_be_left_unchecked() -> None:
    leaf = issue(ROOT, "encrypts", usage=("key_encipherment",))
    assert Trust((ROOT.certificate,), check_key_usage=False).verify(leaf.certificate, (), NOW)


# weak keys and digests


def test_sha1_is_refused_unless_asked_for() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by SHA-1", digest="sha1")
    assert "its signature is made with SHA-1" in refusal(Trust((ca.certificate,)), leaf)
    assert Trust((ca.certificate,), allow_sha1=True).verify(leaf.certificate, (), NOW)


def test_md5_is_refused_always() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by MD5", digest="md5")
    assert "made with MD5" in refusal(Trust((ca.certificate,), allow_sha1=True), leaf)


def test_a_weak_digest_below_the_root_is_refused_by_name() -> None:
    ca = authority("CA with rsa", key="rsa")
    weak = authority("Weak", issuer=ca, digest="sha1")
    sentence = refusal(Trust((ca.certificate,)), issue(weak, "under weak"))
    assert "its issuer CN=Weak,O=Postroad Tests,C=NL: its signature is made with SHA-1" in sentence


def test_a_digest_that_nobody_knows_is_refused() -> None:
    known, unknown = bytes.fromhex("06082a8648ce3d040302"), bytes.fromhex("06082a8648ce3d04037f")
    data = issue(ROOT, "odd").certificate.public_bytes(Encoding.DER).replace(known, unknown)
    odd = KeyPair(issue(ROOT, "odd").private_key, x509.load_der_x509_certificate(data))
    assert "its signature is made with an unknown digest" in refusal(TRUST, odd)


def test_the_digest_of_a_root_does_not_matter() -> None:
    old = authority("Old Root", key="rsa", label="CA with rsa", digest="sha1")
    assert Trust((old.certificate,)).verify(issue(old, "new").certificate, (), NOW)


def test_a_short_rsa_key_is_refused_unless_asked_for() -> None:
    short = issue(ROOT, "short", key="rsa1024")
    assert "its key has 1024 bits, at least 2048 are needed" in refusal(TRUST, short)
    assert Trust((ROOT.certificate,), min_rsa_bits=1024).verify(short.certificate, (), NOW)
    assert "1024 bits" in refusal(Trust(pinned=(short.certificate,)), short)


def test_a_short_key_above_is_refused_by_name() -> None:
    ca = authority("Short Root", key="rsa1024", label="short")
    sentence = refusal(Trust((ca.certificate,)), issue(ca, "under short root"))
    assert "CN=Short Root,O=Postroad Tests,C=NL: its key has 1024 bits" in sentence


def test_a_short_curve_is_refused() -> None:
    assert "curve of 192 bits" in refusal(TRUST, issue(ROOT, "short curve", key="p192"))


# extensions and policies

UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), b"\5\0")


def test_an_unknown_critical_extension_is_refused() -> None:
    leaf = issue(ROOT, "odd", extensions=((UNKNOWN, True),))
    assert "its critical extension 1.2.3.4.5 is not understood" in refusal(TRUST, leaf)


def test_an_unknown_extension_that_is_not_critical_does_not_matter() -> None:
    leaf = issue(ROOT, "curious", extensions=((UNKNOWN, False),))
    assert TRUST.verify(leaf.certificate, (), NOW)


GOOD, OTHER, ANY = "1.3.6.1.4.1.1.1", "1.3.6.1.4.1.1.2", "2.5.29.32.0"
POLICY = Trust(anchors=(ROOT.certificate,), policies=frozenset((GOOD,)))


def test_a_required_certificate_policy_is_found() -> None:
    leaf = issue(ROOT, "with policy", policies=(OTHER, GOOD))
    assert POLICY.verify(leaf.certificate, (), NOW)


@pytest.mark.parametrize("policies", [(), (OTHER,), (ANY,)])
def test_a_certificate_without_the_required_policy_is_refused(policies: tuple[str, ...]) -> None:
    leaf = issue(ROOT, f"policies {policies}", policies=policies)
    assert f"certificate policy that is asked for ({GOOD})" in refusal(POLICY, leaf)


@pytest.mark.parametrize(("above", "held"), [((GOOD,), True), ((ANY,), True), ((OTHER,), False)])
def test_a_policy_holds_only_where_the_authorities_carry_it(
    above: tuple[str, ...], held: bool
) -> None:
    ca = authority(f"policies {above}", issuer=ROOT, policies=above)
    leaf = issue(ca, "leaf", policies=(GOOD,))
    if held:
        assert POLICY.verify(leaf.certificate, leaf.chain, NOW)
    else:
        assert "certificate policy" in refusal(POLICY, leaf)


def test_an_authority_that_asks_for_a_policy_is_heard() -> None:
    ask = (x509.PolicyConstraints(0, None), True)
    ca = authority("Asks", issuer=ROOT, policies=(GOOD,), extensions=(ask,))
    assert "certificate policy" in refusal(TRUST, issue(ca, "none"))
    leaf = issue(ca, "one", policies=(GOOD,))
    assert TRUST.verify(leaf.certificate, leaf.chain, NOW)


def test_an_authority_that_inhibits_any_policy_is_heard() -> None:
    inhibit = (x509.InhibitAnyPolicy(0), True)
    ca = authority("Inhibits", issuer=ROOT, policies=(ANY,), extensions=(inhibit,))
    assert "certificate policy" in refusal(POLICY, issue(ca, "leaf", policies=(GOOD,)))
