"""Content of requests that change something: parameters and fields that would be dropped are
refused with 501.

Apache's JSON library drops unknown fields, and Apache's broker unknown parameters. Knows no route.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import READ_BODY, read_any
from braidlog.protocols.transport.messages import WHOLE_BODY

if TYPE_CHECKING:
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.requests import Handler

NAMES_SHOWN: Final = 5
NAME_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Content:
    """The content that a handler understands.

    `fields` are the names in the body's object; None if the handler itself checks the whole body.
    Without names the handler takes no body. `query` are the query parameters.
    """

    fields: Sequence[str] | None = ()
    query: Sequence[str] = ()


def refuse_the_rest(handler: Handler, content: Content, bodies: BodyReader) -> Handler:
    """Return the handler for requests without other content."""

    @wraps(handler)
    async def serve(request: Request) -> Response:
        stated = [name for name, value in request.query_params.multi_items() if _says(value)]
        _check("query parameter", stated, content.query)
        body = None if _is_empty(request) else await read_any(bodies, request)
        if content.fields is not None:
            check_fields(body, content.fields)
        request.scope[READ_BODY] = body
        return await handler(request)

    return serve


def check_fields(body: object, known: Sequence[str], place: str = "") -> None:
    """Refuse an object with other fields, as far as their values say anything; without known
    fields, every body. `place` begins the text of the error. Raises RequestRefused.
    """
    if isinstance(body, dict):
        _check(f"{place}field", [name for name, value in body.items() if value], known)
    elif body and not known:
        raise RequestRefused(NOT_SUPPORTED, f"{place}the body has no meaning here, expected none")


def _check(noun: str, stated: Iterable[str], known: Sequence[str]) -> None:
    others = [name[:NAME_CHARACTERS] for name in stated if name not in known]
    if others:
        text = f"{noun} {', '.join(others[:NAMES_SHOWN])} has no meaning here"
        raise RequestRefused(NOT_SUPPORTED, f"{text}, expected {', '.join(known) or 'none'}")


def _says(value: str) -> bool:
    """Return False for a value that asks for nothing; Go's client removes a TTL with such a 0."""
    return value.lower() not in ("", "false", "0")


def _is_empty(request: Request) -> bool:
    """Return True for a request without a body, whose media type has no meaning."""
    declared = request.headers.get("content-length")
    return declared == "0" or request.scope.get(WHOLE_BODY) == b""
