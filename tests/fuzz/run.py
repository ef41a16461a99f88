"""Fuzz the readers with atheris (libFuzzer) for a given time: `make fuzz SECONDS=60`.

Each target runs in a process of its own, for its share of the time, from seeds that this project
writes itself and from recorded messages where they lie beside it. What a run learns stays in
build/fuzz/corpus and is where the next one starts. An input that makes a reader stumble, take
too long or too much memory is saved under build/fuzz/found; its path is printed and the exit
code is 1.

    python tests/fuzz/run.py --seconds 60 [--target NAME]
    python tests/fuzz/run.py --target NAME --input FILE     to see one input again
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = PROJECT / "build" / "fuzz"
VECTORS: Final = PROJECT.parent / "shared" / "vectors"
sys.path.insert(0, str(PROJECT))

_NAMES: Final = (
    "inspect",
    "inspect_strictly",
    "envelope",
    "multipart",
    "http",
    "keystore",
    "pmodes",
)
_LARGEST_SEED: Final = 64 * 1024
_MOST_MIB: Final = 2048
_SLOWEST_INPUT: Final = 10
_GRACE: Final = 60
"""Seconds beyond its share after which a target that does not end by itself is ended."""


def main() -> int:
    arguments = argparse.ArgumentParser(description="Fuzz the readers.")
    arguments.add_argument("--seconds", type=int, default=60, help="for all targets together")
    arguments.add_argument("--target", choices=_NAMES, help="only this one")
    arguments.add_argument("--input", type=Path, help="give this file to the target, once")
    arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        _fuzz(given.target, given.seconds)
    elif given.input is not None:
        if given.target is None:
            arguments.error("--input needs --target")
        _once(given.target, given.input)
    else:
        names = [given.target] if given.target else list(_NAMES)
        return _run(names, max(1, given.seconds // len(names)))
    return 0


def _once(name: str, path: Path) -> None:
    from tests.fuzz.targets import TARGETS

    TARGETS[name](path.read_bytes())


def _run(names: list[str], seconds: int) -> int:
    """Fuzz one target after the other; 1 when any of them found something."""
    found: dict[str, list[Path]] = {}
    for name in names:
        before = set(_findings(name))
        failed = not _child_went_well(name, seconds)
        new = [path for path in _findings(name) if path not in before]
        if failed or new:
            found[name] = new
    for name, paths in found.items():
        for path in paths or [BUILD / f"{name}.log"]:
            print(f"{name}: {path.relative_to(PROJECT)}", file=sys.stderr)
    return 1 if found else 0


def _findings(name: str) -> list[Path]:
    return sorted((BUILD / "found").glob(f"{name}-*"))


def _child_went_well(name: str, seconds: int) -> bool:
    (BUILD / "found").mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{name}.log"
    command = [sys.executable, __file__, "--child", "--target", name, "--seconds", str(seconds)]
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                cwd=PROJECT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds + _GRACE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{name}: did not end by itself", flush=True)
            return False
    lines = log.read_text(errors="replace").splitlines()
    told = [line for line in lines if line.startswith(("Done ", "stat::number_of_executed_units"))]
    print(f"{name}: {told[-1] if told else 'failed'}", flush=True)
    if done.returncode != 0:
        print("\n".join(lines[-30:]), file=sys.stderr)
    return done.returncode == 0


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which atheris ends."""
    import atheris

    with atheris.instrument_imports(include=["postroad"]):
        from tests.fuzz.targets import TARGETS, seeds
    from tests.fuzz.words import dictionary

    corpus, start = BUILD / "corpus" / name, BUILD / "seeds" / name
    for folder in (corpus, start):
        folder.mkdir(parents=True, exist_ok=True)
    for seed, data in {**seeds(name), **_recorded(name)}.items():
        (start / seed).write_bytes(data)
    words = BUILD / "words.dict"
    words.write_text(dictionary())
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={_SLOWEST_INPUT}",
        f"-rss_limit_mb={_MOST_MIB}",
        f"-max_len={_LARGEST_SEED}",
        f"-dict={words}",
        f"-artifact_prefix={BUILD / 'found' / name}-",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus), str(start)], TARGETS[name])
    atheris.Fuzz()


def _recorded(name: str) -> dict[str, bytes]:
    """Messages that other software wrote, where they are there and of use to the target."""
    if name in ("keystore", "pmodes") or not VECTORS.is_dir():
        return {}
    paths = [path for path in sorted(VECTORS.rglob("*")) if path.is_file()]
    return {
        "-".join(path.relative_to(VECTORS).parts): path.read_bytes()
        for path in paths
        if path.stat().st_size <= _LARGEST_SEED
    }


if __name__ == "__main__":
    sys.exit(main())
