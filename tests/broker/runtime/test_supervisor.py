"""Messages to systemd, over a socket as systemd has it."""

import math
import os
import socket

import pytest
import trio

from braidlog.broker.runtime.supervisor import Supervisor


@pytest.fixture
def listening(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def messages(sock):
    received = []
    while True:
        try:
            received.append(sock.recv(100))
        except BlockingIOError:
            return received


async def run_for(supervisor, seconds, stopping):
    with trio.move_on_after(seconds):
        await supervisor.run(stopping)


async def test_a_watchdog_is_fed_three_times_in_its_interval(listening, autojump_clock):
    environment = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "60000000"}
    supervisor = Supervisor(environment)
    supervisor.ready()
    await run_for(supervisor, 59, trio.Event())
    assert messages(listening) == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]


async def test_a_stop_is_told_once_and_the_watchdog_is_fed_meanwhile(listening, autojump_clock):
    environment = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "3000000"}
    stopping = trio.Event()
    stopping.set()
    await run_for(Supervisor(environment), 2.5, stopping)
    notices = messages(listening)
    assert notices.count(b"STOPPING=1") == 1
    assert notices.count(b"WATCHDOG=1") >= 3


async def test_without_a_watchdog_only_the_stop_is_told(listening, autojump_clock):
    address = listening.getsockname()
    others = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
    stopping = trio.Event()
    stopping.set()
    for environment in ({"NOTIFY_SOCKET": address}, others):
        await run_for(Supervisor(environment), 60, stopping)
        assert messages(listening) == [b"STOPPING=1"]


async def test_nothing_is_told_without_a_service_manager():
    supervisor = Supervisor({})
    supervisor.ready()
    with trio.fail_after(math.inf):
        await supervisor.run(trio.Event())


def test_an_abstract_address_is_understood():
    name = f"\0braidlog-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        Supervisor({"NOTIFY_SOCKET": f"@{name[1:]}"}).ready()
        assert sock.recv(100) == b"READY=1"


def test_a_manager_that_is_gone_does_no_harm(tmp_path, capsys):
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert "supervisor_not_told" in capsys.readouterr().out
