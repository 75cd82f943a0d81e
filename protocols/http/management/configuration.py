"""`/api/v1/config`: the settings in force, and what is stored about other Pulsar clusters; without
passwords. Knows no setting by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.config.rows import setting_rows
from braidlog.protocols.http.pulsar_admin.cluster_fields import shown_cluster
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

ADMIN_API: Final = "Pulsar's admin API"


class Setting(msgspec.Struct):
    """A setting in force. `source` is a file with its line, a variable, a flag, `default`, or
    Pulsar's admin API for the description of a cluster.
    """

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
        """Every setting in force with its value and source, and each Pulsar cluster that clients
        described, as `pulsar_clusters.NAME`. Passwords are hidden.
        """
        rows = setting_rows(self._broker.config, self._broker.listeners.values())
        clusters = self._broker.namespaces.clusters
        described = [
            Setting(f"pulsar_clusters.{name}", shown_cluster(fields, with_secrets=False), ADMIN_API)
            for name in clusters.names()
            if (fields := clusters.find(name)) is not None
        ]
        return json_response(SettingList([*(Setting(**row) for row in rows), *described]))
