"""What all tests share: the conformance count, the recorded messages, how hard hypothesis tries."""

import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.spec.conformance"]

PROJECT: Final = Path(__file__).resolve().parents[1]
VECTORS: Final = PROJECT.parent / "shared" / "vectors"
"""Messages that other software wrote; they lie beside the project, not in it."""

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=3000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of recorded messages; a test that needs it is skipped where it is absent."""
    if not VECTORS.is_dir():
        pytest.skip("the recorded messages are not there")
    return VECTORS
