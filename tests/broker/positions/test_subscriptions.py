import gc

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.positions import subscription_limits
from braidlog.broker.positions.subscriptions import LOOK_SUBSCRIPTIONS, CursorEvent, KafkaCommit
from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.metadata import ranges as ranges_module
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MetadataParts, RecordingListener

ORDERS = TopicName("public", "default", "orders")
NAME = b"billing"


@pytest.fixture
def house():
    house = MetadataParts()
    house.create(ORDERS, 2)
    return house


@pytest.fixture
def topic(house):
    return house.topics.get(ORDERS)


@pytest.fixture
def billing(house, topic):
    return house.subscriptions.open(topic, NAME)


@pytest.fixture
def listener(billing):
    listener = RecordingListener()
    billing.listeners.add(listener)
    return listener


def stands(subscription, index=0):
    return (
        subscription.position(index),
        subscription.standing(index)[1],
        list(subscription.acked(index)),
    )


def kafka_commit(subscription, offset, metadata=b"", index=0, time_us=1):
    return subscription.commit(index, offset, kafka=KafkaCommit(offset, metadata, time_us))


# Names.


def test_a_name_is_the_same_subscription_for_all_listeners(house, topic, billing):
    assert house.subscriptions.open(topic, NAME) is billing
    assert house.subscriptions.find(topic, NAME) is billing
    assert house.subscriptions.get(topic, NAME) is billing
    assert house.subscriptions.names(topic) == [NAME]
    assert house.subscriptions.find(topic, b"other") is None
    with pytest.raises(errors.SubscriptionNotFound):
        house.subscriptions.get(topic, b"other")


def test_properties_are_those_of_the_first_consumer(house, topic):
    audit = house.subscriptions.open(topic, b"audit", {"owner": "ä"})
    house.subscriptions.open(topic, b"audit", {"owner": "b"})
    assert audit.properties == {"owner": "ä"}
    assert house.restarted().subscriptions.get(topic, b"audit").properties == {"owner": "ä"}


def test_properties_are_replaced_and_stay_over_a_restart(house, topic):
    audit = house.subscriptions.open(topic, b"audit", {"owner": "a"})
    audit.set_properties({"floor": "2"})
    assert audit.properties == {"floor": "2"}
    assert house.restarted().subscriptions.get(topic, b"audit").properties == {"floor": "2"}
    audit.delete()
    with pytest.raises(errors.SubscriptionNotFound):
        audit.set_properties({})


def test_a_name_has_a_length_limit(house, topic):
    house.subscriptions.open(topic, b"")
    house.subscriptions.open(topic, b"n" * subscription_limits.NAME_BYTES_MAX)
    with pytest.raises(errors.InvalidName):
        house.subscriptions.open(topic, b"n" * (subscription_limits.NAME_BYTES_MAX + 1))


# Commits. The rules of positions are scripts: see `test_rules.py`.


def test_a_cursor_never_set_is_not_zero(house, billing):
    assert billing.position(0) is None
    assert billing.committed(0) is None
    billing.commit(0, 0)
    assert billing.position(0) == 0
    assert billing.position(1) is None
    again = house.restarted()
    subscription = again.subscriptions.get(again.topics.get(ORDERS), NAME)
    assert (subscription.position(0), subscription.position(1)) == (0, None)


def test_an_equal_commit_keeps_kafkas_text_and_time(house, billing):
    billing.commit(0, 10)
    ticket = kafka_commit(billing, 10, b"meta", time_us=5)
    assert ticket == house.cursor_journal.ticket
    assert billing.committed(0) == KafkaCommit(10, b"meta", 5)
    billing.commit(0, 10)
    assert billing.committed(0) == KafkaCommit(10, b"meta", 5)


@pytest.mark.parametrize(("offset", "position"), [(-5, 0), (10**15, 10**15), (2**70, 2**63 - 1)])
def test_a_commit_is_kept_as_sent_even_outside_the_log(billing, offset, position):
    billing.commit(0, offset, kafka=KafkaCommit(min(offset, 2**63 - 1), None, -1))
    assert billing.position(0) == position
    assert billing.committed(0) == KafkaCommit(min(offset, 2**63 - 1), None, -1)
    assert billing.backlog(0) == 0


def test_partitions_are_independent(billing):
    billing.commit(0, 5)
    billing.commit(1, 9)
    billing.ack(1, [(12, 13)], lazy=False)
    assert stands(billing, 0) == (5, 5, [])
    assert stands(billing, 1) == (9, 9, [(12, 13)])


def test_a_missing_partition_takes_no_commit(billing):
    for call in (billing.commit, billing.seek, billing.start):
        with pytest.raises(errors.PartitionNotFound):
            call(2, 5)


