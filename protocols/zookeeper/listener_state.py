"""The state that all connections of a ZooKeeper listener share, and the work by the clock: expiry
of sessions, watches on virtual nodes, old notifications.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.errors import NotOwner, StorageFailed, StorageFull
from braidlog.broker.positions.members import LiveGroup, SubscriptionMember
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.topic import TopicEvent
from braidlog.protocols.zookeeper.group_nodes import PROTOCOL, subscribed_topics
from braidlog.protocols.zookeeper.kafka_view import CHANGES, FIXED, KafkaView
from braidlog.protocols.zookeeper.namespace import SharedNodes
from braidlog.protocols.zookeeper.pieces import SentInPieces
from braidlog.protocols.zookeeper.sessions import LiveSession, LiveSessions
from braidlog.protocols.zookeeper.topic_nodes import CONFIGS, is_index
from braidlog.protocols.zookeeper.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.options import ZooKeeperOptions

log = structlog.get_logger()

# Interval of the checks for expired sessions, and for watched nodes that changed without a call:
# positions that other protocols moved.
LOOK_S: Final = 0.5
# Watched paths between two pauses, some milliseconds of work, and the pause: 10,000 paths take a
# second, and more paths no more of the processor.
LOOKED_AT: Final = 200
PAUSE_S: Final = 0.01
# Notifications of changed settings (`kafka.server.TopicConfigManager`).
NOTIFICATION_MS: Final = 15 * 60 * 1000
NOTIFICATIONS_LOOK_S: Final = 60.0
# Ephemeral nodes of an ended session that a record deletes.
DELETED_TOGETHER: Final = 500
ENDED_TOGETHER: Final = 20  # Sessions that end between two checkpoints.


class Service:
    """Tree and sessions of a listener."""

    def __init__(self, broker: Broker, options: ZooKeeperOptions) -> None:
        """Take over the stored sessions of the opened nodes. Raises storage errors."""
        nodes = broker.nodes
        self._tenure = nodes.tenure
        self.broker = broker
        self.options = options
        self.names = SharedNodes(
            broker, nodes, options.kafka, lambda path, data: self.tree.keep(path, data)
        )
        fixed = frozenset(("/", *FIXED))
        self.tree = Tree(
            nodes,
            KafkaView(self.names),
            SentInPieces(nodes, broker.output),
            fixed=fixed,
            now_ms=lambda: broker.now_us() // 1000,
        )
        self.nodes = nodes
        self.sessions = LiveSessions(nodes, options.tick_ms, trio.current_time)
        self._notifications_at = trio.current_time()
        missing = [path for path in FIXED if nodes.find(path) is None]
        for path in missing:
            self.tree.keep(path, None)
        broker.topics.listeners.add(self)
        broker.members.add_source(self._members, PROTOCOL, self._joined)

    @property
    def is_current(self) -> bool:
        """True until another broker has the nodes."""
        return self.nodes.is_open and self.nodes.tenure == self._tenure

    def close(self) -> None:
        """Disconnect all clients: they reconnect to the broker that has the nodes now."""
        self.broker.topics.listeners.discard(self)
        self.broker.members.remove_source(self._members)
        for session in self.sessions.live.values():
            if session.holder is not None:
                session.holder.end("another broker has the nodes now")

    def now(self) -> float:
        """Return the time of the sessions, in trio's seconds."""
        return trio.current_time()

    def count(self, operation: str) -> None:
        """Count a request in the metrics."""
        self.broker.metrics.number("braidlog_requests", PROTOCOL, operation).inc()

    async def prepare(self) -> None:
        """Clean up before clients come; on a full disk `check` tries again. Raises NotOwner,
        StorageFailed.
        """
        try:
            await self.delete_left_nodes()
        except StorageFull as error:
            self._warn_of_full(error)

    def _warn_of_full(self, error: StorageFull) -> None:
        self.broker.seldom.warning("session_check_failed", cause="storage_full", reason=str(error))

    async def run(self) -> None:
        """Do the work by the clock until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self.check)
            nursery.start_soon(self._repeat, self.look_at_watched)

    async def _repeat(self, check: Callable[[float], Awaitable[None]]) -> None:
        """Make a check every LOOK_S; `check` receives its planned time."""
        due = trio.current_time() + LOOK_S
        while True:
            await trio.sleep_until(due)
            try:
                await check(due)
            except StorageFailed:
                raise
            except StorageFull as error:
                self._warn_of_full(error)
            except NotOwner:  # Another broker has the nodes; `close` follows.
                if self.is_current:
                    raise
            except Exception:  # A bug: the next check may succeed, and clients go on.
                log.exception("session_check_failed")
            due = max(due + LOOK_S, trio.current_time())

    async def check(self, due: float) -> None:
        """End expired sessions, delete nodes that a crash left and old notifications. `due`: the
        planned time of this check.
        """
        async for session in in_turns(self.sessions.expired(due), ENDED_TOGETHER):
            if self.sessions.is_expired(session):  # Its client may have come back meanwhile.
                log.info("session_expired", session=f"{session.session_id:#x}")
                await self.end_session(session, "the session expired")
        await self.delete_left_nodes()
        self._delete_notifications()

    async def delete_left_nodes(self) -> None:
        """Delete ephemeral nodes of ended sessions, which a crash or a full disk left.

        Raises NotOwner, StorageFull, StorageFailed.
        """
        for session_id in self.nodes.ended_with_nodes():
            await self._delete_ephemerals(session_id)

    async def end_session(self, session: LiveSession, reason: str) -> None:
        """End a session: its connection, if `reason` is given, and its ephemeral nodes.

        Raises StorageFull, StorageFailed.
        """
        if session.session_id in self.sessions.live:
            self.sessions.end(session.session_id)
        if reason and session.holder is not None:
            session.holder.end(reason)
        await self._delete_ephemerals(session.session_id)

    async def _delete_ephemerals(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session that has ended, a piece at a time."""
        while owned := list(islice(self.nodes.ephemerals(session_id), DELETED_TOGETHER)):
            with self.tree.change():
                self.tree.delete_owned(owned)
            await trio.lowlevel.checkpoint()

    async def look_at_watched(self, _due: float) -> None:
        """Fire the watches of virtual nodes that changed."""
        for number, path in enumerate(list(self.tree.watches.virtual_paths), 1):
            refresh = self.tree.view.refresh([path])
            if refresh is not None:
                try:
                    await refresh
                except NotOwner as error:  # The next look may succeed.
                    self.broker.seldom.info("watch_delayed", cause="not_owner", reason=str(error))
                    continue
            self.tree.observe(path)
            if number % LOOKED_AT == 0:
                await trio.sleep(PAUSE_S)

    def _delete_notifications(self) -> None:
        now = trio.current_time()
        if now < self._notifications_at:
            return
        self._notifications_at = now + NOTIFICATIONS_LOOK_S
        old_ms = self.broker.now_us() // 1000 - NOTIFICATION_MS
        for name in list(self.nodes.children(CHANGES)):
            path = f"{CHANGES}/{name}"
            node = self.nodes.find(path)
            if node is not None and node.ctime_ms < old_ms:
                self.tree.remove(path)

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """See `TopicListener`: fire the watches on the topic at once. The clients go to another
        broker once that broker has the nodes, which may be before it has the topic.
        """
        if not (self.is_current and self._is_shown(topic)):
            return
        name = topic.name.topic
        try:
            for path in self._paths_of(name):
                if self.tree.watches.has(path):
                    self.tree.observe(path)
            if event is TopicEvent.DELETED:
                self.tree.remove(f"{CONFIGS}/{name}")
        except StorageFull as error:  # The next look fires the watches.
            self.broker.seldom.warning("watch_delayed", cause="storage_full", reason=str(error))

    def _is_shown(self, topic: Topic) -> bool:
        """Return True if the topic is in the namespace that ZooKeeper's clients see."""
        return (topic.name.tenant, topic.name.namespace) == (
            self.names.tenant,
            self.names.namespace,
        )

    @staticmethod
    def _paths_of(name: str) -> Iterator[str]:
        yield "/brokers/topics"
        yield f"/brokers/topics/{name}"
        yield f"/brokers/topics/{name}/partitions"
        yield CONFIGS
        yield f"{CONFIGS}/{name}"

    def _members(self, topic: Topic, name: bytes) -> Iterable[SubscriptionMember]:
        """Return the consumers of a group that own partitions of a topic, for every tool."""
        if not (self.is_current and self._is_shown(topic)):
            return
        group = f"/consumers/{name.decode(errors='replace')}"
        owners: dict[str, list[int]] = {}
        for text in self.nodes.children(f"{group}/owners/{topic.name.topic}"):
            node = self.nodes.find(f"{group}/owners/{topic.name.topic}/{text}")
            if node is not None and is_index(text, len(topic.partitions)):
                # The data are the consumer's id, and the number of its thread.
                consumer = (node.data or b"").decode(errors="replace").rpartition("-")[0]
                owners.setdefault(consumer, []).append(int(text))
        subscribed = f'"{topic.name.topic}"'.encode()
        for consumer in sorted(self.nodes.children(f"{group}/ids")):
            node = self.nodes.find(f"{group}/ids/{consumer}")
            if node is None or not (consumer in owners or subscribed in (node.data or b"")):
                continue
            session = self.sessions.live.get(node.owner)
            holder = None if session is None else session.holder
            address = "" if holder is None else holder.peer
            yield SubscriptionMember(PROTOCOL, consumer, address, sorted(owners.get(consumer, ())))

    def _joined(self, name: bytes | None) -> Iterator[LiveGroup]:
        """Yield the groups with consumers, or only the group of that name."""
        if not self.is_current:
            return
        names = tuple(self.nodes.children("/consumers"))
        for group in names if name is None else (name.decode(errors="replace"),):
            path = f"/consumers/{group}"
            consumers = sorted(self.nodes.children(f"{path}/ids"))
            if not consumers:
                continue
            topics = set(self.nodes.children(f"{path}/owners"))
            for consumer in consumers:
                node = self.nodes.find(f"{path}/ids/{consumer}")
                topics.update(() if node is None else subscribed_topics(node.data or b""))
            yield LiveGroup(
                PROTOCOL,
                "group",
                "",
                "Stable",
                self.names.tenant,
                self.names.namespace,
                group.encode(),
                len(consumers),
                {topic: count for topic in topics if (count := self._readers(group, topic))},
                () if name is None else [(consumer, "") for consumer in consumers],
            )

    def _readers(self, group: str, topic_name: str) -> int:
        """Return the number of a group's consumers that read a topic."""
        topic = self.names.topic(topic_name)
        return 0 if topic is None else len(list(self._members(topic, group.encode())))
