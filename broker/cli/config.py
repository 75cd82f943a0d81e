"""`braidlog config`: show and check a broker's settings, and print an example file.

Reads the sources of `serve`, and starts nothing; or asks a running broker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.client import API
from braidlog.broker.cli.failures import EXIT_USAGE, failing
from braidlog.broker.cli.output import HERE, Where, client_of, print_rows
from braidlog.broker.cli.serving import set_flags
from braidlog.broker.config.rows import setting_rows
from braidlog.broker.config.settings import Config, ConfigError, load

if TYPE_CHECKING:
    from braidlog.broker.server.listener import Listener

config = App(name="config", help="Show and check the settings of a broker.")

ConfigFile = Annotated[str | None, Parameter(name="--config", help="Settings, a TOML file.")]
SetOption = Annotated[
    list[str] | None, Parameter(name="--set", negative=(), help="KEY=VALUE. Repeatable.")
]


@config.command
def show(*, config_file: ConfigFile = None, set_: SetOption = None, where: Where = HERE) -> None:
    """Print every setting in force, and its source: a file, a variable, a flag or the default.

    With --url or --context the settings are those of a running broker, with the Pulsar clusters
    that clients described there.

    Example: braidlog config show --config broker.toml
    """
    if where.url or where.context:
        rows = client_of(where).ask("GET", f"{API}/config")["settings"]
    else:
        rows = list(setting_rows(*_load(config_file, set_)))
    texts = [{**row, "value": _text(row["value"])} for row in rows]
    print_rows(where, rows, ("setting", "value", "source"), texts)


@config.command
def check(*, config_file: ConfigFile = None, set_: SetOption = None) -> None:
    """Read all settings as `serve` does; exits with 2 and names the place of a bad setting.

    Example: braidlog config check --config broker.toml
    """

    _, listeners = _load(config_file, set_)
    names = ", ".join(listener.name for listener in listeners)
    print(f"the settings are good; listeners: {names or 'none'}")


@config.command
def example() -> None:
    """Print a settings file with every setting and its default, as comments.

    Example: braidlog config example > braidlog.toml
    """
    groups: dict[str, list[str]] = {"": []}
    for row in setting_rows(*_read(Config())):
        parent, _, name = row["setting"].rpartition(".")
        value = row["value"]
        line = f"# {name}: not set" if value is None else f"# {name} = {_toml(value)}"
        groups.setdefault(parent, []).append(line)
    for parent, lines in groups.items():
        print("\n".join([f"\n# [{parent}]", *lines] if parent else lines))


def _toml(value: object) -> str:
    """Return a value as TOML; JSON writes texts, numbers, booleans and lists alike."""
    return "{}" if value == {} else json.dumps(value, ensure_ascii=False)


def _load(file: str | None, set_: list[str] | None) -> tuple[Config, list[Listener]]:
    """Return the settings and the listeners. Raises AdminError."""
    with failing({EXIT_USAGE: ConfigError}):
        return _read(load(file=file, flags=set_flags(set_ or ())))


def _read(settings: Config) -> tuple[Config, list[Listener]]:
    """Return the settings and the listeners, whose adapters check their options. Raises
    ConfigError.
    """
    from braidlog.broker.server.listener import make_listeners

    return settings, make_listeners(settings)


def _text(value: object) -> str:
    """Return a value as a flag takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)
