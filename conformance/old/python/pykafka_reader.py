"""The balanced consumer of pykafka over ZooKeeper: `pykafka_reader.py ZOOKEEPER TOPIC GROUP
COUNT`.
"""

import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

zookeeper, topic, group, count = sys.argv[1:]
client = KafkaClient(zookeeper_hosts=zookeeper, broker_version="0.8.2")
consumer = client.topics[topic.encode()].get_balanced_consumer(
    group.encode(),
    zookeeper_connect=zookeeper,
    auto_offset_reset=OffsetType.EARLIEST,
    auto_commit_enable=False,
)
for _ in range(int(count)):
    print(consumer.consume().value.decode())
consumer.commit_offsets()
consumer.stop()
