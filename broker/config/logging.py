"""Structured logs on standard error: coloured text on a terminal, otherwise JSON lines.

A line per event, in the past tense and few words; a connection binds `protocol`, `connection` and
`peer`. Nothing is logged per record above debug.
"""

import logging
import sys
import time
from collections.abc import Callable

import structlog
from structlog.typing import ExcInfo

from braidlog.broker.config.tracebacks import traceback_text

# Pause between two lines of an event and cause: an operator sees that the event continues, and the
# log is no second load on the broker.
PAUSE_S = 20.0
CAUSES_MAX = 1000  # Remembered at a time; clients may bring ever new causes.

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(*, level: str, log_format: str) -> None:
    """Set up logging for this process; `log_format` is auto, json or text."""
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_exception_text),
    ]
    if text:  # structlog's default formats tracebacks with `rich`: half a second, and with values.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=plain
        )
        processors.append(renderer)
    else:
        processors.append(structlog.processors.JSONRenderer(default=repr))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Lines of libraries that use `logging` appear beside ours, warnings and up.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LibraryFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[handler])


def _exception_text(exc_info: ExcInfo) -> str:
    return traceback_text(exc_info[1])


class _LibraryFormatter(logging.Formatter):
    """Formats lines of libraries, with tracebacks of bounded size."""

    def formatException(self, ei: ExcInfo | tuple[None, None, None]) -> str:
        """See `logging.Formatter`."""
        return traceback_text(ei[1]) if ei[1] is not None else ""


class ThrottledLog:
    """Logs events that clients can cause at will.

    The first event of a cause is logged at once, then at most a line every `PAUSE_S` with the
    number of events since the last line.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds."""
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        self._now = now
        self._last: dict[tuple[str, str], float] = {}
        self._untold: dict[tuple[str, str], int] = {}

    def info(self, event: str, *, cause: str, **fields: object) -> None:
        """Log or count an event; events of the same `cause` are counted together."""
        self._note(self._log.info, event, cause, fields)

    def warning(self, event: str, *, cause: str, **fields: object) -> None:
        """Log as `info` at level WARNING, for events that an operator may have to know."""
        self._note(self._log.warning, event, cause, fields)

    def error(self, event: str, *, cause: str, **fields: object) -> None:
        """Log as `info` at level ERROR, for events that need an operator's action."""
        self._note(self._log.error, event, cause, fields)

    def _note(
        self, write: Callable[..., object], event: str, cause: str, fields: dict[str, object]
    ) -> None:
        key = (event, cause)
        count = self._untold.get(key, 0) + 1
        now = self._now()
        last = self._last.get(key)
        if last is not None and now - last < PAUSE_S:
            self._untold[key] = count
            return
        if len(self._last) >= CAUSES_MAX:
            self._last.clear()
            self._untold.clear()
        self._last[key] = now
        self._untold.pop(key, None)
        write(event, count=count, **fields)
