"""Names of the files that count in a folder."""

import pytest

from braidlog.storage.log.segment_names import SegmentName, parse_name, segment_names, view_names


def plain(base):
    return f"{base:020d}.log"


def joined(base, end, generation, suffix=".log"):
    return f"{base:020d}-{end:020d}-{generation}{suffix}"


@pytest.mark.parametrize("name", [plain(0), plain(7), joined(0, 9, 1), joined(3, 4, 12, ".view")])
def test_names_round_trip(name):
    parsed = parse_name(name)
    assert parsed is not None
    assert parsed.file_name == name


@pytest.mark.parametrize(
    "name",
    [
        "7.log",
        plain(0) + ".new",
        joined(9, 9, 1),
        joined(0, 9, 0),
        "watermark",
        joined(0, 9, 1) + ".index",
    ],
)
def test_other_names_are_ignored(name):
    assert parse_name(name) is None


def test_a_compacted_file_replaces_segments_that_begin_within_it():
    names = [
        plain(0),
        plain(10),
        plain(20),
        joined(0, 20, 1),
        joined(0, 10, 1),
        joined(0, 20, 2),
    ]
    current, replaced = segment_names(names)
    assert current == [SegmentName(0, 2, 20), SegmentName(20)]
    assert [name.file_name for name in replaced] == [
        plain(10),
        joined(0, 20, 1),
        joined(0, 10, 1),
        plain(0),
    ]


def test_the_newest_view_is_first():
    names = [joined(0, 20, 1, ".view"), joined(0, 30, 2, ".view"), plain(0)]
    assert [view.generation for view in view_names(names)] == [2, 1]
    assert segment_names(names)[0] == [SegmentName(0)]
