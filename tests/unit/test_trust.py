"""Whom to believe, and how certificates are named, through `postroad.security.trust`."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from postroad.security.distinguished import issuer_matches, rfc2253_name
from postroad.security.keys import KeyPair
from postroad.security.trust import Trust, subject_key_identifier, thumbprint_sha1
from postroad.wire.errors import EbmsError
from postroad.wire.xml import is_xml_text
from tests.pki import NOW, YEAR, authority, distinguished_name, issue, revocation_list

ROOT = authority("Root")
MIDDLE = authority("Middle", issuer=ROOT)
ALICE = issue(MIDDLE, "alice")
BOB = issue(ROOT, "bob")
TRUST = Trust(anchors=(ROOT.certificate,))


def _refusal(
    trust: Trust, pair: KeyPair, *, extra: tuple[KeyPair, ...] = (), **options: object
) -> str:
    """The sentence with which a certificate is refused, its issuers at hand."""
    intermediates = (*pair.chain, *(other.certificate for other in extra))
    at = options.pop("at", NOW)
    with pytest.raises(EbmsError) as caught:
        trust.verify(pair.certificate, intermediates, at, **options)  # type: ignore[arg-type]
    assert caught.value.code == "EBMS:0101"
    assert is_xml_text(caught.value.detail)
    return caught.value.detail


# what is believed


def test_a_certificate_of_an_anchor_is_believed() -> None:
    assert TRUST.verify(BOB.certificate, (), NOW) == (BOB.certificate, ROOT.certificate)


def test_the_path_goes_over_the_intermediates_that_came_along() -> None:
    chain = TRUST.verify(ALICE.certificate, (MIDDLE.certificate,), NOW)
    assert chain == (ALICE.certificate, MIDDLE.certificate, ROOT.certificate)


def test_intermediates_may_come_in_any_order_with_strangers_among_them() -> None:
    third = authority("Third", issuer=MIDDLE)
    leaf = issue(third, "deep")
    pile = (BOB.certificate, leaf.certificate, MIDDLE.certificate, third.certificate)
    assert len(TRUST.verify(leaf.certificate, pile, NOW)) == 4


def test_an_intermediate_may_be_the_anchor() -> None:
    trust = Trust(anchors=(MIDDLE.certificate,))
    assert trust.verify(ALICE.certificate, (), NOW) == (ALICE.certificate, MIDDLE.certificate)


def test_a_self_signed_anchor_is_believed_itself() -> None:
    alone = issue(None, "alone")
    trust = Trust(anchors=(alone.certificate,))
    assert trust.verify(alone.certificate, (), NOW) == (alone.certificate,)


@pytest.mark.parametrize("kind", ["rsa", "p384", "p521", "brainpool", "dsa", "ed25519", "ed448"])
def test_signatures_of_every_kind_are_checked(kind: str) -> None:
    ca = authority(f"CA with {kind}", key=kind)
    leaf = issue(ca, "leaf", key="ed25519")
    assert Trust((ca.certificate,)).verify(leaf.certificate, (), NOW)
    forged = issue(
        authority("other", key=kind), "leaf", issuer_name=ca.certificate.subject, key="ed25519"
    )
    assert "was not made by the key of" in _refusal(Trust((ca.certificate,)), forged)


def test_a_pss_signature_is_checked() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by pss", pss=True)
    assert Trust((ca.certificate,)).verify(leaf.certificate, (), NOW)


def test_a_pinned_certificate_is_believed_without_its_issuer() -> None:
    trust = Trust(pinned=(issue(None, "old one").certificate, ALICE.certificate))
    assert trust.verify(ALICE.certificate, (), NOW) == (ALICE.certificate,)


def test_nothing_is_believed_by_default() -> None:
    assert "untrusted" in _refusal(Trust(), ALICE)


# who is refused, and why


def test_a_refusal_names_subject_issuer_and_reason() -> None:
    sentence = _refusal(Trust(), BOB)
    assert sentence.startswith(
        "the certificate CN=bob,O=Postroad Tests,C=NL, "
        "issued by CN=Root,O=Postroad Tests,C=NL, is not accepted: it is untrusted"
    )


def test_a_missing_intermediate_is_named() -> None:
    with pytest.raises(EbmsError, match="no certificate of the issuer CN=Middle"):
        TRUST.verify(ALICE.certificate, (), NOW)


def test_a_self_signed_certificate_is_refused() -> None:
    assert "it is self-signed and neither anchor nor pinned" in _refusal(TRUST, issue(None, "self"))


def test_an_expired_certificate_is_refused_with_its_date() -> None:
    sentence = _refusal(TRUST, ALICE, at=NOW + 3 * YEAR)
    assert "it expired on 2028-05-31T12:00:00Z" in sentence


def test_a_certificate_of_the_future_is_refused_with_its_date() -> None:
    assert "it is not valid before 2025-06-01" in _refusal(TRUST, ALICE, at=NOW - 2 * YEAR)


def test_a_certificate_is_valid_to_the_last_second() -> None:
    end = ALICE.certificate.not_valid_after_utc
    assert TRUST.verify(ALICE.certificate, ALICE.chain, end)
    assert "expired" in _refusal(TRUST, ALICE, at=end + timedelta(seconds=1))


def test_time_is_asked_for_not_read_from_a_clock() -> None:
    old = issue(ROOT, "old", not_before=NOW - 3 * YEAR, not_after=NOW - YEAR)
    assert TRUST.verify(old.certificate, (), NOW - 2 * YEAR)
    assert "expired" in _refusal(TRUST, old)


def test_an_expired_pin_is_refused() -> None:
    assert "expired" in _refusal(Trust(pinned=(ALICE.certificate,)), ALICE, at=NOW + 3 * YEAR)


def test_an_expired_intermediate_is_refused_by_name() -> None:
    tired = authority("Tired", issuer=ROOT, not_after=NOW - timedelta(days=1))
    sentence = _refusal(TRUST, issue(tired, "under tired"))
    assert "its issuer CN=Tired,O=Postroad Tests,C=NL expired on 2026-05-31" in sentence


def test_an_expired_anchor_is_refused() -> None:
    tired = authority("Tired Root", not_after=NOW - timedelta(days=1))
    trust = Trust(anchors=(tired.certificate,))
    assert "CN=Tired Root" in _refusal(trust, issue(tired, "under tired root"))


def test_a_certificate_that_only_has_the_names_of_a_trusted_one_is_refused() -> None:
    """Signature faking: same subject, issuer and serial number, the attacker's keys."""
    forger = authority("Root", label="forger")
    fake = issue(forger, "bob", label="forged", serial=BOB.certificate.serial_number)
    assert "was not made by the key of CN=Root" in _refusal(TRUST, fake)
    assert "untrusted" in _refusal(Trust(pinned=(BOB.certificate,)), fake)


