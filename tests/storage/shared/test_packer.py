"""Packs have a size limit, since they are built in memory: a cycle may need several packs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.files import FileGone
from braidlog.storage.shared.layout import SliceEntry
from braidlog.storage.shared.ledger import Fenced
from braidlog.storage.shared.object_store import ObjectMissing
from braidlog.storage.shared.packer import PackerSettings, in_packs
from braidlog.storage.shared.points import Slice
from tests.storage.shared.shared_dirs import Life, SharedStore

BODIES = [b"%04d" % number * 50 for number in range(6)]


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


class NothingToUpload:
    """A log whose segments are packed only."""

    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    def segments_to_upload(self):
        return []


@pytest.fixture
def life(store):
    """Return a log with two segments that must be packed separately."""
    life = Life(store)
    life.directory._packer._settings = PackerSettings(delete_after_ms=0, pack_bytes=1)
    life.append(*BODIES[:3])
    life.log.local.roll()
    life.append(*BODIES[3:])
    logs = life.directory._logs_of[life.log.shard]
    logs[1] = NothingToUpload(logs[1])
    return life


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 300)), max_size=30))
def test_packs_have_all_slices_by_partition_with_a_size_limit(drawn):
    slices = [
        Slice(SliceEntry(1, number, 0, at * 1000, size, at, at + 1, 0, 0), None)
        for at, (number, size) in enumerate(drawn)
    ]
    packs = list(in_packs(slices, 500))
    places = [(piece.entry.partition_id, piece.entry.file_pos) for pack in packs for piece in pack]
    assert places == sorted((piece.entry.partition_id, piece.entry.file_pos) for piece in slices)
    sizes = [sum(piece.entry.size for piece in pack) for pack in packs]
    assert all(pack and size <= 500 for pack, size in zip(packs, sizes, strict=True))
    assert all(a + b[0].entry.size > 500 for a, b in zip(sizes, packs[1:], strict=False))


def test_several_packs_count_together_and_the_next_owner_reads_them(store, life):
    life.pack()
    assert len(store.names("packs/")) == 2
    assert life.read() == BODIES
    life.crash()
    second = Life(store)
    assert second.read() == BODIES and second.log.log_end_offset == len(BODIES)
    second.stop()


def test_a_pack_before_a_failing_pack_is_withdrawn(store, life):
    """No sweep would delete the pack before the shard's next owner comes."""
    directory = life.directory

    class Gone:
        def read_at(self, size, pos, *, wait=True):
            raise FileGone("retention took it")

    for todo in directory.plans(lambda: directory.publisher.round):
        if todo.slices:
            log, piece = todo.slices[1]
            todo.slices[1] = log, replace(piece, file=Gone())
            directory.carry_out(todo)
            directory.apply(todo)
            assert not todo.packed
    assert not store.names("packs/")
    life.pack()
    assert len(store.names("packs/")) == 2
    life.stop()


def test_objects_deleted_by_the_next_owner_are_no_damage(store):
    """A broker that hung continues to pack before it knows that its session has ended."""
    first = Life(store)
    first.append(*BODIES)
    first.crash()
    second = Life(store)
    directory = second.directory
    for name in store.names("rounds/"):
        store.objects.delete(name)
    (todo,) = (plan for plan in directory.plans(lambda: directory.publisher.round) if plan.uploads)
    with pytest.raises((DamagedLog, ObjectMissing)):
        directory.carry_out(todo)
    assert store.ledger.fence(todo.shard.owned.session, -1)
    with pytest.raises(Fenced):
        directory.carry_out(todo)
    second.crash()
