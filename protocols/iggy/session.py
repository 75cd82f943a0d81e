"""One Iggy connection: commands to handlers, answers to the outbox. Knows no bytes.

Commands are handled one after another and answered strictly in that order: answers carry nothing
that says to which command they belong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError
from broker.server.adapters import EndConnection, ProtocolError
from protocols.iggy import groups, offsets, polling, sending, streams, system, topics
from protocols.iggy import messages as m
from protocols.iggy.context import PROTOCOL, Answer, Client, Context, Shared
from protocols.iggy.errors import Absent, ErrorCode, Refusal, wire_code
from protocols.iggy.machine import EMPTY_OK, Command, IggyMachine, Refused, State
from protocols.iggy.options import IggyOptions

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.server.connection import Connection

# Nothing here keeps time: clients ping, the reference server does not demand it.
DEADLINE_INTERVAL_S = 3600.0

Handler = Callable[[Context, Any], Awaitable[Answer]]

HANDLERS: Mapping[type, tuple[str, Handler]] = {
    m.Ping: ("ping", system.ping),
    m.LoginUser: ("login_user", system.login),
    m.LogoutUser: ("logout_user", system.logout),
    m.GetMe: ("get_me", system.get_me),
    m.GetClient: ("get_client", system.get_client),
    m.GetClients: ("get_clients", system.get_clients),
    m.GetStats: ("get_stats", system.get_stats),
    m.PollMessages: ("poll_messages", polling.poll),
    m.SendMessages: ("send_messages", sending.send),
    m.GetConsumerOffset: ("get_consumer_offset", offsets.get_offset),
    m.StoreConsumerOffset: ("store_consumer_offset", offsets.store_offset),
    m.DeleteConsumerOffset: ("delete_consumer_offset", offsets.delete_offset),
    m.GetStream: ("get_stream", streams.get_stream),
    m.GetStreams: ("get_streams", streams.get_streams),
    m.CreateStream: ("create_stream", streams.create_stream),
    m.UpdateStream: ("update_stream", streams.update_stream),
    m.DeleteStream: ("delete_stream", streams.delete_stream),
    m.GetTopic: ("get_topic", topics.get_topic),
    m.GetTopics: ("get_topics", topics.get_topics),
    m.CreateTopic: ("create_topic", topics.create_topic),
    m.DeleteTopic: ("delete_topic", topics.delete_topic),
    m.CreatePartitions: ("create_partitions", topics.create_partitions),
    m.GetGroup: ("get_group", groups.get_group),
    m.GetGroups: ("get_groups", groups.get_groups),
    m.CreateGroup: ("create_group", groups.create_group),
    m.DeleteGroup: ("delete_group", groups.delete_group),
    m.JoinGroup: ("join_group", groups.join_group),
    m.LeaveGroup: ("leave_group", groups.leave_group),
}


class IggySession:
    """The handlers of one connection; see `broker.adapters.Session`."""

    def __init__(
        self, broker: Broker, connection: Connection, options: IggyOptions, shared: Shared
    ) -> None:
        """`options` are those of the listener that the connection came in by."""
        self._machine = IggyMachine()
        self._connection = connection
        self._outbox = connection.outbox
        client = Client(connection.id, connection.peer)
        shared.clients[client.client_id] = client
        self._context = Context(broker, connection, options, shared, client)
        number = broker.metrics.number
        self._counted = {
            kind: number("braidlog_requests", PROTOCOL, api) for kind, (api, _) in HANDLERS.items()
        }

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame, None until it is known. Raises ProtocolError."""
        return self._machine.frame_size(view)

    async def handle(self, frame: memoryview) -> None:
        """Serve one frame. Raises EndConnection for a client of a dialect that is not served."""
        event = self._machine.decode(frame)
        if isinstance(event, Refused):
            self._refuse(event)
            return
        answer = await self._carry_out(event)
        if answer is not None:
            head = self._machine.encode(answer.records, sum(map(len, answer.tail)))
            self._outbox.answer([head, *answer.tail], answer.ticket)

    async def turn_ended(self) -> None:
        """Nothing is kept from one frame to the next."""

    def on_deadline(self, now: float) -> float:
        """Nothing to be done, ever."""
        return now + DEADLINE_INTERVAL_S

    def goodbye(self) -> None:
        """Iggy has no word for it."""

    async def closed(self) -> None:
        """The client is in no group any more, and nobody is shown it."""
        shared, client_id = self._context.shared, self._context.client.client_id
        shared.groups.leave_all(client_id)
        del shared.clients[client_id]

    async def _carry_out(self, command: Command) -> Answer | None:
        """The answer of a command; None if it was refused, which has been answered then."""
        kind = type(command.request)
        self._counted[kind].inc()
        context, machine = self._context, self._machine
        context.dialect, context.manners = machine.dialect, machine.manners
        _, handler = HANDLERS[kind]
        if kind is not m.SendMessages:  # Those may share a sync.
            await context.own_writes()
        try:
            answer = await handler(context, command.request)
        except Absent as error:
            if machine.manners.absent_is_error or kind not in EMPTY_IF_ABSENT:
                self._fail(error.code, str(error))
            else:
                self._outbox.answer([EMPTY_OK])
            return None
        except Refusal as error:
            self._fail(error.code, str(error))
            return None
        except BrokerError as error:
            self._fail(wire_code(error), str(error))
            return None
        except sending.CutMessages as error:
            raise ProtocolError(str(error)) from error
        machine.state = State.LOGGED_IN if context.client.user_id else State.LOGGED_OUT
        return answer

    def _refuse(self, refused: Refused) -> None:
        if refused.ends:
            raise EndConnection(refused.reason, refused.reply)
        self._connection.log.debug("request_refused", reason=refused.reason)
        self._outbox.answer([refused.reply])

    def _fail(self, code: ErrorCode, text: str) -> None:
        self._context.broker.metrics.number("braidlog_errors", PROTOCOL, str(int(code))).inc()
        self._outbox.answer([self._machine.error(code, text)])


# Commands that ask for one thing, and from D2 on are answered with nothing where it is not there.
EMPTY_IF_ABSENT = frozenset({m.GetStream, m.GetTopic, m.GetGroup, m.GetClient, m.GetConsumerOffset})
