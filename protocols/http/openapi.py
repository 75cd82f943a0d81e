"""The OpenAPI document, generated from the routes.

Knows the table of routes and the types of bodies, no broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from braidlog.protocols.http.areas import AREAS, REFUSED, area_of, usual_spelling
from braidlog.protocols.http.errors import PULSAR_PATHS, ErrorBody, PulsarErrorBody
from braidlog.protocols.http.examples import EXAMPLES
from braidlog.protocols.http.routes import Described, Endpoint, Query
from braidlog.protocols.http.samples import SAMPLES

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
RAISES = re.compile(r"Raises:? [^.]*\.")
JSON = "application/json"
REFERENCE = "#/components/schemas/{name}"
ERROR = {"$ref": REFERENCE.format(name=ErrorBody.__name__)}
PULSAR_ERROR = {"$ref": REFERENCE.format(name=PulsarErrorBody.__name__)}
Json = dict[str, Any]


def make_document(described: Sequence[Described], version: str) -> Json:
    """Return the OpenAPI document of these routes."""
    types: dict[type, None] = {ErrorBody: None, PulsarErrorBody: None}
    for _, methods in described:
        for served in methods.values():
            types.update(dict.fromkeys(t for t in (served.body, served.answer) if t is not None))
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    _leave_out_false_items(components)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, Json] = {}
    for path, methods in described:
        plain = PARAMETER.sub(r"{\1}", path)
        paths[plain] = {
            method.lower(): _operation(method, plain, served, by_type)
            for method, served in methods.items()
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Braidlog",
            "version": version,
            "description": "Produce, consume, read and manage. docs/api.md says it in full.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": area.name, "description": area.about} for area in AREAS],
        "paths": paths,
        "components": {"schemas": components},
    }


def _leave_out_false_items(schema: object) -> None:
    """Remove `items: false`, by which msgspec says that a tuple has no more items.

    `maxItems` says the same, and openapi-python-client fails for a boolean schema.
    """
    if isinstance(schema, dict):
        if schema.get("items") is False:
            del schema["items"]
        for part in schema.values():
            _leave_out_false_items(part)
    elif isinstance(schema, list):
        for part in schema:
            _leave_out_false_items(part)


def _operation(method: str, path: str, served: Endpoint, by_type: Mapping[type, Json]) -> Json:
    summary, description = _prose(served.handler.__doc__ or "")
    operation: Json = {
        "operationId": f"{method.lower()} {path}",
        "summary": summary,
        "description": description,
        "tags": [area_of(path).name],
        "parameters": [_in_path(name) for name in PARAMETER.findall(path)]
        + [_in_query(query) for query in served.query],
        "responses": _responses(served, by_type, path),
    }
    if (usual := usual_spelling(path)) != path:
        operation["x-usual-path"] = usual
    if path.endswith(REFUSED):
        operation["x-refused"] = True
    if (sample := SAMPLES.get(f"{method} {path}")) is not None:
        operation["x-codeSamples"] = [{"lang": "shell", "source": sample}]
    if served.body is not None:
        content = {JSON: {"schema": by_type[served.body], "example": EXAMPLES[served.body]}}
        operation["requestBody"] = {"required": served.needs_body, "content": content}
    return operation


def _prose(docstring: str) -> tuple[str, str]:
    """Return summary and description of a handler: the first paragraph and all paragraphs, without
    the errors that the handler raises.
    """
    paragraphs = [" ".join(part.split()) for part in docstring.split("\n\n")]
    prose = [text for part in paragraphs if (text := RAISES.sub("", part).strip())]
    return (prose[0] if prose else ""), "\n\n".join(prose)


def _responses(served: Endpoint, by_type: Mapping[type, Json], path: str) -> Json:
    done: Json = {"description": "Done."}
    if served.answer is not None:
        done["content"] = {JSON: {"schema": by_type[served.answer]}}
    for kind in served.other_formats:
        done.setdefault("content", {})[kind] = {"schema": {"type": "string"}}
    error = PULSAR_ERROR if path.startswith(PULSAR_PATHS) else ERROR
    refused = {"description": "RequestRefused.", "content": {JSON: {"schema": error}}}
    responses: Json = {str(status): done for status in served.statuses}
    responses |= dict.fromkeys(("4XX", "5XX"), refused)
    return responses


def _in_path(name: str) -> Json:
    schema: Json = {"type": "integer", "minimum": 0} if name == "partition" else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: Query) -> Json:
    parameter: Json = {"name": query.name, "in": "query", "required": False}
    parameter["description"] = query.about
    parameter["schema"] = dict(query.schema)
    return parameter
