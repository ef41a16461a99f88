"""Mutants for requirements are drawn from the functions that name them."""

from pathlib import Path

from tests.mutation.annotated import Annotated, annotated_functions, sample

_SOURCE = '''
def one():
    """Do the first thing. [P2-5.1-01, P2-5.1-02]"""


class Two:
    def second(self):
        # [MS098-8.4.1-01]
        def inner():
            """[RM001-1-01]"""

    def third(self):
        """Name what is no requirement. [P2-99-99] [UTF8-1-1]"""
'''


def _named(name: str, *ids: str) -> Annotated:
    return Annotated("m", name, range(1), frozenset(ids))


def _three_of(function: Annotated) -> list[str]:
    return [f"{function.name}__mutmut_{number}" for number in (1, 2, 3)]


def test_functions_are_found_by_the_ids_in_docstrings_and_comments(tmp_path: Path) -> None:
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "things.py").write_text(_SOURCE)
    first, second = annotated_functions(tmp_path)
    assert (first.module, first.name) == ("product.things", "product.things.x_one")
    assert (first.ids, first.documents) == ({"P2-5.1-01", "P2-5.1-02"}, {"P2"})
    assert first.lines == range(2, 4)
    assert second.name == "product.things.xǁTwoǁsecond"
    assert second.ids >= {"MS098-8.4.1-01"}


def test_each_document_has_its_turn_and_each_function_one_mutant() -> None:
    functions = [_named(f"m.x_{n}", f"P2-{n}-01") for n in range(20)]
    functions += [_named("m.x_a", "RM000-1-01"), _named("m.x_b", "RM000-1-02", "P2-1-01")]
    chosen = sample(functions, _three_of, 6, 7)
    assert sum("RM000" in "".join(ids) for ids in chosen.values()) == 2
    assert len({name.partition("__mutmut_")[0] for name in chosen}) == len(chosen) == 6
    assert sample(functions, _three_of, 6, 7) == chosen != sample(functions, _three_of, 6, 8)


def test_functions_without_mutants_are_passed_over() -> None:
    functions = [_named("m.x_a", "P2-1-01"), _named("m.x_b", "P2-1-02")]
    chosen = sample(functions, lambda one: _three_of(one) if one.name == "m.x_b" else [], 5, 1)
    assert list(chosen.values()) == [{"P2-1-02"}]
