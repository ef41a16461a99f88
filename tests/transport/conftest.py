"""What tests of TLS share, over HTTP and over SMTP."""

from pathlib import Path

import pytest

from tests.transport.handshakes import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Keys and certificates in a folder of the test's own."""
    return Files(tmp_path)
