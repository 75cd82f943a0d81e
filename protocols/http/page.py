"""The page `/docs`: the OpenAPI document for people, as HTML without scripts and other hosts.

Operations stand under the headings of their areas, each path in a single spelling.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
JSON = "application/json"
METHODS = ("put", "post", "get", "patch", "delete")  # In the order of the page.
CODE = re.compile(r"`([^`]+)`")
PARAMETER = re.compile(r"(\{\w+\})")


def make_page(document: Json) -> str:
    """Return the document as a page of plain HTML."""
    title = html.escape(f"Braidlog {document['info']['version']}: HTTP API")
    areas = _by_area(document)
    links = "".join(f"<li><a href='#{_anchor(name)}'>{html.escape(name)}</a>" for name in areas)
    parts = [_area(tag, areas[tag["name"]]) for tag in document["tags"] if tag["name"] in areas]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<meta name='color-scheme' content='light dark'><title>{title}</title>"
        f"<style>{STYLE}</style><nav aria-label='Areas'><b>Braidlog</b><ul>{links}"
        f"<li><a href='#bodies'>Bodies</a></ul></nav><main><h1>{title}</h1>{INTRODUCTION}"
        f"{''.join(parts)}{_schemas(document['components']['schemas'])}</main>"
    )


def _by_area(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    """Return (method, path, operation) by area, in the order of the areas.

    Other spellings of a path, and paths whose every request is refused, are left out.
    """
    areas: dict[str, list[tuple[str, str, Json]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method in sorted(methods, key=METHODS.index):
            operation = methods[method]
            if "x-usual-path" not in operation and "x-refused" not in operation:
                areas[operation["tags"][0]].append((method.upper(), path, operation))
    return {name: operations for name, operations in areas.items() if operations}


def _area(tag: Json, operations: Iterable[tuple[str, str, Json]]) -> str:
    name = html.escape(tag["name"])
    head = f"<h2 id='{_anchor(tag['name'])}'>{name}</h2><p>{_text(tag['description'])}</p>"
    return head + "".join(_operation(*operation) for operation in operations)


def _operation(method: str, path: str, operation: Json) -> str:
    anchor = _anchor(operation["operationId"])
    shown = PARAMETER.sub(r"<i>\1</i>", html.escape(path).replace("/", "/<wbr>"))
    parts = [
        f"<section id='{anchor}'><h3><a href='#{anchor}'><b class='{method.lower()}'>{method}</b>"
        f" <code>{shown}</code></a></h3>",
        f"<p>{_text(operation['description'])}</p>",
        _details(operation),
    ]
    parts += [
        f"<pre><code>{html.escape(sample['source'])}</code></pre>"
        for sample in operation.get("x-codeSamples", ())
    ]
    return "".join(parts) + "</section>"


def _details(operation: Json) -> str:
    rows = [
        (f"<code>?{html.escape(p['name'])}=</code>", _text(p["description"]))
        for p in operation["parameters"]
        if p["in"] == "query"
    ]
    body = operation.get("requestBody")
    if body is not None:
        need = "" if body["required"] else " (may be absent)"
        rows.append(("Body", _link(body["content"][JSON]["schema"]) + need))
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get(JSON)
        if content is not None and not status.endswith("XX"):
            rows.append((f"Answer {status}", _link(content["schema"])))
    lines = "".join(f"<dt>{name}<dd>{about}" for name, about in rows)
    return f"<dl>{lines}</dl>" if lines else ""


def _schemas(schemas: Json) -> str:
    parts = ["<h2 id='bodies'>Bodies</h2><p>Requests and answers in JSON.</p>"]
    for name, schema in sorted(schemas.items()):
        required = schema.get("required", ())
        rows = "".join(
            f"<dt><code>{html.escape(field)}</code>{'' if field in required else OPTIONAL}"
            f"<dd>{_kind(of)}"
            for field, of in schema.get("properties", {}).items()
        )
        about = _text(str(schema.get("description", "")))
        parts.append(f"<section id='{html.escape(name)}'><h3><a href='#{html.escape(name)}'>")
        parts.append(f"{html.escape(name)}</a></h3><p>{about}</p><dl>{rows}</dl></section>")
    return "".join(parts)


def _kind(schema: Json) -> str:
    branches: Iterable[Json] = schema.get("anyOf", ())
    if branches:
        return " or ".join(_kind(branch) for branch in branches)
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {_kind(items)}" if isinstance(items, dict) else "list"
    if "enum" in schema:
        return " or ".join(f"<code>{html.escape(str(value))}</code>" for value in schema["enum"])
    return _link(schema)


def _link(schema: Json) -> str:
    name = html.escape(schema.get("$ref", "").rpartition("/")[2])
    return f"<a href='#{name}'>{name}</a>" if name else html.escape(str(schema.get("type", "any")))


def _text(text: str) -> str:
    return CODE.sub(r"<code>\1</code>", html.escape(text))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


INTRODUCTION = """
<p>The same for programs: <a href='/openapi.json'>/openapi.json</a> (OpenAPI 3.1). The examples are
to copy: they expect a broker at <code>127.0.0.1:8080</code>, and work one after the other, from the
top of the page. Where the broker asks for a login, add <code>-u USER:PASSWORD</code>, or
<code>-H 'Authorization: Bearer TOKEN'</code>.</p>
<p>A refused request gets a JSON body with <code>code</code> and <code>message</code>
(<a href='#ErrorBody'>ErrorBody</a>). A topic may also be written
<code>/topics/persistent/{tenant}/{namespace}/{topic}</code>: a produce is then answered as Apache
Pulsar's own REST API does. In every path <code>subscriptions</code> and <code>consumers</code> mean
<code>subscription</code> and <code>consumer</code>.</p>
"""
OPTIONAL = " <small>optional</small>"

STYLE = """
:root{--text:#1c2430;--faint:#5b6675;--line:#dfe4ea;--back:#fff;--panel:#f5f7f9;--link:#0b5cad;
--get:#0b6b3a;--post:#0b5cad;--put:#8a4b00;--patch:#6a3d9a;--delete:#b3261e}
@media(prefers-color-scheme:dark){:root{--text:#e3e8ee;--faint:#9aa6b4;--line:#2f3843;--back:#14181d;
--panel:#1d232a;--link:#7ab8ff;--get:#63d297;--post:#7ab8ff;--put:#f0b060;--patch:#c9a5f2;
--delete:#ff8a80}}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{margin:0;color:var(--text);background:var(--back);font:15px/1.55 system-ui,sans-serif}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
nav{border-bottom:1px solid var(--line);background:var(--panel);padding:1rem}
nav ul{list-style:none;margin:.5rem 0 0;padding:0;columns:2;column-gap:1rem}
nav li{padding:.15rem 0;break-inside:avoid}
main{padding:1rem;max-width:56rem}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0 1rem}
h2{font-size:1.25rem;margin:2.5rem 0 .25rem;padding-top:1rem;border-top:1px solid var(--line)}
h2+p{color:var(--faint);margin-top:0}
section{margin:1.5rem 0}
h3{font-size:1rem;font-weight:400;margin:0;line-height:1.4}h3 a{color:inherit}
h3 b{display:inline-block;min-width:4.2rem;font-size:.8rem;letter-spacing:.03em}
h3 i{font-style:normal;color:var(--faint)}
section>p{margin:.25rem 0}
section:target h3{outline:2px solid var(--link);outline-offset:4px}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}
.patch{color:var(--patch)}.delete{color:var(--delete)}
code,pre{font:.9em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;
margin:.6rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.1rem 1rem;margin:.4rem 0}
dt,dd{margin:0;overflow-wrap:anywhere}dt{color:var(--faint)}
small{color:var(--faint)}
@media(max-width:32rem){dl{grid-template-columns:1fr}dd{padding-left:1rem}}
@media(min-width:60rem){
nav{position:fixed;inset:0 auto 0 0;width:16rem;overflow-y:auto;border:0;
border-right:1px solid var(--line)}
nav ul{columns:1}main{margin-left:16rem;padding:1.5rem 2.5rem}}
""".replace("\n", "")
