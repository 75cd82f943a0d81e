"""Commands that are known and not served: each gets Pulsar's own refusal, never silence.

Transactions are refused in the words of an Apache broker that has them switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from protocols.pulsar import messages
from protocols.pulsar.errors import Refused
from protocols.pulsar.machine import Type
from storage.codecs.pb.PulsarApi_pb2 import CommandWatchTopicListClose, ServerError

if TYPE_CHECKING:
    from protocols.pulsar.session import PulsarSession


class Request(Protocol):
    """Any command that is to be answered."""

    request_id: int


def transactions(session: PulsarSession, command: Request) -> None:
    """Refuse any command of a transaction; all of them carry a request id."""
    error = Refused(ServerError.NotAllowedError, "Transactions are not enabled.")
    session.refuse(command.request_id, error)


def watch_topic_list(session: PulsarSession, command: Request) -> None:
    """Refuse: the handshake did not offer it, and clients poll instead."""
    error = Refused(ServerError.NotAllowedError, "Watching topics is not enabled.")
    session.refuse(command.request_id, error)


def watch_topic_list_close(session: PulsarSession, command: CommandWatchTopicListClose) -> None:
    """As Apache does for a watcher that it does not know."""
    session.outbox.put([messages.success(command.request_id)])


HANDLERS: Final[dict[int, Callable[[PulsarSession, Any], None]]] = {
    Type.NEW_TXN: transactions,
    Type.ADD_PARTITION_TO_TXN: transactions,
    Type.ADD_SUBSCRIPTION_TO_TXN: transactions,
    Type.END_TXN: transactions,
    Type.END_TXN_ON_PARTITION: transactions,
    Type.END_TXN_ON_SUBSCRIPTION: transactions,
    Type.TC_CLIENT_CONNECT_REQUEST: transactions,
    Type.WATCH_TOPIC_LIST: watch_topic_list,
    Type.WATCH_TOPIC_LIST_CLOSE: watch_topic_list_close,
}
