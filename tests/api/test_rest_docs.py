"""The page about the REST interface is complete; that its examples run is tests/docs' to show."""

import re

from tests.api.test_access import CALLS
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "rest.md").read_text(encoding="utf-8")


def test_every_call_stands_in_the_documentation() -> None:
    for _, path in CALLS:
        for piece in re.split(r"/?\{\w+\}", path.removeprefix("/api/v1")):
            assert piece in PAGE, path
