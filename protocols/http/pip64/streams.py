"""The formats of a read or fetch: a JSON object, a message per line, or server-sent events.

Knows the framing of messages, not their source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from braidlog.broker.errors import BrokerError
from braidlog.broker.reading.unpacking import run_packing
from braidlog.protocols.http.errors import NOT_ACCEPTABLE, RequestRefused
from braidlog.protocols.http.limits import JSON_PIECE_BYTES, LARGE_RECORD_BYTES
from braidlog.protocols.http.pip64.messages import FetchAnswer, ReadAnswer, ShownMessage
from braidlog.protocols.http.waiting import Waiting, disconnected

if TYPE_CHECKING:
    from braidlog.protocols.http.requests import Exchange
    from braidlog.storage.formats.api import Buffer

JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
ANY = {"*/*": JSON, "application/*": JSON, "text/*": EVENTS, JSON: JSON, LINES: LINES}
ANY[EVENTS] = EVENTS
# After some ten seconds of silence, proxies and browsers take a stream for dead.
HEARTBEAT_S = 10.0
# Longer text is encoded in such parts: each holds Python's lock for a fraction of a millisecond.
TEXT_PART_CHARACTERS = 128 * 1024
# Of the JSON of a message, beside its key, value and headers.
MESSAGE_BYTES = 256
_STANDARD_TO_URL = str.maketrans("+/", "-_")


def accepted(request: Request) -> str:
    """Return the first format of `Accept` that the listener serves. Raises RequestRefused."""
    accept = request.headers.get("accept", "*/*")
    for wanted in accept.split(","):
        kind, _, parameters = wanted.partition(";")
        media_type = ANY.get(kind.strip().lower())
        if media_type is not None and "q=0" not in parameters.replace(" ", "").split(";"):
            return media_type
    raise RequestRefused(
        NOT_ACCEPTABLE,
        f"Accept {accept[:80]!r} is not served, expected {JSON}, {LINES} or {EVENTS}",
    )


class Shown(NamedTuple):
    """Messages to encode, and the bytes of the largest record among them."""

    messages: Sequence[ShownMessage]
    largest_bytes: int = 0


# Waits at most that many seconds for messages and yields them. The messages' room is held until
# exit.
NextMessages = Callable[[float], AbstractAsyncContextManager[Shown]]


async def lines(shown: Shown, headers: dict[str, str]) -> Response:
    """Return an answer with a message per line."""
    pieces = await _encoded(shown, b"\n", _line)
    if pieces:
        pieces.append(b"\n")
    return Pieces(pieces, LINES, headers)


async def whole(answer: ReadAnswer | FetchAnswer, largest_bytes: int = 0) -> Response:
    """Return an answer of a single JSON object; `largest_bytes` is of its largest record."""
    shown, answer.messages = Shown(answer.messages, largest_bytes), []
    head, empty, tail = msgspec.json.encode(answer).partition(b'"messages":[')
    together = JSON_PIECE_BYTES // (shown.largest_bytes + MESSAGE_BYTES)
    if shown.largest_bytes and together > 1:
        pieces = await _encoded_together(shown.messages, together)
    else:
        pieces = await _encoded(shown, b",", msgspec.json.encode)
    return Pieces([head + empty, *pieces, tail], JSON)


async def _encoded_together(messages: Sequence[ShownMessage], count: int) -> list[bytes]:
    """Return the JSON of small messages, so many in a piece."""
    pieces: list[bytes] = []
    for start in range(0, len(messages), count):
        if start:
            pieces.append(b",")
            await trio.lowlevel.checkpoint()
        pieces.append(msgspec.json.encode(messages[start : start + count])[1:-1])
    return pieces


async def _encoded(
    shown: Shown, between: bytes, encode: Callable[[ShownMessage], bytes]
) -> list[bytes]:
    """Return the JSON of messages in pieces, each small enough to encode and send in a single
    turn; a large record is encoded in a thread.
    """
    work = _pieces(shown.messages, between, encode)
    if shown.largest_bytes > LARGE_RECORD_BYTES:
        return await run_packing(partial(list, work), shown.largest_bytes)
    pieces: list[bytes] = []
    for piece in work:
        pieces.append(piece)
        if len(piece) >= JSON_PIECE_BYTES:
            await trio.lowlevel.checkpoint()
    return pieces


def _pieces(
    messages: Sequence[ShownMessage], between: bytes, encode: Callable[[ShownMessage], bytes]
) -> Iterator[bytes]:
    """Yield pieces of JSON_PIECE_BYTES or more: a little more, but for values other than text."""
    gathered: list[bytes] = []
    size = 0
    for number, message in enumerate(messages):
        if number:
            gathered.append(between)
        for part in _parts(message, encode):
            gathered.append(part)
            size += len(part)
            if size >= JSON_PIECE_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _parts(
    message: ShownMessage, encode: Callable[[ShownMessage], bytes]
) -> Iterable[bytes]:  # hot: see make bench
    """Return the JSON of a message, long text in parts."""
    text = message.value
    if type(text) is not str or len(text) <= TEXT_PART_CHARACTERS:
        return (encode(message),)
    return _text_parts(text, message, encode)


def _text_parts(
    text: str, message: ShownMessage, encode: Callable[[ShownMessage], bytes]
) -> Iterator[bytes]:
    message.value = ""
    # The first such member is the message's own: no field before it is free text.
    head, value, tail = encode(message).partition(b'"value":""')
    message.value = text
    yield head + value[:-1]
    for start in range(0, len(text), TEXT_PART_CHARACTERS):
        yield msgspec.json.encode(text[start : start + TEXT_PART_CHARACTERS])[1:-1]
    yield value[-1:] + tail


class Pieces(Response):
    """An answer of known size; each piece stays in memory until sent."""

    def __init__(
        self, pieces: Sequence[Buffer], media_type: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        self.headers["content-length"] = str(sum(map(len, pieces)))
        self._pieces = list(reversed(pieces))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        head = {"type": "http.response.start", "status": self.status_code}
        await send({**head, "headers": self.raw_headers})
        pieces, body = self._pieces, b""
        while pieces:
            body += pieces.pop()
            if len(body) >= JSON_PIECE_BYTES:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                body = b""
        await send({"type": "http.response.body", "body": body, "more_body": False})


class EventStream(Response):
    """Messages as events, until the client leaves or the broker stops."""

    media_type = EVENTS

    def __init__(self, request: Request, waiting: Waiting, next_messages: NextMessages) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._request = request
        self._waiting = waiting
        self._next_messages = next_messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events; if the client leaves, the running step is cancelled."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if self._request.method == "HEAD":  # No body, so nothing would ever end the request.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        left = False

        async def watch() -> None:
            nonlocal left
            await disconnected(self._request)
            left = True
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await self._stream(send)
            nursery.cancel_scope.cancel()
        if not left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send) -> None:
        exchange: Exchange = self._request.scope["exchange"]
        body = b": ready\n\n"
        await send({"type": "http.response.body", "body": body, "more_body": True})
        while not self._waiting.stopping.is_set():
            try:
                async with self._next_messages(HEARTBEAT_S) as shown:
                    exchange.check_again()
                    pieces = await _encoded(shown, b"", _event) or [b": nothing yet\n\n"]
                    del shown
                    for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            except (BrokerError, RequestRefused) as error:  # The status is sent already.
                text = msgspec.json.encode(str(error))
                body = b"event: error\ndata: %b\n\n" % text
                await send({"type": "http.response.body", "body": body, "more_body": True})
                return


def _event(message: ShownMessage) -> bytes:
    place = message.messageId.translate(_STANDARD_TO_URL).encode()
    return b"id: %b\ndata: %b\n\n" % (place, _line(message))


def _line(message: ShownMessage) -> bytes:
    """Return a message's JSON in a single line.

    A JSON value keeps the client's spelling: line ends between tokens would end the line, or the
    event, too early. Strings contain no line ends.
    """
    return msgspec.json.encode(message).replace(b"\n", b" ").replace(b"\r", b" ")
