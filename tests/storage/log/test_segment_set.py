from braidlog.storage.log.segment_set import LOADED_INDEXES_MAX, PLACES
from tests.storage.log.logs import OneLog


def test_a_remembered_place_belongs_only_to_its_offset(tmp_path):
    """Offsets that share a slot in the memory of places, read forwards and backwards."""
    opened = OneLog(tmp_path)
    opened.fill([b"%d" % number for number in range(4 * PLACES)], commit=False)
    opened.commit()
    offsets = [number * PLACES + 5 for number in range(4)]
    for offset in [*offsets, *reversed(offsets), *offsets]:
        assert bytes(opened.log.read(offset - 1, 0)[0].body) == b"%d" % (offset - 1)
        assert bytes(opened.log.read(offset, 0)[0].body) == b"%d" % offset
        assert opened.log.bytes_between(offset, offset + 1) >= 1


def test_few_indexes_of_full_segments_stay_in_memory(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=600)
    opened.fill([b"x" * 100] * 60)
    segments = opened.log.segment_set.view.segments
    assert len(segments) > 3 * LOADED_INDEXES_MAX
    for offset in range(60):
        assert opened.log.read(offset, 0)[0].base_offset == offset
    assert (
        sum(segment.index_in_memory is not None for segment in segments) <= LOADED_INDEXES_MAX + 1
    )
