"""Starting and ending: signals, restarts, sudden death, several processes."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.nodes import COMMAND, Pair, Served, started, until

SOAP = b"application/soap+xml; charset=UTF-8"


def begun_request(node: Served, size: int) -> socket.socket:
    """A connection with a request whose body is still to come."""
    door = next(one for one in node.serving.doors if "msh" in one.serve)
    host, _, port = door.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(
        b"POST %s HTTP/1.1\r\nHost: here\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
        b"Expect: 100-continue\r\n\r\n" % (door.path.encode(), SOAP, size)
    )
    # The answer says that the request has reached the node.
    assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
    return connection


def told_to_stop(node: Served, number: signal.Signals) -> None:
    """Send a signal, and wait until the node has heard it, whatever else it says."""
    before = len(node.log)
    node.tell(number)
    until(lambda: "stopping" in node.log[before:], f"{node.name} was told to stop")


def test_a_signal_ends_the_node_in_good_order_and_a_restart_goes_on(pair: Pair) -> None:
    node = pair.seller
    body = b"<not-soap/>"
    with begun_request(node, len(body)) as connection:
        told_to_stop(node, signal.SIGTERM)
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"EBMS:" in answer
    assert node.ended() == 0
    assert not (node.data / "serving.json").exists()

    sent = pair.send(pair.buyer.folder / "order.xml")
    message_id = sent.stdout.strip()
    assert sent.exit_code == 0
    with pair.buyer.client() as client:
        until(lambda: client.status(message_id).attempts == 1, "the first attempt")
        assert client.status(message_id).error_code == "EBMS:0005"
    assert pair.buyer.end() == 0
    started(pair)
    again = pair.buyer.run("resend", message_id, "--wait", "30")
    assert (again.exit_code, again.stdout) == (0, f"{message_id} acknowledged\n"), again.output
    assert message_id in pair.seller.run("inbox", "list").stdout


def test_a_second_signal_ends_the_node_at_once(pair: Pair) -> None:
    node = pair.seller
    with begun_request(node, 100):
        told_to_stop(node, signal.SIGINT)
        assert node.end(signal.SIGINT) == 1
    assert not (node.data / "serving.json").exists()


def test_a_killed_receiver_loses_nothing_and_doubles_nothing(pair: Pair) -> None:
    names = [f"killed-{number}@buyer" for number in range(40)]
    payload = (pair.buyer.folder / "order.xml").read_bytes()

    def deliver(name: str) -> None:
        """As often as it takes, by the node itself or by an operator who will not wait so long."""
        with pair.buyer.client() as client:
            client.send(pmode="buyer-to-seller-order", payloads=[payload], message_id=name)
            up.result()
            while client.wait(name, 1).state != "acknowledged":
                for paused in client.partners():
                    client.resume(paused.name)
                client.resend(name)

    def die_and_rise() -> None:
        with pair.seller.client() as client:
            until(lambda: any(one.message_id in names for one in client.inbox()), "traffic")
        assert pair.seller.end(signal.SIGKILL) == -signal.SIGKILL
        pair.seller.start()

    with ThreadPoolExecutor(5) as pool:
        up = pool.submit(die_and_rise)
        for _ in pool.map(deliver, names):
            pass
        up.result()
    with pair.seller.client() as client:
        received = [one.message_id for one in client.inbox() if one.message_id in names]
        assert sorted(received) == sorted(names)
        for name in names:
            told = [one.event for one in client.events(name)]
            assert told.count("delivered") == 1, told


def children(node: Served) -> list[int]:
    assert node.process is not None
    told = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text()
    return [int(pid) for pid in told.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to see the processes")
def test_several_processes_share_the_work_and_replace_each_other(pair: Pair) -> None:
    order = pair.buyer.folder / "order.xml"
    assert pair.seller.end() == 0
    pair.seller.start("--workers", "2")
    deaths = pair.seller.log.count("a process died")
    arrived = []
    for place in (0, 1):
        before = children(pair.seller)
        assert len(before) == 2
        os.kill(before[place], signal.SIGKILL)
        for _ in range(4):
            sent = pair.send(order, "--wait")
            assert sent.exit_code == 0, sent.output
            arrived.append(sent.stdout.strip())
        until(lambda old=before: len(set(children(pair.seller)) - set(old)) == 1, "a new process")
    assert pair.seller.log.count("a process died") == deaths + 2
    listed = json.loads(pair.seller.run("inbox", "list", "--json").stdout)
    assert set(arrived) <= {one["message_id"] for one in listed}

    orphans = children(pair.seller)
    assert pair.seller.end(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), "the end of orphans")
    pair.seller.start("--workers", "2")
    assert pair.send(order, "--wait").exit_code == 0
    assert pair.seller.end() == 0


def killed_while_starting(node: Served, place: int, dead: Sequence[int] = ()) -> int:
    """Kill a process of a node that starts, as soon as it appears; its id."""
    deadline = time.monotonic() + 30
    while len(found := [pid for pid in children(node) if pid not in dead]) <= place:
        assert time.monotonic() < deadline, node.log
    os.kill(found[place], signal.SIGKILL)
    return found[place]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to see the processes")
@pytest.mark.parametrize("place", [0, 1])
def test_a_process_that_dies_while_the_node_starts_is_replaced(pair: Pair, place: int) -> None:
    assert pair.seller.end() == 0
    before = len(pair.seller.log)
    pair.seller.begin("--workers", "2")
    killed_while_starting(pair.seller, place)
    pair.seller.ready()
    assert "killed by SIGKILL" in pair.seller.log[before:]
    assert len(children(pair.seller)) == 2
    assert pair.send(pair.buyer.folder / "order.xml", "--wait").exit_code == 0
    assert pair.seller.end() == 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to see the processes")
def test_a_node_whose_processes_keep_dying_ends_with_the_reason(pair: Pair) -> None:
    assert pair.seller.end() == 0
    before = len(pair.seller.log)
    pair.seller.begin("--workers", "2")
    dead: list[int] = []
    for _ in range(5):
        dead.append(killed_while_starting(pair.seller, 0, dead))
    assert pair.seller.ended() == 1
    told = pair.seller.log[before:]
    assert "the node cannot start: its processes die before they are ready" in told
    assert "killed by SIGKILL, 5 times in a row" in told
    pair.seller.start()


def test_a_second_node_on_the_same_folder_is_refused(pair: Pair) -> None:
    second = subprocess.run(
        [COMMAND, "serve", "-c", str(pair.seller.config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert "is served already" in second.stderr
    assert f"process {pair.seller.serving.pid}" in second.stderr
    assert pair.send(pair.buyer.folder / "order.xml", "--wait").exit_code == 0
