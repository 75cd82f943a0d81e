"""Answers the calls of other brokers: changes of the catalogue, and positions of groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.change_rights import rights_for
from braidlog.broker.cluster.cluster_peers import Call, Reply
from braidlog.broker.cluster.group_answers import GroupAnswers, principal_of
from braidlog.broker.cluster.links import LinkLost, receive_message, send_message
from braidlog.broker.cluster.peers import Committed, named_error
from braidlog.broker.cluster.placement import elsewhere
from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.schemas import numbered
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster_parts import ClusterParts
    from braidlog.broker.topics.topic import Topic

TURN_PARTITIONS = 200  # Partitions checked between two checkpoints: a millisecond or two.


class PeerCallHandler:
    """Answers the calls of other brokers."""

    def __init__(self, broker: Broker, parts: ClusterParts) -> None:
        self._broker = broker
        self._parts = parts
        self._answers: dict[str, Callable[[Call], Awaitable[object]]] = {
            "commit": self._commit,
            "committed": self._committed,
            "end_group": self._end_group,
            "non_persistent": self._non_persistent,
            "positions": self._positions,
            "schema": self._schema,
            "kept": self._stored_sizes,
            "purge": self._purge,
            "place": self._place,
            "reached": self._follow,
            **GroupAnswers(broker).by_name,
        }

    async def serve(self, stream: trio.SocketStream, session: int) -> None:
        """Answer the calls of that session in turn, until the session ends. Raises LinkLost.

        A broker that was fenced while it hung may still send earlier requests of its clients: for
        example, positions that other clients have moved since.
        """
        while True:
            call = await receive_message(stream, Call)
            if self._parts.placement.is_over(session):
                raise LinkLost(f"session {session} was ended")
            try:
                result, error = await self._answer(call), None
            except errors.BrokerError as refused:
                result, error = None, named_error(refused)
            await send_message(stream, Reply(result, error, self._reached))

    @property
    def _reached(self) -> int:
        return self._parts.shared_catalogue.place

    async def _answer(self, call: Call) -> object:
        answer = self._answers.get(call.name)
        if answer is not None:
            return await answer(call)
        broker = self._broker
        owner = broker.placement.catalogue_owner()
        if owner is not None:
            raise elsewhere("the catalogue", owner)
        based_on, *arguments = call.arguments
        for action, resource in rights_for(broker.namespaces, call.name, arguments):
            self._check(call, action, resource)
        changes = self._parts.local_changes
        await changes.prepare(call.name, arguments)
        changes.check_unchanged(self._parts.shared_catalogue, call.name, arguments, based_on)
        ticket = await changes(call.name, arguments)
        return await self._parts.spread(ticket, changes.altered(call.name, arguments))

    async def _follow(self, call: Call) -> None:
        (place,) = call.arguments
        with trio.move_on_after(self._parts.peers.times.spread_s):
            await self._parts.reached(place)

    async def _place(self, call: Call) -> None:
        """Wait until every change so far is published, so that the caller can follow it."""
        broker = self._broker
        owner = broker.placement.catalogue_owner()
        if owner is not None:
            raise elsewhere("the catalogue", owner)
        await broker.durability.reached(self._parts.shared_catalogue.ticket)

    def _check(self, call: Call, action: Action, resource: Resource) -> None:
        self._broker.access.check(principal_of(call), action, resource, call.at)

    def _check_position(self, call: Call, action: Action, group: bytes, topic: TopicName) -> None:
        self._check(call, action, Resource.of_topic(topic))
        self._check(call, action, Resource.of_group(group, topic))

    async def _commit(self, call: Call) -> list[list[str] | None]:
        group, wanted = call.arguments
        broker = self._broker
        commits = broker.subscriptions.commits(group)
        outcomes: list[list[str] | None] = []
        for full, index, *arguments in wanted:
            name = TopicName(*full.split("/", 2))
            try:
                self._check_position(call, Action.CONSUME, group, name)
                topic = broker.topics.get(name)
                commit = KafkaCommit(*arguments)
                commits.add(topic, index, commit.offset, kafka=commit)
                outcomes.append(None)
            except errors.BrokerError as error:
                outcomes.append(named_error(error))
        ticket = commits.write()
        await broker.durability.reached(ticket)
        return outcomes

    async def _committed(self, call: Call) -> list[tuple[object, ...]]:
        """Return topic, partition and position of each, once a crash takes back none of them; an
        error follows a missing position.
        """
        broker = self._broker
        group, wanted = call.arguments
        commits: list[tuple[object, ...]] = []
        async for full, index in in_turns(wanted, TURN_PARTITIONS):
            name = TopicName(*full.split("/", 2))
            try:
                self._check_position(call, Action.DESCRIBE, group, name)
            except errors.NotAuthorized:
                continue
            try:
                commits.append((full, index, self._position(group, name, index)))
            except errors.BrokerError as error:  # Concerns this topic alone.
                commits.append((full, index, None, named_error(error)))
        await broker.durability.reached(broker.subscriptions.flush_lazy())
        return commits

    def _position(self, group: bytes, name: TopicName, index: int) -> Committed:
        topic = self._broker.topics.get(name)
        topic.partition(index)
        subscription = self._broker.subscriptions.find(topic, group)
        committed = None if subscription is None else subscription.committed(index)
        return (
            None
            if committed is None
            else (committed.offset, committed.metadata, committed.leader_epoch)
        )

    async def _positions(self, call: Call) -> list[tuple[str, int]]:
        """Return positions only of topics that the client may see."""
        places: list[tuple[str, int]] = []
        broker, principal = self._broker, principal_of(call)
        for topic in await self._topics_of(call, Action.DESCRIBE):
            subscription = broker.subscriptions.find(topic, call.arguments[0])
            if subscription and broker.access.allows(principal, Action.DESCRIBE, topic.resource):
                places += [
                    (topic.name.full, index)
                    for index in range(len(topic.partitions))
                    if subscription.committed(index) is not None
                ]
        return places

    async def _topics_of(self, call: Call, action: Action) -> list[Topic]:
        """Return this broker's topics in the namespace of the call where the group has a
        subscription and the client has the right. In another namespace the same name is another
        group.
        """
        group, tenant, namespace = call.arguments
        broker, principal = self._broker, principal_of(call)
        return [
            topic
            async for topic in in_turns(broker.topics.list(tenant, namespace), TURN_PARTITIONS)
            if not topic.deleted
            and broker.placement.is_here(topic.name)
            and broker.subscriptions.find(topic, group)
            and broker.access.allows(principal, action, Resource.of_group(group, topic.name))
        ]

    async def _stored_sizes(self, call: Call) -> list[tuple[str, int, int, int]]:
        broker = self._broker
        subscriptions, seen = [], 0
        for topic in broker.topics.all():
            if broker.placement.is_here(topic.name) and not topic.deleted:
                subscriptions.append((topic.name.full, *topic.stored_sizes()))
            seen += 1 + len(topic.partitions)
            if seen >= TURN_PARTITIONS:
                seen = 0
                await trio.lowlevel.checkpoint()
        return subscriptions

    async def _schema(self, call: Call) -> tuple[int, int, str, bytes, dict[str, str]] | None:
        full, version, non_persistent = call.arguments
        broker, name = self._broker, TopicName(*full.split("/", 2))
        self._check(call, Action.DESCRIBE, Resource.of_topic(name))
        broker.placement.check(name)
        schemas = (
            broker.non_persistent.schemas(name)
            if non_persistent
            else broker.topics.get(name).meta.schemas
        )
        schema = numbered(schemas, version)
        if schema is None:
            return None
        number, meta = schema
        return number, meta.type, meta.name, meta.data, meta.properties

    async def _non_persistent(self, call: Call) -> list[tuple[str, str]]:
        tenant, namespace = call.arguments
        channels = self._broker.non_persistent.list(tenant, namespace)
        return [(topic.full, topic.name.topic) for topic in channels]

    async def _purge(self, call: Call) -> None:
        (full,) = call.arguments
        broker = self._broker
        name = TopicName(*full.split("/", 2))
        self._check(call, Action.DELETE, Resource.of_topic(name))
        topic = broker.topics.get(name)
        await broker.durability.all_durable()  # Only durable records can be dropped.
        await broker.retention.purge(topic)
        await broker.durability.all_durable()

    async def _end_group(self, call: Call) -> bool:
        group, tenant, namespace = call.arguments
        broker = self._broker
        self._check(call, Action.DELETE, Resource.of_group_within(group, tenant, namespace))
        ticket, topics = 0, await self._topics_of(call, Action.DELETE)
        if any(broker.members.of(topic, group) for topic in topics):
            raise errors.SubscriptionBusy("the group has members")
        for topic in topics:
            with suppress(errors.SubscriptionNotFound, errors.TopicNotFound):  # Gone meanwhile.
                ticket = max(ticket, broker.subscriptions.delete(topic, group))
        await broker.durability.reached(ticket)
        return bool(topics)
