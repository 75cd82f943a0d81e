import pytest

from storage.log.scan import NO_OFFSET, Fault, find_good, find_magic, walk
from storage.log.segment import SEGMENT_HEADER_BYTES
from tests.storage.log.logs import OneLog, flip

START = SEGMENT_HEADER_BYTES


def filled(tmp_path, sizes=(10, 300_000, 0, 20)):
    one = OneLog(tmp_path)
    one.fill([b"x" * size for size in sizes], 2)
    return one, one.log._segments.last


def walked(segment, file_pos=START, offset=0, check_bodies_from=0):
    found = walk(
        segment, file_pos, offset, check_bodies_from=check_bodies_from, end_pos=segment.size
    )
    return [(pos, header.base_offset, header.body_bytes) for pos, header in found]


def test_a_walk_gives_every_batch_small_and_large(tmp_path):
    _, segment = filled(tmp_path)
    batches = walked(segment)
    assert [(base, size) for _, base, size in batches] == [(0, 10), (2, 300_000), (4, 0), (6, 20)]
    assert walked(segment, batches[2][0], 4) == batches[2:]
    assert walked(segment, check_bodies_from=NO_OFFSET) == batches


def test_a_batch_in_the_wrong_place_is_a_fault(tmp_path):
    """A good batch, but not the one that comes next: an old one written twice."""
    one, segment = filled(tmp_path, [10, 10])
    path = one.file("00000000000000000000.log")
    with open(path, "r+b") as file:
        data = file.read()
        file.write(data[START:])
    segment.size += len(data) - START
    with pytest.raises(Fault, match="begins at 0") as caught:
        walked(segment)
    assert (caught.value.file_pos, caught.value.offset) == (len(data), 4)


def test_bodies_are_checked_only_from_the_offset_given(tmp_path):
    one, segment = filled(tmp_path, [10, 10, 10])
    place = walked(segment)[1][0]
    flip(one.file("00000000000000000000.log"), place + 130)
    with pytest.raises(Fault, match="body checksum"):
        walked(segment)
    with pytest.raises(Fault, match="body checksum"):
        walked(segment, check_bodies_from=3)
    assert len(walked(segment, check_bodies_from=4)) == 3


def test_good_batches_are_found_behind_a_fault(tmp_path):
    one, segment = filled(tmp_path)
    batches = walked(segment)
    flip(one.file("00000000000000000000.log"), batches[1][0] + 50)
    found = [
        (pos, header.base_offset) for pos, header in find_good(segment, START + 1, 0, segment.size)
    ]
    assert found == [(pos, base) for pos, base, _ in batches[2:]]
    assert list(find_good(segment, START, 8, segment.size)) == []


def test_the_magic_is_found_over_the_edge_of_a_piece(tmp_path):
    _, segment = filled(tmp_path, [256 * 1024 - 128 - 2, 5])
    second = walked(segment)[1][0]
    assert find_magic(segment, START + 1, 0, segment.size) == second
    assert find_magic(segment, second + 1, 0, segment.size) == segment.size
