"""Nobody but its owner reads the data folder of a served node, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.store.interface import StoreError
from postroad.store.private import make_private
from tests.e2e.nodes import Served, postroad
from tests.ports import free_port

NO_RIGHTS = Path("/proc/self/task")
"""A folder that everybody can enter and whose access rights not even root can change."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    """A node that sends to itself; the processes of this test give all rights to everybody."""
    made = postroad("init", tmp_path / "a", "--port", str(free_port()))
    assert made.exit_code == 0, made.output
    served = Served("a", tmp_path / "a")
    before = os.umask(0)
    try:
        yield served
    finally:
        os.umask(before)
        if served.process is not None:
            served.process.kill()


def readable_by_others(folder: Path) -> list[Path]:
    return [
        path
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]


def test_data_folder_is_private_with_all_its_files(node: Served, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(2 << 20))
    node.start()
    for payload in (node.folder / "order.xml", large):
        sent = node.run("send", "--pmode", "a-to-a-order", "--payload", payload, "--wait")
        assert sent.exit_code == 0, sent.output
    assert (node.data / "postroad.db-wal").exists()
    assert readable_by_others(node.data) == []

    node.end()
    for path in (node.data, *node.data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    node.start()
    assert readable_by_others(node.data) == []
    assert f"Other users could enter {node.data}." in node.log


@pytest.mark.skipif(not NO_RIGHTS.is_dir(), reason="needs the folder /proc of Linux")
def test_folder_whose_rights_cannot_be_changed_is_refused(node: Served) -> None:
    text = node.config.read_text()
    node.config.write_text(text.replace("\ndata: data", f"\ndata: {NO_RIGHTS}"))
    refused = node.run("serve")
    assert refused.exit_code == 1
    assert f"Run as its owner: chmod 700 {NO_RIGHTS}" in refused.stderr
    with pytest.raises(StoreError, match="Other users can enter"):
        make_private(NO_RIGHTS)
