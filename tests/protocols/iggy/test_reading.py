"""Reads of a partition while retention removes records."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from braidlog.broker.limits import MIB
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.steps import run
from braidlog.protocols.iggy.all_dialects import D2
from braidlog.protocols.iggy.forms import XXH_FORM
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.reading import (
    LARGE_MESSAGE_BYTES,
    first_not_older,
    messages,
    read,
    reserved,
    shown,
)
from braidlog.storage.formats.iggy.forms import untyped
from braidlog.storage.formats.iggy.typed import IGGY_TYPED, checksum_of
from braidlog.storage.formats.record import Record
from tests.protocols.iggy.foreign import partition_of

KEPT = 4


class Shrinking:
    """A partition that loses all records below KEPT while its first read waits for the disk."""

    def __init__(self, broker) -> None:
        self._retention = broker.retention
        self._partition = partition_of(broker)

    def __getattr__(self, name: str) -> object:
        return getattr(self._partition, name)

    def read_warm(self, *_: object) -> None:
        """Return None: no record is in memory."""

    async def read(self, *args: object, **more: object) -> object:
        """Remove the records, then read the partition."""
        self._retention.delete_below(self._partition, KEPT)
        return await self._partition.read(*args, **more)


@pytest.fixture
async def shrinking(broker, talk):
    """Return a partition with six messages, each in a separate batch."""
    await talk.create_topic()
    for number in range(6):
        assert await talk.send(b"%d" % number) == 0
    return Shrinking(broker)


@pytest.fixture
def context(broker):
    """Return the parts of a context that a read uses."""
    room = OutputBudget().reserve_now(1 << 20)
    return SimpleNamespace(broker=broker, dialect=D2, walked={}, room=room)


async def test_a_poll_continues_at_the_new_log_start(shrinking, context):
    result = await run(read(context, shrinking, 1, 10))
    assert [offset for offset, _ in messages(context, result.parts)] == [4, 5]
    assert result.next_offset == 6


async def test_the_first_message_of_a_time_is_searched_in_the_rest(shrinking):
    assert await first_not_older(shrinking, 0) == KEPT
    assert await first_not_older(shrinking, 1 << 62) == 6


@pytest.mark.parametrize(("dialect", "copies"), [(D2, 1), (V, 2)])
async def test_a_polls_reserved_memory_counts_its_converted_bytes(dialect, copies):
    budget = OutputBudget(64 * MIB)
    outbox = SimpleNamespace(budget=budget, unsent_bytes=0)
    context = SimpleNamespace(dialect=dialect, connection=SimpleNamespace(outbox=outbox))
    with await run(reserved(context)) as first, await run(reserved(context)) as second:
        assert first.size == 4 * MIB and second.size < first.size
        assert (first.copies, budget.used) == (copies, first.size + second.size)
    assert budget.used == 0


@pytest.mark.parametrize("size", [LARGE_MESSAGE_BYTES - 1000, LARGE_MESSAGE_BYTES + 1000])
async def test_a_large_message_is_converted_in_a_thread(size):
    threads = []

    def noted(records, index):
        threads.append(threading.current_thread())
        return XXH_FORM.shown(records, index)

    form = replace(XXH_FORM, shown=noted)
    record = Record(5, 1, value=bytes(size))
    stored = IGGY_TYPED.readable(IGGY_TYPED.encode([record], 5))
    context = SimpleNamespace(dialect=SimpleNamespace(form=form))
    (converted,) = await run(shown(context, SimpleNamespace(index=0), [stored]))
    assert converted == untyped(stored, checksum_of)
    (thread,) = threads
    assert (thread is threading.current_thread()) == (size <= LARGE_MESSAGE_BYTES)