def test_a_chain_that_brings_its_own_root_is_refused() -> None:
    forger = authority("Root", label="forger")
    middle = authority("Middle", label="forger", issuer=forger)
    assert _refusal(TRUST, issue(middle, "alice", label="forged"))


def test_a_changed_certificate_is_refused() -> None:
    data = BOB.certificate.public_bytes(Encoding.DER).replace(b"bob", b"bop")
    changed = KeyPair(BOB.private_key, x509.load_der_x509_certificate(data))
    assert "was not made by the key" in _refusal(TRUST, changed)
    assert "untrusted" in _refusal(Trust(pinned=(BOB.certificate,)), changed)


def test_a_certificate_does_not_sign_for_its_neighbour() -> None:
    leaf = issue(BOB, "issued by bob")
    assert "CN=bob,O=Postroad Tests,C=NL is no certificate authority" in _refusal(TRUST, leaf)


def test_an_intermediate_without_basic_constraints_is_no_authority() -> None:
    vague = authority("Vague", issuer=ROOT, is_ca=None)
    assert "is no certificate authority" in _refusal(TRUST, issue(vague, "under vague"))


def test_an_old_root_without_basic_constraints_is_an_anchor() -> None:
    old = authority("Version 1 Root", is_ca=None, usage=None)
    leaf = issue(old, "under version 1")
    assert Trust(anchors=(old.certificate,)).verify(leaf.certificate, (), NOW)


def test_an_authority_that_may_not_sign_certificates_is_refused() -> None:
    tied = authority("Tied", issuer=ROOT, usage=("crl_sign",))
    assert "keyCertSign" in _refusal(TRUST, issue(tied, "under tied"))


def test_a_path_length_is_kept() -> None:
    short = authority("Short", issuer=ROOT, path_length=0)
    assert TRUST.verify(issue(short, "right below").certificate, (short.certificate,), NOW)
    below = authority("Below", issuer=short)
    sentence = _refusal(TRUST, issue(below, "too far"))
    assert "CN=Short,O=Postroad Tests,C=NL allows 0 authorities below it, there are 1" in sentence


