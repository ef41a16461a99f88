"""P-Modes back to YAML, and the JSON Schemas of files for editors."""

from collections.abc import Sequence
from typing import Any

import yaml

from postroad.agreement.loading import LIST_KEY, PRIVATE
from postroad.agreement.pmode import PMode
from postroad.agreement.routes import RoutesFile
from postroad.agreement.values import REVEAL


def pmode_data(pmode: PMode) -> dict[str, Any]:
    """A P-Mode as its file has it, passwords too."""
    return pmode.model_dump(
        mode="json", exclude_unset=True, exclude_none=True, context={REVEAL: True}
    )


def pmode_yaml(pmode: PMode) -> str:
    """The text of a P-Mode's file. It holds the passwords, as such a file does."""
    return _yaml(pmode_data(pmode))


def pmodes_yaml(pmodes: Sequence[PMode]) -> str:
    """The text of a file of one or more P-Modes."""
    if len(pmodes) == 1:
        return pmode_yaml(pmodes[0])
    return _yaml({LIST_KEY: [pmode_data(one) for one in pmodes]})


def _yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def pmode_schema() -> dict[str, Any]:
    """JSON Schema of a P-Mode file: one P-Mode, or a list of them."""
    schema = PMode.model_json_schema(ref_template="#/$defs/{model}")
    definitions = schema.pop("$defs")
    definitions["PMode"] = schema
    reference = {"$ref": "#/$defs/PMode"}
    listed = {
        "type": "object",
        "properties": {LIST_KEY: {"type": "array", "items": reference}},
        "patternProperties": {f"^{PRIVATE}": True},
        "required": [LIST_KEY],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Postroad P-Mode file",
        "anyOf": [reference, listed],
        "$defs": _tidy(definitions),
    }


def routes_schema() -> dict[str, Any]:
    """JSON Schema of a file of routing rules."""
    schema = RoutesFile.model_json_schema(ref_template="#/$defs/{model}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_tidy(schema),
        "title": "Postroad routes",
        "patternProperties": {f"^{PRIVATE}": True},
    }


def _tidy(schema: Any) -> Any:
    """Leave out the nulls that YAML files do not use, and names that are empty."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items()}
    options = tidy.get("anyOf")
    if options is not None and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        tidy["anyOf"] = options
        if len(options) == 1:
            del tidy["anyOf"]
            tidy = {**options[0], **tidy}
    if tidy.get("default", "") is None:
        del tidy["default"]
    if tidy.get("title") == "":
        del tidy["title"]
    return tidy
