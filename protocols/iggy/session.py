"""One Iggy connection: commands to handlers, answers to the outbox. Knows no bytes.

Commands are handled one after another and answered strictly in that order: answers carry nothing
that says to which command they belong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.access.rights import Action, Resource
from broker.errors import BrokerError
from broker.server.adapters import EndConnection, ProtocolError
from protocols.iggy import groups, offsets, polling, sending, streams, system, targets, topics
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
Resources = Callable[["Broker", Any], Iterable[Resource]]


@dataclass(frozen=True, slots=True)
class Served:
    """How one command is served, and what its client must be allowed to do to what it names."""

    api: str  # In metrics.
    handler: Handler
    action: Action | None = None  # None: whoever is connected may do it.
    on: Resources = targets.cluster


COMMANDS: Mapping[type, Served] = {
    m.Ping: Served("ping", system.ping),
    m.LoginUser: Served("login_user", system.login),
    m.LogoutUser: Served("logout_user", system.logout),
    m.GetMe: Served("get_me", system.get_me),
    m.GetClient: Served("get_client", system.get_client, Action.DESCRIBE),
    m.GetClients: Served("get_clients", system.get_clients, Action.DESCRIBE),
    m.GetStats: Served("get_stats", system.get_stats, Action.DESCRIBE),
    m.PollMessages: Served("poll_messages", polling.poll, Action.CONSUME, targets.consumer),
    m.SendMessages: Served("send_messages", sending.send, Action.PRODUCE, targets.topic),
    m.GetConsumerOffset: Served(
        "get_consumer_offset", offsets.get_offset, Action.DESCRIBE, targets.consumer
    ),
    m.StoreConsumerOffset: Served(
        "store_consumer_offset", offsets.store_offset, Action.CONSUME, targets.consumer
    ),
    m.DeleteConsumerOffset: Served(
        "delete_consumer_offset", offsets.delete_offset, Action.CONSUME, targets.consumer
    ),
    m.GetStream: Served("get_stream", streams.get_stream, Action.DESCRIBE, targets.stream),
    m.GetStreams: Served("get_streams", streams.get_streams, Action.DESCRIBE),
    m.CreateStream: Served(
        "create_stream", streams.create_stream, Action.CREATE, targets.new_stream
    ),
    m.UpdateStream: Served("update_stream", streams.update_stream, Action.ALTER, targets.stream),
    m.DeleteStream: Served("delete_stream", streams.delete_stream, Action.DELETE, targets.stream),
    m.GetTopic: Served("get_topic", topics.get_topic, Action.DESCRIBE, targets.topic),
    m.GetTopics: Served("get_topics", topics.get_topics, Action.DESCRIBE, targets.stream),
    m.CreateTopic: Served("create_topic", topics.create_topic, Action.CREATE, targets.new_topic),
    m.DeleteTopic: Served("delete_topic", topics.delete_topic, Action.DELETE, targets.topic),
    m.CreatePartitions: Served(
        "create_partitions", topics.create_partitions, Action.ALTER, targets.topic
    ),
    m.GetGroup: Served("get_group", groups.get_group, Action.DESCRIBE, targets.group),
    m.GetGroups: Served("get_groups", groups.get_groups, Action.DESCRIBE, targets.topic),
    m.CreateGroup: Served("create_group", groups.create_group, Action.CREATE, targets.new_group),
    m.DeleteGroup: Served("delete_group", groups.delete_group, Action.DELETE, targets.group),
    m.JoinGroup: Served("join_group", groups.join_group, Action.CONSUME, targets.group),
    m.LeaveGroup: Served("leave_group", groups.leave_group, Action.CONSUME, targets.group),
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
            kind: number("braidlog_requests", PROTOCOL, served.api)
            for kind, served in COMMANDS.items()
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
        served = COMMANDS[kind]
        if kind is not m.SendMessages:  # Those may share a sync.
            await context.own_writes()
        try:
            self._check(command)
            answer = await served.handler(context, command.request)
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

    def _check(self, command: Command) -> None:
        """Raises NotAuthorized if the client may not do that to what the request names."""
        broker, served = self._context.broker, COMMANDS[type(command.request)]
        if served.action is not None and broker.access.rules is not None:
            for resource in served.on(broker, command.request):
                self._connection.check(served.action, resource)

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
