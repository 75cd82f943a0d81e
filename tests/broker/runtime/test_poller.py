"""The poller: each ready socket is served once per pass, in order, with turns for tasks between
passes.
"""

import itertools
import socket
from collections import Counter
from types import SimpleNamespace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.limits import (
    HELD_BACK_S,
    PASS_DUE_ENOUGH,
    PASS_S_MAX,
    TURN_S_MAX,
    TURN_S_MIN,
    TURNS_S,
)
from braidlog.broker.runtime import poller as poller_module
from braidlog.broker.runtime.poller import EpollPoller


class RecordingEnd:
    """An end of a watched pair of sockets; its served turns are recorded."""

    def __init__(self, poller, log, name, more=0, *, is_client=True):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.poller, self.log, self.name, self.more = poller, log, name, more
        poller.watch(self.ours.fileno(), self.serve, is_client=is_client)

    def serve(self):
        self.log.append(self.name)
        try:
            self.ours.recv(100)
        except BlockingIOError:
            pass
        self.more -= 1
        return self.more >= 0

    def close(self):
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def log():
    return []


@pytest.fixture
async def poller(nursery):
    started = EpollPoller()
    nursery.start_soon(started.run)
    return started


@pytest.fixture
def set_clock(monkeypatch):
    """Make each clock read after a call take `step_s`; nothing else takes time."""

    def run(step_s):
        looks = itertools.count(0.0, step_s)
        clock = SimpleNamespace(perf_counter=lambda: next(looks))
        monkeypatch.setattr(poller_module, "time", clock)

    return run


@pytest.fixture
def peers(poller, log):
    all_peers = [RecordingEnd(poller, log, name) for name in "abc"]
    yield all_peers
    for peer in all_peers:
        peer.close()


async def test_only_ready_sockets_are_served(peers, log):
    peers[1].theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert log == ["b"]
    peers[0].theirs.send(b"x")
    peers[2].theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert sorted(log) == ["a", "b", "c"]


async def test_a_peer_that_has_closed_is_ready(peers, log, poller):
    peers[0].theirs.close()
    while not log:
        await trio.lowlevel.checkpoint()
    poller.unwatch(peers[0].ours.fileno())
    assert set(log) == {"a"}


async def test_an_unwatched_socket_is_not_served(peers, log, poller):
    for peer in peers:
        peer.theirs.send(b"x")
    poller.unwatch(peers[1].ours.fileno())
    await wait_all_tasks_blocked()
    assert sorted(log) == ["a", "c"]


async def test_a_socket_unwatched_within_a_pass_is_not_served(peers, log, poller):
    def end_others():
        log.append("ends")
        for peer in peers:
            if peer.ours.fileno() in poller._watched:
                poller.unwatch(peer.ours.fileno())
        return False

    for peer in peers:
        poller.unwatch(peer.ours.fileno())
        poller.watch(peer.ours.fileno(), end_others)
        peer.theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert log == ["ends"]


async def test_further_work_runs_in_the_next_passes_even_if_not_readable(peers, log):
    peers[0].more = 3
    peers[0].theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert log == ["a"] * 4


async def test_tasks_get_their_turn_between_two_passes(peers, log):
    peers[0].more = peers[1].more = 9
    peers[0].theirs.send(b"x")
    peers[1].theirs.send(b"x")
    while not log:
        await trio.lowlevel.checkpoint()
    seen = [len(log)]
    while len(log) < 20:
        await trio.lowlevel.checkpoint()
        seen.append(len(log))
    # Trio runs the tasks of a turn in any order: two passes may follow each other.
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 4


async def test_a_long_pass_ends_and_the_rest_is_first_in_the_next(peers, log, set_clock):
    set_clock(PASS_S_MAX / 2)
    for peer in peers:
        peer.theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert sorted(log) == ["a", "b", "c"]


