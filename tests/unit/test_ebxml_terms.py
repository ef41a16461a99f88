"""The parameters of ebXML reliable messaging: where they stand, what they may be, what follows."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from postroad.reliability.ebxml_terms import (
    METHOD,
    PARAMETERS,
    AckRequested,
    DeliverySemantics,
    EbxmlError,
    ErrorCode,
    Method,
    OrderSemantics,
    Severity,
    Source,
    SyncReplyMode,
    Terms,
    advice,
    agree,
    retrying,
)

NOW: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
RELIABLE: Final = {"deliverySemantics": "OnceAndOnlyOnce"}

EXAMPLES: Final[Mapping[str, str]] = {
    "deliverySemantics": "OnceAndOnlyOnce",
    "syncReplyMode": "signalsOnly",
    "timeToLive": "2001-03-09T13:00:00Z",
    "reliableMessagingMethod": "Transport",
    "ackRequested": "Signed",
    "timeout": "30",
    "retries": "3",
    "retryInterval": "PT1M",
    "reliableMessagingSupported": METHOD,
    "persistDuration": "P1D",
    "messageOrderSemantics": "Guaranteed",
    "syncReply": "true",
    "mshTimeAccuracy": "05:30",
    "protocols": "http smtp",
    "hops": "2",
}
READ: Final[Mapping[str, object]] = {
    "deliverySemantics": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    "syncReplyMode": SyncReplyMode.SIGNALS_ONLY,
    "timeToLive": NOW + timedelta(hours=1),
    "reliableMessagingMethod": Method.TRANSPORT,
    "ackRequested": AckRequested.SIGNED,
    "timeout": timedelta(seconds=30),
    "retries": 3,
    "retryInterval": timedelta(minutes=1),
    "reliableMessagingSupported": (METHOD,),
    "persistDuration": timedelta(days=1),
    "messageOrderSemantics": OrderSemantics.GUARANTEED,
    "syncReply": True,
    "mshTimeAccuracy": timedelta(minutes=5, seconds=30),
    "protocols": ("http", "smtp"),
    "hops": 2,
}
"""What the examples mean."""
CPA_AND_HEADER: Final = {
    "deliverySemantics",
    "syncReplyMode",
    "timeToLive",
    "messageOrderSemantics",
}
HEADER_ONLY: Final = {"reliableMessagingMethod", "ackRequested", "syncReply"}


def agreed(
    cpa: Mapping[str, str] | None = None,
    header: Mapping[str, str] | None = None,
) -> Terms:
    return agree(cpa or {}, header or {}, timestamp=NOW)


def refused(
    cpa: Mapping[str, str] | None = None, header: Mapping[str, str] | None = None
) -> EbxmlError:
    with pytest.raises(EbxmlError) as caught:
        agreed(cpa, header)
    assert caught.value.error.severity is Severity.ERROR
    return caught.value


def alone(source: Source, name: str) -> Terms:
    """The terms when one parameter is set, with what it needs."""
    unreliable = name in ("deliverySemantics", "reliableMessagingMethod")
    needs = {} if unreliable else RELIABLE
    given = {**needs, name: EXAMPLES[name]}
    there = source is Source.CPA
    return agreed(given if there else {}, {} if there else given)


def value_of(terms: Terms, name: str) -> object:
    fields = dict(zip(Terms.__struct_encode_fields__, Terms.__struct_fields__, strict=True))
    return getattr(terms, fields[name])


# Where a parameter stands


@pytest.mark.req("RM000-1.2-01")
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - HEADER_ONLY))
def test_what_the_cpa_says_holds(name: str) -> None:
    assert value_of(alone(Source.CPA, name), name) == READ[name]


@pytest.mark.req("RM000-1.2-03")
@pytest.mark.parametrize("name", sorted(CPA_AND_HEADER | HEADER_ONLY))
def test_where_the_cpa_is_silent_the_header_counts(name: str) -> None:
    assert value_of(alone(Source.HEADER, name), name) == READ[name]


@pytest.mark.req("RM000-1.2-02", "RM000-1.2-05")
@pytest.mark.parametrize("name", sorted(HEADER_ONLY))
def test_what_stands_in_the_header_only_never_comes_from_the_cpa(name: str) -> None:
    error = refused(cpa={**RELIABLE, name: EXAMPLES[name]}).error
    assert (error.code, error.detail) == (
        ErrorCode.INCONSISTENT,
        f"{name} never stands in the CPA",
    )


@pytest.mark.req("RM000-1.2-04")
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - HEADER_ONLY - CPA_AND_HEADER))
def test_what_stands_in_the_cpa_only_never_comes_from_the_header(name: str) -> None:
    error = refused(header={**RELIABLE, name: EXAMPLES[name]}).error
    assert (error.code, error.detail) == (
        ErrorCode.INCONSISTENT,
        f"{name} never stands in the header",
    )


def test_every_parameter_has_an_example() -> None:
    assert EXAMPLES.keys() == READ.keys() == PARAMETERS.keys()


@pytest.mark.req("RM000-1.2-01", "RM000-1.2.1-01")
@pytest.mark.parametrize(
    ("name", "in_the_cpa", "in_the_header"),
    [
        ("deliverySemantics", "OnceAndOnlyOnce", "BestEffort"),
        ("syncReplyMode", "none", "signalsOnly"),
        ("timeToLive", "PT1H", "2001-03-09T13:00:01Z"),
        ("messageOrderSemantics", "NotGuaranteed", "Guaranteed"),
    ],
)
def test_a_header_that_contradicts_the_cpa_is_inconsistent(
    name: str, in_the_cpa: str, in_the_header: str
) -> None:
    assert refused({name: in_the_cpa}, {name: in_the_header}).error.code is ErrorCode.INCONSISTENT


@pytest.mark.parametrize(
    ("name", "in_the_cpa", "in_the_header"),
    [
        ("deliverySemantics", "OnceAndOnlyOnce", "AtMostOnce"),
        ("timeToLive", "PT1H", "2001-03-09T14:00:00+01:00"),
        ("timeToLive", "3600", "2001-03-09T13:00:00Z"),
    ],
)
def test_a_header_may_say_the_same_in_other_words(
    name: str, in_the_cpa: str, in_the_header: str
) -> None:
    assert agreed({name: in_the_cpa}, {name: in_the_header}) == agreed({name: in_the_cpa})


def test_what_is_no_parameter_is_not_recognized() -> None:
    assert refused({"patience": "1"}).error.code is ErrorCode.VALUE_NOT_RECOGNIZED


def test_the_names_that_the_draft_has_besides_are_read_too() -> None:
    assert agreed(header={"intermediateAckRequested": "Signed"}) == agreed(
        header={"ackRequested": "Signed"}
    )
    assert agreed({"reliableMessagingMethodsSupported": "urn:other"}) == agreed(
        {"reliableMessagingSupported": "urn:other"}
    )


# What a parameter may be


@pytest.mark.req("MS098-10.2.1-02")
@pytest.mark.parametrize(
    ("word", "reliable"),
    [
        ("OnceAndOnlyOnce", True),
        ("AtMostOnce", True),
        ("BestEffort", False),
        ("Unspecified", False),
    ],
)
def test_delivery_is_reliable_or_not_by_the_words_of_all_drafts(word: str, reliable: bool) -> None:
    assert agreed(header={"deliverySemantics": word}).is_reliable is reliable


@pytest.mark.req("MS098-10.2.1-02", "RM000-1.2.5-02", "MS098-10.2.5-01", "MS098-8.4.7.2-01")
def test_where_nothing_is_said_the_defaults_hold() -> None:
    terms = agreed()
    assert terms.delivery_semantics is DeliverySemantics.BEST_EFFORT
    assert terms.ack_requested is AckRequested.NONE
    assert terms.message_order_semantics is OrderSemantics.NOT_GUARANTEED
    assert not terms.sync_reply
    assert terms.time_to_live is None


@pytest.mark.req("RM000-1.3.1-01", "MS098-10.2.4-01", "MS098-10.3-01")
def test_once_and_only_once_follows_this_protocol_unless_told_otherwise() -> None:
    assert agreed(RELIABLE).is_protocol_followed
    assert refused(RELIABLE, {"reliableMessagingMethod": "Transport"})
    assert not agreed().is_protocol_followed


@pytest.mark.req("RM000-1.2.4-01", "MS098-10.2.4-01")
@pytest.mark.parametrize("word", ["EbXML", "ebxml", "transport", "Other", ""])
def test_the_method_is_ebxml_or_transport_in_this_very_case(word: str) -> None:
    error = refused(RELIABLE, {"reliableMessagingMethod": word}).error
    assert error.code is ErrorCode.VALUE_NOT_RECOGNIZED


@pytest.mark.req("RM000-1.2.5-01", "MS098-10.2.5-01")
def test_an_acknowledgment_is_asked_for_signed_unsigned_or_not() -> None:
    found = [
        agreed(header={"ackRequested": word}).ack_requested
        for word in ("Signed", "Unsigned", "UnSigned", "None")
    ]
    assert found == [
        AckRequested.SIGNED,
        AckRequested.UNSIGNED,
        AckRequested.UNSIGNED,
        AckRequested.NONE,
    ]
    error = refused(header={"ackRequested": "true"}).error
    assert error.code is ErrorCode.VALUE_NOT_RECOGNIZED


@pytest.mark.req("MS098-10.2.1-07")
@pytest.mark.parametrize("word", ["exactlyOnce", "onceandonlyonce", ""])
def test_delivery_semantics_that_are_not_there_are_not_supported(word: str) -> None:
    assert refused(header={"deliverySemantics": word}).error.code is ErrorCode.NOT_SUPPORTED


@pytest.mark.req("MS098-8.4.7.2-05")
def test_order_semantics_that_are_not_there_are_not_supported() -> None:
    error = refused(RELIABLE, {"messageOrderSemantics": "Causal"}).error
    assert error.code is ErrorCode.NOT_SUPPORTED


@pytest.mark.req("MS098-8.4.7.2-03", "MS098-8.4.7.2-04")
def test_order_without_once_and_only_once_is_inconsistent() -> None:
    error = refused(header={"messageOrderSemantics": "Guaranteed"}).error
    assert error.code is ErrorCode.INCONSISTENT


def test_the_transport_as_method_needs_a_reliable_transport() -> None:
    error = refused(RELIABLE, {"reliableMessagingMethod": "Transport"}).error
    assert error.code is ErrorCode.NOT_SUPPORTED


@pytest.mark.req("MS098-10.2.1-03")
def test_with_best_effort_the_method_is_ignored() -> None:
    assert not agreed(header={"reliableMessagingMethod": "Transport"}).is_reliable


@pytest.mark.req("RM000-1.2.9-01")
def test_methods_are_named_by_uris() -> None:
    error = refused({"reliableMessagingSupported": f"{METHOD} mail"}).error
    assert error.code is ErrorCode.VALUE_NOT_RECOGNIZED
    assert "'mail' is not a URI" in error.detail


@pytest.mark.req("RM000-1.2.9-02")
def test_this_protocol_is_known_by_its_name() -> None:
    name = "http://www.ebxml.org/namespaces/reliableMessaging"
    assert agreed({**RELIABLE, "reliableMessagingSupported": f"urn:x, {name}"}).is_reliable
    error = refused({**RELIABLE, "reliableMessagingSupported": "urn:x"}).error
    assert error.code is ErrorCode.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("1.5", 1.5), ("PT1M30S", 90), ("P1D", 86400)]
)
def test_a_duration_is_seconds_or_an_xml_duration(text: str, seconds: float) -> None:
    assert agreed({"timeout": text}).timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "-1", "1m", "P", "P1Y", "-PT1S", "٣", "P6000W", "9" * 30])
def test_what_is_no_duration_is_not_recognized(text: str) -> None:
    assert refused({"retryInterval": text}).error.code is ErrorCode.VALUE_NOT_RECOGNIZED


def test_retries_are_a_number_or_unlimited() -> None:
    assert agreed({"retries": "0"}).retries == 0
    assert agreed({"retries": "unlimited"}).retries is None
    for text in ("-1", "1.0", "many", "", "1000000"):
        assert refused({"retries": text}).error.code is ErrorCode.VALUE_NOT_RECOGNIZED


def test_retries_that_outlast_everybody_are_refused() -> None:
    error = refused({**RELIABLE, "retries": "999999", "retryInterval": "P1D"}).error
    assert error.code is ErrorCode.VALUE_NOT_RECOGNIZED


@pytest.mark.req("MS098-10.2.2-01")
@pytest.mark.parametrize("text", ["5:30", "05:60", "00:05:30", "PT5M", "0530"])
def test_the_accuracy_of_clocks_is_written_in_minutes_and_seconds(text: str) -> None:
    assert refused({"mshTimeAccuracy": text}).error.code is ErrorCode.VALUE_NOT_RECOGNIZED


@pytest.mark.parametrize("text", ["tomorrow", "2001-03-09", "P", "2001-02-30T00:00:00Z"])
def test_a_time_to_live_is_a_time_or_a_duration(text: str) -> None:
    assert refused(header={"timeToLive": text}).error.code is ErrorCode.VALUE_NOT_RECOGNIZED


@pytest.mark.parametrize(
    ("header", "awaited"),
    [
        ({"syncReply": "true"}, True),
        ({"syncReply": "false"}, False),
        ({}, False),
        ({"syncReplyMode": "responseOnly"}, True),
    ],
)
def test_a_response_is_awaited_when_the_header_asks_and_the_cpa_has_it(
    header: dict[str, str], awaited: bool
) -> None:
    assert agreed({"syncReplyMode": "responseOnly"}, header).is_response_awaited is awaited


def test_without_the_application_no_response_is_awaited() -> None:
    assert not agreed({"syncReplyMode": "signalsOnly"}, {"syncReply": "true"}).is_response_awaited


# What follows


@pytest.mark.req("OV004-2-01")
def test_timeout_retries_and_interval_are_settings() -> None:
    cpa = {
        **RELIABLE,
        "timeout": "5",
        "retries": "2",
        "retryInterval": "7",
        "persistDuration": "60",
    }
    rules = retrying(agreed(cpa))
    assert (rules.timeout, rules.retries, rules.interval, rules.persist_duration) == (
        timedelta(seconds=5),
        2,
        timedelta(seconds=7),
        timedelta(seconds=60),
    )


@pytest.mark.req("OV004-2-02", "OV004-2-03")
def test_the_timeout_grows_with_the_hops_and_is_one_round_trip_without() -> None:
    one = agreed({**RELIABLE, "timeout": "5"})
    three = agreed({**RELIABLE, "timeout": "5", "hops": "2"})
    assert retrying(one).timeout == timedelta(seconds=5)
    assert retrying(three).timeout == timedelta(seconds=15)


def test_a_persist_duration_below_all_retries_is_unwise() -> None:
    cpa = {**RELIABLE, "timeout": "10", "retries": "3", "retryInterval": "20"}
    assert advice(agreed({**cpa, "persistDuration": "69"}))
    assert advice(agreed({**cpa, "persistDuration": "70"})) is None
    assert advice(agreed(cpa)) is None


def test_terms_survive_as_json() -> None:
    cpa = {name: EXAMPLES[name] for name in EXAMPLES.keys() - HEADER_ONLY}
    terms = agreed(cpa, {"syncReply": "true", "ackRequested": "Unsigned"})
    assert msgspec.json.decode(msgspec.json.encode(terms), type=Terms) == terms
