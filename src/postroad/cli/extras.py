"""Optional packages: name the extra to install where one is missing."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from postroad.cli.problems import fail

_P = ParamSpec("_P")
_T = TypeVar("_T")


def needs_extra(extra: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a command that imports packages of this extra, so that a missing one is named."""

    def decorate(command: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(command)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return command(*args, **kwargs)
            except ModuleNotFoundError as missing:
                package = (missing.name or "").partition(".")[0]
                if package in ("", "postroad"):
                    raise
                install = f"pip install 'postroad[{extra}]'"
                fail(f"the package {package} is missing. Install it with: {install}")

        return run

    return decorate
