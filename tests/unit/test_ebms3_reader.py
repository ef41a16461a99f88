"""Reading eb:Messaging: each deviation from the rules has its code, its place and a sentence."""

from datetime import UTC, datetime

import pytest

from postroad.wire import soap, xml
from postroad.wire.ebms3 import (
    AgreementRef,
    Description,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    Reference,
    Schema,
    Selection,
    Service,
    SignalMessage,
    Transform,
    UserMessage,
)
from postroad.wire.ebms3_reader import Reading, find_messaging, read_messaging
from postroad.wire.ebms3_user_messages import EPOCH, is_uri, read_user_message
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import Limits
from postroad.wire.names import (
    DEFAULT_MPC,
    DS,
    EB3,
    EBBP,
    EXC_C14N,
    NEXT_MSH,
    S11,
    S12,
    TEST_ACTION,
    TEST_SERVICE,
    WSU,
    XENC,
)
from postroad.wire.soap import SoapVersion

V11, V12 = SoapVersion.SOAP_11, SoapVersion.SOAP_12
W, F = Severity.WARNING, Severity.FAILURE

INFO = """<eb:MessageInfo><eb:Timestamp>2026-11-15T05:40:37.123Z</eb:Timestamp>
<eb:MessageId>m1@example.com</eb:MessageId></eb:MessageInfo>"""
USER = f"""<eb:UserMessage>{INFO}
<eb:PartyInfo>
<eb:From><eb:PartyId type="t">alice</eb:PartyId><eb:Role>buyer</eb:Role></eb:From>
<eb:To><eb:PartyId>urn:bob</eb:PartyId><eb:Role>seller</eb:Role></eb:To>
</eb:PartyInfo>
<eb:CollaborationInfo>
<eb:AgreementRef pmode="p">urn:agreement</eb:AgreementRef>
<eb:Service type="s">orders</eb:Service><eb:Action>new</eb:Action>
<eb:ConversationId>c1</eb:ConversationId>
</eb:CollaborationInfo>
<eb:MessageProperties><eb:Property name="n" type="y">v</eb:Property></eb:MessageProperties>
<eb:PayloadInfo>
<eb:PartInfo href="cid:p1@example.com">
<eb:Schema location="urn:xsd" version="1"/><eb:Description xml:lang="en">an order</eb:Description>
<eb:PartProperties><eb:Property name="MimeType">text/xml</eb:Property></eb:PartProperties>
</eb:PartInfo>
</eb:PayloadInfo>
</eb:UserMessage>"""
REFERRING = INFO.replace(
    "</eb:MessageId>", "</eb:MessageId><eb:RefToMessageId>r@example.com</eb:RefToMessageId>"
)
PULL = f'<eb:SignalMessage>{INFO}<eb:PullRequest mpc="urn:mpc"/></eb:SignalMessage>'
IN = "S12:Envelope/S12:Header/eb:Messaging"


def envelope(inner: str, attributes: str = 'e:mustUnderstand="true" id="m"') -> soap.Envelope:
    text = (
        f'<e:Envelope xmlns:e="{S12}"><e:Header><eb:Messaging xmlns:eb="{EB3}" {attributes}>'
        f"{inner}</eb:Messaging></e:Header><e:Body/></e:Envelope>"
    )
    return soap.read_envelope(xml.parse(text.encode()))


def read(inner: str, attributes: str = 'e:mustUnderstand="true" id="m"') -> Reading:
    element = find_messaging(envelope(inner, attributes))
    assert element is not None
    return read_messaging(element, V12)


def sole(reading: Reading) -> EbmsError:
    assert len(reading.problems) == 1, reading.problems
    return reading.problems[0]


def user(reading: Reading) -> UserMessage:
    assert reading.messaging is not None
    return reading.messaging.user_messages[0]


def signal(reading: Reading) -> SignalMessage:
    assert reading.messaging is not None
    return reading.messaging.signals[0]