def test_the_brokers_own_socket_is_served_before_many_due_clients(log, set_clock):
    poller = EpollPoller(due_enough=2)
    peers = [RecordingEnd(poller, log, name) for name in "abc"]
    own = RecordingEnd(poller, log, "own", is_client=False)
    set_clock(PASS_S_MAX)  # Each pass serves one client.
    for peer in peers:
        peer.theirs.send(b"x")
    poller.make_pass(0)
    (first,) = log
    own.theirs.send(b"x")
    peers["abc".index(first)].theirs.send(b"y")
    while len(log) < 5:
        poller.make_pass(0)
    assert sorted(log) == sorted(["a", "b", "c", "own", first])
    assert log.index("own") == 1
    assert log[-1] == first  # Ready again, it waits behind those that were due before.
    for peer in (*peers, own):
        peer.close()


async def test_clients_due_behind_a_pass_are_served_once_in_their_order(poller, log, set_clock):
    set_clock(PASS_S_MAX)
    waiting = [RecordingEnd(poller, log, number) for number in range(PASS_DUE_ENOUGH + 5)]
    for peer in waiting:
        peer.theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert log == list(range(PASS_DUE_ENOUGH + 5))
    for peer in waiting:
        peer.close()


@pytest.fixture
def busy(poller, log):
    """Ten peers with much to do."""
    busy_peers = [RecordingEnd(poller, log, f"busy {number}", more=1000) for number in range(10)]
    for peer in busy_peers:
        peer.theirs.send(b"x")
    yield busy_peers
    for peer in busy_peers:
        peer.close()


async def test_a_socket_that_becomes_ready_is_served_before_those_with_more_to_do(
    peers, busy, log, set_clock
):
    set_clock(PASS_S_MAX)  # So that a pass has time for one of each kind.
    for _ in range(5):
        while len(log) < 40:
            await trio.lowlevel.checkpoint()
        peers[0].theirs.send(b"x")
        log.clear()
        while "a" not in log:
            await trio.lowlevel.checkpoint()
        assert log.index("a") <= 2
    for peer in busy:
        peer.more = 0
    await wait_all_tasks_blocked()


async def test_those_with_more_to_do_are_served_in_turn_beside_sockets_that_are_always_ready(
    peers, busy, log, set_clock
):
    set_clock(PASS_S_MAX)
    for peer in peers:
        peer.theirs.send(b"x" * 100 * 1000)
    while len(log) < 60:
        await trio.lowlevel.checkpoint()
    counts = Counter(log)
    assert min(counts[peer.name] for peer in busy) >= 2
    assert min(counts[peer.name] for peer in peers) >= 2
    for peer in busy:
        peer.more = 0
    await wait_all_tasks_blocked()


async def test_the_more_sockets_are_ready_the_shorter_are_their_turns(poller, log):
    turns, created = [], []
    for count in (1, 100, 200):
        created = [RecordingEnd(poller, log, number) for number in range(count)]
        for peer in created:
            poller.unwatch(peer.ours.fileno())
            poller.watch(peer.ours.fileno(), lambda peer=peer: turns.append(poller.turn_s))
            peer.theirs.send(b"x")
        while len(turns) < count:
            await trio.lowlevel.checkpoint()
        expected = max(min(TURN_S_MAX, TURNS_S / count), TURN_S_MIN)
        assert turns[0] == expected, count
        for peer in created:
            poller.unwatch(peer.ours.fileno())
            peer.close()
        turns.clear()


def _answers_soon(peers, log, poller):
    """Let each peer record its service, and again later in the pass."""
    for peer in peers:
        poller.unwatch(peer.ours.fileno())

        def serve(peer=peer):
            poller.call_soon(lambda: log.append(f"{peer.name} answers"))
            return peer.serve()

        poller.watch(peer.ours.fileno(), serve)
        peer.theirs.send(b"x")


