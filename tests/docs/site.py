"""The documentation as a site: what a browser loads for it, which must all lie in its folder.

`python -m tests.docs.site build/site` is part of `make docs` and ends with 1 if something is loaded
from another host or is missing, or if there is no index to search in.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
"""What a browser loads by itself, and the attribute that names it."""
_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest", "modulepreload"}
"""The kinds of `link` that it loads."""


class _Loads(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes |= set((given.get("class") or "").split())
        if tag == "link" and _LINKS & set((given.get("rel") or "").split()):
            self.found.append(given.get("href") or "")
        elif (address := given.get(_LOADED.get(tag, ""))) is not None:
            self.found.append(address)


def problems(site: Path) -> Iterator[str]:
    """What keeps a built site from working without a network."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site} has no pages"
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        for address in loads.found:
            parts = urlsplit(address)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                yield f"{page.name} loads {address} from another host"
            # The page for addresses that do not exist is for servers: its links begin with a slash.
            elif page.name != "404.html" and not (page.parent / unquote(parts.path)).is_file():
                yield f"{page.name} loads {address}, which is not there"
        if "mermaid" in loads.classes:
            yield f"{page.name} has a diagram for which the theme loads a script from another host"
    if not (site / "search" / "search_index.js").is_file():
        yield "there is no search/search_index.js: search does not work in pages opened as files"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    sys.exit("\n".join(found) or 0)
