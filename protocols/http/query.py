"""Typed query parameters, under limits. Unknown parameters are ignored. Knows no route."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from braidlog.protocols.http.errors import BAD_QUERY, RequestRefused

DIGITS_MAX = 19  # Digits of a 64-bit number.
PAGE_DEFAULT = 1000
PAGE_MAX = 10_000  # Entries in one answer: a few ms of the loop, 2 MB of JSON.
TRUTHS = {"true": True, "1": True, "": True, "false": False, "0": False}


def number(
    request: Request, names: Sequence[str], default: int | None, *, least: int, most: int | None
) -> int | None:
    """Return the number of the first given name, at most `most`. Raises RequestRefused."""
    for name in names:
        text = request.query_params.get(name)
        if text is None:
            continue
        if not (text.isascii() and text.isdecimal()) or len(text) > DIGITS_MAX:
            raise RequestRefused(BAD_QUERY, f"{name} is a number, not {text[:40]!r}")
        value = int(text)
        if value < least:
            raise RequestRefused(BAD_QUERY, f"{name} is at least {least}")
        return value if most is None else min(value, most)
    return default


def integer(request: Request, name: str, default: int) -> int:
    """Return a number that may be negative. Raises RequestRefused."""
    text = request.query_params.get(name)
    return default if text is None else signed(name, text)


def signed(name: str, text: str) -> int:
    """Return the value of a number that may be negative. Raises RequestRefused."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > DIGITS_MAX:
        raise RequestRefused(BAD_QUERY, f"{name} is a number, not {text[:40]!r}")
    return int(text)


def truth(request: Request, names: Sequence[str]) -> bool:
    """Return True if a switch is on; an absent switch is off. Raises RequestRefused."""
    for name in names:
        text = request.query_params.get(name)
        if text is not None:
            if text.lower() not in TRUTHS:
                raise RequestRefused(BAD_QUERY, f"{name} is true or false, not {text[:40]!r}")
            return TRUTHS[text.lower()]
    return False


def choice(request: Request, name: str, choices: Sequence[str]) -> str:
    """Return the given choice; by default the first choice. Raises RequestRefused."""
    text = request.query_params.get(name, choices[0]).lower()
    if text not in choices:
        raise RequestRefused(BAD_QUERY, f"{name} is one of {', '.join(choices)}, not {text[:40]!r}")
    return text


def entries_before(request: Request) -> int:
    """Return the number of entries before a page that is not sorted by name: `after`. Raises
    RequestRefused.
    """
    before = number(request, ("after",), 0, least=0, most=None)
    assert before is not None
    return before


def page_limit(request: Request) -> int:
    """Return the number of list entries that the request asks for. Raises RequestRefused."""
    text = request.query_params.get("limit", str(PAGE_DEFAULT))
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    if not is_number or not 1 <= int(text) <= PAGE_MAX:
        raise RequestRefused(
            BAD_QUERY, f"limit is a number from 1 to {PAGE_MAX}, not {text[:40]!r}"
        )
    return int(text)
