"""The egress policy: addresses in, a decision out."""

from ipaddress import ip_network

import pytest

from postroad.agreement.contacts import Contacts
from postroad.agreement.loading import load_pmodes
from postroad.security.egress import (
    EgressPolicy,
    Listener,
    Network,
    Purpose,
    Target,
    host_of,
    range_of,
    same_address,
    unwrapped,
)
from postroad.wire.ebms3 import PartyId


def networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(one) for one in texts)


ADDRESSES = {
    "public": ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    "loopback": ("127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"),
    "unspecified": ("0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"),
    "private": (
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("fc00::1", "fd12:3456::1", "fec0::1", "::ffff:10.1.2.3", "64:ff9b::a00:1", "::10.0.0.1"),
    ),
    "shared": ("100.64.0.1", "100.127.255.254"),
    "link-local": ("169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254"),
    "multicast": ("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),
    "documentation": ("192.0.2.1", "198.51.100.7", "203.0.113.9", "2001:db8::1", "3fff::1"),
    "benchmarking": ("198.18.0.1", "198.19.255.255"),
    "reserved": (
        *("192.0.0.8", "192.88.99.1", "240.0.0.1", "255.255.255.255"),
        *("2001::1", "2002:7f00:1::1", "64:ff9b:1::1", "100::1", "4000::1", "5f00::1"),
    ),
}


@pytest.mark.parametrize(
    ("address", "kind"),
    [(address, kind) for kind, addresses in ADDRESSES.items() for address in addresses],
)
def test_every_address_is_in_a_range_and_only_public_ones_are_called_back(
    address: str, kind: str
) -> None:
    assert range_of(unwrapped(address)) == kind
    target, policy = Target("msh.example", address, 443), EgressPolicy()
    for purpose in (Purpose.CALLBACK, Purpose.REVOCATION, Purpose.DISCOVERY):
        refusal = policy.refusal(purpose, target)
        assert (refusal is None) == (kind == "public")
        assert refusal is None or f"{address} (msh.example) is a {kind} address" in refusal
    # What the operator wrote down may be anything.
    assert policy.refusal(Purpose.PARTNER, target) is None
    assert policy.refusal(Purpose.WEBHOOK, target) is None


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("fd00::7", True),
        ("127.0.0.1", False),
        ("8.8.8.8", True),
    ],
)
def test_networks_that_are_configured_take_callbacks(address: str, allowed: bool) -> None:
    policy = EgressPolicy(callback_networks=networks("10.1.0.0/16", "fd00::/8"))
    assert (policy.refusal(Purpose.CALLBACK, Target("a", address, 80)) is None) == allowed
    # They say nothing about what certificates name.
    refusal = policy.refusal(Purpose.REVOCATION, Target("a", address, 80))
    assert (refusal is None) == (address == "8.8.8.8")


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "8.8.4.4"])
def test_a_denied_network_is_contacted_for_no_purpose(purpose: Purpose, address: str) -> None:
    denied = networks("169.254.0.0/16", "8.8.4.0/24")
    policy = EgressPolicy(denied, callback_networks=denied, partner_networks=denied)
    refusal = policy.refusal(purpose, Target(address, address, 80))
    assert refusal is not None
    assert refusal.startswith(f"{address} is in a network that security.egress.deny lists.")


def test_partners_and_webhook_can_be_kept_to_networks() -> None:
    policy = EgressPolicy(
        partner_networks=networks("8.8.8.0/24"), webhook_networks=networks("127.0.0.0/8")
    )
    public, local = Target("a", "8.8.8.8", 443), Target("b", "127.0.0.1", 80)
    assert policy.refusal(Purpose.PARTNER, public) is None
    assert policy.refusal(Purpose.WEBHOOK, local) is None
    for purpose, target in ((Purpose.PARTNER, local), (Purpose.WEBHOOK, public)):
        assert f"security.egress.{purpose.value}_networks" in (
            policy.refusal(purpose, target) or ""
        )


BOTH = Listener("127.0.0.1", 8080, ("/msh",), api=True)
MSH = Listener("192.0.2.7", 8443, ("/msh",))
ALL = Listener("0.0.0.0", 8080, ("/msh",), api=True)
NAMED = Listener("gateway.example", 443)


