"""An Iggy connection: commands to handlers, answers to the outbox. Knows no bytes.

Commands are handled in sequence and answered strictly in that order: before W an answer does not
name its command. Only a waiting poll of W is served in a task, and may be answered later.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import trio

from braidlog.broker.errors import BrokerError, NotAuthorized, NotOwner
from braidlog.broker.runtime.endings import EndConnection, ProtocolError
from braidlog.broker.runtime.steps import Steps, begin, run, step_into
from braidlog.protocols.iggy import groups, names, sending
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D0
from braidlog.protocols.iggy.commands import API_NAMES, COMMANDS, check_rights
from braidlog.protocols.iggy.context import (
    PROTOCOL,
    TRANSPORT_TCP,
    ConnectedClient,
    IggyAnswer,
    IggyContext,
    ListenerState,
)
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal, wire_code
from braidlog.protocols.iggy.fetch_requests import FetchMessages
from braidlog.protocols.iggy.machine import IggyCommand, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.options import IggyOptions, WithoutLogin
from braidlog.protocols.iggy.sessions import ForwardedLinks
from braidlog.protocols.iggy.waiting_polls import DeferredPolls
from braidlog.storage.formats.api import Buffer

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection

# After a login no deadline applies: clients ping, but the reference server does not require it.
DEADLINE_INTERVAL_S = 3600.0
# Time limit for a client to log in, or to send a first command in the dialect without a login.
# Known clients log in at once; a silent client counts towards the limit of connections.
LOGIN_S = 30.0
LOOK_S = 30.0  # Between two checks whether a token has expired.
WARNINGS_MAX = 8  # Log lines per connection about unserved commands, so that no loop fills the log.


WAITING = (m.PollDeferred, m.WaitForMessages, FetchMessages)  # Requests that wait in a task.


class AnswerSink(Protocol):
    """Destination of a session's answers."""

    @property
    def is_broken(self) -> bool:
        """True if nobody is left to read answers."""

    def answer(self, parts: Sequence[Buffer], ticket: int = 0) -> None:
        """Send an answer once `ticket` is durable."""


