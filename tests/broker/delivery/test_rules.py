"""The rules of delivery, each shown by a script in `rules/`: a file for each kind of dispatcher."""

from pathlib import Path

import pytest

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import FailoverDispatcher
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.positions.cursor_moves import CursorEvent
from tests.broker.delivery.dispatch_fakes import stage
from tests.broker.delivery.entry_fakes import FakePartition
from tests.scripts import cases

pytestmark = pytest.mark.usefixtures("is_warm")

KINDS = {
    "exclusive": ExclusiveDispatcher,
    "failover": FailoverDispatcher,
    "shared": SharedDispatcher,
}
AT_ONCE = "at-once"  # The next action comes before the dispatcher's turn.


class DispatcherPlayer:
    """A dispatcher that takes the actions of a script, and its consumers by name."""

    def __init__(self, play):
        self.play = play
        self.consumers = {}

    async def join(self, name, permits=0, priority=0):
        self.consumers[name] = self.play.join(int(permits), name, priority=int(priority))

    async def leave(self, name):
        self.play.leave(self.consumers[name])

    async def flow(self, name, permits):
        self.play.dispatcher.flow(self.consumers[name], int(permits))

    async def produce(self, *counts):
        self.play.partition.entries(*map(int, counts))

    async def produce_delayed(self, seconds):
        due_ms = self.play.clock.now // 1000 + 1000 * int(seconds)
        self.play.partition.entries(1, metadata={"deliver_at_time": due_ms})

    async def ack(self, name, *offsets):
        await self.play.ack(self.consumers[name], *map(int, offsets))

    async def ack_to(self, name, offset):
        consumer, entry = self.consumers[name], self.play.id(int(offset))
        await self.play.dispatcher.acknowledge_to(consumer, entry, lazy=True)

    async def nack(self, name, *offsets):
        self.play.nack(self.consumers[name], *map(int, offsets))

    async def redeliver(self, name):
        self.play.dispatcher.redeliver(self.consumers[name], [])

    async def commit(self, position):
        """Acknowledge everything below a position by a client of another protocol."""
        self.play.cursor.ack_to(int(position), lazy=True)
        self.play.dispatcher.cursor_moved(CursorEvent.ACKED, is_own=False)

    async def remove_below(self, offset):
        self.play.partition.log_start_offset = int(offset)

    async def pass_(self, seconds):
        self.play.clock.now += int(seconds) * 1_000_000
        await self.play.passed(int(seconds))

    def fact(self, name, value):
        """Return the fact of that name as scripts write it; `value` may begin with a consumer."""
        dispatcher, consumer = self.play.dispatcher, self.consumers.get(value.split()[0])
        match name:
            case "position":
                return str(self.play.cursor.position)
            case "delayed":
                return str(dispatcher.delayed)
            case "remembered":
                return str(len(dispatcher._redeliveries))
            case "active":
                return dispatcher.active.name
            case "counts":
                return words(consumer, [entry.redelivery_count for entry in consumer.inbox])
            case "changes":
                return words(consumer, ["on" if is_on else "off" for is_on in consumer.changes])
        return " ".join(map(str, self.consumers[name].offsets)) or "none"


def words(consumer, values):
    return " ".join(map(str, [consumer.name, *values]))


@pytest.mark.parametrize(("kind", "script"), cases(Path(__file__).parent / "rules"))
async def test_rules_of_delivery(kind, script, autojump_clock):
    limits = {step.action[1]: int(step.action[2]) for step in script.steps if is_limit(step)}
    partition = FakePartition(index=0, partitioned=kind == "failover")
    settings = {"partition": partition, "limits": DeliveryLimits(**limits)}
    async with stage(KINDS[kind], **settings) as play:
        player = DispatcherPlayer(play)
        for step in script.steps:
            if is_limit(step):
                continue
            name, *arguments = [word for word in step.action if word != AT_ONCE]
            act = getattr(player, "pass_" if name == "pass" else name.replace("-", "_"))
            await act(*arguments)
            if AT_ONCE not in step.action:
                await play.settled()
            for fact, value in step.facts:
                assert player.fact(fact, value) == value, step.line


def is_limit(step):
    return step.action[0] == "limit"
