"""The HTTP library's own refusals, in the form of this listener's errors. Knows h11's events and no
connection.
"""

from __future__ import annotations

import uuid

import h11
import msgspec

from braidlog.protocols.http import errors
from braidlog.protocols.http.errors import ErrorBody, WireCode

HEAD_TOO_LARGE = 431
TEXTS: dict[WireCode, str] = {
    errors.BAD_REQUEST: "this is not HTTP, or breaks its rules",
    errors.HEAD_TOO_LARGE: "the request line and headers are too large",
    errors.NOT_IMPLEMENTED: "this transfer encoding is not served",
}


def raw_refusal(status: int) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    """Return the answer to a client that sent bytes which are no valid request."""
    wire = errors.HEAD_TOO_LARGE if status == HEAD_TOO_LARGE else errors.BAD_REQUEST
    if status == errors.NOT_IMPLEMENTED.status:
        wire = errors.NOT_IMPLEMENTED
    text = TEXTS[wire]
    body = msgspec.json.encode(ErrorBody(wire.number, wire.code, text, text))
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        ("X-Request-Id", uuid.uuid4().hex),
    ]
    return (
        h11.Response(status_code=wire.status, headers=headers),
        h11.Data(body),
        h11.EndOfMessage(),
    )
