"""Hostile messages over the network: told why, written down, nothing delivered, and on it goes."""

import gzip
import zlib
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from lxml import etree

from postroad.store.records import Side, State
from postroad.wire.ebms3 import (
    GZIP,
    AgreementRef,
    CollaborationInfo,
    PartInfo,
    Property,
    Service,
    UserMessage,
)
from postroad.wire.limits import MIB
from postroad.wire.names import EXC_C14N, TEST_ACTION, TEST_SERVICE, XENC
from tests import pki
from tests.attack import wrapping
from tests.attack.forging import attachment_ref, cut, exclusive, refs, resigned, sha256, with_ref
from tests.attack.messages import (
    BODY,
    BOUNDARY,
    NOW,
    ROOT_ID,
    TWO,
    VERSION,
    Package,
    Part,
    buyer,
    ca,
    for_seller,
    http,
    make,
    payload,
    soap,
    write_mime,
)
from tests.attack.network import (
    ANYBODY,
    ORDER,
    PRICES,
    RIVAL,
    Town,
    hear,
    order,
    rival,
    stranger,
    until,
    write,
)
from tests.changing import replace

Attack = Callable[[str], bytes | Package]
"""What is sent, given an id for it."""


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


def test_what_is_attacked_holds(place: Town) -> None:
    name = place.good()
    found = place.message(name)
    assert found is not None
    assert (found.state, found.from_party) == (State.DELIVERED, "urn:example:buyer")


def _envelope(header: str = "", body: str = "") -> bytes:
    return (
        f'<S12:Envelope xmlns:S12="{VERSION.namespace}"><S12:Header>{header}</S12:Header>'
        f"<S12:Body>{body}</S12:Body></S12:Envelope>"
    ).encode()


def _with_doctype(name: str, declaration: str) -> bytes:
    return soap(declaration.encode() + order(name).envelope)


def _laughs() -> str:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    return f'<!DOCTYPE r [<!ENTITY l0 "ha">{entities}]>'


# What is no message, or no XML

UNREADABLE: Final[dict[str, tuple[Attack, str]]] = {
    "no XML": (lambda _: soap(b"certainly not"), "EBMS:0009"),
    "nothing": (lambda _: soap(b""), "EBMS:0009"),
    "bytes": (lambda _: soap(bytes(range(256)) * 16), "EBMS:0009"),
    "half an envelope": (lambda name: soap(order(name).envelope[:900]), "EBMS:0009"),
    "a DTD": (lambda name: _with_doctype(name, "<!DOCTYPE r>"), "EBMS:0009"),
    "entities": (lambda name: _with_doctype(name, _laughs()), "EBMS:0009"),
    "an external entity": (
        lambda name: _with_doctype(
            name, '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
        ),
        "EBMS:0009",
    ),
    "200 levels": (lambda _: soap(_envelope("<a>" * 200 + "</a>" * 200)), "EBMS:0009"),
    "10,000 attributes": (
        lambda _: soap(_envelope("<a " + " ".join(f'a{n}=""' for n in range(10_000)) + "/>")),
        "EBMS:0009",
    ),
    "100,000 elements": (lambda _: soap(_envelope("<a/>" * 100_000)), "EBMS:0009"),
    "an envelope of another kind": (lambda _: soap(b"<order/>"), "EBMS:0009"),
    "SOAP and nothing else": (lambda _: soap(_envelope()), "EBMS:0009"),
    "a SOAP fault": (
        lambda _: soap(
            _envelope(
                "",
                "<S12:Fault><S12:Code><S12:Value>S12:Sender</S12:Value></S12:Code><S12:Reason>"
                '<S12:Text xml:lang="en">no</S12:Text></S12:Reason></S12:Fault>',
            )
        ),
        "EBMS:0009",
    ),
    "another protocol": (
        lambda _: soap(
            _envelope('<t:Token xmlns:t="http://docs.oasis-open.org/ws-sx/ws-trust/200512"/>')
        ),
        "EBMS:0009",
    ),
    "MIME with another boundary": (
        lambda name: order(name).wire().replace(b'boundary="', b'boundary="x', 1),
        "EBMS:0007",
    ),
    "a media type of something else": (
        lambda _: http("application/json", b'{"order": 1}'),
        "EBMS:0007",
    ),
    "a media type that is none": (lambda _: http("?", b"<a/>"), "EBMS:0007"),
}


