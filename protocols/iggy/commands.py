"""The handler of each command, and the permission that the client needs.

Knows no bytes and no connection; a request without an entry here is not served in any dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.runtime.steps import Steps, run, step_into
from braidlog.protocols.iggy import (
    deferred,
    fetching,
    groups,
    logins,
    metadata_changes,
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
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.fetch_requests import FetchMessages
from braidlog.protocols.iggy.metadata_pages import GetMetadataChanges

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

Handler = Callable[
    [IggyContext, Any], IggyAnswer | Steps[IggyAnswer] | Coroutine[Any, Any, IggyAnswer]
]
Resources = Callable[["Broker", Any], Iterable[Resource]]


@dataclass(frozen=True, slots=True)
class IggyHandler:
    """A command's handler, and the permission that the client needs on the named resource."""

    api: str  # In metrics.
    handler: Handler
    action: Action | None = None  # None: every connected client has permission.
    on: Resources = targets.cluster


def check_rights(context: IggyContext, request: object) -> None:
    """Raises NotAuthorized if the client may not do that to the named resource."""
    served = COMMANDS[type(request)]
    if served.action is not None and context.rules is not None:
        for resource in served.on(context.broker, request):
            context.check(served.action, resource)


async def carry_out(context: IggyContext, request: object) -> IggyAnswer:
    """Return the answer to a request, once the client's rights are checked.

    Raises the errors of its handler.
    """
    check_rights(context, request)
    return await run(step_into(COMMANDS[type(request)].handler(context, request)))


COMMANDS: Mapping[type, IggyHandler] = {
    m.Ping: IggyHandler("ping", system.ping),
    u.LoginUser: IggyHandler("login_user", logins.login),
    u.BindSession: IggyHandler("bind_session", logins.bind_session),
    u.LogoutUser: IggyHandler("logout_user", logins.logout),
    m.GetMe: IggyHandler("get_me", system.get_me),
    m.GetClient: IggyHandler("get_client", system.get_client, Action.DESCRIBE),
    m.GetClients: IggyHandler("get_clients", system.get_clients, Action.DESCRIBE),
    m.GetStats: IggyHandler("get_stats", system.get_stats, Action.DESCRIBE),
    m.PollMessages: IggyHandler("poll_messages", polling.poll, Action.CONSUME, targets.consumer),
    m.PollDeferred: IggyHandler(
        "poll_messages_deferred", deferred.poll_deferred, Action.CONSUME, targets.consumer
    ),
    m.WaitForMessages: IggyHandler(
        "wait_for_messages", deferred.wait_for_messages, Action.CONSUME, targets.consumer
    ),
    FetchMessages: IggyHandler("fetch_messages", fetching.fetch, Action.CONSUME, targets.consumer),
    m.GetPartitionRoute: IggyHandler("get_partition_route", topics.get_route, on=targets.topic),
    m.SendMessages: IggyHandler("send_messages", sending.send, Action.PRODUCE, targets.topic),
    m.GetConsumerOffset: IggyHandler(
        "get_consumer_offset", offsets.get_offset, Action.DESCRIBE, targets.consumer
    ),
    m.StoreConsumerOffset: IggyHandler(
        "store_consumer_offset", offsets.store_offset, Action.CONSUME, targets.consumer
    ),
    m.DeleteConsumerOffset: IggyHandler(
        "delete_consumer_offset", offsets.delete_offset, Action.CONSUME, targets.consumer
    ),
    m.GetStream: IggyHandler("get_stream", streams.get_stream, Action.DESCRIBE, targets.stream),
    m.GetStreams: IggyHandler("get_streams", streams.get_streams, Action.DESCRIBE, targets.tenant),
    m.CreateStream: IggyHandler(
        "create_stream", streams.create_stream, Action.CREATE, targets.new_stream
    ),
    m.UpdateStream: IggyHandler(
        "update_stream", streams.update_stream, Action.ALTER, targets.stream
    ),
    m.DeleteStream: IggyHandler(
        "delete_stream", streams.delete_stream, Action.DELETE, targets.stream
    ),
    m.GetTopic: IggyHandler("get_topic", topics.get_topic, Action.DESCRIBE, targets.topic),
    m.GetTopics: IggyHandler("get_topics", topics.get_topics, Action.DESCRIBE, targets.topics),
    m.CreateTopic: IggyHandler(
        "create_topic", topics.create_topic, Action.CREATE, targets.new_topic
    ),
    m.DeleteTopic: IggyHandler("delete_topic", topics.delete_topic, Action.DELETE, targets.topic),
    m.CreatePartitions: IggyHandler(
        "create_partitions", topics.create_partitions, Action.ALTER, targets.topic
    ),
    m.GetGroup: IggyHandler("get_group", groups.get_group, Action.DESCRIBE, targets.group),
    m.GetGroups: IggyHandler("get_groups", groups.get_groups, Action.DESCRIBE, targets.topic),
    m.CreateGroup: IggyHandler(
        "create_group", groups.create_group, Action.CONSUME, targets.new_group
    ),
    m.DeleteGroup: IggyHandler("delete_group", groups.delete_group, Action.CONSUME, targets.group),
    m.JoinGroup: IggyHandler("join_group", groups.join_group, Action.CONSUME, targets.group),
    m.LeaveGroup: IggyHandler("leave_group", groups.leave_group, Action.CONSUME, targets.group),
    m.SyncGroup: IggyHandler("sync_group", groups.sync_group, Action.CONSUME, targets.group),
    m.UpdateTopic: IggyHandler("update_topic", topics.update_topic, Action.ALTER, targets.topic),
    m.DeletePartitions: IggyHandler(
        "delete_partitions", topics.delete_partitions, Action.DELETE, targets.topic
    ),
    m.PurgeTopic: IggyHandler("purge_topic", topics.purge_topic, Action.DELETE, targets.topic),
    m.PurgeStream: IggyHandler("purge_stream", streams.purge_stream, Action.DELETE, targets.stream),
    m.DeleteSegments: IggyHandler(
        "delete_segments", topics.delete_segments, Action.DELETE, targets.topic
    ),
    m.FlushUnsavedBuffer: IggyHandler("flush", topics.flush, Action.PRODUCE, targets.topic),
    # As for a list of all that changes: needs the right to manage servers.
    GetMetadataChanges: IggyHandler(
        "get_metadata_changes", metadata_changes.get_changes, Action.ALTER
    ),
    m.GetClusterMetadata: IggyHandler("get_cluster_metadata", system.get_cluster_metadata),
    m.DescribeOptions: IggyHandler("describe_options", system.describe_options),
    # The handlers check the user, and the permission to manage users.
    u.LoginWithToken: IggyHandler("login_with_token", logins.login_with_token),
    u.GetUser: IggyHandler("get_user", users.get_user),
    u.GetUsers: IggyHandler("get_users", users.get_users),
    u.CreateUser: IggyHandler("create_user", users.create_user),
    u.UpdateUser: IggyHandler("update_user", users.update_user),
    u.DeleteUser: IggyHandler("delete_user", users.delete_user),
    u.UpdatePermissions: IggyHandler("update_permissions", users.update_permissions),
    u.ChangePassword: IggyHandler("change_password", users.change_password),
    u.GetTokens: IggyHandler("get_tokens", users.get_tokens),
    u.CreateToken: IggyHandler("create_token", users.create_token),
    u.DeleteToken: IggyHandler("delete_token", users.delete_token),
}
