"""A broker: everything that all listeners share.

Opens the data directory and runs the background tasks. Knows no adapter and no socket;
`broker/process.py` opens the listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio

from braidlog.broker.access import audit
from braidlog.broker.access.access import Access
from braidlog.broker.access.authentication import Attempt, Authentication
from braidlog.broker.access.bearer import TokenVerifier
from braidlog.broker.access.quotas import Quotas
from braidlog.broker.access.rules import GrantedRules
from braidlog.broker.access.subscription_rules import SubscriptionRules
from braidlog.broker.access.users import NAME_BYTES_MAX, Users
from braidlog.broker.closing import Closing
from braidlog.broker.commit.durability import CommitRounds
from braidlog.broker.commit.waiters import Awaited, Waiters
from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.config.settings import Config
from braidlog.broker.coordination.nodes import Nodes
from braidlog.broker.delivery.client_policies import ClientPolicies
from braidlog.broker.delivery.dead_letters import DeadLetterCopier
from braidlog.broker.delivery.inactivity import Inactivity
from braidlog.broker.delivery.non_persistent.topics import NonPersistentTopics
from braidlog.broker.delivery.open_producers import ProducerRegistry
from braidlog.broker.delivery.registry import Dispatchers
from braidlog.broker.limits import CLOSED_FOR_ACCEPT, STATE_LIMITS, StateLimits
from braidlog.broker.local_parts import Foundation, LocalParts, Parts
from braidlog.broker.metrics import Metrics
from braidlog.broker.positions.backlog import Backlogs
from braidlog.broker.positions.members import Members
from braidlog.broker.positions.subscriptions import Subscriptions
from braidlog.broker.reading.cutting import CutBatches
from braidlog.broker.runtime.clock import Clock, SystemClock
from braidlog.broker.runtime.loop_turns import measuring_turns
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.plain import make_poller
from braidlog.broker.runtime.receive_buffer import BufferPool
from braidlog.broker.server.admission import Admission
from braidlog.broker.server.connection_deadlines import ConnectionDeadlines
from braidlog.broker.server.watching import watch_access, watch_connections
from braidlog.broker.topics.compaction import Compactor
from braidlog.broker.topics.groups import NamedGroups
from braidlog.broker.topics.known_ends import note_regularly
from braidlog.broker.topics.namespaces import Namespaces
from braidlog.broker.topics.partition_factory import Partitions
from braidlog.broker.topics.past_changes import PastChanges
from braidlog.broker.topics.producer_names import ProducerNumbers
from braidlog.broker.topics.registry import TopicDefaults
from braidlog.broker.topics.renaming import Renaming
from braidlog.broker.topics.retention_sweeps import Retention
from braidlog.broker.topics.schemas import Schemas
from braidlog.broker.topics.shown_producers import ShownProducers
from braidlog.broker.topics.topic_metrics import TopicMetrics
from braidlog.broker.topics.topics import Topics
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.log.age_clock import AgeClock
from braidlog.storage.log.committer import Committer

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Principal
    from braidlog.broker.cluster.peers import Peers
    from braidlog.broker.server.opened import ListedConnection, OpenConnection, OpenListener
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.directory.directory import Directory
    from braidlog.storage.metadata.positions import Positions

log = structlog.get_logger()


class Broker:
    """Topics, subscriptions and durability over one data directory."""

    def __init__(
        self,
        config: Config,
        data_dir: Directory,
        verifier: TokenVerifier | None = None,
        clock: Clock | None = None,
        make_parts: Callable[[Foundation], Parts] | None = None,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """Recover the data directory. Raises storage errors; use `Broker.open`."""
        self._clock = clock or SystemClock()
        self.config = config
        self._limits = limits
        self.data_dir = data_dir.path
        self.version = metadata.version("braidlog")
        self.is_leaving = False  # stopping: first, other brokers take over topics
        self.stopping = trio.Event()  # no new work; work that has begun is finished
        self.ready = trio.Event()  # set once every listener accepts
        self.connections: set[OpenConnection] = set()
        self.served_connections: set[ListedConnection] = set()  # of adapters with their own servers
        self.listeners: dict[str, OpenListener] = {}  # open listeners by name
        self.shared_states: dict[str, Any] = {}  # of a protocol's listeners, by protocol
        self.poller = make_poller()  # serves the connections
        self.deadlines = ConnectionDeadlines()  # of the connections
        self.buffers = BufferPool(bytes_max=config.memory.input_bytes)
        self.output = OutputBudget(config.memory.output_bytes)
        self.cut_batches = CutBatches()
        self._storage = data_dir
        self.metrics = Metrics()
        self.seldom = ThrottledLog()  # for events that clients can cause at will
        self.admission = Admission(self.metrics, self.seldom)
        self.waiters = Waiters(self.poller)
        self.closing = Closing()
        self.dispatchers = Dispatchers(now_us=self.now_us, output=self.output, closing=self.closing)
        self.committer = Committer(data_dir.files, keeper=data_dir.keeper)
        self.durability = self._make_durability()
        self._connection_ids = 0
        self.ages = AgeClock(lambda: self.now_us(), lambda: self.steady_us())
        report = self.durability.report_storage_error
        self._partitions = Partitions(data_dir, config.log, self.durability, self.output)
        self.parts = self._make_parts(data_dir, make_parts)
        self.peers: Peers = self.parts.peers
        self.placement, self.catalogue = self.parts.placement, self.parts.catalogue
        topics = self._local_topics(self.parts.cursors)
        self.topics, self.namespaces = self.parts.registries(
            topics, Namespaces(self.catalogue, self.now_us, limits)
        )
        self._ask_who_comes_in(verifier or TokenVerifier(config.access))
        self.non_persistent = self._make_non_persistent()
        self.renaming = self._make_renaming(topics)
        self.past_changes = PastChanges(self.catalogue)
        self.named_groups = NamedGroups(self.catalogue, limits)
        self.schemas = Schemas(self.catalogue, self.now_us)
        self.producers = ProducerNumbers(self.catalogue, limits=limits)
        self.subscriptions = Subscriptions(
            self.topics, self.parts.cursors, report=report, limits=limits
        )
        self.retention = self._make_retention()
        self.backlogs = self._make_backlogs()
        self.members = Members()  # shared by all listeners
        self.members.add_source(self.dispatchers.members)
        self.shown_producers = ShownProducers()
        self.open_producers = ProducerRegistry(self._raise_epoch, self.closing)
        self.client_policies = ClientPolicies(self.backlogs, self.subscriptions, trio.current_time)
        self.inactivity = self._make_inactivity()
        self.nodes = Nodes(self.parts.nodes_journal, report)
        self.compactor = self._compactor()
        self._listen()
        self.parts.recover(topics)

    def _make_parts(
        self, data_dir: Directory, make_parts: Callable[[Foundation], Parts] | None
    ) -> Parts:
        foundation = Foundation(
            self.config,
            data_dir,
            self.committer,
            self.durability,
            self._partitions,
            self.now_us,
        )
        if make_parts is not None:
            return make_parts(foundation)
        assert isinstance(data_dir, DataDir), "another directory has other parts"
        return LocalParts(foundation, data_dir)

    def _make_durability(self) -> CommitRounds:
        return CommitRounds(
            self.committer,
            self.waiters,
            self.poller,
            flush_interval_ms=self.config.log.flush_interval_ms,
            sync_seconds=self.metrics.histogram("braidlog_fsync_seconds"),
            append_seconds=self.metrics.histogram("braidlog_append_seconds"),
        )

    def _make_retention(self) -> Retention:
        return Retention(
            self.topics,
            self.subscriptions,
            interval_ms=self.config.log.retention_check_ms,
            ages=self.ages,
            use_reserve=self._storage.reserve.use_reserve,
            report=self.durability.report_storage_error,
            hold_lost=self.metrics.hold_lost,
        )

    def _make_backlogs(self) -> Backlogs:
        return Backlogs(
            self.topics,
            self.subscriptions,
            interval_ms=self.config.log.retention_check_ms,
            ages=self.ages,
            expired=self.metrics.expired,
        )

    def _make_inactivity(self) -> Inactivity:
        return Inactivity(
            self.topics,
            self.subscriptions,
            self.dispatchers,
            self.members,
            self.shown_producers,
            interval_ms=self.config.log.retention_check_ms,
        )

    def _local_topics(self, cursors: Positions) -> Topics:
        return Topics(
            self.catalogue,
            cursors,
            self._partitions,
            defaults=TopicDefaults.of(self.config.topics),
            now_us=self.now_us,
            report=self.durability.report_storage_error,
            limits=self._limits,
        )

    def _make_non_persistent(self) -> NonPersistentTopics:
        return NonPersistentTopics(
            self.topics,
            self.namespaces,
            placement=self.placement,
            now_us=self.now_us,
            closing=self.closing,
            limits=self._limits,
        )

    def _make_renaming(self, topics: Topics) -> Renaming:
        return Renaming(
            topics,
            self.non_persistent,
            self.catalogue,
            self._partitions,
            self.durability,
            is_possible=self.config.storage.mode == "local",
            limits=self._limits,
        )

    def _compactor(self) -> Compactor:
        return Compactor(
            self.topics,
            self.durability,
            self._storage.files,
            self.metrics,
            interval_ms=self.config.log.compaction_check_ms,
            ages=self.ages,
            is_possible=self.config.storage.mode == "local",
        )

    def _ask_who_comes_in(self, verifier: TokenVerifier) -> None:
        """Set up users, permissions, the audit log, quotas and authentication."""
        access = self.config.access
        self.users = Users(
            self.catalogue,
            now_us=self.now_us,
            clock_s=trio.current_time,
            slows_down=access.slow_down,
            hashed=self.metrics.number("braidlog_password_hashes").inc,
            limits=self._limits,
        )
        self.permissions = GrantedRules(self.catalogue, access.superusers, self._limits)
        self.audit = audit.AuditLog(
            _audit_file(self.config),
            now_us=self.now_us,
            clock_s=time.monotonic,
            seldom=self.seldom,
        )
        self.quotas = Quotas(access, time.monotonic)
        self.rules = SubscriptionRules(self.permissions, self.namespaces.find, self.namespaces.all)
        rules = self.rules if access.required else None
        self.access = Access(rules, self.audit, self.quotas, self._refused)
        self.authentication = Authentication(
            self.users,
            verifier,
            required=access.required,
            on_attempt=self._login_tried,
        )

    @classmethod
    def open(
        cls,
        config: Config,
        verifier: TokenVerifier | None = None,
        data_dir: Directory | None = None,
        clock: Clock | None = None,
        make_parts: Callable[[Foundation], Parts] | None = None,
        limits: StateLimits = STATE_LIMITS,
    ) -> Broker:
        """Lock and recover the configured data directory, or recover `data_dir`, already open.
        `make_parts` makes the parts that depend on where the data lies; without, those of a data
        directory.

        Raises DirectoryLocked, DamagedLog, StorageFull, StorageFailed and the errors of the
        journals; nothing is left open then.
        """
        data_dir = data_dir or DataDir.open(config.data_dir)
        try:
            return cls(config, data_dir, verifier, clock, make_parts, limits)
        except BaseException:  # After any error, release the lock.
            data_dir.abandon()
            raise

    async def run(self) -> None:
        """Commit, flush, apply retention, tidy up and time the turns of the event loop, until
        cancelled. Raises StorageFailed.
        """
        turns = self.metrics.histogram("braidlog_loop_turn_seconds")
        passes = self.poller.pass_listeners
        with measuring_turns(turns, self.seldom, self.config.loop_turn_log_ms, passes):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.poller.run)
                nursery.start_soon(self.deadlines.run)
                nursery.start_soon(watch_connections, self.connections, self.buffers, self.output)
                nursery.start_soon(watch_access, self.connections, self._users_version)
                nursery.start_soon(self.durability.promote)
                nursery.start_soon(self.retention.run)
                nursery.start_soon(self.backlogs.run)
                nursery.start_soon(self.inactivity.run)
                nursery.start_soon(self.compactor.run)
                nursery.start_soon(self._partitions.run)
                nursery.start_soon(self._partitions.memories.run)
                nursery.start_soon(self.producers.run)
                nursery.start_soon(self.dispatchers.run)
                nursery.start_soon(self.closing.run)
                nursery.start_soon(self.non_persistent.run)
                nursery.start_soon(self.renaming.run)
                nursery.start_soon(self.audit.run)
                nursery.start_soon(note_regularly, self._storage.note_used)
                await self.durability.run()

    def begin_leaving(self) -> None:
        """Tell health checks that the broker is about to stop."""
        self.is_leaving = True

    async def leave(self) -> None:
        """Hand over to the other brokers, if there are any, then stop."""
        self.begin_leaving()
        await self.parts.hand_over()
        self.stop()

    def stop(self) -> None:
        """Begin to stop: long polls return the present records, and nothing new waits."""
        self.is_leaving = True
        self.stopping.set()
        self.placement.wake()
        self.waiters.stop()

    def close(self) -> None:
        """Make everything durable and release the directory. `run` must have ended. Raises
        StorageFailed.
        """
        self.dispatchers.close()
        self.retire_discarded()
        self.committer.commit()
        self._partitions.memories.keep_now()
        self._storage.close(self.committer)

    def abandon(self) -> None:
        """Release the directory as it is, after a failed sync."""
        self._storage.abandon()

    def close_idle_files(self) -> bool:
        """Close some unused log files, to free a descriptor for an accept. Return True if any was
        closed.
        """
        return self._storage.files.close_oldest_idle(CLOSED_FOR_ACCEPT)

    def retire_discarded(self) -> None:
        """Close the partitions of deleted topics; `run` does it piece by piece. Raises
        StorageFailed.
        """
        for _ in self._partitions.retire_discarded():
            pass

    def _refused(self, principal: Principal) -> None:
        self.metrics.of_user("braidlog_user_refusals", principal.name).inc()

    def _users_version(self) -> int:
        users = self.catalogue.users.version
        # Without access control the restrictions of namespaces mean nothing.
        return users if self.access.rules is None else hash((users, self.rules.version()))

    def _login_tried(self, attempt: Attempt) -> None:
        method, at = attempt.method, attempt.at
        name = attempt.name[:NAME_BYTES_MAX]  # Clients may send any text.
        self.audit.login(name, at, method, allowed=attempt.succeeded)
        if attempt.succeeded:
            self.metrics.of_user("braidlog_user_logins", name).inc()
        else:
            self.metrics.number("braidlog_logins_refused", method).inc()
            protocol, _, host = at.partition(" ")
            self.seldom.warning(
                "login_refused",
                cause=f"{method} {at}",
                protocol=protocol,
                method=method,
                user=name,
                host=host,
            )

    @property
    def last_change(self) -> int:
        """Number of the last change of topics, namespaces or users, from 1 up; rises with each
        change, also over restarts, and is the same for all brokers of a cluster.
        """
        return self.catalogue.place + 1

    async def published(self, ticket: int) -> None:
        """Wait until a change of users or permissions is on disk.

        In a cluster the other brokers that answer have followed the change too: a revoked right is
        gone everywhere.
        """
        await self.parts.published(ticket)

    async def has_room(self) -> bool:
        """Return True if a small record had room a moment ago."""
        return await self._partitions.has_room()

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""
        return self._clock.now_us()

    def steady_us(self) -> int:
        """Return microseconds of a monotonic clock."""
        return self._clock.steady_us()

    def next_connection_id(self) -> int:
        """Return a number for a new connection, from 1."""
        self._connection_ids += 1
        return self._connection_ids

    async def wait_any(self, targets: Sequence[tuple[Awaited, int]]) -> None:
        """Return when a partition's high watermark exceeds its offset, a partition is removed, or
        the broker stops.
        """
        await self.waiters.wait_any(targets)

    def _raise_epoch(self, topic: Topic) -> int:
        """Store that the topic's epoch was given to a producer; nothing is stored for a
        non-persistent topic.
        """
        if not topic.is_persistent:
            topic.meta.topic_epoch += 1
            return 0
        return self.producers.raise_epoch(topic)

    def _listen(self) -> None:
        """Let each part follow the changes of other parts."""
        self.durability.round_listeners.append(self.topics.leaving.round_ended)
        self.durability.round_listeners.append(lambda _: self.ages.look())
        self.topics.listeners.add(self.dispatchers)
        copier = DeadLetterCopier(self.topics, self.durability, self.now_us)
        self.dispatchers.copy_dead_letters(copier)
        self.topics.listeners.add(self.open_producers)
        self.shown_producers.add_source(self.open_producers.shown)
        self.backlogs.full.add(self.open_producers.close_all)
        self.topic_metrics = TopicMetrics(self.metrics, self.topics, self.non_persistent)


def _audit_file(config: Config) -> Path | None:
    """Return the path of the audit log; None without an audit log."""
    access = config.access
    if not (access.required and access.audit):
        return None
    return Path(access.audit_file or Path(config.data_dir) / audit.FILE)
