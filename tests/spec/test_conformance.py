"""The count of shown requirements counts what it says."""

import json

import pytest

from tests.spec.conformance import LEVELS, REQUIREMENTS, load

FIRST, SECOND, THIRD = "P2-2.5.5-03", "P2-2.5.5-04", "P2-2.5.5-05"

ON_PRODUCT = "tests/node/test_shown.py"
"""Where tests of the product lie."""
TESTS = f"""
import pytest

@pytest.mark.req("{FIRST}")
def test_passes(): pass

@pytest.mark.req("{SECOND}")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_which_one_case_fails(n): assert n < 3

@pytest.mark.req("{THIRD}", "P2-2.5.5-01")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_which_all_cases_pass(n): pass

@pytest.mark.req("P2-2.4.5-01")
def test_fails(): assert False

@pytest.mark.req("P2-2.4.5-01")
def test_passes_but_its_requirement_failed_elsewhere(): pass

@pytest.mark.req("P2-2.4.5-02")
@pytest.mark.skip
def test_skipped(): pass

@pytest.mark.req("P2-2.4.5-03")
@pytest.mark.xfail
def test_expected_to_fail(): assert False

@pytest.mark.req("P2-2.4.5-10")
@pytest.mark.xfail(strict=False)
def test_expected_to_fail_but_passes(): pass

@pytest.fixture
def breaks_later():
    yield
    raise RuntimeError

@pytest.mark.req("P2-2.4.5-04")
def test_whose_teardown_fails(breaks_later): pass

@pytest.mark.req("P2-2.4.5-05")
class TestMarkedAsAWhole:
    def test_passes(self): pass
"""


def _write(pytester: pytest.Pytester, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "tests.spec.conformance", *options)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_requirement_is_shown_by_passing_tests_only(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    _write(pytester, {ON_PRODUCT: TESTS})
    _run(pytester, "--conformance", "build/conformance.json", *workers)
    result = json.loads((pytester.path / "build" / "conformance.json").read_text())
    missing = set(result.pop("missing"))
    assert result.pop("unit_only") == []
    assert {FIRST, THIRD, "P2-2.5.5-01"} & missing == set()
    assert {SECOND, *(f"P2-2.4.5-{n}" for n in ("01", "02", "03", "04", "10"))} <= missing
    assert result["P2"]["MUST"] == {"total": 325, "testable": 317, "shown": 3, "unit_only": 0}
    assert result["P2"]["SHOULD"]["shown"] == 1
    assert result["MS098"]["MUST"]["shown"] == 0


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_requirement_of_inner_functions_or_of_another_protocol_is_unit_only(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    """Unit tests show no product, AS4 messages nothing of the older ebXML."""
    ids = (FIRST, SECOND, THIRD, "MS098-8.4.1-01", "MS098-8.4.1-02", "RM001-2.1-05")
    marked = "import pytest\n" + "\n".join(
        f"@pytest.mark.req({one!r})\ndef test_{number}(): assert {number} != 2"
        for number, one in enumerate(ids)
    )
    of = dict(zip(ids, marked.split("@")[1:], strict=True))
    head = "import pytest\n@"
    _write(
        pytester,
        {
            "tests/unit/test_all.py": marked,
            ON_PRODUCT: head + of[FIRST] + "@" + of[SECOND] + "@" + of["MS098-8.4.1-01"],
            "tests/spec/test_ms098.py": head + of["MS098-8.4.1-02"],
        },
    )
    _run(pytester, "--conformance", "result.json", *workers)
    result = json.loads((pytester.path / "result.json").read_text())
    assert set(result["unit_only"]) == {"MS098-8.4.1-01", "RM001-2.1-05"}
    assert SECOND not in result["missing"]
    assert result["P2"]["MUST"]["shown"] == 2
    assert result["MS098"]["MUST"]["shown"] == 1
    assert result["MS098"]["MUST"]["unit_only"] == 1


def test_the_file_holds_documents_levels_and_missing_ids_and_nothing_else(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    _run(pytester, "--conformance", "result.json")
    result = json.loads((pytester.path / "result.json").read_text())
    assert list(result) == [
        *("RM000", "RM001", "MS098", "P2", "OV004"),
        *("missing", "unit_only"),
    ]
    missing = result.pop("missing")
    result.pop("unit_only")
    musts = [one.id for one in load().values() if one.level == "MUST"]
    assert missing == musts
    for levels in result.values():
        assert set(levels) <= set(LEVELS)
        for counts in levels.values():
            assert set(counts) == {"total", "testable", "shown", "unit_only"}
    assert sum(c["total"] for levels in result.values() for c in levels.values()) == len(load())


def test_the_summary_is_a_table_and_the_missing_ids(pytester: pytest.Pytester) -> None:
    _write(pytester, {ON_PRODUCT: TESTS})
    result = _run(pytester, "--conformance", "result.json")
    result.stdout.fnmatch_lines(
        [
            "*conformance*",
            "document*MUST*SHOULD*MAY",
            "P2 *3 + 0 / 325*1 + 0 / 62*0 + 0 / 54",
            "3 of 721 testable MUSTs are shown on the product.",
            "MUSTs with unit tests only: 0",
            "MUSTs without*",
            "P2 *",
        ]
    )
    assert max(map(len, result.stdout.lines[-40:])) <= 120


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_an_unknown_id_fails_the_collection_and_is_named(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.req("{FIRST}", "P2-99-01")
        def test_of_nothing(): pass
        """
    )
    result = _run(pytester, *workers)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*test_of_nothing: no requirement has the id 'P2-99-01'*"])


def test_without_the_option_nothing_is_printed_or_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = _run(pytester)
    result.stdout.no_fnmatch_line("*conformance*")
    assert not list(pytester.path.glob("**/*.json"))


def test_ids_of_the_requirements_are_distinct() -> None:
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    assert len(load()) == len(lines) - 1 == 985
