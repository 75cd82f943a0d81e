from storage.log.reading import Want, read_batches
from storage.log.segment import SEGMENT_HEADER_BYTES
from tests.storage.log.logs import OneLog

PLACE = (0, SEGMENT_HEADER_BYTES)


def filled(tmp_path, **settings):
    one = OneLog(tmp_path, **settings)
    one.fill([b"%d" % number * 100 for number in range(8)], 10)
    return one, one.log._segments.last


def bases(batches):
    return [batch.base_offset for batch in batches]


def test_no_batch_that_ends_above_the_stop_is_read(tmp_path):
    _, segment = filled(tmp_path)
    for stop in range(81):
        found = read_batches(segment, PLACE, Want(0, stop, 10_000))
        assert bases(found) == [base for base in range(0, 80, 10) if base + 10 <= stop]


def test_a_walk_from_an_earlier_place_leaves_out_what_is_below_the_offset(tmp_path):
    _, segment = filled(tmp_path)
    assert bases(read_batches(segment, PLACE, Want(35, 80, 200))) == [30, 40]
