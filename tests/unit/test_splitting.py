"""A large message is cut into fragments that are messages of their own (Part 2, 4.3.1, 4.4)."""

import pytest

from postroad.agreement.pmode import Leg
from postroad.agreement.reply_patterns import error_pattern, receipt_pattern
from postroad.agreement.splitting import SplittingTerms, splitting_terms
from postroad.msh.splitting import (
    Unsplittable,
    Whole,
    fragment,
    fragment_count,
    group_id,
    mime_head,
    ready,
)
from postroad.wire import xml
from postroad.wire.content import BytesContent, read_all
from postroad.wire.ebms3 import (
    Error,
    MessageInfo,
    Messaging,
    Property,
    PullRequest,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.errors import Severity
from postroad.wire.fragments import (
    COMPRESSION_ALGORITHMS,
    MAX_COUNT,
    MessageFragment,
    MessageHeader,
    find_message_fragment,
    read_message_fragment,
)
from postroad.wire.limits import MIB
from postroad.wire.mime import parse_content_type
from postroad.wire.multihop import RoutingInput, find_routing_input, routing_user_message
from postroad.wire.names import I_CLOUD, NEXT_MSH
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.wsa import Addressing, EndpointReference, RelatesTo, read_addressing
from tests.changing import replace
from tests.unit.splits import MADE, MESSAGE, Cut, captured, cut, source

BOTH = list(SoapVersion)


def envelope(made: Cut, number: int) -> Envelope:
    form = made.form(made.fragment(number))
    return read_envelope(xml.parse(captured(form).envelope))


def header(made: Cut, number: int) -> MessageFragment:
    block = find_message_fragment(envelope(made, number))
    assert block is not None
    said, problems = read_message_fragment(block)
    assert said is not None
    assert problems == []
    return said


def messaging(made: Cut, number: int) -> Messaging:
    whole = envelope(made, number)
    element = find_messaging(whole)
    assert element is not None
    reading = read_messaging(element, whole.version)
    assert [p for p in reading.problems if p.severity is Severity.FAILURE] == []
    assert reading.messaging is not None
    return reading.messaging


def user_message(made: Cut, number: int) -> UserMessage:
    (message,) = messaging(made, number).user_messages
    return message


@pytest.mark.req("P2-4.3.1-02", "P2-4.3.1-01")
@pytest.mark.parametrize("size", [1, 7, 300, 1_000_000])
def test_the_body_of_the_source_is_cut_into_contiguous_parts(size: int) -> None:
    given = source(b"photo" * 20)
    pieces = cut(given, size).fragments()
    assert b"".join(read_all(piece.data, MIB) for piece in pieces) == given.bytes
    assert all(piece.data.size == size for piece in pieces[:-1])
    assert 0 < pieces[-1].data.size <= size


@pytest.mark.req("P2-4.3.1-02")
def test_the_cut_knows_nothing_of_the_parts_of_the_source() -> None:
    """The boundary of the source is just text in a fragment, wherever it falls."""
    pieces = [read_all(piece.data, MIB) for piece in cut(size=50).fragments()]
    assert pieces[0].startswith(b"--source-boundary\r\n")
    assert sum(b"--source-boundary" in piece for piece in pieces) <= 3


@pytest.mark.req("P2-4.2.2-04", "P2-4.2.2-03", "P2-4.2.2-05")
def test_the_first_fragment_tells_what_a_group_says_once() -> None:
    made = cut(size=300)
    first, *others = [header(made, number) for number in range(1, made.count + 1)]
    assert first.fragment_count == made.count > 2
    assert first.message_size == made.data.size
    assert first.message_header is not None
    assert first.action == "leasing"
    for number, other in enumerate(others, 2):
        assert other == MessageFragment(other.href, "group-1", number, id="_fragment")


@pytest.mark.req("P2-4.2.2-03")
def test_a_stream_tells_count_and_sizes_with_its_last_fragment() -> None:
    made = cut(size=300, streamed=True, algorithm="deflate")
    early = [
        fragment(made.splitting, number, f"f{number}@x", made.data, None)
        for number in range(1, ready(made.data.size, 300) + 1)
    ]
    assert [piece.message_fragment.fragment_count for piece in early] == [None] * len(early)
    assert early[0].message_fragment.message_header is not None
    assert early[0].message_fragment.compression_algorithm is None
    assert len(early) == made.count - 1
    last = made.fragment(made.count).message_fragment
    assert last.fragment_count == made.count
    assert last.message_size == source().body.size
    assert last.compression_algorithm == "deflate"
    assert last.compressed_message_size == made.data.size


def test_the_first_fragment_of_a_stream_tells_the_size_where_that_is_known() -> None:
    made = cut(size=300, streamed=True, algorithm="gzip")
    splitting = replace(made.splitting, message_size=made.whole.message_size)
    first = fragment(splitting, 1, "one@x", made.data, None).message_fragment
    assert (first.message_size, first.fragment_count) == (made.whole.message_size, None)
    last = fragment(splitting, made.count, "last@x", made.data, made.whole).message_fragment
    assert (last.message_size, last.fragment_count) == (None, made.count)
    alone = replace(splitting, fragment_size=MIB)
    only = fragment(alone, 1, "only@x", made.data, made.whole).message_fragment
    assert (only.message_size, only.fragment_count) == (made.whole.message_size, 1)


def test_a_fragment_of_a_stream_is_the_same_when_the_end_is_known() -> None:
    made = cut(size=100, streamed=True)
    early = fragment(made.splitting, 2, "two@x", made.data, None)
    assert fragment(made.splitting, 2, "two@x", made.data, made.whole).blocks == early.blocks


@pytest.mark.parametrize(
    ("written", "left"), [(0, 0), (1, 0), (10, 0), (11, 1), (20, 1), (21, 2), (35, 3)]
)
def test_the_last_full_fragment_of_a_stream_waits_for_what_follows(written: int, left: int) -> None:
    assert ready(written, 10) == left


def test_the_first_fragment_waits_until_it_knows_the_count() -> None:
    made = cut()
    with pytest.raises(ValueError, match="must be known"):
        fragment(made.splitting, 1, "one@x", made.data, None)


@pytest.mark.req("P2-4.3.1-12")
def test_what_fits_in_one_fragment_is_the_first_of_one() -> None:
    for streamed in (False, True):
        said = header(cut(size=MIB, streamed=streamed), 1)
        assert (said.fragment_num, said.fragment_count) == (1, 1)
        assert said.message_header is not None


def test_nothing_and_too_much_cannot_be_split() -> None:
    with pytest.raises(Unsplittable, match="nothing to split"):
        fragment_count(0, 10)
    with pytest.raises(Unsplittable, match="more than can be"):
        fragment_count(MAX_COUNT + 1, 1)
    with pytest.raises(Unsplittable, match="at least one byte"):
        cut(size=0)


def test_a_fragment_is_made_again_byte_for_byte() -> None:
    made, again = cut(size=100), cut(size=100)
    for number in (1, 2, made.count):
        first = b"".join(made.form(made.fragment(number)).pieces())
        assert b"".join(again.form(again.fragment(number)).pieces()) == first


@pytest.mark.req("P2-4.2.3-01", "P2-4.3.1-01")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("mtom", [False, True])
def test_the_mime_header_of_the_source_is_kept_in_the_first(
    version: SoapVersion, mtom: bool
) -> None:
    said = header(cut(source(version=version, mtom=mtom)), 1)
    assert said.message_header == MessageHeader(
        "source-boundary",
        "application/xop+xml" if mtom else version.media_type,
        "source@buyer.example",
        version.media_type if mtom else None,
    )
    assert said.message_header.content_type == "Multipart/Related"


def test_description_and_action_are_kept_too() -> None:
    kind = 'Multipart/Related; boundary=b; type="application/soap+xml"; start="<a@b>"; action=do'
    head = mime_head({"content-type": kind, "content-description": "a car"})
    assert head.header == MessageHeader("b", "application/soap+xml", "a@b", None, "a car")
    assert head.action == "do"
    quoted = mime_head({"content-type": kind.replace("; action=do", ""), "soapaction": '"go"'})
    assert quoted.action == "go"
    assert (
        mime_head({"content-type": kind.replace("=do", '=""'), "soapaction": '""'}).action is None
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("", "media type"),
        ("text/xml", "text/xml is not split"),
        ("multipart/related; type=text/xml; start=a", "does not give"),
        ("multipart/related; boundary=b; start=a", "does not give"),
        ("multipart/related; boundary=b; type=text/xml", "does not give"),
        ("multipart/related; boundary=b; type=text/html; start=a", "does not give"),
    ],
)
def test_what_is_no_package_is_not_split(kind: str, said: str) -> None:
    with pytest.raises(Unsplittable, match=said):
        mime_head({"content-type": kind})


