"""The mutants that mutmut makes, all in one copy of the source.

Every function of the copy that has mutants asks which one is under test and calls it, or the
original.
"""

import ast
import difflib
import hashlib
import pickle
import random
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from mutmut.mutation.data import LineSpan
from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents


class Mutants:
    """Mutants by name, and the folder with the code that has them."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        self._source = source
        self._where: dict[str, tuple[Path, LineSpan, LineSpan]] = {}
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def modules(self, package: str) -> list[str]:
        """Return the modules of a package, by their full names."""
        paths = sorted(self._source.joinpath(*package.split(".")).rglob("*.py"))
        return [".".join(one.relative_to(self._source).with_suffix("").parts) for one in paths]

    def make(self, module: str, lines: Collection[int] | None = None) -> list[str]:
        """Make the mutants of a module, or of some lines of it, and return their names."""
        path = Path(*module.split(".")).with_suffix(".py")
        source = (self._source / path).read_text()
        made = _mutated(source, lines, self.folder.parent / "made")
        written = self.folder / path
        written.write_text(made.code)
        spans = made.line_span_by_function_name
        for name in made.mutant_names:
            original = spans[f"{name.rpartition('__mutmut_')[0]}__mutmut_orig"]
            self._where[f"{module}.{name}"] = (written, original, spans[name])
        return [f"{module}.{name}" for name in made.mutant_names]

    def difference(self, name: str) -> str:
        """What a mutant changes, as lines of a diff."""
        path, before, after = self._where[name]
        lines = path.read_text().splitlines()
        old, new = (
            [_unnamed(line) for line in lines[span.start - 1 : span.end]]
            for span in (before, after)
        )
        return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])


def spread(names: Mapping[str, Sequence[str]], count: int, seed: int) -> list[str]:
    """Choose as many mutants of each room, at even distances through its files."""
    chosen = []
    for room, of_room in names.items():
        distance = len(of_room) * len(names) / count
        start = random.Random(f"{room} {seed}").random() * distance
        chosen += [of_room[int(at)] for at in _steps(start, distance, len(of_room))]
    return chosen


def _mutated(source: str, lines: Collection[int] | None, made: Path) -> MutatedFile:
    """The code with its mutants, which take long to make: they are kept under their digest."""
    covered = None if lines is None else set(lines)
    digest = hashlib.sha256(f"{sorted(covered or ())} {source}".encode())
    kept = made / digest.hexdigest()
    if not kept.exists():
        made.mkdir(parents=True, exist_ok=True)
        mutated = mutate_file_contents("", source, covered, _enum_methods(source))
        kept.write_bytes(pickle.dumps(mutated))
    found: MutatedFile = pickle.loads(kept.read_bytes())
    return found


def _enum_methods(source: str) -> set[int]:
    """Where methods of enums begin: they are called before the class has its mutants."""
    return {
        method.lineno
        for kind in ast.walk(ast.parse(source))
        if isinstance(kind, ast.ClassDef)
        and any(ast.unparse(base).endswith("Enum") for base in kind.bases)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
    }


def _steps(start: float, distance: float, end: int) -> list[float]:
    return [start + n * distance for n in range(end) if start + n * distance < end]


def _unnamed(line: str) -> str:
    return re.sub(r"x[_ǁ](\S*?)__mutmut_(orig|\d+)", r"\1", line)
