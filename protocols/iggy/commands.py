"""The handler of each command, and the permission that the client needs.

Knows no bytes and no connection; a request without an entry here is not served in any dialect.
"""

from __future__ import annotations

import re
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

    handler: Handler
    action: Action | None = None  # None: every connected client has permission.
    on: Resources = targets.cluster
    api: str = ""  # Name in metrics; empty: the request's.


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
    m.Ping: IggyHandler(system.ping),
    u.LoginUser: IggyHandler(logins.login),
    u.BindSession: IggyHandler(logins.bind_session),
    u.LogoutUser: IggyHandler(logins.logout),
    m.GetMe: IggyHandler(system.get_me),
    m.GetClient: IggyHandler(system.get_client, Action.DESCRIBE),
    m.GetClients: IggyHandler(system.get_clients, Action.DESCRIBE),
    m.GetStats: IggyHandler(system.get_stats, Action.DESCRIBE),
    m.PollMessages: IggyHandler(polling.poll, Action.CONSUME, targets.consumer),
    m.PollDeferred: IggyHandler(
        deferred.poll_deferred, Action.CONSUME, targets.consumer, api="poll_messages_deferred"
    ),
    m.WaitForMessages: IggyHandler(deferred.wait_for_messages, Action.CONSUME, targets.consumer),
    FetchMessages: IggyHandler(fetching.fetch, Action.CONSUME, targets.consumer),
    m.GetPartitionRoute: IggyHandler(topics.get_route, on=targets.topic),
    m.SendMessages: IggyHandler(sending.send, Action.PRODUCE, targets.topic),
    m.GetConsumerOffset: IggyHandler(offsets.get_offset, Action.DESCRIBE, targets.consumer),
    m.StoreConsumerOffset: IggyHandler(offsets.store_offset, Action.CONSUME, targets.consumer),
    m.DeleteConsumerOffset: IggyHandler(offsets.delete_offset, Action.CONSUME, targets.consumer),
    m.GetStream: IggyHandler(streams.get_stream, Action.DESCRIBE, targets.stream),
    m.GetStreams: IggyHandler(streams.get_streams, Action.DESCRIBE, targets.tenant),
    m.CreateStream: IggyHandler(streams.create_stream, Action.CREATE, targets.new_stream),
    m.UpdateStream: IggyHandler(streams.update_stream, Action.ALTER, targets.stream),
    m.DeleteStream: IggyHandler(streams.delete_stream, Action.DELETE, targets.stream),
    m.GetTopic: IggyHandler(topics.get_topic, Action.DESCRIBE, targets.topic),
    m.GetTopics: IggyHandler(topics.get_topics, Action.DESCRIBE, targets.topics),
    m.CreateTopic: IggyHandler(topics.create_topic, Action.CREATE, targets.new_topic),
    m.DeleteTopic: IggyHandler(topics.delete_topic, Action.DELETE, targets.topic),
    m.CreatePartitions: IggyHandler(topics.create_partitions, Action.ALTER, targets.topic),
    m.GetGroup: IggyHandler(groups.get_group, Action.DESCRIBE, targets.group),
    m.GetGroups: IggyHandler(groups.get_groups, Action.DESCRIBE, targets.topic),
    m.CreateGroup: IggyHandler(groups.create_group, Action.CONSUME, targets.new_group),
    m.DeleteGroup: IggyHandler(groups.delete_group, Action.CONSUME, targets.group),
    m.JoinGroup: IggyHandler(groups.join_group, Action.CONSUME, targets.group),
    m.LeaveGroup: IggyHandler(groups.leave_group, Action.CONSUME, targets.group),
    m.SyncGroup: IggyHandler(groups.sync_group, Action.CONSUME, targets.group),
    m.UpdateTopic: IggyHandler(topics.update_topic, Action.ALTER, targets.topic),
    m.DeletePartitions: IggyHandler(topics.delete_partitions, Action.DELETE, targets.topic),
    m.PurgeTopic: IggyHandler(topics.purge_topic, Action.DELETE, targets.topic),
    m.PurgeStream: IggyHandler(streams.purge_stream, Action.DELETE, targets.stream),
    m.DeleteSegments: IggyHandler(topics.delete_segments, Action.DELETE, targets.topic),
    m.FlushUnsavedBuffer: IggyHandler(topics.flush, Action.PRODUCE, targets.topic, api="flush"),
    # As for a list of all that changes: needs the right to manage servers.
    GetMetadataChanges: IggyHandler(metadata_changes.get_changes, Action.ALTER),
    m.GetClusterMetadata: IggyHandler(system.get_cluster_metadata),
    m.DescribeOptions: IggyHandler(system.describe_options),
    # The handlers check the user, and the permission to manage users.
    u.LoginWithToken: IggyHandler(logins.login_with_token),
    u.GetUser: IggyHandler(users.get_user),
    u.GetUsers: IggyHandler(users.get_users),
    u.CreateUser: IggyHandler(users.create_user),
    u.UpdateUser: IggyHandler(users.update_user),
    u.DeleteUser: IggyHandler(users.delete_user),
    u.UpdatePermissions: IggyHandler(users.update_permissions),
    u.ChangePassword: IggyHandler(users.change_password),
    u.GetTokens: IggyHandler(users.get_tokens),
    u.CreateToken: IggyHandler(users.create_token),
    u.DeleteToken: IggyHandler(users.delete_token),
}

API_NAMES: Mapping[type, str] = {
    request: served.api or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", request.__name__).lower()
    for request, served in COMMANDS.items()
}