@pytest.mark.req("P2-4.3.1-03", "P2-4.3.1-04", "P2-4.3.1-05")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("mtom", [False, True])
def test_fragments_are_packages_of_the_kind_of_their_source(
    version: SoapVersion, mtom: bool
) -> None:
    made = cut(source(version=version, mtom=mtom))
    capture = captured(made.form(made.fragment(2)))
    expected = "application/xop+xml" if mtom else version.media_type
    assert capture.problems == ()
    assert capture.root_type is not None
    assert capture.root_type.media_type == expected
    assert capture.root_type.get("type") == (version.media_type if mtom else None)
    assert capture.content_type is not None
    assert capture.content_type.get("type") == expected
    assert capture.content_type.get("start-info") == (version.media_type if mtom else None)
    assert read_envelope(xml.parse(capture.envelope)).version is version


@pytest.mark.req(
    "P2-4.3.1-07", "P2-4.3.1-08", "P2-4.3.1-09", "P2-4.3.1-10", "P2-4.3.1-13", "P2-4.2.2-01"
)
def test_a_fragment_has_an_empty_body_and_its_data_as_the_one_other_part() -> None:
    made = cut()
    capture = captured(made.form(made.fragment(2)))
    (part,) = capture.attachments
    assert part.index == 1
    assert part.content_type.media_type == "application/octet-stream"
    assert header(made, 2).href == f"cid:{part.content_id}"
    assert len(envelope(made, 2).body) == 0
    assert envelope(made, 2).body.text is None


