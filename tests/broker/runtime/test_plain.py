"""Sockets of a broker on plain trio, and the switch."""

import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.runtime.plain import PlainPoller, make_poller
from braidlog.broker.runtime.poller import EpollPoller


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def poller():
    return PlainPoller()


@pytest.mark.parametrize(("value", "kind"), [("", EpollPoller), ("1", PlainPoller)])
def test_the_environment_chooses(monkeypatch, value, kind):
    monkeypatch.setenv("BRAIDLOG_PLAIN_TRIO", value)
    assert isinstance(make_poller(), kind)


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_ready_socket_is_served_until_it_has_no_more(nursery, poller, ends, is_early):
    ours, theirs = ends
    answers = [True, True, False]
    served = []

    def serve():
        assert poller.in_pass
        served.append(ours.recv(1))
        return answers.pop(0)

    if is_early:
        poller.watch(ours.fileno(), serve)
    nursery.start_soon(poller.run)
    await wait_all_tasks_blocked()
    if not is_early:
        poller.watch(ours.fileno(), serve)
    assert served == []
    theirs.send(b"abc")
    await wait_all_tasks_blocked()
    assert served == [b"a", b"b", b"c"]
    assert not poller.in_pass


async def test_calls_and_listeners_follow_the_serving(nursery, poller, ends):
    ours, theirs = ends
    order = []

    def serve():
        ours.recv(1)
        poller.call_soon(lambda: order.append("call"))
        order.append("serve")
        return False

    poller.pass_listeners.append(lambda: order.append("listener"))
    poller.watch(ours.fileno(), serve)
    nursery.start_soon(poller.run)
    for _ in range(2):
        theirs.send(b"x")
        await wait_all_tasks_blocked()
    assert order == ["serve", "call", "listener"] * 2


async def test_an_unwatched_descriptor_can_be_closed_and_watched_again(nursery, poller, ends):
    ours, theirs = ends
    served = []

    def serve():
        served.append(ours.recv(1))
        return False

    nursery.start_soon(poller.run)
    poller.watch(ours.fileno(), serve)
    await wait_all_tasks_blocked()
    poller.unwatch(ours.fileno())
    poller.watch(ours.fileno(), serve)
    theirs.send(b"x")
    await wait_all_tasks_blocked()
    assert served == [b"x"]
    poller.unwatch(ours.fileno())
    theirs.send(b"y")
    await wait_all_tasks_blocked()
    assert served == [b"x"]


async def test_an_unwatched_socket_that_has_more_is_not_served_again(nursery, poller, ends):
    ours, theirs = ends
    turns = 0

    def serve():
        nonlocal turns
        turns += 1
        return True

    nursery.start_soon(poller.run)
    poller.watch(ours.fileno(), serve)
    theirs.send(b"x")
    while turns < 3:
        await trio.lowlevel.checkpoint()
    poller.unwatch(ours.fileno())
    seen = turns
    await wait_all_tasks_blocked()
    assert turns == seen


async def test_an_error_ends_the_run(poller, ends):
    ours, theirs = ends

    def serve():
        raise ValueError("a bug")

    poller.watch(ours.fileno(), serve)
    theirs.send(b"x")
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug"), flatten_subgroups=True):
        await poller.run()
