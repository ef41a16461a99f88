"""Name constraints, extended key usage and revocation, with OpenSSL as the second judge."""

import itertools
import shutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from postroad.security.key_purposes import NAMES, purpose_oid
from postroad.security.keys import KeyPair
from postroad.security.revocation import Revocation, read_list
from postroad.security.trust import Trust
from postroad.wire.errors import EbmsError
from tests.pki import (
    NOW,
    authority,
    distinguished_name,
    issue,
    pem_certificates,
    revocation_list,
)
from tests.unit.trusting import ROOT, TRUST, refusal

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def openssl(
    folder: Path,
    pair: KeyPair,
    anchor: KeyPair,
    *options: str,
    lists: tuple[x509.CertificateRevocationList, ...] = (),
) -> bool:
    """Whether `openssl verify` accepts a certificate at the time of the tests."""
    files = {
        "leaf.pem": pem_certificates(pair.certificate),
        "between.pem": pem_certificates(*pair.chain),
        "anchor.pem": pem_certificates(anchor.certificate),
        "lists.pem": b"".join(one.public_bytes(Encoding.PEM) for one in lists),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    command = ["openssl", "verify", "-attime", str(int(NOW.timestamp())), "-CAfile", "anchor.pem"]
    command += ["-untrusted", "between.pem", *options]
    command += ["-crl_check_all", "-CRLfile", "lists.pem"] if lists else []
    done = subprocess.run([*command, "leaf.pem"], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


def ours(
    pair: KeyPair, anchor: KeyPair, revocation: Revocation | None = None, trust: Trust | None = None
) -> bool:
    trust = trust or Trust((anchor.certificate,))
    known = revocation or Revocation()
    try:
        trust.verify(pair.certificate, pair.chain, NOW, revocation=known)
    except EbmsError:
        return False
    return True


# name constraints


def name(**attributes: str) -> x509.Name:
    oids = {
        "C": NameOID.COUNTRY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "CN": NameOID.COMMON_NAME,
        "E": NameOID.EMAIL_ADDRESS,
    }
    return x509.Name([x509.NameAttribute(oids[key], text) for key, text in attributes.items()])


DNS, MAIL, URI = x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier
IP, DIRECTORY = x509.IPAddress, x509.DirectoryName


class Constrained(NamedTuple):
    """A constraint, with names that are within it and names that are not."""

    subtree: x509.GeneralName
    within: tuple[x509.GeneralName, ...]
    without: tuple[x509.GeneralName, ...]


CONSTRAINTS = (
    Constrained(
        DNS("example.org"),
        (DNS("example.org"), DNS("A.Example.ORG"), DNS("a.b.example.org"), MAIL("a@example.com")),
        (DNS("example.com"), DNS("notexample.org"), DNS("org")),
    ),
    Constrained(
        MAIL("example.org"),
        (MAIL("a@example.org"), MAIL("b@EXAMPLE.org"), DNS("example.com")),
        (MAIL("a@b.example.org"), MAIL("a@example.com")),
    ),
    Constrained(MAIL(".example.org"), (MAIL("a@b.example.org"),), (MAIL("a@example.org"),)),
    Constrained(MAIL("a@example.org"), (MAIL("a@example.org"),), (MAIL("b@example.org"),)),
    Constrained(
        URI("example.org"),
        (URI("https://example.org/x"), URI("http://example.org:8080")),
        (URI("https://a.example.org/"), URI("urn:example.org"), URI("https://10.1.2.3/")),
    ),
    Constrained(
        URI(".example.org"), (URI("https://a.example.org/x"),), (URI("https://example.org/"),)
    ),
    Constrained(
        IP(ip_network("10.1.0.0/16")),
        (IP(ip_address("10.1.2.3")),),
        (IP(ip_address("10.2.2.3")), IP(ip_address("::1"))),
    ),
    Constrained(
        IP(ip_network("2001:db8::/32")),
        (IP(ip_address("2001:db8::1")),),
        (IP(ip_address("2001:db9::1")),),
    ),
    Constrained(
        DIRECTORY(name(C="NL", O="Postroad Tests")),
        (DNS("example.org"), DIRECTORY(name(C="NL", O="postroad  TESTS", CN="x"))),
        (DIRECTORY(name(C="NL")), DIRECTORY(name(C="DE", O="Postroad Tests"))),
    ),
)
CASES = [
    (number, held, allowed, given)
    for number, held in enumerate(CONSTRAINTS)
    for allowed, names in ((True, held.within), (False, held.without))
    for given in names
]


@needs_openssl
@pytest.mark.parametrize("place", ["anchor", "intermediate"])
def test_name_constraints_are_kept_as_openssl_keeps_them(place: str, tmp_path: Path) -> None:
    for number, held, allowed, given in CASES:
        bound = (x509.NameConstraints([held.subtree], None), True)
        top = authority(f"Bound {number}", extensions=(bound,)) if place == "anchor" else ROOT
        above = (
            top
            if place == "anchor"
            else authority(f"Between {number}", issuer=ROOT, extensions=(bound,))
        )
        leaf = issue(
            above, "constrained", extensions=((x509.SubjectAlternativeName([given]), False),)
        )
        assert ours(leaf, top) == allowed == openssl(tmp_path, leaf, top), (held.subtree, given)


@needs_openssl
def test_excluded_names_are_refused_as_openssl_refuses_them(tmp_path: Path) -> None:
    for number, held, allowed, given in CASES:
        if isinstance(held.subtree, DIRECTORY) and isinstance(given, DNS):
            continue
        other = not isinstance(given, type(held.subtree))
        if given == URI("https://10.1.2.3/"):
            # OpenSSL takes the address for a host name that is not excluded. [RFC 5280, 4.2.1.10]
            continue
        # What cannot be compared is refused: a URI without a host is in no domain, and in each.
        unclear = given == URI("urn:example.org")
        if isinstance(held.subtree, DIRECTORY):
            subject = name(C="FR", CN="elsewhere")
        else:
            subject = distinguished_name("excluded")
        ca = authority(
            f"Excluding {number}",
            extensions=((x509.NameConstraints(None, [held.subtree]), True),),
        )
        names = (x509.SubjectAlternativeName([given]), False)
        leaf = issue(ca, "excluded", subject=subject, extensions=(names,))
        expected = other or not (allowed or unclear)
        assert ours(leaf, ca) == expected == openssl(tmp_path, leaf, ca), (held.subtree, given)


def constrained(name: str, *subtrees: x509.GeneralName) -> KeyPair:
    return authority(name, extensions=((x509.NameConstraints(list(subtrees), None), True),))


@needs_openssl
@pytest.mark.parametrize(
    ("subtree", "subject", "held"),
    [
        (DIRECTORY(name(C="NL")), name(C="nl", CN="x"), True),
        (DIRECTORY(name(C="NL")), name(C="BE", CN="x"), False),
        (MAIL("example.org"), name(C="NL", E="a@example.org"), True),
        (MAIL("example.org"), name(C="NL", E="a@example.com"), False),
        (MAIL("example.org"), name(C="NL", E="no address"), False),
        (DNS("example.org"), name(CN="a.example.org"), True),
        (DNS("example.org"), name(CN="a.example.com"), False),
        (DNS("example.org"), name(CN="alice"), True),
    ],
)
def test_names_in_the_subject_are_constrained_too(
    subtree: x509.GeneralName, subject: x509.Name, held: bool, tmp_path: Path
) -> None:
    ca = constrained(f"Subjects {subtree.value}", subtree)
    leaf = issue(ca, "x", subject=subject)
    assert ours(leaf, ca) == held == openssl(tmp_path, leaf, ca)


@pytest.mark.parametrize(
    ("common_name", "other", "held"),
    [
        ("a.example.org", DNS("b.example.org"), True),
        ("victim.example.com", DNS("b.example.org"), False),
        ("a@example.org", MAIL("b@example.org"), True),
        ("victim@example.com", MAIL("b@example.org"), False),
    ],
)
def test_an_alternative_name_does_not_free_the_common_name(
    common_name: str, other: x509.GeneralName, held: bool
) -> None:
    """OpenSSL has it otherwise, but here a party is known by its common name as well."""
    ca = constrained("Common Names", DNS("example.org"), MAIL("example.org"))
    names = x509.SubjectAlternativeName([other])
    assert ours(issue(ca, common_name, extensions=((names, False),)), ca) == held


def test_a_constraint_that_is_not_critical_is_kept_and_told() -> None:
    bound = (x509.NameConstraints([DNS("example.org")], None), False)
    ca = authority("Not Critical", issuer=ROOT, extensions=(bound,))
    leaf = issue(
        ca, "x", extensions=((x509.SubjectAlternativeName([DNS("evil.example\n")]), False),)
    )
    assert (
        "its name DNS:evil.example? is not permitted by the name constraints of CN=Not Critical"
        in refusal(TRUST, leaf)
    )


def test_constraints_bind_authorities_below_and_not_those_issued_to_themselves() -> None:
    top = constrained("Top", DIRECTORY(name(C="NL", O="Postroad Tests")))
    rolled = authority("Top", label="rolled over", issuer=top)
    inside = authority("Inside", issuer=rolled)
    assert ours(issue(inside, "fine"), top)
    stray = issue(
        top,
        "stray",
        subject=name(C="FR", CN="Stray"),
        usage=("key_cert_sign",),
        is_ca=True,
    )
    assert "the CN=Stray,C=FR's name" in refusal(
        Trust((top.certificate,)), issue(stray, "below the stray")
    )


def test_names_of_a_kind_that_is_not_understood_are_refused_where_they_are_constrained() -> None:
    oid = x509.ObjectIdentifier("1.2.3.4")
    ca = constrained("Other", x509.OtherName(oid, b"\x0c\x01a"))
    assert ours(issue(ca, "without"), ca)
    names = x509.SubjectAlternativeName([x509.OtherName(oid, b"\x0c\x01a")])
    assert not ours(issue(ca, "with", extensions=((names, False),)), ca)


def test_a_pile_of_constraints_is_refused() -> None:
    ca = constrained("Pile", *(DNS(f"{number}.example") for number in range(500)))
    names = x509.SubjectAlternativeName([DNS(f"a.{number}.example") for number in range(300)])
    leaf = issue(ca, "many", extensions=((names, False),))
    assert "too many to check" in refusal(Trust((ca.certificate,)), leaf)


# extended key usage


def for_purposes(*names: str) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    if not names:
        return ()
    oids = [x509.ObjectIdentifier(purpose_oid(one)) for one in names]
    return ((x509.ExtendedKeyUsage(oids), False),)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("clientAuth",),
        ("serverAuth", "clientAuth"),
        ("emailProtection", "timeStamping"),
        ("documentSigning",),
        ("msDocumentSigning",),
        ("anyExtendedKeyUsage",),
    ],
)
def test_certificates_for_these_purposes_may_sign(names: tuple[str, ...]) -> None:
    leaf = issue(ROOT, f"for {names}", extensions=for_purposes(*names))
    assert TRUST.verify(leaf.certificate, (), NOW).notes == ()


