"""The memory of a partition's producers: kept and removed sequences."""

from braidlog.storage.log.sequences import BATCHES_MAX, PRODUCERS_MAX, SequenceTable, StoredBatch


def test_the_last_batches_of_a_producer_are_remembered():
    table = SequenceTable(0)
    for number in range(BATCHES_MAX + 2):
        table.note(7, 0, StoredBatch(number, number, 10 * number), 1000 + number)
    state = table.find(7)
    assert state.last_sequence == BATCHES_MAX + 1
    assert [batch.base_offset for batch in state.recent] == [20, 30, 40, 50, 60]
    assert state.first_sequence == 0, "the first one is remembered without its batch"
    assert state.last_append_us == 1000 + BATCHES_MAX + 1
    assert table.find(8) is None


def test_a_new_epoch_counts_from_its_first_batch():
    table = SequenceTable(0)
    table.note(7, 0, StoredBatch(0, 99, 0), 1)
    table.note(7, 1, StoredBatch(3, 4, 100), 2)
    assert (table.find(7).epoch, table.find(7).first_sequence) == (1, 3)
    assert table.find(7).recent == [StoredBatch(3, 4, 100)]


def test_sequences_that_restart_at_0_are_known_from_there():
    table = SequenceTable(0)
    table.note(7, 0, StoredBatch(90, 99, 0), 1)
    table.note(7, 0, StoredBatch(0, 4, 10), 2)
    assert table.find(7).first_sequence == 0


def test_the_longest_silent_producer_is_removed_first():
    table = SequenceTable(0)
    for producer_id in range(1, PRODUCERS_MAX + 1):
        table.note(producer_id, 0, StoredBatch(0, 0, producer_id), producer_id)
    table.note(1, 0, StoredBatch(1, 1, 0), 0)
    table.note(PRODUCERS_MAX + 1, 0, StoredBatch(0, 0, 0), 0)
    assert len(table) == PRODUCERS_MAX
    assert table.find(2) is None
    assert table.find(1).last_sequence == 1
