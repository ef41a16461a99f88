"""Reading signals: pull requests, errors and receipts, and what is wrong with them."""

import pytest

from postroad.wire.ebms3 import (
    AgreementRef,
    Description,
    Party,
    PartyId,
    Property,
    Reference,
    Selection,
    Service,
    Transform,
)
from postroad.wire.ebms3_reader import Reading
from postroad.wire.names import DS, EBBP, EXC_C14N, XENC
from tests.unit.ebms3_blocks import INFO, PULL, REFERRING, USER, F, W, read, signal, sole, user


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
    ("old", "new", "says"),
    [
        ("AQID", "AQ=ID", "base64"),
        ("AQID", "Ä", "base64"),
        ("AQID", "", "ds:Reference has no digest value"),
        (' URI="#b"', "", "ds:Reference has no URI"),
        (f' Algorithm="{XENC}sha256"', "", "ds:Reference names no digest method"),
        (f'<ds:DigestMethod Algorithm="{XENC}sha256"/>', "", "one ds:DigestMethod"),
        (f'<ds:Transform Algorithm="{EXC_C14N}">', "<ds:Transform>", "with an Algorithm"),
        ("</ds:DigestValue>", "</ds:DigestValue><ds:Extra/>", "one ds:DigestValue"),
    ],
)
def test_a_broken_reference_is_refused(old, new, says):
    assert old in REFERENCE
    problem = sole(_receipt(_nri(REFERENCE.replace(old, new))))
    assert problem.code == "EBMS:0009"
    assert says in problem.detail


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
