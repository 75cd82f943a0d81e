"""The settings in force as rows: name, value and source. Knows no broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from braidlog.broker.config.settings import OFF, Config
from braidlog.storage.shared.passwords import PASSWORD

if TYPE_CHECKING:
    from braidlog.broker.server.opened import OpenListener

Row = dict[str, Any]
DEFAULT: Final = "default"
HIDDEN: Final = "(hidden)"


def setting_rows(settings: Config, listeners: Iterable[OpenListener]) -> Iterator[Row]:
    """Yield each setting with its value and source, without passwords."""
    yield from _leaves(settings, "", settings.origins, ("listeners", "origins"))
    open_now = {listener.name: listener for listener in listeners}
    for name in sorted({*open_now, *settings.listeners}):
        at = f"listeners.{name}"
        configured, listener = settings.listener(name), open_now.get(name)
        if listener is None:
            yield _row(f"{at}.listen", OFF, settings.origins)
            continue
        host, port = listener.listen
        yield _row(f"{at}.listen", f"{host}:{port}", settings.origins)
        yield from _leaves(configured, at, settings.origins, ("name", "listen", "options"))
        yield from _leaves(listener.options, at, settings.origins, ())


def _leaves(
    group: msgspec.Struct, at: str, origins: Mapping[str, str], without: tuple[str, ...]
) -> Iterator[Row]:
    for name in group.__struct_fields__:
        value, dotted = getattr(group, name), f"{at}.{name}".strip(".")
        if name in without:
            continue
        if isinstance(value, msgspec.Struct):
            yield from _leaves(value, dotted, origins, ())
        else:
            yield _row(dotted, msgspec.to_builtins(value), origins)


def _row(dotted: str, value: object, origins: Mapping[str, str]) -> Row:
    source = origins.get(dotted, DEFAULT)
    if isinstance(value, str) and PASSWORD.search(value):
        value, source = HIDDEN, source.partition("=")[0]  # A flag's source is its whole text.
    return {"setting": dotted, "value": value, "source": source}