def cut(text: str, start: str, end: str) -> str:
    """The text without what lies from `start` to `end`."""
    before, _, rest = text.partition(start)
    return before + rest.partition(end)[2]


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
        ('type="t"', "", "EBMS:0003", F),
        ('type="t"', 'type=""', "EBMS:0009", F),
        ("urn:bob", "bob", "EBMS:0003", F),
        ("urn:agreement", "agreement", "EBMS:0003", F),
        ('<eb:Service type="s">', "<eb:Service>", "EBMS:0003", F),
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


def test_an_empty_header_gives_no_messaging():
    reading = read("")
    assert reading.messaging is None
    assert sole(reading).code == "EBMS:0009"


def test_elements_of_other_namespaces_may_follow_the_units():
    assert read(f'{USER}<x xmlns="urn:x"/>').problems == ()


@pytest.mark.parametrize("stranger", ["<eb:Other/>", "<Other/>", "text"])
def test_other_things_beside_the_units_are_refused(stranger):
    assert sole(read(USER + stranger)).code == "EBMS:0009"


def _user(id: str) -> str:
    return USER.replace("m1@", f"{id}@")


def test_the_first_user_message_of_a_bundle_is_the_primary_unit():
    reading = read(_user("first") + _user("second") + _user("third"))
    assert reading.problems == ()
    assert reading.messaging is not None
    assert reading.messaging.primary is reading.messaging.units[0]
    assert reading.messaging.units[0].message_info.message_id == "first@example.com"


def test_units_keep_the_order_of_the_document():
    reading = read(_user("a") + PULL.replace("m1@", "b@") + _user("c"))
    assert reading.messaging is not None
    ids = [unit.message_info.message_id for unit in reading.messaging.units]
    assert ids == ["a@example.com", "b@example.com", "c@example.com"]
    assert reading.messaging.primary is reading.messaging.units[0]


def test_a_signal_after_a_user_message_is_only_warned_of():
    assert read(PULL.replace("m1@", "b@") + USER).problems == ()
    problem = sole(read(USER + PULL.replace("m1@", "b@")))
    assert (problem.code, problem.severity, problem.ref) == ("EBMS:0009", W, "b@example.com")


def test_two_units_with_one_message_id_are_refused():
    problem = sole(read(USER + USER))
    assert problem.code == "EBMS:0009"
    assert problem.location == f"{IN}/eb:UserMessage[2]"


def test_two_pull_requests_are_refused():
    assert "at most one" in sole(read(PULL + PULL.replace("m1@", "m2@"))).detail


def test_each_problem_names_the_unit_it_is_about():
    reading = read(_user("a").replace("alice", "") + _user("b").replace(">new<", "><"))
    assert [p.ref for p in reading.problems] == ["a@example.com", "b@example.com"]


def test_a_flood_of_deviations_is_cut_and_the_cut_is_told():
    flood = "".join(f"<eb:Bad{i}/>" for i in range(20_000))
    reading = read(USER.replace("</eb:UserMessage>", f"{flood}</eb:UserMessage>"))
    assert len(reading.problems) == 51
    assert "19950 further" in reading.problems[-1].detail
    assert reading.problems[-1].severity is F


def test_a_failure_beyond_the_cut_is_still_a_failure():
    warnings = '<eb:Property name="n"/>' * 60
    text = USER.replace("<eb:MessageProperties>", f"<eb:MessageProperties>{warnings}")
    assert read(text).failures == ()
    assert len(read(text.replace("</eb:UserMessage>", "<eb:X/></eb:UserMessage>")).failures) == 1


@pytest.mark.parametrize(
    "content",
    ["", "<eb:PullRequest/><eb:Error errorCode='EBMS:0004' severity='failure'/>"],
)
def test_a_signal_is_exactly_one_kind(content):
    problem = sole(read(f"<eb:SignalMessage>{INFO}{content}</eb:SignalMessage>"))
    assert "one of eb:PullRequest, eb:Receipt or eb:Error" in problem.detail


def test_a_pull_request_is_read():
    reading = read(PULL)
    assert reading.problems == ()
    request = signal(reading).pull_request
    assert request is not None
    assert request.mpc == "urn:mpc"
    assert request.selection is None
    assert read(PULL.replace('mpc="urn:mpc"', "")).problems == ()


