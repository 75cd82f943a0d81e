"""Makes HTML from templates: every value is escaped, and control characters are made visible."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http.console.visits import group_name, group_path, topic_path

TEMPLATES = Path(__file__).parent / "templates"
SHARED: Final = ("base.html", "parts.html")  # Other templates use these.
# Controls of C0 and C1, and the characters that change the direction of text: a name could look
# like another name, or a value hide its end.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Templates:
    """The templates, each compiled in a worker thread at its first use."""

    def __init__(self) -> None:
        self._compiled: set[str] = set()
        self._environment = environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= {
            "ago": duration,
            "count": count,
            "rate": rate,
            "shell": shlex.quote,
            "size": size,
            "topic_path": topic_path,
            "visible": visible,
            "when": when,
        }
        environment.globals |= {"group_name": group_name, "group_path": group_path}
        for name in SHARED:
            environment.get_template(name)

    async def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page."""
        if name not in self._compiled:
            await run_in_thread(self._environment.get_template, name)
            self._compiled.add(name)
        return self._environment.get_template(name).render(values)


def visible(text: object) -> str:
    """Return a text with visible escapes instead of characters that cannot be seen."""
    return INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def count(number: int) -> str:
    """Return a number with separated thousands."""
    return f"{number:,}"


def rate(per_s: float) -> str:
    """Return a number per second: with a decimal only if the number is small."""
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"


def size(number: float) -> str:
    """Return a number of bytes in a readable unit."""
    for unit in SIZES[:-1]:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {SIZES[-1]}"


def when(time_us: int | None) -> str:
    """Return a time in microseconds since 1970 as UTC, to milliseconds; "" without a time."""
    if time_us is None:
        return ""
    try:
        time = datetime.fromtimestamp(time_us / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):  # Clients send any number as an event time.
        return f"{time_us} µs"
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units; "" without a duration."""
    if seconds is None:
        return ""
    left = int(seconds)
    if left < 1:
        return f"{max(seconds, 0.0):.1f} s"
    parts = []
    for unit_s, unit in UNITS:
        if left >= unit_s:
            parts.append(f"{left // unit_s} {unit}")
            left %= unit_s
    return " ".join(parts[:2])
