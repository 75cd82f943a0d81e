"""Commit rounds: in sequence on a thread, with notifications after each, and the effect of a failed
sync.
"""

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.commit.durability import CommitRounds
from braidlog.broker.commit.waiters import Waiters
from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.poller import EpollPoller
from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.committer import Committer
from tests.broker.held_disk import HeldDisk
from tests.broker.server.echo import receive_exactly, tcp_pair
from tests.waiting import until


class NoJointSync:
    syncs_all_at_once = False

    def sync_queue(self, eventfd):
        return None


class DurabilityParts:
    def __init__(self, nursery, flush_interval_ms=250):
        self.disk = HeldDisk()
        self.committer = Committer(NoJointSync())
        self.waiters = Waiters()
        self.poller = EpollPoller()
        self.durability = CommitRounds(
            self.committer, self.waiters, self.poller, flush_interval_ms=flush_interval_ms
        )
        self.nursery = nursery
        nursery.start_soon(self.poller.run)

    def append(self):
        """Mark a change as a partition's append does; return the ticket."""
        self.disk.marked += 1
        ticket = self.committer.mark(self.disk)
        self.durability.appended(self.disk)
        return ticket

    async def outbox(self):
        sock, client = await tcp_pair()
        outbox = Outbox(
            sock,
            self.durability,
            OutputBudget(),
            start_flusher=lambda: False,
            on_broken=lambda error: None,
        )
        return outbox, client, sock


@pytest.fixture
async def bench(nursery):
    bench = DurabilityParts(nursery)
    nursery.start_soon(bench.durability.run)
    await wait_all_tasks_blocked()
    return bench


async def test_answers_are_sent_and_readers_wake_only_after_the_sync(bench, nursery):
    outbox, client, sock = await bench.outbox()
    bench.disk.may_sync.clear()
    outbox.answer([b"stored"], bench.append())
    woken = trio.Event()

    async def read():
        await bench.waiters.wait_any([(bench.disk, 0)])
        woken.set()

    nursery.start_soon(read)
    await bench.disk.is_syncing()
    assert outbox.pending_answers == 1
    assert not woken.is_set()
    bench.disk.may_sync.set()
    assert await receive_exactly(client, 6) == b"stored"
    await woken.wait()
    sock.close()


async def test_changes_during_a_round_share_the_next_sync(bench):
    bench.disk.may_sync.clear()
    bench.append()
    await bench.disk.is_syncing()
    tickets = {bench.append() for _ in range(1000)}
    assert len(tickets) == 1
    bench.disk.may_sync.set()
    await bench.durability.all_durable()
    assert bench.disk.syncs == 2
    assert bench.disk.durable == 1001
    assert bench.disk.threads == {"braidlog-sync"}


async def test_without_changes_nothing_is_synced(bench):
    await bench.durability.all_durable()
    assert bench.disk.syncs == 0


async def test_lazy_members_are_synced_within_the_flush_interval(autojump_clock, nursery):
    bench = DurabilityParts(nursery, flush_interval_ms=400)
    nursery.start_soon(bench.durability.run)
    nursery.start_soon(bench.durability.promote)
    await wait_all_tasks_blocked()
    bench.disk.marked = 1
    bench.committer.mark_lazy(bench.disk)
    await trio.sleep(0.39)
    assert bench.disk.syncs == 0
    await until(lambda: bench.disk.syncs, step_s=0.4)


async def test_settled_includes_lazy_members(bench):
    bench.committer.mark_lazy(bench.disk)
    await bench.durability.all_durable()
    assert bench.disk.syncs == 1


async def test_a_failed_sync_ends_the_run_and_no_waiting_answer_is_sent(nursery):
    bench = DurabilityParts(nursery)
    outbox, client, sock = await bench.outbox()
    bench.disk.failing = True
    outbox.answer([b"never"], bench.append())
    with pytest.raises(StorageFailed, match="Input/output error"):
        await bench.durability.run()
    assert outbox.pending_answers == 1
    with pytest.raises(StorageFailed):  # never retried
        await bench.durability.run()
    assert bench.disk.syncs == 0
    sock.close()
    assert await client.receive_some() == b""


async def test_a_failed_write_elsewhere_ends_the_run_too(nursery):
    bench = DurabilityParts(nursery)
    bench.durability.fail(StorageFailed("pwritev: Input/output error"))
    with pytest.raises(StorageFailed, match="pwritev"):
        await bench.durability.run()


async def test_cancelling_waits_for_the_sync_that_runs(nursery):
    bench = DurabilityParts(nursery)
    bench.disk.may_sync.clear()
    bench.append()
    async with trio.open_nursery() as inner:
        inner.start_soon(bench.durability.run)
        await bench.disk.is_syncing()
        threading.Timer(0.02, bench.disk.may_sync.set).start()
        inner.cancel_scope.cancel()
    assert bench.disk.syncs == 1
