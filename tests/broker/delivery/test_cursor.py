"""A cursor tells its own moves from those of other clients."""

import pytest

from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.positions.cursor_moves import CursorEvent
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.dispatch_fakes import memory_cursor
from tests.broker.metadata_fakes import MetadataParts


@pytest.fixture
async def subscription():
    house = MetadataParts()
    topic = await house.topics.create(TopicName("public", "default", "t"), 2)
    subscription = house.subscriptions.open(topic, b"s")
    subscription.start(0, 0)
    subscription.start(1, 0)
    return subscription


def followed(cursor):
    """Return the moves that the cursor passes on: (event, is_own)."""
    moves = []
    cursor.follow(lambda event, is_own: moves.append((event, is_own)))
    return moves


async def test_only_the_mover_is_notified_of_an_own_move(subscription):
    first, second = DispatchCursor(subscription, 0), DispatchCursor(subscription, 0)
    heard = followed(first), followed(second)
    first.ack([(0, 2)], lazy=True)
    first.ack_to(5, lazy=True)
    first.seek(1)
    events = [CursorEvent.ACKED, CursorEvent.ACKED, CursorEvent.SOUGHT]
    assert heard == ([(event, True) for event in events], [(event, False) for event in events])


async def test_moves_of_other_clients_are_foreign(subscription):
    moves = followed(DispatchCursor(subscription, 0))
    subscription.commit(0, 5)
    subscription.commit(1, 5)  # Another partition.
    subscription.commit(0, 3)
    subscription.delete()
    events = CursorEvent.ACKED, CursorEvent.SOUGHT, CursorEvent.DELETED
    assert moves == [(event, False) for event in events]


async def test_a_cursor_that_follows_no_more_is_no_listener(subscription):
    cursor = DispatchCursor(subscription, 0)
    moves = followed(cursor)
    cursor.unfollow()
    subscription.commit(0, 5)
    assert not moves and not subscription.listeners


def test_only_its_owner_moves_a_cursor_in_memory():
    cursor = memory_cursor(3)
    moves = followed(cursor)
    cursor.ack([(3, 4)], lazy=True)
    cursor.seek(0)
    assert moves == [(CursorEvent.ACKED, True), (CursorEvent.SOUGHT, True)]
    cursor.unfollow()
    cursor.ack_to(9, lazy=True)
    assert len(moves) == 2 and cursor.position == 9