@pytest.mark.parametrize(
    "name", ["serverAuth", "OCSPSigning", "timeStamping", "codeSigning", "1.2.3.4"]
)
def test_a_certificate_for_another_purpose_may_not_sign(name: str) -> None:
    leaf = issue(ROOT, f"only {name}", extensions=for_purposes(name))
    sentence = refusal(TRUST, leaf)
    assert f"its extended key usage ({name}) is for another purpose than signing" in sentence
    assert "signature.purposes" in sentence
    allowed = Trust((ROOT.certificate,), purposes=frozenset((purpose_oid(name),)))
    assert allowed.verify(leaf.certificate, (), NOW)


def test_a_certificate_that_is_trusted_itself_may_be_for_any_purpose_with_a_note() -> None:
    leaf = issue(ROOT, "web server", extensions=for_purposes("serverAuth"))
    alone = issue(None, "alone", is_ca=None, extensions=for_purposes("serverAuth"))
    for one in (leaf, alone):
        for trust in (Trust(pinned=(one.certificate,)), Trust(anchors=(one.certificate,))):
            (note,) = trust.verify(one.certificate, (), NOW).notes
            assert "(serverAuth) is for another purpose" in note


@needs_openssl
def test_purposes_of_authorities_bind_those_below_as_openssl_has_it(tmp_path: Path) -> None:
    kinds: tuple[tuple[str, ...], ...] = (
        (),
        ("clientAuth",),
        ("emailProtection",),
        ("serverAuth",),
        ("clientAuth", "emailProtection"),
    )
    usage = ("digital_signature",)
    for top, between, below in itertools.product(kinds[::3], kinds, kinds):
        root = authority(f"Top {top}", extensions=for_purposes(*top))
        ca = authority(f"CA {between}", issuer=root, extensions=for_purposes(*between))
        leaf = issue(ca, f"leaf {below}", usage=usage, extensions=for_purposes(*below))
        theirs = any(
            openssl(tmp_path, leaf, root, "-purpose", one) for one in ("smimesign", "sslclient")
        )
        assert ours(leaf, root) == theirs, (top, between, below)


