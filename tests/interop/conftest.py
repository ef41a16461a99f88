"""What the interoperability tests share."""

from collections.abc import Iterator

import pytest

from tests.interop.phase4_lab import SUITES, Lab, laboratory
from tests.interop.recordings import Recorder


@pytest.fixture(scope="session")
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """Keeps messages for machines without Java, when the run has the option --record."""
    return Recorder(active=request.config.getoption("--record"))


@pytest.fixture(scope="session")
def phase4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A Postroad node and phase4, started once for all tests of the group `phase4`."""
    with laboratory(tmp_path_factory.mktemp("phase4"), tuple(SUITES)) as lab:
        yield lab
