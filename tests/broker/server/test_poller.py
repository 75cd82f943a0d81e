"""The poller: who is ready is served once a pass, in order, and others have their turn between."""

import itertools
import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.limits import PASS_S_MAX
from broker.server import poller as poller_module
from broker.server.poller import Poller


class Peer:
    """One end of a pair of sockets, watched; what was served is noted."""

    def __init__(self, poller, log, name, more=0):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.poller, self.log, self.name, self.more = poller, log, name, more
        poller.watch(self.ours.fileno(), self.serve)

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
    made = Poller()
    nursery.start_soon(made.run)
    return made


@pytest.fixture
def peers(poller, log):
    made = [Peer(poller, log, name) for name in "abc"]
    yield made
    for peer in made:
        peer.close()


async def test_whoever_is_ready_is_served_and_nobody_else(peers, log):
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


async def test_who_is_not_watched_any_more_is_not_served(peers, log, poller):
    for peer in peers:
        peer.theirs.send(b"x")
    poller.unwatch(peers[1].ours.fileno())
    await wait_all_tasks_blocked()
    assert sorted(log) == ["a", "c"]


async def test_one_that_ends_another_in_the_same_pass_is_the_last_to_be_served(peers, log, poller):
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


async def test_more_work_of_its_own_comes_in_the_next_passes_readable_or_not(peers, log):
    peers[0].more = 3
    peers[0].theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert log == ["a"] * 4


async def test_others_have_their_turn_between_two_passes(peers, log):
    peers[0].more = peers[1].more = 9
    peers[0].theirs.send(b"x")
    peers[1].theirs.send(b"x")
    while not log:
        await trio.lowlevel.checkpoint()
    seen = [len(log)]
    while len(log) < 20:
        await trio.lowlevel.checkpoint()
        seen.append(len(log))
    # Trio runs the tasks of one turn in any order: two passes may follow each other.
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 4


async def test_a_long_pass_ends_and_the_rest_comes_first_in_the_next(peers, log, monkeypatch):
    class Clock:
        """Each look at it costs half of a pass."""

        now = 0.0

        @classmethod
        def perf_counter(cls):
            cls.now += PASS_S_MAX / 2
            return cls.now

    monkeypatch.setattr(poller_module, "time", Clock)
    for peer in peers:
        peer.more = 2
        peer.theirs.send(b"x")
    await wait_all_tasks_blocked()
    first = log[:3]
    assert sorted(first) == ["a", "b", "c"]
    assert log == first * 3
