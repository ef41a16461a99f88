"""The process that fuzzes one target; `tests.fuzz.run` starts it.

python -m tests.fuzz.process TARGET [OPTION OF LIBFUZZER]...
"""

import mmap
import shutil
import sys
from random import Random
from typing import Final

import atheris

from tests.fuzz import corpora
from tests.fuzz.corpora import BUILD, last_input_file

with atheris.instrument_imports(include=["postroad"]):
    from tests.fuzz.mutations import mutate
    from tests.fuzz.targets import TARGETS, seeds
    from tests.fuzz.words import dictionary

_OF_LIBFUZZER: Final = 0.5
"""The share of changes that are libFuzzer's own; ours know XML, MIME and base64."""
_LARGEST: Final = 2**20


def fuzz(name: str, options: list[str]) -> None:
    """Fuzz a target; libFuzzer ends the process."""
    corpus, start = BUILD / "corpus" / name, BUILD / "seeds" / name
    shutil.rmtree(start, ignore_errors=True)
    for folder in (corpus, start):
        folder.mkdir(parents=True, exist_ok=True)
    for seed, data in {**seeds(name), **corpora.read(name)}.items():
        (start / seed).write_bytes(data)
    words = BUILD / "words.dict"
    words.write_text(dictionary())
    target, others, last = TARGETS[name], list(seeds(name).values()), _last_input(name)

    def run(data: bytes) -> None:
        last[: 4 + len(data)] = len(data).to_bytes(4, "little") + data
        target(data)

    def change(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < _OF_LIBFUZZER:
            return bytes(atheris.Mutate(data, most))
        return mutate(random, data, others)[:most]

    # libFuzzer starts the process again by its first argument when it merges corpora.
    again = f"{sys.executable} -m tests.fuzz.process {name}"
    arguments = [again, f"-dict={words}", *options, str(corpus), str(start)]
    atheris.Setup(arguments, run, custom_mutator=change)
    atheris.Fuzz()


def _last_input(name: str) -> mmap.mmap:
    """Open the file of the running input in shared memory, which outlives this process.

    It keeps its size: another process of the same target may have it open too.
    """
    with last_input_file(BUILD, name).open("a+b") as file:
        file.truncate(4 + _LARGEST)
        return mmap.mmap(file.fileno(), 0)


if __name__ == "__main__":
    fuzz(sys.argv[1], sys.argv[2:])