def _shortened(raw: bytes, less: int) -> bytes:
    """A request with a body that ends too early, and says so itself."""
    head, _, body = raw.partition(b"\r\n\r\n")
    kind = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Type: "))
    return http(kind.decode().partition(" ")[2], body[:-less])


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_by_name(place: Town, name: str) -> None:
    attack, code = UNREADABLE[name]
    answer = place.refuses(attack(place.new_id()), code)
    assert answer.status in (400, 415)
    assert answer.signal.message_info.ref_to_message_id is None
    assert not answer.is_signed


def test_a_header_of_100_megabytes_is_refused_long_before_its_end(place: Town) -> None:
    size = 100 * MIB
    head = (
        f"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Type: {VERSION.media_type}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()
    begin = order(place.new_id()).envelope[:200]
    with place.harmless("EBMS:0009"), place.connect() as connection:
        connection.sendall(head + begin)
        connection.sendall(b" " * (5 * MIB))
        answer = hear(connection)
        assert (answer.status, answer.codes) == (400, ["EBMS:0009"])
        assert answer.headers["connection"] == "close"


# What is wrong with the header, the packaging, the security


def _renamed(name: str, old: str, new: str) -> Package:
    """A message that was changed before it was signed."""
    changed = order(name).replaced(old, new)
    element = etree.fromstring(changed.envelope)
    [messaging] = element.xpath("//*[local-name()='Messaging']")
    octets = exclusive(messaging)
    digest = sha256(octets)
    references = [
        replace(one, digest=digest) if one.uri == "#_messaging" else one
        for one in refs(order(name))
    ]
    return resigned(changed, references)


def _twice(name: str) -> Package:
    """Two eb:Messaging headers."""
    made = order(name)
    start = made.envelope.index(b"<eb:Messaging")
    stop = made.envelope.index(b"</eb:Messaging>") + len(b"</eb:Messaging>")
    block = made.envelope[start:stop]
    return made.replaced(block, block + block.replace(b"_messaging", b"_other"), 1)


def _parts(name: str) -> Package:
    return write(name, (payload("one", b"pay 100 to Alice"), payload("two", b"pay 200 to Bob  ")))


def _swapped(name: str) -> Package:
    one, two = _parts(name).parts
    return _parts(name).with_parts(
        replace(one, content=two.content), replace(two, content=one.content)
    )


def _sealed(name: str, **more: object) -> Package:
    return order(name, encryption=for_seller(), **more)


def _damaged(name: str, change: Callable[[bytes], bytes]) -> Package:
    made = _sealed(name)
    [part] = made.parts
    return made.with_parts(replace(part, content=change(part.content)))


@cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(100)) + packer.flush()


def _expired() -> pki.KeyPair:
    return pki.issue(ca(), "buyer", label="attack buyer ec", not_after=NOW - timedelta(days=1))


def _not_yet() -> pki.KeyPair:
    return pki.issue(ca(), "buyer", label="attack buyer ec", not_before=NOW + timedelta(days=1))


def _to(service: str) -> Callable[[UserMessage], UserMessage]:
    def change(message: UserMessage) -> UserMessage:
        info = CollaborationInfo(Service(service), ORDER, "conversation-1")
        return replace(message, collaboration_info=info)

    return change


def _listed(*parts: PartInfo) -> Callable[[UserMessage], UserMessage]:
    return lambda message: replace(message, part_infos=parts)


