"""A root, those whom it vouches for, and the sentence with which somebody is refused."""

import pytest

from postroad.security.keys import KeyPair
from postroad.security.trust import Trust
from postroad.wire.errors import EbmsError
from postroad.wire.xml import is_xml_text
from tests.pki import NOW, authority, issue

ROOT = authority("Root")
MIDDLE = authority("Middle", issuer=ROOT)
ALICE = issue(MIDDLE, "alice")
BOB = issue(ROOT, "bob")
TRUST = Trust(anchors=(ROOT.certificate,))


def refusal(
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
