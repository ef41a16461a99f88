"""Revocation lists and OCSP answers: what they prove about a certificate, and when."""

from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.security.certificates import read_certificate
from postroad.security.keys import KeyPair
from postroad.security.revocation import (
    Checked,
    Revocation,
    RevocationError,
    load_lists,
    ocsp_request,
    read_answer,
    read_list,
)
from postroad.security.trust import Trust
from postroad.wire.errors import EbmsError
from tests.pki import NOW, YEAR, authority, issue, revocation_list
from tests.unit.trusting import ALICE, BOB, MIDDLE, ROOT, TRUST, refusal

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
POINT = "http://crl.example/1.crl"
WITH_POINT = issue(
    ROOT,
    "with a distribution point",
    extensions=(
        (
            x509.CRLDistributionPoints(
                [x509.DistributionPoint([x509.UniformResourceIdentifier(POINT)], None, None, None)]
            ),
            False,
        ),
    ),
)


def known(*lists: x509.CertificateRevocationList, hard: bool = False) -> Revocation:
    return Revocation(tuple(map(read_list, lists)), hard=hard)


def status(revocation: Revocation, pair: KeyPair = BOB, at: datetime = NOW) -> Checked:
    """What is known of a certificate that the root issued."""
    facts, issuer = read_certificate(pair.certificate), read_certificate(ROOT.certificate)
    return revocation.check(facts, issuer, at, allow_sha1=False)


# lists


def test_a_revoked_certificate_is_refused_with_the_date() -> None:
    revocation = known(revocation_list(ROOT, [BOB.certificate]))
    assert "CN=bob,O=Postroad Tests,C=NL was revoked by its issuer on 2026-05-02" in refusal(
        TRUST, BOB, revocation=revocation
    )
    other = issue(ROOT, "not revoked")
    (checked,) = TRUST.verify(other.certificate, (), NOW, revocation=revocation).revocation
    assert (checked.status, checked.detail) == (
        "good",
        "revocation list of CN=Root,O=Postroad Tests,C=NL, 2026-05-31T12:00:00Z",
    )


def test_a_path_that_was_found_before_is_checked_again_with_new_lists() -> None:
    trust = Trust((ROOT.certificate,))
    assert trust.verify(BOB.certificate, (), NOW).revocation == ()
    revoked = known(revocation_list(ROOT, [BOB.certificate]))
    assert "was revoked" in refusal(trust, BOB, revocation=revoked)
    assert trust.verify(BOB.certificate, (), NOW, revocation=known(revocation_list(ROOT)))


def test_what_was_signed_before_the_revocation_still_holds() -> None:
    revocation = known(revocation_list(ROOT, [BOB.certificate]))
    assert TRUST.verify(BOB.certificate, (), NOW - 31 * DAY, revocation=revocation)


def test_a_revoked_authority_takes_all_below_it_along() -> None:
    revocation = known(revocation_list(ROOT, [MIDDLE.certificate]))
    assert "CN=Middle,O=Postroad Tests,C=NL was revoked" in refusal(
        TRUST, ALICE, revocation=revocation
    )


def test_a_revoked_authority_does_not_hide_its_successor() -> None:
    old = authority("Twice", label="old", issuer=ROOT, not_before=NOW - 4 * YEAR)
    new = authority("Twice", label="old", issuer=ROOT, not_before=NOW - YEAR)
    leaf = issue(new, "below both")
    revocation = known(revocation_list(ROOT, [old.certificate]))
    verdict = TRUST.verify(
        leaf.certificate, (old.certificate, new.certificate), NOW, revocation=revocation
    )
    assert verdict.chain[1] == new.certificate


def test_a_revoked_pin_is_refused_where_its_issuer_is_known() -> None:
    trust = Trust((ROOT.certificate,), pinned=(BOB.certificate,))
    revoked = known(revocation_list(ROOT, [BOB.certificate]), hard=True)
    assert "was revoked" in refusal(trust, BOB, revocation=revoked)
    # A pin is the operator's word: that nothing is known of it does not matter.
    assert trust.verify(BOB.certificate, (), NOW, revocation=Revocation(hard=True))


def test_a_list_that_the_issuer_did_not_sign_does_not_count() -> None:
    forger = authority("Root", label="forger")
    revocation = known(revocation_list(forger, [BOB.certificate]))
    assert status(revocation).status == "unknown"
    assert "no revocation list of CN=Root" in status(revocation).detail


def test_a_list_of_an_authority_that_may_not_sign_lists_does_not_count() -> None:
    ca = authority("No Lists", usage=("key_cert_sign",))
    leaf = issue(ca, "leaf")
    trust = Trust((ca.certificate,))
    verdict = trust.verify(leaf.certificate, (), NOW, revocation=known(revocation_list(ca)))
    assert [one.status for one in verdict.revocation] == ["unknown"]


