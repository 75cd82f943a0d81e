"""Output of many connections, sent by a thread: order, rests, errors, and sockets that close."""

import errno
import socket
import threading
from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.poller import EpollPoller
from braidlog.broker.runtime.send_thread import SendThread
from braidlog.storage.formats.quick import SPEEDUPS
from tests.broker.server.echo import FakeTickets, receive_exactly, tcp_pair
from tests.waiting import until

CLIENTS = 5


def send_in_python(sends):
    """Do as the extension does."""
    results = []
    for fd, data in sends:
        sock = socket.socket(fileno=fd)
        try:
            results.append(sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL))
        except OSError as error:
            results.append(-error.errno)
        finally:
            sock.detach()
    return results


SENDERS = [send_in_python] if SPEEDUPS is None else [send_in_python, SPEEDUPS.send_each]


class HeldSends:
    """Sends that wait until the test lets them go."""

    def __init__(self):
        self.may_send = threading.Event()
        self.batches = []

    def __call__(self, sends):
        self.batches.append(list(sends))
        self.may_send.wait()
        return send_in_python(sends)


class OutboxBench:
    """Outboxes on real sockets, with the poller that serves the sender's results."""

    def __init__(self, nursery, send_each, sends_min=2):
        self.poller = EpollPoller()
        self.sender = SendThread(self.poller, sends_min=sends_min, send_each=send_each)
        self.tickets = FakeTickets()
        self.outboxes, self.streams, self.socks, self.broken = [], [], [], []
        self._nursery = nursery

    async def connect(self, **options):
        sock, stream = await tcp_pair(**options)
        outbox = Outbox(
            sock,
            self.tickets,
            OutputBudget(),
            sender=self.sender,
            start_flusher=lambda: self._start(outbox),
            on_broken=lambda error: self.broken.append((outbox, error)),
        )
        self.outboxes.append(outbox)
        self.streams.append(stream)
        self.socks.append(sock)
        return outbox

    def _start(self, outbox):
        self._nursery.start_soon(outbox.run)
        return True

    def send(self, texts):
        """Put a text into each outbox, as turns of a pass do, and end the pass."""
        self.poller.in_pass = True
        for outbox, text in zip(self.outboxes, texts, strict=True):
            outbox.gathering = True
            outbox.put([text])
            outbox.gathering = False
            outbox.flush_soon()
        self.poller._call_soon()
        self.poller.in_pass = False

    def close(self):
        for outbox, sock in zip(self.outboxes, self.socks, strict=True):
            outbox.abandon()
            sock.close()
        self.sender.close()


@asynccontextmanager
async def clients(send_each, count=CLIENTS, sends_min=2, **options):
    async with trio.open_nursery() as nursery:
        opened = OutboxBench(nursery, send_each, sends_min)
        for _ in range(count):
            await opened.connect(**options)
        nursery.start_soon(opened.poller.run)
        yield opened
        if isinstance(send_each, HeldSends):
            send_each.may_send.set()
        opened.close()
        for stream in opened.streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("send_each", SENDERS)
async def test_each_client_gets_its_output_in_order(send_each):
    async with clients(send_each) as opened:
        for turn in range(50):
            opened.send([b"%d/%02d " % (client, turn) for client in range(CLIENTS)])
            if turn % 7 == 0:
                await trio.lowlevel.checkpoint()
        for client, stream in enumerate(opened.streams):
            expected = b"".join(b"%d/%02d " % (client, turn) for turn in range(50))
            assert await receive_exactly(stream, len(expected)) == expected
        await until(lambda: all(outbox.is_empty for outbox in opened.outboxes))
        assert {outbox.sent_bytes for outbox in opened.outboxes} == {len(expected)}


async def test_few_outboxes_send_without_the_thread():
    held = HeldSends()
    async with clients(held, sends_min=CLIENTS + 1) as opened:
        opened.send([b"now"] * CLIENTS)
        assert all(outbox.is_empty for outbox in opened.outboxes)
        assert await receive_exactly(opened.streams[0], 3) == b"now"
        assert not held.batches


async def test_output_waits_for_the_batch_before():
    held = HeldSends()
    async with clients(held) as opened:
        opened.send([b"first"] * CLIENTS)
        outbox, stream = opened.outboxes[0], opened.streams[0]
        outbox.put([b"second"])
        outbox.put([b"x" * 100_000])
        outbox.flush()
        assert outbox.is_handed_over
        with trio.move_on_after(0.05) as nothing_came:
            await stream.receive_some(1)
        assert nothing_came.cancelled_caught
        held.may_send.set()
        assert await receive_exactly(stream, 11 + 100_000) == b"firstsecond" + b"x" * 100_000