@pytest.mark.parametrize(
    ("listener", "target", "own"),
    [
        (BOTH, Target("a", "127.0.0.1", 8080), True),
        (BOTH, Target("a", "::ffff:127.0.0.1", 8080), True),
        (BOTH, Target("a", "0.0.0.0", 8080), True),
        (BOTH, Target("a", "127.0.0.1", 8081), False),
        (BOTH, Target("a", "127.0.0.2", 8080), False),
        (BOTH, Target("a", "8.8.8.8", 8080), False),
        (ALL, Target("a", "127.3.2.1", 8080), True),
        (ALL, Target("a", "::1", 8080), True),
        (ALL, Target("a", "8.8.8.8", 8080, local=True), True),
        (ALL, Target("a", "8.8.8.8", 8080), False),
        (Listener("::", 8080, ("/msh",), api=True), Target("a", "127.0.0.1", 8080), True),
    ],
)
def test_the_nodes_own_rest_interface_is_contacted_for_no_purpose(
    listener: Listener, target: Target, own: bool
) -> None:
    policy = EgressPolicy(
        listeners=(listener, MSH, NAMED), callback_networks=networks("0.0.0.0/0", "::/0")
    )
    for purpose in Purpose:
        refused = policy.refusal(purpose, target)
        if own:
            assert "of this node itself" in (refused or "")
        elif purpose in (Purpose.PARTNER, Purpose.WEBHOOK):
            assert refused is None


def test_a_node_may_send_to_its_own_endpoint_but_calls_nobody_back_there() -> None:
    """The samples of a party alone go from it to itself."""
    policy = EgressPolicy(listeners=(BOTH, MSH, NAMED), callback_networks=networks("0.0.0.0/0"))
    for path, allowed in (("/msh", True), ("/msh/", False), ("/msh/../api", False), ("/", False)):
        target = Target("localhost", "127.0.0.1", 8080, path)
        assert (policy.refusal(Purpose.PARTNER, target) is None) == allowed
        assert policy.refusal(Purpose.CALLBACK, target) is not None
    for target in (Target("x", "192.0.2.7", 8443), Target("Gateway.example.", "8.8.8.8", 443)):
        assert policy.refusal(Purpose.PARTNER, target) is None
        assert "a listener of this node itself" in (policy.refusal(Purpose.CALLBACK, target) or "")
    assert policy.has_port(8080)
    assert not policy.has_port(80)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://seller.example/msh", True),
        ("https://SELLER.example.:8443/other", True),
        ("http://msh.partner.example/", True),
        ("http://partner.example/", False),
        ("http://seller.example@evil.example/", False),
        ("http://seller.example.evil.example/", False),
        ("http://evil.example/?seller.example", False),
        ("http://evil.example#.partner.example", False),
        ("mailto:msh@seller.example", True),
        ("mailto:seller.example@evil.example", False),
        ("http://[::1", False),
        ("urn:seller.example", False),
        ("", False),
    ],
)
def test_a_callback_goes_to_hosts_of_the_agreement_and_of_the_configuration(
    url: str, allowed: bool
) -> None:
    policy = EgressPolicy(callback_hosts=("*.Partner.example",))
    assert policy.may_call_back(url, ["https://seller.example/msh"]) == allowed


def test_addresses_are_the_same_however_they_are_written() -> None:
    assert same_address("http://a.example/msh", "HTTP://A.example.:80/%6dsh")
    assert same_address("https://a.example", "https://a.example:443/")
    assert same_address("mailto:m@a.example", "MAILTO:m@A.example")
    for other in (
        "https://a.example/msh",
        "http://a.example:8080/msh",
        "http://a.example/msh?x",
        "http://u@a.example/msh",
        "http://b.example/msh",
        "http://[",
        "mailto:m@a.example",
    ):
        assert not same_address("http://a.example/msh", other)
    assert host_of("http://b\u00fcro.example/") == host_of("http://xn--bro-hoa.example/")


PMODES = """\
pmodes:
  - id: there
    agreement: urn:example:cpa
    initiator: {party: urn:example:us}
    responder: {party: urn:example:them}
    legs:
      - protocol: {address: https://them.example/msh}
        business_info: {service: urn:example:s, action: a}
        ebxml: {version: "1.0", transports: ["mailto:msh@them.example"]}
  - id: back
    agreement: urn:example:cpa
    initiator: {party: urn:example:them}
    responder: {party: urn:example:us}
    legs:
      - protocol: {address: https://us.example/msh}
        business_info: {service: urn:example:s, action: b}
        ebxml: {version: "1.0", reply_to: https://own.them.example/msh}
        security: {send_receipt: {reply_to: https://receipts.them.example/}}
        error_handling: {report: {receiver_errors_to: https://errors.them.example/}}
  - id: relayed
    agreement: urn:example:cpa
    legs:
      - protocol: {address: https://carrier.example/msh}
        ebxml: {version: "1.0", relay: true}
"""


def test_the_agreement_names_all_addresses_of_a_party_and_of_nobody_else() -> None:
    loaded = load_pmodes(PMODES.encode(), "all.yaml")
    assert loaded.ok, loaded.errors
    contacts = Contacts(loaded.pmodes)
    assert set(contacts.of([PartyId("urn:example:them")])) == {
        "https://them.example/msh",
        "mailto:msh@them.example",
        "https://receipts.them.example/",
        "https://errors.them.example/",
        "https://own.them.example/msh",
        "https://carrier.example/msh",
    }
    assert contacts.of([PartyId("urn:example:other")]) == ("https://carrier.example/msh",)
