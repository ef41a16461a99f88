"""The usual units are read quickly; whatever is unusual is left to the full readers."""

import pytest

from postroad.wire import ebms3_usual
from postroad.wire.ebms3_signals import signal_message
from postroad.wire.ebms3_user_messages import Findings, user_message
from postroad.wire.ebms3_usual import usual_receipt, usual_user_message
from postroad.wire.names import EBBP
from tests.unit.ebms3_blocks import cut
from tests.unit.usual_units import (
    AWARENESS,
    INFO,
    INFORMATION,
    NON_REPUDIATION,
    REFERRING,
    USER,
    parsed,
    receipt,
)


@pytest.mark.parametrize(
    "unit",
    [
        USER,
        USER.replace("\n", ""),
        USER.replace(INFO, REFERRING),
        USER.replace("<eb:UserMessage>", '<eb:UserMessage mpc="urn:mpc">'),
        cut(USER, "<eb:MessageProperties>", "</eb:MessageProperties>"),
        cut(USER, "<eb:PayloadInfo>", "</eb:PayloadInfo>"),
        cut(USER, "<eb:AgreementRef", "</eb:AgreementRef>"),
    ],
)
def test_the_usual_user_message_is_read_as_in_full(unit: str) -> None:
    findings = Findings()
    assert usual_user_message(parsed(unit)) == user_message(parsed(unit), findings)
    assert findings.result() == ()


@pytest.mark.parametrize("unit", [AWARENESS, NON_REPUDIATION])
def test_the_usual_receipt_is_read_as_in_full(unit: str) -> None:
    findings = Findings()
    assert usual_receipt(parsed(unit)) == signal_message(parsed(unit), findings)
    assert findings.result() == ()


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buy<!-- -->er</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role> </eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", '<eb:Role x="y">buyer</eb:Role>'),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buyer</eb:Role>x"),
        ("<eb:Role>buyer</eb:Role>", "<eb:Role>buyer</eb:Role><eb:Role>buyer</eb:Role>"),
        ("<eb:Role>buyer</eb:Role>", ""),
        ("</eb:From>", "</eb:From>x"),
        ("<eb:PartyInfo>", "<eb:PartyInfo>x"),
        ("urn:bob", "bob"),
        (' type="s"', ""),
        (' type="s"', ' type=" "'),
        ("urn:agreement", "agreement"),
        ("m1@example.com", "m1"),
        ("05:40:37.123Z", "05:40:37.123+01:00"),
        ("05:40:37.123Z", "25:40:37.123Z"),
        ('name="m"', ""),
        ("cid:p2@example.com", "cid:p1%40example.com"),
        ("cid:p2@example.com", "#body"),
        ("<eb:PartInfo/>", "<eb:PartInfo/><eb:PartInfo/>"),
        ("<eb:CollaborationInfo>", "<eb:CollaborationInfo/><eb:CollaborationInfo>"),
        ("urn:bob", "urn:" + "b" * 2000),
    ],
)
def test_whatever_is_unusual_is_left_to_the_full_reader(usual: str, other: str) -> None:
    assert usual in USER
    assert usual_user_message(parsed(USER.replace(usual, other))) is None
    assert usual_receipt(parsed(AWARENESS.replace(usual, other))) is None


@pytest.mark.parametrize(
    "unit",
    [
        f'<eb:SignalMessage>{INFO}<eb:PullRequest mpc="urn:mpc"/></eb:SignalMessage>',
        receipt(USER, INFO),
        receipt(USER + INFORMATION),
        receipt(""),
        receipt("<!-- -->"),
        receipt(f'<ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}"/>'),
        NON_REPUDIATION.replace("AQID", "?"),
        NON_REPUDIATION.replace(' URI="#a"', ""),
        NON_REPUDIATION.replace("<eb:Receipt>", '<eb:Receipt x="y">'),
        NON_REPUDIATION.replace("</ds:Reference>", "</ds:Reference><ebbp:MessagePartIdentifier/>"),
        NON_REPUDIATION.replace(INFORMATION, INFORMATION.replace(EBBP, "urn:other")),
    ],
)
def test_any_other_signal_is_left_to_the_full_reader(unit: str) -> None:
    assert usual_receipt(parsed(unit)) is None


def test_what_is_remembered_is_bounded() -> None:
    for number in range(ebms3_usual._REMEMBERED + 10):
        other = USER.replace("urn:bob", f"urn:bob:{number}").replace("orders", f"orders-{number}")
        assert usual_user_message(parsed(other)) is not None
    for remembering in (ebms3_usual._known_party, ebms3_usual._known_business):
        known = remembering.cache_info()
        assert known.currsize == known.maxsize == ebms3_usual._REMEMBERED
