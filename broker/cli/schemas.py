"""`braidlog schemas`: the schemas of topics, as Pulsar's clients register them.

Knows no broker but its JSON API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.client import Json, topic_path
from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, AdminError
from braidlog.broker.cli.line_input import STANDARD_INPUT
from braidlog.broker.cli.output import HERE, Where, client_of, print_rows

schemas = App(name="schemas", help="List, show, register and check schemas of topics.")

SCHEMA_BYTES_MAX = 1024 * 1024

Kind = Annotated[str, Parameter(name="--type", help="AVRO, JSON, STRING, INT64 and so on.")]
File = Annotated[
    str, Parameter(help="The definition; `-`: standard input; without it: no definition.")
]


@schemas.command(name="list")
def list_schemas(topic: str, *, where: Where = HERE) -> None:
    """List the versions of a topic's schema.

    Example: braidlog schemas list orders
    """
    client = client_of(where)
    versions = client.ask("GET", f"{_place(topic)}/schemas")["getSchemaResponses"]
    if not versions:
        client.topic(topic)  # Raises if there is no such topic either.
    print_rows(where, versions, ("version", "type", "data"))


@schemas.command(name="show")
def show_schema(
    topic: str,
    *,
    version: Annotated[int | None, Parameter(help="Else the newest.")] = None,
    where: Where = HERE,
) -> None:
    """Show a schema of a topic: the newest version, or one by number.

    Example: braidlog schemas show orders --version 0
    """
    client = client_of(where)
    suffix = "" if version is None else f"/{version}"
    try:
        schema = client.ask("GET", f"{_place(topic)}/schema{suffix}")
    except AdminError as error:  # Pulsar's clients expect a text without the topic.
        raise AdminError(f"{topic}: {error}", error.exit_code) from error
    print_rows(where, schema, ("version", "type", "data"))


@schemas.command(name="put")
def put_schema(topic: str, *, kind: Kind, file: File = "", where: Where = HERE) -> None:
    """Register a schema as the newest of a topic, if the topic's compatibility rule allows.

    Example: braidlog schemas put orders --type AVRO --file order.avsc
    """
    client = client_of(where)
    answer = client.ask("POST", f"{_place(topic)}/schema", _body(kind, file))["version"]
    print_rows(where, answer, ("version",))


@schemas.command(name="check")
def check_schema(topic: str, *, kind: Kind, file: File = "", where: Where = HERE) -> int:
    """Check if a schema could be registered; exits with 1 if not.

    Example: braidlog schemas check orders --type AVRO --file order.avsc
    """
    client = client_of(where)
    answer = client.ask("POST", f"{_place(topic)}/compatibility", _body(kind, file))
    print_rows(where, answer, ("compatibility", "schemaCompatibilityStrategy"))
    return 0 if answer["compatibility"] else EXIT_FAILED


def _place(topic: str) -> str:
    return f"/admin/v2/schemas/{topic_path(topic)}"


def _body(kind: str, file: str) -> Mapping[str, object]:
    """Return a schema for the broker. Raises AdminError."""
    definition = ""
    if file:
        try:
            with open(sys.stdin.fileno() if file == STANDARD_INPUT else file, "rb") as source:
                definition = source.read(SCHEMA_BYTES_MAX).decode()
        except OSError as error:
            code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_USAGE
            raise AdminError(f"{file}: {error.strerror}", code) from error
        except UnicodeDecodeError as error:
            raise AdminError(f"{file}: not UTF-8", EXIT_USAGE) from error
    body: Json = {"type": kind.upper(), "schema": definition, "properties": {}}
    if kind.upper() in ("AVRO", "JSON"):
        try:
            json.loads(definition)
        except ValueError as error:
            raise AdminError(f"{file or '--file'}: not JSON: {error}", EXIT_USAGE) from None
    return body
