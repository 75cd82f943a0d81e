"""A subscription with very many holes: the cost of an ack must not grow with their number."""

import pytest

from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MetadataParts

HOLES = 200_000
RECORD_BYTES_MAX = 200
# A snapshot is due after growth by half its size: an ack's share is twice its own bytes.
SHARE_BYTES_MAX = 3 * RECORD_BYTES_MAX


@pytest.fixture(scope="module")
def house():
    """Return a house with a subscription that acknowledged every other record."""
    prepared = MetadataParts()
    topic = prepared.create(TopicName("public", "default", "t"), 1)
    billing = prepared.subscriptions.open(topic, b"billing")
    billing.commit(0, 0)
    for first in range(0, HOLES, 1000):
        ranges = [(2 * number + 1, 2 * number + 2) for number in range(first, first + 1000)]
        billing.ack(0, ranges, lazy=True)
    return prepared


def subscription(house):
    topic = house.topics.get(TopicName("public", "default", "t"))
    return house.subscriptions.get(topic, b"billing")


def written_by(house, act):
    """Return the records that the action adds to the journal of the cursors."""
    journal = house.cursor_journal
    before, snapshots = len(journal.records), journal.snapshots
    act()
    assert journal.snapshots == snapshots
    return journal.records[before:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "act",
    [
        lambda billing: billing.ack(0, [(2 * HOLES + 5, 2 * HOLES + 6)], lazy=False),
        lambda billing: billing.ack(0, [(HOLES, HOLES + 1)], lazy=True),
        lambda billing: billing.ack_to(0, 10, lazy=False),
        lambda billing: billing.commit(0, 30),
    ],
    ids=["opens a hole", "closes one", "cumulative", "commit"],
)
def test_a_change_is_written_without_earlier_ranges(house, act):
    billing = subscription(house)
    ranges = len(billing.acked(0))
    assert ranges > HOLES - 100
    (record,) = written_by(house, lambda: act(billing))
    assert len(record) < RECORD_BYTES_MAX


@pytest.mark.slow
def test_snapshots_of_many_holes_are_rare_enough(house):
    """All bytes of many acks, snapshots included, stay at a few hundred per ack."""
    billing = subscription(house)
    journal = house.cursor_journal
    written = snapshots_bytes = 0
    acks = 30_000
    for number in range(acks):
        snapshots = journal.snapshots
        billing.ack(0, [(4 * HOLES + 2 * number, 4 * HOLES + 2 * number + 1)], lazy=True)
        if journal.snapshots > snapshots:
            snapshots_bytes += journal.snapshot_bytes
        else:
            written += len(journal.records[-1])
    assert (written + snapshots_bytes) / acks < SHARE_BYTES_MAX
    again = subscription(house.restarted())
    assert list(again.acked(0)) == list(billing.acked(0))
    assert again.position(0) == billing.position(0)