def test_an_unknown_status_is_accepted_unless_it_must_be_known() -> None:
    stale = revocation_list(ROOT, next_update=NOW - HOUR)
    verdict = TRUST.verify(BOB.certificate, (), NOW, revocation=known(stale))
    (checked,) = verdict.revocation
    assert (checked.status, checked.stale) == ("unknown", True)
    assert "ran out on 2026-06-01T11:00:00Z" in checked.detail
    with pytest.raises(EbmsError) as caught:
        TRUST.verify(BOB.certificate, (), NOW, revocation=known(stale, hard=True))
    assert caught.value.code == "EBMS:0202", "the sender may try again"
    assert "was revoked is not known: the revocation list of CN=Root" in caught.value.detail


def test_every_certificate_below_the_anchor_must_be_known_where_one_must() -> None:
    revocation = known(revocation_list(ROOT), hard=True)
    assert TRUST.verify(BOB.certificate, (), NOW, revocation=revocation)
    with pytest.raises(EbmsError, match="no revocation list of CN=Middle"):
        TRUST.verify(ALICE.certificate, ALICE.chain, NOW, revocation=revocation)
    both = known(revocation_list(ROOT), revocation_list(MIDDLE), hard=True)
    verdict = TRUST.verify(ALICE.certificate, ALICE.chain, NOW, revocation=both)
    assert [one.status for one in verdict.revocation] == ["good", "good"]


def test_a_revocation_in_a_list_that_ran_out_counts() -> None:
    revocation = known(revocation_list(ROOT, [BOB.certificate], next_update=NOW - HOUR))
    assert status(revocation).status == "revoked"


def test_a_new_list_beside_the_old_one_is_enough() -> None:
    old = revocation_list(ROOT, next_update=NOW - HOUR)
    assert status(known(old, revocation_list(ROOT))).status == "good"


def test_a_list_of_the_future_proves_nothing_yet() -> None:
    crl = revocation_list(ROOT, this_update=NOW + DAY)
    assert status(known(crl)).status == "unknown"
    assert "begins on 2026-06-02" in status(known(crl)).detail
    later = Revocation((read_list(crl),), historical=True)
    assert status(later).status == "good", "a past moment is judged by a list that came later"


def test_a_list_made_after_a_certificate_expired_proves_nothing() -> None:
    short = issue(ROOT, "short", not_after=NOW - DAY)
    crl = revocation_list(ROOT, this_update=NOW - HOUR)
    found = status(Revocation((read_list(crl),), historical=True), short, NOW - 2 * DAY)
    assert found.status == "unknown"
    assert "was made after CN=short" in found.detail


def _point(**options: bool) -> tuple[x509.ExtensionType, bool]:
    chosen = {
        "only_contains_user_certs": False,
        "only_contains_ca_certs": False,
        "indirect_crl": False,
        "only_contains_attribute_certs": False,
        **options,
    }
    return x509.IssuingDistributionPoint(
        full_name=[x509.UniformResourceIdentifier(POINT)],
        relative_name=None,
        only_some_reasons=None,
        **chosen,
    ), True


def test_a_list_of_a_distribution_point_covers_only_the_certificates_that_name_it() -> None:
    users = known(revocation_list(ROOT, extensions=(_point(only_contains_user_certs=True),)))
    assert status(users, WITH_POINT).status == "good"
    assert status(users, BOB).status == "unknown"
    authorities = known(revocation_list(ROOT, extensions=(_point(only_contains_ca_certs=True),)))
    assert status(authorities, WITH_POINT).status == "unknown"


@pytest.mark.parametrize(
    ("extensions", "reason"),
    [
        ((_point(indirect_crl=True),), "indirect list"),
        (((x509.DeltaCRLIndicator(1), True),), "delta list"),
        ((_point(only_contains_attribute_certs=True),), "attribute certificates only"),
        (
            ((x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), b"\5\0"), True),),
            "critical extension 1.2.3",
        ),
    ],
)
def test_a_list_that_is_not_complete_by_itself_is_refused(
    extensions: tuple[tuple[x509.ExtensionType, bool], ...], reason: str
) -> None:
    crl = revocation_list(ROOT, extensions=extensions)
    with pytest.raises(RevocationError, match=reason):
        load_lists(crl.public_bytes(Encoding.DER))


def test_lists_are_read_from_pem_and_der() -> None:
    first, second = revocation_list(ROOT), revocation_list(MIDDLE)
    both = first.public_bytes(Encoding.PEM) + b"text between\n" + second.public_bytes(Encoding.PEM)
    assert [one.crl for one in load_lists(both)] == [first, second]
    assert [one.crl for one in load_lists(first.public_bytes(Encoding.DER))] == [first]
    for garbage in (b"", b"garbage", BOB.certificate.public_bytes(Encoding.PEM)):
        with pytest.raises(RevocationError, match="no revocation list"):
            load_lists(garbage)


def test_a_megabyte_of_beginnings_without_an_end_is_read_once() -> None:
    """A regular expression took minutes for it, in which the node answered nobody."""
    with pytest.raises(RevocationError, match="no revocation list"):
        load_lists(b"-----BEGIN X509 CRL-----" * 50_000)


