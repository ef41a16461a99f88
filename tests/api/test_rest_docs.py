"""The examples of the documentation run as they stand."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from postroad.node.service import Service, Submitted
from tests.api.conftest import TOKEN, Serve
from tests.api.site import Site
from tests.api.test_access import CALLS
from tests.api.world import Faulty, Given, World
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "rest.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def partner(site: Site, world: World, serve: Serve, service: Service) -> None:
    """A seller who acknowledges everything at once, and who sent an invoice."""

    async def submit(submission: Any) -> Submitted:
        submitted = await service.submit(submission)
        if not submitted.repeated:
            await world.acknowledge(submitted.message.message_id)
        return submitted

    serve(Faulty(service, submit=submit))
    site.run(world.deliver([Given(b"<invoice/>")], "invoice-1@seller.example"))


@pytest.mark.usefixtures("partner")
def test_the_examples_with_curl_run(site: Site, tmp_path: Path) -> None:
    environment = os.environ | {"POSTROAD_URL": site.url, "POSTROAD_TOKEN": TOKEN}
    blocks = _blocks("sh")
    assert len(blocks) >= 7
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "invoice.xml").read_bytes() == b"<invoice/>"


@pytest.mark.usefixtures("partner")
def test_the_examples_in_python_run(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.xml").write_text("<order/>")
    monkeypatch.setenv("POSTROAD_URL", site.url)
    monkeypatch.setenv("POSTROAD_TOKEN", TOKEN)
    names: dict[str, Any] = {}
    for block in _blocks("python"):
        exec(compile(block, "rest.md", "exec"), names)
    printed = capsys.readouterr().out
    assert " acknowledged\n" in printed
    assert "409 " in printed
    assert (tmp_path / "proof.zip").exists()
    assert len(list(tmp_path.glob("*.bin"))) == 1


def test_every_call_stands_in_the_documentation() -> None:
    for _, path in CALLS:
        last = path.removeprefix("/api/v1").split("/{")[0]
        assert last in PAGE, path
