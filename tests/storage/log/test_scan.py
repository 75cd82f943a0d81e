import pytest

from braidlog.storage.log.scan import (
    NO_OFFSET,
    BadBatch,
    bodies,
    find_good,
    find_magic,
    pass_over,
    walk,
)
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from tests.storage.log.logs import OneLog, flip

START = SEGMENT_HEADER_BYTES


def filled(tmp_path, sizes=(10, 300_000, 0, 20)):
    opened = OneLog(tmp_path)
    opened.fill([b"x" * size for size in sizes], 2, commit=len(sizes) < 10)
    return opened, opened.log.segment_set.last


def walked(segment, file_pos=START, offset=0, check_bodies_from=0):
    batches = walk(
        segment, file_pos, offset, check_bodies_from=check_bodies_from, end_pos=segment.size
    )
    return [(pos, header.base_offset, header.body_bytes) for pos, header in batches]


def test_a_walk_yields_every_batch_small_and_large(tmp_path):
    _, segment = filled(tmp_path)
    batches = walked(segment)
    assert [(base, size) for _, base, size in batches] == [(0, 10), (2, 300_000), (4, 0), (6, 20)]
    assert walked(segment, batches[2][0], 4) == batches[2:]
    assert walked(segment, check_bodies_from=NO_OFFSET) == batches


def test_a_batch_in_the_wrong_place_is_a_fault(tmp_path):
    """The batch is valid but not the next batch: an old batch written twice."""
    opened, segment = filled(tmp_path, [10, 10])
    path = opened.file("00000000000000000000.log")
    with open(path, "r+b") as file:
        data = file.read()
        file.write(data[START:])
    segment.size += len(data) - START
    with pytest.raises(BadBatch, match="begins at 0") as caught:
        walked(segment)
    assert (caught.value.file_pos, caught.value.offset) == (len(data), 4)


def test_bodies_are_checked_only_from_the_given_offset(tmp_path):
    opened, segment = filled(tmp_path, [10, 10, 10])
    place = walked(segment)[1][0]
    flip(opened.file("00000000000000000000.log"), place + 130)
    with pytest.raises(BadBatch, match="body checksum"):
        walked(segment)
    with pytest.raises(BadBatch, match="body checksum"):
        walked(segment, check_bodies_from=3)
    assert len(walked(segment, check_bodies_from=4)) == 3


def test_good_batches_are_found_behind_a_fault(tmp_path):
    opened, segment = filled(tmp_path)
    batches = walked(segment)
    flip(opened.file("00000000000000000000.log"), batches[1][0] + 50)
    batches_behind = [
        (pos, header.base_offset) for pos, header in find_good(segment, START + 1, 0, segment.size)
    ]
    assert batches_behind == [(pos, base) for pos, base, _ in batches[2:]]
    assert list(find_good(segment, START, 8, segment.size)) == []


def test_the_magic_is_found_over_the_edge_of_a_piece(tmp_path):
    _, segment = filled(tmp_path, [256 * 1024 - 128 - 2, 5])
    second = walked(segment)[1][0]
    assert find_magic(segment, START + 1, 0, segment.size) == second
    assert find_magic(segment, second + 1, 0, segment.size) == segment.size


SIZES = [10, 300_000, 0, 20, *[100] * 1500, 700_000, 5]


def test_bodies_are_yielded_for_every_batch_small_and_large(tmp_path):
    opened = OneLog(tmp_path)
    contents = [number.to_bytes(4, "big") * (size // 4) for number, size in enumerate(SIZES)]
    opened.fill(contents, 2, commit=False)
    segment = opened.log.segment_set.last
    walked_bodies = [(offset, file_pos, bytes(body)) for offset, file_pos, body in bodies(segment)]
    places = [(base, pos) for pos, base, _ in walked(segment)]
    assert walked_bodies == [(*at, content) for at, content in zip(places, contents, strict=True)]


@pytest.mark.parametrize("number", [0, 1, 3, 1200, len(SIZES) - 2, len(SIZES) - 1])
@pytest.mark.parametrize("within", [9, 130])
def test_a_bad_header_or_body_ends_bodies_and_walk_alike(tmp_path, number, within):
    opened, segment = filled(tmp_path, SIZES)
    file_pos = walked(segment)[number][0]
    flip(opened.file("00000000000000000000.log"), file_pos + within)
    offsets = []
    with pytest.raises(BadBatch) as caught:
        offsets += [offset for offset, _, _ in bodies(segment)]
    with pytest.raises(BadBatch) as expected:
        walked(segment)
    assert (caught.value.file_pos, caught.value.offset) == (file_pos, 2 * number)
    assert str(caught.value) == str(expected.value)


def test_bodies_of_a_cut_file_end_with_a_fault(tmp_path):
    opened, segment = filled(tmp_path, [10, 300_000])
    path = opened.file("00000000000000000000.log")
    for size in (segment.size - 1, segment.size - 299_999, segment.size - 300_001):
        with open(path, "r+b") as file:
            file.truncate(size)
        offsets = []
        with pytest.raises(BadBatch):
            offsets.extend(offset for offset, _, _ in bodies(segment))
        assert offsets == [0]


@pytest.mark.parametrize("number", [0, 1, 2, 5, 1300, len(SIZES)])
def test_skipping_ends_before_a_batch_that_reaches_further(tmp_path, number):
    _, segment = filled(tmp_path, SIZES)
    places = [(base, pos) for pos, base, _ in walked(segment)] + [(2 * len(SIZES), segment.size)]
    for below in (2 * number, 2 * number + 1):
        assert pass_over(segment, START, 0, below=below, end_pos=segment.size) == places[number]


@pytest.mark.parametrize("number", [0, 1, 4, 1300, len(SIZES) - 1])
def test_skipping_ends_at_a_bad_batch(tmp_path, number):
    opened, segment = filled(tmp_path, SIZES)
    places = [(base, pos) for pos, base, _ in walked(segment)]
    offset, file_pos = places[number]
    flip(opened.file("00000000000000000000.log"), file_pos + 60)
    assert pass_over(segment, START, 0, below=NO_OFFSET, end_pos=segment.size) == (offset, file_pos)
    end_pos = file_pos - 1
    before = places[max(number - 1, 0)]
    assert pass_over(segment, START, 0, below=NO_OFFSET, end_pos=end_pos) == before
