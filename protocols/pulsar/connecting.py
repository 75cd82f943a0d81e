"""CONNECT, PING, PONG and AUTH_RESPONSE.

"Connection establishment" and "Keep Alive" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from broker.server.endings import ProtocolError
from protocols.pulsar import messages
from protocols.pulsar.machine import MESSAGE_BYTES_MAX
from storage.codecs.pb.PulsarApi_pb2 import CommandAuthResponse, CommandConnect, CommandPing

if TYPE_CHECKING:
    from protocols.pulsar.session import PulsarSession

PROTOCOL_VERSION: Final = 21  # Clients take the smaller of theirs and ours.


def connect(session: PulsarSession, command: CommandConnect) -> Awaitable[None] | None:
    """Take the client in, once it has proved who it is where that is wanted."""
    if not command.client_version:
        raise ProtocolError("CONNECT without client_version")
    if session.login.is_needed:
        return _log_in(session, command)
    _take_in(session, command)
    return None


async def _log_in(session: PulsarSession, command: CommandConnect) -> None:
    await session.login.connect(command)
    _take_in(session, command)


def _take_in(session: PulsarSession, command: CommandConnect) -> None:
    session.machine.connected()
    session.client_version = command.client_version
    session.protocol_version = min(PROTOCOL_VERSION, command.protocol_version)
    answer = messages.connected(
        f"Braidlog {session.broker.version}",
        session.protocol_version,
        MESSAGE_BYTES_MAX,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )
    session.outbox.put([answer])


def ping(session: PulsarSession, command: CommandPing) -> None:
    """Answer at once, also before CONNECT."""
    session.outbox.put([messages.PONG])


def pong(session: PulsarSession, command: object) -> None:
    """A sign of life, which every command is."""


def auth_response(session: PulsarSession, command: CommandAuthResponse) -> Awaitable[None]:
    """Fresh credentials, if they were asked for."""
    return session.login.refresh(command)
