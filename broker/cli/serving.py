"""The command `serve`: its flags become settings, and a broker runs with the settings.

Most brokers are started by a script or a service, with nothing but flags and their values. This
module reads such flags as cyclopts does (`commands.py`): cyclopts and its imports would cost a
broker 2 MB and a tenth of a second. Imports no broker before the settings are good.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field

from braidlog.broker.cli.failures import EXIT_USAGE, fail

# Name of each flag in `ServeFlags`.
ONCE = {"--data-dir": "data_dir", "--config": "config", "--ready-file": "ready_file"}
REPEATABLE = {"--listen": "listen", "--set": "set_"}


@dataclass(slots=True)
class ServeFlags:
    """The given flags; None, or empty, for absent flags."""

    data_dir: str | None = None
    config: str | None = None
    listen: list[str] = field(default_factory=list)
    set_: list[str] = field(default_factory=list)
    ready_file: str | None = None
    ephemeral: bool = False


def plain_flags(arguments: Sequence[str]) -> ServeFlags | None:
    """Return the flags of `serve`, if each flag has a value; None for other commands or forms."""
    if not arguments or arguments[0] != "serve":
        return None
    flags = ServeFlags()
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "--ephemeral":
            flags.ephemeral = True
            continue
        flag, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "")
        if not value or value.startswith("-"):
            return None
        if flag in REPEATABLE:
            getattr(flags, REPEATABLE[flag]).append(value)
        elif flag in ONCE and getattr(flags, ONCE[flag]) is None:
            setattr(flags, ONCE[flag], value)
        else:
            return None
    return flags


def serve(flags: ServeFlags) -> int:
    """Run the broker until SIGTERM or SIGINT; return the exit code of the process."""
    from braidlog.broker.config.settings import ConfigError, load

    overrides = []
    try:
        for text in flags.listen:
            name, value = _pair(text, "--listen", "NAME=HOST:PORT")
            overrides.append((f"listeners.{name}.listen", value, f"--listen {text}"))
        overrides += set_flags(flags.set_)
        if flags.ephemeral:
            return _serve_ephemeral(flags, overrides)
        if flags.data_dir is not None:
            overrides.append(("data_dir", flags.data_dir, "--data-dir"))
        settings = load(file=flags.config, flags=overrides)
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    from braidlog.broker.config.unused import import_structlog

    gc.disable()  # Modules are no garbage: looking for some took a tenth of the start.
    try:
        import_structlog()
        from braidlog.broker.process import serve as serve_broker
    finally:
        gc.enable()
    return serve_broker(settings, ready_file=flags.ready_file)


def _serve_ephemeral(flags: ServeFlags, settings: Sequence[tuple[str, str, str]]) -> int:
    """Run a broker for tests, with its data in memory. Returns the exit code."""
    for name, value in (("--data-dir", flags.data_dir), ("--config", flags.config)):
        if value is not None:
            return fail(f"{name}: not possible with --ephemeral", EXIT_USAGE)
    from braidlog.testing.serving import serve_ephemeral

    return serve_ephemeral(settings, flags.ready_file)


def set_flags(texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return settings by `--set KEY=VALUE`, each with the flag's text. Raises ConfigError."""
    return [(*_pair(text, "--set", "KEY=VALUE"), f"--set {text}") for text in texts]


def _pair(text: str, flag: str, wanted: str) -> tuple[str, str]:
    from braidlog.broker.config.settings import ConfigError

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{flag} {text}: expected {wanted}")
    return key.strip(), value.strip()