SELECTION = """<eb:MessageProperties><eb:Property name="n">v</eb:Property></eb:MessageProperties>
<eb:To><eb:Role>seller</eb:Role></eb:To>
<eb:From><eb:PartyId>alice</eb:PartyId></eb:From>
<eb:Action>new</eb:Action><eb:Service>QuoteToCollect</eb:Service>
<eb:AgreementRef pmode="p">a</eb:AgreementRef><eb:ConversationId>c</eb:ConversationId>
<eb:RefToMessageId>r@example.com</eb:RefToMessageId>"""


def _selective(items: str) -> Reading:
    request = f'<eb:PullRequest mpc="urn:mpc">{items}</eb:PullRequest>'
    return read(f"<eb:SignalMessage>{INFO}{request}</eb:SignalMessage>")


@pytest.mark.req("P2-5.1-01")
def test_every_selection_item_is_read_in_any_order():
    reading = _selective(SELECTION)
    assert reading.problems == ()
    request = signal(reading).pull_request
    assert request is not None
    assert request.selection == Selection(
        ref_to_message_id="r@example.com",
        conversation_id="c",
        agreement_ref=AgreementRef("a", None, "p"),
        service=Service("QuoteToCollect"),
        action="new",
        from_party=Party((PartyId("alice"),), ""),
        to_party=Party((), "seller"),
        properties=(Property("n", "v"),),
    )


@pytest.mark.req("P2-5.1-01")
@pytest.mark.parametrize(
    "item",
    [
        "<eb:MessageId>m@example.com</eb:MessageId>",
        "<eb:Timestamp/>",
        "<eb:PartyInfo/>",
        '<RefToMessageId xmlns="urn:x">r@example.com</RefToMessageId>',
        "<Action>new</Action>",
    ],
)
def test_anything_else_in_a_pull_request_is_refused(item):
    problem = sole(_selective(item))
    assert problem.code == "EBMS:0009"
    assert "no selection item" in problem.detail


@pytest.mark.parametrize(
    "items",
    [
        "<eb:Action>a</eb:Action><eb:Action>b</eb:Action>",
        "<eb:From/>",
        "<eb:MessageProperties/>",
        "<eb:Action/>",
        "stray",
    ],
)
def test_a_malformed_selection_is_refused(items):
    assert sole(_selective(items)).code == "EBMS:0009"


def _error(attributes: str, content: str = "", info: str = REFERRING) -> Reading:
    error = f"<eb:Error {attributes}>{content}</eb:Error>"
    return read(f"<eb:SignalMessage>{info}{error}</eb:SignalMessage>")


def test_an_error_is_read_whole():
    reading = _error(
        'errorCode="EBMS:0101" severity="failure" category="processing" origin="Security" '
        'shortDescription="FailedAuthentication" refToMessageInError="r@example.com"',
        '<eb:Description xml:lang="en">no</eb:Description><eb:ErrorDetail>a\n  b</eb:ErrorDetail>',
    )
    assert reading.problems == ()
    (error,) = signal(reading).errors
    assert error.error_code == "EBMS:0101"
    assert error.severity == "failure"
    assert error.description == Description("no", "en")
    assert error.error_detail == "a b"
    assert error.ref_to_message_in_error == "r@example.com"


@pytest.mark.parametrize(
    ("written", "severity", "noted"),
    [
        ("failure", "failure", False),
        ("warning", "warning", False),
        ("Failure", "failure", True),
        ("error", "failure", True),
        ("Fatal", "failure", True),
        ("Warning", "warning", True),
        ("shrug", "failure", True),
    ],
)
def test_severities_in_use_are_mapped_to_the_two(written, severity, noted):
    reading = _error(f'errorCode="EBMS:0004" severity="{written}"')
    assert signal(reading).errors[0].severity == severity
    assert [p.severity for p in reading.problems] == ([W] if noted else [])


@pytest.mark.parametrize(
    ("written", "code"), [("EBSMS:0044", "EBMS:0044"), ("ebms0021", "EBMS:0021"), ("0101", "0101")]
)
def test_odd_error_codes_are_read_and_warned_of(written, code):
    reading = _error(f'errorCode="{written}" severity="failure"')
    assert signal(reading).errors[0].error_code == code
    assert sole(reading).severity is W


