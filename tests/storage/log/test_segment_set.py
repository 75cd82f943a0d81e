from braidlog.storage.log.segment_set import LOADED_INDEXES_MAX, PLACES
from tests.storage.log.logs import OneLog


def test_a_remembered_place_belongs_only_to_its_offset(tmp_path):
    """Offsets that share a slot in the memory of places, read forwards and backwards."""
    one = OneLog(tmp_path)
    one.fill([b"%d" % number for number in range(4 * PLACES)], commit=False)
    one.commit()
    offsets = [number * PLACES + 5 for number in range(4)]
    for offset in [*offsets, *reversed(offsets), *offsets]:
        assert bytes(one.log.read(offset - 1, 0)[0].body) == b"%d" % (offset - 1)
        assert bytes(one.log.read(offset, 0)[0].body) == b"%d" % offset
        assert one.log.bytes_between(offset, offset + 1) >= 1


def test_few_indexes_of_full_segments_stay_in_memory(tmp_path):
    one = OneLog(tmp_path, segment_bytes=600)
    one.fill([b"x" * 100] * 60)
    segments = one.log.segment_set.view.segments
    assert len(segments) > 3 * LOADED_INDEXES_MAX
    for offset in range(60):
        assert one.log.read(offset, 0)[0].base_offset == offset
    assert (
        sum(segment.index_in_memory is not None for segment in segments) <= LOADED_INDEXES_MAX + 1
    )
