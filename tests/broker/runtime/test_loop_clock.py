"""The poller in trio's loop: sockets are served while no task has work, and trio
misses no event.
"""

import os
import signal
import socket
import threading

import pytest
import trio

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.metrics import TURN_BUCKETS, Histogram
from braidlog.broker.runtime.loop_clock import LoopClock
from braidlog.broker.runtime.loop_turns import measuring_turns
from braidlog.broker.runtime.poller import EpollPoller


class TaskTurns(trio.abc.Instrument):
    """Counts the turns of trio's tasks."""

    def __init__(self):
        self.count = 0

    def after_task_step(self, task):
        self.count += 1


class AnsweringEnd:
    """An end of a watched pair of sockets; answers received bytes, and calls `then`."""

    def __init__(self, poller, then=lambda: False):
        self.ours, self.theirs = socket.socketpair()
        self.poller, self.then = poller, then
        self.served = 0
        poller.watch(self.ours.fileno(), self.serve)

    def serve(self):
        self.served += 1
        self.ours.send(self.ours.recv(100))
        return self.then()

    def ask(self, times):
        """Send and take the answer, in a thread that acts as the client."""
        for _ in range(times):
            self.theirs.send(b"x")
            assert self.theirs.recv(100) == b"x"

    def close(self):
        self.poller.unwatch(self.ours.fileno())
        self.ours.close()
        self.theirs.close()


def run(work):
    """Run `work(poller)` in a trio run with the poller."""
    clock = LoopClock()

    async def main():
        await clock.find_epoll()
        assert clock.epoll_fd is not None
        poller = EpollPoller()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while clock._sleep is None:
                await trio.lowlevel.checkpoint()
            await work(poller)
            nursery.cancel_scope.cancel()
        assert clock._sleep is None
        await trio.sleep(0.001)  # Trio sleeps without the poller again.

    trio.run(main, clock=clock)


def test_sockets_are_served_without_a_turn_of_any_task():
    async def work(poller):
        done = trio.Event()
        token, turns = trio.lowlevel.current_trio_token(), TaskTurns()
        peer = AnsweringEnd(poller)

        def client():
            peer.ask(500)
            token.run_sync_soon(done.set)

        trio.lowlevel.add_instrument(turns)
        client_thread = threading.Thread(target=client)
        client_thread.start()
        await done.wait()
        trio.lowlevel.remove_instrument(turns)
        client_thread.join()
        assert peer.served == 500
        assert turns.count < 20
        peer.close()

    run(work)


def test_a_task_woken_by_a_served_socket_gets_its_turn():
    async def work(poller):
        for _ in range(20):
            event = trio.Event()
            peer = AnsweringEnd(poller, lambda event=event: event.set() or False)
            peer.theirs.send(b"x")
            await event.wait()
            peer.close()

    run(work)


def test_deadlines_hold_while_clients_are_always_ready():
    async def work(poller):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            poller.watch(ours.fileno(), lambda: False)  # The handler reads nothing.
            theirs.send(b"x")
            with trio.move_on_after(0.01) as scope:
                await trio.sleep_forever()
            poller.unwatch(ours.fileno())
        assert scope.cancelled_caught

    run(work)


def test_a_deadline_moved_by_a_served_socket_holds():
    async def work(poller):
        with trio.CancelScope(deadline=trio.current_time() + 60) as scope:

            def hurry():
                scope.deadline = trio.current_time() + 0.001
                return False

            peer = AnsweringEnd(poller, hurry)
            sender = threading.Timer(0.001, peer.ask, (1,))
            sender.start()
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() < scope.deadline + 30
        sender.join()
        peer.close()

    run(work)


def test_events_that_trio_waits_for_wake_it():
    async def work(poller):
        peer = AnsweringEnd(poller)
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.recv, 1)
                await trio.to_thread.run_sync(peer.ask, 5)
                await theirs.send(b"x")
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            sender = threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGUSR1))
            sender.start()
            async for _ in signals:
                break
            sender.join()
        peer.close()

    run(work)


def test_sockets_are_served_between_turns_of_busy_tasks():
    async def work(poller):
        peer = AnsweringEnd(poller)
        for number in range(1, 20):
            peer.theirs.send(b"x")
            for _ in range(2):
                await trio.lowlevel.checkpoint()
            assert peer.served == number
        peer.close()

    run(work)


def test_giving_way_serves_only_ready_sockets():
    async def work(poller):
        peer = AnsweringEnd(poller)
        for number in range(1, 20):
            peer.theirs.send(b"x")
            await poller.give_way()
            assert peer.served == number
            with trio.CancelScope() as scope:
                scope.cancel()
                await poller.give_way()  # No socket is ready: no wait.
            assert not scope.cancelled_caught
        peer.close()

    run(work)


def test_a_pass_is_a_measured_turn():
    async def work(poller):
        histogram = Histogram(TURN_BUCKETS)
        peer = AnsweringEnd(poller)
        with measuring_turns(histogram, ThrottledLog(), 1000.0, poller.pass_listeners):
            await trio.to_thread.run_sync(peer.ask, 50)
        assert sum(histogram.counts) >= 50
        peer.close()

    run(work)


def test_a_bug_while_trio_sleeps_ends_the_poller():
    def bug():
        raise ZeroDivisionError

    async def work(poller):
        peer = AnsweringEnd(poller, bug)
        try:
            await trio.to_thread.run_sync(peer.theirs.send, b"x")
            await trio.sleep_forever()
        finally:
            peer.close()

    with pytest.raises(BaseExceptionGroup) as caught:
        run(work)
    assert caught.group_contains(ZeroDivisionError)


def test_a_socket_that_is_due_is_served_though_nothing_comes():
    async def work(poller):
        assert poller.is_in_the_loop
        ours, theirs = socket.socketpair()
        left, event = [3], trio.Event()

        def serve():
            left[0] -= 1
            if not left[0]:
                event.set()
            return left[0] > 0

        poller.watch(ours.fileno(), serve, is_due=True)
        await event.wait()
        assert left == [0]
        poller.unwatch(ours.fileno())
        ours.close()
        theirs.close()

    run(work)
