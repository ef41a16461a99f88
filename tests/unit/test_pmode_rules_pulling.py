"""The rules about what is pulled: who may, from where, under which name."""

import pytest

from postroad.agreement.breach import Level
from tests.unit.pmode_breaches import EPR, PULLED, PULLS, SIGNED, breach, broken, leg, pulled


def test_authorization_needs_credentials() -> None:
    text = PULLED.replace("{send", "{pmode_authorize: true, send")
    assert broken(text) == []
    without = text.replace(", authorization: {username: u, password: p}", "")
    assert any("Authorization to check" in one.message for one in broken(without))


@pytest.mark.parametrize(
    "text",
    ["pulling: {interval: PT5S}", "business_info: {sub_mpc_ext: s}"],
)
def test_what_is_about_pulling_is_for_what_is_pulled(text: str) -> None:
    line, said = breach(leg(text))
    assert (line, said.partition(": ")[2]) == (5, "the messages of this leg are not pulled")
    assert broken(PULLED + f"    {text}\n") == []


def test_authorization_is_for_what_is_pulled() -> None:
    text = PULLED.replace("{send", "{pmode_authorize: true, send").replace("callback", "response")
    assert breach(text.replace("binding: pull", "binding: push"))[0] == 6


def test_nobody_pulls_where_nothing_says_who_may() -> None:
    text = PULLED.replace(", authorization: {username: u, password: p}", "")
    assert "so nobody may" in breach(text, Level.WARNING)[1]
    for more in (f"    security: {{{SIGNED}, send_receipt: true}}\n",):
        signed = text.partition("  - security")[0] + "  - {}\n"
        assert broken(signed.replace("  - {}\n", "  -\n" + more)) == []


def test_what_is_pulled_without_receipts_gets_a_warning() -> None:
    text = PULLED.replace("send_receipt: {reply_pattern: callback}", "send_receipt: false")
    assert "arrived or not" in breach(text, Level.WARNING)[1]


def test_pulled_messages_keep_no_order_of_conversations() -> None:
    text = PULLED + "    reception_awareness: {in_order: conversation}\n"
    assert breach(text)[0] == 7


@pytest.mark.parametrize("extension", ["/s", "s/", "a b", "..", "a/../b", "a?b", "a#b", "a//b"])
def test_a_sub_channel_is_a_path(extension: str) -> None:
    text = PULLED + f"    business_info: {{sub_mpc_ext: '{extension}'}}\n"
    assert "no path that could be added" in breach(text)[1]


@pytest.mark.req("P2-2.5.4-06")
@pytest.mark.parametrize("end", ["?orders", "#orders"])
def test_a_channel_that_does_not_end_with_its_path_has_no_sub_channels(end: str) -> None:
    info = f"business_info: {{mpc: 'http://buyer.example/mpc{end}', sub_mpc_ext: north}}"
    assert "has no sub-channels" in breach(f"{PULLED}    {info}\n")[1]


def test_a_password_in_the_clear_goes_over_tls() -> None:
    text = PULLED + "    pulling: {digest: false}\n    protocol: {address: %s://x.example}\n"
    assert "over http: in clear" in breach(text % "http", Level.WARNING)[1]
    assert broken(text % "https") == []


@pytest.mark.req("P2-2.7.1.4-02")
def test_routing_of_pull_requests_is_for_what_is_pulled_between_known_parties() -> None:
    text = f"addressing: {EPR}"
    assert breach(leg(text))[1].endswith("nothing of this leg is pulled")
    assert "could be routed by" in breach(pulled("addressing: {action: 'urn:x'}"))[1]
    unknown = PULLS.replace("responder: {party: urn:globex}", "responder: {role: x}")
    found = [one.message for one in broken(leg(text, unknown + "mep_binding: pull\n"))]
    assert any("parties that are known" in one for one in found)