async def test_a_second_batch_has_only_outboxes_without_an_earlier_one():
    held = HeldSends()
    async with clients(held) as opened:
        opened.send([b"a"] * CLIENTS)
        opened.send([b"b"] * CLIENTS)
        held.may_send.set()
        for stream in opened.streams:
            assert await receive_exactly(stream, 2) == b"ab"
        assert [len(batch) for batch in held.batches if batch] == [CLIENTS]


@pytest.mark.parametrize("send_each", SENDERS)
async def test_the_rest_for_a_full_socket_follows(send_each):
    text = bytes(range(256)) * 60  # Less than OUTBOX_LARGE_BYTES.
    async with clients(send_each, send_buffer=4096) as opened:
        for _ in range(20):
            opened.send([text] * CLIENTS)
            await trio.sleep(0)
        for stream in opened.streams:
            assert await receive_exactly(stream, 20 * len(text)) == 20 * text
        await until(lambda: all(outbox.is_empty for outbox in opened.outboxes))
        assert {outbox.unsent_bytes for outbox in opened.outboxes} == {0}
        assert {outbox.sent_bytes for outbox in opened.outboxes} == {20 * len(text)}


@pytest.mark.parametrize("send_each", SENDERS)
async def test_an_error_breaks_its_outbox_alone(send_each):
    async with clients(send_each) as opened:
        opened.socks[2].shutdown(socket.SHUT_WR)
        opened.send([b"text"] * CLIENTS)
        await until(lambda: opened.broken)
        ((outbox, error),) = opened.broken
        assert (outbox, error.errno) == (opened.outboxes[2], errno.EPIPE)
        assert outbox.is_broken
        for stream in opened.streams[:2] + opened.streams[3:]:
            assert await receive_exactly(stream, 4) == b"text"


async def test_a_socket_closes_only_after_its_output_was_sent():
    held = HeldSends()
    async with clients(held) as opened:
        opened.send([b"text"] * CLIENTS)
        outbox = opened.outboxes[0]
        threading.Timer(0.05, held.may_send.set).start()
        outbox.abandon()  # Returns only after the thread's send.
        assert held.may_send.is_set()
        assert not outbox.is_handed_over
        assert await receive_exactly(opened.streams[0], 4) == b"text"


async def test_the_end_of_the_output_includes_that_of_the_thread():
    held = HeldSends()
    async with clients(held) as opened:
        opened.send([b"text"] * CLIENTS)
        outbox = opened.outboxes[0]
        assert not outbox.is_empty
        held.may_send.set()
        await outbox.finished()
        assert outbox.is_empty


async def test_a_place_in_a_file_follows_output_of_the_thread(tmp_path):
    held = HeldSends()
    async with clients(held) as opened:
        opened.send([b"head"] * CLIENTS)
        held.may_send.set()
        opened.outboxes[0]._put_files([b"small", b"rest"])
        assert await receive_exactly(opened.streams[0], 13) == b"headsmallrest"


async def test_released_answers_of_a_pass_are_sent_together():
    held = HeldSends()
    async with clients(held) as opened:
        for outbox in opened.outboxes:
            outbox.answer([b"stored"], 1)
        opened.poller.in_pass = True
        opened.tickets.reach(1)
        opened.poller._call_soon()
        opened.poller.in_pass = False
        await until(lambda: held.batches)
        assert [len(batch) for batch in held.batches] == [CLIENTS]
        held.may_send.set()
        for stream in opened.streams:
            assert await receive_exactly(stream, 6) == b"stored"


@pytest.mark.skipif(SPEEDUPS is None, reason="needs the extension")
def test_the_extension_reports_each_error():
    left, right = socket.socketpair()
    with left, right, open("/dev/null") as plain_file:
        sends = [(left.fileno(), b"abc"), (10**6, b"x"), (plain_file.fileno(), b"x")]
        assert SPEEDUPS.send_each(sends) == [3, -errno.EBADF, -errno.ENOTSOCK]
        assert right.recv(10) == b"abc"
        right.close()
        assert SPEEDUPS.send_each([(left.fileno(), b"abc")]) == [-errno.EPIPE]
    assert SPEEDUPS.send_each([]) == []
    for wrong in ([(1, "text")], [("x", b"")], [()], [3], 3):
        with pytest.raises((TypeError, IndexError, SystemError)):
            SPEEDUPS.send_each(wrong)
