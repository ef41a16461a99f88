"""Reading user messages: each deviation from the rules has its code, its place and a sentence."""

from datetime import UTC, datetime

import pytest

from postroad.wire import xml
from postroad.wire.ebms3 import (
    AgreementRef,
    Description,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    Schema,
    Service,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import EPOCH, is_uri, read_user_message
from postroad.wire.names import DEFAULT_MPC, EB3, NEXT_MSH, S11, TEST_ACTION, TEST_SERVICE, WSU
from tests.unit.ebms3_blocks import IN, INFO, USER, F, W, cut, read, sole, user


def test_a_user_message_is_read_whole_and_without_complaint():
    reading = read(USER)
    assert reading.problems == ()
    message = user(reading)
    assert message.message_info.timestamp == datetime(2026, 11, 15, 5, 40, 37, 123000, UTC)
    assert message.message_info.message_id == "m1@example.com"
    assert message.from_party == Party((PartyId("alice", "t"),), "buyer")
    assert message.to_party == Party((PartyId("urn:bob"),), "seller")
    assert message.collaboration_info.agreement_ref == AgreementRef("urn:agreement", None, "p")
    assert message.collaboration_info.service == Service("orders", "s")
    assert message.collaboration_info.action == "new"
    assert message.collaboration_info.conversation_id == "c1"
    assert message.properties == (Property("n", "v", "y"),)
    assert message.effective_mpc == DEFAULT_MPC
    assert message.part_infos == (
        PartInfo(
            "cid:p1@example.com",
            (Property("MimeType", "text/xml"),),
            (Schema("urn:xsd", "1"),),
            Description("an order", "en"),
        ),
    )


def test_the_block_itself_has_id_role_and_must_understand():
    reading = read(USER, f'e:mustUnderstand="1" e:role="{NEXT_MSH}" xmlns:w="{WSU}" w:Id="w1"')
    assert reading.messaging == Messaging((user(reading),), "w1", NEXT_MSH, True)
    assert reading.problems == ()


@pytest.mark.parametrize("attributes", ["", 'e:mustUnderstand="0"', 'o:mustUnderstand="1" '])
def test_a_block_that_need_not_be_understood_is_warned_of(attributes):
    reading = read(USER, f'xmlns:o="{S11}" {attributes}')
    assert reading.messaging is not None
    assert not reading.messaging.must_understand
    assert (sole(reading).code, sole(reading).severity) == ("EBMS:0009", W)


@pytest.mark.parametrize(
    ("start", "end", "place"),
    [
        ("<eb:MessageInfo>", "</eb:MessageInfo>", "eb:UserMessage"),
        ("<eb:Timestamp>", "</eb:Timestamp>", "eb:UserMessage/eb:MessageInfo"),
        ("<eb:MessageId>", "</eb:MessageId>", "eb:UserMessage/eb:MessageInfo"),
        ("<eb:PartyInfo>", "</eb:PartyInfo>", "eb:UserMessage"),
        ("<eb:From>", "</eb:From>", "eb:UserMessage/eb:PartyInfo"),
        ("<eb:To>", "</eb:To>", "eb:UserMessage/eb:PartyInfo"),
        ("<eb:PartyId", "</eb:PartyId>", "eb:UserMessage/eb:PartyInfo/eb:From"),
        ("<eb:Role>", "</eb:Role>", "eb:UserMessage/eb:PartyInfo/eb:From"),
        ("<eb:CollaborationInfo>", "</eb:CollaborationInfo>", "eb:UserMessage"),
        ("<eb:Service", "</eb:Service>", "eb:UserMessage/eb:CollaborationInfo"),
        ("<eb:Action>", "</eb:Action>", "eb:UserMessage/eb:CollaborationInfo"),
        ("<eb:ConversationId>", "</eb:ConversationId>", "eb:UserMessage/eb:CollaborationInfo"),
        ("<eb:PartInfo", "</eb:PartInfo>", "eb:UserMessage/eb:PayloadInfo"),
    ],
)
def test_each_required_element_is_missed_and_the_rest_is_still_read(start, end, place):
    reading = read(cut(USER, start, end))
    problem = sole(reading)
    assert problem.code == "EBMS:0009"
    assert problem.severity is F
    assert problem.location == f"{IN}/{place}"
    assert "is required" in problem.detail
    assert isinstance(user(reading), UserMessage)


def test_an_empty_list_of_properties_says_nothing_and_is_only_warned_of():
    problem = sole(read(cut(USER, "<eb:Property", "</eb:Property>")))
    assert (problem.code, problem.severity) == ("EBMS:0009", W)
    assert problem.location == f"{IN}/eb:UserMessage/eb:MessageProperties"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("<eb:AgreementRef", "</eb:AgreementRef>"),
        ("<eb:MessageProperties>", "</eb:MessageProperties>"),
        ("<eb:PayloadInfo>", "</eb:PayloadInfo>"),
        ("<eb:Schema", "/>"),
        ("<eb:Description", "</eb:Description>"),
        ("<eb:PartProperties", "</eb:PartProperties>"),
    ],
)
def test_optional_elements_may_be_absent(start, end):
    assert read(cut(USER, start, end)).problems == ()