def test_a_path_has_a_greatest_length() -> None:
    assert "longer than 2 certificates" in _refusal(
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
    assert "key usage (keyEncipherment) does not allow it to sign" in _refusal(TRUST, leaf)
    assert TRUST.verify(leaf.certificate, (), NOW, "encrypt")


def test_a_certificate_for_signing_may_not_encrypt() -> None:
    leaf = issue(ROOT, "signs", usage=("digital_signature",))
    assert "does not allow it to encrypt" in _refusal(TRUST, leaf, purpose="encrypt")


def test_a_pin_does_not_change_what_a_key_is_for() -> None:
    leaf = issue(ROOT, "encrypts", usage=("key_encipherment",))
    assert "key usage" in _refusal(Trust(pinned=(leaf.certificate,)), leaf)


def test_key_usage_can_be_left_unchecked() -> None:
    leaf = issue(ROOT, "encrypts", usage=("key_encipherment",))
    assert Trust((ROOT.certificate,), check_key_usage=False).verify(leaf.certificate, (), NOW)


# weak keys and digests


def test_sha1_is_refused_unless_asked_for() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by SHA-1", digest="sha1")
    assert "its signature is made with SHA-1" in _refusal(Trust((ca.certificate,)), leaf)
    assert Trust((ca.certificate,), allow_sha1=True).verify(leaf.certificate, (), NOW)


def test_md5_is_refused_always() -> None:
    ca = authority("CA with rsa", key="rsa")
    leaf = issue(ca, "by MD5", digest="md5")
    assert "made with MD5" in _refusal(Trust((ca.certificate,), allow_sha1=True), leaf)


def test_a_weak_digest_below_the_root_is_refused_by_name() -> None:
    ca = authority("CA with rsa", key="rsa")
    weak = authority("Weak", issuer=ca, digest="sha1")
    sentence = _refusal(Trust((ca.certificate,)), issue(weak, "under weak"))
    assert "its issuer CN=Weak,O=Postroad Tests,C=NL: its signature is made with SHA-1" in sentence


def test_the_digest_of_a_root_does_not_matter() -> None:
    old = authority("Old Root", key="rsa", label="CA with rsa", digest="sha1")
    assert Trust((old.certificate,)).verify(issue(old, "new").certificate, (), NOW)


def test_a_short_rsa_key_is_refused_unless_asked_for() -> None:
    short = issue(ROOT, "short", key="rsa1024")
    assert "its key has 1024 bits, at least 2048 are needed" in _refusal(TRUST, short)
    assert Trust((ROOT.certificate,), min_rsa_bits=1024).verify(short.certificate, (), NOW)
    assert "1024 bits" in _refusal(Trust(pinned=(short.certificate,)), short)


def test_a_short_key_above_is_refused_by_name() -> None:
    ca = authority("Short Root", key="rsa1024", label="short")
    sentence = _refusal(Trust((ca.certificate,)), issue(ca, "under short root"))
    assert "CN=Short Root,O=Postroad Tests,C=NL: its key has 1024 bits" in sentence


def test_a_short_curve_is_refused() -> None:
    assert "curve of 192 bits" in _refusal(TRUST, issue(ROOT, "short curve", key="p192"))


# extensions and policies

UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), b"\5\0")
CONSTRAINED = x509.NameConstraints([x509.DirectoryName(distinguished_name("x"))], None)


def test_an_unknown_critical_extension_is_refused() -> None:
    leaf = issue(ROOT, "odd", extensions=((UNKNOWN, True),))
    assert "its critical extension 1.2.3.4.5 is not understood" in _refusal(TRUST, leaf)


def test_an_unknown_extension_that_is_not_critical_does_not_matter() -> None:
    leaf = issue(ROOT, "curious", extensions=((UNKNOWN, False),))
    assert TRUST.verify(leaf.certificate, (), NOW)


@pytest.mark.parametrize("critical", [True, False])
def test_name_constraints_are_never_passed_over(critical: bool) -> None:
    bound = authority(f"Bound {critical}", issuer=ROOT, extensions=((CONSTRAINED, critical),))
    assert "2.5.29.30 is not understood" in _refusal(TRUST, issue(bound, "outside"))


