"""The Pulsar adapter, as the entry point names it. Knows how clients are told to connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.protocols.pulsar.client import PulsarClient
from braidlog.protocols.pulsar.discovery import service_url
from braidlog.protocols.pulsar.listener_state import SharedState
from braidlog.protocols.pulsar.options import PulsarOptions
from braidlog.protocols.pulsar.session import PulsarSession

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection


class PulsarAdapter:
    """Serves Pulsar's binary protocol."""

    name = "pulsar"
    default_address = ("127.0.0.1", 6650)
    options_type = PulsarOptions

    def open_session(
        self, broker: Broker, connection: Connection, options: PulsarOptions
    ) -> PulsarSession:
        """Handlers for a new connection; a broker's listeners share the state of their clients."""
        shared = broker.shared_states.get(self.name)
        if shared is None:
            shared = broker.shared_states[self.name] = SharedState(broker)
        return PulsarSession(PulsarClient(shared, connection, options))

    def describe(self, host: str, port: int, options: PulsarOptions) -> str:
        """Return the way a client connects to the address."""
        return f'pulsar.Client("{service_url(host, port)}")'


ADAPTER = PulsarAdapter()
