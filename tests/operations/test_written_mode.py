"""Durability `written` through every listener: records are acknowledged and visible before they are
on disk.

After a crash that lost visible records, the log continues above them, behind a gap that every
reader skips.
"""

import contextlib
import os

import pyarrow.parquet as parquet
import pytest

from braidlog.broker.cli.main import run
from braidlog.storage.log.segment import segment_path
from conformance.clients.raw.iggy import BY_OFFSET
from conformance.server import RunningBroker
from tests.operations.clients import OK, Listeners
from tests.operations.kit import api, partition_of, pulsar, topic_path

TOPIC = "t"
NEVER = "log.flush_interval_ms=3600s"  # No sync runs unless required.
ALL_OK = {"kafka": OK, "pulsar": OK, "iggy": OK}


@pytest.fixture
def listeners(request, tmp_path):
    """Yield clients of a topic in `written` mode, set by the topic or by the broker."""
    own = getattr(request, "param", "topic") == "topic"
    settings = [NEVER] if own else [NEVER, "log.durability=written"]
    with RunningBroker(tmp_path / "broker", settings=settings) as broker:
        body = {"settings": {"durability": "written"}} if own else {}
        status, shown = api(broker, "PUT", topic_path(TOPIC), body)
        assert (status, shown["durability"]) == (201, "written")
        with contextlib.closing(Listeners(broker, TOPIC)) as opened:
            opened.open_producer()
            yield opened
        assert "Traceback" not in broker.log()


def lose_what_is_not_synced(listeners):
    """Kill the broker, and cut the unsynced data from the log, as a power cut does."""
    log = partition_of(listeners.broker, TOPIC)
    folder = listeners.broker.data_dir / "partitions" / str(log["partition_id"])
    listeners.broker.kill()
    listeners.close()
    os.truncate(segment_path(str(folder), 0), listeners.synced_bytes)


def alter(listeners, durability):
    settings = {"settings": {"durability": durability}}
    status, shown = api(listeners.broker, "PATCH", topic_path(TOPIC), settings)
    assert (status, shown["settings"]) == (200, settings["settings"])


def write_and_lose(listeners):
    """Write two rounds of records and lose the second; return (kept offsets, seen and lost
    offsets).
    """
    assert listeners.write() == ALL_OK
    listeners.commit(1)
    alter(listeners, "synced")  # The answer to this syncs the earlier writes.
    alter(listeners, "written")
    listeners.synced_bytes = partition_of(listeners.broker, TOPIC)["size_bytes"]
    survivors = listeners.check()
    assert listeners.write() == ALL_OK
    seen = listeners.check()
    lose_what_is_not_synced(listeners)
    listeners.broker.start()
    listeners.connect()
    listeners.open_producer()
    listeners.acknowledged = dict(survivors)
    return survivors, {offset: value for offset, value in seen.items() if offset not in survivors}