@pytest.mark.parametrize(
    ("attributes", "code", "severity"),
    [
        ('severity="failure"', "EBMS:0009", F),
        ('errorCode="EBMS:0004"', "EBMS:0009", F),
        ('errorCode="EBMS:0004" severity=""', "EBMS:0009", F),
        ('errorCode="EBMS:0004" severity="failure" category="Processing"', "EBMS:0009", W),
        ('errorCode="EBMS:0004" severity="failure" origin="security"', "EBMS:0009", W),
        (
            'errorCode="EBMS:0004" severity="failure" refToMessageInError="x@y"',
            "EBMS:0003",
            F,
        ),
    ],
)
def test_each_broken_rule_of_errors_has_its_code(attributes, code, severity):
    problem = sole(_error(attributes))
    assert (problem.code, problem.severity) == (code, severity)


def test_an_error_signal_may_name_the_message_only_in_the_error():
    reading = _error('errorCode="EBMS:0004" severity="failure" refToMessageInError="x@y"', "", INFO)
    assert reading.problems == ()
    empty = _error('errorCode="EBMS:0004" severity="failure" refToMessageInError=""')
    assert empty.problems == ()
    assert signal(empty).errors[0].ref_to_message_in_error is None


REFERENCE = f"""<ds:Reference xmlns:ds="{DS}" URI="#b"><ds:Transforms>
<ds:Transform Algorithm="{EXC_C14N}">
<InclusiveNamespaces xmlns="{EXC_C14N}" PrefixList="S12  eb #default"/></ds:Transform>
</ds:Transforms><ds:DigestMethod Algorithm="{XENC}sha256"/>
<ds:DigestValue>
AQID
</ds:DigestValue></ds:Reference>"""


def _receipt(content: str, info: str = REFERRING) -> Reading:
    return read(f"<eb:SignalMessage>{info}<eb:Receipt>{content}</eb:Receipt></eb:SignalMessage>")


def _nri(content: str) -> str:
    inner = f"<b:MessagePartNRInformation>{content}</b:MessagePartNRInformation>"
    return f'<b:NonRepudiationInformation xmlns:b="{EBBP}">{inner}</b:NonRepudiationInformation>'


def test_a_non_repudiation_receipt_is_read_with_its_references():
    reading = _receipt(_nri(REFERENCE))
    assert reading.problems == ()
    receipt = signal(reading).receipt
    assert receipt is not None
    assert receipt.non_repudiation is not None
    assert receipt.non_repudiation.references == (
        Reference(
            "#b",
            (Transform(EXC_C14N, ("S12", "eb", "#default")),),
            XENC + "sha256",
            b"\x01\x02\x03",
        ),
    )


def test_a_copied_user_message_is_read():
    reading = _receipt(USER)
    assert reading.problems == ()
    receipt = signal(reading).receipt
    assert receipt is not None
    assert receipt.user_message == user(read(USER))


def test_a_copy_that_lost_its_namespace_is_read_with_a_warning():
    plain = USER.replace("<eb:", "<").replace("</eb:", "</")
    reading = _receipt(plain)
    receipt = signal(reading).receipt
    assert receipt is not None
    assert receipt.user_message == user(read(USER))
    assert sole(reading).severity is W


def test_what_is_wrong_in_a_copy_is_no_failure_of_the_receipt():
    reading = _receipt(USER.replace("urn:bob", "bob"))
    assert (sole(reading).code, sole(reading).severity) == ("EBMS:0003", W)


@pytest.mark.parametrize("content", ["", '<x xmlns="urn:x"/>'])
def test_a_receipt_without_known_content_is_an_invalid_receipt(content):
    assert [p.code for p in _receipt(content).failures] == ["EBMS:0302"]


def test_a_receipt_needs_a_reference_to_its_message():
    problem = sole(_receipt(_nri(REFERENCE), INFO))
    assert problem.code == "EBMS:0009"
    assert "RefToMessageId" in problem.detail


