"""Writing eb:Messaging: what is sent is exact, and what cannot be sent faithfully is refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postroad.wire import xml
from postroad.wire.ebms3 import (
    CollaborationInfo,
    Description,
    Error,
    MessageInfo,
    Messaging,
    NonRepudiationInformation,
    PartInfo,
    Party,
    PartyId,
    Property,
    PullRequest,
    Receipt,
    Reference,
    Schema,
    Selection,
    Service,
    SignalMessage,
    Transform,
    UserMessage,
)
from postroad.wire.ebms3_reader import read_messaging
from postroad.wire.ebms3_writer import write_messaging, write_reference, write_timestamp
from postroad.wire.names import DS, EB3, EBBP, EXC_C14N, NEXT_MSH, S11, S12, WSU, XENC
from postroad.wire.soap import SoapVersion
from tests.changing import replace

V11, V12 = SoapVersion.SOAP_11, SoapVersion.SOAP_12
ID = f'xmlns:wsu="{WSU}" wsu:Id="m"'
NOW = datetime(2026, 11, 15, 5, 40, 37, 123000, UTC)
INFO = MessageInfo(NOW, "m1@example.com")
USER = UserMessage(
    INFO,
    Party((PartyId("alice", "t"),), "buyer"),
    Party((PartyId("urn:bob"),), "seller"),
    CollaborationInfo(Service("urn:orders"), "new", "c1"),
)
PULL = SignalMessage(MessageInfo(NOW, "p1@example.com"), pull_request=PullRequest("urn:mpc"))
REFERENCE = Reference("#b", (Transform(EXC_C14N, ("S12",)),), XENC + "sha256", b"\x01\x02\x03")


def write(*units: UserMessage | SignalMessage, version: SoapVersion = V12) -> str:
    return write_messaging(Messaging(units), version)


def test_a_user_message_is_written_exactly_so():
    assert write_messaging(Messaging((USER,), "m"), V12) == (
        f'<eb:Messaging xmlns:S12="{S12}" xmlns:eb="{EB3}" {ID} S12:mustUnderstand="true">'
        "<eb:UserMessage><eb:MessageInfo>"
        "<eb:Timestamp>2026-11-15T05:40:37.123Z</eb:Timestamp>"
        "<eb:MessageId>m1@example.com</eb:MessageId></eb:MessageInfo>"
        '<eb:PartyInfo><eb:From><eb:PartyId type="t">alice</eb:PartyId>'
        "<eb:Role>buyer</eb:Role></eb:From>"
        "<eb:To><eb:PartyId>urn:bob</eb:PartyId><eb:Role>seller</eb:Role></eb:To></eb:PartyInfo>"
        "<eb:CollaborationInfo><eb:Service>urn:orders</eb:Service><eb:Action>new</eb:Action>"
        "<eb:ConversationId>c1</eb:ConversationId></eb:CollaborationInfo>"
        "</eb:UserMessage></eb:Messaging>"
    )


def test_a_receipt_is_written_exactly_so():
    info = NonRepudiationInformation((REFERENCE,))
    signal = SignalMessage(
        MessageInfo(NOW, "r@example.com", "m1@example.com"), receipt=Receipt(info)
    )
    assert (
        f'<eb:Receipt><ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">'
        f'<ebbp:MessagePartNRInformation><ds:Reference xmlns:ds="{DS}" URI="#b"><ds:Transforms>'
        f'<ds:Transform Algorithm="{EXC_C14N}">'
        f'<ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" PrefixList="S12">'
        "</ec:InclusiveNamespaces></ds:Transform></ds:Transforms>"
        f'<ds:DigestMethod Algorithm="{XENC}sha256"></ds:DigestMethod>'
        "<ds:DigestValue>AQID</ds:DigestValue></ds:Reference></ebbp:MessagePartNRInformation>"
        "</ebbp:NonRepudiationInformation></eb:Receipt>"
    ) in write(signal)


def test_an_error_is_written_with_its_attributes_in_canonical_order():
    error = Error("EBMS:0004", "failure", "Content", "ebMS", "Other", "m@x", Description("d", "en"))
    assert (
        '<eb:Error category="Content" errorCode="EBMS:0004" origin="ebMS" '
        'refToMessageInError="m@x" severity="failure" shortDescription="Other">'
        '<eb:Description xml:lang="en">d</eb:Description></eb:Error>'
    ) in write(SignalMessage(INFO, errors=(error,)))


@pytest.mark.parametrize(
    ("version", "start"),
    [
        (V11, f'xmlns:S11="{S11}" xmlns:eb="{EB3}" {ID} S11:actor="{NEXT_MSH}" S11:must'),
        (V12, f'xmlns:S12="{S12}" xmlns:eb="{EB3}" {ID} S12:mustUnderstand="true" S12:role="'),
    ],
)
def test_the_role_is_written_in_canonical_order(version, start):
    written = write_messaging(Messaging((USER,), "m", NEXT_MSH), version)
    assert written.startswith(f"<eb:Messaging {start}")
    assert xml.canonical(xml.parse(written.encode())) == written.encode()


def test_a_block_without_soap_attributes_does_not_declare_soap():
    written = write_messaging(Messaging((USER,), must_understand=False), V12)
    assert written.startswith(f'<eb:Messaging xmlns:eb="{EB3}"><eb:UserMessage>')


def test_the_primary_unit_is_inserted_first():
    first = replace(USER, message_info=MessageInfo(NOW, "z@example.com"))
    messaging = Messaging((first, USER, PULL))
    root = xml.parse(write_messaging(messaging, V12, keep_order=True).encode())
    assert xml.text(root[0][0][1]) == "z@example.com"
    read = read_messaging(root, V12).messaging
    assert read is not None
    assert read.primary == first


def test_signals_come_first_unless_the_order_is_to_be_kept():
    messaging = Messaging((USER, PULL))
    root = xml.parse(write_messaging(messaging, V12).encode())
    assert [xml.local(unit) for unit in root] == ["SignalMessage", "UserMessage"]
    root = xml.parse(write_messaging(messaging, V12, keep_order=True).encode())
    assert [xml.local(unit) for unit in root] == ["UserMessage", "SignalMessage"]


@pytest.mark.req("P2-3.2.1-08")
@pytest.mark.parametrize(
    ("time", "written"),
    [
        (NOW, "2026-11-15T05:40:37.123Z"),
        (NOW.replace(microsecond=123456), "2026-11-15T05:40:37.123456Z"),
        (NOW.replace(microsecond=0), "2026-11-15T05:40:37.000Z"),
        (NOW.astimezone(timezone(timedelta(hours=5, minutes=30))), "2026-11-15T05:40:37.123Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_written_in_utc(time, written):
    assert write_timestamp(time) == written


@pytest.mark.parametrize(
    "time",
    [
        NOW.replace(tzinfo=None),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
    ],
)
def test_a_time_that_has_no_form_in_utc_is_refused(time):
    with pytest.raises(ValueError, match="the time"):
        write_timestamp(time)


def _with(**changes: object) -> UserMessage:
    return replace(USER, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (_with(message_info=MessageInfo(NOW, "")), "eb:MessageId is empty"),
        (_with(message_info=MessageInfo(NOW, "<a@b>")), "angle brackets"),
        (_with(message_info=MessageInfo(NOW, "a b@c")), "white space"),
        (_with(message_info=MessageInfo(NOW, "a@b", "")), "eb:RefToMessageId is empty"),
        (_with(from_party=Party((), "r")), "eb:From needs"),
        (_with(to_party=Party((PartyId(""),), "r")), "eb:PartyId is empty"),
        (_with(to_party=Party((PartyId("a", ""),), "r")), "@type is empty"),
        (_with(to_party=Party((PartyId("a"),), "")), "eb:Role is empty"),
        (_with(to_party=Party((PartyId(" a"),), "r")), "white space around"),
        (_with(to_party=Party((PartyId("a\x00"),), "r")), "XML forbids"),
        (_with(to_party=Party((PartyId("a\ud800"),), "r")), "XML forbids"),
        (_with(to_party=Party((PartyId("a\uffff"),), "r")), "XML forbids"),
        (_with(collaboration_info=CollaborationInfo(Service(""), "a", "c")), "eb:Service is"),
        (_with(collaboration_info=CollaborationInfo(Service("s"), "", "c")), "eb:Action is"),
        (_with(collaboration_info=CollaborationInfo(Service("s"), "a  b", "c")), "collapse"),
        (_with(collaboration_info=CollaborationInfo(Service("s"), "a", "b\n")), "collapse"),
        (_with(properties=(Property("", "v"),)), "@name is empty"),
        (_with(part_infos=(PartInfo(""),)), "@href is empty"),
        (_with(part_infos=(PartInfo("cid:a\tb"),)), "@href"),
        (_with(part_infos=(PartInfo(None, schemas=(Schema(""),)),)), "@location is empty"),
        (_with(mpc=""), "@mpc is empty"),
    ],
)
def test_a_value_that_would_not_arrive_is_refused(message, says):
    with pytest.raises(ValueError, match=says):
        write(message)


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        (SignalMessage(INFO), "either a pull request"),
        (replace(PULL, errors=(Error("EBMS:0004", "failure"),)), "either a pull request"),
        (SignalMessage(INFO, pull_request=PullRequest("")), "@mpc is empty"),
        (SignalMessage(INFO, pull_request=PullRequest(None, Selection())), "at least one item"),
        (
            SignalMessage(INFO, pull_request=PullRequest(None, Selection(to_party=Party((), "")))),
            "eb:To in a selection",
        ),
        (SignalMessage(INFO, receipt=Receipt()), "either non-repudiation"),
        (
            SignalMessage(INFO, receipt=Receipt(NonRepudiationInformation((REFERENCE,)), USER)),
            "either non-repudiation",
        ),
        (SignalMessage(INFO, receipt=Receipt(NonRepudiationInformation(()))), "at least one ref"),
        (
            SignalMessage(INFO, receipt=Receipt(NonRepudiationInformation((REFERENCE,), ("p",)))),
            "AS4 forbids",
        ),
        (SignalMessage(INFO, errors=(Error("", "failure"),)), "@errorCode is empty"),
        (SignalMessage(INFO, errors=(Error("EBMS:0004", ""),)), "@severity is empty"),
    ],
)
def test_a_signal_that_makes_no_sense_is_refused(signal, says):
    with pytest.raises(ValueError, match=says):
        write(signal)


def test_a_header_without_units_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        write()


@pytest.mark.parametrize("id", ["", "1", "a b", 'x" y="'])
def test_an_id_must_be_a_name(id):
    with pytest.raises(ValueError, match="XML id"):
        write_messaging(Messaging((USER,), id), V12)


def test_a_digest_must_not_be_empty():
    with pytest.raises(ValueError, match="DigestValue"):
        write_reference(REFERENCE._replace(digest_value=b""))


def test_text_for_people_is_mended_rather_than_refused():
    error = Error(
        "EBMS:0004",
        "failure",
        description=Description(" nul \x00\n", "en"),
        error_detail="line 1\n  line 2 \x0b\ud800 ",
    )
    written = write(SignalMessage(INFO, errors=(error,)))
    assert "<eb:ErrorDetail>line 1 line 2 \ufffd\ufffd</eb:ErrorDetail>" in written
    assert '<eb:Description xml:lang="en">nul \ufffd</eb:Description>' in written


def test_markup_in_values_stays_text():
    nasty = '"/><x>&]]>'
    message = _with(
        from_party=Party((PartyId(nasty, nasty),), nasty),
        properties=(Property(nasty, nasty, nasty),),
    )
    written = write(message)
    read = read_messaging(xml.parse(written.encode()), V12)
    assert read.messaging == Messaging((message,))
    assert xml.canonical(xml.parse(written.encode())) == written.encode()


def test_what_is_accepted_on_input_can_be_copied_into_a_receipt():
    sloppy = _with(
        collaboration_info=CollaborationInfo(Service("urn:s"), "a", ""),
        properties=(Property("n", ""),),
        message_info=MessageInfo(NOW, "no-at-sign"),
    )
    info = MessageInfo(NOW, "r@example.com", "no-at-sign")
    written = write(SignalMessage(info, receipt=Receipt(user_message=sloppy)))
    read = read_messaging(xml.parse(written.encode()), V12)
    assert read.messaging is not None
    assert read.messaging.signals[0].receipt == Receipt(user_message=sloppy)
    assert read.failures == ()