GOOD, OTHER, ANY = "1.3.6.1.4.1.1.1", "1.3.6.1.4.1.1.2", "2.5.29.32.0"
POLICY = Trust(anchors=(ROOT.certificate,), policies=frozenset((GOOD,)))


def test_a_required_certificate_policy_is_found() -> None:
    leaf = issue(ROOT, "with policy", policies=(OTHER, GOOD))
    assert POLICY.verify(leaf.certificate, (), NOW)


@pytest.mark.parametrize("policies", [(), (OTHER,), (ANY,)])
def test_a_certificate_without_the_required_policy_is_refused(policies: tuple[str, ...]) -> None:
    leaf = issue(ROOT, f"policies {policies}", policies=policies)
    assert f"certificate policy that is asked for ({GOOD})" in _refusal(POLICY, leaf)


@pytest.mark.parametrize(("above", "held"), [((GOOD,), True), ((ANY,), True), ((OTHER,), False)])
def test_a_policy_holds_only_where_the_authorities_carry_it(
    above: tuple[str, ...], held: bool
) -> None:
    ca = authority(f"policies {above}", issuer=ROOT, policies=above)
    leaf = issue(ca, "leaf", policies=(GOOD,))
    if held:
        assert POLICY.verify(leaf.certificate, leaf.chain, NOW)
    else:
        assert "certificate policy" in _refusal(POLICY, leaf)


def test_an_authority_that_asks_for_a_policy_is_heard() -> None:
    ask = (x509.PolicyConstraints(0, None), True)
    ca = authority("Asks", issuer=ROOT, policies=(GOOD,), extensions=(ask,))
    assert "certificate policy" in _refusal(TRUST, issue(ca, "none"))
    leaf = issue(ca, "one", policies=(GOOD,))
    assert TRUST.verify(leaf.certificate, leaf.chain, NOW)


def test_an_authority_that_inhibits_any_policy_is_heard() -> None:
    inhibit = (x509.InhibitAnyPolicy(0), True)
    ca = authority("Inhibits", issuer=ROOT, policies=(ANY,), extensions=(inhibit,))
    assert "certificate policy" in _refusal(POLICY, issue(ca, "leaf", policies=(GOOD,)))


# revocation


def test_a_revoked_certificate_is_refused_with_the_date() -> None:
    trust = Trust((ROOT.certificate,), crls=(revocation_list(ROOT, [BOB.certificate]),))
    assert "CN=bob,O=Postroad Tests,C=NL was revoked by its issuer on 2026-05-02" in _refusal(
        trust, BOB
    )
    other = issue(ROOT, "not revoked")
    assert trust.verify(other.certificate, (), NOW)


def test_what_was_signed_before_the_revocation_still_holds() -> None:
    trust = Trust((ROOT.certificate,), crls=(revocation_list(ROOT, [BOB.certificate]),))
    assert trust.verify(BOB.certificate, (), NOW - timedelta(days=31))


def test_a_revoked_authority_takes_all_below_it_along() -> None:
    trust = Trust((ROOT.certificate,), crls=(revocation_list(ROOT, [MIDDLE.certificate]),))
    assert "CN=Middle,O=Postroad Tests,C=NL was revoked" in _refusal(trust, ALICE)


def test_a_revoked_pin_is_refused_where_its_issuer_is_known() -> None:
    crls = (revocation_list(ROOT, [BOB.certificate]),)
    trust = Trust((ROOT.certificate,), pinned=(BOB.certificate,), crls=crls)
    assert "was revoked" in _refusal(trust, BOB)


def test_a_list_that_the_issuer_did_not_sign_does_not_count() -> None:
    forger = authority("Root", label="forger")
    crl = revocation_list(forger, [BOB.certificate])
    assert Trust((ROOT.certificate,), crls=(crl,)).verify(BOB.certificate, (), NOW)
    strict = Trust((ROOT.certificate,), crls=(crl,), require_crl=True)
    assert "no revocation list of CN=Root" in _refusal(strict, BOB)


def test_a_list_of_an_authority_that_may_not_sign_lists_does_not_count() -> None:
    ca = authority("No Lists", usage=("key_cert_sign",))
    leaf = issue(ca, "leaf")
    crl = revocation_list(ca)
    strict = Trust((ca.certificate,), crls=(crl,), require_crl=True)
    assert "no revocation list" in _refusal(strict, leaf)


