"""Answers and bodies of Pulsar's admin API: JSON values, texts and nothing. Knows no route."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.errors import BAD_BODY, Refused
from braidlog.protocols.http.values.jsontext import RepeatedName, check_names


def told(body: object) -> Response:
    """A JSON value."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def done() -> Response:
    """An empty answer: it worked."""
    return Response(status_code=204)


def text(body: str) -> Response:
    """A text."""
    return PlainTextResponse(body)


async def read_any(bodies: BodyReader, request: Request) -> object:
    """The JSON value of a body; None if it is empty. Raises Refused."""
    body = await bodies.read_json(request)
    if not body.strip():
        return None
    try:
        value: object = msgspec.json.decode(body)
        check_names(body)
        return value
    except RepeatedName as error:
        raise Refused(BAD_BODY, str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(BAD_BODY, f"not JSON: {error}") from None
