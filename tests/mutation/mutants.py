"""The mutants that mutmut makes of some rooms, all in one copy of the source.

Every function of the copy asks which mutant is under test and calls it, or the original.
"""

import ast
import difflib
import hashlib
import pickle
import random
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from mutmut.mutation.data import LineSpan
from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents


class Mutants:
    """Mutants by name, and the folder with the code that has them."""

    def __init__(
        self, source: Path, folder: Path, rooms: tuple[str, ...], only: Collection[str] = ()
    ) -> None:
        """Of all modules of the rooms, or only of those that have some named mutants."""
        self.folder = folder
        self._where: dict[str, tuple[Path, LineSpan, LineSpan]] = {}
        self._of_room: dict[str, list[str]] = {room: [] for room in rooms}
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for room in rooms:
            for path in sorted((folder / "postroad" / room).rglob("*.py")):
                module = ".".join(path.relative_to(folder).with_suffix("").parts)
                if not only or any(name.rpartition(".")[0] == module for name in only):
                    self._mutate(path, room, module)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def sample(self, count: int, seed: int) -> list[str]:
        """As many of each room, at even distances through its files."""
        chosen = []
        for room, names in self._of_room.items():
            distance = len(names) * len(self._of_room) / count
            start = random.Random(f"{room} {seed}").random() * distance
            chosen += [names[int(at)] for at in _steps(start, distance, len(names))]
        return chosen

    def difference(self, name: str) -> str:
        """What a mutant changes, as lines of a diff."""
        path, before, after = self._where[name]
        lines = path.read_text().splitlines()
        old, new = (
            [_unnamed(line) for line in lines[span.start - 1 : span.end]]
            for span in (before, after)
        )
        return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])

    def _mutate(self, path: Path, room: str, module: str) -> None:
        made = _mutated(path.read_text(), self.folder.parent / "made")
        path.write_text(made.code)
        for name in made.mutant_names:
            spans = made.line_span_by_function_name
            original = spans[f"{name.rpartition('__mutmut_')[0]}__mutmut_orig"]
            self._where[f"{module}.{name}"] = (path, original, spans[name])
            self._of_room[room].append(f"{module}.{name}")


def _mutated(source: str, made: Path) -> MutatedFile:
    """The code with its mutants, which take long to make: they are kept under their digest."""
    kept = made / hashlib.sha256(source.encode()).hexdigest()
    if not kept.exists():
        made.mkdir(parents=True, exist_ok=True)
        mutated = mutate_file_contents("", source, None, _enum_methods(source))
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
