"""Several units in one message: one header, one signature, the primary's rules (Part 2, 3.2)."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from postroad.msh.outbound import Package
from postroad.msh.sizing import added_size, rest_size
from postroad.wire import xml
from postroad.wire.ebms3 import MessageInfo, PullRequest, SignalMessage
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.limits import Limits
from postroad.wire.names import EB3, WSU
from postroad.wire.soap import SoapVersion
from tests.changing import replace
from tests.pki import NOW
from tests.unit.bundles import SECURITY, World, pmode_text, wire

WORLD = World()
ENCRYPTED = SECURITY.replace("{sign: true}", "{sign: true, encryption: {encrypt: true}}")
SEALED = World(
    pmode_text("invoices", "Invoice", security=ENCRYPTED), pmode_text("catalogue", "Update")
)
PLAIN = World(
    pmode_text("invoices", "Invoice", security=" {x509: {sign: false}}"),
    pmode_text("catalogue", "Update"),
)


def tree(made: Package) -> etree._Element:
    return xml.parse(made.envelope)


def values(made: Package, name: str) -> list[str]:
    return [element.text or "" for element in tree(made).iter(f"{{{EB3}}}{name}")]


def bundle(world: World = WORLD) -> Package:
    return world.package(
        world.unit("m1", b"one", pmode="invoices", seconds=3),
        world.unit("m2", b"two", b"three", seconds=1),
        world.unit("m3", seconds=2),
    )


@pytest.mark.req("P2-3.2.1-01", "P2-3.2.1-06")
def test_one_header_holds_all_units_the_primary_first() -> None:
    made = bundle()
    [messaging] = tree(made).iter(f"{{{EB3}}}Messaging")
    assert [xml.local(unit) for unit in messaging] == ["UserMessage"] * 3
    assert values(made, "MessageId") == ["m1", "m2", "m3"]
    assert made.user_message.message_info.message_id == "m1"
    assert [one.message_info.message_id for one in made.secondaries] == ["m2", "m3"]


@pytest.mark.req("P2-3.2.1-02", "P2-3.2.1-03", "P2-3.2.1-04")
def test_every_payload_is_an_attachment_and_the_body_is_empty() -> None:
    made = bundle()
    [body] = tree(made).iter(f"{{{SoapVersion.SOAP_12.namespace}}}Body")
    assert len(body) == 0
    hrefs = [part.get("href") for part in tree(made).iter(f"{{{EB3}}}PartInfo")]
    assert hrefs == ["cid:0-m1", "cid:0-m2", "cid:1-m2"]
    assert [part.payload.content_id for part in made.parts] == ["0-m1", "0-m2", "1-m2"]


@pytest.mark.req("P2-3.2.1-07", "P2-3.2.1-08")
def test_each_unit_keeps_the_time_at_which_it_was_made() -> None:
    times = [parse_timestamp(text) for text in values(bundle(), "Timestamp")]
    assert [time for time, _ in times] == [NOW + timedelta(seconds=one) for one in (3, 1, 2)]


@pytest.mark.req("P2-3.2.1-09")
@pytest.mark.parametrize("seconds", [0, 10])
def test_the_message_is_secured_after_all_its_units_were_made(seconds: float) -> None:
    units = [WORLD.unit(f"m{number}", b"x", seconds=number) for number in (1, 5, 3)]
    created = _created(WORLD.package(*units, seconds=seconds))
    assert created > NOW + timedelta(seconds=max(5, seconds))


def _created(made: Package) -> datetime:
    [created] = tree(made).iter(f"{{{WSU}}}Created")
    return parse_timestamp(created.text or "")[0]


@pytest.mark.req("P2-3.2.2-02", "P2-3.2.2-11", "P2-3.2.2-01")
def test_one_signature_covers_headers_and_payloads_of_all_units() -> None:
    made = bundle()
    found = WORLD.look(made)
    assert found.holds, found.problems
    assert found.verification is not None
    assert {"cid:0-m1", "cid:0-m2", "cid:1-m2", "#_messaging"} <= {
        one.uri for one in found.verification.signed_references
    }
    assert made.envelope.count(b"<ds:Signature ") == 1


@pytest.mark.req("P2-3.2.2-03", "P2-3.2.2-01")
def test_all_payloads_are_encrypted_when_the_primary_is() -> None:
    made = bundle(SEALED)
    assert made.seal is not None
    assert len(made.seal.ivs) == 3
    sent = b"".join(wire(made).pieces())
    assert b"three" not in sent
    found = SEALED.look(made)
    assert found.holds, found.problems
    contents = [b"".join(one.content.chunks()) for one in found.attachments.values()]
    assert contents == [b"one", b"two", b"three"]


@pytest.mark.req("P2-3.2.2-10", "P2-3.2.2-01")
def test_the_envelope_is_that_of_the_primary() -> None:
    older = pmode_text("invoices", "Invoice").replace("1.2", "1.1")
    made = bundle(World(older))
    assert made.version is SoapVersion.SOAP_11
    assert World(older).look(made).holds


def test_a_signal_that_rides_along_stands_before_the_units_and_does_not_lead() -> None:
    pull = SignalMessage(MessageInfo(NOW, "pull"), PullRequest())
    made = WORLD.package(WORLD.unit("m1", pmode="invoices"), WORLD.unit("m2"), signals=[pull])
    assert values(made, "MessageId") == ["pull", "m1", "m2"]
    found = WORLD.look(made)
    assert found.messaging is not None
    assert found.messaging.primary == made.user_message
    assert found.pmode == "invoices"


def test_units_with_one_id_cannot_share_a_message() -> None:
    with pytest.raises(ValueError, match="two units of the bundle have the MessageId 'm1'"):
        WORLD.package(WORLD.unit("m1"), WORLD.unit("m1"))


def test_units_with_one_content_id_cannot_share_a_message() -> None:
    units = [WORLD.unit(name, b"x", names=["order"]) for name in ("m1", "m2")]
    with pytest.raises(ValueError, match="the Content-ID 'order'"):
        WORLD.package(*units)


def test_a_message_has_no_more_units_than_the_limit() -> None:
    small = World(limits=Limits(units=2))
    units = [small.unit(f"m{number}") for number in range(3)]
    with pytest.raises(ValueError, match="at most 2 units"):
        small.package(*units)
    assert small.look(small.package(*units[:2])).messaging is not None


@pytest.mark.req("P2-3.3-08")
@settings(max_examples=30)
@given(
    st.sampled_from([WORLD, SEALED, PLAIN]),
    st.lists(st.lists(st.binary(max_size=3000), max_size=3), min_size=1, max_size=6),
    st.sampled_from(["", "ü & more.txt"]),
)
def test_the_size_of_a_bundle_is_known_before_it_is_made(
    world: World, contents: list[list[bytes]], file_name: str
) -> None:
    units = [world.unit(f"m{n}@x.example", *one) for n, one in enumerate(contents)]
    if file_name and units[0].parts:
        part = units[0].parts[0]
        named = replace(part, payload=replace(part.payload, file_name=file_name))
        units[0] = replace(units[0], parts=(named, *units[0].parts[1:]))
    leg = world.matches["invoices"].leg
    first = world.unit("first@x.example", b"payload")
    rest = rest_size(wire(world.package(first)).length, first, leg)
    reckoned = rest + sum(added_size(unit, leg) for unit in (first, *units))
    real = wire(world.package(first, *units)).length
    assert real <= reckoned <= real + 60 + 900 * sum(map(len, contents)) * (world is SEALED) + 200
