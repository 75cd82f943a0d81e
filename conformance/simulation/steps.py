"""A random workload over a directory, with a small change per step."""

from collections.abc import Callable, Sequence

from braidlog.broker.broker import Broker
from braidlog.broker.positions.subscriptions import KafkaCommit, Subscription
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.topic import Topic
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.retention_rules import longest_age_us
from braidlog.storage.metadata.catalogue_records import SchemaMeta
from braidlog.storage.metadata.names import TopicName
from conformance.simulation.facts import AppendedBatch
from conformance.simulation.house import done
from conformance.simulation.life import BrokerLives
from conformance.simulation.verify import Broken

TOPICS_MAX = 4
PARTITIONS_MAX = 3
SUBSCRIPTIONS = (b"group", b"sub", b"7")
BODY_FORMAT = 1

# Clock jump for a retention by age: all records become too old.
AGES_US = 30 * 86_400_000_000

# Clock changes, back or ahead.
STEPS_US = (5 * 60_000_000, 2 * 86_400_000_000, 10 * 365 * 86_400_000_000)


class RandomLives(BrokerLives):
    """Lives of random steps."""

    all_or_nothing = frozenset(
        (
            "append",
            "create_topic",
            "grow_topic",
            "describe_topic",
            "change_namespace",
            "name_producer",
            "open_subscription",
            "commit_cursor",
            "ack",
            "end_cursor",
        )
    )

    _stepped: tuple[Broker, ...] = ()  # The brokers whose clock was set.

    def step(self) -> None:
        """Take a random step.

        Raises Broken; StorageFailed of broker or storage, after which the broker answered nothing.
        """
        action = self.rng.choices(ACTIONS, WEIGHTS)[0]
        self.do(action)

    # Records

    def _partition(self) -> Partition | None:
        partitions = list(self.house.partitions.values())
        return self.rng.choice(partitions) if partitions else None

    def append(self) -> None:
        """Append a batch to a random partition."""
        partition = self._partition()
        if partition is not None:
            self.append_to(partition)

    def append_to(self, partition: Partition, records: int = 0, size: int = 0) -> None:
        """Append a batch to this partition; number of records and size are random unless given."""
        rng, began = self.rng, self.now
        self._count += 1
        size = size or rng.choice((20, 60, 60, 200, 400, 1200, 5000))
        body = f"{partition.partition_id}/{self._count}/".encode() + rng.randbytes(size)
        records = records or rng.choice((1, 1, 2, 5, 300_000 if rng.random() < 0.2 else 3))
        now_us = self.house.broker.now_us()
        appended = partition.append(
            [body], BodyInfo(records), body_format=BODY_FORMAT, append_us=now_us
        )
        end = appended.base_offset + records
        facts = self.facts.log(partition.partition_id)
        facts.batches.append(AppendedBatch(began, appended.base_offset, end, body))
        if appended.ticket:
            self._owe(appended.ticket, partition.partition_id, end)

    def retain(self) -> None:
        """Apply the retention of each minute to a partition, now or much later."""
        partition = self._partition()
        if partition is None:
            return
        later_us = AGES_US if self.rng.random() < 0.3 else 0
        topic = self.house.broker.topics.get(partition.topic.name)
        positions = [
            position
            for name in self.house.broker.subscriptions.names(topic)
            if (position := self._subscription_named(topic, name).position(partition.index))
            is not None
        ]
        position, settings, broker = (
            min(positions, default=None),
            partition.log.settings,
            self.house.broker,
        )
        now_us = broker.ages.now_us(longest_age_us(settings)) + later_us
        wall_us, start = broker.now_us() + later_us, partition.log.log_start_offset
        self.house.reserve.use_reserve(
            lambda: partition.log.retain(now_us, position, wall_us=wall_us)
        )
        by_age_alone = settings.retention_bytes is None and not settings.delete_acknowledged
        is_fresh = by_age_alone and not later_us and self._knows_clock
        if is_fresh and partition.log.log_start_offset != start:
            raise Broken(f"{partition.log.folder}: fresh records went for their age")

    @property
    def _knows_clock(self) -> bool:
        """Return True if no earlier life had its clock set: a start cannot see that."""
        return all(broker is self.house.broker for broker in self._stepped)

    def step_clock(self) -> None:
        """Set the clock, until the broker ends: by minutes, or by years."""
        broker = self.house.broker
        ahead_us = self.rng.choice((-1, 1)) * self.rng.choice(STEPS_US)
        # Set the clock of this broker alone.
        broker.now_us = lambda: Broker.now_us(broker) + ahead_us  # type: ignore[method-assign]
        broker.ages.look()
        self._stepped = (*self._stepped, broker)

    # Topics

    def _topic(self) -> Topic | None:
        topics = self.house.broker.topics.all()
        return self.rng.choice(topics) if topics else None

    def _settings(self) -> dict[str, str | int | bool]:
        rng = self.rng
        settings: dict[str, str | int | bool] = {}
        if rng.random() < 0.45:
            settings["durability"] = "written"
        if rng.random() < 0.4:
            settings["retention_bytes"] = rng.choice((1, 2000, 6000))
        if rng.random() < 0.3:
            settings["retention_ms"] = 86_400_000
        if rng.random() < 0.3:
            settings[rng.choice(("delete_acknowledged", "keep_unacknowledged"))] = True
        return settings

    def create_topic(self) -> int | None:
        """Create a topic of a few partitions."""
        topics = self.house.broker.topics
        if len(topics) >= TOPICS_MAX:
            return None
        self._count += 1
        namespace = self.rng.choice(self.house.broker.namespaces.all())
        name = TopicName(namespace.tenant, namespace.namespace, f"topic-{self._count}")
        count = self.rng.randint(1, PARTITIONS_MAX)
        return done(topics.create, name, count, settings=self._settings()).ticket

    def grow_topic(self) -> int | None:
        """Add a partition."""
        topic = self._topic()
        if topic is None or len(topic.partitions) >= PARTITIONS_MAX:
            return None
        topics = self.house.broker.topics
        return done(topics.add_partitions, topic.name, len(topic.partitions) + 1)

    def delete_topic(self) -> int | None:
        """Delete a topic."""
        topic = self._topic()
        return None if topic is None else done(self.house.broker.topics.delete, topic.name)

    def alter_topic(self) -> int | None:
        """Change settings: durability, retention."""
        topic = self._topic()
        if topic is None:
            return None
        changes = dict.fromkeys(topic.meta.settings) | self._settings()
        if changes.get("durability") == "written":  # Partially, if the call is interrupted.
            for partition in topic.partitions:
                self.facts.log(partition.partition_id).written_mode.put(self.now, True)
        return done(self.house.broker.topics.alter_settings, topic.name, changes)

    def describe_topic(self) -> int | None:
        """Change the catalogue's other data of a topic: a schema, a group, an epoch."""
        topic = self._topic()
        if topic is None:
            return None
        catalogue, number = self.house.broker.catalogue.state, topic.meta.topic_id
        self._count += 1
        name = f"n{self._count}"
        groups = catalogue.groups(number)
        if groups and self.rng.random() < 0.3:
            return catalogue.delete_group(number, self.rng.choice(groups).group_id)
        return self.rng.choice(
            (
                lambda: catalogue.add_schema(
                    number, SchemaMeta(1, name, self.rng.randbytes(700), {})
                ),
                lambda: catalogue.create_group(number, name),
                lambda: catalogue.bump_topic_epoch(number),
            )
        )()

    def change_namespace(self) -> int | None:
        """Create or delete a namespace."""
        namespaces = self.house.broker.namespaces
        empty = [
            candidate
            for candidate in namespaces.all()
            if candidate.namespace != "default"
            and not namespaces.has_topics(candidate.tenant, candidate.namespace)
        ]
        if empty and self.rng.random() < 0.5:
            return done(namespaces.delete, empty[0].tenant, empty[0].namespace)
        if len(namespaces.all()) > 3:
            return None
        self._count += 1
        return done(namespaces.create, "public", f"space-{self._count}")

    def name_producer(self) -> int | None:
        """Assign a number to a producer's name."""
        catalogue = self.house.broker.catalogue.state
        self._count += 1
        catalogue.producer_id(b"p%d" % self._count)
        return catalogue.ticket

    # Subscriptions

    def _subscription_named(self, topic: Topic, name: bytes) -> Subscription:
        subscription = self.house.broker.subscriptions.find(topic, name)
        assert subscription is not None
        return subscription

    def _cursor(self) -> tuple[Subscription, int] | None:
        topic = self._topic()
        names = self.house.broker.subscriptions.names(topic) if topic is not None else []
        if topic is None or not names:
            return None
        index = self.rng.randrange(len(topic.partitions))
        return self._subscription_named(topic, self.rng.choice(names)), index

    def _offset(self, subscription: Subscription, index: int) -> int:
        end = subscription.topic.partition(index).next_offset
        return self.rng.randint(0, end + 3) if self.rng.random() < 0.9 else end + (1 << 40)

    def open_subscription(self) -> int | None:
        """Open a subscription without a cursor."""
        topic = self._topic()
        name = self.rng.choice(SUBSCRIPTIONS)
        subscriptions = self.house.broker.subscriptions
        if topic is None or subscriptions.find(topic, name) is not None:
            return None
        subscriptions.open(topic, name, {"by": "test"})
        return self.house.cursors.ticket

    def commit_cursor(self) -> int | None:
        """Commit as Kafka's or Iggy's clients do, or seek as Pulsar's."""
        place = self._cursor()
        if place is None:
            return None
        subscription, index = place
        position = self._offset(subscription, index)
        choice = self.rng.random()
        if choice < 0.2:
            return subscription.seek(index, position)
        if choice < 0.5:
            subscription.commit(index, position, lazy=True)
            return None
        kafka = KafkaCommit(position, self.rng.choice((None, b"", b"x")), self._count)
        return subscription.commit(index, position, kafka=kafka)

    def ack(self) -> int | None:
        """Acknowledge individually, or up to an offset; lazily or with a wait."""
        place = self._cursor()
        if place is None:
            return None
        subscription, index = place
        lazy = self.rng.random() < 0.6
        position = self._offset(subscription, index)
        if self.rng.random() < 0.4:
            ticket = subscription.ack_to(index, position, lazy=lazy)
        else:
            ranges = [
                (position, position + 1 + self.rng.randrange(3)),
                (position + 5, position + 6),
            ]
            ticket = subscription.ack(index, ranges, lazy=lazy)
        return None if lazy else ticket

    def end_cursor(self) -> int | None:
        """Delete a cursor or a whole subscription."""
        place = self._cursor()
        if place is None:
            return None
        subscription, index = place
        if self.rng.random() < 0.5:
            return subscription.delete_cursor(index)
        return subscription.delete()

    def stop(self) -> None:
        """Stop cleanly and restart."""
        self.restart(cleanly=True)

    def kill(self) -> None:
        """Kill the process at any moment and restart."""
        self.restart(cleanly=False)


Action = Callable[[RandomLives], int | None]

CHANCES: dict[Action, int] = {
    RandomLives.append: 30,
    RandomLives.step_round: 28,
    RandomLives.whole_round: 6,
    RandomLives.promote: 4,
    RandomLives.commit_cursor: 10,
    RandomLives.ack: 10,
    RandomLives.open_subscription: 5,
    RandomLives.end_cursor: 2,
    RandomLives.create_topic: 4,
    RandomLives.grow_topic: 2,
    RandomLives.delete_topic: 2,
    RandomLives.alter_topic: 3,
    RandomLives.describe_topic: 4,
    RandomLives.change_namespace: 1,
    RandomLives.name_producer: 1,
    RandomLives.retain: 5,
    RandomLives.step_clock: 1,
    RandomLives.stop: 1,
    RandomLives.kill: 3,
}
ACTIONS: Sequence[Action] = list(CHANCES)
WEIGHTS: Sequence[int] = list(CHANCES.values())
