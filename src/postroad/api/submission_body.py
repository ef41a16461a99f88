"""The body of a submission, as the interface describes it."""

from typing import Any


def submission_body(metadata: str, example: dict[str, Any]) -> dict[str, Any]:
    """For OpenAPI: parts with `metadata` of a schema first."""
    return {
        "requestBody": {
            "required": True,
            "description": "The part `metadata` comes first, then the payloads, each a part with a "
            "name of its own. A part of a single message that the metadata do not describe is "
            "taken with its Content-Type and file name. Payloads of any size are streamed.",
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["metadata"],
                        "properties": {"metadata": {"$ref": f"#/components/schemas/{metadata}"}},
                        "additionalProperties": {"type": "string", "format": "binary"},
                    },
                    "encoding": {"metadata": {"contentType": "application/json"}},
                    "example": {"metadata": example, "order": "<order>4711</order>"},
                }
            },
        }
    }
