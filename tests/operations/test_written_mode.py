"""Durability `written` through every door: acknowledged and shown before the disk has it, and after
a crash that lost what was shown the log goes on above all of it, behind a gap that every reader
passes over.
"""

import contextlib
import os

import pyarrow.parquet as parquet
import pytest

from broker.cli.main import run
from conformance.raw.iggy import BY_OFFSET
from conformance.server import RunningBroker
from storage.log.segment import segment_path

from .doors import OK, Doors
from .kit import api, partition_of, pulsar, topic_path

TOPIC = "t"
NEVER = "log.flush_interval_ms=3600s"  # Nothing is synced unless something has to be.
ALL_OK = {"kafka": OK, "pulsar": OK, "iggy": OK}


@pytest.fixture
def doors(request, tmp_path):
    """Clients of a topic in `written` mode, by its own setting or by the broker's."""
    own = getattr(request, "param", "topic") == "topic"
    settings = [NEVER] if own else [NEVER, "log.durability=written"]
    with RunningBroker(tmp_path / "broker", settings=settings) as broker:
        body = {"settings": {"durability": "written"}} if own else {}
        status, shown = api(broker, "PUT", topic_path(TOPIC), body)
        assert (status, shown["durability"]) == (201, "written")
        with contextlib.closing(Doors(broker, TOPIC)) as opened:
            opened.open_producer()
            yield opened
        assert "Traceback" not in broker.log()


def lose_what_is_not_synced(doors):
    """SIGKILL, and a power cut that takes from the log what no sync had to save."""
    log = partition_of(doors.broker, TOPIC)
    folder = doors.broker.data_dir / "partitions" / str(log["partition_id"])
    doors.broker.kill()
    doors.close()
    os.truncate(segment_path(str(folder), 0), doors.synced_bytes)


def alter(doors, durability):
    settings = {"settings": {"durability": durability}}
    status, shown = api(doors.broker, "PATCH", topic_path(TOPIC), settings)
    assert (status, shown["settings"]) == (200, settings["settings"])


def write_and_lose(doors):
    """Two rounds of records, the second lost; (offsets kept, offsets that clients saw and lost)."""
    assert doors.write() == ALL_OK
    doors.commit(1)
    alter(doors, "synced")  # What was only written is on the disk with the answer to that.
    alter(doors, "written")
    doors.synced_bytes = partition_of(doors.broker, TOPIC)["size_bytes"]
    kept = doors.check()
    assert doors.write() == ALL_OK
    seen = doors.check()
    lose_what_is_not_synced(doors)
    doors.broker.start()
    doors.connect()
    doors.open_producer()
    doors.acknowledged = dict(kept)
    return kept, {offset: value for offset, value in seen.items() if offset not in kept}


