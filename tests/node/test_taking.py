"""What is found out once for each leg: the same that every message would ask for."""

import gzip
from typing import Any

import pytest
import yaml

from postroad.agreement.matching import Match
from postroad.agreement.places import is_pulled, is_response
from postroad.agreement.reliable import wsr_of, wsrm_of
from postroad.msh.answers import receipt_is_response, wants_receipt
from postroad.msh.capture import Capture
from postroad.msh.expectation import NOTHING, Material
from postroad.msh.securing import answer_signing
from postroad.node.settings.taking import taking_of
from postroad.node.walks.receiving import _may_grow
from postroad.wire.content import BytesContent
from postroad.wire.mime import ContentType, Headers, Part
from tests.unit.bundles import CA, SELLER, loaded, pmode_text

USUAL = yaml.safe_load(pmode_text("invoices", "Invoice"))
TWO_WAY = {"mep": "two-way", "legs": [USUAL["legs"][0]] * 2}


def match(number: int = 1, leg: dict[str, Any] | None = None, **changes: Any) -> Match:
    given = {**USUAL, **changes}
    given["legs"] = [{**one, **(leg or {})} for one in given["legs"]]
    pmode = loaded(yaml.safe_dump(given))
    return Match(pmode, pmode.legs[number - 1], number)


@pytest.mark.parametrize(
    "special",
    [
        match(mep_binding="pull"),
        match(mep_binding="sync", **TWO_WAY),
        match(2, mep_binding="sync", **TWO_WAY),
        match(2, mep_binding="push-and-pull", **TWO_WAY),
        match(
            leg={
                "reliability": {
                    "protocol": "wsrm",
                    "at_least_once": {"contract": True, "reply_pattern": "Response"},
                }
            }
        ),
    ],
    ids=["pulled", "waits for its reply", "is a response", "pulled reply", "in a sequence"],
)
def test_what_comes_another_way_than_most_is_not_usual(special: Match) -> None:
    pmode, index = special.pmode, special.number - 1
    asked = (
        is_pulled(pmode, index)
        or is_response(pmode, index)
        or is_response(pmode, special.number)
        or wsrm_of(special.leg)
        or wsr_of(special.leg)
    )
    assert asked
    assert not taking_of(special, True, NOTHING, None).usual


def test_who_shows_a_certificate_to_connect_is_not_usual() -> None:
    assert taking_of(match(), True, NOTHING, None).usual
    for named in (Material(tls_clients=(CA.certificate,)), Material(tls_anchors=(CA.certificate,))):
        assert not taking_of(match(), True, named, None).usual


@pytest.mark.parametrize(
    "receipt", [{"reply_pattern": "response"}, {"reply_pattern": "callback"}, False]
)
@pytest.mark.parametrize("sign", [True, False])
def test_answers_are_made_as_the_leg_says(receipt: Any, sign: bool) -> None:
    security = {"x509": {"sign": sign}, "send_receipt": receipt}
    found = match(leg={"security": security})
    taking = taking_of(found, True, NOTHING, SELLER)
    assert taking.wants_receipt == wants_receipt(found.leg)
    assert taking.responds == receipt_is_response(found.leg)
    assert taking.signing == answer_signing(found.leg, SELLER)
    assert (taking.signing is not None) == sign


def part(content: bytes, media_type: str = "application/octet-stream") -> Part:
    kind = ContentType(media_type)
    return Part(1, Headers(), kind, "a@x", "binary", BytesContent(content), b"")


@pytest.mark.parametrize(
    ("envelope", "attachment", "grows"),
    [
        (b"<a>application/gzip</a>", part(bytes(20_000)), True),
        (b"<a>application/g&#x7a;ip</a>", part(bytes(20_000)), True),
        ("<a>application/gzip</a>".encode("utf-16"), part(bytes(20_000)), True),
        (b"<a/>", part(bytes(20_000), "application/gzip"), True),
        (b"<a/>", part(bytes(20_000)), False),
        (b"<a>application/gzip</a>", part(gzip.compress(bytes(100))), False),
    ],
    ids=["named", "hidden", "encoded", "by its type", "nothing compressed", "small"],
)
def test_what_may_grow_is_not_opened_on_the_loop(
    envelope: bytes, attachment: Part, grows: bool
) -> None:
    assert _may_grow(Capture(None, None, None, envelope, (attachment,), True, ())) is grows
