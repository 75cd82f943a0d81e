"""Reads a topic back after a crash and holds it against what the clients were told."""

from collections import Counter

from conformance.crash.groups import Committer
from conformance.crash.writers import Address, Ledger
from conformance.raw.kafka import KafkaWire, parse_set


def read_back(address: Address, topic: str, start: int) -> dict[int, bytes]:
    """Offset to value of every record from `start` on, through the Kafka listener."""
    found: dict[int, bytes] = {}
    with KafkaWire(address) as wire:
        while True:
            error, watermark, body = wire.fetch(topic, start, wait_ms=0)
            assert error == 0, f"fetch at {start}: error {error}"
            if start >= watermark:
                return found
            records = parse_set(body)
            assert records, f"nothing at {start}, watermark {watermark}"
            for offset, _, value in records:
                if offset >= start:
                    assert value is not None
                    found[offset] = value
            start = records[-1][0] + 1


def faults(log: dict[int, bytes], ledgers: list[Ledger]) -> list[str]:
    """Every broken promise: lost, changed, repeated or reordered."""
    found = []
    for ledger in ledgers:
        for offset, value in ledger.acknowledged.items():
            now = log.get(offset)
            if now != value:
                found.append(f"{ledger.name}: offset {offset} is {now!r}, was {value!r}")
        values = [v for v in log.values() if v.startswith(ledger.name.encode() + b":")]
        present = set(values)
        lost = ledger.stored_somewhere - present
        found += [f"{ledger.name}: {value!r} was acknowledged and is lost" for value in lost]
        first_seen = list(dict.fromkeys(values))
        if first_seen != sorted(first_seen):
            found.append(f"{ledger.name}: order broken")
        repeated = {value for value, times in Counter(values).items() if times > 1}
        found += [
            f"{ledger.name}: {value!r} is there twice and was answered the first time"
            for value in repeated - ledger.sent_again
        ]
    return found


def position_faults(address: Address, topic: str, committers: list[Committer]) -> list[str]:
    """Groups that are behind their last acknowledged commit, seen through the Kafka listener."""
    found = []
    with KafkaWire(address) as wire:
        for member in committers:
            position = wire.committed(member.group, topic)
            if max(position, 0) < member.position:
                found.append(f"{member.group} is at {position}, had committed {member.position}")
    return found
