"""A broker inside tests of other programs: the real broker, with faults on demand.

    from braidlog.testing import Braidlog, DropAnswers

    with Braidlog() as broker:  # or `async with`, on trio or asyncio
        producer = KafkaProducer(bootstrap_servers=broker.kafka)
        broker.inject(DropAnswers(listener="kafka"))

With pytest, the fixtures `braidlog` and `braidlog_topic` need no import (`plugin.py`).
"""

from braidlog.testing.double import Braidlog, BrokerNotStarted, Namespace
from braidlog.testing.faults import (
    Cut,
    Delay,
    DropAnswers,
    Fault,
    FullDisk,
    MoveClock,
    Rebalance,
    Refuse,
)

__all__ = [
    "Braidlog",
    "BrokerNotStarted",
    "Cut",
    "Delay",
    "DropAnswers",
    "Fault",
    "FullDisk",
    "MoveClock",
    "Namespace",
    "Rebalance",
    "Refuse",
]
