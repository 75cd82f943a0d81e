"""The Iggy listener as seen by `broker/`. Every dialect is served (`all_dialects.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from braidlog.broker.config.settings import is_loopback
from braidlog.broker.server.connection import address_text
from braidlog.protocols.iggy.context import PROTOCOL, ListenerState
from braidlog.protocols.iggy.options import ROOT_PASSWORD, IggyOptions
from braidlog.protocols.iggy.relaying import RelayedSession, RelayingSession
from braidlog.protocols.iggy.root import make_root
from braidlog.protocols.iggy.session import IggySession

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection


class IggyAdapter:
    """See `braidlog.broker.server.adapters.FramedAdapter`."""

    name = "iggy"
    default_address = ("127.0.0.1", 8090)
    options_type = IggyOptions

    def __init__(self) -> None:
        self._shared: WeakKeyDictionary[Broker, ListenerState] = WeakKeyDictionary()

    def open_session(
        self, broker: Broker, connection: Connection, options: IggyOptions
    ) -> IggySession:
        """Return the session of a new connection."""
        shared = self._shared_of(broker)
        kind = IggySession if broker.peers.is_alone else RelayingSession
        return kind(broker, connection, options, shared)

    def open_relayed(
        self, broker: Broker, connection: Connection, options: IggyOptions
    ) -> IggySession:
        """Return the session for a client of another broker."""
        shared = self._shared_of(broker)
        session = RelayedSession(broker, connection, options, shared)
        return session.begin_relayed(connection)

    def _shared_of(self, broker: Broker) -> ListenerState:
        shared = self._shared.get(broker)
        if shared is None:
            shared = self._shared[broker] = ListenerState()
            broker.members.add_source(shared.members, PROTOCOL)
        return shared

    async def start(self, broker: Broker, options: IggyOptions, *, loopback: bool) -> None:
        """Give root a password if other machines can connect and none is set. Raises OSError,
        StorageFull, StorageFailed.
        """
        if not loopback and options.password_file is None:
            await make_root(broker, options.username)

    def check(self, options: IggyOptions, *, loopback: bool) -> None:
        """Check the options. Raises ValueError with a line for the operator."""
        options.check()

    def describe(self, host: str, port: int, options: IggyOptions) -> str:
        """Return instructions to connect, to copy and paste; a configured password is not shown."""
        is_known = options.password_file is None and is_loopback(host)
        password = f'"{ROOT_PASSWORD}"' if is_known else "PASSWORD"
        return (
            f'apache-iggy: client = IggyClient("{address_text((host, port))}");'
            f' await client.connect(); await client.login_user("{options.username}", {password})'
        )


ADAPTER = IggyAdapter()
