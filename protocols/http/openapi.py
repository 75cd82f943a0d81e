"""The OpenAPI document, generated from the routes, and its HTML page.

Knows the table of routes and the types of bodies, no broker.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from braidlog.protocols.http.examples import EXAMPLES
from braidlog.protocols.http.management.messages import ErrorBody
from braidlog.protocols.http.routes import Described, Query, Served

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
JSON = "application/json"
REFERENCE = "#/components/schemas/{name}"
ERROR = {"$ref": REFERENCE.format(name=ErrorBody.__name__)}
Json = dict[str, Any]


def make_document(described: Sequence[Described], version: str) -> Json:
    """Return the OpenAPI document of these routes."""
    types: dict[type, None] = {ErrorBody: None}
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


def _operation(method: str, path: str, served: Served, by_type: Mapping[type, Json]) -> Json:
    summary = (served.handler.__doc__ or "").strip().split("\n")[0]
    operation: Json = {
        "operationId": f"{method.lower()} {path}",
        "summary": summary,
        "parameters": [_in_path(name) for name in PARAMETER.findall(path)]
        + [_in_query(query) for query in served.query],
        "responses": _responses(served, by_type),
    }
    if served.body is not None:
        content = {JSON: {"schema": by_type[served.body], "example": EXAMPLES[served.body]}}
        operation["requestBody"] = {"required": served.needs_body, "content": content}
    return operation


def _responses(served: Served, by_type: Mapping[type, Json]) -> Json:
    done: Json = {"description": "Done."}
    if served.answer is not None:
        done["content"] = {JSON: {"schema": by_type[served.answer]}}
    for kind in served.other_formats:
        done.setdefault("content", {})[kind] = {"schema": {"type": "string"}}
    refused = {"description": "Refused.", "content": {JSON: {"schema": ERROR}}}
    told: Json = {str(status): done for status in served.statuses}
    told |= dict.fromkeys(("4XX", "5XX"), refused)
    return told


def _in_path(name: str) -> Json:
    schema: Json = {"type": "integer", "minimum": 0} if name == "partition" else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: Query) -> Json:
    told: Json = {"name": query.name, "in": "query", "required": False}
    told["description"] = query.about
    told["schema"] = dict(query.schema)
    return told


def make_page(document: Json) -> str:
    """Return the document as a page of plain HTML."""
    rows: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rows.append(f"<tr><td><b>{method.upper()}</b><td><code>{html.escape(path)}</code>")
            rows.append(f"<td>{html.escape(operation['summary'])}{_details(operation)}")
    title = html.escape(f"Braidlog {document['info']['version']}: HTTP API")
    body = "\n".join(rows)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='color-scheme'"
        f" content='light dark'><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
        "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a> (OpenAPI 3.1).</p>"
        f"<table>{body}</table>{_schemas(document['components']['schemas'])}"
    )


def _details(operation: Json) -> str:
    given = [p for p in operation["parameters"] if p["in"] == "query"]
    lines = [f"<li><code>{p['name']}</code>: {html.escape(p['description'])}" for p in given]
    body = operation.get("requestBody")
    if body is not None:
        lines.insert(0, f"<li>Body: {_link(body['content'][JSON]['schema'])}")
    for status, told in operation["responses"].items():
        content = told.get("content", {}).get(JSON)
        if content is not None and not status.endswith("XX"):
            lines.append(f"<li>{status}: {_link(content['schema'])}")
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _link(schema: Json) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"<a href='#{name}'>{name}</a>" if name else html.escape(str(schema.get("type", "any")))


def _schemas(schemas: Json) -> str:
    parts = ["<h2>Bodies</h2>"]
    for name, schema in sorted(schemas.items()):
        about = html.escape(str(schema.get("description", "")))
        rows = "".join(_field(field, of) for field, of in schema.get("properties", {}).items())
        parts.append(f"<h3 id='{html.escape(name)}'>{html.escape(name)}</h3><p>{about}</p>")
        parts.append(f"<table>{rows}</table>")
    return "".join(parts)


def _field(name: str, schema: Json) -> str:
    return f"<tr><td><code>{html.escape(name)}</code><td>{_kind(schema)}"


def _kind(schema: Json) -> str:
    branches: Iterable[Json] = schema.get("anyOf", ())
    if branches:
        return " or ".join(_kind(branch) for branch in branches)
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {_kind(items)}" if isinstance(items, dict) else "list"
    return _link(schema)


STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td{padding:.25rem .75rem .25rem 0;vertical-align:top}"
    "ul{margin:.25rem 0;padding-left:1.25rem}code{font-size:.95em}"
)
