"""`/openapi.json` describes the answer to any request, right or wrong, and no answer is a 500.

Requests are made from the description at random, the same in every run. `docs/reports/http-api.md`
names the longer runs, by schemathesis.
"""

import json
import random
from urllib.parse import quote

import pytest

from braidlog.protocols.http.examples import EXAMPLES
from tests.protocols.http.asgi import call

SEED = 14
REQUESTS = 4  # Per operation.
BASE = "/topics/public/default/orders"
NAMES = {
    "tenant": "public",
    "namespace": "default",
    "topic": "orders",
    "name": "orders",
    "subscription": "s",
    "group": "s",
    "consumer": "c",
    "cluster": "standalone",
}
ODD = [
    "",
    "0",
    "-1",
    "x" * 300,
    "ä",
    "a/b",
    "%",
    "null",
    "\0",
    "99999999999999999999",
    "-",
    "CAEQAA",
]
WRONG = [None, True, -1, 1.5, 2**63, "", "x", [], {}, [None], "x" * 300, "\0"]
JSON = "application/json"


class Maker:
    """Random values for a schema of the description."""

    def __init__(self, chance: random.Random, document: dict) -> None:
        self.chance = chance
        self.document = document

    def value(self, schema: dict, depth: int = 0) -> object:
        """Return a fitting value, and sometimes a wrong value."""
        if self.chance.random() < 0.1:
            return self.chance.choice(WRONG)
        schema = resolved(schema, self.document)
        if "anyOf" in schema:
            return self.value(self.chance.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self.fields(schema, depth)
            case "array":
                count = self.chance.randrange(3) if depth < 3 else 0
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "integer":
                return self.chance.choice([schema.get("minimum", 0), 1, schema.get("maximum", 9)])
            case "number":
                return self.chance.choice([0, 1.5, -2])
            case "boolean":
                return self.chance.random() < 0.5
            case "null":
                return None
            case "string":
                return self.chance.choice(["orders", "s", "c", "STRING", "earliest", "", "CAEQAA"])
        return self.chance.choice([*WRONG, "text", 5])

    def fields(self, schema: dict, depth: int) -> object:
        """Return an object with the required fields, and random optional fields."""
        fields = {}
        for name, of in schema.get("properties", {}).items():
            if name in schema.get("required", ()) or self.chance.random() < 0.3:
                fields[name] = self.value(of, depth + 1)
        return fields


def resolved(schema: dict, document: dict) -> dict:
    """Return the schema behind a reference."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def misfit(value: object, schema: dict, document: dict) -> str:
    """Return the violation of a schema by a value; "" if the value fits."""
    schema = resolved(schema, document)
    if "anyOf" in schema:
        misfits = [misfit(value, option, document) for option in schema["anyOf"]]
        return "" if "" in misfits else " and ".join(misfits)
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is none of {schema['enum']}"
    kinds = {"object": dict, "array": list, "integer": int, "number": (int, float)}
    kinds |= {"boolean": bool, "null": type(None), "string": str}
    kind = schema.get("type")
    is_odd = isinstance(value, bool) and kind in ("integer", "number")
    if kind is not None and (not isinstance(value, kinds[kind]) or is_odd):
        return f"{value!r} is no {kind}"
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return next(filter(None, (misfit(v, schema["items"], document) for v in value)), "")
    if isinstance(value, dict):
        missing = set(schema.get("required", ())) - value.keys()
        if missing:
            return f"{missing} are missing"
        of = schema.get("properties", {})
        more = schema.get("additionalProperties")
        parts = [(v, of.get(k, more if isinstance(more, dict) else {})) for k, v in value.items()]
        return next(
            filter(None, (misfit(v, part_schema, document) for v, part_schema in parts)), ""
        )
    return ""


def target(maker: Maker, path: str, operation: dict) -> str:
    """Return a path with a query."""
    query = []
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            value = NAMES.get(name, "0")
            if maker.chance.random() < 0.15:
                value = maker.chance.choice(ODD)
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        elif name == "timeout":
            query.append(f"timeout={maker.chance.choice([0, 1, -1, 'x'])}")
        elif maker.chance.random() < 0.3:
            value = maker.value(parameter["schema"])
            query.append(f"{name}={quote(str(value), safe='')}")
    return "?".join(filter(None, (path, "&".join(query))))


def check(operation: dict, answer: object, document: dict) -> str:
    """Return the difference between an answer and the description, or ""."""
    responses, status = operation["responses"], answer.status
    response = responses.get(str(status), responses.get(f"{status // 100}XX"))
    if response is None or status == 500:
        return f"status {status}"
    content = response.get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not content:
        return "" if kind in ("", JSON, "text/plain", "text/html") else f"type {kind}"
    if kind not in content:
        return f"type {kind!r}, not of {list(content)}"
    return misfit(answer.json, content[kind]["schema"], document) if kind == JSON else ""


async def prepare(app) -> None:
    """Create the objects that the requests name, whatever earlier requests have done."""
    await call(app, "PUT", "/api/v1/topics/public/default/orders", {"partitions": 1})
    await call(app, "POST", BASE, {"messages": [{"key": "k", "value": "v"}]})
    wanted = {"id": "c", "name": "c", "initial_position": "Earliest"}
    await call(app, "POST", f"{BASE}/subscription/s", wanted)


def operations(document):
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_the_description_allows_every_answer(app, broker, part):
    document = (await call(app, "GET", "/openapi.json")).json
    wrong, statuses = [], set()
    for method, path, operation in operations(document)[part::4]:
        await prepare(app)
        maker = Maker(random.Random(f"{SEED} {method} {path}"), document)
        for _ in range(REQUESTS):
            target_path, body = target(maker, path, operation), None
            if "requestBody" in operation:
                body = maker.value(operation["requestBody"]["content"][JSON]["schema"])
            answer = await call(app, method, target_path, body)
            statuses.add(answer.status)
            fault = check(operation, answer, document)
            if fault:
                wrong.append(
                    f"{method} {target_path} {json.dumps(body)[:300]}: {fault}; {answer.body[:300]}"
                )
    assert not wrong, "\n".join(wrong)
    assert {200, 404} <= statuses


def by_path_puts_first(operation):
    """Return the sort key of an operation: PUT before other methods on a path."""
    method, path, _ = operation
    return path, method != "PUT"


async def test_client_generators_accept_every_schema(app):
    """openapi-python-client generates no client for a boolean schema."""
    document = (await call(app, "GET", "/openapi.json")).json

    def places(part: object, at: str):
        if isinstance(part, dict):
            for name, below in part.items():
                yield from [f"{at}/{name}"] if name == "items" and below is False else []
                yield from places(below, f"{at}/{name}")
        elif isinstance(part, list):
            for number, below in enumerate(part):
                yield from places(below, f"{at}/{number}")

    assert list(places(document, "")) == []
    pair = document["components"]["schemas"]["CursorPartition"]["properties"]
    pair = pair["individually_acked"]["items"]
    assert (pair["minItems"], pair["maxItems"], len(pair["prefixItems"])) == (2, 2, 2)


async def test_every_kind_of_body_has_a_valid_example(app):
    document = (await call(app, "GET", "/openapi.json")).json
    await prepare(app)
    names = NAMES | {"partition": "0", "user": "anna", "token": "nightly"}
    seen, refused = set(), []
    for method, path, operation in sorted(operations(document), key=by_path_puts_first):
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"][JSON]
        kind = content["schema"]["$ref"]
        if kind in seen and method != "PUT":
            continue
        target_path = path.format_map(names).replace(
            "orders", "fresh" if method == "PUT" else "orders"
        )
        answer = await call(app, method, target_path, content["example"])
        seen.add(kind)
        if answer.status >= 300:
            refused.append(f"{method} {target_path}: {answer.status} {answer.body[:200]}")
    assert not refused, "\n".join(refused)
    assert len(seen) == len(EXAMPLES)
