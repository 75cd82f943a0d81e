"""Reads the body of a request under limits of size, time and memory. Knows no route."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

import msgspec
import trio
from starlette.requests import Request

from braidlog.broker.config.wording import explain
from braidlog.broker.server.fair_semaphore import FairSemaphore
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BODY_TIMEOUT,
    BODY_TOO_LARGE,
    NOT_JSON,
    SHUTTING_DOWN,
    TOO_BUSY,
    RequestRefused,
)
from braidlog.protocols.http.limits import (
    BODIES_BYTES_ALL_MAX,
    BODY_BYTES_SMALL,
    SERVED_BYTES_MAX,
    SERVED_BYTES_SMALL,
    SERVED_WAIT_S,
    UPLOADS_MAX,
)
from braidlog.protocols.http.values.jsontext import RepeatedName, check_names
from braidlog.protocols.transport.messages import WHOLE_BODY

if TYPE_CHECKING:
    from braidlog.protocols.http.options import RestOptions
    from braidlog.protocols.http.requests import Exchange

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
FORM_FIELDS_MAX = 1000  # Of a form of the console; the largest form has some 60 fields.
SERVED = "braidlog.served"  # The entry of a scope with the bytes of a body that is served.
BODY = "the body"  # The name of a whole body in texts of errors.
# Most bodies are complete within this time. Until then no task watches for a stop, because such a
# task costs as much as a small body. STOP_S allows for this delay.
PROMPT_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of all request bodies together, in bytes, and of the requests that wait for bodies.

    Bodies of at most `small_bytes` have no part in `all_bytes`, and those of at most
    `served_small_bytes` no part in `served_bytes`, the bodies that are served at the same time.
    """

    all_bytes: int = BODIES_BYTES_ALL_MAX
    small_bytes: int = BODY_BYTES_SMALL
    served_bytes: int = SERVED_BYTES_MAX
    served_small_bytes: int = SERVED_BYTES_SMALL
    uploads: int = UPLOADS_MAX


BODY_LIMITS = BodyLimits()


