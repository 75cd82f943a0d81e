"""A Kafka connection: requests to handlers, answers to the outbox. Knows no bytes.

Requests are handled one after another and answered strictly in that order: clients rely on it, and
some send the same correlation id in every request. A handler that appends does not wait for the
disk: its answer joins the outbox's ordered queue and the next request is read.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from braidlog.broker.access.rights import Action
from braidlog.broker.runtime.endings import EndConnection
from braidlog.broker.runtime.steps import Steps, begin, step_into
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.kafka import messages
from braidlog.protocols.kafka.acls import create_acls, delete_acls, describe_acls
from braidlog.protocols.kafka.admin import create_partitions, create_topics, delete_topics
from braidlog.protocols.kafka.api_versions import api_versions
from braidlog.protocols.kafka.classic_groups import heartbeat, join_group, leave_group, sync_group
from braidlog.protocols.kafka.client_quotas import alter_client_quotas, describe_client_quotas
from braidlog.protocols.kafka.cluster_admin import describe_cluster
from braidlog.protocols.kafka.commits import commit_offsets
from braidlog.protocols.kafka.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from braidlog.protocols.kafka.consumer_group_admin import describe_consumer_groups
from braidlog.protocols.kafka.consumer_groups import consumer_group_heartbeat
from braidlog.protocols.kafka.context import BrokerAddress, KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import offsets_for_epochs
from braidlog.protocols.kafka.fetch import fetch
from braidlog.protocols.kafka.fields import ENTRIES_FEW_MAX, ENTRIES_INLINE_MAX, ManyEntries
from braidlog.protocols.kafka.group_admin import delete_groups, describe_groups, list_groups
from braidlog.protocols.kafka.group_coordinator import groups_of
from braidlog.protocols.kafka.large_requests import large_requests
from braidlog.protocols.kafka.limits import KAFKA_LIMITS
from braidlog.protocols.kafka.login import KafkaLogin
from braidlog.protocols.kafka.machine import SIZE, KafkaMachine
from braidlog.protocols.kafka.metadata import find_coordinator, metadata
from braidlog.protocols.kafka.names import PROTOCOL, name_space
from braidlog.protocols.kafka.offset_delete import delete_offsets
from braidlog.protocols.kafka.offset_fetch import fetch_offsets
from braidlog.protocols.kafka.offsets import list_offsets
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.presence import Presence
from braidlog.protocols.kafka.produce import produce
from braidlog.protocols.kafka.producer_ids import init_producer_id
from braidlog.protocols.kafka.producers_admin import describe_producers
from braidlog.protocols.kafka.records_admin import delete_records, describe_log_dirs
from braidlog.protocols.kafka.replica_admin import (
    alter_log_dirs,
    alter_reassignments,
    describe_quorum,
    elect_leaders,
    list_reassignments,
    update_features,
)
from braidlog.protocols.kafka.sasl import raw_step, sasl_authenticate, sasl_handshake
from braidlog.protocols.kafka.scram_users import alter_scram_users, describe_scram_users
from braidlog.protocols.kafka.share_fetch import share_acknowledge, share_fetch
from braidlog.protocols.kafka.share_groups import describe_share_groups, share_group_heartbeat
from braidlog.protocols.kafka.share_offsets import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from braidlog.protocols.kafka.topic_partitions import describe_topic_partitions
from braidlog.protocols.kafka.wire.alter_client_quotas import AlterClientQuotasRequest
from braidlog.protocols.kafka.wire.alter_configs import AlterConfigsRequest
from braidlog.protocols.kafka.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from braidlog.protocols.kafka.wire.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
)
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.create_acls import CreateAclsRequest
from braidlog.protocols.kafka.wire.create_partitions import CreatePartitionsRequest
from braidlog.protocols.kafka.wire.create_topics import CreateTopicsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.delete_records import DeleteRecordsRequest
from braidlog.protocols.kafka.wire.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
)
from braidlog.protocols.kafka.wire.delete_topics import DeleteTopicsRequest
from braidlog.protocols.kafka.wire.describe_acls import DescribeAclsRequest
from braidlog.protocols.kafka.wire.describe_client_quotas import DescribeClientQuotasRequest
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from braidlog.protocols.kafka.wire.describe_configs import DescribeConfigsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.describe_log_dirs import DescribeLogDirsRequest
from braidlog.protocols.kafka.wire.describe_producers import DescribeProducersRequest
from braidlog.protocols.kafka.wire.describe_quorum import DescribeQuorumRequest
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import DescribeTopicPartitionsRequest
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from braidlog.protocols.kafka.wire.elect_leaders import ElectLeadersRequest
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.incremental_alter_configs import IncrementalAlterConfigsRequest
from braidlog.protocols.kafka.wire.init_producer_id import InitProducerIdRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.list_offsets import ListOffsetsRequest
from braidlog.protocols.kafka.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest
from braidlog.protocols.kafka.wire.offset_commit import OffsetCommitRequest
from braidlog.protocols.kafka.wire.offset_delete import OffsetDeleteRequest
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchRequest
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.protocols.kafka.wire.share_acknowledge import ShareAcknowledgeRequest
from braidlog.protocols.kafka.wire.share_fetch import ShareFetchRequest
from braidlog.protocols.kafka.wire.share_group_describe import ShareGroupDescribeRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest
from braidlog.protocols.kafka.wire.update_features import UpdateFeaturesRequest
from braidlog.storage.formats.kafka.prepare import write_at_once

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection
    from braidlog.storage.formats.api import Part

Result = KafkaAnswer | None
Handler = Callable[[KafkaContext, Any], Result | Steps[Result] | Coroutine[Any, Any, Result]]


@dataclass(frozen=True, slots=True)
class KeyHandler:
    """The handler of a kind of request, and the action that the client needs permission for.

    The context checks `action` on every name that it resolves for the handler; None: no check.
    """

    api: str  # Name in metrics.
    handler: Handler
    action: Action | None


COMMANDS: Mapping[type, KeyHandler] = {
    messages.ProduceRequest: KeyHandler("produce", produce, Action.PRODUCE),
    messages.FetchRequest: KeyHandler("fetch", fetch, Action.CONSUME),
    ListOffsetsRequest: KeyHandler("offsets", list_offsets, Action.DESCRIBE),
    MetadataRequest: KeyHandler("metadata", metadata, Action.DESCRIBE),
    OffsetCommitRequest: KeyHandler("offset_commit", commit_offsets, Action.CONSUME),
    OffsetFetchRequest: KeyHandler("offset_fetch", fetch_offsets, Action.DESCRIBE),
    FindCoordinatorRequest: KeyHandler("consumer_metadata", find_coordinator, Action.DESCRIBE),
    ApiVersionsRequest: KeyHandler("api_versions", api_versions, None),
    InitProducerIdRequest: KeyHandler("init_producer_id", init_producer_id, None),
    OffsetForLeaderEpochRequest: KeyHandler(
        "offset_for_leader_epoch", offsets_for_epochs, Action.DESCRIBE
    ),
    SaslHandshakeRequest: KeyHandler("sasl_handshake", sasl_handshake, None),
    SaslAuthenticateRequest: KeyHandler("sasl_authenticate", sasl_authenticate, None),
    JoinGroupRequest: KeyHandler("join_group", join_group, Action.CONSUME),
    SyncGroupRequest: KeyHandler("sync_group", sync_group, Action.CONSUME),
    HeartbeatRequest: KeyHandler("heartbeat", heartbeat, Action.CONSUME),
    LeaveGroupRequest: KeyHandler("leave_group", leave_group, Action.CONSUME),
    DescribeGroupsRequest: KeyHandler("describe_groups", describe_groups, Action.DESCRIBE),
    ListGroupsRequest: KeyHandler("list_groups", list_groups, Action.DESCRIBE),
    DeleteGroupsRequest: KeyHandler("delete_groups", delete_groups, Action.DELETE),
    CreateTopicsRequest: KeyHandler("create_topics", create_topics, Action.CREATE),
    DeleteTopicsRequest: KeyHandler("delete_topics", delete_topics, Action.DELETE),
    CreatePartitionsRequest: KeyHandler("create_partitions", create_partitions, Action.ALTER),
    DescribeConfigsRequest: KeyHandler("describe_configs", describe_configs, Action.DESCRIBE),
    AlterConfigsRequest: KeyHandler("alter_configs", alter_configs, Action.ALTER),
    IncrementalAlterConfigsRequest: KeyHandler(
        "incremental_alter_configs", incremental_alter_configs, Action.ALTER
    ),
    DeleteRecordsRequest: KeyHandler("delete_records", delete_records, Action.DELETE),
    DescribeClusterRequest: KeyHandler("describe_cluster", describe_cluster, None),
    DescribeAclsRequest: KeyHandler("describe_acls", describe_acls, Action.ADMINISTER),
    CreateAclsRequest: KeyHandler("create_acls", create_acls, Action.ADMINISTER),
    DeleteAclsRequest: KeyHandler("delete_acls", delete_acls, Action.ADMINISTER),
    DescribeLogDirsRequest: KeyHandler("describe_log_dirs", describe_log_dirs, Action.DESCRIBE),
    ConsumerGroupHeartbeatRequest: KeyHandler(
        "consumer_group_heartbeat", consumer_group_heartbeat, Action.CONSUME
    ),
    ConsumerGroupDescribeRequest: KeyHandler(
        "consumer_group_describe", describe_consumer_groups, Action.DESCRIBE
    ),
    OffsetDeleteRequest: KeyHandler("offset_delete", delete_offsets, Action.DELETE),
    ElectLeadersRequest: KeyHandler("elect_leaders", elect_leaders, Action.ALTER),
    AlterPartitionReassignmentsRequest: KeyHandler(
        "alter_partition_reassignments", alter_reassignments, Action.ALTER
    ),
    ListPartitionReassignmentsRequest: KeyHandler(
        "list_partition_reassignments", list_reassignments, Action.DESCRIBE
    ),
    AlterReplicaLogDirsRequest: KeyHandler("alter_replica_log_dirs", alter_log_dirs, Action.ALTER),
    DescribeQuorumRequest: KeyHandler("describe_quorum", describe_quorum, Action.DESCRIBE),
    UpdateFeaturesRequest: KeyHandler("update_features", update_features, Action.ALTER),
    DescribeClientQuotasRequest: KeyHandler(
        "describe_client_quotas", describe_client_quotas, Action.DESCRIBE
    ),
    AlterClientQuotasRequest: KeyHandler("alter_client_quotas", alter_client_quotas, Action.ALTER),
    DescribeUserScramCredentialsRequest: KeyHandler(
        "describe_user_scram_credentials", describe_scram_users, Action.ADMINISTER
    ),
    AlterUserScramCredentialsRequest: KeyHandler(
        "alter_user_scram_credentials", alter_scram_users, Action.ADMINISTER
    ),
    DescribeProducersRequest: KeyHandler("describe_producers", describe_producers, Action.CONSUME),
    DescribeTopicPartitionsRequest: KeyHandler(
        "describe_topic_partitions", describe_topic_partitions, Action.DESCRIBE
    ),
    ShareGroupHeartbeatRequest: KeyHandler(
        "share_group_heartbeat", share_group_heartbeat, Action.CONSUME
    ),
    ShareGroupDescribeRequest: KeyHandler(
        "share_group_describe", describe_share_groups, Action.DESCRIBE
    ),
    ShareFetchRequest: KeyHandler("share_fetch", share_fetch, Action.CONSUME),
    ShareAcknowledgeRequest: KeyHandler("share_acknowledge", share_acknowledge, Action.CONSUME),
    DescribeShareGroupOffsetsRequest: KeyHandler(
        "describe_share_group_offsets", describe_share_group_offsets, Action.DESCRIBE
    ),
    AlterShareGroupOffsetsRequest: KeyHandler(
        "alter_share_group_offsets", alter_share_group_offsets, Action.CONSUME
    ),
    DeleteShareGroupOffsetsRequest: KeyHandler(
        "delete_share_group_offsets", delete_share_group_offsets, Action.DELETE
    ),
}


API_NAMES: Mapping[type, str] = {kind: command.api for kind, command in COMMANDS.items()}
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