def test_a_list_of_100000_certificates_is_looked_up_in_time() -> None:
    builder = x509.CertificateRevocationListBuilder(
        ROOT.certificate.subject,
        NOW - DAY,
        NOW + DAY,
        [],
        [x509.RevokedCertificateBuilder(10**30 + n, NOW - DAY).build() for n in range(100_000)],
    )
    crl = builder.sign(ROOT.private_key, hashes.SHA256())  # type: ignore[arg-type]
    (item,) = load_lists(crl.public_bytes(Encoding.DER))
    revocation = Revocation((item,))
    assert status(revocation).status == "good"
    last = issue(ROOT, "last of many", serial=10**30 + 99_999)
    assert status(revocation, last).status == "revoked"


# OCSP

RESPONDER = issue(
    ROOT,
    "responder",
    extensions=((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]), False),),
)


def answer(
    pair: KeyPair = BOB,
    *,
    issuer: KeyPair = ROOT,
    signer: KeyPair = ROOT,
    revoked: datetime | None = None,
    this_update: datetime = NOW - HOUR,
    next_update: datetime | None = NOW + HOUR,
    nonce: bytes | None = None,
    certificates: tuple[KeyPair, ...] | None = None,
) -> bytes:
    builder = ocsp.OCSPResponseBuilder().add_response(
        pair.certificate,
        issuer.certificate,
        hashes.SHA1(),
        ocsp.OCSPCertStatus.REVOKED if revoked else ocsp.OCSPCertStatus.GOOD,
        this_update,
        next_update,
        revoked,
        None,
    )
    builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, signer.certificate)
    shown = ((signer,) if signer is not ROOT else ()) if certificates is None else certificates
    if shown:
        builder = builder.certificates([one.certificate for one in shown])
    if nonce is not None:
        builder = builder.add_extension(x509.OCSPNonce(nonce), critical=False)
    made = builder.sign(signer.private_key, hashes.SHA256())  # type: ignore[arg-type]
    return made.public_bytes(Encoding.DER)


FACTS, ISSUER = read_certificate(BOB.certificate), read_certificate(ROOT.certificate)


def by_answer(data: bytes, at: datetime = NOW) -> Checked:
    said = read_answer(data, FACTS, ISSUER, NOW)
    known_answers = {(ISSUER.public_key, FACTS.serial): said}
    return status(Revocation(answers=known_answers), at=at)


@pytest.mark.parametrize("signer", [ROOT, RESPONDER], ids=["issuer", "responder"])
def test_an_answer_of_the_issuer_or_its_responder_counts(signer: KeyPair) -> None:
    assert by_answer(answer(signer=signer)).status == "good"
    revoked = answer(signer=signer, revoked=NOW - DAY)
    assert by_answer(revoked).status == "revoked"
    assert by_answer(revoked, at=NOW - 2 * DAY).status == "unknown", "it is of a later time"


STRANGER = authority("Stranger")
NAMESAKE = authority("Root", label="another key")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (answer(signer=STRANGER), "has no certificate of CN=Root"),
        (answer(signer=STRANGER, certificates=()), "signed neither by CN=Root"),
        (answer(signer=issue(ROOT, "no responder")), "may not sign OCSP answers"),
        (
            answer(
                signer=issue(
                    ROOT,
                    "old responder",
                    not_after=NOW - DAY,
                    extensions=(
                        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]), False),
                    ),
                )
            ),
            "is not valid now",
        ),
        (answer(issue(ROOT, "another")), "about another certificate"),
        (
            answer(issue(NAMESAKE, "x", serial=BOB.certificate.serial_number), issuer=NAMESAKE),
            "about another certificate",
        ),
        (answer(nonce=b"n" * 16), "nonce differs"),
        (answer(this_update=NOW + DAY, next_update=NOW + 2 * DAY), "of the future"),
        (
            ocsp.OCSPResponseBuilder.build_unsuccessful(
                ocsp.OCSPResponseStatus.TRY_LATER
            ).public_bytes(Encoding.DER),
            "'try later'",
        ),
        (answer()[:-40] + bytes(40), "signed neither by"),
        (b"", "no OCSP response"),
        (b"<html>", "no OCSP response"),
    ],
)
def test_an_answer_that_does_not_count_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RevocationError, match=reason):
        read_answer(data, FACTS, ISSUER, NOW, nonce=b"m" * 16)


def test_an_answer_counts_until_the_next_one() -> None:
    assert by_answer(answer(), at=NOW + HOUR).status == "good"
    assert by_answer(answer(), at=NOW + 2 * HOUR).status == "unknown"
    without = answer(next_update=None)
    assert by_answer(without, at=NOW + HOUR).status == "good"
    assert by_answer(without, at=NOW + 2 * DAY).status == "unknown"


def test_a_request_names_the_certificate_and_has_a_nonce() -> None:
    request = ocsp.load_der_ocsp_request(ocsp_request(FACTS, ISSUER, b"n" * 16))
    assert request.serial_number == BOB.certificate.serial_number
    assert request.extensions.get_extension_for_class(x509.OCSPNonce).value.nonce == b"n" * 16


def test_what_could_not_be_fetched_is_told() -> None:
    found = status(Revocation(failures={POINT: "no answer within 3 s"}), WITH_POINT)
    assert f"there is no revocation list of CN=Root,O=Postroad Tests,C=NL ({POINT}: no" in (
        found.detail
    )
