"""Reception awareness in a P-Mode: how retries are written, their rules, and what the node gets."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from postroad.agreement.awareness import DetectionParameters, RetryParameters
from postroad.agreement.breach import Level
from postroad.agreement.loading import Problem, load_pmodes
from postroad.agreement.pmode import Leg
from postroad.agreement.retrying import resent_within, retry_of
from postroad.agreement.waiting import Policy, remaining

SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)
HEAD = "id: p\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\nlegs:\n"
"""Four lines; the leg's SendReceipt is the fifth, ReceptionAwareness begins in line 6."""
RESPONSE = "true"
CALLBACK = "{reply_pattern: callback, reply_to: https://acme.example/msh}"


def told(awareness: str, receipts: str = RESPONSE) -> list[Problem]:
    text = f"{HEAD}  - security: {{send_receipt: {receipts}}}\n"
    text += "    reception_awareness:" + awareness.replace("\n", "\n      ") + "\n"
    return list(load_pmodes(text, "p.yaml").problems)


def breach(awareness: str, receipts: str = RESPONSE, level: Level = Level.ERROR) -> tuple[int, str]:
    problems = told(awareness, receipts)
    assert len(problems) == 1, [str(problem) for problem in problems]
    assert problems[0].level is level
    return problems[0].line, problems[0].message.removeprefix("PMode[1].ReceptionAwareness")


def retry(parameters: str) -> str:
    return f" {{retry: {{parameters: {{{parameters}}}}}}}"


def warned(parameters: str) -> str:
    return breach(retry(parameters), level=Level.WARNING)[1].removeprefix(".Retry.Parameters.")


def retrying(parameters: object = None) -> Policy:
    given = {"reception_awareness": {"retry": {"parameters": parameters}}}
    found = retry_of(Leg.model_validate(given))
    assert found is not None
    return found


def test_retries_have_defaults() -> None:
    assert retrying() == Policy(
        timeout=MINUTE,
        interval=MINUTE,
        growth=1,
        longest=30 * DAY,
        jitter=0,
        retries=10,
        time_to_live=None,
        persist_duration=None,
        fail_fast=False,
        suspend=False,
    )


@pytest.mark.req("OV004-2-01")
def test_every_part_of_retrying_is_a_parameter() -> None:
    given = {
        "max_retries": "3",
        "period": "PT30S",
        "timeout": "PT2M",
        "backoff": "1.5",
        "max_period": "PT10M",
        "jitter": "0.1",
        "time_to_live": "P1D",
        "persist_duration": "P2D",
        "fail_fast": "true",
        "then": "suspend",
    }
    assert retrying(given) == Policy(
        timeout=2 * MINUTE,
        interval=30 * SECOND,
        growth=1.5,
        longest=10 * MINUTE,
        jitter=0.1,
        retries=3,
        time_to_live=DAY,
        persist_duration=2 * DAY,
        fail_fast=True,
        suspend=True,
    )


def test_unlimited_retries_have_no_number() -> None:
    assert RetryParameters(max_retries="unlimited").max_retries == "unlimited"
    assert retrying({"max_retries": "Unlimited"}).retries is None
    assert retrying({"max_retries": 0}).retries == 0


def test_the_first_retry_waits_for_the_period_where_no_timeout_is_set() -> None:
    assert retrying({"period": "PT5S"}).timeout == 5 * SECOND


@pytest.mark.parametrize(
    "awareness",
    [
        None,
        {},
        {"retry": False},
        {"retry": {"enabled": False, "parameters": {"max_retries": 3}}},
        {"enabled": False, "retry": True},
    ],
)
def test_without_retry_a_message_is_sent_once(awareness: object) -> None:
    assert retry_of(Leg.model_validate({"reception_awareness": awareness})) is None


def test_as4_strings_take_further_names() -> None:
    text = (
        "maxretries=unlimited; period=3000, timeout=PT5S, backoff=2, maxperiod=60000, jitter=0.5,"
        "timetolive=P1D, persistduration=P2D, failfast=true, then=give_up"
    )
    assert RetryParameters.model_validate(text) == RetryParameters(
        max_retries="unlimited",
        period=3 * SECOND,
        timeout=5 * SECOND,
        backoff=2,
        max_period=MINUTE,
        jitter=0.5,
        time_to_live=DAY,
        persist_duration=2 * DAY,
        fail_fast=True,
        then="give_up",
    )


