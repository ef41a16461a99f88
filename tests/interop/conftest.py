"""What the interoperability tests share."""

import pytest

from tests.interop.recordings import Recorder


@pytest.fixture(scope="session")
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """Keeps messages for machines without Java, when the run has the option --record."""
    return Recorder(active=request.config.getoption("--record"))