def test_a_list_that_ran_out_is_refused_with_its_date() -> None:
    crl = revocation_list(ROOT, next_update=NOW - timedelta(hours=1))
    sentence = _refusal(Trust((ROOT.certificate,), crls=(crl,)), BOB)
    assert "ran out on 2026-06-01T11:00:00Z; fetch the new one" in sentence


def test_a_new_list_beside_the_old_one_is_enough() -> None:
    old = revocation_list(ROOT, next_update=NOW - timedelta(hours=1))
    trust = Trust((ROOT.certificate,), crls=(old, revocation_list(ROOT)))
    assert trust.verify(BOB.certificate, (), NOW)


def test_missing_lists_are_refused_where_they_are_required() -> None:
    trust = Trust((ROOT.certificate,), crls=(revocation_list(ROOT),), require_crl=True)
    assert trust.verify(BOB.certificate, (), NOW)
    assert "no revocation list of CN=Middle" in _refusal(trust, ALICE)


def _point(**options: bool) -> tuple[x509.ExtensionType, bool]:
    chosen = {
        "only_contains_user_certs": False,
        "only_contains_ca_certs": False,
        "indirect_crl": False,
        "only_contains_attribute_certs": False,
        **options,
    }
    name = [x509.UniformResourceIdentifier("http://crl.example/1.crl")]
    return x509.IssuingDistributionPoint(
        full_name=name, relative_name=None, only_some_reasons=None, **chosen
    ), True


@pytest.mark.parametrize(
    "extensions",
    [
        (_point(only_contains_ca_certs=True),),
        (_point(indirect_crl=True),),
        ((x509.DeltaCRLIndicator(1), True),),
    ],
)
def test_a_list_in_part_proves_no_good_standing(
    extensions: tuple[tuple[x509.ExtensionType, bool], ...],
) -> None:
    crl = revocation_list(ROOT, extensions=extensions)
    trust = Trust((ROOT.certificate,), crls=(crl,), require_crl=True)
    assert "no revocation list" in _refusal(trust, BOB)


def test_a_list_for_users_proves_a_user() -> None:
    crl = revocation_list(ROOT, extensions=(_point(only_contains_user_certs=True),))
    trust = Trust((ROOT.certificate,), crls=(crl,), require_crl=True)
    assert trust.verify(BOB.certificate, (), NOW)


# many paths


def test_two_authorities_of_one_name_are_both_tried() -> None:
    second = authority("Root", label="renewed")
    trust = Trust(anchors=(second.certificate, ROOT.certificate))
    assert trust.verify(BOB.certificate, (), NOW)[-1] == ROOT.certificate
    leaf = issue(second, "of the second")
    assert trust.verify(leaf.certificate, (), NOW)[-1] == second.certificate


def test_a_cross_certificate_leads_to_the_anchor_that_is_trusted() -> None:
    ours = authority("Ours")
    theirs = authority("Theirs")
    cross = authority("Theirs", issuer=ours)
    leaf = issue(theirs, "partner")
    trust = Trust(anchors=(ours.certificate,))
    pile = (theirs.certificate, cross.certificate)
    chain = trust.verify(leaf.certificate, pile, NOW)
    assert chain == (leaf.certificate, cross.certificate, ours.certificate)


def test_an_expired_path_does_not_hide_a_good_one() -> None:
    good = authority("Renewed", issuer=ROOT)
    old = authority("Renewed", issuer=ROOT, not_after=NOW - timedelta(days=1))
    leaf = issue(good, "after renewal")
    chain = TRUST.verify(leaf.certificate, (old.certificate, good.certificate), NOW)
    assert chain[1] == good.certificate


def test_authorities_that_certify_each_other_end_the_search() -> None:
    one, two = authority("One"), authority("Two")
    ring = (authority("One", issuer=two), authority("Two", issuer=one))
    assert "untrusted" in _refusal(TRUST, issue(one, "in the ring"), extra=ring)


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
    assert "was not made" in _refusal(
        TRUST, issue(authority("Root", label="forger"), "x"), extra=()
    )
    assert TRUST.verify(BOB.certificate, (certificate,), NOW)


def test_a_certificate_of_absurd_size_is_refused() -> None:
    padding = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), bytes(20_000))
    large = issue(ROOT, "large", extensions=((padding, False),))
    assert "larger than 16384 bytes" in _refusal(TRUST, large)
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
    assert "no certificate of the issuer CN=Somebody" in _refusal(TRUST, leaf)


