import pytest

from braidlog.storage.errors import WouldBlock
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.large import LARGE_BYTES_MIN, LargeBody, refusing_large
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.segment_reading import Want, read_batches
from tests.storage.log.logs import OneLog

PLACE = (0, SEGMENT_HEADER_BYTES)


def filled(tmp_path, **settings):
    opened = OneLog(tmp_path, **settings)
    opened.fill([b"%d" % number * 100 for number in range(8)], 10)
    return opened, opened.log.segment_set.last


def bases(batches):
    return [batch.base_offset for batch in batches]


def test_no_batch_with_an_end_above_the_stop_is_read(tmp_path):
    _, segment = filled(tmp_path)
    for stop in range(81):
        batches = read_batches(segment, PLACE, Want(0, stop, 10_000))
        assert bases(batches) == [base for base in range(0, 80, 10) if base + 10 <= stop]


def test_a_walk_from_an_earlier_place_skips_batches_below_the_offset(tmp_path):
    _, segment = filled(tmp_path)
    assert bases(read_batches(segment, PLACE, Want(35, 80, 200))) == [30, 40]


def test_the_batch_at_the_byte_limit_is_included_on_request(tmp_path):
    opened, segment = filled(tmp_path)
    size = opened.log.read(0, 0)[0].header.body_bytes
    for beyond in (0, 1, size, 100_000):  # A guess, good or bad.
        want = Want(0, 80, 2 * size + 1, beyond_bytes=beyond)
        assert bases(read_batches(segment, PLACE, want)) == [0, 10, 20]
        want = Want(0, 80, 2 * size, beyond_bytes=beyond)
        assert bases(read_batches(segment, PLACE, want)) == [0, 10]
        assert bases(read_batches(segment, PLACE, Want(0, 80, 0, beyond_bytes=beyond))) == [0]
        assert bases(read_batches(segment, PLACE, Want(0, 25, 2 * size + 1, beyond_bytes=0))) == [
            0,
            10,
        ]


def test_a_large_batch_is_read_by_callers_that_may_wait_and_know_its_size(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", bytes(LARGE_BYTES_MIN), b"b"])
    segment, large = opened.log.segment_set.last, Want(1, 3, 100)
    assert bases(read_batches(segment, PLACE, Want(0, 3, 100, beyond_bytes=0))) == [0]
    with pytest.raises(WouldBlock):
        read_batches(segment, PLACE, Want(1, 3, 100, wait=False))
    with refusing_large(), pytest.raises(LargeBody) as refused:
        read_batches(segment, PLACE, large)
    batches = read_batches(segment, PLACE, large)
    assert bases(batches) == [1]
    assert refused.value.size == HEADER_BYTES + batches[0].header.body_bytes
