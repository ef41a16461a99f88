"""All routes of an application, however deep its routers are."""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import FastAPI


def calls(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of everything that can be called."""
    return sorted((method, path) for path, methods in _routes(app.routes) for method in methods)


def filled(path: str) -> str:
    """A path that could be asked for."""
    given = {"message_id": "m", "signal_id": "s", "number": 1, "notice": 1}
    return path.format(**given, partner="p", pmode="p")


def _routes(routes: Iterable[Any]) -> Iterator[tuple[str, set[str]]]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _routes(inner.routes)
        else:
            yield route.path, getattr(route, "methods", None) or {"GET"}