class IggySession:
    """The handlers of a connection; see `braidlog.broker.runtime.sessions.Session`."""

    defers = True  # A waiting poll (W) runs in a task.

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        options: IggyOptions,
        shared: ListenerState,
        transport: int = TRANSPORT_TCP,
    ) -> None:
        """`options` are those of the listener that accepted the connection."""
        without_login = WithoutLogin.NOBODY
        if not broker.authentication.required:
            without_login = options.served_without_login(loopback=connection.loopback)
        self._machine = IggyMachine(without_login=without_login)
        self._warned: set[str] = set()
        self._deferred = DeferredPolls(shared.waiting_polls)
        self._login_due: float | None = None
        self._connection = connection
        self._outbox: AnswerSink = connection.outbox
        client = ConnectedClient(connection.id, connection.peer, transport)
        shared.clients[client.client_id] = client
        self._context = IggyContext(broker, connection, options, shared, client)
        self._counted = broker.metrics.by_kind("braidlog_requests", PROTOCOL, API_NAMES)

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame, None until it is known. Raises ProtocolError."""
        return self._machine.frame_size(view)

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve a frame; return a coroutine if the command has to wait. Raises ProtocolError where
        Iggy's server hangs up, and EndConnection if nobody is left to read the answer.
        """
        return begin(self._serve(frame))

    def _serve(self, frame: memoryview) -> Steps[None]:
        if self._outbox.is_broken:
            raise EndConnection("the client is gone")
        event = self._machine.decode(frame)
        if isinstance(event, RefusedFrame):
            self._refuse(event)
            return
        if isinstance(event.request, m.CancelDeferred):
            if event.frame is not None:
                self._deferred.cancel(event.frame.number)
        elif isinstance(event.request, WAITING) and self.defers:
            self._defer(event)
        else:
            yield from self._finish(event, self._context)

    def _defer(self, command: IggyCommand) -> None:
        """Serve a poll in a task: later commands need not wait. Raises NotOwner."""
        frame, request = command.frame, command.request
        assert frame is not None, "only W has such polls"
        broker = self._context.broker
        if names.is_known(broker, request):  # The task refuses others, after the check of rights.
            names.get_topic(broker, request.stream, request.topic).check_here()
        places = 1 if isinstance(request, m.PollDeferred) else len(request.targets)
        try:
            self._deferred.add(frame.number, places)
        except Refusal as error:
            self._fail(command, error.code, str(error))
            return
        context = replace(self._context)
        context.recheck = lambda: check_rights(context, request)
        self._connection.nursery.start_soon(self._poll_in_task, command, context, frame.number)

    async def _poll_in_task(self, command: IggyCommand, context: IggyContext, number: int) -> None:
        with self._deferred.waiting(number):
            try:
                await run(self._finish(command, context))
            except NotOwner:  # The topic has moved during the wait: the client asks again.
                self._fail(command, ErrorCode.NOT_PRIMARY, "")

    def _finish(self, event: IggyCommand, context: IggyContext) -> Steps[None]:
        """Carry a command out, and send the answer."""
        answer = yield from self._carry_out(event, context)
        if answer is not None:
            size, commit = sum(map(len, answer.tail)), self._context.broker.last_change
            head = self._machine.encode(event, answer.records, size, commit)
            self._outbox.answer([head, *answer.tail], answer.ticket)
            if answer.pause_s > 0:
                yield trio.sleep(answer.pause_s)

    def turn_ended(self) -> None:
        """Nothing is kept from one frame to the next."""

    def on_deadline(self, now: float) -> float:
        """End the connection of a client that has not logged in, or by a token that has expired:
        the client reconnects with a fresh token. Raises EndConnection.
        """
        broker, proof = self._context.broker, self._context.client.proof
        if proof is not None and proof.has_expired(broker.now_us()):
            raise EndConnection("the token has expired")
        if self._has_begun:
            may_expire = broker.authentication.required or proof is not None
            return now + (LOOK_S if may_expire else DEADLINE_INTERVAL_S)
        if self._login_due is None:
            self._login_due = now + LOGIN_S
        elif now >= self._login_due:
            raise EndConnection(f"no login within {LOGIN_S:.0f} s")
        return self._login_due

    def access_changed(self) -> None:
        """End memberships that are no longer allowed; commands are checked as they come."""
        groups.leave_forbidden(self._context)

    def goodbye(self) -> None:
        """Send nothing: Iggy has no such message."""

    async def closed(self) -> None:
        """Remove the client from the list of clients, and from its groups unless its session goes
        on.
        """
        self._leave(None)

    def _leave(self, links: ForwardedLinks | None) -> None:
        """Forget the connection; a session of W goes on without a connection for some time."""
        context = self._context
        shared, session = context.shared, context.logical
        shared.forget(context.client)
        if session is None:
            shared.groups.leave_all(context.client.client_id)
            if links is not None:
                links.close()
        else:
            kept_s = context.options.lost_session_s
            shared.sessions.lose(session, self._connection, kept_s, links)

    def _carry_out(self, command: IggyCommand, context: IggyContext) -> Steps[IggyAnswer | None]:
        """Return the answer to a command; None if it was refused, and the refusal was sent."""
        kind = type(command.request)
        machine = self._machine
        context.dialect, context.error_style = machine.dialect, machine.error_style
        if command.frame is not None:
            context.incarnation, context.client_key = command.frame.partition, command.frame.client
            context.generation = command.frame.owner
        served = COMMANDS.get(kind)
        if served is None:
            reason = f"command {command.code} is not served"
            self._warn(reason)
            self._fail(command, ErrorCode.FEATURE_UNAVAILABLE, reason)
            return None
        self._counted[kind].inc()
        if kind is not m.SendMessages and context.has_own_writes:  # SENDs may share a sync.
            yield context.own_writes()
        try:
            check_rights(context, command.request)
            answer = yield from step_into(served.handler(context, command.request))
        except Absent as error:
            if machine.error_style.absent_is_error or kind not in EMPTY_IF_ABSENT:
                self._fail(command, error.code, str(error))
                return None
            return IggyAnswer()
        except Refusal as error:
            self._fail(command, error.code, str(error))
            return None
        except NotOwner:
            raise
        # The error's text uses names, but the client may know only numbers.
        except NotAuthorized as error:
            self._fail(command, wire_code(error), "")
            return None
        except BrokerError as error:
            self._fail(command, wire_code(error), str(error))
            return None
        except sending.CutMessages as error:
            raise ProtocolError(str(error)) from error
        machine.logged_in = context.client.user_id is not None
        machine.session = self._context.session
        return answer

    @property
    def _has_begun(self) -> bool:
        """True if the client has logged in, or uses the dialect that has no login."""
        return self._machine.logged_in or self._machine.dialect is D0

    def _refuse(self, refused: RefusedFrame) -> None:
        if refused.unserved:
            self._warn(refused.reason)
        elif refused.may_be_oldest:
            setting = f"listeners.{self._connection.listener_name}.without_login"
            self._warn(f"{refused.reason}; {setting} = true serves clients that cannot log in")
        else:
            self._connection.log.debug("request_refused", reason=refused.reason)
        self._outbox.answer([refused.reply])

    def _warn(self, reason: str) -> None:
        """Log, once per connection, a client's wish that is not served."""
        if reason not in self._warned and len(self._warned) < WARNINGS_MAX:
            self._warned.add(reason)
            self._connection.log.warning("not_served", reason=reason)

    def _fail_with(self, command: IggyCommand, error: BrokerError) -> None:
        self._fail(command, wire_code(error), str(error))

    def _fail(self, command: IggyCommand, code: ErrorCode, text: str) -> None:
        self._context.broker.metrics.number("braidlog_errors", PROTOCOL, str(int(code))).inc()
        commit = self._context.broker.last_change
        self._outbox.answer([self._machine.error(command, code, text, commit)])


# Commands that ask for a single object; from D2 on the answer is empty if it does not exist.
EMPTY_IF_ABSENT = frozenset(
    {
        *(m.GetStream, m.GetTopic, m.GetGroup, m.GetClient, m.GetConsumerOffset, m.SyncGroup),
        u.GetUser,
    }
)
