"""The documentation site works without a network, search included, also opened as files."""

from pathlib import Path

import pytest
import yaml

from tests.conftest import PROJECT
from tests.docs.pages import pages
from tests.docs.site import problems

INDEX = "search/search_index.js"


def test_the_site_is_configured_to_load_nothing_from_elsewhere() -> None:
    site = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    extra = site["extra"]
    assert site["theme"]["font"] is False
    assert {"search", "offline"} <= set(site["plugins"])
    # Without one of this name the offline plugin adds its own, from another host.
    assert any("iframe-worker" in one for one in extra["polyfills"])
    for script in (*extra["polyfills"], *site.get("extra_javascript", ())):
        assert (PROJECT / "docs" / script).is_file(), script
    assert "extra_css" not in site


@pytest.mark.parametrize("page", pages())
def test_no_page_has_a_diagram_that_the_theme_draws(page: str) -> None:
    """Its script would come from another host."""
    assert "```mermaid" not in (PROJECT / page).read_text(encoding="utf-8")


def built(folder: Path, head: str, body: str = "", index: bool = True) -> list[str]:
    (folder / "search").mkdir()
    if index:
        (folder / INDEX).write_text("var __index = {}")
    (folder / "own.js").write_text("")
    (folder / "index.html").write_text(f"<html><head>{head}</head><body>{body}</body></html>")
    return list(problems(folder))


def test_a_built_site_with_all_its_files_is_good(tmp_path: Path) -> None:
    link = '<a href="https://elsewhere.example/">a link is followed by people only</a>'
    assert built(tmp_path, '<script src="own.js"></script>', link) == []


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ('<script src="https://elsewhere.example/x.js"></script>', ""),
        ('<script src="//elsewhere.example/x.js"></script>', ""),
        ('<link rel="stylesheet" href="https://elsewhere.example/x.css">', ""),
        ('<link href="https://elsewhere.example" rel="preconnect">', ""),
        ("", '<img src="http://elsewhere.example/x.png">'),
        ('<script src="gone.js"></script>', ""),
        ("", '<pre class="mermaid"><code>graph</code></pre>'),
    ],
)
def test_a_built_site_that_needs_a_network_is_told(tmp_path: Path, head: str, body: str) -> None:
    (said,) = built(tmp_path, head, body)
    assert said.startswith("index.html ")


def test_a_built_site_without_an_index_is_told(tmp_path: Path) -> None:
    (said,) = built(tmp_path, "", index=False)
    assert INDEX in said