class BodyBudget:
    """Memory for the bodies of all running requests, except small bodies."""

    def __init__(self, limits: BodyLimits = BODY_LIMITS) -> None:
        self._limits = limits
        self._left = limits.all_bytes
        self._served = FairSemaphore(limits.served_bytes)
        self._uploads = 0

    def take(self, request: Request, have: int, more: int) -> bool:
        """Reserve memory for a piece of a body until the request ends; return False if memory is
        used up.
        """
        if have + more <= self._limits.small_bytes:
            return True
        if more > self._left:
            return False
        self._left -= more
        request.scope["exchange"].at_end.append(partial(self._give_back, more))
        return True

    def _give_back(self, size: int) -> None:
        self._left += size

    @contextmanager
    def upload(self, request: Request) -> Iterator[None]:
        """Wrap the wait for the rest of a late body. Raises RequestRefused."""
        if self._uploads >= self._limits.uploads:
            text = f"{self._limits.uploads} requests wait for their bodies already"
            raise RequestRefused(TOO_BUSY, text)
        exchange: Exchange = request.scope["exchange"]
        self._uploads += 1
        try:
            with exchange.uncounted():
                yield
        finally:
            self._uploads -= 1

    async def turn_of(self, request: Request, size: int) -> bool:
        """Wait until a whole body may be served; the body counts until `end_turn`, or until the
        request has ended.

        Return False if the wait takes too long.
        """
        if size <= self._limits.served_small_bytes:
            return True
        counted = min(size, self._limits.served_bytes)
        if not self._served.enter_now(counted):
            with trio.move_on_after(SERVED_WAIT_S) as waiting:
                await self._served.enter(counted)
            if waiting.cancelled_caught:
                return False
        request.scope[SERVED] = counted
        request.scope["exchange"].at_end.append(partial(self.end_turn, request))
        return True

    def end_turn(self, request: Request) -> None:
        """Serve the next body: of this request only the answer is left."""
        self._served.leave(request.scope.pop(SERVED, 0))


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads bodies of at most `bytes_max`, within `timeout_s`, until the broker stops.

    Neither Starlette nor h11 limits a body, and a slow or silent client would delay a stop.
    """

    bytes_max: int
    timeout_s: float
    stopping: trio.Event
    budget: BodyBudget = field(default_factory=BodyBudget)

    async def read(self, request: Request, into: type[T]) -> T:
        """Return the request's JSON body as an `into`; an absent body is the empty object. Raises
        RequestRefused.
        """
        body = await self._read(request)
        try:
            value = msgspec.json.decode(body or b"{}", type=into)
            check_names(body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RepeatedName) as error:
            raise RequestRefused(BAD_BODY, explain(error, into, BODY)) from None
        return value

    async def read_json(self, request: Request) -> bytes:
        """Return the request's body as unparsed UTF-8. Raises RequestRefused."""
        body = await self._read(request)
        if not body.isascii():
            try:
                body.decode()
            except UnicodeDecodeError as error:
                raise RequestRefused(BAD_BODY, explain(error, whole=BODY)) from None
        return body

    async def read_form(self, request: Request) -> dict[str, list[str]]:
        """Return the fields of an HTML form: the values of each name. Raises RequestRefused."""
        body = await self._take_whole(request, FORM)
        try:
            return parse_qs(
                body.decode(),
                keep_blank_values=True,
                strict_parsing=bool(body),
                errors="strict",
                max_num_fields=FORM_FIELDS_MAX,
            )
        except ValueError as error:
            raise RequestRefused(BAD_BODY, f"the body is not a form: {error}") from None

    async def _read(self, request: Request) -> bytes:
        return await self._take_whole(request, JSON)

    async def _take_whole(self, request: Request, wanted: str) -> bytes:
        """Return the body if its media type is `wanted`. Raises RequestRefused."""
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in ("", wanted) and not (wanted == JSON and media_type.endswith("+json")):
            raise RequestRefused(NOT_JSON, f"the body has to be {wanted}, not {media_type}")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestRefused(NOT_JSON, "the body has to come uncompressed")
        declared = request.headers.get("content-length", "0")
        if int(declared) > self.bytes_max:  # Digits only: h11 has checked.
            raise self._too_large()
        body = await self._take(request)
        if not await self.budget.turn_of(request, len(body)):
            raise RequestRefused(TOO_BUSY, "too many large requests at the same time")
        return body

    async def _take(self, request: Request) -> bytes:
        if self.stopping.is_set():
            raise RequestRefused(SHUTTING_DOWN, "the broker is stopping")
        whole: bytes | None = request.scope.get(WHOLE_BODY)
        if whole is not None:  # In memory already, and no larger than one receive.
            return whole
        body = bytearray()
        prompt_s = min(PROMPT_S, self.timeout_s)
        with trio.move_on_after(prompt_s):
            has_room = await self._collect(request, body)
            return self._checked(body, has_room=has_room)
        has_ended = has_room = False
        with self.budget.upload(request), trio.move_on_after(self.timeout_s - prompt_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_at_stop, nursery.cancel_scope)
                has_room = await self._collect(request, body)
                has_ended = True
                nursery.cancel_scope.cancel()
        if has_ended:
            return self._checked(body, has_room=has_room)
        if self.stopping.is_set():
            raise RequestRefused(SHUTTING_DOWN, "the broker is stopping")
        raise RequestRefused(BODY_TIMEOUT, f"no whole body within {self.timeout_s:g} s")

    def _checked(self, body: bytearray, *, has_room: bool) -> bytes:
        if not has_room:
            raise RequestRefused(TOO_BUSY, "too many large requests at the same time")
        if len(body) > self.bytes_max:
            raise self._too_large()
        return bytes(body)

    def _too_large(self) -> RequestRefused:
        return RequestRefused(BODY_TOO_LARGE, f"the body is larger than {self.bytes_max} bytes")

    async def _collect(self, request: Request, body: bytearray) -> bool:
        """Append the rest of the body to `body`, at most up to the first piece above the limit.

        Return False if the memory budget is used up. After a cancellation the pieces read so far
        stay in `body`. Raises nothing: an exception out of a nursery would arrive in a group.
        """
        while len(body) <= self.bytes_max:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                body.clear()  # The client left, so nobody needs an answer.
                return True
            piece = message.get("body", b"")
            if not self.budget.take(request, len(body), len(piece)):
                return False
            body += piece
            if not message.get("more_body", False):
                return True
        return True

    async def _cancel_at_stop(self, scope: trio.CancelScope) -> None:
        await self.stopping.wait()
        scope.cancel()


@dataclass(frozen=True, slots=True)
class Bodies:
    """The body readers for messages and for all other bodies; both share a memory budget."""

    of_messages: BodyReader
    of_others: BodyReader

    @classmethod
    def of(cls, options: RestOptions, stopping: trio.Event) -> Bodies:
        """Return the readers for a listener's options."""
        large = BodyReader(options.produce_bytes_max, options.request_timeout_s, stopping)
        return cls(large, replace(large, bytes_max=options.request_bytes_max))
