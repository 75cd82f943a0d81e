"""The Iggy listener, as `broker/` finds it.

Dialect D2 is served: Rust crate 0.5 and 0.6, iggy-py 0.2.3 to 0.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from broker.server.connection import address_text
from protocols.iggy.context import Shared
from protocols.iggy.options import ROOT_PASSWORD, IggyOptions
from protocols.iggy.session import IggySession

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.server.connection import Connection


class IggyAdapter:
    """See `broker.adapters.FramedAdapter`."""

    name = "iggy"
    default_address = ("127.0.0.1", 8090)
    options_type = IggyOptions

    def __init__(self) -> None:
        self._shared: WeakKeyDictionary[Broker, Shared] = WeakKeyDictionary()

    def open_session(
        self, broker: Broker, connection: Connection, options: IggyOptions
    ) -> IggySession:
        """Handlers for a connection that has just come in."""
        shared = self._shared.setdefault(broker, Shared())
        return IggySession(broker, connection, options, shared)

    def check(self, options: IggyOptions, *, loopback: bool) -> None:
        """Whether somebody can log in, and not everybody. Raises ValueError, with one line."""
        options.check(loopback=loopback)

    def describe(self, host: str, port: int, options: IggyOptions) -> str:
        """How a client connects, to copy and paste; a password of one's own is not told."""
        password = "PASSWORD" if options.password_file is not None else f'"{ROOT_PASSWORD}"'
        return (
            f'iggy-py: client = IggyClient("{address_text((host, port))}"); await client.connect();'
            f' await client.login_user("{options.username}", {password})'
        )


ADAPTER = IggyAdapter()
