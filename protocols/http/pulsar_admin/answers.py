"""Answers and bodies of Pulsar's admin API: JSON values, texts and nothing. Knows no route."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from braidlog.broker.config.wording import explain
from braidlog.protocols.http.bodies import BODY, BodyReader
from braidlog.protocols.http.errors import BAD_BODY, RequestRefused
from braidlog.protocols.http.values.jsontext import RepeatedName, check_names

NUMBER_CHARACTERS: Final = 20  # Of an int64, with its sign.
READ_BODY: Final = "braidlog.json_body"  # In the scope of a request: the body's JSON value.


def json_answer(body: object) -> Response:
    """Return an answer with a JSON value."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def done() -> Response:
    """Return an empty answer for success."""
    return Response(status_code=204)


def text(body: str) -> Response:
    """Return an answer with a text."""
    return PlainTextResponse(body)


async def read_any(bodies: BodyReader, request: Request) -> object:
    """Return the JSON value of a body; None for an empty body. Raises RequestRefused."""
    if READ_BODY in request.scope:
        return request.scope[READ_BODY]
    body = await bodies.read_json(request)
    if not body.strip():
        return None
    try:
        value: object = msgspec.json.decode(body)
        check_names(body)
        return value
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        raise RequestRefused(BAD_BODY, explain(error, whole=BODY)) from None


def as_number(value: object) -> object:
    """Return the whole number that a JSON text contains; any other value unchanged.

    Apache's JSON library takes "5" for 5.
    """
    if not isinstance(value, str) or len(value) > NUMBER_CHARACTERS:
        return value
    is_number = value.isascii() and value.removeprefix("-").isdecimal()
    return int(value) if is_number else value