@pytest.mark.slow
@pytest.mark.parametrize("doors", ["topic", "broker"], indirect=True)
def test_no_offset_has_two_values_and_every_door_passes_over_the_gap(doors):
    kept, lost = write_and_lose(doors)
    assert list(kept) == [0, 1, 2]
    assert list(lost) == [3, 4, 5]
    behind = partition_of(doors.broker, TOPIC)["log_end_offset"]
    assert behind > max(lost)
    assert doors.write() == ALL_OK
    found = doors.check()
    fresh = [offset for offset in found if offset not in kept]
    assert fresh == [behind, behind + 1, behind + 2]
    for place in (3, 4, behind // 2, behind - 1):
        assert [offset for offset, _ in doors.kafka_read(place)] == fresh
        polled = doors.iggy.poll(TOPIC, 10, strategy=BY_OFFSET, value=place)
        assert [one.offset for one in polled] == fresh
    assert read_all(doors, "new") == [*kept, *fresh]
    assert "gap_after_unclean_start" in doors.broker.log()


def read_all(doors, subscription):
    """Entry ids that a subscription is sent, as many as there are records."""
    with contextlib.closing(pulsar(doors.broker)) as reader:
        reader.subscribe(TOPIC, subscription)
        return [reader.next_message().entry for _ in doors.acknowledged]


@pytest.mark.slow
def test_consumers_that_had_read_what_was_lost_go_on_behind_the_gap(doors):
    kept, lost = write_and_lose(doors)
    place = max(lost) + 1
    assert list(doors.kafka_read(place)) == []
    assert set(doors.commit(place).values()) == {OK}
    assert doors.write() == ALL_OK
    fresh = [offset for offset in doors.check() if offset not in kept]
    assert [offset for offset, _ in doors.kafka_read(place)] == fresh
    assert doors.kafka.committed("kafka-group", TOPIC) == place
    with contextlib.closing(pulsar(doors.broker)) as reader:
        reader.subscribe(TOPIC, "kafka-group")
        assert [reader.next_message().entry for _ in fresh] == fresh


@pytest.mark.slow
def test_a_position_ahead_of_what_the_disk_has_skips_nothing(doors):
    """A commit is on the disk with its answer, what it counts as read need not be."""
    doors.synced_bytes = partition_of(doors.broker, TOPIC)["size_bytes"]
    assert doors.write() == ALL_OK
    assert set(doors.commit(2).values()) == {OK}
    lose_what_is_not_synced(doors)
    doors.acknowledged = {}
    doors.broker.start()
    doors.connect()
    doors.open_producer()
    assert doors.kafka.committed("kafka-group", TOPIC) == 2
    assert doors.write() == ALL_OK
    assert [offset for offset, _ in doors.kafka_read(2)] == list(doors.check())
    assert len(doors.acknowledged) == 3


@pytest.mark.slow
@pytest.mark.spark
def test_the_export_passes_over_the_gap_too(doors, tmp_path):
    kept, _ = write_and_lose(doors)
    target = str(tmp_path / "parquet")
    command = ["export", TOPIC, "--to", target, "--data-dir", str(doors.broker.data_dir)]
    assert run(command) == 0  # It ends inside the gap, or below it: nothing is behind.
    assert offsets_in(target) == list(kept)
    alter(doors, "synced")  # The export takes what a round has brought to the disk.
    doors.open_producer()  # It answered no PING while Spark was at work.
    assert doors.write() == ALL_OK
    assert run(command) == 0
    fresh = [offset for offset in doors.check() if offset not in kept]
    assert offsets_in(target) == [*kept, *fresh]


def offsets_in(target):
    return sorted(parquet.read_table(target, columns=["offset"])["offset"].to_pylist())


@pytest.mark.slow
def test_each_crash_leaves_its_own_gap_and_a_clean_stop_none(doors):
    kept, lost = write_and_lose(doors)
    first_end = partition_of(doors.broker, TOPIC)["log_end_offset"]
    assert doors.broker.stop() == 0
    doors.close()
    doors.broker.start()
    assert partition_of(doors.broker, TOPIC)["log_end_offset"] == first_end
    doors.connect()
    doors.open_producer()
    assert doors.write() == ALL_OK
    doors.broker.kill()
    doors.close()
    doors.broker.start()
    assert partition_of(doors.broker, TOPIC)["log_end_offset"] > first_end + 3
    doors.connect()
    assert list(doors.check()) == [*kept, first_end, first_end + 1, first_end + 2]
    assert lost


@pytest.mark.slow
def test_a_topic_that_is_altered_keeps_its_promise_from_then_on(doors):
    """`written` to `synced`: what was only written is on disk with the answer, as is the rest."""
    assert doors.write() == ALL_OK
    alter(doors, "synced")
    doors.synced_bytes = partition_of(doors.broker, TOPIC)["size_bytes"]
    lose_what_is_not_synced(doors)
    doors.broker.start()
    doors.connect()
    doors.open_producer()
    assert doors.write() == ALL_OK
    assert list(doors.check()) == [0, 1, 2, 3, 4, 5]
    settings = {"settings": {"durability": None}}
    assert api(doors.broker, "PATCH", topic_path(TOPIC), settings)[0] == 200
    assert doors.write() == ALL_OK
    assert len(doors.check()) == 9