def test_the_fields_of_an_as4_string_are_told() -> None:
    assert DetectionParameters.written("maxsize=10Mb") == {"max_size": "10Mb"}
    assert DetectionParameters.written("nonsense") == {}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("max_retries: -1", "'-1' is neither a whole number from 0 to 1000000 nor unlimited"),
        ("max_retries: 1000001", "neither a whole number"),
        ("max_retries: 1.5", "neither a whole number"),
        ("max_retries: often", "neither a whole number"),
        ("period: PT0S", "PT0S is out of bounds: more than PT0S, at most P30D"),
        ("timeout: P31D", "P31D is out of bounds"),
        ("max_period: P31D", "P31D is out of bounds"),
        ("time_to_live: PT0S", "PT0S is out of bounds"),
        ("persist_duration: P3661D", "at most P3660D"),
        ("backoff: 0.9", "0.9 is not a number from 1 to 100"),
        ("backoff: nan", "nan is not a number from 1 to 100"),
        ("backoff: inf", "inf is not a number from 1 to 100"),
        ("backoff: twice", "should be a valid number"),
        ("jitter: 1.1", "1.1 is not a number from 0 to 1"),
        ("jitter: -0.1", "-0.1 is not a number from 0 to 1"),
        ("fail_fast: perhaps", "'perhaps' is neither true nor false"),
        ("then: stop", "'stop' is not one of 'give_up' or 'suspend'"),
    ],
)
def test_every_value_has_bounds(parameters: str, said: str) -> None:
    line, message = breach(f"\nretry:\n  parameters:\n    {parameters}")
    assert line == 9
    assert said in message


def test_memory_of_ids_has_bounds() -> None:
    with pytest.raises(ValidationError, match="out of bounds"):
        DetectionParameters.model_validate("checkwindow=0D")


def test_order_is_kept_within_a_conversation_or_the_pmode() -> None:
    assert told("\nin_order: conversation") == told("\nin_order: pmode") == []
    assert "'session' is not one of 'conversation' or 'pmode'" in breach("\nin_order: session")[1]


def test_it_needs_receipts() -> None:
    line, said = breach("\nretry: true", "false")
    assert (line, said) == (6, ": it waits for receipts, but SendReceipt is not true")
    assert told(" false", "false") == []
    assert told(" true") == []


def test_duplicate_detection_cannot_be_switched_off() -> None:
    line, said = breach("\nretry: true\nduplicate_detection: false")
    assert (line, said) == (8, ".DuplicateDetection: duplicates are always recognised")
    assert told("\nduplicate_detection: true") == []
    assert told("\nenabled: false\nduplicate_detection: false") == []


def test_message_ids_decide_only_where_the_protocol_knows_duplicates_by_them() -> None:
    for compare in ("message_id", "contents"):
        assert told(f"\nduplicate_detection: {{compare: {compare}}}") == []
    ebxml = (
        "id: p\nagreement: cpa\ninitiator: {{party: urn:a}}\nresponder: {{party: urn:b}}\n"
        "legs:\n  - protocol: {{address: http://b.example/}}\n"
        "    business_info: {{service: urn:s, action: a}}\n"
        "    reception_awareness: {{duplicate_detection: {{compare: {0}}}}}\n"
        "    ebxml: {{delivery_semantics: OnceAndOnlyOnce, ack_requested: UnSigned, {1}}}\n"
    )
    for terms, why in (
        ("profile: ms098", None),
        ("version: 0.98b, profile: rm001", "with profile rm001 the SequenceNumber decides"),
        ("version: 0.98b, relay: true", "a relay compares contents"),
    ):
        found = load_pmodes(ebxml.format("message_id", terms), "p.yaml").errors
        said = [one.message for one in found if "Compare" in one.message]
        place = "PMode[1].ReceptionAwareness.DuplicateDetection.Compare: "
        assert said == ([] if why is None else [place + why])
        other = load_pmodes(ebxml.format("contents", terms), "p.yaml").errors
        assert not [one for one in other if "Compare" in one.message]


def test_a_receipt_after_delivery_is_called_back() -> None:
    assert told("\nack_after_delivery: true", CALLBACK) == []
    for receipts in (RESPONSE, "{reply_pattern: response}"):
        line, said = breach("\nack_after_delivery: true", receipts)
        assert line == 7
        assert said.startswith(".AckAfterDelivery: the response does not wait")


def test_a_strict_receipt_is_the_response() -> None:
    assert told("\nstrict_ack: true", RESPONSE) == []
    line, said = breach("\nstrict_ack: true", CALLBACK)
    assert line == 7
    assert said.endswith("SendReceipt.ReplyPattern is callback")


@pytest.mark.parametrize("receipts", [RESPONSE, CALLBACK])
def test_receipt_and_delivery_do_not_wait_for_each_other(receipts: str) -> None:
    line, said = breach("\nstrict_ack: true\nack_after_delivery: true", receipts)
    assert line == 8
    assert "with strict_ack delivery for the receipt" in said


@pytest.mark.parametrize(
    ("parameters", "whole"),
    [
        ({"max_retries": 3, "period": "PT10S"}, 40 * SECOND),
        ({"max_retries": 3, "period": "PT10S", "timeout": "PT1S"}, 31 * SECOND),
        ({"max_retries": 0, "period": "PT10S", "timeout": "PT1S"}, SECOND),
        ({"max_retries": 3, "period": "PT10S", "backoff": 2}, (10 + 10 + 20 + 40) * SECOND),
        (
            {"max_retries": 6, "period": "PT10S", "backoff": 2, "max_period": "PT30S"},
            (10 + 10 + 20 + 4 * 30) * SECOND,
        ),
        ({"max_retries": 1, "period": "PT10S", "jitter": 0.5}, 30 * SECOND),
        ({"max_retries": 1_000_000, "period": "P30D", "backoff": 100}, 1_000_001 * 30 * DAY),
        ({"max_retries": "unlimited"}, None),
    ],
)
@pytest.mark.req("OV004-2-06")
def test_the_time_until_a_message_is_given_up_is_known(
    parameters: dict[str, object], whole: timedelta | None
) -> None:
    assert remaining(retrying(parameters), 1) == whole


