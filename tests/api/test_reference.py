"""The description of the interface is whole."""

from typing import Any

import httpx
import pytest

from postroad.api.app import create_app
from tests.api.memory_service import MemoryService
from tests.api.routes import calls
from tests.api.site import Site

CALLS = [
    (method, path)
    for method, path in calls(create_app(MemoryService(), token="x"))
    if path not in ("/docs", "/openapi.json") and method != "HEAD"
]


@pytest.fixture(scope="module")
def schema(site: Site) -> Any:
    site.app = create_app(MemoryService(), token="x")
    return httpx.get(f"{site.url}/openapi.json").json()


def test_it_is_openapi(schema: Any) -> None:
    assert schema["openapi"].startswith("3.1")
    assert schema["info"]["title"] == "Postroad"
    assert schema["security"] == [{"token": []}]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    names = {tag["name"] for tag in schema["tags"]}
    assert names == {"messages", "inbox", "partners", "admin", "operations"}


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_call_is_described(schema: Any, method: str, path: str) -> None:
    call = schema["paths"][path][method.lower()]
    assert call["tags"]
    assert call["summary"]
    assert call["description"]
    assert any(status.startswith("2") for status in call["responses"])
    if path.startswith("/api"):
        assert "application/problem+json" in call["responses"]["401"]["content"]
        assert "application/json" not in call["responses"].get("422", {}).get("content", {})
    for parameter in call.get("parameters", ()):
        if parameter["in"] == "path":
            assert parameter["description"]


def test_nothing_else_is_described(schema: Any) -> None:
    described = {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }
    assert described == set(CALLS)


def test_each_call_has_a_name_of_its_own(schema: Any) -> None:
    names = [call["operationId"] for path in schema["paths"].values() for call in path.values()]
    assert len(names) == len(set(names)) == len(CALLS)


def test_every_reference_leads_somewhere(schema: Any) -> None:
    found = set(_references(schema))
    assert "#/components/schemas/Metadata" in found
    for reference in found:
        place = schema
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place


def test_the_models_have_examples(schema: Any) -> None:
    schemas = schema["components"]["schemas"]
    assert schemas["Problem"]["examples"]
    assert schemas["MessageView"]["examples"]
    assert schemas["Metadata"]["properties"]["message_id"]["examples"]
    body = schema["paths"]["/api/v1/messages"]["post"]["requestBody"]
    assert body["content"]["multipart/form-data"]["example"]


def test_the_page_shows_every_call_and_loads_nothing(site: Site, schema: Any) -> None:
    answer = httpx.get(f"{site.url}/docs")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    for _, path in CALLS:
        assert f"<code>{path}</code>" in answer.text
    assert "<script" not in answer.text
    assert 'src="' not in answer.text


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    if isinstance(node, list):
        return [found for value in node for found in _references(value)]
    return []
