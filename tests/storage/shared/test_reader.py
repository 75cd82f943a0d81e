"""Reads of the shared store beside its owners: published records are readable, whatever the owners
do.
"""

import random

import pytest

from braidlog.storage.errors import DamagedLog, OffsetOutOfRange, StoreUnanswered
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.shared.ledger import LedgerUnanswered
from braidlog.storage.shared.proofs import NoCluster
from braidlog.storage.shared.publisher import Patience
from braidlog.storage.shared.reader import AHEAD_BYTES, StoreLook, for_a_while
from tests.storage.shared.memory import MemoryLedger, MemoryStore
from tests.storage.shared.shared_dirs import APPEND_US, Life, SharedStore

TOPIC = "public/default/t"
SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=300)
DELETED_MS = 10_000  # Longer than the trash keeps any object.


class OnlyRead:
    """The calls of a ledger or an object store that readers may use; any other call is an error."""

    def __init__(self, inner, *names):
        self._inner = inner
        self._names = names
        self.asked = []

    def __getattr__(self, name):
        assert name in self._names, f"a reader called {name}"

        def ask(*arguments):
            self.asked.append((name, arguments))
            return getattr(self._inner, name)(*arguments)

        return ask


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


@pytest.fixture
def look(store):
    ledger = OnlyRead(store.ledger, "cluster", "contents", "journal", "close")
    return StoreLook(ledger, OnlyRead(store.objects, "get", "size"))


def bodies(log, start=0, end=None):
    return [bytes(batch.body) for batch in log.batches(start, end)]


def sweep(store, life):
    """Pack and upload everything, and delete all replaced objects."""
    life.pack()
    store.now_ms += DELETED_MS
    life.pack()


def test_published_records_are_read_at_any_place(store, look):
    chance = random.Random(5)
    expected = []
    for number in range(6):
        life = Life(store, settings=SMALL)
        for _ in range(12):
            appended = [chance.randbytes(chance.randrange(1, 400)) for _ in range(3)]
            life.append(*appended)
            expected += appended
            with look.open(TOPIC, 1) as log:
                assert (log.log_start_offset, log.high_watermark) == (0, len(expected))
                assert bodies(log) == expected
                start = chance.randrange(len(expected) + 1)
                end = chance.randrange(start, len(expected) + 1)
                assert bodies(log, start, end) == expected[start:end]
            match chance.randrange(3):
                case 1:
                    life.pack()
                case 2:
                    sweep(store, life)
        life.write(b"in no round")
        life.crash() if number % 2 else life.stop()
        assert look.open(TOPIC, 1).high_watermark == len(expected) + (number % 2 == 0)
        expected += [b"in no round"] * (number % 2 == 0)
    kinds = {name.split("/")[0] for name in store.objects.objects}
    assert kinds >= {"rounds", "packs", "segments"}, "each is read from"


def test_objects_packed_and_deleted_during_a_read_are_looked_up_again(store, look):
    life = Life(store, settings=SMALL)
    life.append(*[b"%03d" % number * 50 for number in range(40)])
    with look.open(TOPIC, 1) as log:
        batches = log.batches(0)
        bodies = [bytes(next(batches).body)]
        before = set(store.names("rounds/"))
        life.append(b"a round behind it")
        sweep(store, life)
        assert len(before - set(store.names("rounds/"))) == 1
        log._segments.clear()  # No segment is in memory.
        bodies += [bytes(batch.body) for batch in batches]
    assert bodies == [b"%03d" % number * 50 for number in range(40)]
    life.stop()


def test_footers_deleted_during_a_read_are_looked_up_again(store):
    life = Life(store)
    life.append(b"a", b"b")
    ledger = OnlyRead(store.ledger, "cluster", "contents", "journal", "close")
    contents, looks = store.ledger.contents, []

    def late(shards):
        result = contents(shards)
        if not looks:
            life.append(b"c")
            sweep(store, life)
        looks.append(shards)
        return result

    ledger.contents = late
    log = StoreLook(ledger, store.objects).open(TOPIC, 1)
    assert bodies(log) == [b"a", b"b", b"c"]
    assert len(looks) == 2
    life.stop()


def test_a_permanently_missing_object_is_damage_with_its_name(store, look):
    life = Life(store, settings=SMALL)
    life.append(*[b"%03d" % number * 50 for number in range(40)])
    sweep(store, life)
    name = store.names("segments/")[1]
    with look.open(TOPIC, 1) as log:
        store.objects.delete(name)
        with pytest.raises(DamagedLog, match=name):
            bodies(log)
        with pytest.raises(DamagedLog, match=name):
            log.first_at(APPEND_US + 1)
    life.stop()


