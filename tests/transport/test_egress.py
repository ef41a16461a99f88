"""The egress policy on real sockets: names are resolved once, and what was checked is connected."""

import socket
from ipaddress import ip_network
from typing import Any

import pytest

from postroad.security.egress import EgressPolicy, Listener, Purpose
from postroad.transport.egress import is_local
from postroad.transport.http_client import HttpClient, parse_address
from tests.transport.posting import failure, outgoing
from tests.transport.wires import Seen, in_loop, run, serving


@in_loop
async def test_a_connection_for_one_purpose_is_not_used_for_another() -> None:
    app = Seen()
    async with serving(app) as server, HttpClient(egress=EgressPolicy) as client:
        assert (await client.post(outgoing(server.url))).status == 200
        refused = await failure(client, outgoing(server.url, purpose=Purpose.CALLBACK))
        assert (refused.kind, refused.transmitted) == ("egress", False)
        assert "callback refused by the egress policy: 127.0.0.1 is a loopback" in refused.reason
        assert (await client.post(outgoing(server.url))).status == 200
    assert len(app.bodies) == 2


@in_loop
async def test_a_kept_connection_to_the_nodes_own_listener_is_for_its_endpoint_alone() -> None:
    app = Seen()
    async with serving(app) as server:
        own = Listener(server.host, server.port, ("/msh",), api=True)
        policy = EgressPolicy(listeners=(own,))
        async with HttpClient(egress=lambda: policy) as client:
            assert (await client.post(outgoing(f"{server.url}/msh"))).status == 200
            for path in ("/api/v1/inbox/ack?through=9", "/msh/", "/%61pi", "/msh;/api", ""):
                refused = await failure(client, outgoing(server.url + path))
                assert "is the REST interface of this node itself" in refused.reason
            assert (await client.post(outgoing(f"{server.url}/msh"))).status == 200
    assert len(app.bodies) == 2


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the second answer would be another address."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *args: Any, **more: Any) -> Any:
        if host != "rebound.example":
            return real(host, *args, **more)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.66", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    async def scenario() -> None:
        app = Seen()
        policy = EgressPolicy(callback_networks=(ip_network("127.0.0.1"),))
        async with serving(app) as server:
            url = f"http://rebound.example:{server.port}/msh"
            async with HttpClient(egress=lambda: policy) as client:
                assert (await client.post(outgoing(url, purpose=Purpose.CALLBACK))).status == 200
                assert asked == ["rebound.example"]
            async with HttpClient(egress=lambda: policy) as client:
                refused = await failure(client, outgoing(url, purpose=Purpose.CALLBACK))
                assert "127.0.0.66 (rebound.example) is a loopback address" in refused.reason
        assert len(app.bodies) == 1

    run(scenario(), "asyncio")


def test_of_several_addresses_only_those_that_are_allowed_are_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo

    def several(host: str, *args: Any, **more: Any) -> Any:
        if host != "several.example":
            return real(host, *args, **more)
        return [one for ip in ("127.0.0.66", "127.0.0.1") for one in real(ip, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", several)

    async def scenario() -> None:
        app = Seen()
        policy = EgressPolicy(denied=(ip_network("127.0.0.66"),))
        async with serving(app) as server, HttpClient(egress=lambda: policy) as client:
            url = f"http://several.example:{server.port}/msh"
            assert (await client.post(outgoing(url))).status == 200
        assert len(app.bodies) == 1

    run(scenario(), "asyncio")


def test_an_address_of_this_machine_is_known() -> None:
    assert is_local("127.0.0.1")
    assert not is_local("192.0.2.1")
    assert not is_local("no address")


def test_the_path_of_a_url_is_what_a_server_compares() -> None:
    assert parse_address("http://a.example/%6dsh?x=/api").path == "/msh"
    assert parse_address("http://a.example").path == "/"
