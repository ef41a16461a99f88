"""The JSON Schema of `postroad.yaml` for editors, and the table of all settings for readers."""

from collections.abc import Iterator
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from postroad.agreement.loading import PRIVATE
from postroad.agreement.values import format_size
from postroad.node.settings.config import Config


class _Written(GenerateJsonSchema):
    """What is unset is left out of a file, never written as null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if written.get("default", ...) is None and "null" not in written.get("type", ()):
            del written["default"]
        elif written.get("format") == "size":
            written["default"] = format_size(written["default"])
        return written


def config_schema() -> dict[str, Any]:
    """JSON Schema of the node's file."""
    schema = Config.model_json_schema(schema_generator=_Written)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Postroad node",
        "patternProperties": {f"^{PRIVATE}": True},
    }


_HEAD: Final = "| setting | values | default | meaning |\n| --- | --- | --- | --- |"


def settings_table() -> str:
    """All settings as Markdown."""
    schema = config_schema()
    return "\n".join([_HEAD, *_rows(schema, schema, ""), ""])


def _rows(root: dict[str, Any], group: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, field in group["properties"].items():
        inner, many = _resolved(root, field)
        path = f"{prefix}{name}{'[]' if many and 'properties' in inner else ''}"
        if "properties" in inner:
            yield from _rows(root, inner, f"{path}.")
            continue
        needed = name in group.get("required", ())
        default = "needed" if needed else _default(field)
        values = f"list of {_values(inner)}" if many else _values(inner)
        yield f"| `{path}` | {values} | {default} | {field.get('description', '')} |"


def _resolved(root: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What a field holds, and whether it holds a list of it."""
    if "$ref" in schema:
        return _resolved(root, root["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        # One item or many, a value alone or its group: the last is the fullest.
        return _resolved(root, schema["anyOf"][-1])
    if schema.get("type") == "array":
        return _resolved(root, schema["items"])[0], True
    return schema, False


def _values(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if isinstance(value, str))
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = str(schema.get("format", types[0]))
    told = {"integer": "number", "string": "text", "uri": "URL"}.get(kind, kind)
    return f"{told} or `null`" if "null" in types else told


def _default(field: dict[str, Any]) -> str:
    value = field.get("default", [])
    if isinstance(value, list | tuple):
        return ", ".join(f"`{item}`" for item in value)
    return "`null`" if value is None else f"`{value}`"
