"""The description of the interface: OpenAPI, and a page made from it.

The page needs no script and nothing from elsewhere, so that it works where there is no internet
and gives nobody else's code a place beside an operator's token.
"""

import json
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from postroad.api.metadata import BundleMetadata, Metadata, ReplyMetadata
from postroad.api.problems import Problem

_SCHEMAS: Final = "#/components/schemas/{model}"
_ABOUT: Final = """Submit messages, see where they are, take what was received, get the proof.

Every call needs the header `Authorization: Bearer TOKEN`. Errors are problem details (RFC 9457):
`detail` says in a sentence what was wrong and what to do next. 503 comes with `Retry-After`."""
_TAGS: Final = [
    {"name": "messages", "description": "Submit messages and follow them"},
    {"name": "inbox", "description": "What was received for the application, and is to be known"},
    {"name": "partners", "description": "Partners that are paused or suspended"},
    {"name": "admin", "description": "For those who run the node"},
    {"name": "operations", "description": "For the machines that watch it"},
]
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:#8881;padding:.8rem;overflow:auto;border-radius:.4rem}
summary{cursor:pointer;padding:.4rem 0}summary b{display:inline-block;min-width:3.5rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;
vertical-align:top;border-bottom:1px solid #8883}:root{color-scheme:light dark}
"""


def openapi(app: FastAPI, version: str) -> dict[str, Any]:
    """The whole interface as OpenAPI."""
    schema = get_openapi(
        title="Postroad", version=version, description=_ABOUT, tags=_TAGS, routes=app.routes
    )
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    schemas = components.setdefault("schemas", {})
    for model in (Problem, Metadata, BundleMetadata, ReplyMetadata):
        own = model.model_json_schema(ref_template=_SCHEMAS)
        schemas |= own.pop("$defs", {})
        schemas[model.__name__] = own
    return schema


def page(schema: dict[str, Any]) -> str:
    """The same for people."""
    calls = "".join(
        _section(tag["name"], tag["description"], schema) for tag in schema.get("tags", ())
    )
    about = "".join(f"<p>{_text(part)}</p>" for part in _ABOUT.split("\n\n"))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Postroad REST</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>Postroad {escape(schema['info']['version'])}: REST</h1>{about}"
        f'<p>For machines: <a href="openapi.json">openapi.json</a>.</p>{calls}'
        f"<h2>Bodies</h2>{_schemas(schema['components']['schemas'])}</body></html>"
    )


def _section(tag: str, description: str, schema: dict[str, Any]) -> str:
    calls = "".join(
        _call(method, path, call)
        for path, methods in schema["paths"].items()
        for method, call in methods.items()
        if tag in call.get("tags", ())
    )
    return f"<h2>{escape(tag)}</h2><p>{_text(description)}</p>{calls}"


def _call(method: str, path: str, call: dict[str, Any]) -> str:
    description = "".join(
        f"<p>{_text(part)}</p>" for part in call.get("description", "").split("\n\n")
    )
    body = call.get("requestBody", {})
    about_body = f"<p>Body: {_text(body.get('description', ''))} {_bodies(body)}</p>"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{one['in']}"
        f"<td>{_text(one.get('description', ''))}"
        for one in call.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{status}<td>{_text(answer.get('description', ''))}<td>{_bodies(answer)}"
        for status, answer in call["responses"].items()
    )
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{_text(call.get('summary', ''))}</summary>{description}"
        f"{about_body if body else ''}<table>{rows}</table><table>{answers}</table></details>"
    )


def _bodies(answer: dict[str, Any]) -> str:
    return " ".join(
        f"<code>{escape(media_type)}</code> {_link(body.get('schema', {}))}"
        for media_type, body in answer.get("content", {}).items()
    )


def _link(schema: dict[str, Any]) -> str:
    name = escape(str(schema.get("$ref", "")).rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>' if name else ""


def _schemas(schemas: dict[str, Any]) -> str:
    return "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> '
        f"{_text(schema.get('description', ''))}</summary>"
        f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre></details>"
        for name, schema in sorted(schemas.items())
    )


def _text(text: str) -> str:
    """Escaped, with `code` as code."""
    pieces = escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces)
    )
