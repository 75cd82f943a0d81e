"""Values in the paths, queries and bodies of Iggy's HTTP API. Knows no route and no body.

Streams, topics, groups and partitions are numbered from 0 here, as in all dialects since D4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy.errors import ErrorCode, Refusal

U32_MAX, U64_MAX = (1 << 32) - 1, (1 << 64) - 1
STATUSES: Final = {1: "active", 2: "inactive"}

U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
# msgspec checks limits of 64 bits only up to 2^63; `whole` checks the rest.
Whole = Annotated[int, msgspec.Meta(ge=0)]
Json = dict[str, Any]
T = TypeVar("T")


def refused(reason: str, code: ErrorCode = ErrorCode.INVALID_COMMAND) -> Refusal:
    """Return the refusal of a value."""
    return Refusal(code, reason)


def parsed(body: bytes, into: type[T]) -> T:
    """Return a JSON body. Raises Refusal."""
    try:
        value: Any = msgspec.json.decode(body or b"{}", type=into)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(str(error), ErrorCode.INVALID_FORMAT) from None
    result: T = value
    return result


def name_of(text: str) -> m.Name:
    """Return the stream, topic or group that a path names: a number, else a name."""
    if text.isascii() and text.isdigit() and int(text) <= U32_MAX:
        return int(text) + 1
    return text


def user_of(text: str) -> m.Name:
    """Return the user that a path names; users have Iggy's own numbers."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= U32_MAX else text


def consumer_of(value: int | str) -> m.ConsumerRef:
    """Return a consumer: a number or a name. Raises Refusal."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not 0 <= value <= U32_MAX:
        raise refused("consumer_id: a number of 32 bits, or a name")
    if value == "":
        raise refused("consumer_id: is empty")
    return m.ConsumerRef(m.ConsumerKind.CONSUMER, value)


def number_of(query: Mapping[str, str], name: str, default: int, largest: int = U32_MAX) -> int:
    """Return a number of a query. Raises Refusal."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text[:40]) <= largest):
        raise refused(f"{name}: a number from 0 to {largest} is needed")
    return int(text)


def whole(value: int, name: str, largest: int = U64_MAX) -> int:
    """Return a number that the protocol can express. Raises Refusal."""
    if not 0 <= value <= largest:
        raise refused(f"{name}: a number from 0 to {largest} is needed")
    return value


def status_of(text: str | None) -> int | None:
    """Return the number of a user's status. Raises Refusal."""
    numbers = {status: number for number, status in STATUSES.items()}
    if text is not None and text not in numbers:
        raise refused("status: active or inactive", ErrorCode.INVALID_USER_STATUS)
    return None if text is None else numbers[text]
