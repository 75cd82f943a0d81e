"""Values in the paths, queries and bodies of Iggy's HTTP API. Knows no route and no body.

Streams, topics, groups and partitions are numbered from 0 here, as in all dialects since D4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.names import NAME_BYTES_MAX

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


def digits(text: str, largest: int) -> int | None:
    """Return the number that a text of digits writes; None for another text or a larger number.

    A long text is not converted: `int` raises ValueError above 4,300 digits.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    significant = text.lstrip("0") or "0"
    if len(significant) > len(str(largest)):
        return None
    number = int(significant)
    return number if number <= largest else None


def name_of(text: str) -> m.Name:
    """Return the stream, topic or group that a path names: a number, else a name."""
    number = digits(text, U32_MAX)
    return text if number is None else number + 1


def user_of(text: str) -> m.Name:
    """Return the user that a path names; users have Iggy's own numbers."""
    number = digits(text, U32_MAX)
    return text if number is None else number


def consumer_of(value: int | str) -> m.ConsumerRef:
    """Return a consumer: a number or a name. Raises Refusal."""
    name: int | str | None = value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        name = digits(value, U32_MAX)
    if name is None or (isinstance(name, int) and not 0 <= name <= U32_MAX):
        raise refused("consumer_id: a number of 32 bits, or a name")
    if isinstance(name, str) and not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise refused(f"consumer_id: a name of 1 to {NAME_BYTES_MAX} bytes")
    return m.ConsumerRef(m.ConsumerKind.CONSUMER, name)


def number_of(query: Mapping[str, str], name: str, default: int, largest: int = U32_MAX) -> int:
    """Return a number of a query. Raises Refusal."""
    text = query.get(name, "")
    if not text:
        return default
    number = digits(text, largest)
    if number is None:
        raise refused(f"{name}: a number from 0 to {largest} is needed")
    return number


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