def test_what_is_missing_is_shown_as_empty():
    reading = read("<eb:UserMessage/>")
    message = user(reading)
    assert message.message_info.timestamp == EPOCH
    assert message.message_info.message_id == ""
    assert message.from_party == message.to_party == Party((), "")
    assert message.collaboration_info.service == Service("")
    assert len(reading.failures) == 3


@pytest.mark.parametrize(
    ("old", "new", "code", "severity"),
    [
        ("alice", " ", "EBMS:0009", F),
        ("buyer", "", "EBMS:0009", F),
        (">orders<", "><", "EBMS:0009", F),
        (">new<", "><", "EBMS:0009", F),
        ("urn:agreement", "", "EBMS:0009", F),
        ("m1@example.com", "", "EBMS:0009", F),
        ("m1@example.com", "m1", "EBMS:0009", W),
        ("m1@example.com", "&lt;m1@example.com&gt;", "EBMS:0009", F),
        ("m1@example.com", "m1 @example.com", "EBMS:0009", F),
        ('type="t"', "", "EBMS:0003", W),
        ('type="t"', 'type=""', "EBMS:0009", F),
        ("urn:bob", "bob", "EBMS:0003", W),
        ("urn:agreement", "EU-ICS2-TI-V1.0", "EBMS:0003", W),
        ('<eb:Service type="s">', "<eb:Service>", "EBMS:0003", W),
        (">new<", f">{TEST_ACTION}<", "EBMS:0003", F),
        ('name="n"', "", "EBMS:0009", F),
        ('name="n"', 'name=""', "EBMS:0009", F),
        (">v<", "><", "EBMS:0009", W),
        ('location="urn:xsd"', "", "EBMS:0009", F),
        ('xml:lang="en"', "", "EBMS:0009", W),
        ("an order", "", "EBMS:0009", W),
        ("cid:p1@example.com", "", "EBMS:0009", F),
        ("cid:p1@example.com", "p1", "EBMS:0009", F),
        ("cid:p1@example.com", "cid:&lt;p1&gt;", "EBMS:0009", F),
        ("cid:p1@example.com", "#", "EBMS:0009", F),
        ("<eb:UserMessage>", '<eb:UserMessage mpc="mine">', "EBMS:0009", W),
        ("<eb:UserMessage>", '<eb:UserMessage mpc="">', "EBMS:0009", F),
        ("<eb:UserMessage>", '<eb:UserMessage colour="red">', "EBMS:0009", W),
        ("<eb:PartyInfo>", "<eb:PartyInfo>stray", "EBMS:0009", F),
        ("</eb:From>", "</eb:From>stray", "EBMS:0009", F),
        ("</eb:To>", "</eb:To><eb:Cc/>", "EBMS:0009", F),
        ("</eb:To>", '</eb:To><x xmlns="urn:x"/>', "EBMS:0009", F),
        ("</eb:Action>", "<eb:b>!</eb:b></eb:Action>", "EBMS:0009", F),
        ("</eb:Action>", "</eb:Action><eb:Action>again</eb:Action>", "EBMS:0009", F),
        ("</eb:UserMessage>", f"{INFO}</eb:UserMessage>", "EBMS:0009", F),
    ],
)
def test_each_broken_rule_has_its_code(old, new, code, severity):
    assert old in USER
    problem = read(USER.replace(old, new, 1)).problems[0]
    assert (problem.code, problem.severity) == (code, severity)
    assert problem.ref in ("m1@example.com", None, "m1", "<m1@example.com>", "m1 @example.com")