def test_part_identifiers_are_kept_to_be_reported():
    both = f"<b:MessagePartIdentifier>p</b:MessagePartIdentifier>{REFERENCE}"
    receipt = signal(_receipt(_nri(both))).receipt
    assert receipt is not None
    assert receipt.non_repudiation is not None
    assert receipt.non_repudiation.message_part_identifiers == ("p",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("AQID", "AQ=ID"),
        ("AQID", "Ä"),
        ("AQID", ""),
        (' URI="#b"', ""),
        (f'<ds:DigestMethod Algorithm="{XENC}sha256"/>', ""),
        (f'<ds:Transform Algorithm="{EXC_C14N}">', "<ds:Transform>"),
        ("</ds:DigestValue>", "</ds:DigestValue><ds:Extra/>"),
    ],
)
def test_a_broken_reference_is_refused(old, new):
    assert old in REFERENCE
    assert sole(_receipt(_nri(REFERENCE.replace(old, new)))).code == "EBMS:0009"


@pytest.mark.parametrize(
    "content",
    [
        f'<b:NonRepudiationInformation xmlns:b="{EBBP}"/>',
        f'<b:NonRepudiationInformation xmlns:b="{EBBP}"><b:X/></b:NonRepudiationInformation>',
        _nri(""),
        _nri("<b:X/>"),
    ],
)
def test_malformed_non_repudiation_information_is_refused(content):
    reading = _receipt(content)
    assert {p.code for p in reading.failures} == {"EBMS:0009"}


@pytest.mark.req("P2-7.2-09")
@pytest.mark.parametrize("first", ["", PULL])
def test_of_too_many_units_only_the_primary_is_read(first):
    element = find_messaging(envelope(first + USER * 3))
    assert element is not None
    reading = read_messaging(element, V12, Limits(units=2))
    problem = sole(reading)
    assert problem.code == "EBMS:0008"
    assert "more than 2 units" in problem.detail
    assert reading.messaging is not None
    assert [reading.messaging.primary] == list(reading.messaging.units) == [user(reading)]
    assert problem.ref == user(reading).message_info.message_id


def test_comments_between_units_are_no_units():
    element = find_messaging(envelope("<!-- -->" + USER + "<!-- -->"))
    assert element is not None
    assert read_messaging(element, V12, Limits(units=1)).problems == ()


def test_a_second_messaging_header_is_refused():
    one = f'<eb:Messaging xmlns:eb="{EB3}"/>'
    text = f'<e:Envelope xmlns:e="{S12}"><e:Header>{one}{one}</e:Header><e:Body/></e:Envelope>'
    with pytest.raises(EbmsError, match="more than one"):
        find_messaging(soap.read_envelope(xml.parse(text.encode())))


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ('<x xmlns="urn:x">{}</x>', ""),
        ("{}", "{}"),
        ("", "<x>{}</x>"),
        ("", "{}"),
    ],
)
def test_a_messaging_header_moved_elsewhere_is_refused(header, body):
    one = f'<eb:Messaging xmlns:eb="{EB3}"/>'
    text = (
        f'<e:Envelope xmlns:e="{S12}"><e:Header>{header.format(one)}</e:Header>'
        f"<e:Body>{body.format(one)}</e:Body></e:Envelope>"
    )
    with pytest.raises(EbmsError, match="nowhere else") as caught:
        find_messaging(soap.read_envelope(xml.parse(text.encode())))
    assert caught.value.code == "EBMS:0009"


def test_an_envelope_without_the_header_has_no_messaging():
    text = f'<e:Envelope xmlns:e="{S12}"><e:Body/></e:Envelope>'
    assert find_messaging(soap.read_envelope(xml.parse(text.encode()))) is None


def test_another_element_is_not_read_as_messaging():
    reading = read_messaging(xml.parse(b"<Messaging/>"), V12)
    assert reading.messaging is None
    assert sole(reading).code == "EBMS:0009"