def test_a_hostile_name_stays_readable() -> None:
    filler = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60)] * 40
    name = x509.Name([*filler, x509.NameAttribute(NameOID.COMMON_NAME, "a\nEBMS:0000\x07")])
    sentence = _refusal(TRUST, issue(None, "hostile", subject=name))
    assert "CN=a\\0AEBMS:0000\\07,OU=xxx" in sentence
    assert len(sentence) < 1000


# naming certificates


def _issued_by(*attributes: tuple[ObjectIdentifier, str]) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return issue(ROOT, "named", issuer_name=name, serial=1336114976).certificate


ORDINARY = _issued_by(
    (NameOID.COUNTRY_NAME, "NL"),
    (NameOID.STATE_OR_PROVINCE_NAME, "Groningen"),
    (NameOID.LOCALITY_NAME, "Groningen"),
    (NameOID.ORGANIZATION_NAME, "Ordina, B.V."),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "Rules + Matter"),
    (NameOID.COMMON_NAME, "Café"),
    (NameOID.EMAIL_ADDRESS, "ca@example.nl"),
)
EMAIL = "1.2.840.113549.1.9.1=#160d6361406578616d706c652e6e6c"


@pytest.mark.parametrize(
    "spelling",
    [
        # RFC 2253 as Java writes it, and as RFC 4514 allows
        EMAIL + r",CN=Café,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",CN=Caf\C3\A9,OU=Rules \2B Matter,O=Ordina\2C B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL.upper()
        + r",cn=café,ou=rules \+ matter,o=ordina\, b.v.,l=groningen,st=groningen,c=nl",
        # Java's toString, and RFC 1779
        'EMAILADDRESS=ca@example.nl, CN=Café, OU="Rules + Matter", O="Ordina, B.V.", '
        "L=Groningen, ST=Groningen, C=NL",
        'OID.1.2.840.113549.1.9.1=ca@example.nl, CN=Café, OU="Rules + Matter", '
        'O="Ordina, B.V.", L=Groningen, ST=Groningen, C=NL',
        'E=ca@example.nl;CN=Café;OU="Rules + Matter";O="Ordina, B.V.";'
        "L=Groningen;ST=Groningen;C=NL",
        # .NET, in either order
        'E=ca@example.nl, CN=Café, OU="Rules + Matter", O="Ordina, B.V.", L=Groningen, '
        "S=Groningen, C=NL",
        'C=NL, S=Groningen, L=Groningen, O="Ordina, B.V.", OU="Rules + Matter", CN=Café, '
        "E=ca@example.nl",
        # OpenSSL, new and old
        r"C = NL, ST = Groningen, L = Groningen, O = Ordina\, B.V., OU = Rules \+ Matter, "
        r"CN = Caf\C3\A9, emailAddress = ca@example.nl",
        "/C=NL/ST=Groningen/L=Groningen/O=Ordina, B.V./OU=Rules + Matter/CN=Café"
        "/emailAddress=ca@example.nl",
        # types by number, values in hex, white space of a pretty printer
        r"1.2.840.113549.1.9.1=ca@example.nl,2.5.4.3=#0c05436166c3a9,oid.2.5.4.11=Rules \+ Matter,"
        r"OID.2.5.4.10=Ordina\, B.V.,2.5.4.7=Groningen,2.5.4.8=#1309 47726f6e696e67656e,C=NL",
        "\n  EMAILADDRESS=ca@example.nl,\n  CN=Café , OU = Rules \\+  Matter ,\n"
        "  O=Ordina\\, B.V.,L=Groningen,ST=Groningen, C=NL  \n",
    ],
)
def test_an_issuer_is_known_in_the_spellings_of_the_field(spelling: str) -> None:
    assert issuer_matches(ORDINARY, spelling, 1336114976)
    assert not issuer_matches(ORDINARY, spelling, 1336114977)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "Café",
        "CN=Café",
        "CN=Café,C=NL",
        EMAIL + r",CN=Cafe,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",CN=Café,OU=Rules + Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",OU=Café,CN=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        "CN=#zz",
        "CN=#0c",
        "CN=\\",
        'CN="unclosed',
        'CN="a"b',
        "WHAT=x",
        "=",
        "/",
        "CN=\\ff",
        "CN=" + "x" * 10_000,
    ],
)
def test_another_issuer_is_not_known(spelling: str) -> None:
    assert not issuer_matches(ORDINARY, spelling, 1336114976)