def test_a_place_is_told_from_the_envelope_down():
    problem = sole(read(USER.replace("alice", "")))
    assert problem.location == f"{IN}/eb:UserMessage/eb:PartyInfo/eb:From/eb:PartyId"
    assert problem.ref == "m1@example.com"


def test_wrong_order_is_told_once_per_element():
    moved = cut(USER, "<eb:AgreementRef", "</eb:AgreementRef>").replace(
        "</eb:Service>", "</eb:Service><eb:AgreementRef>urn:agreement</eb:AgreementRef>"
    )
    problem = sole(read(moved))
    assert problem.detail == "eb:AgreementRef stands after eb:Service"
    assert user(read(moved)).collaboration_info.agreement_ref == AgreementRef("urn:agreement")


def test_an_empty_conversation_id_is_accepted():
    reading = read(USER.replace(">c1<", "><"))
    assert reading.problems == ()
    assert user(reading).collaboration_info.conversation_id == ""


def test_the_test_action_goes_with_the_test_service():
    text = USER.replace(">new<", f">{TEST_ACTION}<").replace(
        '<eb:Service type="s">orders', f"<eb:Service>{TEST_SERVICE}"
    )
    assert read(text).problems == ()


def test_party_ids_of_one_party_have_distinct_types():
    one = '<eb:PartyId type="t">alice</eb:PartyId>'
    other = one.replace('"t"', '"u"')
    assert read(USER.replace(one, one + other)).problems == ()
    problem = sole(read(USER.replace(one, one + other + one)))
    assert problem.code == "EBMS:0003"
    assert "'t'" in problem.detail


def test_properties_of_one_name_may_repeat():
    prop = '<eb:Property name="n" type="y">v</eb:Property>'
    reading = read(USER.replace(prop, prop + prop))
    assert reading.problems == ()
    assert len(user(reading).properties) == 2


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ('href="cid:a%40b"', 'href="CID:a@b"', "EBMS:0007"),
        ('href="#a"', 'href="#a"', "EBMS:0003"),
        ("", "", "EBMS:0003"),
        ('href="cid:a"', 'href="cid:b"', None),
        ("", 'href="#a"', None),
    ],
)
def test_a_payload_is_listed_once(first, second, code):
    parts = f"<eb:PartInfo {first}/><eb:PartInfo {second}/>"
    reading = read(USER.replace("<eb:PayloadInfo>", f"<eb:PayloadInfo>{parts}"))
    assert [p.code for p in reading.problems] == ([code] if code else [])


@pytest.mark.parametrize(
    ("href", "found"),
    [(None, None), ("cid:a@b", "cid:a@b"), ("#x", "#x"), ("http://h/x", "http://h/x")],
)
def test_each_kind_of_payload_reference_is_read(href, found):
    attribute = "" if href is None else f'href="{href}"'
    assert (
        user(read(USER.replace('href="cid:p1@example.com"', attribute))).part_infos[0].href == found
    )