def test_only_time_is_a_firm_end_of_retries() -> None:
    """An outage uses up no retries."""
    few = {"max_retries": 1, "period": "PT1M"}
    assert resent_within(retrying(few)) == 2 * MINUTE
    assert resent_within(retrying({**few, "persist_duration": "PT1H"})) == HOUR
    assert resent_within(retrying({**few, "time_to_live": "P1D"})) == DAY
    both = {"max_retries": "unlimited", "time_to_live": "P1D", "persist_duration": "PT1H"}
    assert resent_within(retrying(both)) == HOUR


def test_retries_without_end_get_a_warning() -> None:
    assert warned("max_retries: unlimited").startswith("maxretries: nothing ends the retries")
    assert told(retry("max_retries: unlimited, time_to_live: P1D")) == []
    assert told(retry("max_retries: unlimited, persist_duration: P1D")) == []


def test_a_persist_duration_that_cuts_retries_short_gets_a_warning() -> None:
    assert warned("max_retries: 3, period: PT10S, persist_duration: PT39S") == (
        "persistduration: it cuts the retries short, which with their timeout take PT40S"
    )
    assert told(retry("max_retries: 3, period: PT10S, persist_duration: PT40S")) == []
    grown = "max_retries: 3, period: PT10S, backoff: 2, jitter: 0.1, persist_duration: PT%dS"
    assert warned(grown % 87).endswith("take PT1M28S")
    assert told(retry(grown % 88)) == []


@pytest.mark.parametrize(
    ("parameters", "window", "how_long"),
    [
        ("max_retries: 3, period: PT10S", "PT39S", "for PT40S"),
        ("max_retries: 3, period: PT10S", "PT40S", None),
        ("", "PT10M", "for PT11M"),
        ("", "PT11M", None),
        ("persist_duration: P1D", "PT23H", "for P1D"),
        ("persist_duration: P1D", "P1D", None),
        ("max_retries: unlimited, time_to_live: P8D", "P7D", "for P8D"),
    ],
)
def test_ids_that_are_forgotten_before_the_last_retry_get_a_warning(
    parameters: str, window: str, how_long: str | None
) -> None:
    text = f"\nretry: {{parameters: {{{parameters}}}}}\nduplicate_detection:\n"
    text += f"  parameters: {{check_window: {window}}}"
    if how_long is None:
        assert told(text) == []
        return
    line, said = breach(text, level=Level.WARNING)
    assert line == 9
    assert said.startswith(".DuplicateDetection.Parameters.checkwindow: ")
    assert said.endswith(how_long)


def test_no_memory_is_long_enough_for_retries_without_end() -> None:
    problems = told(
        "\nretry: {parameters: {max_retries: unlimited}}\n"
        "duplicate_detection: {parameters: {check_window: P7D}}"
    )
    assert [problem.line for problem in problems] == [7, 8]
    assert problems[1].message.endswith("sends again without end")


def test_a_memory_without_retries_may_be_short() -> None:
    assert told("\nduplicate_detection: {parameters: {check_window: PT1S}}") == []


def test_a_time_to_live_that_ends_before_the_first_retry_gets_a_warning() -> None:
    said = "timetolive: it ends before the timeout of PT1M: nothing is sent again"
    assert warned("time_to_live: PT1M") == said
    assert warned("timeout: PT1M, period: PT1S, time_to_live: PT30S") == said
    assert told(retry("time_to_live: PT61S")) == []


def test_what_fails_at_once_is_not_suspended() -> None:
    line, said = breach("\nretry:\n  parameters:\n    fail_fast: true\n    then: suspend")
    assert line == 10
    assert said.endswith("so there is nothing to suspend")
    assert told(retry("fail_fast: true, then: give_up")) == []
    assert told(retry("fail_fast: false, then: suspend")) == []


def test_the_longest_period_is_not_shorter_than_the_first() -> None:
    parameters = "period: PT1M, backoff: 2, max_period: %s"
    assert breach(retry(parameters % "PT59S"))[1].endswith("it is shorter than period")
    assert told(retry(parameters % "PT1M")) == []


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("max_retries: 0, backoff: 2", "backoff: it has no effect: there are no retries"),
        ("max_retries: 0, jitter: 0.1", "jitter: it has no effect: there are no retries"),
        ("max_retries: 0, max_period: PT1H", "maxperiod: it has no effect: there are no retries"),
        ("max_period: PT1H", "maxperiod: it has no effect: the period does not grow"),
        (
            "max_retries: unlimited, time_to_live: P1D, then: suspend",
            "then: it has no effect: unlimited retries are never used up",
        ),
    ],
)
def test_what_has_no_effect_gets_a_warning(parameters: str, said: str) -> None:
    assert warned(parameters) == said
