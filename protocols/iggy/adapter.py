"""The Iggy listener as seen by `broker/`. Every dialect is served (`all_dialects.py`)."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

import trio

from braidlog.broker.config.settings import is_loopback
from braidlog.broker.errors import NotOwner
from braidlog.broker.server.connection import address_text
from braidlog.protocols.iggy.command_forwarding import ForwardedSession, ForwardingSession
from braidlog.protocols.iggy.context import PROTOCOL, TRANSPORT_TCP, ListenerState
from braidlog.protocols.iggy.membership import GroupKey, Groups
from braidlog.protocols.iggy.options import ROOT_PASSWORD, IggyOptions
from braidlog.protocols.iggy.root import make_root
from braidlog.protocols.iggy.session import IggySession

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.members import LiveGroup
    from braidlog.broker.server.connection import Connection


LOOK_S: Final = 1.0  # Between two looks for sessions that are lost for too long.
States = MutableMapping["Broker", ListenerState]


def state_of(states: States, broker: Broker) -> ListenerState:
    """Return the state of a broker's listeners."""
    shared = states.get(broker)
    if shared is None:
        shared = states[broker] = ListenerState(_groups_of(broker))
        weak = ref(broker)  # As in `_groups_of`.

        def joined(name: bytes | None) -> Iterator[LiveGroup]:
            alive = weak()
            return iter(()) if alive is None else shared.joined(alive.topics.all(), name)

        broker.members.add_source(shared.members, PROTOCOL, joined)
        broker.named_groups.listeners.append(shared.all_groups.drop)
        broker.topics.listeners.add(shared)
    return shared


def _groups_of(broker: Broker) -> Groups:
    """Return the members of a broker's groups, none yet.

    Generations begin with the time, so that no group repeats a generation of the group of that name
    before a deletion, a restart or a takeover.
    """
    weak = ref(broker)  # A strong reference would keep an entry of `States` for good.

    def alive() -> Broker:
        alive_broker = weak()
        assert alive_broker is not None, "a broker lives longer than its connections"
        return alive_broker

    def position_of(group: GroupKey, partition: int) -> int | None:
        return _position(alive(), group, partition)

    return Groups(trio.current_time, position_of, lambda: alive().now_us())


def _position(broker: Broker, group: GroupKey, partition: int) -> int | None:
    """Return a group's position as `PositionOf`; None also if another broker owns the topic."""
    topic_id, name = group
    topic = broker.topics.find_by_id(topic_id)
    if topic is None:
        return None
    try:
        subscription = broker.subscriptions.find(topic, name.encode())
        return None if subscription is None else subscription.position(partition)
    except NotOwner:
        return None


class IggyAdapter:
    """See `braidlog.broker.server.adapters.FramedAdapter`."""

    name = "iggy"
    default_address = ("127.0.0.1", 8090)
    options_type = IggyOptions

    transport = TRANSPORT_TCP

    def __init__(self, shared: States) -> None:
        """Take the state of each broker, which the listeners of all transports share."""
        self.states = shared

    def open_session(
        self, broker: Broker, connection: Connection, options: IggyOptions
    ) -> IggySession:
        """Return the session of a new connection."""
        shared = state_of(self.states, broker)
        kind = IggySession if broker.peers.is_alone else ForwardingSession
        return kind(broker, connection, options, shared, self.transport)

    def open_forwarded(
        self, broker: Broker, connection: Connection, options: IggyOptions
    ) -> IggySession:
        """Return the session for a client of another broker."""
        shared = state_of(self.states, broker)
        session = ForwardedSession(broker, connection, options, shared, self.transport)
        return session.begin_forwarded(connection)

    async def start(self, broker: Broker, options: IggyOptions, *, loopback: bool) -> None:
        """Give root a password if other machines can connect and none is set. Raises OSError,
        StorageFull, StorageFailed.
        """
        if not loopback and options.password_file is None:
            await make_root(broker, options.username)

    async def work(self, broker: Broker, options: IggyOptions) -> None:
        """End sessions that have been without a connection for too long, while the listener is
        open: the groups of other brokers must not wait for a client of this broker.
        """
        sessions = state_of(self.states, broker).sessions
        while True:
            await trio.sleep(LOOK_S)
            sessions.end_due()

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


ADAPTER = IggyAdapter(WeakKeyDictionary())