REFUSED: Final[dict[str, tuple[Attack, str]]] = {
    "MIME without a boundary": (
        lambda name: order(name).wire().replace(f'; boundary="{BOUNDARY}"'.encode(), b""),
        "EBMS:0007",
    ),
    "MIME without an end": (
        lambda name: _shortened(order(name).wire(), len(BOUNDARY) + 8),
        "EBMS:0007",
    ),
    "two Messaging headers": (_twice, "EBMS:0009"),
    "no PartyId": (
        lambda name: _renamed(name, "<eb:PartyId>urn:example:buyer</eb:PartyId>", ""),
        "EBMS:0009",
    ),
    "no service": (
        lambda name: _renamed(name, "<eb:Service>urn:example:purchasing</eb:Service>", ""),
        "EBMS:0009",
    ),
    "a timestamp that is none": (
        lambda name: _renamed(name, "<eb:Timestamp>2026", "<eb:Timestamp>yesterday"),
        "EBMS:0009",
    ),
    "a timestamp of the year 9999": (
        lambda name: order(name, at=NOW.replace(year=9999)),
        "EBMS:0003",
    ),
    "a timestamp of another century": (
        lambda name: order(name, at=NOW.replace(year=1970)),
        "EBMS:0003",
    ),
    "expired yesterday": (
        lambda name: order(name, at=NOW - timedelta(days=1), lifetime=timedelta(hours=1)),
        "EBMS:0103",
    ),
    "unknown parties": (lambda name: order(name, sender="urn:example:nobody"), "EBMS:0010"),
    "an unknown service": (
        lambda name: order(name, change=_to("urn:example:stealing")),
        "EBMS:0010",
    ),
    "not signed": (lambda name: order(name, signed=False), "EBMS:0103"),
    "its signature cut out": (
        lambda name: cut(order(name), "<ds:Signature ", "</ds:Signature>"),
        "EBMS:0103",
    ),
    "its Security header cut out": (
        lambda name: cut(order(name), "<wsse:Security ", "</wsse:Security>"),
        "EBMS:0103",
    ),
    "signed by an expired certificate": (
        lambda name: order(name, signer=_expired()),
        "EBMS:0101",
    ),
    "signed by a certificate that is not valid yet": (
        lambda name: order(name, signer=_not_yet()),
        "EBMS:0101",
    ),
    "signed by a stranger with the buyer's names": (
        lambda name: order(name, signer=stranger()),
        "EBMS:0101",
    ),
    "signed by another partner": (lambda name: order(name, signer=rival()), "EBMS:0101"),
    "signed by another partner where any of the authority may": (
        lambda name: order(name, signer=rival(), action=ANYBODY),
        "EBMS:0101",
    ),
    "signed by the authority's own key": (lambda name: order(name, signer=ca()), "EBMS:0101"),
    "another partner's message under the buyer's name": (
        lambda name: order(name, sender=RIVAL, signer=rival()).replaced(RIVAL, "urn:example:buyer"),
        "EBMS:0101",
    ),
    "another action than was signed": (
        lambda name: order(name).replaced(">NewOrder<", ">Status<"),
        "EBMS:0101",
    ),
    "a reference to nothing": (
        lambda name: resigned(
            order(name),
            [*refs(order(name)), replace(refs(order(name))[0], uri="#_nothing")],
        ),
        "EBMS:0101",
    ),
    "a reference to two elements": (
        lambda name: order(name).replaced(b"<S12:Body ", b'<S12:Body xml:id="_messaging" ', 1),
        "EBMS:0101",
    ),
    "an unknown transform": (
        lambda name: resigned(
            order(name),
            [
                replace(one, transforms=("http://www.w3.org/TR/1999/REC-xslt-19991116",))
                if one.uri == "#_messaging"
                else one
                for one in refs(order(name))
            ],
        ),
        "EBMS:0101",
    ),
    "a payload that is not signed": (
        lambda name: resigned(order(name), with_ref(order(name), "cid:one@buyer.example", None)),
        "EBMS:0103",
    ),
    "a payload that was changed": (
        lambda name: order(name).with_parts(replace(order(name).parts[0], content=b"one apple")),
        "EBMS:0101",
    ),
    "payloads that were swapped": (_swapped, "EBMS:0101"),
    "a part that is missing": (
        lambda name: _parts(name).with_parts(_parts(name).parts[0]),
        "EBMS:0007",
    ),
    "a part that nobody listed": (
        lambda name: order(name).with_parts(
            *order(name).parts, Part("three@buyer.example", "text/plain", b"surprise")
        ),
        "EBMS:0007",
    ),
    "two parts with one id": (
        lambda name: order(name).with_parts(*order(name).parts * 2),
        "EBMS:0007",
    ),
    "a payload elsewhere": (
        lambda name: write(name, change=_listed(PartInfo("http://127.0.0.1:9/secret"))),
        "EBMS:0011",
    ),
    "a file of ours as payload": (
        lambda name: write(name, change=_listed(PartInfo("file:///etc/hostname"))),
        "EBMS:0011",
    ),
    "ciphertext that was cut": (lambda name: _damaged(name, lambda data: data[:-20]), "EBMS:0102"),
    "ciphertext with another tag": (
        lambda name: _damaged(name, lambda data: data[:-1] + bytes((data[-1] ^ 1,))),
        "EBMS:0102",
    ),
    "encrypted by a stranger, signed by nobody": (
        lambda name: _sealed(name, signed=False),
        "EBMS:0103",
    ),
    "a GZIP bomb": (lambda name: write(name, (payload("one", _bomb(), GZIP),)), "EBMS:0303"),
    "many small GZIP bombs": (
        lambda name: write(
            name,
            [payload(f"p{n}", gzip.compress(bytes(8 * MIB), mtime=0), GZIP) for n in range(12)],
        ),
        "EBMS:0303",
    ),
    "GZIP that is none": (
        lambda name: write(name, (payload("one", b"not compressed", GZIP),)),
        "EBMS:0303",
    ),
    "the media type of another SOAP": (
        lambda name: write_mime(
            [Part(ROOT_ID, "text/xml; charset=UTF-8", order(name).envelope), *order(name).parts]
        ),
        "EBMS:0007",
    ),
    "a header that must be understood": (
        lambda name: order(name).replaced(
            b"</S12:Header>",
            b'<x:Pay xmlns:x="urn:x" S12:mustUnderstand="true">now</x:Pay></S12:Header>',
        ),
        "EBMS:0008",
    ),
    "an id without end": (lambda _: order("x" * 100_000 + "@buyer.example"), "EBMS:0009"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_hold_is_refused_by_name(place: Town, name: str) -> None:
    attack, code = REFUSED[name]
    message_id = place.new_id()
    answer = place.refuses(attack(message_id), code)
    assert answer.status in (200, 400)
    found = place.message(message_id)
    if found is not None:
        assert found.state is State.REJECTED
        assert place.events(message_id)[-1] == "rejected"
        assert answer.signal.message_info.ref_to_message_id == message_id


@pytest.mark.parametrize("name", wrapping.XSW)
def test_no_class_of_signature_wrapping_gets_through(place: Town, name: str) -> None:
    message = order(place.new_id(), lifetime=timedelta(hours=1))
    attack = wrapping.wrap(message, wrapping.named(name))
    place.refuses(attack, "EBMS:0009", "EBMS:0101", "EBMS:0103")


def test_a_sample_of_all_wrappings_gets_nothing_through(place: Town) -> None:
    """All of them are held against the walk in `test_wrapping`; these go the whole way."""
    inbox, name = place.inbox(), place.new_id()
    message = make(TWO, body=BODY, id=name)
    refused = 0
    for index in range(0, wrapping.n_variants(), wrapping.n_variants() // 60):
        answer = place.post(wrapping.wrap(message, wrapping.variant(index)))
        refused += not answer.is_receipt
    assert refused > 50
    # Where the original stands in its place, and what was added means nothing, it is taken.
    assert place.inbox() - inbox <= {name}
    found = place.message(name)
    assert found is not None
    assert found.action == ORDER
    place.good()


# What is remembered of it


def test_what_is_remembered_of_a_refused_message_is_small(place: Town) -> None:
    """Else a stranger with a large header fills the disk many times over."""
    name, large = place.new_id(), 2 * MIB
    message = order(
        name,
        sender="urn:x:" + "x" * large,
        signed=False,
        properties=(Property("note", "y" * (large // 2)),),
    )
    before = place.run(place.seller.store.look(lambda reader: reader.figures())).bytes
    place.refuses(message, "EBMS:0010")
    after = place.run(place.seller.store.look(lambda reader: reader.figures())).bytes
    assert after - before < 1.5 * len(message.wire())
    found = place.message(name)
    assert found is not None
    assert len(found.from_party or "") <= 1000
    assert found.properties == ()


def test_many_refusals_under_one_id_leave_one_envelope(place: Town) -> None:
    """Each of these is larger than what goes into a shared file."""
    good, bad = place.good(), place.new_id()
    before = _files(place)
    large = {"at": NOW - timedelta(days=400), "body_content": f"<a>{'x' * 300_000}</a>"}
    for name in (good, bad) * 4:
        assert place.post(write(name, **large)).codes == ["EBMS:0003"]
    # What is not needed any more goes after the commit.
    until(lambda: len(_files(place) - before) == 1)
    assert place.post(order(bad)).is_receipt, "the good one takes the place of the refused"
    until(lambda: _files(place) == before)


def _files(place: Town) -> set[Path]:
    folder = place.folder / "seller" / "data" / "payloads"
    return {one for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("size", [700_000, 2_000_000])
def test_a_refused_message_leaves_no_spool_file(place: Town, size: int) -> None:
    """However large it was, and without waiting for anybody to collect garbage."""
    incoming = place.folder / "seller" / "data" / "incoming"
    for _ in range(3):
        attack = order(place.new_id(), bytes(size), signed=False)
        assert "EBMS:0103" in place.post(attack).codes
        until(lambda: not [one for one in incoming.rglob("t*-*") if one.is_file()])


# File names are said by nobody who signs


NAMES: Final[dict[str, str | None]] = {
    'attachment; filename="../../etc/passwd"': "../../etc/passwd",
    "attachment; filename*=UTF-8''%E2%82%AC.txt": "€.txt",
    "attachment; filename*1*": None,
    "attachment; filename*=idna''xn--name": "xn--name",
    "attachment; filename*=utf-16''%": "\ufffd",
    "attachment; filename=" + "(" * 8000: None,
    "attachment; " + "a=b;" * 3900: None,
    "attachment; " + "filename*0*=a;" * 1100: None,
    'attachment; filename="\x1b[2J"': None,
}


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_no_file_name_makes_a_good_message_a_bad_one(place: Town, number: int) -> None:
    value, expected = list(NAMES.items())[number]
    name = place.new_id()
    made = order(name)
    [part] = made.parts
    headers = (*part.headers, ("Content-Disposition", value))
    answer = place.post(made.with_parts(replace(part, headers=headers)))
    if "\x1b" in value:
        assert "EBMS:0007" in answer.codes
        return
    assert answer.is_receipt, answer.errors
    found = place.message(name)
    assert found is not None
    assert [one.file_name for one in found.parts] == [expected]


# What an error tells to a stranger


def test_an_error_names_no_p_mode_file_or_person(place: Town) -> None:
    """Who knocks without knowing an agreement does not learn one from the answer."""
    unknown = order(place.new_id(), sender="urn:example:nobody", signed=False)
    answers = [place.refuses(unknown, "EBMS:0010")]
    answers += [place.say(soap(b"<x/>")), place.post(order(place.new_id(), signed=False))]
    for answer in answers:
        said = answer.body.decode()
        for secret in (str(place.folder), "Traceback", "rival", "anybody", ".yaml", ".py", "/msh"):
            assert secret not in said


@pytest.mark.parametrize(
    "attack",
    [
        lambda name: order(name, signed=False),
        lambda name: order(name, signer=stranger()),
        lambda name: order(name, signer=rival()),
        lambda name: order(name).with_parts(replace(order(name).parts[0], content=b"changed")),
        lambda name: cut(order(name), "<ds:Signature ", "</ds:Signature>"),
    ],
    ids=["unsigned", "stranger", "rival", "changed", "cut out"],
)
def test_what_nobody_proved_is_answered_by_an_error_that_proves_nothing(
    place: Town, attack: Callable[[str], Package]
) -> None:
    """A signed error about an id could be shown to the one who really sent under it."""
    answer = place.refuses(attack(place.new_id()), "EBMS:0101", "EBMS:0103")
    assert not answer.is_signed


def test_what_a_partner_signed_and_got_wrong_is_answered_by_a_signed_error(place: Town) -> None:
    message = write(place.new_id(), (payload("one", b"not compressed", GZIP),))
    assert place.refuses(message, "EBMS:0303").is_signed


# What a message says about ways and addresses


def test_a_soap_action_chooses_nothing(place: Town) -> None:
    unsigned = order(place.new_id(), signed=False)
    kind = f'SOAPAction: "{PRICES}"\r\n'
    with place.harmless("EBMS:0103"):
        assert "EBMS:0103" in place.post(unsigned, head=kind).codes
    data = unsigned.wire().replace(
        b'multipart/related; type="application/soap+xml"',
        f'multipart/related; action="{PRICES}"; type="application/soap+xml"'.encode(),
    )
    place.refuses(data, "EBMS:0103")
    name = place.new_id()
    assert place.post(order(name), head='SOAPAction: "urn:evil"\r\n').is_receipt
    found = place.message(name)
    assert found is not None
    assert (found.action, found.pmode) == (ORDER, "order")


def test_the_test_service_delivers_nothing(place: Town) -> None:
    def test(message: UserMessage) -> UserMessage:
        agreed = AgreementRef("urn:example:agreement", None, "order")
        info = CollaborationInfo(Service(TEST_SERVICE), TEST_ACTION, "conversation-1", agreed)
        return replace(message, collaboration_info=info)

    name, inbox = place.new_id(), place.inbox()
    answer = place.post(order(name, change=test))
    assert answer.is_receipt, answer.errors
    assert place.inbox() == inbox
    found = place.message(name)
    assert found is not None
    assert found.state is State.RECEIVED


def test_encryption_is_no_way_around_the_limits(place: Town) -> None:
    """The bomb is known for one only after it was decrypted."""
    message = write(place.new_id(), (payload("one", _bomb(), GZIP),), encryption=for_seller())
    assert XENC.encode() in message.envelope
    place.refuses(message, "EBMS:0303")


def test_the_transforms_of_the_message_are_those_that_were_meant(place: Town) -> None:
    """The forgers of this file write what a good signer writes, and it is taken."""
    name = place.new_id()
    assert all(one.transforms for one in refs(order(name)))
    assert refs(order(name))[0].transforms == (EXC_C14N,)
    assert attachment_ref("cid:one@buyer.example", b"one hundred apples") in refs(order(name))
    assert place.post(resigned(order(name), signer=buyer())).is_receipt
    assert place.message(name, Side.RECEIVING) is not None


def test_parts_may_stand_in_any_order_and_the_root_is_found(place: Town) -> None:
    name = place.new_id()
    made = order(name)
    root = Part(ROOT_ID, f"{VERSION.media_type}; charset=UTF-8", made.envelope)
    assert place.say(write_mime([*made.parts, root])).is_receipt