@pytest.mark.slow
@pytest.mark.parametrize("listeners", ["topic", "broker"], indirect=True)
def test_no_offset_has_two_values_and_every_listener_skips_the_gap(listeners):
    survivors, lost = write_and_lose(listeners)
    assert list(survivors) == [0, 1, 2]
    assert list(lost) == [3, 4, 5]
    behind = partition_of(listeners.broker, TOPIC)["log_end_offset"]
    assert behind > max(lost)
    assert listeners.write() == ALL_OK
    values = listeners.check()
    fresh = [offset for offset in values if offset not in survivors]
    assert fresh == [behind, behind + 1, behind + 2]
    for place in (3, 4, behind // 2, behind - 1):
        assert [offset for offset, _ in listeners.kafka_read(place)] == fresh
        polled = listeners.iggy.poll(TOPIC, 10, strategy=BY_OFFSET, value=place)
        assert [message.offset for message in polled] == fresh
    assert read_all(listeners, "new") == [*survivors, *fresh]
    assert "gap_after_unclean_start" in listeners.broker.log()


def read_all(listeners, subscription):
    """Return the entry ids of a subscription's deliveries, as many as there are records."""
    with contextlib.closing(pulsar(listeners.broker)) as reader:
        reader.subscribe(TOPIC, subscription)
        return [reader.next_message().entry for _ in listeners.acknowledged]


@pytest.mark.slow
def test_consumers_of_lost_records_continue_behind_the_gap(listeners):
    survivors, lost = write_and_lose(listeners)
    place = max(lost) + 1
    assert list(listeners.kafka_read(place)) == []
    assert set(listeners.commit(place).values()) == {OK}
    assert listeners.write() == ALL_OK
    fresh = [offset for offset in listeners.check() if offset not in survivors]
    assert [offset for offset, _ in listeners.kafka_read(place)] == fresh
    assert listeners.kafka.committed("kafka-group", TOPIC) == place
    with contextlib.closing(pulsar(listeners.broker)) as reader:
        reader.subscribe(TOPIC, "kafka-group")
        assert [reader.next_message().entry for _ in fresh] == fresh


@pytest.mark.slow
def test_a_position_ahead_of_the_synced_log_skips_no_record(listeners):
    """A commit is on disk with its answer; the records that it counts as read need not be."""
    listeners.synced_bytes = partition_of(listeners.broker, TOPIC)["size_bytes"]
    assert listeners.write() == ALL_OK
    assert set(listeners.commit(2).values()) == {OK}
    lose_what_is_not_synced(listeners)
    listeners.acknowledged = {}
    listeners.broker.start()
    listeners.connect()
    listeners.open_producer()
    assert listeners.kafka.committed("kafka-group", TOPIC) == 2
    assert listeners.write() == ALL_OK
    assert [offset for offset, _ in listeners.kafka_read(2)] == list(listeners.check())
    assert len(listeners.acknowledged) == 3


@pytest.mark.slow
@pytest.mark.spark
def test_the_export_skips_the_gap(listeners, tmp_path):
    survivors, _ = write_and_lose(listeners)
    target = str(tmp_path / "parquet")
    command = ["export", TOPIC, "--to", target, "--data-dir", str(listeners.broker.data_dir)]
    assert run(command) == 0  # The export ends inside the gap, or below: nothing is behind.
    assert offsets_in(target) == list(survivors)
    alter(listeners, "synced")  # The export takes the records that a round has brought to the disk.
    listeners.open_producer()  # Pulsar's client answered no PING while Spark was at work.
    assert listeners.write() == ALL_OK
    assert run(command) == 0
    fresh = [offset for offset in listeners.check() if offset not in survivors]
    assert offsets_in(target) == [*survivors, *fresh]


def offsets_in(target):
    return sorted(parquet.read_table(target, columns=["offset"])["offset"].to_pylist())


@pytest.mark.slow
def test_each_crash_leaves_its_own_gap_and_a_clean_stop_none(listeners):
    survivors, lost = write_and_lose(listeners)
    first_end = partition_of(listeners.broker, TOPIC)["log_end_offset"]
    assert listeners.broker.stop() == 0
    listeners.close()
    listeners.broker.start()
    assert partition_of(listeners.broker, TOPIC)["log_end_offset"] == first_end
    listeners.connect()
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    listeners.broker.kill()
    listeners.close()
    listeners.broker.start()
    assert partition_of(listeners.broker, TOPIC)["log_end_offset"] > first_end + 3
    listeners.connect()
    assert list(listeners.check()) == [*survivors, first_end, first_end + 1, first_end + 2]
    assert lost


@pytest.mark.slow
def test_an_altered_topic_keeps_its_new_promise(listeners):
    """`written` to `synced`: all earlier writes are on disk with the answer, and all later writes
    too.
    """
    assert listeners.write() == ALL_OK
    alter(listeners, "synced")
    listeners.synced_bytes = partition_of(listeners.broker, TOPIC)["size_bytes"]
    lose_what_is_not_synced(listeners)
    listeners.broker.start()
    listeners.connect()
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    assert list(listeners.check()) == [0, 1, 2, 3, 4, 5]
    settings = {"settings": {"durability": None}}
    assert api(listeners.broker, "PATCH", topic_path(TOPIC), settings)[0] == 200
    assert listeners.write() == ALL_OK
    assert len(listeners.check()) == 9