def test_the_spelling_of_a_recorded_agreement_is_known() -> None:
    certificate = _issued_by(
        (NameOID.COUNTRY_NAME, "NL"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Groningen"),
        (NameOID.LOCALITY_NAME, "Groningen"),
        (NameOID.ORGANIZATION_NAME, "Ordina"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Rules Matter"),
        (NameOID.COMMON_NAME, "localhost"),
    )
    recorded = "CN=localhost, OU=Rules Matter, O=Ordina, L=Groningen, ST=Groningen, C=NL"
    assert issuer_matches(certificate, recorded, 1336114976)


def test_a_name_of_several_values_in_one_step_is_known_in_either_order() -> None:
    pair = [
        x509.NameAttribute(NameOID.COMMON_NAME, "x"),
        x509.NameAttribute(NameOID.USER_ID, "7"),
    ]
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COUNTRY_NAME, "NL")]),
            x509.RelativeDistinguishedName(pair),
        ]
    )
    certificate = issue(ROOT, "two in one", issuer_name=name, serial=7).certificate
    assert issuer_matches(certificate, "CN=x+UID=7,C=NL", 7)
    assert issuer_matches(certificate, "UID=7 + CN=x, C=NL", 7)
    assert not issuer_matches(certificate, "UID=7,CN=x,C=NL", 7)


def test_a_name_is_written_as_rfc_2253_says() -> None:
    assert rfc2253_name(ORDINARY.issuer) == (
        EMAIL + r",CN=Café,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL"
    )
    spaces = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ' #a"b\\c;d<e>= ')])
    assert rfc2253_name(spaces) == 'CN=\\20#a\\"b\\\\c\\;d\\<e\\>=\\20'
    assert rfc2253_name(x509.Name([])) == ""


_types = st.sampled_from(
    [
        NameOID.COMMON_NAME,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.LOCALITY_NAME,
        NameOID.STREET_ADDRESS,
        NameOID.TITLE,
        NameOID.POSTAL_CODE,
        NameOID.PSEUDONYM,
        NameOID.USER_ID,
        ObjectIdentifier("2.5.4.97"),
        ObjectIdentifier("2.999.1234567.1"),
    ]
)


def _names(values: st.SearchStrategy[str]) -> st.SearchStrategy[x509.Name]:
    def step(found: dict[ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
        return x509.RelativeDistinguishedName(
            [x509.NameAttribute(oid, value) for oid, value in found.items()]
        )

    steps = st.dictionaries(_types, values, min_size=1, max_size=3).map(step)
    return st.lists(steps, min_size=1, max_size=5).map(x509.Name)


@given(
    _names(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
        | st.text(' ,+"\\<>;#=/a\n\t', min_size=1, max_size=8)
    )
)
def test_every_name_that_is_written_is_known_again(name: x509.Name) -> None:
    certificate = issue(ROOT, "any name", issuer_name=name, serial=5).certificate
    written = rfc2253_name(name)
    assert is_xml_text(written)
    assert written == written.strip()
    assert issuer_matches(certificate, written, 5)


@given(_names(st.text(' ,+"\\<>;#=/aé', min_size=1, max_size=8)))
def test_names_as_another_library_writes_them_are_known(name: x509.Name) -> None:
    certificate = issue(ROOT, "any name", issuer_name=name, serial=5).certificate
    assert issuer_matches(certificate, name.rfc4514_string().strip(), 5)


@given(st.one_of(st.text(max_size=60), st.text('CNO=,+;"\\# 012.af/', max_size=40)))
def test_any_text_for_an_issuer_is_answered_with_yes_or_no(text: str) -> None:
    assert issuer_matches(ORDINARY, text, 1336114976) is False


def test_the_subject_key_identifier_is_what_the_extension_says() -> None:
    expected = x509.SubjectKeyIdentifier.from_public_key(BOB.private_key.public_key()).digest
    assert subject_key_identifier(BOB.certificate) == expected
    assert subject_key_identifier(issue(ROOT, "bare", key_identifier=False).certificate) is None


def test_the_thumbprint_is_the_sha1_digest_of_the_certificate() -> None:
    digest = hashes.Hash(hashes.SHA1())
    digest.update(BOB.certificate.public_bytes(Encoding.DER))
    assert thumbprint_sha1(BOB.certificate) == digest.finalize()
