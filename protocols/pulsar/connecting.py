"""CONNECT, PING, PONG and AUTH_RESPONSE.

"Connection establishment" and "Keep Alive" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.topics.schema_rules import has_parser, load_parser
from braidlog.broker.topics.settings import limit_of
from braidlog.protocols.pulsar import messages, patterns
from braidlog.protocols.pulsar.machine import MESSAGE_BYTES_MAX
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
)

if TYPE_CHECKING:
    from braidlog.protocols.pulsar.client import PulsarClient

PROTOCOL_VERSION: Final = 21  # Clients use the smaller of theirs and ours.
ENTRY_METADATA_VERSION: Final = 18  # The oldest version with clients that may ask.


def connect(client: PulsarClient, command: CommandConnect) -> Awaitable[None] | None:
    """Accept the client, after a login if authentication is required."""
    if not command.client_version:
        raise ProtocolError("CONNECT without client_version")
    if client.login.is_needed(command):
        return _log_in(client, command)
    if not has_parser():
        return _take_in_first(client, command)
    _take_in(client, command)
    return None


async def _take_in_first(client: PulsarClient, command: CommandConnect) -> None:
    """Take in the first client, which may have a schema as all behind it."""
    await load_parser()
    _take_in(client, command)


async def _log_in(client: PulsarClient, command: CommandConnect) -> None:
    await client.login.connect(command)
    await load_parser()
    _take_in(client, command)


def _take_in(client: PulsarClient, command: CommandConnect) -> None:
    client.machine.connected()
    client.connection.note_library(command.client_version)
    version = min(PROTOCOL_VERSION, command.protocol_version)
    client.speaks(
        command.client_version,
        version,
        takes_entry_metadata=client.options.broker_entry_metadata
        and version >= ENTRY_METADATA_VERSION
        and command.feature_flags.supports_broker_entry_metadata,
    )
    answer = messages.connected(
        f"Braidlog {client.broker.version}",
        client.protocol_version,
        _message_bytes_max(client),
        supports_topic_watchers=patterns.ARE_SERVED,
        supports_topic_watcher_reconcile=patterns.ARE_SERVED,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )
    client.outbox.put([answer])


def _message_bytes_max(client: PulsarClient) -> int:
    """Return the largest message that the broker's settings allow: clients cut larger messages."""
    most = limit_of(client.broker.topics.defaults.settings, "message_bytes_max")
    return MESSAGE_BYTES_MAX if most is None else min(most, MESSAGE_BYTES_MAX)


def ping(client: PulsarClient, command: CommandPing) -> None:
    """Answer at once, also before CONNECT."""
    client.outbox.put([messages.PONG])


def pong(client: PulsarClient, command: object) -> None:
    """Do nothing: like every command, it has counted as a sign of life."""


def auth_response(client: PulsarClient, command: CommandAuthResponse) -> Awaitable[None]:
    """Take fresh credentials, if they were asked for."""
    return client.login.refresh(command)