@pytest.mark.req("P2-4.3.1-06")
def test_boundary_and_root_id_of_each_fragment_are_its_own() -> None:
    given = source()
    made = cut(given)
    kinds = [parse_content_type(made.form(piece).content_type) for piece in made.fragments()]
    kinds.append(parse_content_type(given.form.content_type))
    for name in ("boundary", "start"):
        assert len({kind.get(name) for kind in kinds}) == len(kinds) > 2


@pytest.mark.req("P2-4.3.1-11", "P2-4.4.2-02")
@pytest.mark.parametrize("version", BOTH)
def test_the_header_must_be_understood_by_the_ultimate_receiver(version: SoapVersion) -> None:
    made = cut(source(version=version))
    for number in range(1, made.count + 1):
        block = find_message_fragment(envelope(made, number))
        assert block is not None
        assert block.must_understand
        assert block.role is None


@pytest.mark.req("P2-4.4.2-06", "P2-4.4.2-08", "P2-4.4.2-09", "P2-4.4.2-11", "P2-4.5-01")
@pytest.mark.parametrize("version", BOTH)
def test_the_user_message_is_copied_but_for_id_payloads_and_other_properties(
    version: SoapVersion,
) -> None:
    made = cut(source(version=version))
    assert user_message(made, 2) == replace(
        MESSAGE,
        message_info=MessageInfo(MADE, "fragment-2@buyer.example", "before@seller.example"),
        properties=(Property("region", "north"), Property("lane", "7", "string")),
        part_infos=(),
    )


@pytest.mark.req("P2-4.4.2-08")
def test_each_fragment_has_a_message_id_of_its_own() -> None:
    made = cut()
    ids = {user_message(made, n).message_info.message_id for n in range(1, made.count + 1)}
    assert len(ids) == made.count
    assert MESSAGE.message_info.message_id not in ids


@pytest.mark.req("P2-4.4.2-07", "P2-4.4.2-10")
def test_of_a_bundle_the_first_user_message_is_copied_and_no_signal() -> None:
    second = replace(MESSAGE, message_info=MessageInfo(MADE, "second@buyer.example"))
    error = SignalMessage(
        MessageInfo(MADE, "signal@buyer.example"), errors=(Error("EBMS:0004", "failure"),)
    )
    made = cut(source(units=(MESSAGE, second, error)))
    for number in (1, 2):
        assert len(messaging(made, number).units) == 1
        assert user_message(made, number).message_info.ref_to_message_id == "before@seller.example"


@pytest.mark.req("P2-4.4.2-12")
def test_a_message_with_a_pull_request_is_never_split() -> None:
    pull = SignalMessage(MessageInfo(MADE, "pull@buyer.example"), pull_request=PullRequest())
    for units in ((pull,), (MESSAGE, pull)):
        with pytest.raises(Unsplittable, match="PullRequest is never split"):
            cut(source(units=units))


def test_signals_alone_are_not_split() -> None:
    error = SignalMessage(
        MessageInfo(MADE, "signal@buyer.example"), errors=(Error("EBMS:0004", "failure"),)
    )
    with pytest.raises(Unsplittable, match="with a user message"):
        cut(source(units=(error,)))


@pytest.mark.req("P2-4.4.1-01", "P2-4.4.1-02", "P2-4.4.1-03", "P2-4.3.1-14", "P2-7.4-02")
@pytest.mark.parametrize("version", BOTH)
def test_addressing_is_copied_with_message_ids_of_their_own(version: SoapVersion) -> None:
    addressing = Addressing(
        to=I_CLOUD,
        action="urn:example:action",
        message_id="urn:example:source",
        relates_to=(RelatesTo("urn:example:before"),),
        reply_to=EndpointReference("https://buyer.example/msh"),
    )
    made = cut(source(version=version), addressing=addressing)
    ids = set()
    for number in (1, 2):
        read, problems = read_addressing(envelope(made, number))
        assert problems == []
        assert read is not None
        assert read.to_role == NEXT_MSH
        assert replace(read, message_id=None, to_role=None) == replace(addressing, message_id=None)
        ids.add(read.message_id)
    assert len(ids) == 2
    assert "urn:example:source" not in ids
    assert None not in ids


