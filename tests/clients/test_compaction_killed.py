"""SIGKILL at any moment of a compaction: either the old files count or the new files, and no
acknowledged record is lost.
"""

import random
from typing import Any

import httpx
import pytest

from conformance.server import RunningBroker

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

TOPIC = "persistent://public/default/compacted"
KILLS = 3
KEYS = 50
PATIENCE_S = 120  # The client's own timeouts, on a machine busy with other tests.
SENT = 1000  # Before each kill; compacting them takes longer than the wait for the kill.


def open_client(broker: RunningBroker) -> Any:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    url = f"pulsar://{broker.addresses['pulsar']}"
    return pulsar.Client(url, operation_timeout_seconds=PATIENCE_S, logger=quiet)


def send(client: Any, rng: random.Random, sent: list[tuple[str, bytes]]) -> None:
    """Send; all records are acknowledged when this returns."""
    producer = client.create_producer(
        TOPIC,
        batching_enabled=True,
        block_if_queue_full=True,
        send_timeout_millis=1000 * PATIENCE_S,
    )
    for _ in range(SENT):
        key = f"k{rng.randrange(KEYS)}"
        value = b"" if rng.random() < 0.1 else b"%d" % len(sent)
        sent.append((key, value))
        producer.send_async(value, lambda *_: None, partition_key=key)
    producer.flush()
    producer.close()


def read_all(client: Any, *, compacted: bool) -> list[tuple[str, bytes]]:
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=compacted)
    messages = []
    while reader.has_message_available():
        message = reader.read_next(1000 * PATIENCE_S)
        messages.append((message.partition_key(), message.data()))
    reader.close()
    return messages


def test_a_broker_killed_during_compaction_loses_no_record() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    sent: list[tuple[str, bytes]] = []
    with RunningBroker() as broker:
        for _ in range(KILLS):
            client = open_client(broker)
            send(client, rng, sent)
            client.close()
            path = f"{broker.url}/admin/v2/persistent/public/default/compacted/compaction"
            assert httpx.put(path, timeout=PATIENCE_S).status_code == 204
            for _ in range(rng.randrange(4)):  # The kill comes at a random answer.
                httpx.get(path, timeout=PATIENCE_S)
            broker.kill()
            broker.start()
            client = open_client(broker)
            assert read_all(client, compacted=False) == sent
            compacted = read_all(client, compacted=True)
            client.close()
            latest = dict(sent)
            assert {key: value for key, value in dict(compacted).items() if value} == {
                key: value for key, value in latest.items() if value
            }
        broker.kill()
        broker.verify()