# Acks.


def test_repeated_acks_change_nothing(house, billing, listener):
    billing.commit(0, 10)
    billing.ack(0, [(12, 14)], lazy=False)
    listener.take()
    records = len(house.cursor_journal.records)
    assert billing.ack(0, [(0, 10), (12, 13), (5, 5), (13, 14)], lazy=True) == 0
    assert billing.ack_to(0, 10, lazy=True) == 0
    assert billing.ack_to(0, 3, lazy=False) == house.cursor_journal.ticket
    assert len(house.cursor_journal.records) == records
    assert stands(billing) == (10, 10, [(12, 14)])
    assert listener.take() == []


def test_lazy_acks_have_no_ticket_and_a_later_answer_covers_them(house, billing):
    billing.commit(0, 10)
    ticket = house.cursor_journal.ticket
    assert billing.ack(0, [(12, 14)], lazy=True) == 0
    assert billing.ack_to(0, 11, lazy=True) == 0
    assert house.cursor_journal.lazy == 2
    # The same ack again, now with a receipt: no new ack, but the first ack must be on disk before.
    assert billing.ack(0, [(12, 14)], lazy=False) == ticket + 1


def test_a_lazy_commit_has_no_ticket(house, billing):
    assert billing.commit(0, 10, lazy=True) == 0
    assert billing.position(0) == 10
    assert house.cursor_journal.lazy == 1


def test_an_unset_cursor_takes_no_acks(house, billing, listener):
    assert billing.ack(0, [(0, 5)], lazy=True) == 0
    assert billing.ack_to(0, 5, lazy=False) == house.cursor_journal.ticket
    assert billing.position(0) is None
    assert listener.take() == []


@pytest.mark.slow
def test_acks_above_the_range_limit_are_refused_unless_they_need_no_room(billing):
    limit = ranges_module.RANGES_MAX
    billing.commit(0, 10)
    step = 1 << 17
    for first in range(0, limit, step):
        ranges = [(100 + 2 * number, 101 + 2 * number) for number in range(first, first + step)]
        billing.ack(0, ranges, lazy=True)
    assert len(billing.acked(0)) == limit
    end = 100 + 2 * limit
    with pytest.raises(errors.LimitExceeded):
        # A separate ack, an ack that joins the last range, and an ack that the position passes.
        billing.ack(0, [(end + 50, end + 51), (end - 1, end), (10, 12)], lazy=False)
    assert billing.position(0) == 12
    assert len(billing.acked(0)) == limit
    assert billing.acked(0).contains(end - 2, end)
    assert not billing.acked(0).contains(end + 50, end + 51)
    # Two ranges became a single range: there is room again.
    billing.ack(0, [(101, 102)], lazy=False)
    with pytest.raises(errors.LimitExceeded, match="1 ranges"):
        billing.ack(0, [(end + 50, end + 51), (end + 60, end + 61)], lazy=False)
    assert billing.acked(0).contains(end + 50, end + 51)
    assert len(billing.acked(0)) == limit


# Endings.


def test_the_last_cursor_ends_the_subscription(house, topic, billing, listener):
    billing.commit(0, 5)
    billing.commit(1, 5)
    listener.take()
    billing.delete_cursor(0)
    assert listener.take() == [(0, CursorEvent.DELETED)]
    assert (billing.position(0), billing.position(1)) == (None, 5)
    billing.delete_cursor(0)
    assert listener.take() == []
    billing.delete_cursor(1)
    assert house.subscriptions.find(topic, NAME) is None
    assert house.subscriptions.names(topic) == []
    assert house.restarted().subscriptions.names(topic) == []
    billing.delete_cursor(1)


def test_a_commit_restarts_an_ended_subscription(house, topic, billing, listener):
    billing.commit(0, 5)
    billing.delete()
    assert listener.take()[-1] == (0, CursorEvent.DELETED)
    billing.ack_to(0, 9, lazy=False)
    assert billing.position(0) is None
    billing.commit(0, 3)
    assert house.subscriptions.find(topic, NAME) is billing
    assert house.restarted().subscriptions.get(topic, NAME).position(0) == 3


def test_deleting_notifies_about_every_cursor(house, topic, billing, listener):
    billing.commit(1, 5)
    billing.commit(0, 5)
    listener.take()
    house.subscriptions.delete(topic, NAME)
    assert listener.take() == [(0, CursorEvent.DELETED), (1, CursorEvent.DELETED)]
    with pytest.raises(errors.SubscriptionNotFound):
        house.subscriptions.delete(topic, NAME)


