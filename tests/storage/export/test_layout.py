"""Folders and names of exported files."""

import os
from urllib.parse import quote, unquote

import numpy as np
import pytest

from braidlog.storage.export.layout import FileName, final_path, folder_of, slots_of, topic_folder
from braidlog.storage.export.ranges import Range

PART = Range(partition_id=12, index=3, start=5, end=90, topic="public/default/orders")
LAST_US = 253_402_300_799_999_999


def folder(time_us, by="date"):
    (slot,) = slots_of(np.array([time_us]), by).tolist()
    return folder_of(slot, by)


def test_a_files_name_depends_only_on_range_and_date():
    slot = 1_767_312_000_000_000 // 86_400_000_000
    assert final_path(PART, slot, "date") == (
        "topic=public%2Fdefault%2Forders/date=2026-01-02/"
        "records+orders+00003+12+00000000000000000005+00000000000000000090.parquet"
    )


def test_a_name_round_trips():
    assert FileName.parse(str(FileName.of(PART))) == FileName("orders", 3, 12, 5, 90)
    assert FileName.parse("part-0000.parquet") is None


@pytest.mark.parametrize("topic", ["orders", "_schemas", ".hidden", "records", "00000"])
def test_earlier_names_are_read_and_no_new_name_is_hidden(topic):
    earlier = f"{topic}+00003+12+{5:020d}+{90:020d}.parquet"
    name = FileName.parse(earlier)
    assert name == FileName(topic, 3, 12, 5, 90)
    assert str(name) == f"records+{earlier}"
    assert FileName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("time_us", "day"),
    [
        (0, "1970-01-01"),
        (86_400_000_000 - 1, "1970-01-01"),
        (-1, "1969-12-31"),
        (1_767_225_600_000_000, "2026-01-01"),
        (LAST_US, "9999-12-31"),
        (-62_135_596_800_000_000, "0001-01-01"),
    ],
)
def test_the_day_is_in_utc(time_us, day):
    assert folder(time_us) == f"date={day}"


@pytest.mark.parametrize(
    "time_us", [LAST_US + 1, (1 << 63) - 1, -(1 << 63), -62_135_596_800_000_001]
)
def test_a_time_outside_the_calendar_has_the_folder_for_none(time_us):
    assert folder(time_us) == "date=__HIVE_DEFAULT_PARTITION__"
    assert folder(time_us, "hour").endswith("/hour=__HIVE_DEFAULT_PARTITION__")


def test_hours_have_separate_folders():
    assert folder(3 * 3_600_000_000 + 5, "hour") == "date=1970-01-01/hour=03"


@pytest.mark.parametrize("name", ["k" * 249, "注" * 85, "é" * 127, "%" * 255, "a" * 5 + "注" * 80])
def test_a_name_of_any_length_has_its_own_folder(tmp_path, name):
    topic = f"public/default/{name}"
    folders = {topic_folder(topic), topic_folder(topic[:-1]), topic_folder(topic[:-1] + "z")}
    assert len(folders) == 3
    for folder in folders:
        os.mkdir(tmp_path / folder)
        readable, _, digest = folder.removeprefix("topic=").partition("+")
        assert topic.startswith(unquote(readable, errors="strict")) and len(digest) == 16
    os.close(os.open(tmp_path / str(FileName.of(Range(1, 9999, 0, 1, topic))), os.O_CREAT))


def test_a_name_at_the_limit_is_whole():
    topic = "public/default/" + "k" * 230
    assert len(topic_folder(topic)) == 255
    assert topic_folder(topic) == f"topic={quote(topic, safe='')}"
