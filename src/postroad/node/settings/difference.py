"""Settings that changed in the node's file since the node started: they need a restart."""

from collections.abc import Iterator
from typing import Any

from postroad.node.service import NotInForce
from postroad.node.settings.config import Config, ConfigError, load_config, setting_name
from postroad.node.settings.reloading import Print, file_print

_RESTART = "restart the node"


class FileDifference:
    """Compares the node's file with the settings in force, again when the file changed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._seen: Print | bool = False
        """How the file was when it was last compared; False: it was not."""
        self._found: tuple[NotInForce, ...] = ()

    def found(self) -> tuple[NotInForce, ...]:
        """What the file says and the node does not do; nothing where there is no file."""
        file = self._config.file
        if file is None:
            return ()
        seen = file_print(file)
        if seen != self._seen:
            self._seen, self._found = seen, tuple(self._compare())
        return self._found

    def _compare(self) -> Iterator[NotInForce]:
        assert self._config.file is not None
        name = self._config.file.name
        try:
            now = load_config(self._config.file)
        except ConfigError as error:
            to_do = "correct it: the node would not start with it"
            for problem in error.problems:
                yield NotInForce(name, f"line {problem.line}: {problem.message}", to_do)
            return
        for place in _differing(self._config.model_dump(), now.model_dump()):
            yield NotInForce(name, f"{setting_name(place)} was changed", _RESTART)


def _differing(old: Any, new: Any, place: tuple[str | int, ...] = ()) -> Iterator[Any]:
    """The innermost settings that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _differing(old.get(key), new.get(key), (*place, key))
    elif isinstance(old, tuple | list) and isinstance(new, tuple | list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differing(one, other, (*place, number))
    elif old != new:
        yield place
