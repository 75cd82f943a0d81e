"""Order, tickets, back-pressure and ownership of bytes in the outbox."""

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.limits import ANSWERS_MAX, OUTBOX_BYTES_MAX
from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.output_budget import OutputBudget
from tests.broker.server.echo import FakeTickets, receive_all, receive_exactly, tcp_pair


class Sender:
    """An outbox on a real socket, and its flusher task on request."""

    def __init__(self, nursery, sock, client):
        self.tickets = FakeTickets()
        self.budget = OutputBudget()
        self.sock, self.client = sock, client
        self.broken = []
        self.flushers = 0
        self.nursery = nursery
        self.outbox = Outbox(
            sock,
            self.tickets,
            self.budget,
            start_flusher=self.start,
            on_broken=self.broken.append,
        )

    def start(self):
        self.flushers += 1
        self.nursery.start_soon(self.outbox.run)
        return True


@pytest.fixture
async def sender(nursery):
    sock, client = await tcp_pair(send_buffer=16 * 1024)
    with sock:
        yield Sender(nursery, sock, client)
        await client.aclose()


async def test_answers_are_sent_in_order_and_never_before_their_ticket(sender):
    sender.outbox.answer([b"a"], 1)
    sender.outbox.answer([b"b"], 0)
    sender.outbox.answer([b"c"], 3)
    sender.outbox.answer([b"d"], 2)
    assert sender.outbox.pending_answers == 4
    sender.tickets.reach(1)
    assert await receive_exactly(sender.client, 2) == b"ab"
    sender.tickets.reach(2)
    assert sender.outbox.pending_answers == 2
    sender.tickets.reach(3)
    assert await receive_exactly(sender.client, 2) == b"cd"
    assert not sender.tickets.watching


async def test_an_answer_with_a_durable_ticket_is_sent_at_once(sender):
    sender.tickets.reach(7)
    sender.outbox.answer([b"now"], 7)
    assert await receive_exactly(sender.client, 3) == b"now"


async def test_put_overtakes_pending_answers_only(sender):
    sender.outbox.answer([b"late"], 1)
    sender.outbox.put([b"push"])
    sender.tickets.reach(1)
    assert await receive_exactly(sender.client, 8) == b"pushlate"


async def test_gathered_parts_are_sent_by_a_single_flush(sender):
    sender.outbox.gathering = True
    sender.outbox.put([b"a", b"b"])
    sender.outbox.put([b"c"])
    assert sender.outbox.unsent_bytes == 3
    sender.outbox.gathering = False
    sender.outbox.flush()
    assert sender.outbox.unsent_bytes == 0
    assert await receive_exactly(sender.client, 3) == b"abc"


@pytest.mark.parametrize("gathering", [False, True])
@pytest.mark.parametrize("size", [100, 3_000_000])
async def test_views_may_change_after_put(sender, gathering, size):
    data = bytearray(b"x" * size)
    sender.outbox.gathering = gathering
    sender.outbox.put([memoryview(data)])
    data[:] = b"y" * size
    sender.outbox.gathering = False
    sender.outbox.flush()
    assert await receive_exactly(sender.client, size) == b"x" * size


async def test_views_of_pending_answers_may_change_too(sender):
    data = bytearray(b"x" * 50_000)
    sender.outbox.answer([memoryview(data)], 1)
    data[:] = b"y" * 50_000
    sender.tickets.reach(1)
    assert await receive_exactly(sender.client, 50_000) == b"x" * 50_000


async def test_a_full_socket_starts_a_flusher_and_back_pressure_until_read(sender, nursery):
    outbox = sender.outbox
    assert outbox.has_room
    while not outbox.over_limit:
        outbox.put([b"z" * 100_000])
    assert not outbox.has_room
    assert sender.flushers == 1
    drained = trio.Event()

    async def wait():
        await outbox.drained()
        drained.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert not drained.is_set()
    while not drained.is_set():
        assert await sender.client.receive_some(65536)
    assert outbox.unsent_bytes <= OUTBOX_BYTES_MAX


async def test_answers_room_waits_for_the_disk(sender, nursery):
    for _ in range(ANSWERS_MAX):
        sender.outbox.answer([b"."], 1)
    assert not sender.outbox.has_answers_room
    assert not sender.outbox.has_room
    roomy = trio.Event()

    async def wait():
        await sender.outbox.answers_room()
        roomy.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert not roomy.is_set()
    sender.tickets.reach(1)
    await roomy.wait()


async def test_finished_waits_for_pending_answers_and_unsent_bytes(sender, nursery):
    sender.outbox.answer([b"p" * 2_000_000], 1)
    finished = trio.Event()

    async def wait():
        await sender.outbox.finished()
        finished.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    sender.tickets.reach(1)
    await wait_all_tasks_blocked()
    assert not finished.is_set()
    await receive_exactly(sender.client, 2_000_000)
    await finished.wait()


async def test_a_broken_socket_is_reported_once_and_later_output_is_dropped(sender):
    sender.sock.close()
    sender.outbox.put([b"lost"])
    assert len(sender.broken) == 1
    sender.outbox.put([b"lost too"])
    sender.outbox.answer([b"and this"], 9)
    assert len(sender.broken) == 1
    assert sender.outbox.pending_answers == sender.outbox.unsent_bytes == 0
    await sender.outbox.finished()


@pytest.mark.parametrize("seed", range(8))
async def test_any_mixture_arrives_whole_and_answers_in_order(sender, seed):
    chance = random.Random(seed)
    outbox, tickets = sender.outbox, sender.tickets
    answers, pushes, ticket = [], [], 0
    received = bytearray()

    async def read():
        received.extend(await receive_all(sender.client))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for number in range(200):
            size = chance.choice([1, 10, 1000, 20_000, 200_000])
            mark, log = (b"A", answers) if chance.random() < 0.6 else (b"P", pushes)
            text = b"<%s%d:%s>" % (mark, number, b"." * size)
            half = chance.randrange(len(text))
            parts = [memoryview(bytearray(text[:half])), text[half:]]
            outbox.gathering = chance.random() < 0.3
            if log is answers:
                ticket += chance.random() < 0.5
                outbox.answer(parts, ticket)
            else:
                outbox.put(parts)
            log.append(text)
            outbox.gathering = False
            if chance.random() < 0.2:
                tickets.reach(chance.randint(tickets.durable_ticket, ticket))
            if chance.random() < 0.2:
                await trio.lowlevel.checkpoint()
        tickets.reach(ticket)
        outbox.flush()
        await outbox.finished()
        sender.sock.shutdown(1)
    frames = [frame + b">" for frame in bytes(received).split(b">")[:-1]]
    assert [frame for frame in frames if frame[1:2] == b"A"] == answers, f"seed {seed}"
    assert [frame for frame in frames if frame[1:2] == b"P"] == pushes, f"seed {seed}"