async def test_soon_callbacks_run_after_all_ready_sockets(peers, log, poller):
    _answers_soon(peers, log, poller)
    await wait_all_tasks_blocked()
    assert sorted(log[:3]) == ["a", "b", "c"]
    assert log[3:] == [f"{name} answers" for name in log[:3]]


async def test_soon_callbacks_do_not_wait_for_the_end_of_a_long_pass(peers, log, poller, set_clock):
    set_clock(HELD_BACK_S)
    _answers_soon(peers, log, poller)
    await wait_all_tasks_blocked()
    assert log[1::2] == [f"{name} answers" for name in log[::2]]


async def test_giving_way_ignores_sockets_that_are_not_ready(peers, log, poller):
    await wait_all_tasks_blocked()
    with trio.CancelScope() as scope:
        scope.cancel()
        await poller.give_way()  # No wait: a wait would raise.
        log.append("works")
    assert log == ["works"]


async def test_a_newly_ready_socket_waits_for_a_single_piece_of_work(
    peers, log, poller, nursery, set_clock
):
    set_clock(0.0)
    peers[0].more = 20  # The peer is due, regardless of the first turn.

    async def work():
        await poller.give_way()
        log.append("works")

    peers[0].theirs.send(b"x")
    for _ in range(5):
        nursery.start_soon(work)
    await wait_all_tasks_blocked()
    assert log.count("works") == 5
    assert log[0] == "a"
    assert ("works", "works") not in itertools.pairwise(log)


async def test_work_continues_while_clients_are_always_ready(peers, log, poller, nursery):
    peers[0].more = 50

    async def work():
        for _ in range(5):
            await poller.give_way()
            log.append("works")

    peers[0].theirs.send(b"x")
    nursery.start_soon(work)
    await wait_all_tasks_blocked()
    assert log.count("a") == 51
    assert "works" not in log[:1] and log[:12].count("works") >= 4


async def test_a_long_pass_lets_more_work_follow(peers, log, poller, nursery, set_clock):
    set_clock(PASS_S_MAX / 2)

    async def work():
        peers[0].theirs.send(b"x")
        await poller.give_way()
        log.append("works")

    await wait_all_tasks_blocked()  # The poller rests: all tasks run before its next pass.
    for _ in range(5):
        nursery.start_soon(work)
    await wait_all_tasks_blocked()
    assert log == ["a", *["works"] * 5]


async def test_all_work_follows_a_pass_that_served_no_client(log, poller, nursery):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller.watch(ours.fileno(), lambda: bool(ours.recv(100)) and False, is_client=False)

        async def work():
            await poller.give_way()
            log.append("works")
            theirs.send(b"x")

        theirs.send(b"x")
        for _ in range(3):
            nursery.start_soon(work)
        await wait_all_tasks_blocked()
        poller.unwatch(ours.fileno())
    assert log == ["works"] * 3


async def test_work_does_not_wait_for_an_unwatched_socket(log, poller, nursery):
    for turn in range(20):  # Trio runs the tasks of a turn in any order.
        ours, theirs = socket.socketpair()
        with ours, theirs:
            poller.watch(ours.fileno(), lambda: False)
            await wait_all_tasks_blocked()  # The poller rests.

            async def work(theirs=theirs):
                theirs.send(b"x")
                await poller.give_way()
                log.append("works")

            async def end(ours=ours):
                poller.unwatch(ours.fileno())

            nursery.start_soon(work)
            nursery.start_soon(end)
            await wait_all_tasks_blocked()
            assert len(log) == turn + 1


async def test_work_continues_after_the_pollers_end(log):
    poller = EpollPoller()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller.watch(ours.fileno(), lambda: True)

        async def work():
            while len(log) < 3:
                await poller.give_way()
                log.append("works")
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            theirs.send(b"x")
            async with trio.open_nursery() as polling:
                polling.start_soon(poller.run)
                nursery.start_soon(work)
                await trio.lowlevel.checkpoint()
                polling.cancel_scope.cancel()
    assert log == ["works"] * 3