def test_without_an_addressing_message_id_fragments_have_none() -> None:
    made = cut(addressing=Addressing(to=I_CLOUD, action="urn:example:action"))
    read, _ = read_addressing(envelope(made, 1))
    assert read is not None
    assert read.message_id is None


@pytest.mark.req("P2-4.4.1-01")
def test_routing_input_is_copied() -> None:
    routing = RoutingInput(routing_user_message(MESSAGE))
    made = cut(routing=routing)
    assert find_routing_input(envelope(made, 2)) is not None


def test_every_header_of_a_fragment_has_an_id_to_be_signed_by() -> None:
    addressing = Addressing(to=I_CLOUD, action="urn:example:action", message_id="urn:example:1")
    made = cut(addressing=addressing, routing=RoutingInput(routing_user_message(MESSAGE)))
    blocks = made.fragment(1).blocks
    assert len({block.id for block in blocks}) == len(blocks) == 6
    assert all(f'd="{block.id}"' in block.xml for block in blocks)


@pytest.mark.req("P2-4.2.4-01")
@pytest.mark.parametrize("algorithm", COMPRESSION_ALGORITHMS)
def test_the_whole_is_compressed_before_it_is_split(algorithm: str) -> None:
    given = source(b"photo" * 100_000)
    made = cut(given, size=500, algorithm=algorithm)
    first = header(made, 1)
    assert first.compression_algorithm == algorithm
    assert first.compressed_message_size == made.data.size
    assert first.message_size == given.body.size
    if algorithm != "identity":
        assert made.data.size < given.body.size / 10


@pytest.mark.req("P2-4.2.2-02", "P2-4.4.2-13")
def test_a_group_is_named_after_its_message_where_nobody_can_guess_that() -> None:
    message_id = "0c2d9ee6-55a1-4b3e-9f0e-2f6d3f1f6b0a@buyer.example"
    assert group_id(message_id, bytes, made_here=True) == message_id


@pytest.mark.req("P2-4.2.2-02", "P2-4.7-02")
def test_a_group_of_a_message_whose_id_was_chosen_has_a_random_one() -> None:
    asked: list[int] = []

    def entropy(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    named = group_id("order-17@buyer.example", entropy, made_here=False)
    assert asked == [16]
    assert named == "000102030405060708090a0b0c0d0e0f"


def test_the_group_id_is_the_one_that_is_given() -> None:
    assert header(cut(group_id="unpredictable"), 2).group_id == "unpredictable"


def test_the_pmode_says_whether_and_how_messages_are_split() -> None:
    assert splitting_terms(Leg()) is None
    assert splitting_terms(Leg.model_validate({"splitting": False})) is None
    usual = splitting_terms(Leg.model_validate({"splitting": True}))
    assert usual == SplittingTerms()
    assert usual is not None
    assert usual.cut == 16 * MIB
    agreed = {
        "fragment_size": "1 MiB",
        "routing_properties": ["region"],
        "compression": {"algorithm": "deflate"},
        "join_interval": "PT1H",
    }
    terms = splitting_terms(Leg.model_validate({"splitting": agreed}))
    assert terms is not None
    assert terms.cut == terms.fragment_size == MIB
    assert terms.routing_properties == {"region"}
    assert terms.algorithm == "deflate"
    assert terms.join_interval.total_seconds() == 3600
    zipped = splitting_terms(Leg.model_validate({"splitting": {"compression": True}}))
    assert zipped is not None
    assert zipped.algorithm == "gzip"


def test_whole_sizes_say_where_the_last_fragment_ends() -> None:
    made = cut(size=100)
    whole = Whole(250, 250)
    last = fragment(made.splitting, 3, "three@x", BytesContent(bytes(250)), whole)
    assert last.data.size == 50


@pytest.mark.req("P2-4.4.2-17", "P2-4.4.2-19")
def test_what_is_said_about_messages_that_are_split_calls_back_where_nothing_else_is_agreed() -> (
    None
):
    splits, whole = (Leg.model_validate({"splitting": one}) for one in (True, False))
    assert (receipt_pattern(splits), error_pattern(splits)) == ("callback", "callback")
    assert (receipt_pattern(whole), error_pattern(whole)) == ("response", "response")