def test_a_user_message_under_another_name_can_be_read_alone():
    text = USER.replace("<eb:UserMessage>", f'<UserMessage xmlns:eb="{EB3}" xmlns="urn:route">')
    text = text.replace("</eb:UserMessage>", "</UserMessage>")
    message, problems = read_user_message(xml.parse(text.encode()))
    assert message == user(read(USER))
    assert problems == ()


def _recorded(vectors, name: str) -> Reading:
    envelope = soap.read_envelope(xml.parse((vectors / "phase4" / name).read_bytes()))
    element = find_messaging(envelope)
    assert element is not None
    return read_messaging(element, envelope.version)


@pytest.mark.parametrize(
    "name",
    [
        "soap11test/BundledMessage.xml",
        "soap11test/ErrorMessage.xml",
        "soap11test/PullRequest.xml",
        "soap11test/ReceiptMessage.xml",
        "soap11test/UserMessage.xml",
        "soap11test/UserMessageResponse.xml",
        "soap12test/PullRequest12.xml",  # its namespaces of WS-Security hold a line break
        "soap12test/UserMessage12.xml",
        "soap12test/test-2023-03-15.xml",
        "testfiles/ErrorMessage.xml",
        "testfiles/ErrorMessageNoRefToMessageID.xml",
        "testfiles/ErrorMessageWithFault.xml",
        "testfiles/TestReceipt12.xml",
    ],
)
def test_good_headers_of_another_product_are_read_without_failure(vectors, name):
    reading = _recorded(vectors, name)
    assert reading.messaging is not None
    assert reading.failures == ()


@pytest.mark.parametrize(
    ("name", "code", "place", "says"),
    [
        ("soap11test/EmptyMessaging.xml", "EBMS:0009", "eb:Messaging", "found none"),
        ("soap11test/MessageInfoIDMissing.xml", "EBMS:0009", "eb:MessageInfo", "eb:MessageId is"),
        ("soap11test/MessageInfoImaginaryTimestamp.xml", "EBMS:0009", "eb:Timestamp", "30:99"),
        ("soap11test/MessageInfoMissing.xml", "EBMS:0009", "eb:UserMessage", "eb:MessageInfo is"),
        ("testfiles/NoResponder.xml", "EBMS:0009", "eb:PartyInfo", "eb:To is required"),
        ("testfiles/UserMessageNoPartyID.xml", "EBMS:0009", "eb:PartyId", "is empty"),
        ("testfiles/WrongSigningDigestAlgorithm.xml", "EBMS:0003", "eb:PartyId", "must be a URI"),
        ("testfiles/UserMessageWithoutWSSE.xml", "EBMS:0003", "eb:PartyId", "must be a URI"),
    ],
)
def test_bad_headers_of_another_product_are_refused_for_what_is_wrong(
    vectors, name, code, place, says
):
    first = _recorded(vectors, name).failures[0]
    assert first.code == code
    assert first.location is not None
    assert first.location.endswith(place)
    assert says in first.detail


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("soap12test/UserMessageWithCompressedPayload12.xml", "not well-formed"),
        ("testfiles/TestReceipt11.xml", "nowhere else"),  # a whole envelope in the receipt
    ],
)
def test_damaged_messages_of_another_product_are_refused(vectors, name, says):
    with pytest.raises(EbmsError, match=says) as caught:
        _recorded(vectors, name)
    assert caught.value.code == "EBMS:0009"


@pytest.mark.parametrize("name", ["NoMessaging.xml", "UserMessage-no-soap.xml"])
def test_a_header_without_an_envelope_is_refused(vectors, name):
    data = (vectors / "phase4/soap11test" / name).read_bytes()
    with pytest.raises(EbmsError, match="<Messaging>"):
        soap.read_envelope(xml.parse(data))


def test_the_sample_messages_of_the_specification_are_read(vectors):
    for place in sorted((vectors / "oasis").glob("*.xml")):
        envelope = soap.read_envelope(xml.parse(place.read_bytes()))
        element = find_messaging(envelope)
        assert element is not None
        reading = read_messaging(element, envelope.version)
        assert reading.messaging is not None
        # The samples name the Service "Sales" without a type, which Core forbids.
        assert {p.code for p in reading.failures} <= {"EBMS:0003"}