def test_purposes_are_known_by_name_and_by_number() -> None:
    assert purpose_oid("serverAuth") == ExtendedKeyUsageOID.SERVER_AUTH.dotted_string
    assert purpose_oid("1.2.3.4") == "1.2.3.4"
    assert set(map(purpose_oid, NAMES)) == set(NAMES.values())
    with pytest.raises(ValueError, match=r"is no purpose\. Write an OID, or one of"):
        purpose_oid("webserver")


# revocation


@needs_openssl
def test_revocation_is_judged_as_openssl_judges_it(tmp_path: Path) -> None:
    middle = authority("Revoking", issuer=ROOT)
    good, bad = issue(middle, "good"), issue(middle, "bad")
    top, below = revocation_list(ROOT), revocation_list(middle, [bad.certificate])
    forged = revocation_list(authority("Revoking", label="forger"))
    stale = revocation_list(middle, next_update=NOW.replace(hour=1))
    future = revocation_list(middle, this_update=NOW.replace(hour=23))
    above = revocation_list(ROOT, [middle.certificate])
    for lists in (
        (top, below),
        (top,),
        (top, forged),
        (top, stale),
        (top, future),
        (above, below),
        (top, stale, below),
    ):
        known = Revocation(tuple(map(read_list, lists)), hard=True)
        for leaf in (good, bad):
            theirs = openssl(tmp_path, leaf, ROOT, lists=lists)
            assert ours(leaf, ROOT, known) == theirs, (lists.index(lists[-1]), leaf)
