"""Agreements that other products come with are imported, or refused with a reason."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroad.agreement.importing import import_pmodes, imported_yaml
from postroad.agreement.loading import load_pmodes
from tests.conftest import VECTORS

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded files are not there")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FILES = sorted([*(VECTORS / "cpa").glob("*.xml"), *(VECTORS / "pmodes").glob("*/*.xml")])
REFUSED = {
    "domibus-configuration-long-names",
    "domibus-configuration-maxsize-negative",
    "domibus-configuration-maxsize-overflow",
    "domibus-configuration-valid-testservice",
    "domibus-configuration-xsd-not-compliant",
    "domibus-pmode-AS4-entities-validation-blue",
    "domibus-pmode-duplicate-entities-validation-blue",
    "domibus-pmode-identifier-validation-blue",
    "domibus-pmode-validation-tests-issues",
}
"""Of these nothing can come."""


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_file_of_another_product_is_imported_or_refused_with_a_reason(file: Path) -> None:
    found = import_pmodes(file.read_bytes(), file.name, now=NOW)
    assert bool(found.pmodes) is (file.stem not in REFUSED)
    if found.pmodes:
        result = load_pmodes(imported_yaml(found, file.name), "imported.yaml")
        assert result.errors == ()
        assert len(result.pmodes) == len(found.pmodes)
    else:
        assert found.problems
    assert all(remark.line >= 1 and remark.message for remark in (*found.notes, *found.problems))
