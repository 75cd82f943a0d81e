"""Structured logs on standard error: JSON lines when it is not a terminal, coloured text when it
is.

One line an event, in the past tense and few words; a connection binds `protocol`, `connection`
and `peer`. Nothing is logged per record above debug.
"""

import logging
import sys

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(*, level: str, log_format: str) -> None:
    """Set up logging for this process; `log_format` is auto, json or text."""
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if text:
        processors.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
    else:
        processors.append(structlog.processors.format_exc_info)
        processors.append(structlog.processors.JSONRenderer(default=repr))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries that log by the standard way (Hypercorn) come out beside ours, warnings and up.
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), stream=sys.stderr)
