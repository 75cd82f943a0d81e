"""Refuses commands that are not served, or with text that is not UTF-8, with Pulsar's own errors.

Transactions are refused as an Apache broker does that has them switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.machine import CommandFrame, Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from braidlog.protocols.pulsar.client import Failed, PulsarClient

# Commands that are refused with their own answer instead of ERROR.
FAILED: Final[dict[int, Failed]] = {
    Type.PARTITIONED_METADATA: messages.partitions_failed,
    Type.LOOKUP: messages.lookup_failed,
    Type.GET_SCHEMA: messages.schema_failed,
    Type.GET_OR_CREATE_SCHEMA: messages.schema_version_failed,
}


def not_text(client: PulsarClient, command: CommandFrame) -> None:
    """Refuse a command with text that is not UTF-8, with a code that all clients take as final.

    Raises ProtocolError for a command without an answer (CONNECT).
    """
    reason = f"{Type.Name(command.type)}: {command.not_text} is not UTF-8 text"
    request_id = getattr(command.fields, "request_id", None)
    if request_id is None:
        raise ProtocolError(reason)
    if command.type in FAILED:
        client.count_refused(ServerError.NotAllowedError)
        answer = FAILED[command.type](request_id, ServerError.NotAllowedError, reason)
        client.outbox.put([answer])
    else:
        client.refuse(request_id, CommandRefused(ServerError.NotAllowedError, reason))


class AnsweredCommand(Protocol):
    """Any command that expects an answer."""

    request_id: int


def transactions(client: PulsarClient, command: AnsweredCommand) -> None:
    """Refuse any command of a transaction; all of them carry a request id."""
    error = CommandRefused(ServerError.NotAllowedError, "Transactions are not enabled.")
    client.refuse(command.request_id, error)


HANDLERS: Final[dict[int, Callable[[PulsarClient, Any], None]]] = {
    Type.NEW_TXN: transactions,
    Type.ADD_PARTITION_TO_TXN: transactions,
    Type.ADD_SUBSCRIPTION_TO_TXN: transactions,
    Type.END_TXN: transactions,
    Type.END_TXN_ON_PARTITION: transactions,
    Type.END_TXN_ON_SUBSCRIPTION: transactions,
    Type.TC_CLIENT_CONNECT_REQUEST: transactions,
}
