"""A broker notes how far its logs reach, and warns at a start of a log that ends earlier."""

import shutil

import structlog
import trio

from braidlog.broker.broker import Broker
from braidlog.storage.metadata.names import parse_topic
from tests.broker.records import append
from tests.broker.test_broker import config_for

NAME = parse_topic("orders")


async def life(folder, records, position=0):
    """One life of a broker that stores records; the warnings of its start."""
    with structlog.testing.capture_logs() as lines:
        broker = Broker.open(config_for(folder))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        topic = broker.topics.find(NAME) or await broker.topics.create(NAME, 1)
        if position:
            broker.subscriptions.open(topic, b"group", {}).seek(0, position)
        if records:
            await append(broker, topic.partitions[0], "kafka", [b"x"] * records)
        await broker.durability.settled()
        nursery.cancel_scope.cancel()
    broker.close()
    return [line for line in lines if line["event"] == "log_ends_early"]


async def test_a_start_warns_of_an_older_folder_and_of_a_position_above_the_end(tmp_path):
    folder, older = tmp_path / "data", tmp_path / "older"
    assert await life(folder, 3) == []
    shutil.copytree(folder / "partitions", older)
    assert await life(folder, 4) == []
    shutil.rmtree(folder / "partitions")
    shutil.copytree(older, folder / "partitions")
    (line,) = await life(folder, 0)
    assert line["log_end_offset"] == 3 and line["durable_end_offset"] == 7
    (line,) = await life(folder, 5, position=20)
    assert line["log_end_offset"] == 3, "it was served as before"
    (line,) = await life(folder, 0)
    assert line["log_end_offset"] == 8 and line["highest_position"] == 20
