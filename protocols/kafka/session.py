"""A Kafka connection: requests to handlers, answers to the outbox. Knows no bytes.

Requests are handled one after another and answered strictly in that order: clients rely on it, and
some send the same correlation id in every request. A handler that appends does not wait for the
disk: its answer joins the outbox's ordered queue and the next request is read.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from braidlog.broker.access.rights import Action
from braidlog.broker.runtime.endings import EndConnection
from braidlog.broker.runtime.steps import Steps, begin, step_into
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.kafka import messages
from braidlog.protocols.kafka.commands import API_NAMES, COMMANDS, Result
from braidlog.protocols.kafka.context import BrokerAddress, KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.fields import ENTRIES_FEW_MAX, ENTRIES_INLINE_MAX, ManyEntries
from braidlog.protocols.kafka.group_coordinator import groups_of
from braidlog.protocols.kafka.large_requests import large_requests
from braidlog.protocols.kafka.limits import KAFKA_LIMITS
from braidlog.protocols.kafka.login import KafkaLogin
from braidlog.protocols.kafka.machine import SIZE, KafkaMachine
from braidlog.protocols.kafka.names import PROTOCOL, name_space
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.presence import Presence
from braidlog.protocols.kafka.sasl import raw_step
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest
from braidlog.storage.formats.kafka.prepare import write_at_once

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection
    from braidlog.storage.formats.api import Part

# Not counted as large requests: they may wait for minutes, and groups limit what members send.
COUNTED_BY_GROUPS = frozenset((JoinGroupRequest, SyncGroupRequest))
LOGIN_STEPS: frozenset[type] = frozenset((SaslHandshakeRequest, SaslAuthenticateRequest))


class KafkaSession:
    """The handlers of a connection; see `braidlog.broker.runtime.sessions.Session`."""

    def __init__(self, broker: Broker, connection: Connection, options: KafkaOptions) -> None:
        """Take the `options` of the listener that accepted the connection."""
        host, port = connection.advertised
        self._login = KafkaLogin(connection, broker.authentication)
        self._machine = KafkaMachine(options.frame_bytes_max, needs_login=self._login.is_needed)
        self.frame_size = self._machine.frame_size
        self._connection = connection
        self._outbox = connection.outbox
        self._idle_timeout_s = options.idle_timeout_s
        delay_s = options.group_initial_delay_ms / 1000
        groups = groups_of(broker, options.namespace, delay_s, options.group_migration)
        self._context = KafkaContext(
            broker=broker,
            connection=connection,
            options=options,
            names=name_space(options.namespace),
            groups=groups,
            presence=Presence(connection, groups),
            login=self._login,
            limits=broker.shared_states.get(PROTOCOL, KAFKA_LIMITS),
            address=BrokerAddress(broker.placement.node_id, host.encode(), port),
            once=write_at_once(options.message_bytes_max, options.batch_bytes_max),
        )
        self._counted = broker.metrics.by_kind("braidlog_requests", PROTOCOL, API_NAMES)

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:  # hot: see make bench
        """Serve a request; return a coroutine if the request has to wait. Raises ProtocolError for
        malformed requests: 0.8 closes the connection too.
        """
        machine = self._machine
        if machine.is_raw:
            return self._handle_raw(bytes(frame[SIZE.size :]))
        try:
            request = machine.decode(frame, inline_max=ENTRIES_FEW_MAX)
        except ManyEntries:
            return begin(self._serve_large(frame))
        result = self._call(request)
        if type(result) is KafkaAnswer and not result.is_large:
            parts = machine.encode(request.correlation_id, result.reply)
            self._send(request, result, parts)
            return None
        return begin(self._finish(request, result, is_large=False))

    def _serve_large(self, frame: memoryview) -> Steps[None]:
        """Serve a request with many topics or partitions, once there is room."""
        machine, large = self._machine, large_requests()
        held = large.enter_now(len(frame))
        if not held:
            held = yield large.enter(len(frame))
        try:
            is_large = False
            try:
                request = machine.decode(frame, inline_max=ENTRIES_INLINE_MAX)
            except ManyEntries:
                request = yield run_in_thread(machine.decode, frame)
                is_large = True
            is_counted = type(request.body) not in COUNTED_BY_GROUPS
            held = large.keep(held, machine.entries if is_counted else 0)
            yield from self._finish(request, self._call(request), is_large=is_large)
        finally:
            large.keep(held, 0)

    def _call(
        self, request: messages.Request
    ) -> Result | Steps[Result] | Coroutine[Any, Any, Result]:
        kind = type(request.body)
        self._counted[kind].value += 1
        command = COMMANDS[kind]
        context = self._context
        context.action = command.action or Action.DESCRIBE
        context.version = request.version
        context.client_id = request.client_id
        return command.handler(context, request.body)

    def _finish(
        self,
        request: messages.Request,
        result: Result | Steps[Result] | Coroutine[Any, Any, Result],
        *,
        is_large: bool,
    ) -> Steps[None]:
        answer = yield from step_into(result)
        if answer is None:
            return
        encode = self._machine.encode
        if is_large or answer.is_large:
            parts = yield run_in_thread(encode, request.correlation_id, answer.reply)
        else:
            parts = encode(request.correlation_id, answer.reply)
        self._send(request, answer, parts)

    def _send(self, request: messages.Request, answer: KafkaAnswer, parts: list[Part]) -> None:
        # After this answer, earlier sends with acks 0 are readable.
        ticket, written = answer.ticket, self._context.written_ticket
        self._outbox.answer(parts, ticket if ticket > written else written)
        if type(request.body) in LOGIN_STEPS:
            self._login_stepped(request)
        if answer.ends:
            raise EndConnection(answer.ends)

    async def _handle_raw(self, data: bytes) -> None:
        """Take a bare message of a SASL mechanism, without a request around the message."""
        self._outbox.answer(self._machine.encode_raw(await raw_step(self._context, data)))
        self._machine.expect_login(needed=self._login.is_needed, raw=self._login.has_begun)

    def _login_stepped(self, request: messages.Request) -> None:
        is_handshake = isinstance(request.body, SaslHandshakeRequest)
        raw = is_handshake and not request.version and self._login.has_begun
        self._machine.expect_login(needed=self._login.is_needed, raw=raw)

    def turn_ended(self) -> Coroutine[Any, Any, None] | None:
        """Wait if a topic's publish rate demands a wait."""
        if self._context.pause_s > 0:
            return trio.sleep(self._context.take_pause())
        return None

    def on_deadline(self, now: float) -> float:
        """End a connection idle for too long, even during a longer long poll."""
        due = self._connection.heard_at + self._idle_timeout_s
        if now >= due:
            raise EndConnection(f"idle for {self._idle_timeout_s:.0f} s")
        return self._login.check_expiry(now, due)

    def goodbye(self) -> None:
        """Send nothing: Kafka 0.8 has no such message. The broker wakes fetches that wait."""

    async def closed(self) -> None:
        """Tell the groups of this connection's members about the disconnect, to shorten their
        wait.
        """
        self._context.presence.ended()
        self._context.groups.share_sessions.end_of(self._context)