async def test_subscriptions_end_with_their_topic(house, topic, billing, listener):
    billing.commit(0, 5)
    listener.take()
    ticket = await house.topics.delete(ORDERS)
    assert listener.take() == [(0, CursorEvent.DELETED), (1, CursorEvent.DELETED)]
    assert billing.position(0) is None
    assert house.subscriptions.names(topic) == []
    for call in (billing.commit, billing.seek):
        with pytest.raises(errors.TopicNotFound):
            call(0, 5)
    with pytest.raises(errors.TopicNotFound):
        house.subscriptions.open(topic, b"late")
    assert house.cursors.topic_ids() == [topic.meta.topic_id]  # A power cut may undo the deletion.
    house.topics.leaving.round_ended(ticket)
    assert house.cursors.topic_ids() == []


def test_a_listener_may_leave_during_its_notification(billing):
    class LeavingListener:
        def moved(self, index, event, mover=None):
            billing.listeners.discard(self)

    billing.listeners |= {LeavingListener(), LeavingListener()}
    billing.commit(0, 5)
    assert billing.listeners == set()


def test_an_unused_subscription_is_reloaded_with_the_same_cursors(house, topic):
    house.subscriptions.open(topic, NAME).commit(0, 5)
    gc.collect()
    assert house.subscriptions.get(topic, NAME).position(0) == 5


# Backlog.


def test_the_backlog_is_the_unacknowledged_part_of_the_log(topic, billing):
    partition = topic.partitions[0]
    partition.log_start_offset, partition.next_offset = 10, 100
    assert billing.backlog(0) == 90
    billing.commit(0, 4)
    assert billing.backlog(0) == 90
    billing.ack(0, [(8, 12), (90, 110)], lazy=False)
    assert billing.backlog(0) == 78
    billing.commit(0, 50)
    assert billing.backlog(0) == 40
    billing.commit(0, 200)
    assert billing.backlog(0) == 0
    with pytest.raises(errors.PartitionNotFound):
        billing.backlog(2)


# A full disk.


def test_a_change_that_cannot_be_written_has_no_effect(house, billing, listener):
    billing.commit(0, 5)
    before = stands(billing)
    listener.take()
    house.cursor_journal.full = True
    for change in (
        lambda: billing.commit(0, 9),
        lambda: billing.commit(0, 2),
        lambda: billing.seek(0, 5),
        lambda: billing.ack(0, [(7, 8)], lazy=True),
        lambda: billing.ack_to(0, 8, lazy=False),
        lambda: billing.delete_cursor(0),
        lambda: billing.delete(),
        lambda: house.subscriptions.open(billing.topic, b"late"),
    ):
        with pytest.raises(errors.StorageFull):
            change()
    assert stands(billing) == before
    assert listener.take() == []


# Retention's queries.


async def test_the_lowest_position_ignores_unset_cursors(house, topic, billing):
    assert await house.subscriptions.lowest_position(topic, 0) is None
    billing.commit(0, 9)
    house.subscriptions.open(topic, b"audit").commit(0, 4)
    house.subscriptions.open(topic, b"never set")
    assert await house.subscriptions.lowest_position(topic, 0) == 4
    assert await house.subscriptions.lowest_position(topic, 1) is None


async def test_positions_are_read_in_turns_without_missing_a_backward_move(house, topic):
    for number in range(4 * LOOK_SUBSCRIPTIONS + 1):
        house.subscriptions.open(topic, b"%d" % number).commit(0, 10 + number)
    first = house.subscriptions.get(topic, b"0")
    turns = []

    async def set_back():
        while len(turns) < 2:
            turns.append(first.position(0))
            await trio.lowlevel.checkpoint()
        first.commit(0, 3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_back)
        assert await house.subscriptions.lowest_position(topic, 0) == 3


async def test_positions_with_constant_backward_moves_count_as_unacknowledged(house, topic):
    for number in range(4 * LOOK_SUBSCRIPTIONS + 1):
        house.subscriptions.open(topic, b"%d" % number).commit(0, 1000 + number)
    last = house.subscriptions.get(topic, b"%d" % (4 * LOOK_SUBSCRIPTIONS))

    async def set_back():
        while True:
            last.commit(0, last.position(0) - 1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_back)
        assert await house.subscriptions.lowest_position(topic, 0) == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [StorageFull("no room"), StorageFailed("cannot write")])
def test_a_position_that_cannot_be_made_durable_is_answered_and_the_error_reported(house, error):
    """A write that failed for good must stop the broker, whoever asked for the write."""

    class Unwritable:
        def flush_lazy(self):
            raise error

    house.subscriptions.cursors = Unwritable()
    assert house.subscriptions.flush_lazy() == 0
    assert house.reported == [error]