def test_a_bad_byte_is_damage_and_never_returned(store, look):
    life = Life(store)
    life.append(b"a" * 100, b"b" * 100)
    (name,) = [name for name in store.names("rounds/") if not name.endswith(f"{0:020d}.0")]
    data = store.objects.objects[name]
    store.objects.objects[name] = data.replace(b"b" * 100, b"b" * 99 + b"c")
    with look.open(TOPIC, 1) as log:
        batches = log.batches(0)
        assert bytes(next(batches).body) == b"a" * 100
        with pytest.raises(DamagedLog, match="checksum"):
            next(batches)
    life.stop()


def test_a_reader_overtaken_by_retention_is_out_of_range(store, look):
    life = Life(store, settings=SMALL)
    life.append(*[b"%03d" % number * 50 for number in range(40)])
    sweep(store, life)
    with look.open(TOPIC, 1) as log:
        life.log.delete_below(30)
        sweep(store, life)
        with pytest.raises(OffsetOutOfRange) as caught:
            bodies(log)
        assert 0 < caught.value.log_start_offset <= 30
        assert log.log_start_offset == caught.value.log_start_offset
    life.stop()


def test_a_deleted_partition_is_gone(store, look):
    life = Life(store)
    life.append(b"a")
    log = look.open(TOPIC, 1)
    life.directory.retire_partition(1)
    sweep(store, life)
    for name in store.names("rounds/"):  # As once the session has published another round.
        store.objects.delete(name)
    with pytest.raises(FileNotFoundError):
        bodies(log)
    assert look.partitions({TOPIC: [1]}) == {}
    life.stop()


def test_times_are_found_with_an_index_and_without(store, look):
    life = Life(store, settings=SMALL)
    for _ in range(3):
        life.append(*[b"x" * 150] * 8)
        life.pack()
    with look.open(TOPIC, 1) as log:
        assert log.first_at(APPEND_US) == 0
        assert log.first_at(APPEND_US + 1) is None
    life.stop()


def test_little_is_read_at_a_time(store):
    life = Life(store, settings=LogSettings(segment_bytes=1 << 30))
    size, count = 100_000, 200
    life.append(*[b"%05d" % number * (size // 5) for number in range(count)])
    life.pack()
    objects = OnlyRead(store.objects, "get", "size")
    with StoreLook(store.ledger, objects).open(TOPIC, 1) as log:
        objects.asked.clear()
        (batch,) = log.batches(150, 151)
        assert bytes(batch.body[:5]) == b"00150"
        sizes = [arguments[2] for _, arguments in objects.asked]
        assert max(sizes) <= (4 << 20) + AHEAD_BYTES
        assert sum(sizes) < size * count / 2, "it searched for the place, and read no more"
        objects.asked.clear()
        assert sum(1 for _ in log.batches(0)) == count
        sizes = [arguments[2] for _, arguments in objects.asked]
        assert sum(sizes) < size * count * 1.25, "few bytes are asked for twice, to find the place"
        assert max(sizes) <= (4 << 20) + AHEAD_BYTES
    life.stop()


class AlternateFaults:
    """Gives no answer every second time."""

    def __init__(self, inner, error):
        self._inner, self._error, self._count = inner, error, 0

    def __getattr__(self, name):
        def ask(*arguments):
            self._count += 1
            if self._count % 2 and name in ("contents", "journal", "get"):
                raise self._error("nobody there")
            return getattr(self._inner, name)(*arguments)

        return ask


def test_a_store_without_an_answer_is_asked_again(store):
    life = Life(store, settings=SMALL)
    life.append(*[b"%03d" % number * 50 for number in range(10)])
    life.pack()
    ledger = AlternateFaults(store.ledger, LedgerUnanswered)
    objects = AlternateFaults(store.objects, StoreUnanswered)
    pauses = []
    look = StoreLook(ledger, store.objects, lambda: Patience(pauses.append))
    look.catalogue()  # The reader now knows the cluster.
    look._objects = objects
    assert len(bodies(look.open(TOPIC, 1))) == 10
    assert len(pauses) >= 3
    life.stop()


def test_a_permanently_silent_store_is_reported_with_its_error(store):
    class NoContentsLedger(MemoryLedger):
        def contents(self, shards):
            raise LedgerUnanswered("PostgreSQL: nobody there")

    ledger = NoContentsLedger()
    ledger.init(store.ledger.cluster())

    slept = []
    clock = iter((0, 1, 61)).__next__
    look = StoreLook(ledger, store.objects, lambda: for_a_while(clock, slept.append))
    with pytest.raises(LedgerUnanswered, match="PostgreSQL: nobody there"):
        look.open(TOPIC, 1)
    assert len(slept) == 1


def test_a_store_of_another_cluster_is_refused(store, tmp_path):
    with pytest.raises(NoCluster, match="cluster init"):
        StoreLook(store.ledger, MemoryStore()).catalogue()
    other = SharedStore(tmp_path / "other")
    with pytest.raises(NoCluster, match="of cluster"):
        StoreLook(store.ledger, other.objects).catalogue()
