"""Data directories of an earlier version open unchanged, and take new records."""

import tarfile
from pathlib import Path

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.tools.verify import Verifier
from tests.broker.records import append, read_values
from tests.broker.test_broker import config_for

RECORDED = Path(__file__).parents[2] / "conformance" / "vectors" / "data_directories"
FIRST = [b"%s %d" % (writer, n) for writer in (b"kafka", b"pulsar", b"iggy") for n in range(3)]
VALUES = [*FIRST, b"http 0", b"http 1", b"kafka batch"]
POSITIONS = {b"billing": 5, b"shipping": 7, b"audit": 4}


@pytest.mark.parametrize(
    ("left", "values", "acked"),
    [
        ("stopped", VALUES, []),
        ("killed", VALUES, []),
        ("first-stopped", FIRST, [(6, 7)]),
        ("first-killed", FIRST, [(6, 7)]),
        ("0.2.0-stopped", VALUES, []),
        ("0.2.0-killed", VALUES, []),
    ],
)
async def test_earlier_data_is_readable_and_stays(tmp_path, left, values, acked):
    folder = tmp_path / "data"
    with tarfile.open(RECORDED / f"{left}.tar.gz") as recorded:
        recorded.extractall(folder, filter="data")
    for opened in range(2):
        findings = []
        report = Verifier(folder, findings.append, lambda done, total: None).run()
        assert report.faults == 0, findings
        broker = Broker.open(config_for(folder))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            await broker.durability.all_durable()
            topic = broker.topics.get(parse_topic("orders"))
            records, _ = await read_values(topic.partitions[0], "kafka", 0, bytes_max=1 << 20)
            assert [value for _, value in records] == values + [b"later"] * opened
            assert len(broker.topics.get(parse_topic("parcels")).partitions) == 3
            for name, position in POSITIONS.items():
                assert broker.subscriptions.get(topic, name).position(0) == position
            assert list(broker.subscriptions.get(topic, b"audit").acked(0)) == acked
            await append(broker, topic.partitions[0], "kafka", [b"later"])
            await broker.durability.all_durable()
            nursery.cancel_scope.cancel()
        broker.close()
