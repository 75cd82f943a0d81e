"""SENDs of one receive as one body, with the facts of its batch header."""

from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR, SendInfo, parse_send
from braidlog.storage.formats.pulsar.prepare import JOINED_ENTRY_BYTES, EntryRun
from tests.storage.formats.pulsar.test_entry_runs import batch


def test_entries_follow_each_other_and_their_facts_are_added_up() -> None:
    run = EntryRun()
    first, second = batch(b"a", b"b"), batch(b"c")
    run.add(memoryview(first), parse_send(first), 7, 8)
    run.add(memoryview(second), SendInfo(1, 5, BatchFlag.DELAYED, None), 9, 9)
    parts, size = run.prepare(sends=2)
    body = b"".join(parts)
    assert (len(parts), size) == (1, len(body))
    assert body == (
        ENTRY_PREFIX.pack(len(first), 0, 2) + first + ENTRY_PREFIX.pack(len(second), 2, 1) + second
    )
    info = run.info
    assert (info.record_count, info.first_sequence, info.last_sequence) == (3, 7, 9)
    assert info.flags == BatchFlag.DELAYED
    assert [offset for offset, _ in PULSAR.split(body, 40)] == [40, 42]


def test_times_are_the_first_and_the_latest() -> None:
    run = EntryRun()
    for at_us in (None, 5_000, 9_000, 7_000):
        run.add(memoryview(b"x"), SendInfo(1, at_us, 0, None), 0, 0)
    assert (run.info.first_publish_us, run.info.max_publish_us) == (5_000, 9_000)
    run.extend(b"entries", 4, (1, 4), (3, 12))
    assert (run.info.first_publish_us, run.info.max_publish_us) == (5_000, 12_000)
    run = EntryRun()
    run.extend(b"entries", 4, (1, 4), (-1, -1))
    assert (run.info.first_publish_us, run.info.max_publish_us) == (None, None)
    run.extend(b"entries", 4, (5, 8), (3, 12))
    assert (run.info.first_publish_us, run.info.max_publish_us) == (3_000, 12_000)
    assert (run.info.record_count, run.info.first_sequence, run.info.last_sequence) == (8, 1, 8)


def test_large_entries_are_not_copied() -> None:
    run = EntryRun()
    payload = memoryview(bytes(2 * JOINED_ENTRY_BYTES))
    run.add(payload, SendInfo(1, None, 0, None), 0, 0)
    parts, size = run.prepare(sends=1)
    assert parts[1] is payload
    assert size == ENTRY_PREFIX.size + len(payload)
