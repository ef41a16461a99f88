"""A large message survives the death of both nodes, and a cut costs no more than its fragment."""

import random
from pathlib import Path

import pytest

from postroad.cli.demo.large import DRAWINGS
from postroad.cli.demo.nodes import Line, Road
from tests.crash.large import NAME, kill_through, large_pair, write_file
from tests.e2e.nodes import PATIENCE, started

SEED = 20261116
MIB = 1 << 20
ENVELOPES = 16 * 1024
"""What stands around the data of a fragment, at most."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("algorithm", [None, "gzip"])
def test_a_large_message_arrives_once_though_both_nodes_are_killed(
    tmp_path: Path, algorithm: str | None
) -> None:
    outcome = kill_through(tmp_path, 64, kills=4, fragment="2 MiB", seed=SEED, algorithm=algorithm)
    assert outcome.findings == []
    assert outcome.kills == ["buyer", "seller", "buyer", "buyer", "seller"]
    assert outcome.deliveries == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("restart", [False, True])
def test_after_a_cut_no_more_than_what_was_cut_off_is_sent_again(
    tmp_path: Path, restart: bool
) -> None:
    """Without restart that is one fragment for each connection, with it less than one MiB."""
    dice, size, fragment = random.Random(SEED), 48, 4
    pair = large_pair(tmp_path, f"{fragment} MiB")
    write_file(tmp_path / "drawings", size, dice)
    line = Line(*(dice.randrange(2 * MIB, 20 * MIB) for _ in range(2)))
    pmode = pair.buyer.folder / f"pmodes/{DRAWINGS}.yaml"
    try:
        there = pmode.read_text().split("address: ")[1].split()[0]
        with Road(there, line.carry) as road:
            for one in (pair.buyer, pair.seller):
                file = one.folder / f"pmodes/{DRAWINGS}.yaml"
                text = file.read_text().replace(f"address: {there}", f"address: {road.url}")
                if restart:
                    text = text.replace("protocol:\n", "protocol:\n    restart: true\n")
                file.write_text(text)
            started(pair)
            with pair.buyer.client() as client:
                client.send(pmode=DRAWINGS, payloads=[tmp_path / "drawings"], message_id=NAME)
                assert client.wait(NAME, PATIENCE).state == "acknowledged"
    finally:
        pair.end()
    again = line.bytes - size * MIB
    assert line.cuts == []
    assert line.lost > 0
    envelopes = (size // fragment + 1 + line.lost) * ENVELOPES
    each = MIB if restart else fragment * MIB
    assert again <= line.lost * each + envelopes
