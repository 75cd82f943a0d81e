"""A broker notes the ends of its logs, and warns at a start about a log that ends earlier or
below a position."""

import shutil

import structlog
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.topics.known_ends import NOTE_S
from braidlog.storage.metadata.names import parse_topic
from tests.broker.records import append
from tests.broker.test_broker import config_for

NAME = parse_topic("orders")


async def life(folder, records, position=0, seconds=0, *, is_killed=False):
    """Run a life of a broker that stores records; return the warnings of its start."""
    with structlog.testing.capture_logs() as lines:
        broker = Broker.open(config_for(folder))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        topic = broker.topics.find(NAME) or await broker.topics.create(NAME, 1)
        if position:
            broker.subscriptions.open(topic, b"group", {}).seek(0, position)
        if records:
            await append(broker, topic.partitions[0], "kafka", [b"x"] * records)
        await trio.sleep(seconds)
        await broker.durability.all_durable()
        nursery.cancel_scope.cancel()
    if is_killed:
        broker.abandon()
    else:
        broker.close()
    return [line for line in lines if line["event"] in ("log_ends_early", "position_above_log_end")]


def restore(older, folder):
    """Put back the partitions, and nothing else."""
    shutil.rmtree(folder / "partitions")
    shutil.copytree(older, folder / "partitions")


async def test_a_start_warns_of_an_older_folder(tmp_path):
    folder, older = tmp_path / "data", tmp_path / "older"
    assert await life(folder, 3) == []
    shutil.copytree(folder / "partitions", older)
    assert await life(folder, 4) == []
    restore(older, folder)
    (line,) = await life(folder, 0)
    assert line["log_end_offset"] == 3 and line["durable_end_offset"] == 7
    (line,) = await life(folder, 5)
    assert line["log_end_offset"] == 3, "it was served as before"
    assert await life(folder, 0) == []


async def test_a_start_after_a_kill_warns_about_records_missing_since_the_last_note(
    tmp_path, autojump_clock
):
    folder, older = tmp_path / "data", tmp_path / "older"
    await life(folder, 3)
    shutil.copytree(folder / "partitions", older)
    assert await life(folder, 4, position=7, seconds=NOTE_S + 1, is_killed=True) == []
    restore(older, folder)
    (line,) = await life(folder, 0)
    assert line["log_end_offset"] == 3 and line["durable_end_offset"] == 7


async def test_a_start_warns_of_a_position_above_the_end(tmp_path):
    """Kafka's clients may commit any number: the log is served as before."""
    folder = tmp_path / "data"
    assert await life(folder, 5, position=1 << 40) == []
    (line,) = await life(folder, 1)
    assert line["event"] == "position_above_log_end"
    assert line["log_end_offset"] == 5 and line["position"] == 1 << 40


async def test_a_position_of_1_in_an_empty_log_is_no_warning(tmp_path):
    """Iggy's clients may store offset 0 before the first message."""
    folder = tmp_path / "data"
    assert await life(folder, 0, position=1) == []
    assert await life(folder, 0) == []
