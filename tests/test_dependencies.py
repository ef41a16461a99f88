"""The locked dependencies: exact versions with hashes, and what is installed is what is locked."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = (PROJECT / "constraints.txt", *sorted((PROJECT / "constraints").glob("*.txt")))
_PIN: Final = re.compile(r"([a-z0-9-]+)==([a-z0-9.]+)(?: ; ([^\\]+?))? \\\n((?:    --hash=.*\n?)+)")
_HASHES: Final = re.compile(r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\\n|\n))+")
_FIXED: Final = {"setuptools": (78, 1, 1), "pip": (25, 3)}
"""The first versions without the vulnerabilities that are published of older ones."""


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_an_exact_version_and_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    pins = list(_PIN.finditer(text))

    assert "".join(pin[0] for pin in pins) == text
    assert all(_HASHES.fullmatch(pin[4]) for pin in pins)
    assert "://" not in text


def test_a_package_has_the_same_version_in_every_lock() -> None:
    versions: dict[tuple[str, str | None], set[str]] = {}
    for lock in LOCKS:
        for pin in _PIN.finditer(lock.read_text()):
            versions.setdefault((pin[1], pin[3]), set()).add(pin[2])

    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
    for name, fixed in _FIXED.items():
        (version,) = versions[name, None]
        assert tuple(int(part) for part in version.split(".")) >= fixed


def test_the_product_and_the_tools_of_the_suite_run_with_the_locked_versions() -> None:
    installed = {_normal(d.metadata["Name"]): d.version for d in metadata.distributions()}
    for lock in ("constraints.txt", "constraints/build.txt", "constraints/dev.txt"):
        for pin in _PIN.finditer((PROJECT / lock).read_text()):
            if pin[1] in installed:
                assert installed[pin[1]] == pin[2], pin[1]


def test_every_dependency_of_the_project_is_locked() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    asked = list(project["project"]["dependencies"])
    for extra in ("lake", "spark", "s3"):
        asked += project["project"]["optional-dependencies"][extra]
    for group in project["dependency-groups"].values():
        asked += group
    names = {_normal(re.split(r"[<>=\[; ]", text, maxsplit=1)[0]) for text in asked}
    locked = {pin[1] for lock in LOCKS for pin in _PIN.finditer(lock.read_text())}

    assert names - {"postroad"} <= locked


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