@pytest.mark.parametrize(
    ("written", "time"),
    [
        ("2026-11-15T05:40:37", datetime(2026, 11, 15, 5, 40, 37, 0, UTC)),
        ("2026-11-15T05:40:37Z", datetime(2026, 11, 15, 5, 40, 37, 0, UTC)),
        ("2026-11-15T05:40:37.5Z", datetime(2026, 11, 15, 5, 40, 37, 500000, UTC)),
        ("2026-11-15T05:40:37.1234567899999Z", datetime(2026, 11, 15, 5, 40, 37, 123456, UTC)),
        ("2026-11-15T24:00:00Z", datetime(2026, 11, 16, 0, 0, 0, 0, UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, 0, 0, 0, 0, UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, 0, 0, 0, 0, UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("2026-11-15T05:40:37+00:00", datetime(2026, 11, 15, 5, 40, 37, 0, UTC)),
    ],
)
def test_every_form_of_a_time_in_utc_is_read(written, time):
    reading = read(USER.replace("2026-11-15T05:40:37.123Z", written))
    assert reading.problems == ()
    assert user(reading).message_info.timestamp == time


def test_a_time_of_another_zone_is_converted_and_warned_of():
    reading = read(USER.replace("37.123Z", "37.123+02:30"))
    assert user(reading).message_info.timestamp == datetime(2026, 11, 15, 3, 10, 37, 123000, UTC)
    assert sole(reading).severity is W


@pytest.mark.parametrize(
    "nonsense",
    [
        "2006-30-30T30:99:99",
        "2026-02-29T00:00:00Z",
        "2026-11-15",
        "20261115T054037Z",
        "2026-11-15 05:40:37Z",
        "2026-11-15T05:40:37z",
        "2026-11-15T05:40:37+15:00",
        "2026-11-15T25:00:60Z",
        "9999-12-31T23:59:60Z",
        "9999-12-31T24:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "-0001-01-01T00:00:00Z",
        "12026-01-01T00:00:00Z",
        "٢٠٢٦-11-15T05:40:37Z",
        "yesterday",
    ],
)
def test_a_time_that_does_not_exist_is_refused(nonsense):
    reading = read(USER.replace("2026-11-15T05:40:37.123Z", nonsense))
    assert sole(reading).code == "EBMS:0009"
    assert user(reading).message_info.timestamp == EPOCH


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("urn:x:y", True),
        ("http://example.com/a?b#c", True),
        ("a+b-c.1:", True),
        ("mailto:é@example.com", True),
        ("urn:a%20b", True),
        ("foo", False),
        ("", False),
        (":x", False),
        ("1urn:x", False),
        ("urn:a b", False),
        ("urn:a%2", False),
        ("urn:<a>", False),
        ("urn:a\u00a0b", False),
    ],
)
def test_a_uri_has_a_scheme_and_no_blanks(value, is_one):
    assert is_uri(value) is is_one


def test_a_comment_cannot_hide_half_of_a_value():
    reading = read(USER.replace("m1@example.com", "m1@<!-- x -->example.com"))
    assert user(reading).message_info.message_id == "m1@example.com"
    assert reading.problems == ()


def test_blanks_around_values_are_dropped_and_collapsed_in_tokens():
    reading = read(USER.replace(">new<", ">\n  a \t b <").replace(">alice<", ">\n alice <"))
    assert user(reading).collaboration_info.action == "a b"
    assert user(reading).from_party.party_ids[0].value == "alice"


def test_a_user_message_under_another_name_can_be_read_alone():
    text = USER.replace("<eb:UserMessage>", f'<UserMessage xmlns:eb="{EB3}" xmlns="urn:route">')
    text = text.replace("</eb:UserMessage>", "</UserMessage>")
    message, problems = read_user_message(xml.parse(text.encode()))
    assert message == user(read(USER))
    assert problems == ()


def test_what_is_too_much_to_be_listed_is_counted_behind_the_last_that_is():
    *listed, more = read(
        USER.replace("<eb:Action>", "<eb:Property/>" * 70 + "<eb:Action>")
    ).problems
    assert len(listed) == 50
    assert more.detail == "there are 20 further deviations, not listed"
    assert (more.location, more.severity) == (listed[-1].location, F)
