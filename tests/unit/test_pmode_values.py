"""The values that P-Mode parameters take, and how they are written."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroad.agreement.algorithms import ALGORITHMS, WEAK, algorithm_uri, short_name, strength
from postroad.agreement.awareness import DetectionParameters, RetryParameters
from postroad.agreement.pmode import (
    AtLeastOnceContract,
    Bundling,
    Contract,
    MepBinding,
    Ordering,
    PMode,
    Protocol,
    Reliability,
    Restart,
    TransportSecurity,
)
from postroad.agreement.pmode_security import Encryption, SendReceipt, Signature, UsernameToken
from postroad.agreement.values import format_duration, format_size, parse_duration, parse_size
from postroad.wire.names import DEFAULT_MPC, ONE_WAY, PUSH, SYNC, TWO_WAY, WSR, WSRM, XENC, XENC11


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10 MiB", 10 * 1024**2),
        ("4kB", 4000),
        ("10Mb", 10_000_000),
        ("1.5 GiB", 3 * 1024**3 // 2),
        ("17 B", 17),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["10", "MiB", "-1 kB", "1 XB", "1e3 kB", ""])
def test_a_size_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_printed_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT30S", timedelta(seconds=30)),
        ("P7D", timedelta(days=7)),
        ("P2W", timedelta(weeks=2)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("pt1m", timedelta(minutes=1)),
    ],
)
def test_durations_are_iso_8601(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1M", "P1Y", "30", "7D", "PT1H30", "", "P99999999999D"]
)
def test_what_is_no_duration_of_fixed_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an ISO 8601 duration"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=999_999)))
def test_a_printed_duration_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_fixed_uris_have_short_names() -> None:
    assert MepBinding(value="push").value == PUSH
    assert MepBinding.model_validate("Sync").value == SYNC
    assert PMode(id="a", mep="two-way", legs=({},)).mep == TWO_WAY
    as4_feature = "http://www.oasis-open.org/committees/ebxml-msg/one-way"
    assert PMode(id="a", mep=as4_feature, legs=({},)).mep == ONE_WAY


def test_reliability_protocols_are_the_two_that_the_specification_names() -> None:
    assert Reliability(protocol="http://docs.oasis-open.org/ws-rx/wsrm/200702").protocol == WSRM
    assert Reliability(protocol="wsrm").protocol == WSRM
    uri = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
    assert Reliability(protocol=uri).protocol == WSR
    with pytest.raises(ValidationError, match="known: wsrm, ws-reliability"):
        Reliability(protocol="http://example.com/other")


def test_the_default_mpc_has_a_short_name() -> None:
    pmode = PMode.model_validate({"id": "a", "legs": [{"business_info": {"mpc": "default"}}]})
    assert pmode.legs[0].business_info is not None
    assert pmode.legs[0].business_info.mpc == DEFAULT_MPC


def test_algorithms_are_kept_as_uris() -> None:
    assert Encryption(algorithm="aes128-gcm").algorithm == XENC11 + "aes128-gcm"
    assert Encryption(algorithm=XENC11 + "aes128-gcm").algorithm == XENC11 + "aes128-gcm"
    assert Encryption(key_transport="RSA-1.5").key_transport == XENC + "rsa-1_5"


def test_an_algorithm_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="is no signature algorithm known here"):
        Signature(algorithm="sha256")


def test_every_algorithm_has_one_name_and_the_weak_ones_are_known() -> None:
    uris = [uri for names in ALGORITHMS.values() for uri in names.values()]
    assert len(uris) == len(set(uris))
    weak = {short_name(uri) for uri in WEAK}
    assert {"rsa-sha1", "md5", "rsa-1_5", "aes128-cbc", "tripledes-cbc"} <= weak
    for kind, names in ALGORITHMS.items():
        for short, uri in names.items():
            assert algorithm_uri(kind, short) == uri
            assert short_name(uri) == short


def test_encryption_algorithms_have_a_strength() -> None:
    assert {strength(uri) for uri in ALGORITHMS["encryption"].values()} == {112, 128, 192, 256}


def test_as4_parameter_strings_are_understood() -> None:
    retry = RetryParameters.model_validate("maxretries=10,period=3000")
    assert (retry.max_retries, retry.period) == (10, timedelta(seconds=3))
    detection = DetectionParameters.model_validate("maxsize=10Mb;checkwindow=7D")
    assert (detection.max_size, detection.check_window) == (10_000_000, timedelta(days=7))


@pytest.mark.parametrize(
    "text", ["maxretries", "tries=3", "maxretries=1,maxretries=2", "period=soon", "maxretries=x"]
)
def test_other_parameter_strings_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        RetryParameters.model_validate(text)


def test_defaults_are_those_of_the_specification() -> None:
    assert Bundling().policy == "never"
    assert Ordering().policy == "undefined"
    assert MepBinding(value="push").pipelining is False
    assert Restart().protocol == "as2-restart"
    assert AtLeastOnceContract().reliable_pull is True


def test_restart_is_off_where_nothing_is_said_of_it() -> None:
    assert Protocol().restart is None


def test_token_defaults_guard_against_replay() -> None:
    token = UsernameToken(username="u", password="p")
    assert token.digest
    assert token.nonce
    assert token.created


def test_a_switch_is_on_when_its_group_is_there() -> None:
    assert SendReceipt.model_validate({"non_repudiation": True}).enabled
    assert SendReceipt.model_validate(False).enabled is False
    assert Contract.model_validate("true").contract


def test_old_tls_is_not_to_be_had() -> None:
    for version in ("1.0", "1.1"):
        with pytest.raises(ValidationError):
            TransportSecurity(protocol="TLS", protocol_version=version)


def test_a_password_is_not_shown_by_accident() -> None:
    token = UsernameToken(username="u", password="correct horse")
    assert "horse" not in repr(token) + str(token) + token.model_dump_json() + str(
        token.model_dump()
    )


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError):
        PMode(id="a", legs=({},)).id = "b"  # type: ignore[misc]
