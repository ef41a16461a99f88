"""The page about the REST interface is complete; that its examples run is tests/docs' to show."""

from tests.api.test_access import CALLS
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "rest.md").read_text(encoding="utf-8")


def test_every_call_stands_in_the_documentation() -> None:
    for _, path in CALLS:
        last = path.removeprefix("/api/v1").split("/{")[0]
        assert last in PAGE, path
