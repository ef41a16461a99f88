"""Reading eb:Messaging as a whole: where it stands, and which units in it count."""

import pytest

from postroad.wire import soap, xml
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.limits import Limits
from postroad.wire.names import EB3, S12
from tests.unit.ebms3_blocks import IN, PULL, USER, V12, F, W, envelope, read, sole, user


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
