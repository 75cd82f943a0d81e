"""The rules of positions, each shown by a script in `rules/`."""

from pathlib import Path

import pytest

from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MetadataParts, RecordingListener
from tests.scripts import cases

ORDERS = TopicName("public", "default", "orders")


class SubscriptionPlayer:
    """A subscription that takes the actions of a script."""

    def __init__(self):
        self.house = MetadataParts()
        self.house.create(ORDERS, 1)
        topic = self.house.topics.get(ORDERS)
        self.subscription = self.house.subscriptions.open(topic, b"billing")
        self.heard = RecordingListener()
        self.subscription.listeners.add(self.heard)

    def commit(self, offset, *metadata):
        kafka = KafkaCommit(int(offset), metadata[0].encode(), 1) if metadata else None
        self.subscription.commit(0, int(offset), kafka=kafka)

    def ack(self, *ranges):
        self.subscription.ack(0, list(map(half_open, ranges)), lazy=False)

    def ack_to(self, offset):
        self.subscription.ack_to(0, int(offset), lazy=False)

    def seek(self, offset):
        self.subscription.seek(0, int(offset))

    def start(self, offset):
        self.subscription.start(0, int(offset))

    def delete(self):
        self.subscription.delete()

    def facts(self):
        """Return every fact of the present state, as scripts write it."""
        position, commit = self.subscription.position(0), self.subscription.committed(0)
        return {
            "position": "unset" if position is None else str(position),
            "floor": str(self.subscription.standing(0)[1]),
            "acked": " ".join(map(inclusive, self.subscription.acked(0))) or "none",
            "kafka": f"{commit.offset} {commit.metadata.decode()}".strip() if commit else "unset",
            "event": " ".join(event.value for _, event in self.heard.take()) or "none",
        }


def half_open(text):
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def inclusive(offsets):
    start, end = offsets
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


@pytest.mark.parametrize(("_file", "script"), cases(Path(__file__).parent / "rules"))
def test_rules_of_positions(_file, script):
    player = SubscriptionPlayer()
    for step in script.steps:
        name, *arguments = step.action
        getattr(player, name.replace("-", "_"))(*arguments)
        facts = player.facts()
        assert [(name, facts[name]) for name, _ in step.facts] == step.facts, step.line
