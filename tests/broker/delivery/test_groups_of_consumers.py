"""A group of acknowledgements has the same effect as single acknowledgements."""

import random

import pytest

from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.shared import SharedDispatcher
from braidlog.broker.reading.entries import EntryId
from braidlog.storage.metadata.ranges import RangeSet
from tests.broker.delivery.dispatch_fakes import stage

ROUNDS = 12
ENTRIES_MAX = 12


def facts(play, consumers):
    """Return the whole state that an acknowledgement changes."""
    state = play.cursor.state()
    facts_of_play = {
        "position": state.position,
        "acked": list(state.acked),
        "consumers": [
            (c.offsets, c.permits, c.unacked, c.messages_acked, c.is_blocked, list(c.pending))
            for c in consumers
        ],
    }
    if isinstance(play.dispatcher, ExclusiveDispatcher):
        facts_of_play["delivered"] = play.dispatcher._delivered
    else:
        facts_of_play["redeliveries"] = play.dispatcher._redeliveries
        facts_of_play["unacked"] = play.dispatcher._unacked
    return facts_of_play


class Twins:
    """Two stages with the same events, but with grouped and single acknowledgements."""

    def __init__(self, rng, kind, plays):
        self.rng = rng
        self.plays = plays
        self.is_shared = kind is SharedDispatcher
        for play in plays:  # So that some find no room.
            play.cursor._acked = RangeSet(ranges_max=4)
        self.consumers = [
            [play.join() for _ in range(2 if self.is_shared else 1)] for play in plays
        ]

    async def step(self):
        rng = self.rng
        counts = [rng.choice([1, 1, 1, 3]) for _ in range(rng.randint(1, ENTRIES_MAX))]
        permits = rng.randint(1, 2 * ENTRIES_MAX)
        at = rng.randrange(len(self.consumers[0]))
        nacked = rng.random() < 0.3
        for play, consumers in zip(self.plays, self.consumers, strict=True):
            play.partition.entries(*counts)
            play.dispatcher.flow(consumers[at], permits)
            await play.settled()
            if nacked:
                play.dispatcher.redeliver(consumers[at], [])
                await play.settled()
        await self.acknowledge(self.rng.randrange(len(self.consumers[0])))

    async def acknowledge(self, at):
        """Acknowledge delivered entries, acknowledged entries, and ids of no entry."""
        rng, end = self.rng, self.plays[0].partition.next_offset
        known = sorted({offset for c in self.consumers[0] for offset in c.offsets})
        named = rng.sample(known, rng.randint(0, len(known)))
        named = sorted(named) if rng.random() < 0.7 else named
        named += [rng.randint(0, end + 2)] * rng.randint(0, 1)
        if self.is_shared:
            named += rng.sample(named, min(len(named), 2))  # Twice.
        else:
            named = list(dict.fromkeys(named))
        (single, together), (first, second) = self.plays, (c[at] for c in self.consumers)
        await single.ack_by_ids(first, *named)
        await together.ack(second, *named)
        for play in self.plays:
            await play.settled()


@pytest.mark.parametrize("kind", [ExclusiveDispatcher, SharedDispatcher])
@pytest.mark.parametrize("seed", range(25))
async def test_a_group_of_acks_equals_single_acks(kind, seed):
    rng = random.Random(seed)
    async with stage(kind) as single, stage(kind) as together:
        twins = Twins(rng, kind, [single, together])
        for round_ in range(ROUNDS):
            await twins.step()
            first, second = map(facts, twins.plays, twins.consumers)
            assert first == second, f"seed {seed}, round {round_}"


@pytest.mark.parametrize("kind", [ExclusiveDispatcher, SharedDispatcher])
async def test_a_group_may_have_whole_entries_and_parts(kind):
    async with stage(kind) as play:
        play.partition.entries(1, 4, 1)
        consumer = play.join(permits=10)
        await play.settled()
        part = EntryId(play.partition.partition_id, 1, (0b1100,))
        await play.dispatcher.acknowledge(consumer, [part], lazy=True, entries=[0, 5])
        assert play.cursor.position == 3
        assert list(play.cursor.state().acked) == [(5, 6)]
