"""Requests that follow each other on a connection before the first one is answered."""

import re
import socket
from typing import Final

import pytest

from tests.attack.campaign import forgeries as forge
from tests.attack.campaign.probes import read_answers, until_closed
from tests.e2e.nodes import PATIENCE, Pair

_PADDING: Final = (400_000, 0, 0, 0)
"""Bytes of white space in each request: the first one takes longest to read."""


def _pull_request(message_id: str, padding: int, *, last: bool) -> bytes:
    unit = forge.signal('<eb:PullRequest mpc="urn:example:nowhere"></eb:PullRequest>')
    unit = re.sub("<eb:MessageId>[^<]*", f"<eb:MessageId>{message_id}", unit)
    envelope = forge.soap12([forge.messaging(unit)], " " * padding)
    head = (
        "POST /msh HTTP/1.1\r\nHost: node.example\r\n"
        f"Connection: {'close' if last else 'keep-alive'}\r\n"
        f"Content-Type: application/soap+xml; charset=UTF-8\r\nContent-Length: {len(envelope)}\r\n"
    )
    return head.encode() + b"\r\n" + envelope


@pytest.mark.req("P2-6.3.1-02")
def test_pipelined_requests_are_answered_in_their_order(pair: Pair) -> None:
    names = [f"pipelined-{number}@example" for number in range(len(_PADDING))]
    door = next(one for one in pair.seller.serving.doors if "msh" in one.serve)
    host, _, port = door.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        for name, padding in zip(names, _PADDING, strict=True):
            connection.sendall(_pull_request(name, padding, last=name == names[-1]))
        answers = read_answers(until_closed(connection))
    found = [re.findall(rb'refToMessageInError="([^"]+)"', one.body) for one in answers]
    assert found == [[name.encode()] for name in names]
