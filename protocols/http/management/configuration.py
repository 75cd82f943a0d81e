"""`/api/v1/config`: the settings in force, without passwords. Knows no setting by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.config.rows import setting_rows
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker


class Setting(msgspec.Struct):
    """A setting in force. `source` is a file with its line, a variable, a flag, or `default`."""

    setting: str
    value: Any
    source: str


class SettingList(msgspec.Struct):
    """All settings of the broker that answers."""

    settings: list[Setting]


class ConfigurationApi:
    """Handler of a broker's settings."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show(self, _: Request) -> Response:
        """Every setting in force with its value and source. Passwords are hidden."""
        rows = setting_rows(self._broker.config, self._broker.listeners.values())
        return json_response(SettingList([Setting(**row) for row in rows]))
