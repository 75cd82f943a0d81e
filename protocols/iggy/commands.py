"""The handler of each command, and the permission that the client needs.

Knows no bytes and no connection; a request without an entry here is not served in any dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.iggy import (
    groups,
    offsets,
    polling,
    sending,
    streams,
    system,
    targets,
    topics,
    users,
)
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.context import Answer, Context

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

Handler = Callable[[Context, Any], Answer | Steps[Answer] | Coroutine[Any, Any, Answer]]
Resources = Callable[["Broker", Any], Iterable[Resource]]


@dataclass(frozen=True, slots=True)
class Served:
    """A command's handler, and the permission that the client needs on the named resource."""

    api: str  # In metrics.
    handler: Handler
    action: Action | None = None  # None: every connected client has permission.
    on: Resources = targets.cluster


COMMANDS: Mapping[type, Served] = {
    m.Ping: Served("ping", system.ping),
    u.LoginUser: Served("login_user", users.login),
    u.LogoutUser: Served("logout_user", users.logout),
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
    m.GetStreams: Served("get_streams", streams.get_streams, Action.DESCRIBE, targets.tenant),
    m.CreateStream: Served(
        "create_stream", streams.create_stream, Action.CREATE, targets.new_stream
    ),
    m.UpdateStream: Served("update_stream", streams.update_stream, Action.ALTER, targets.stream),
    m.DeleteStream: Served("delete_stream", streams.delete_stream, Action.DELETE, targets.stream),
    m.GetTopic: Served("get_topic", topics.get_topic, Action.DESCRIBE, targets.topic),
    m.GetTopics: Served("get_topics", topics.get_topics, Action.DESCRIBE, targets.topics),
    m.CreateTopic: Served("create_topic", topics.create_topic, Action.CREATE, targets.new_topic),
    m.DeleteTopic: Served("delete_topic", topics.delete_topic, Action.DELETE, targets.topic),
    m.CreatePartitions: Served(
        "create_partitions", topics.create_partitions, Action.ALTER, targets.topic
    ),
    m.GetGroup: Served("get_group", groups.get_group, Action.DESCRIBE, targets.group),
    m.GetGroups: Served("get_groups", groups.get_groups, Action.DESCRIBE, targets.topic),
    m.CreateGroup: Served("create_group", groups.create_group, Action.CONSUME, targets.new_group),
    m.DeleteGroup: Served("delete_group", groups.delete_group, Action.CONSUME, targets.group),
    m.JoinGroup: Served("join_group", groups.join_group, Action.CONSUME, targets.group),
    m.LeaveGroup: Served("leave_group", groups.leave_group, Action.CONSUME, targets.group),
    m.SyncGroup: Served("sync_group", groups.sync_group, Action.CONSUME, targets.group),
    m.UpdateTopic: Served("update_topic", topics.update_topic, Action.ALTER, targets.topic),
    m.DeletePartitions: Served(
        "delete_partitions", topics.delete_partitions, Action.DELETE, targets.topic
    ),
    m.PurgeTopic: Served("purge_topic", topics.purge_topic, Action.DELETE, targets.topic),
    m.PurgeStream: Served("purge_stream", streams.purge_stream, Action.DELETE, targets.stream),
    m.DeleteSegments: Served(
        "delete_segments", topics.delete_segments, Action.DELETE, targets.topic
    ),
    m.FlushUnsavedBuffer: Served("flush", topics.flush, Action.PRODUCE, targets.topic),
    m.GetClusterMetadata: Served("get_cluster_metadata", system.get_cluster_metadata),
    m.DescribeOptions: Served("describe_options", system.describe_options),
    # The handlers check the user, and the permission to manage users.
    u.LoginWithToken: Served("login_with_token", users.login_with_token),
    u.GetUser: Served("get_user", users.get_user),
    u.GetUsers: Served("get_users", users.get_users),
    u.CreateUser: Served("create_user", users.create_user),
    u.UpdateUser: Served("update_user", users.update_user),
    u.DeleteUser: Served("delete_user", users.delete_user),
    u.UpdatePermissions: Served("update_permissions", users.update_permissions),
    u.ChangePassword: Served("change_password", users.change_password),
    u.GetTokens: Served("get_tokens", users.get_tokens),
    u.CreateToken: Served("create_token", users.create_token),
    u.DeleteToken: Served("delete_token", users.delete_token),
}
