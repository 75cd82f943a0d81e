"""Groups of a stock client (librdkafka) with cooperative and static members."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.server import RunningBroker
from tests.waiting import HANG_S

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS = 6
names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"shared-{next(names)}"
    with IggyWire(broker.address("iggy")) as wire:
        wire.create_topic(name, partitions=PARTITIONS)
    return name


class Member:
    """A consumer in a group that has its topic's name, and its assignments."""

    def __init__(self, broker: RunningBroker, topic: str, **settings: Any) -> None:
        self.partitions: set[int] = set()
        self.revoked: list[int] = []
        self.values: list[bytes] = []
        self.error: Any = None
        self.consumer = confluent.Consumer(
            {
                "bootstrap.servers": broker.addresses["kafka"],
                "group.id": topic,
                "auto.offset.reset": "earliest",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(
            [topic],
            on_assign=self._add_assigned,
            on_revoke=self._drop_revoked,
            on_lost=self._drop_revoked,
        )

    def _add_assigned(self, _: Any, assigned: Sequence[Any]) -> None:
        self.partitions |= {partition.partition for partition in assigned}

    def _drop_revoked(self, _: Any, revoked: Sequence[Any]) -> None:
        gone = [partition.partition for partition in revoked]
        self.partitions -= set(gone)
        self.revoked += gone

    def look(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if message.error():
            self.error = message.error()
        else:
            self.values.append(message.value())


def until(members: Sequence[Member], is_so: Callable[[], bool]) -> None:
    """Wait; no partition may have two owners meanwhile."""
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, [member.partitions for member in members]
        for member in members:
            member.look()
        had = [partition for member in members for partition in member.partitions]
        assert len(set(had)) == len(had), had


def have(members: Sequence[Member], *sizes: int) -> Callable[[], bool]:
    """Return True once the members have these numbers of partitions, and all
    partitions together.
    """
    return lambda: sorted(len(member.partitions) for member in members) == sorted(sizes)


def produce(broker: RunningBroker, topic: str, count: int) -> list[bytes]:
    producer = confluent.Producer({"bootstrap.servers": broker.addresses["kafka"]})
    values = [b"%d" % number for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(HANG_S) == 0
    return values


def test_cooperative_members_give_up_only_moving_partitions(
    broker: RunningBroker, topic: str
) -> None:
    how = {"partition_assignment_strategy": "cooperative-sticky"}
    members = [Member(broker, topic, **how) for _ in range(2)]
    until(members, have(members, 3, 3))
    for member in members:
        member.revoked.clear()
    members.append(Member(broker, topic, **how))
    until(members, have(members, 2, 2, 2))
    assert sum(len(member.revoked) for member in members) == 2
    sent = produce(broker, topic, 60)
    until(members, lambda: sum(len(member.values) for member in members) >= len(sent))
    assert sorted(value for member in members for value in member.values) == sorted(sent)
    members.pop().consumer.close()
    until(members, have(members, 3, 3))
    for member in members:
        member.consumer.close()
    assert sum(len(member.values) for member in members) <= len(sent)


def test_a_returning_static_member_keeps_its_partitions_and_its_double_is_fenced(
    broker: RunningBroker, topic: str
) -> None:
    first, second = (Member(broker, topic, group_instance_id=name) for name in "ab")
    until([first, second], have([first, second], 3, 3))
    had = set(second.partitions)
    second.consumer.close()  # Without leaving the group.
    back = Member(broker, topic, group_instance_id="b")
    until([first, back], lambda: back.partitions == had and len(first.partitions) == 3)
    double = Member(broker, topic, group_instance_id="b")
    until([first, double], lambda: double.partitions == had and len(first.partitions) == 3)
    until([back], lambda: back.error is not None)
    assert back.error.code() == confluent.KafkaError._FATAL
    assert back.consumer.memberid() != double.consumer.memberid()
    for member in (first, back, double):
        member.consumer.close()
